"""The batch-softmax loss of a small batch with nothing hidden: every probability and gradient, cell by cell.

NumPy in float64, written beside the torch losses rather than on them: the loss lab shows it, the browser's copy is
compared with it, and it is compared with autograd.
"""

# B pairs, M = B + K documents, D dimensions

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.config import BSCLossConfig
from bsc_core.errors import InputError

Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]
SMALLEST_RANGE = 1e-8
"""Ranges and lengths of columns below this count as 0, as in the loss."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a batch-softmax loss sees and does.

    similarity: (B, M) dot products of the normalised vectors; logits: similarity / tau; rows: (B, M) each query's
    softmax over its candidates, 0 elsewhere; columns: (B, B), [i, j] the probability that document j chooses query i,
    None when not symmetric; gradient: (B, M) of the total with respect to the similarity, before the division by tau.
    row_losses, column_losses: (B,), 0 for pairs that are no anchors. The four masks say what was positive and what was
    a candidate. effective_negatives: mean over the anchors of exp(entropy) of their softmax over negatives alone, from
    1 (one negative takes it all) to their number; 0 without negatives. hardest_row: the anchor with the largest loss.
    """

    similarity: Matrix
    logits: Matrix
    rows: Matrix
    columns: Matrix | None
    gradient: Matrix
    row_losses: Matrix
    column_losses: Matrix | None
    query_to_document: float
    document_to_query: float | None
    total: float
    row_positives: Mask
    row_candidates: Mask
    column_positives: Mask | None
    column_candidates: Mask | None
    effective_negatives: float
    hardest_row: int


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
    """Everything that `BSCLoss` computes on one batch, equations 1 to 5 of the BSC paper.

    queries: (B, D), B >= 2; documents: (B + K, D); labels: (B,) in [0, 1], None: all positive; query_ids,
    document_ids: (B,), needed unless config.duplicates is "keep". threshold: used where the config names none.
    Raises InputError for shapes and values that the loss refuses.
    """
    left, right = np.asarray(queries, dtype=np.float64), np.asarray(documents, dtype=np.float64)
    _check(left, right)
    pairs = len(left)
    positive = _positive(labels, pairs, threshold if config.threshold is None else config.threshold)
    query, document = _ids(config, query_ids, document_ids, (pairs, len(right)))
    with np.errstate(over="ignore", invalid="ignore"):  # told below, in a sentence
        similarity = normalise(left, config.normalization) @ normalise(right, config.normalization).T  # (B, M)
        logits = similarity / config.temperature
    if not np.isfinite(logits).all():
        raise InputError("the similarities leave the range of their numbers; choose normalization l2")
    first = _direction(logits, config, positive, query, document)
    second = _direction(logits[:, :pairs].T, config, positive, document[:pairs], query) if config.symmetric else None
    counts_all = config.average == "batch" and config.labelled_negatives
    count = pairs if counts_all else max(1, int(positive.sum()))
    weight = 0.5 if second is not None and config.reduction == "mean" else 1.0
    gradient = first.push / count
    if second is not None:
        gradient[:, :pairs] += second.push.T / count
    to_document = float(first.losses.sum() / count)
    to_query = None if second is None else float(second.losses.sum() / count)
    return Explanation(
        similarity=similarity,
        logits=logits,
        rows=first.probability,
        columns=None if second is None else second.probability.T,
        gradient=gradient * weight / config.temperature,
        row_losses=first.losses,
        column_losses=None if second is None else second.losses,
        query_to_document=to_document,
        document_to_query=to_query,
        total=weight * (to_document + (to_query or 0.0)),
        row_positives=first.positives,
        row_candidates=first.candidates,
        column_positives=None if second is None else second.positives.T,
        column_candidates=None if second is None else second.candidates.T,
        effective_negatives=_effective_negatives(first),
        hardest_row=int(np.argmax(np.where(first.positives.any(axis=1), first.losses, -np.inf))),
    )


def normalise(vectors: Matrix, normalization: str) -> Matrix:
    """The vectors as the loss compares them, (B, D); a row or column without a size becomes 0."""
    if normalization == "none":
        return vectors
    if normalization == "l2":
        return vectors * _inverse(np.linalg.norm(vectors, axis=1, keepdims=True), 0.0)
    if normalization == "l2_columns":
        return vectors * _inverse(np.linalg.norm(vectors, axis=0), SMALLEST_RANGE)
    lowest = vectors.min(axis=0)
    scale = _inverse(vectors.max(axis=0) - lowest, SMALLEST_RANGE)
    return vectors * scale if normalization == "range_columns" else (vectors - lowest) * scale


def _inverse(sizes: Matrix, smallest: float) -> Matrix:
    return np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > smallest)


@dataclass(frozen=True, eq=False)
class _Choice:
    """One direction: choosers in rows. push: (B, M) gradient of the summed losses with respect to the logits."""

    probability: Matrix
    push: Matrix
    losses: Matrix
    positives: Mask
    candidates: Mask


def _direction(
    logits: Matrix, config: BSCLossConfig, positive: Mask, chooser: NDArray[np.int64], choice: NDArray[np.int64]
) -> _Choice:
    """Softmax of each chooser. logits: (B, M); chooser: (B,) and choice: (M,) text ids."""
    positives, candidates = _masks(logits.shape, config, positive, chooser, choice)
    allowed = np.where(candidates, logits, -np.inf)
    highest = allowed.max(axis=1, keepdims=True)
    exps = np.exp(allowed - np.where(np.isfinite(highest), highest, 0.0))
    sums = exps.sum(axis=1, keepdims=True)
    probability = np.divide(exps, sums, out=np.zeros_like(exps), where=sums > 0)
    counts = positives.sum(axis=1)  # (B,)
    anchors = counts > 0
    share = positives / np.maximum(counts, 1)[:, None]
    with np.errstate(divide="ignore"):
        spread = np.log(sums[:, 0]) + highest[:, 0]
    attracted = (share * np.where(positives, logits, 0.0)).sum(axis=1)
    losses = np.where(anchors, np.where(anchors, spread, 0.0) - attracted, 0.0)
    push = np.where(anchors[:, None], probability - share, 0.0)
    return _Choice(probability, push, losses, positives, candidates)


def _masks(
    shape: tuple[int, int],
    config: BSCLossConfig,
    positive: Mask,
    chooser: NDArray[np.int64],
    choice: NDArray[np.int64],
) -> tuple[Mask, Mask]:
    """What each chooser should choose, and what it may choose, (B, M) each."""
    pairs, choices = shape
    own = np.eye(pairs, choices, dtype=bool)
    extra = np.ones(choices - pairs, dtype=bool)
    offered = np.ones(choices, dtype=bool) if config.labelled_negatives else np.concatenate([positive, extra])
    positives, candidates = own & positive[:, None], np.broadcast_to(offered, shape)
    copies = choice[:pairs, None] == choice  # (B, M) the own choice again
    if config.duplicates == "merge":
        places = [np.flatnonzero((choice == text) & offered)[:1] for text in choice]
        first = np.array([bool(len(place)) and place[0] == row for row, place in enumerate(places)])
        candidates = (first & ~copies) | positives
    elif config.duplicates == "multi_positive":
        asked = np.concatenate([chooser, np.full(choices - pairs, chooser.min() - 1)])
        right = np.concatenate([positive, ~extra])
        positives = (copies | ((chooser[:, None] == asked) & right)) & positive[:, None]
    return positives, candidates | positives


def _effective_negatives(choice: _Choice) -> float:
    negatives = np.where(choice.candidates & ~choice.positives, choice.probability, 0.0)
    sums = negatives.sum(axis=1, keepdims=True)
    used = choice.positives.any(axis=1) & (sums[:, 0] > 0)
    if not used.any():
        return 0.0
    share = negatives[used] / sums[used]
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return float(np.exp(-(share * logs).sum(axis=1)).mean())


def _check(left: Matrix, right: Matrix) -> None:
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[1] or len(right) < len(left):
        raise InputError(f"queries are {left.shape} and documents {right.shape}; give each query its own document")
    if len(left) < 2:
        raise InputError(f"a batch holds {len(left)} pair(s); it must hold at least 2, since the others are negatives")
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        raise InputError("the embeddings hold NaN or infinity; check the encoder")


def _positive(labels: ArrayLike | None, pairs: int, threshold: float) -> Mask:
    if labels is None:
        return np.ones(pairs, dtype=bool)
    values = np.asarray(labels, dtype=np.float64)
    if values.shape != (pairs,) or not ((values >= 0) & (values <= 1)).all():
        raise InputError(f"labels must be {pairs} numbers in 0 to 1, one a pair")
    return values > threshold


def _ids(
    config: BSCLossConfig, query_ids: ArrayLike | None, document_ids: ArrayLike | None, sizes: tuple[int, int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Text ids of the queries (B,) and of all documents (B + K,); an extra document repeats no other."""
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
