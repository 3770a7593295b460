"""Mining of hard negatives into a file: what was selected, what was dropped and why."""

# Q distinct queries, C negatives of a query

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bsc_core.config import DataConfig, NegativesConfig
from bsc_core.data.dataset import DatasetSplits
from bsc_core.data.decisions import contradicted_rows
from bsc_core.data.generation.negatives import (
    Candidates,
    MinedNegatives,
    RankedCandidates,
    find_candidates,
    in_window,
)
from bsc_core.data.io.export import as_parquet, as_tsv
from bsc_core.data.load import load_data
from bsc_core.encoders import embed
from bsc_core.errors import DataError
from bsc_core.files import atomic_write, save_arrays
from bsc_core.neighbors import unit_rows
from bsc_core.preparation.generate import mine, positive_cosines, rank_candidates, search_depth
from bsc_core.preparation.second_opinion import scorer_of
from bsc_core.types import Progress, Vectors

WRITERS: dict[str, Callable[[dict[str, list[Any]]], bytes]] = {".tsv": as_tsv, ".parquet": as_parquet}
LAYOUTS = ("triplet", "n-tuple", "labeled-pair")
MIN_DEPTH = 200
"""Documents that a search ranks for each query at least, so that other limits need no other search."""
SHOWN = 50
"""Most examples and queries without negatives in a report."""


def mine_file(
    config: DataConfig, output: Path | None = None, *, layout: str = "triplet", progress: Progress | None = None
) -> dict[str, Any]:
    """Mine negatives for the training pairs of a config, and write them into a file.

    Args:
        config: The data; `negatives` has the settings, and its method must be window.
        output: A new .tsv or .parquet file; None to return the report only.
        layout: `triplet`: query, document, negative. `n-tuple`: query, document, negative_1 to negative_C, for the
            queries that have C. `labeled-pair`: query, document, label.
        progress: Called with (texts encoded, texts).

    Returns:
        `queries`, `documents`, `negatives`; `per_query`, the number of queries by their number of negatives; `dropped`,
        documents by reason; `without`, up to 50 queries without negatives and the reason; `likely_false_negatives`, up
        to 50 negatives in the order of their cosine minus that of the positive, highest first; `output`.

    Raises:
        DataError: The file exists, has another ending, or no query has a negative.
        InputError: As `load_data` and the encoder.
    """
    if output is not None and (output.suffix not in WRITERS or output.exists()):
        problem = "exists" if output.exists() else f"must end in {' or '.join(WRITERS)}"
        raise DataError(f"{output}: the output file {problem}; give a new file")
    settings = config.negatives or NegativesConfig(method="window")
    data = _without_contradicted(load_data(config.model_copy(update={"negatives": None})))
    candidates = find_candidates(data.train, data.corpus)
    unit = unit_rows(embed(settings.encoder, data.texts, progress=progress))
    mined = mine(data.train, candidates, unit, settings, scorer_of(settings, data.texts, progress))
    report = mining_report(data, candidates, mined, positive_cosines(data.train, unit))
    if output is not None:
        if not report["negatives"]:
            raise DataError(f"{data.train.report.source}: no query has a negative; widen the limits of data.negatives")
        atomic_write(output, WRITERS[output.suffix](_columns(data, candidates, mined, layout)))
    return report | {"output": None if output is None else str(output)}


@dataclass(frozen=True, eq=False)
class MiningPreview:
    """What settings of the method window select, before anything is written.

    Attributes:
        mined: The negatives.
        report: As `mine_file` returns it, without `output`.
        scores: Cosines by kind: `positive` (N,) of the pairs, `candidate` of all searched documents that are not
            excluded, and `negative` of the selected ones.
        gaps: The same of candidates and negatives, minus the lowest cosine of a positive of their query.
    """

    mined: MinedNegatives
    report: dict[str, Any]
    scores: dict[str, Vectors]
    gaps: dict[str, Vectors]


class MiningSearch:
    """The nearest documents of each query, searched once for any limits of the method window."""

    def __init__(self, data: DatasetSplits, vectors: Vectors, config: NegativesConfig) -> None:
        """Search deep enough for `config`.

        Args:
            data: The data, before negatives are added.
            vectors: (U, D) vectors of all texts.
            config: Settings of the method window.

        Raises:
            DataError: As `find_candidates`.
        """
        unit = unit_rows(vectors)
        self.data = data = _without_contradicted(data)
        self.candidates = find_candidates(data.train, data.corpus)
        self.depth = search_depth(self.candidates, config)
        second = scorer_of(config, data.texts)
        if second is None:
            self.depth = max(self.depth, min(MIN_DEPTH, len(self.candidates.document)))
        self.ranked = rank_candidates(data.train, self.candidates, unit, self.depth, second)
        self.positives = positive_cosines(data.train, unit)

    def save(self, path: Path) -> None:
        """Write the search to an .npz file, without the data."""
        ranked = {name: value for name, value in vars(self.ranked).items() if value is not None}
        save_arrays(path, ranked | {"positives": self.positives, "depth": np.asarray(self.depth)})

    @classmethod
    def load(cls, path: Path, data: DatasetSplits) -> MiningSearch:
        """Read a saved search of these data."""
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        search = cls.__new__(cls)
        search.data = data = _without_contradicted(data)
        search.candidates = find_candidates(data.train, data.corpus)
        search.depth, search.positives = int(arrays.pop("depth")), arrays.pop("positives")
        search.ranked = RankedCandidates(**arrays)
        return search

    def covers(self, config: NegativesConfig) -> bool:
        """Return whether the search was deep enough for these settings."""
        return search_depth(self.candidates, config) <= self.depth

    def preview(self, config: NegativesConfig) -> MiningPreview:
        """Return what the settings select, equal to `mine`. The search must cover them."""
        ranked = self.ranked.nearest(search_depth(self.candidates, config))
        mined = in_window(ranked, config)
        gaps = self.ranked.cosines - self.ranked.positive[:, None]
        chosen, left = mined.negatives >= 0, ~self.ranked.excluded
        return MiningPreview(
            mined,
            mining_report(self.data, self.candidates, mined, self.positives),
            {"positive": self.positives, "candidate": self.ranked.cosines[left], "negative": mined.cosines[chosen]},
            {"candidate": gaps[left], "negative": (mined.cosines - mined.positive[:, None])[chosen]},
        )

    def file(self, mined: MinedNegatives, ending: str, layout: str) -> bytes:
        """Return the content of a file with the negatives; `ending` and `layout` as in `mine_file`."""
        return WRITERS[ending](_columns(self.data, self.candidates, mined, layout))


def _without_contradicted(data: DatasetSplits) -> DatasetSplits:
    """Return the data without training pairs that were decided to be true negatives.

    Raises:
        DataError: No pair is left.
    """
    contradicted = contradicted_rows(data.train)
    if contradicted.all():
        raise DataError(f"{data.train.report.source}: all pairs are decided to be true negatives; change the decisions")
    return data.with_splits({**data.splits, "train": data.train.take(np.flatnonzero(~contradicted))})


def mining_report(
    data: DatasetSplits, candidates: Candidates, mined: MinedNegatives, positives: Vectors
) -> dict[str, Any]:
    """Return the report of `mine_file` without `output`.

    Args:
        data: The data whose training pairs were mined.
        candidates: Documents that may be negatives.
        mined: Mined negatives of each distinct query.
        positives: (N,) cosine of each pair.
    """
    texts, count = data.train.texts.texts, mined.count
    numbers, queries = np.unique(count, return_counts=True)
    gap = mined.cosines - mined.positive[:, None]
    order = np.argsort(-np.where(np.isnan(gap), -np.inf, gap), axis=None, kind="stable")[:SHOWN]
    rows, columns = np.unravel_index(order[: int(count.sum())], gap.shape)
    by_cosine = np.lexsort((positives, candidates.query_of_row))
    positive_row = by_cosine[np.unique(candidates.query_of_row[by_cosine], return_index=True)[1]]  # the least similar
    return {
        "queries": len(candidates.query),
        "documents": len(candidates.document),
        "negatives": int(count.sum()),
        "per_query": {str(number): int(number_of) for number, number_of in zip(numbers, queries, strict=True)},
        "dropped": {name: int(values.sum()) for name, values in mined.dropped.items()},
        "without": [
            {"query": texts[candidates.query[row]], "reason": mined.reason(row)}
            for row in np.flatnonzero(count == 0)[:SHOWN].tolist()
        ],
        "likely_false_negatives": [
            {
                "query": texts[candidates.query[row]],
                "positive": texts[data.train.document[positive_row[row]]],
                "negative": texts[candidates.document[mined.negatives[row, column]]],
                "cosine": round(float(mined.cosines[row, column]), 4),
                "positive_cosine": round(float(mined.positive[row]), 4),
            }
            for row, column in zip(rows.tolist(), columns.tolist(), strict=True)
        ],
    }


def _columns(data: DatasetSplits, candidates: Candidates, mined: MinedNegatives, layout: str) -> dict[str, list[Any]]:
    """Return the columns of the output file."""
    train, texts = data.train, data.train.texts
    negatives = mined.negatives[candidates.query_of_row]  # (N, C)
    if layout == "n-tuple":
        full = (negatives >= 0).all(axis=1)
        rows = np.flatnonzero(full)
        columns = {"query": texts.take(train.query[rows]), "document": texts.take(train.document[rows])}
        return columns | {
            f"negative_{number + 1}": texts.take(candidates.document[negatives[rows, number]])
            for number in range(negatives.shape[1])
        }
    row, column = np.nonzero(negatives >= 0)
    documents = candidates.document[negatives[row, column]]
    if layout == "triplet":
        return {
            "query": texts.take(train.query[row]),
            "document": texts.take(train.document[row]),
            "negative": texts.take(documents),
        }
    labels = [1.0] * len(train) if train.label is None else train.label.tolist()
    pairs = np.stack([train.query[row], documents], axis=1)
    pairs = pairs[np.sort(np.unique(pairs, axis=0, return_index=True)[1])]
    return {
        "query": [*texts.take(train.query), *texts.take(pairs[:, 0])],
        "document": [*texts.take(train.document), *texts.take(pairs[:, 1])],
        "label": labels + [0.0] * len(pairs),
    }
