"""Every probability and gradient of the batch-softmax loss on a small batch, for the loss lab.

NumPy in float64, independent of the torch losses. Tests compare it with autograd and with the browser's copy.
"""

# B pairs, M = B + K documents, D dimensions

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.config import BSCLossConfig
from bsc_core.errors import InputError
from bsc_core.types import Indices, Mask, Numbers

SMALLEST_RANGE = 1e-6
"""Column ranges and norms at or below this share of the largest magnitude are treated as 0, as in the loss."""
TIE = 1e-6
"""Cosines this close above the limit of a mask count as equal to it, as in the loss."""
RELATIVE_TIE, ABSOLUTE_TIE = 1e-6, 1e-12
"""Values this close to the largest count as ties, so that rounding never decides; the browser uses the same."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Intermediate values of a batch-softmax loss."""

    similarity: Numbers  # (B, M) dot products of the normalized vectors
    logits: Numbers  # (B, M), similarity / tau
    rows: Numbers  # (B, M), softmax of each query over its candidates, 0 elsewhere; see `_Softmax.probability`
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
    row_masked: Mask  # bool (B, M), negatives that the false-negative mask removes, queries as anchors
    bumps: Numbers  # (B, M), hardness weights that are added to the logits, queries as anchors
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
    guide: tuple[ArrayLike, ArrayLike] | None = None,
) -> Explanation:
    """Compute all values of `BSCLoss` on one batch, equations 1 to 5 of the BSC paper.

    Args:
        queries: (B, D), B >= 2.
        documents: (B + K, D).
        labels: (B,) in [0, 1]; None if all pairs are positive.
        config: Settings of the loss.
        threshold: Used if the config has none.
        query_ids: (B,), required unless config.duplicates is "keep"; with a mask, they select the labeled cells.
        document_ids: (B,), likewise.
        guide: Vectors of the guide, (B, G) of the queries and (B + K, G) of the documents; required for mask = guide.

    Raises:
        InputError: A shape or value cannot be used, or the config has directions or Matryoshka dimensions.
    """
    if config.directions or config.partition == "joint" or config.matryoshka_dims:
        raise InputError("directions, partition and matryoshka_dims are not explained; leave them unset")
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
    unit_queries, unit_documents = normalize(left, "l2"), normalize(right, "l2")
    cosines = unit_queries @ unit_documents.T
    judged = _guide_cosines(guide, cosines.shape) if config.mask == "guide" else cosines
    labeled = _labeled(config, positive, query_ids, document_ids, (pairs, len(right)))
    owned = np.arange(len(right)) % pairs if len(right) % pairs == 0 else np.arange(len(right))
    own = owned == np.arange(pairs)[:, None]
    chosen = {
        "none": np.zeros_like(own),
        "in_batch_negatives": ~own,
        "hard_negatives": own & ~np.eye(pairs, len(right), dtype=bool),
        "all_negatives": ~np.eye(pairs, len(right), dtype=bool),
    }[config.hardness]
    bumps = config.hardness_strength * cosines * chosen
    scores = _Scores(logits, judged, bumps, *labeled)
    first = _direction(scores, config, positive, query, document)
    second = _direction(scores.transposed(), config, positive, document[:pairs], query) if config.symmetric else None
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
        row_masked=first.masked,
        bumps=np.where(first.positives, 0.0, bumps),
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
class _Scores:
    """Cells of one direction, (B, M) each, anchors in rows."""

    logits: Numbers
    judged: Numbers  # cosines of the judge of the mask
    bumps: Numbers  # hardness weights
    labeled_positive: Mask  # cells that leave the denominator with a mask
    labeled_negative: Mask  # cells that a mask never removes

    def transposed(self) -> _Scores:
        """Return the scores with the paired documents as anchors; these have no hardness weights."""
        pairs = len(self.logits)
        return _Scores(
            self.logits[:, :pairs].T,
            self.judged[:, :pairs].T,
            np.zeros((pairs, pairs)),
            self.labeled_positive[:, :pairs].T,
            self.labeled_negative[:, :pairs].T,
        )


@dataclass(frozen=True, eq=False)
class _Softmax:
    """One direction, anchors in rows.

    probability: (B, M), derivative of the logarithm of the denominator by each logit; the softmax, except that
    `debiased_prior` makes that of the positive smaller. gradient: (B, M), of the summed losses by the logits.
    """

    probability: Numbers
    gradient: Numbers
    losses: Numbers
    positives: Mask
    candidates: Mask
    masked: Mask


def _direction(
    scores: _Scores, config: BSCLossConfig, positive: Mask, anchor_ids: Indices, candidate_ids: Indices
) -> _Softmax:
    """Compute the softmax of each anchor. anchor_ids: (B,); candidate_ids: (M,)."""
    positives, candidates = _masks(scores.logits.shape, config, positive, anchor_ids, candidate_ids)
    masked = np.zeros_like(positives)
    if config.mask != "none":
        candidates = positives | (candidates & ~scores.labeled_positive)
        limits = np.diagonal(scores.judged)[:, None]
        limits = limits - config.mask_margin * (1.0 if config.mask_margin_kind == "absolute" else np.abs(limits))
        kept = positives | scores.labeled_negative | np.eye(positives.shape[0], positives.shape[1], dtype=bool)
        masked = candidates & ~kept & (scores.judged > limits + TIE)
        candidates = candidates & ~masked
    negatives = candidates & ~positives
    logits = scores.logits + np.where(negatives, scores.bumps, 0.0)
    counts = positives.sum(axis=1)  # (B,)
    share = positives / np.maximum(counts, 1)[:, None]
    positive_scores = (share * np.where(positives, logits, 0.0)).sum(axis=1)
    without_positives = config.decoupled or config.debiased_prior > 0
    log_sum, probability = _log_sum(logits, negatives if without_positives else negatives | positives)
    if config.debiased_prior:
        log_sum, probability = _debiased(log_sum, probability, negatives, positive_scores, share, config)
    anchors = counts > 0
    if without_positives or config.mask != "none" or config.hardness != "none":
        anchors = anchors & negatives.any(axis=1)  # a row that lost all negatives gives 0
    losses = np.where(anchors, np.where(anchors, log_sum, 0.0) - positive_scores, 0.0)
    gradient = np.where(anchors[:, None], probability - share, 0.0)
    return _Softmax(probability, gradient, losses, positives, candidates, masked)


def _log_sum(logits: Numbers, included: Mask) -> tuple[Numbers, Numbers]:
    """Return log-sum-exp of the included cells of each row, (B,), -inf without any, and their softmax, (B, M)."""
    allowed = np.where(included, logits, -np.inf)
    highest = allowed.max(axis=1, keepdims=True)
    exps = np.exp(allowed - np.where(np.isfinite(highest), highest, 0.0))
    sums = exps.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_sum = np.log(sums[:, 0]) + highest[:, 0]
    return log_sum, np.divide(exps, sums, out=np.zeros_like(exps), where=sums > 0)


def _debiased(
    log_sum: Numbers, probability: Numbers, negatives: Mask, positive: Numbers, share: Numbers, config: BSCLossConfig
) -> tuple[Numbers, Numbers]:
    """Return the logarithm of the debiased denominator, (B,), and its derivatives by the logits, (B, M)."""
    prior, count = config.debiased_prior, np.maximum(negatives.sum(axis=1), 1)
    with np.errstate(invalid="ignore"):
        gap = np.log(prior) + positive - (log_sum - np.log(count))
        part = np.exp(np.minimum(gap, 0.0))  # expected share of the positives in the mean
        estimate = log_sum - np.log(count) + np.log1p(-np.where(part < 1, part, 0.0)) - np.log1p(-prior)
        above = (part < 1) & (estimate > -1 / config.temperature) & np.isfinite(log_sum)
    rest = np.where(above, 1 - part, 1.0)
    result = np.log(count) + np.where(above, estimate, -1 / config.temperature)
    by_negatives = np.where(above, 1 / rest, 0.0)[:, None] * probability
    by_positive = np.where(above, -part / rest, 0.0)[:, None] * share
    if config.decoupled:
        return result, by_negatives + by_positive
    total = np.logaddexp(result, positive)
    estimated = np.exp(result - total)[:, None]
    return total, estimated * (by_negatives + by_positive) + (1 - estimated) * share


def _guide_cosines(guide: tuple[ArrayLike, ArrayLike] | None, shape: tuple[int, ...]) -> Numbers:
    """Return the cosines of the guide, (B, M)."""
    if guide is None:
        raise InputError("mask is guide and the guide's vectors are missing; give the vectors of queries and documents")
    queries, documents = (normalize(np.asarray(side, dtype=np.float64), "l2") for side in guide)
    if (len(queries), len(documents)) != shape:
        raise InputError(
            f"the guide has {len(queries)} queries and {len(documents)} documents for {shape[0]} and {shape[1]}; "
            "give one vector for each"
        )
    cosines: Numbers = queries @ documents.T
    return cosines


def _labeled(
    config: BSCLossConfig,
    positive: Mask,
    query_ids: ArrayLike | None,
    document_ids: ArrayLike | None,
    shape: tuple[int, int],
) -> tuple[Mask, Mask]:
    """Return bool (B, M), the cells off the diagonal whose texts are a pair labeled positive, or only negative."""
    leaves, stays = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    if config.mask == "none" or query_ids is None or document_ids is None:
        return leaves, stays
    query, document = np.asarray(query_ids), np.asarray(document_ids)
    document = np.concatenate([document, document.min() - 1 - np.arange(shape[1] - len(document))])
    for row, is_positive in enumerate(positive):
        cells = (query == query[row])[:, None] & (document == document[row])
        (leaves if is_positive else stays)[cells] = True
    off_diagonal = ~np.eye(*shape, dtype=bool)
    return leaves & off_diagonal, stays & ~leaves & off_diagonal


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
