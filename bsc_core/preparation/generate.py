"""Neighbor searches for generated examples and negatives."""

# N rows or sentences, Q distinct queries, M documents, U distinct texts, D dimensions, C negatives of a query
# k neighbors of a kind

from collections.abc import Iterator

import numpy as np

from bsc_core.config import ExamplesConfig, NegativesConfig
from bsc_core.data.dataset import Corpus, PairDataset, Stage
from bsc_core.data.generation.from_classes import Neighbors
from bsc_core.data.generation.negatives import (
    Candidates,
    MinedNegatives,
    RankedCandidates,
    at_ranks,
    find_candidates,
    hardest_below,
    in_window,
    negative_ranks,
    with_negative_column,
    with_negative_rows,
)
from bsc_core.errors import DataError
from bsc_core.neighbors import NeighborSearch, Selection, check_finite, has_bf16_instructions, unit_rows
from bsc_core.preparation.second_opinion import Scorer
from bsc_core.types import Ids, Indices, Vectors

Facts = list[dict[str, float | str]]

NOT_FINITE = "the encoder gives a text of the pairs a vector that is not finite; choose another encoder"
SMALL_CLASS = 256  # sentences up to which the neighbors in other classes come from one search among all sentences
BLOCK = 4_000_000  # neighbors in memory at a time
MAX_NEIGHBORS = 10_000_000  # of all sentences together; each needs about 100 bytes
UNCHECKED_NEIGHBORS = 32  # of each sentence, however many sentences there are
FIXES = {
    "hardest": ", or lower data.negatives.margin",
    "window": ", or widen the limits: absolute_margin, relative_margin, min_score, max_score, range_min, range_max",
}
"""What helps where a method finds no negative."""
MAX_RANKED = 2_000_000  # documents that the method window considers for all queries together
USUALLY_EXCLUDED = 100  # documents of a query, such as its positives, for which the search is deep enough anyway
FIRST_DEPTH = 64  # documents ranked at first; eight times as many for rows that lack negatives


def sentence_neighbors(vectors: Vectors, sentences: PairDataset, config: ExamplesConfig) -> Neighbors:
    """Return the nearest other sentences of each: k of all, k of every class, or k of its class and k of the others.

    A sentence is never its own neighbor; another one with the same text may be.

    Args:
        vectors: (U, D), row i for text i.
        sentences: The sentences, each as a pair with itself.
        config: Number of neighbors, and of which sentences.

    Raises:
        DataError: There would be more than MAX_NEIGHBORS, and more than UNCHECKED_NEIGHBORS of each sentence.
    """
    rows = vectors[sentences.query]  # (N, D)
    requested = config.neighbors
    config = config.model_copy(update={"neighbors": min(requested, max(1, len(rows) - 1))})
    sides = {"all": 1, "own_and_others": 2, "each_class": len(np.unique(sentences.class_ids))}[config.neighbors_of]
    if sides * config.neighbors * len(rows) > max(MAX_NEIGHBORS, UNCHECKED_NEIGHBORS * len(rows)):
        raise DataError(
            f"{sentences.report.source}: {requested:,} neighbors of each of {sides:,} classes for "
            f"{len(rows):,} sentences do not fit into memory; lower data.examples.neighbors, or set "
            'neighbors_of = "own_and_others"'
        )
    ids = np.full((len(rows), sides * config.neighbors), -1, dtype=np.int64)
    cosines = np.full(ids.shape, -np.inf, dtype=np.float32)
    facts: Facts = []
    for queries, searched, first in _searches(sentences, config):
        nearest, scores = _nearest_others(rows, queries, searched, config.neighbors, facts)
        width = nearest.shape[1]
        ids[queries, first : first + width] = nearest
        cosines[queries, first : first + width] = scores
    if config.neighbors_of == "own_and_others":
        _fill_small_classes(
            rows, sentences.class_ids, ids[:, config.neighbors :], cosines[:, config.neighbors :], facts
        )
    return Neighbors.from_ids(ids, cosines, _recall_note(facts))


def add_negatives(
    dataset: PairDataset,
    corpus: Corpus | None,
    vectors: Vectors,
    config: NegativesConfig,
    second: Scorer | None = None,
) -> tuple[PairDataset, tuple[Stage, ...]]:
    """Return positive pairs with ranked documents of the corpus, else of the pairs, as negatives, and the stages.

    Args:
        dataset: The positive pairs.
        corpus: The documents to rank; None: those of the pairs.
        vectors: (U, D) of the reference encoder, row i for text i.
        config: Method and number of negatives.
        second: The model of `config.second_opinion`, if any.

    Raises:
        DataError: No query has a negative.
    """
    candidates = find_candidates(dataset, corpus)
    result, note = mine_pairs(dataset, candidates, unit_rows(vectors), config, second)  # (N, C), -1 for none
    negatives = np.where(result >= 0, candidates.document[result], -1).astype(np.int32)
    if not (negatives >= 0).any():
        raise DataError(
            f"{dataset.report.source}: no query has a negative among {len(candidates.document):,} documents; give a "
            f"corpus{FIXES.get(config.method, '')}"
        )
    triplets = with_negative_column(dataset, negatives)
    rows = triplets
    if not config.as_triplets:
        rows = with_negative_rows(dataset, negatives, corpus, oversample=config.oversample)
    source = "corpus" if corpus is not None else "pairs"
    without = int((negatives < 0).all(axis=1).sum())
    without_note = f"{without:,} pairs have none" if without else ""
    return rows, (
        _pair_stage("positive pairs", dataset),
        Stage("queries", len(candidates.query), (), ""),
        Stage("documents", len(candidates.document), (), f"all documents of the {source}"),
        _pair_stage("negatives", triplets, "; ".join(filter(None, (note, without_note)))),
        _pair_stage("training rows", rows, _label_note(rows, len(dataset))),
    )


def _searches(sentences: PairDataset, config: ExamplesConfig) -> list[tuple[Indices, Indices, int]]:
    """Return query rows, searched rows and the first result column of each search.

    Neighbors of small classes in other classes are searched by `_fill_small_classes`.
    """
    every = np.arange(len(sentences))
    if config.neighbors_of == "all":
        return [(every, every, 0)]
    searches = []
    for index, number in enumerate(np.unique(sentences.class_ids)):
        inside = sentences.class_ids == number
        if config.neighbors_of == "each_class":
            first = index * config.neighbors
            searches += [(every[inside], every[inside], first), (every[~inside], every[inside], first)]
            continue
        searches.append((every[inside], every[inside], 0))
        if inside.sum() > SMALL_CLASS:
            searches.append((every[inside], every[~inside], config.neighbors))
    return searches


def _nearest_others(
    rows: Vectors, queries: Indices, searched: Indices, k: int, facts: Facts
) -> tuple[Indices, Vectors]:
    """Return the k nearest other rows of each query row, or all if there are fewer, and their cosines."""
    includes_query = 1 if np.array_equal(searched[:1], queries[:1]) else 0  # the queries are among the searched rows
    k = min(k, len(searched) - includes_query)
    if k < 1 or not len(queries):
        return np.empty((len(queries), 0), dtype=np.int64), np.empty((len(queries), 0), dtype=np.float32)
    search = NeighborSearch(rows, "cosine", rows=searched.astype(np.int32))
    nearest, cosines = search.nearest(rows[queries], k + includes_query)
    facts.append(search.facts)
    ids = searched[nearest]
    if includes_query:
        other = ids != queries[:, None]
        other[other.all(axis=1), -1] = False  # equal vectors displaced the query itself
        ids, cosines = ids[other].reshape(-1, k), cosines[other].reshape(-1, k)
    return ids, cosines


def _fill_small_classes(rows: Vectors, classes: Ids, ids: Indices, cosines: Vectors, facts: Facts) -> None:
    """Write the nearest sentences of other classes for the members of small classes, from one search for all of them.

    Among the k + s nearest of all, where s is the size of the class, at least k are of other classes. ids, cosines:
    (N, k).
    """
    sizes = np.bincount(classes)[classes]
    queries = np.flatnonzero(sizes <= SMALL_CLASS)
    if not len(queries) or len(np.unique(classes)) < 2:
        return
    k = ids.shape[1]
    depth = min(k + int(sizes[queries].max()), len(rows))
    search = NeighborSearch(rows, "cosine")
    for block in _blocks(queries, depth):
        nearest, scores = search.nearest(rows[block], depth)
        other = classes[nearest] != classes[block][:, None]
        order = np.argsort(~other, axis=1, kind="stable")[:, :k]
        chosen = np.take_along_axis(other, order, axis=1)
        width = order.shape[1]
        ids[block, :width] = np.where(chosen, np.take_along_axis(nearest, order, axis=1), -1)
        cosines[block, :width] = np.where(chosen, np.take_along_axis(scores, order, axis=1), -np.inf)
    facts.append(search.facts)


def _blocks(rows: Indices, depth: int) -> Iterator[Indices]:
    """Yield the rows in blocks whose `depth` neighbors per row fit into memory."""
    size = max(1, BLOCK // depth)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _split_by_depth(order: Indices, depths: Indices) -> list[tuple[Indices, int]]:
    """Split queries, in the order of their depths, where the depth doubles; return each part with its largest depth."""
    doublings = np.ceil(np.log2(depths[order]))
    parts = np.split(order, np.flatnonzero(np.diff(doublings)) + 1)
    return [(part, int(depths[part].max())) for part in parts if len(part)]


def _recall_note(facts: Facts) -> str:
    recalls = [float(fact["recall"]) for fact in facts if "recall" in fact]
    return f"approximate search, recall {min(recalls):.3f}" if recalls else ""


def _by_rank(dataset: PairDataset, candidates: Candidates, unit: Vectors, config: NegativesConfig) -> tuple[Ids, str]:
    ranks = negative_ranks(config)
    depths = np.minimum(int(ranks.max()) + candidates.excluded_counts, len(candidates.document))  # (Q,)
    result = np.full((len(candidates.query), len(ranks)), -1, dtype=np.int32)
    search = _search(candidates, unit)
    order = np.argsort(depths, kind="stable")
    for queries in (block for part in _split_by_depth(order, depths) for block in _blocks(*part)):
        ranked, _ = search.nearest(unit[candidates.query[queries]], int(depths[queries].max()))
        excluded = candidates.is_excluded(queries[:, None], ranked)
        result[queries] = at_ranks(ranked, excluded, candidates.available[queries], ranks)
    clipped = int((ranks > candidates.available[:, None]).any(axis=1).sum())
    last = int(candidates.available.max())
    note = "the documents at the ranks " + ", ".join(f"{rank:,}" for rank in ranks[:8])
    note += " and so on" if len(ranks) > 8 else ""
    if clipped:
        note += (
            f"; {clipped:,} queries have fewer documents (at most {last:,}) than some of these ranks and get the least "
            "similar document instead; skip fewer ranks"
        )
    return result[candidates.query_of_row], note


def _hardest(dataset: PairDataset, candidates: Candidates, unit: Vectors, config: NegativesConfig) -> tuple[Ids, str]:
    search = _search(candidates, unit)
    positive = check_finite(np.einsum("nd,nd->n", unit[dataset.query], unit[dataset.document]), NOT_FINITE)
    limit = positive - np.float32(config.margin)  # (N,)
    result = np.full((len(dataset), config.count), -1, dtype=np.int32)
    waiting = np.argsort(candidates.query_of_row, kind="stable")  # rows of a query together, which share its search
    depth = min(FIRST_DEPTH, len(candidates.document))
    while len(waiting):
        short = []
        for rows in _blocks(waiting, depth):
            queries, at = np.unique(candidates.query_of_row[rows], return_inverse=True)
            ranked, cosines = search.nearest(unit[candidates.query[queries]], depth)
            excluded = candidates.is_excluded(queries[:, None], ranked)
            allowed = (cosines[at] <= limit[rows, None]) & ~excluded[at]
            result[rows], count = hardest_below(ranked[at], allowed, config.count)
            short.append(rows[count < config.count])
        if depth == len(candidates.document):
            break
        waiting, depth = np.concatenate(short), min(8 * depth, len(candidates.document))
    return result, f"the nearest documents whose cosine is at least {config.margin:g} below that of the positive"


def mine_pairs(
    dataset: PairDataset,
    candidates: Candidates,
    unit: Vectors,
    config: NegativesConfig,
    second: Scorer | None = None,
) -> tuple[Ids, str]:
    """Return the negatives of each pair by any method, (N, C) indices of candidates, -1 for none, and a note.

    Arguments as in `mine`.
    """
    if config.method == "window":
        return _window(dataset, candidates, unit, config, second)
    return {"ranks": _by_rank, "hardest": _hardest}[config.method](dataset, candidates, unit, config)


def mine(
    dataset: PairDataset,
    candidates: Candidates,
    unit: Vectors,
    config: NegativesConfig,
    second: Scorer | None = None,
) -> MinedNegatives:
    """Return the negatives of the method window for each distinct query.

    Args:
        dataset: Positive pairs.
        candidates: Documents that may be negatives.
        unit: (U, D) vectors of length 1, row i for text i.
        config: Window and limits.
        second: The model of `config.second_opinion`, if any.
    """
    generator = np.random.default_rng(config.seed)
    parts = [
        in_window(part, config, generator)
        for part in _rank_candidates(dataset, candidates, unit, search_depth(candidates, config), second)
    ]
    positive = np.concatenate([part.positive for part in parts])
    return MinedNegatives(
        np.concatenate([part.negatives for part in parts]),
        np.concatenate([part.cosines for part in parts]),
        positive,
        {name: np.concatenate([part.dropped[name] for part in parts]) for name in parts[0].dropped},
    )


def search_depth(candidates: Candidates, config: NegativesConfig) -> int:
    """Return how many of the nearest documents the method window considers, including the excluded ones.

    They are enough for the query with the most excluded documents, unless all queries together would have more than
    MAX_RANKED: then for queries with as many as fit, and with at least USUALLY_EXCLUDED.
    """
    most, wanted = candidates.most_excluded, config.range_min + config.count * (10 if config.has_limits else 1)
    fits = (MAX_RANKED // len(candidates.query) - (config.range_max or wanted)) // 2
    most = min(most, max(fits, USUALLY_EXCLUDED))
    return min(len(candidates.document), (config.range_max or wanted + most) + most)


def rank_candidates(
    dataset: PairDataset, candidates: Candidates, unit: Vectors, depth: int, second: Scorer | None = None
) -> RankedCandidates:
    """Return the `depth` nearest documents of each distinct query, for `in_window` with several settings.

    Arguments as in `mine`.
    """
    parts = list(_rank_candidates(dataset, candidates, unit, depth, second))
    names = ("ranked", "cosines", "excluded", "positive", *(() if second is None else ("second",)))
    return RankedCandidates(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _rank_candidates(
    dataset: PairDataset, candidates: Candidates, unit: Vectors, depth: int, second: Scorer | None
) -> Iterator[RankedCandidates]:
    """Yield the nearest documents of the queries, in blocks."""
    positive = _lowest(candidates, positive_cosines(dataset, unit))
    by_second = None if second is None else _lowest(candidates, second(dataset.query, dataset.document))
    search = _search(candidates, unit)
    for queries in _blocks(np.arange(len(positive)), depth):
        ranked, cosines = search.nearest(unit[candidates.query[queries]], depth)
        excluded = candidates.is_excluded(queries[:, None], ranked)
        gaps = None
        if second is not None and by_second is not None:
            texts = np.broadcast_to(candidates.query[queries][:, None], ranked.shape).ravel()
            scores = second(texts, candidates.document[ranked].ravel()).reshape(ranked.shape)
            gaps = scores - by_second[queries][:, None]
        yield RankedCandidates(ranked, cosines, excluded, positive[queries], gaps)


def _search(candidates: Candidates, unit: Vectors) -> NeighborSearch:
    select_in: Selection = "bfloat16" if has_bf16_instructions() else "float32"
    return NeighborSearch(unit, "cosine", rows=candidates.document, select_in=select_in)


def _lowest(candidates: Candidates, scores: Vectors) -> Vectors:
    """Return (Q,) the lowest score of a pair of each query. scores: (N,)."""
    lowest = np.full(len(candidates.query), np.inf, dtype=np.float32)
    np.minimum.at(lowest, candidates.query_of_row, scores)
    return lowest


def positive_cosines(dataset: PairDataset, unit: Vectors) -> Vectors:
    """Return the cosine of each pair, (N,), computed in float64 as those of the candidates.

    Args:
        dataset: N pairs.
        unit: (U, D) vectors of length 1, row t for text t of the dataset.

    Raises:
        ModelError: A vector is not finite, so that no document would be above a limit.
    """
    cosines = np.einsum("nd,nd->n", unit[dataset.query], unit[dataset.document], dtype=np.float64)
    return check_finite(np.asarray(cosines, dtype=np.float32), NOT_FINITE)


def _window(
    dataset: PairDataset, candidates: Candidates, unit: Vectors, config: NegativesConfig, second: Scorer | None
) -> tuple[Ids, str]:
    mined = mine(dataset, candidates, unit, config, second)
    counts = {name: int(counts.sum()) for name, counts in mined.dropped.items() if name != "positive"}
    reasons = ", ".join(f"{count:,} by {name}" for name, count in counts.items() if count)
    note = f"dropped: {reasons}" if reasons else "no document was dropped"
    return mined.negatives[candidates.query_of_row], note


def _label_note(rows: PairDataset, pairs: int) -> str:
    """Return the number of positive and negative rows, and whether the positive `pairs` are repeated."""
    if rows.negative is not None:
        return "each with a negative"
    positive, negative = int(rows.positive.sum()), int((~rows.positive).sum())
    repeated = f" ({pairs:,} pairs, repeated until there are as many as negative rows)" if positive > pairs else ""
    return f"{positive:,} positive{repeated}, {negative:,} negative"


def _pair_stage(name: str, rows: PairDataset, note: str = "") -> Stage:
    return Stage(name, len(rows), rows.examples(), note)
