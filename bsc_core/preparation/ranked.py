"""Documents ranked for each query: the search behind generated negatives."""

# N rows, Q distinct queries, M documents, U distinct texts, D dimensions, C negatives of a query

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.knn import NeighbourSearch, unit_rows
from bsc_core.config import NegativesConfig
from bsc_core.data.negatives import (
    Candidates,
    at_ranks,
    candidates,
    hardest_below,
    wanted_ranks,
    with_negative_column,
    with_negative_rows,
)
from bsc_core.data.pairs import Corpus, PairDataset
from bsc_core.data.stages import Stage, spread
from bsc_core.errors import DataError

Vectors = NDArray[np.float32]
Ids = NDArray[np.int32]
Rows = NDArray[np.int64]
BLOCK = 4_000_000  # ranked documents held at a time
DEPTH = 64  # documents looked at first, and eight times as many while some rows find too few


def add_negatives(
    dataset: PairDataset, corpus: Corpus | None, vectors: Vectors, config: NegativesConfig
) -> tuple[PairDataset, tuple[Stage, ...]]:
    """The pairs with negatives as the config says, and how many there were at each step.

    vectors: (U, D) of the reference encoder, row i for text i. Raises DataError where no query has a negative.
    """
    known = candidates(dataset, corpus)
    ranked = _by_rank if config.method == "ranks" else _hardest
    found, note = ranked(dataset, known, unit_rows(vectors), config)  # (N, C) documents, -1 for none
    negatives = np.where(found >= 0, known.document[found], -1).astype(np.int32)
    if not (negatives >= 0).any():
        raise DataError(
            f"{dataset.report.source}: no query has a negative among {len(known.document):,} documents; give a corpus"
            + (", or lower data.negatives.margin" if config.method == "hardest" else "")
        )
    triplets = with_negative_column(dataset, negatives)
    made = triplets
    if not config.as_triplets:
        made = with_negative_rows(dataset, negatives, corpus, oversample=config.oversample)
    without = int((negatives < 0).all(axis=1).sum())
    rows_note = f"{without:,} pairs have none" if without else ""
    return made, (
        _stage("positive pairs", dataset, ""),
        Stage("queries", len(known.query), (), ""),
        Stage("documents", len(known.document), (), "of the corpus" if corpus is not None else "of the pairs"),
        _stage("negatives", triplets, "; ".join(part for part in (note, rows_note) if part)),
        _stage("training rows", made, _kinds(made)),
    )


def _by_rank(dataset: PairDataset, known: Candidates, unit: Vectors, config: NegativesConfig) -> tuple[Ids, str]:
    ranks = wanted_ranks(config)
    depth = min(len(known.document), int(ranks.max()) + known.most_own)
    found = np.full((len(known.query), len(ranks)), -1, dtype=np.int32)
    step = max(1, BLOCK // depth)
    search = NeighbourSearch(unit, "cosine", rows=known.document)
    for start in range(0, len(found), step):
        queries = np.arange(start, min(start + step, len(found)))
        ranked, _ = search.nearest(unit[known.query[queries]], depth)
        own = known.is_own(queries[:, None], ranked)
        found[queries] = at_ranks(ranked, own, known.available[queries], ranks)
    past = int((ranks > known.available[:, None]).any(axis=1).sum())
    last = int(known.available.max())
    note = "at the ranks " + ", ".join(f"{rank:,}" for rank in ranks[:8]) + (" and on" if len(ranks) > 8 else "")
    if past:
        note += f"; for {past:,} queries these go past the last of {last:,} documents, which stands for all of them"
    return found[known.query_of_row], note


def _hardest(dataset: PairDataset, known: Candidates, unit: Vectors, config: NegativesConfig) -> tuple[Ids, str]:
    search = NeighbourSearch(unit, "cosine", rows=known.document)
    positive = np.einsum("nd,nd->n", unit[dataset.query], unit[dataset.document])
    limit = positive - np.float32(config.margin)  # (N,)
    found = np.full((len(dataset), config.count), -1, dtype=np.int32)
    waiting, depth = np.arange(len(dataset)), min(DEPTH, len(known.document))
    while len(waiting):
        step = max(1, BLOCK // depth)
        short = []
        for start in range(0, len(waiting), step):
            rows = waiting[start : start + step]
            ranked, cosines = search.nearest(unit[dataset.query[rows]], depth)
            allowed = (cosines <= limit[rows, None]) & ~known.is_own(known.query_of_row[rows][:, None], ranked)
            found[rows], enough = hardest_below(ranked, allowed, config.count)
            short.append(rows[enough < config.count])
        if depth == len(known.document):
            break
        waiting, depth = np.concatenate(short), min(8 * depth, len(known.document))
    return found, f"the nearest at least {config.margin:g} below the positive"


def _kinds(made: PairDataset) -> str:
    if made.negative is not None:
        return "each with a negative"
    return f"{int(made.positive.sum()):,} positive, {int((~made.positive).sum()):,} negative"


def _stage(name: str, rows: PairDataset, note: str) -> Stage:
    few = rows.take(spread(len(rows)))
    columns = [few.texts.take(column) for column in few.text_columns]
    if few.label is not None:
        columns.append([f"{label:g}" for label in few.label])
    return Stage(name, len(rows), tuple(zip(*columns, strict=True)), note)
