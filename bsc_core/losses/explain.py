"""Every probability and gradient of the batch-softmax loss on a small batch, for the loss lab.

NumPy in float64, independent of the torch losses. Tests compare it with autograd and with the browser's copy.
"""

# B pairs, M = B + K documents, D dimensions

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.config import BSCLossConfig
from bsc_core.errors import InputError
from bsc_core.types import Indices, Mask, Numbers

SMALLEST_RANGE = 1e-6
"""Column ranges and norms at or below this share of the largest magnitude are treated as 0, as in the loss."""
RELATIVE_TIE, ABSOLUTE_TIE = 1e-6, 1e-12
"""Values this close to the largest count as ties, so that rounding never decides; the browser uses the same."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Intermediate values of a batch-softmax loss."""

    similarity: Numbers  # (B, M) dot products of the normalized vectors
    logits: Numbers  # (B, M), similarity / tau
    rows: Numbers  # (B, M), softmax of each query over its candidates, 0 elsewhere
    columns: Numbers | None  # (B, B), [i, j] is the softmax of document j at query i; None if not symmetric
    gradient: Numbers  # (B, M), of the total with respect to the similarity, before the division by tau
    row_losses: Numbers  # (B,), 0 for pairs that are no anchors
    query_to_document: float  # loss of the first direction
    document_to_query: float | None  # loss of the second direction; None if not symmetric
    total: float  # the loss
    row_positives: Mask  # bool (B, M)
    row_candidates: Mask  # bool (B, M)
    column_positives: Mask | None  # bool, of the second direction
    column_candidates: Mask | None  # bool, of the second direction
    effective_negatives: float  # mean over anchors of exp(entropy) of the softmax over negatives, at least 1; 0 without
    hardest_row: int  # the anchor with the largest loss; the lowest index among ties


def explain(
    queries: ArrayLike,
    documents: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    config: BSCLossConfig,
    threshold: float = 0.5,
    query_ids: ArrayLike | None = None,
    document_ids: ArrayLike | None = None,
) -> Explanation:
    """Compute all values of `BSCLoss` on one batch, equations 1 to 5 of the BSC paper.

    Args:
        queries: (B, D), B >= 2.
        documents: (B + K, D).
        labels: (B,) in [0, 1]; None if all pairs are positive.
        config: Settings of the loss.
        threshold: Used if the config has none.
        query_ids: (B,), required unless config.duplicates is "keep".
        document_ids: (B,), likewise.

    Raises:
        InputError: A shape or value cannot be used.
    """
    left, right = np.asarray(queries, dtype=np.float64), np.asarray(documents, dtype=np.float64)
    _check(left, right)
    pairs = len(left)
    positive = _positive(labels, pairs, threshold if config.threshold is None else config.threshold)
    query, document = _ids(config, query_ids, document_ids, (pairs, len(right)))
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        similarity = normalize(left, config.normalization) @ normalize(right, config.normalization).T  # (B, M)
        logits = similarity / config.temperature
    if not np.isfinite(logits).all():
        raise InputError("the similarities exceed the range of float64; choose normalization l2")
    first = _direction(logits, config, positive, query, document)
    second = _direction(logits[:, :pairs].T, config, positive, document[:pairs], query) if config.symmetric else None
    counts_all = config.average == "batch" and config.labeled_negatives
    count = pairs if counts_all else max(1, int(positive.sum()))
    weight = 0.5 if second is not None and config.reduction == "mean" else 1.0
    gradient = first.gradient / count
    if second is not None:
        gradient[:, :pairs] += second.gradient.T / count
    to_document = float(first.losses.sum() / count)
    to_query = None if second is None else float(second.losses.sum() / count)
    return Explanation(
        similarity=similarity,
        logits=logits,
        rows=first.probability,
        columns=None if second is None else second.probability.T,
        gradient=gradient * weight / config.temperature,
        row_losses=first.losses,
        query_to_document=to_document,
        document_to_query=to_query,
        total=weight * (to_document + (to_query or 0.0)),
        row_positives=first.positives,
        row_candidates=first.candidates,
        column_positives=None if second is None else second.positives.T,
        column_candidates=None if second is None else second.candidates.T,
        effective_negatives=_effective_negatives(first),
        hardest_row=int(first_largest(np.where(first.positives.any(axis=1), first.losses, -np.inf))),
    )


def first_largest(values: ArrayLike, axis: int = -1) -> NDArray[np.intp]:
    """Return the index of the largest value along an axis; of values that differ by rounding alone, the lowest index.

    Values within RELATIVE_TIE of the largest, or ABSOLUTE_TIE where that is near 0, count as equal to it.
    """
    array = np.asarray(values, dtype=np.float64)
    largest = array.max(axis=axis, keepdims=True)
    first: NDArray[np.intp] = np.argmax(array >= largest - RELATIVE_TIE * np.abs(largest) - ABSOLUTE_TIE, axis=axis)
    return first


def normalize(vectors: Numbers, normalization: str) -> Numbers:
    """Return the vectors as the loss compares them, (B, D); a zero row or constant column becomes 0."""
    if normalization == "none":
        return vectors
    if normalization == "l2":
        return vectors * _inverse(np.linalg.norm(vectors, axis=1, keepdims=True), 0.0)
    smallest = SMALLEST_RANGE * float(np.abs(vectors).max())
    if normalization == "l2_columns":
        return vectors * _inverse(np.linalg.norm(vectors, axis=0), smallest)
    lowest = vectors.min(axis=0)
    scale = _inverse(vectors.max(axis=0) - lowest, smallest)
    return vectors * scale if normalization == "range_columns" else (vectors - lowest) * scale


def _inverse(sizes: Numbers, smallest: float) -> Numbers:
    return np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > smallest)


@dataclass(frozen=True, eq=False)
class _Softmax:
    """One direction, anchors in rows. gradient: (B, M), of the summed losses with respect to the logits."""

    probability: Numbers
    gradient: Numbers
    losses: Numbers
    positives: Mask
    candidates: Mask


def _direction(
    logits: Numbers, config: BSCLossConfig, positive: Mask, anchor_ids: Indices, candidate_ids: Indices
) -> _Softmax:
    """Compute the softmax of each anchor. logits: (B, M); anchor_ids: (B,); candidate_ids: (M,)."""
    positives, candidates = _masks(logits.shape, config, positive, anchor_ids, candidate_ids)
    allowed = np.where(candidates, logits, -np.inf)
    highest = allowed.max(axis=1, keepdims=True)
    exps = np.exp(allowed - np.where(np.isfinite(highest), highest, 0.0))
    sums = exps.sum(axis=1, keepdims=True)
    probability = np.divide(exps, sums, out=np.zeros_like(exps), where=sums > 0)
    counts = positives.sum(axis=1)  # (B,)
    anchors = counts > 0
    share = positives / np.maximum(counts, 1)[:, None]
    with np.errstate(divide="ignore"):
        log_sum = np.log(sums[:, 0]) + highest[:, 0]
    positive_scores = (share * np.where(positives, logits, 0.0)).sum(axis=1)
    losses = np.where(anchors, np.where(anchors, log_sum, 0.0) - positive_scores, 0.0)
    gradient = np.where(anchors[:, None], probability - share, 0.0)
    return _Softmax(probability, gradient, losses, positives, candidates)


def _masks(
    shape: tuple[int, int], config: BSCLossConfig, positive: Mask, anchor_ids: Indices, candidate_ids: Indices
) -> tuple[Mask, Mask]:
    """Return positives and candidates of each anchor, bool (B, M) each."""
    pairs, count = shape
    diagonal = np.eye(pairs, count, dtype=bool)
    extra = np.ones(count - pairs, dtype=bool)
    offered = np.ones(count, dtype=bool) if config.labeled_negatives else np.concatenate([positive, extra])
    positives, candidates = diagonal & positive[:, None], np.broadcast_to(offered, shape)
    copies = candidate_ids[:pairs, None] == candidate_ids  # (B, M) copies of the paired candidate
    if config.duplicates == "merge":
        firsts = [np.flatnonzero((candidate_ids == text) & offered)[:1] for text in candidate_ids]
        first = np.array([bool(len(rows)) and rows[0] == row for row, rows in enumerate(firsts)])
        candidates = (first & ~copies) | positives
    elif config.duplicates == "multi_positive":
        anchor_of = np.concatenate([anchor_ids, np.full(count - pairs, anchor_ids.min() - 1)])
        counted = np.concatenate([positive, ~extra])
        positives = (copies | ((anchor_ids[:, None] == anchor_of) & counted)) & positive[:, None]
    return positives, candidates | positives


def _effective_negatives(softmax: _Softmax) -> float:
    negatives = np.where(softmax.candidates & ~softmax.positives, softmax.probability, 0.0)
    sums = negatives.sum(axis=1, keepdims=True)
    used = softmax.positives.any(axis=1) & (sums[:, 0] > 0)
    if not used.any():
        return 0.0
    share = negatives[used] / sums[used]
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return float(np.exp(-(share * logs).sum(axis=1)).mean())


def _check(left: Numbers, right: Numbers) -> None:
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1] or len(right) < len(left):
        raise InputError(f"queries are {left.shape} and documents {right.shape}; give one document for each query")
    if len(left) < 2:
        raise InputError(f"the batch has {len(left)} pair(s); it needs at least 2, since the others are negatives")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise InputError("the embeddings contain NaN or infinity; check the encoder")


def _positive(labels: ArrayLike | None, pairs: int, threshold: float) -> Mask:
    if labels is None:
        return np.ones(pairs, dtype=bool)
    values = np.asarray(labels, dtype=np.float64)
    if values.shape != (pairs,) or not ((values >= 0) & (values <= 1)).all():
        raise InputError(f"labels must be {pairs} numbers from 0 to 1, one for each pair")
    return values > threshold


def _ids(
    config: BSCLossConfig, query_ids: ArrayLike | None, document_ids: ArrayLike | None, sizes: tuple[int, int]
) -> tuple[Indices, Indices]:
    """Return ids of the queries (B,) and of all documents (B + K,); each extra document gets a new one."""
    pairs, choices = sizes
    if config.duplicates == "keep":
        return np.arange(pairs), np.arange(choices)
    if query_ids is None or document_ids is None:
        raise InputError(f"duplicates is {config.duplicates}; give query_ids and document_ids, equal for equal texts")
    query, document = np.asarray(query_ids, dtype=np.int64), np.asarray(document_ids, dtype=np.int64)
    if query.shape != (pairs,) or document.shape not in ((pairs,), (choices,)):
        raise InputError(
            f"query_ids are {query.shape} and document_ids {document.shape} for {pairs} pairs and {choices} documents; "
            "give one id for each"
        )
    return query, np.concatenate([document, document.min() - 1 - np.arange(choices - len(document))])
