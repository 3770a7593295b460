"""Every probability and gradient of the batch-softmax loss on a small batch, for the loss lab.

NumPy in float64, independent of the torch losses. Tests compare it with autograd and with the browser's copy.
"""

# B pairs, M = B + K documents, D dimensions

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.config import DIRECTIONS, BSCLossConfig, DirectionName
from bsc_core.errors import InputError
from bsc_core.neighbors import TIE
from bsc_core.types import Indices, Mask, Numbers

SMALLEST_RANGE = 1e-6
"""Column ranges and norms at or below this share of the largest magnitude are treated as 0, as in the loss."""
RELATIVE_TIE, ABSOLUTE_TIE = 1e-6, 1e-12
"""Values this close to the largest count as ties, so that rounding never decides; the browser uses the same."""


@dataclass(frozen=True, eq=False)
class SameSide:
    """Cells of the queries, or of the documents, as anchors with the others as candidates; N is B or M."""

    similarity: Numbers  # (B, N) dot products of the normalized vectors
    probability: Numbers  # (B, N), softmax of each anchor, 0 elsewhere; see `_Softmax.probability`
    gradient: Numbers  # (B, N), of the total with respect to the similarity of two texts; [i, j] equals [j, i]
    candidates: Mask  # bool (B, N)
    masked: Mask  # bool (B, N), candidates that the false-negative mask removes


@dataclass(frozen=True, eq=False)
class Explanation:
    """Intermediate values of a batch-softmax loss."""

    similarity: Numbers  # (B, M) dot products of the normalized vectors
    logits: Numbers  # (B, M), similarity / tau
    rows: Numbers  # (B, M), softmax of each query over its candidates, 0 elsewhere; see `_Softmax.probability`
    columns: Numbers | None  # (B, B), [i, j] is the softmax of document j at query i; None without doc_to_query
    query_query: SameSide | None  # None without query_to_query
    document_document: SameSide | None  # None without doc_to_doc
    gradient: Numbers  # (B, M), of the total with respect to the similarity, before the division by tau
    row_losses: Numbers  # (B,), of the first term, 0 for pairs that are no anchors
    query_to_document: float  # loss of the first direction; if the partition is joint, of all directions
    document_to_query: float | None  # loss of the second direction; None if it is no term
    total: float  # the loss
    row_positives: Mask  # bool (B, M)
    row_candidates: Mask  # bool (B, M)
    column_positives: Mask | None  # bool, of doc_to_query
    column_candidates: Mask | None  # bool, of doc_to_query
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
        query_ids: (B,), required unless config.duplicates is "keep". With a mask, both kinds of ids select the labeled
            cells and the equal texts of a side.
        document_ids: (B,), likewise.
        guide: Vectors of the guide, (B, G) of the queries and (B + K, G) of the documents; required for mask = guide.

    Raises:
        InputError: A shape or value cannot be used, or the config has Matryoshka dimensions.
    """
    if config.matryoshka_dims:
        raise InputError("matryoshka_dims is not explained; leave it unset")
    left, right = np.asarray(queries, dtype=np.float64), np.asarray(documents, dtype=np.float64)
    _check(left, right)
    pairs = len(left)
    positive = _positive(labels, pairs, threshold if config.threshold is None else config.threshold)
    query, document = _ids(config, query_ids, document_ids, (pairs, len(right)))
    directions = config.directions or DIRECTIONS[: 2 if config.symmetric else 1]
    with np.errstate(over="ignore", invalid="ignore"):  # checked below
        vectors = normalize(left, config.normalization), normalize(right, config.normalization)
        similarity = products(*vectors, directions)
        logits = {name: values / config.temperature for name, values in similarity.items()}
    if not all(np.isfinite(values).all() for values in logits.values()):
        raise InputError("the similarities exceed the range of float64; choose normalization l2")
    unit = normalize(left, "l2"), normalize(right, "l2")
    judged = products(*(_guide_vectors(guide, pairs, len(right)) if config.mask == "guide" else unit), directions)
    limits = _limits(judged["query_to_doc"], config)
    labeled = _labeled(config, positive, query, document)
    own, diagonal = _own(pairs, len(right)), np.eye(pairs, len(right), dtype=bool)
    chosen = {
        "none": np.zeros_like(own),
        "in_batch_negatives": ~own,
        "hard_negatives": own & ~diagonal,
        "all_negatives": ~diagonal,
    }[config.hardness]
    bumps = config.hardness_strength * (unit[0] @ unit[1].T) * chosen
    ids = {"query": query, "doc": document}
    cells: dict[DirectionName, _Cells] = {}
    for name in directions:
        anchors, others = name.split("_to_")
        if anchors == others:
            positives, candidates = _same_side_masks(config, positive, ids[anchors], pairs)
        else:
            positives, candidates = _masks(config, positive, ids[anchors][:pairs], ids[others])
        leaves, stays = labeled.get(name, (np.zeros_like(positives), np.zeros_like(positives)))
        candidates = positives | (candidates & ~leaves)
        is_fixed = positives | stays | np.eye(pairs, positives.shape[1], dtype=np.bool_)
        masked = candidates & ~is_fixed & (judged[name] > limits + TIE)
        cells[name] = _Cells(logits[name], positives, candidates & ~masked, masked)
    first = cells["query_to_doc"]
    negatives = first.candidates & ~first.positives
    cells["query_to_doc"] = replace(first, logits=first.logits + np.where(negatives, bumps, 0.0))
    is_joint = config.partition == "joint" and len(directions) > 1
    terms = [
        _softmax(group, config) for group in ([cells] if is_joint else [{name: cells[name]} for name in directions])
    ]
    counts_all = config.average == "batch" and config.labeled_negatives
    count = pairs if counts_all else max(1, int(positive.sum()))
    losses = [float(term.losses.sum() / count) for term in terms]
    weight = 1 / len(terms) if config.reduction == "mean" else 1.0
    probability = {name: values for term in terms for name, values in term.probability.items()}
    scale = weight / config.temperature / count
    gradient = {name: values * scale for term in terms for name, values in term.gradient.items()}
    second = cells.get("doc_to_query")
    if second is not None:
        gradient["query_to_doc"][:, :pairs] += gradient["doc_to_query"].T

    def same_side(name: DirectionName) -> SameSide | None:
        if name not in cells:
            return None
        both = gradient[name].copy()
        both[:, :pairs] += gradient[name][:, :pairs].T
        return SameSide(similarity[name], probability[name], both, cells[name].candidates, cells[name].masked)

    return Explanation(
        similarity=similarity["query_to_doc"],
        logits=logits["query_to_doc"],
        rows=probability["query_to_doc"],
        columns=None if second is None else probability["doc_to_query"].T,
        query_query=same_side("query_to_query"),
        document_document=same_side("doc_to_doc"),
        gradient=gradient["query_to_doc"],
        row_losses=terms[0].losses,
        query_to_document=losses[0],
        document_to_query=losses[1] if len(losses) > 1 else None,
        total=weight * sum(losses),
        row_positives=first.positives,
        row_candidates=first.candidates,
        column_positives=None if second is None else second.positives.T,
        column_candidates=None if second is None else second.candidates.T,
        row_masked=first.masked,
        bumps=np.where(first.positives, 0.0, bumps),
        effective_negatives=terms[0].effective_negatives,
        hardest_row=int(first_largest(np.where(first.positives.any(axis=1), terms[0].losses, -np.inf))),
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


def products(
    queries: Numbers, documents: Numbers, directions: tuple[DirectionName, ...] = DIRECTIONS
) -> dict[DirectionName, Numbers]:
    """Return the dot products of each direction, (B, N), with the B pairs as anchors."""
    sides = {"query": queries, "doc": documents}
    ends = {name: name.split("_to_") for name in directions}
    return {name: sides[start][: len(queries)] @ sides[end].T for name, (start, end) in ends.items()}


def _inverse(sizes: Numbers, smallest: float) -> Numbers:
    return np.divide(1.0, sizes, out=np.zeros_like(sizes), where=sizes > smallest)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Cells of one direction, or of several side by side, anchors in rows, (B, N) each."""

    logits: Numbers  # with hardness weights
    positives: Mask
    candidates: Mask
    masked: Mask  # negatives that the false-negative mask removes


@dataclass(frozen=True, eq=False)
class _Softmax:
    """One softmax of each anchor, over the candidates of one direction or of several.

    probability: (B, N) of each direction, derivative of the logarithm of the denominator by each logit; the softmax,
    except that `debiased_prior` makes that of the positive smaller. gradient: (B, N) of each direction, of the summed
    losses by the logits.
    """

    probability: dict[DirectionName, Numbers]
    gradient: dict[DirectionName, Numbers]
    losses: Numbers
    effective_negatives: float


def _softmax(directions: dict[DirectionName, _Cells], config: BSCLossConfig) -> _Softmax:
    """Compute the softmax of each anchor; the loss has the positives of the first direction."""
    parts = list(directions.values())
    cells = _Cells(*(np.concatenate([getattr(part, one.name) for part in parts], axis=1) for one in fields(_Cells)))
    width = parts[0].positives.shape[1]
    negatives = cells.candidates & ~cells.positives
    counts = parts[0].positives.sum(axis=1)  # (B,)
    share = cells.positives / np.maximum(counts, 1)[:, None]
    share[:, width:] = 0.0
    positive_scores = (share * np.where(cells.positives, cells.logits, 0.0)).sum(axis=1)
    without_positives = config.decoupled or config.debiased_prior > 0
    log_sum, probability = _log_sum(cells.logits, negatives if without_positives else cells.candidates)
    if config.debiased_prior:
        log_sum, probability = _debiased(log_sum, probability, cells, positive_scores, config)
    anchors = counts > 0
    if without_positives or config.mask != "none" or config.hardness != "none" or len(parts) > 1:
        anchors = anchors & negatives.any(axis=1)  # a row that lost all negatives gives 0
    losses = np.where(anchors, np.where(anchors, log_sum, 0.0) - positive_scores, 0.0)
    gradient = np.where(anchors[:, None], probability - share, 0.0)
    ends = np.cumsum([part.positives.shape[1] for part in parts])[:-1]

    def by_direction(values: Numbers) -> dict[DirectionName, Numbers]:
        return dict(zip(directions, np.split(values, ends, axis=1), strict=True))

    effective = _effective_negatives(probability, negatives, counts > 0)
    return _Softmax(by_direction(probability), by_direction(gradient), losses, effective)


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
    log_sum: Numbers, probability: Numbers, cells: _Cells, positive: Numbers, config: BSCLossConfig
) -> tuple[Numbers, Numbers]:
    """Return the logarithm of the debiased denominator, (B,), and its derivatives by the logits, (B, N)."""
    negatives = cells.candidates & ~cells.positives
    prior, count = config.debiased_prior, np.maximum(negatives.sum(axis=1), 1)
    copies = np.maximum(cells.positives.sum(axis=1), 1)  # of the positive, one for each direction
    share = cells.positives / copies[:, None]
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
    total = np.logaddexp(result, positive + np.log(copies))
    estimated = np.exp(result - total)[:, None]
    return total, estimated * (by_negatives + by_positive) + (1 - estimated) * share


def _limits(judged: Numbers, config: BSCLossConfig) -> Numbers:
    """Return the cosine above which the mask removes a negative of each anchor, (B, 1); judged: (B, M)."""
    if config.mask == "none":
        return np.full((len(judged), 1), np.inf)
    limits = np.diagonal(judged)[:, None]
    return limits - config.mask_margin * (1.0 if config.mask_margin_kind == "absolute" else np.abs(limits))


def _guide_vectors(guide: tuple[ArrayLike, ArrayLike] | None, pairs: int, choices: int) -> tuple[Numbers, Numbers]:
    """Return the unit vectors of the guide, (B, G) and (M, G)."""
    if guide is None:
        raise InputError("mask is guide and the guide's vectors are missing; give the vectors of queries and documents")
    queries, documents = (normalize(np.asarray(side, dtype=np.float64), "l2") for side in guide)
    if (len(queries), len(documents)) != (pairs, choices):
        raise InputError(
            f"the guide has {len(queries)} queries and {len(documents)} documents for {pairs} and {choices}; "
            "give one vector for each"
        )
    return queries, documents


def _labeled(
    config: BSCLossConfig, positive: Mask, query: Indices, document: Indices
) -> dict[DirectionName, tuple[Mask, Mask]]:
    """Return the cells off the diagonal whose texts are a pair labeled positive, or only negative, by direction.

    Without a mask, labels select no cells.
    """
    if config.mask == "none":
        return {}
    pairs, shape = len(query), (len(query), len(document))
    leaves, stays = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for row, is_positive in enumerate(positive):
        cells = (query == query[row])[:, None] & (document == document[row])
        (leaves if is_positive else stays)[cells] = True
    off_diagonal = ~np.eye(*shape, dtype=bool)
    leaves, stays = leaves & off_diagonal, stays & ~leaves & off_diagonal
    return {"query_to_doc": (leaves, stays), "doc_to_query": (leaves[:, :pairs].T, stays[:, :pairs].T)}


def _own(pairs: int, count: int) -> Mask:
    """Return bool (B, N), the cells of an anchor and its text or one of its extra documents."""
    columns = np.arange(count)
    own: Mask = (columns % pairs if count % pairs == 0 else columns) == np.arange(pairs)[:, None]
    return own


def _masks(config: BSCLossConfig, positive: Mask, anchor_ids: Indices, candidate_ids: Indices) -> tuple[Mask, Mask]:
    """Return positives and candidates of each anchor, bool (B, N) each."""
    pairs, count = len(anchor_ids), len(candidate_ids)
    diagonal = np.eye(pairs, count, dtype=bool)
    offered = _offered(config, positive, count)
    positives, candidates = diagonal & positive[:, None], np.broadcast_to(offered, diagonal.shape)
    copies = candidate_ids[:pairs, None] == candidate_ids  # (B, N) copies of the paired candidate
    if config.duplicates == "merge":
        firsts = [np.flatnonzero((candidate_ids == text) & offered)[:1] for text in candidate_ids]
        first = np.array([bool(len(rows)) and rows[0] == row for row, rows in enumerate(firsts)])
        candidates = (first & ~copies) | positives
    elif config.duplicates == "multi_positive":
        anchor_of = np.concatenate([anchor_ids, np.full(count - pairs, anchor_ids.min() - 1)])
        counted = np.concatenate([positive, np.zeros(count - pairs, dtype=bool)])
        positives = (copies | ((anchor_ids[:, None] == anchor_of) & counted)) & positive[:, None]
    return positives, candidates | positives


def _same_side_masks(config: BSCLossConfig, positive: Mask, ids: Indices, pairs: int) -> tuple[Mask, Mask]:
    """Return positives (none) and candidates of each anchor among the other texts of its side, bool (B, N) each."""
    others = ~_own(pairs, len(ids)) & (ids[:pairs, None] != ids)
    return np.zeros_like(others), others & _offered(config, positive, len(ids))


def _offered(config: BSCLossConfig, positive: Mask, count: int) -> Mask:
    """Return bool (N,), the texts that are candidates by their label; extra documents always are."""
    if config.labeled_negatives:
        return np.ones(count, dtype=bool)
    return np.concatenate([positive, np.ones(count - len(positive), dtype=bool)])


def _effective_negatives(probability: Numbers, negatives: Mask, anchors: Mask) -> float:
    negative = np.where(negatives, probability, 0.0)
    sums = negative.sum(axis=1, keepdims=True)
    used = anchors & (sums[:, 0] > 0)
    if not used.any():
        return 0.0
    share = negative[used] / sums[used]
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
    """Return ids of the queries (B,) and of all documents (B + K,); each extra document gets a new one.

    Where equal texts are no different from others, all ids differ.
    """
    pairs, choices = sizes
    is_given = query_ids is not None and document_ids is not None
    if config.duplicates == "keep" and (config.mask == "none" or not is_given):
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
