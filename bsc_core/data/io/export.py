"""Export of an experiment's rows, filtered and generated, in columns that are recognized when read again."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bsc_core.data.dataset import DatasetSplits, PairDataset
from bsc_core.files import rows_as_tsv

# N rows of the chosen splits


def exported_columns(
    data: DatasetSplits, splits: Sequence[str] = ("train", "dev", "test"), *, rows: int | None = None
) -> dict[str, list[Any]]:
    """Return (N,) cells by column: the split, the query id, the texts, the label, the class and the document id.

    A query id is the split's name and the number of the query in it. Missing splits are skipped, and a column that some
    split lacks is left out, but for labels: pairs without labels are positive, so their label is 1.

    Args:
        data: The splits.
        splits: Names of the exported splits.
        rows: Maximum number of rows of each split; None: all.
    """
    chosen = {name: data.splits[name] for name in splits if name in data.splits}
    if rows is not None:
        chosen = {name: split.take(np.arange(min(rows, len(split)))) for name, split in chosen.items()}
    parts = [(len(split), _columns(name, split)) for name, split in chosen.items()]
    if any("label" in part for _, part in parts):
        for count, part in parts:
            part.setdefault("label", [1.0] * count)
    names = [name for name in (parts[0][1] if parts else ()) if all(name in part for _, part in parts)]
    return {name: [cell for _, part in parts for cell in part[name]] for name in names}


def as_tsv(columns: dict[str, list[Any]]) -> bytes:
    """Return the columns as a UTF-8 TSV file with a header."""
    return rows_as_tsv([columns, *zip(*columns.values(), strict=True)]).encode()


def as_parquet(columns: dict[str, list[Any]]) -> bytes:
    """Return the columns as a Parquet file."""
    import pyarrow
    import pyarrow.parquet

    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _columns(name: str, split: PairDataset) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "split": [name] * len(split),
        "query_id": [f"{name}-{number}" for number in split.query_group.tolist()],
        "query": split.texts.take(split.query),
        "document": split.texts.take(split.document),
    }
    if split.negative is not None:
        columns["negative"] = split.texts.take(split.negative)
    if split.label is not None:
        columns["label"] = [float(str(label)) for label in split.label]  # the shortest text of a float32
    if split.classes is not None:
        names = split.class_names
        columns["class_label"] = [names[number] if names else number for number in split.classes.tolist()]
    if split.document_key is not None:
        columns["doc_id"] = list(split.document_key)
    return columns
