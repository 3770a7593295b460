"""The rows of an experiment as a file: after remedies and with all that was made, in columns that are guessed again."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from bsc_core.data.pairs import PairDataset
from bsc_core.data.parts import ExperimentData

# N rows of the chosen parts


def exported_columns(
    data: ExperimentData, parts: Sequence[str] = ("train", "dev", "test"), *, rows: int | None = None
) -> dict[str, list[Any]]:
    """Name -> (N,) cells: split, query_id, query, document and, where there are such, negative, label, class, doc_id.

    Parts that are not there are left out, and so are columns that not all of them have. A query id is a part's name and
    the number of the query in it. rows: at most so many of each part.
    """
    chosen = {name: data.parts[name] for name in parts if name in data.parts}
    if rows is not None:
        chosen = {name: part.take(np.arange(min(rows, len(part)))) for name, part in chosen.items()}
    columns: dict[str, list[Any]] = {}
    for name, part in chosen.items():
        for column, cells in _columns(name, part).items():
            columns.setdefault(column, []).extend(cells)
    every = len(columns.get("query", ()))
    return {name: cells for name, cells in columns.items() if len(cells) == every}


def as_tsv(columns: dict[str, list[Any]]) -> bytes:
    """The columns as a TSV file with a header, UTF-8."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def as_parquet(columns: dict[str, list[Any]]) -> bytes:
    """The columns as a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _columns(name: str, part: PairDataset) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "split": [name] * len(part),
        "query_id": [f"{name}-{number}" for number in part.query_group.tolist()],
        "query": part.texts.take(part.query),
        "document": part.texts.take(part.document),
    }
    if part.negative is not None:
        columns["negative"] = part.texts.take(part.negative)
    if part.label is not None:
        columns["label"] = [round(float(label), 6) for label in part.label]
    if part.classes is not None:
        names = part.class_names
        columns["class"] = [names[number] if names else number for number in part.classes.tolist()]
    if part.document_key is not None:
        columns["doc_id"] = list(part.document_key)
    return columns
