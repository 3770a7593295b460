"""Mining of hard negatives into a file: what was selected, what was dropped and why."""

# Q distinct queries, C negatives of a query

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bsc_core.config import DataConfig, NegativesConfig
from bsc_core.data.dataset import DatasetSplits
from bsc_core.data.generation.negatives import Candidates, MinedNegatives, find_candidates
from bsc_core.data.io.export import as_parquet, as_tsv
from bsc_core.data.load import load_data
from bsc_core.encoders import embed
from bsc_core.errors import DataError
from bsc_core.files import atomic_write
from bsc_core.neighbors import unit_rows
from bsc_core.preparation.generate import mine
from bsc_core.types import Progress

WRITERS: dict[str, Callable[[dict[str, list[Any]]], bytes]] = {".tsv": as_tsv, ".parquet": as_parquet}
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
    data = load_data(config.model_copy(update={"negatives": None}))
    candidates = find_candidates(data.train, data.corpus)
    unit = unit_rows(embed(settings.encoder, data.texts, progress=progress))
    mined = mine(data.train, candidates, unit, settings)
    report = mining_report(data, candidates, mined)
    if output is not None:
        if not report["negatives"]:
            raise DataError(f"{data.train.report.source}: no query has a negative; widen the limits of data.negatives")
        atomic_write(output, WRITERS[output.suffix](_columns(data, candidates, mined, layout)))
    return report | {"output": None if output is None else str(output)}


def mining_report(data: DatasetSplits, candidates: Candidates, mined: MinedNegatives) -> dict[str, Any]:
    """Return the report of `mine_file` without `output`."""
    texts, count = data.train.texts.texts, mined.count
    numbers, queries = np.unique(count, return_counts=True)
    gap = mined.cosines - mined.positive[:, None]
    order = np.argsort(-np.where(np.isnan(gap), -np.inf, gap), axis=None, kind="stable")[:SHOWN]
    rows, columns = np.unravel_index(order[: int(count.sum())], gap.shape)
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
    pairs = np.stack([train.query[row], documents], axis=1)
    pairs = pairs[np.sort(np.unique(pairs, axis=0, return_index=True)[1])]
    return {
        "query": [*texts.take(train.query), *texts.take(pairs[:, 0])],
        "document": [*texts.take(train.document), *texts.take(pairs[:, 1])],
        "label": [1.0] * len(train) + [0.0] * len(pairs),
    }
