"""The transfer tasks of SentEval (Conneau and Kiela 2018), read from files: a class for each text, or pair of texts."""

# N rows, U distinct texts, D dimensions

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bsc_core.data.tables import Table, read_table
from bsc_core.data.texts import Ids, TextTable
from bsc_core.errors import ColumnError, DataError
from bsc_core.evaluation.retrieval import Vectors

SINGLE = ("text",)
PAIR = ("sentence1", "sentence2")


class TaskFile(NamedTuple):
    """Where a task lies below the data folder, and its columns of texts; classes are in `label`, parts in `split`."""

    path: str
    texts: tuple[str, ...]


PROBE_TASKS: dict[str, TaskFile] = {
    "MR": TaskFile("senteval_mr/sentences.tsv.gz", SINGLE),
    "CR": TaskFile("senteval_cr/sentences.tsv.gz", SINGLE),
    "SUBJ": TaskFile("senteval_subj/sentences.tsv.gz", SINGLE),
    "MPQA": TaskFile("senteval_mpqa/sentences.tsv.gz", SINGLE),
    "SST2": TaskFile("sst2/sentences.tsv.gz", SINGLE),
    "TREC": TaskFile("senteval_trec/sentences.tsv.gz", SINGLE),
    "MRPC": TaskFile("mrpc/pairs.tsv.gz", PAIR),
    "SICK-E": TaskFile("sick/pairs.tsv.gz", PAIR),
}


@dataclass(frozen=True, eq=False)
class ProbeTask:
    """Texts, or pairs of them, with a class each.

    texts: distinct texts; left: (N,) text ids; right: (N,) text ids of the second sentences, None for single texts;
    classes: (N,) numbers into class_names; split: (N,) `train`, `dev`, `test`, or `all` where the file has no parts.
    """

    name: str
    texts: TextTable
    left: Ids
    right: Ids | None
    classes: Ids
    class_names: tuple[str, ...]
    split: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.left)

    @property
    def repeats(self) -> int:
        """Rows that hold the same text, or pair, as an earlier row: folds do not keep them together."""
        sides = [self.left] if self.right is None else [self.left, self.right]
        return len(self) - len(np.unique(np.stack(sides, axis=1), axis=0))

    def rows(self, part: str) -> NDArray[np.int64]:
        """Row numbers of a part, none where the file lacks it."""
        return np.flatnonzero(np.asarray(self.split, dtype=object) == part)

    def features(self, vectors: Vectors) -> Vectors:
        """What a classifier sees: (N, D) the vector of each text, or (N, 2 D) |u - v| and u * v of each pair.

        vectors: (U, D), row i for text i. Raises DataError for a wrong number and for a vector that is not finite.
        """
        if len(vectors) != len(self.texts):
            raise DataError(f"{self.name}: {len(vectors)} vectors for {len(self.texts)} texts; give one for each")
        if not np.isfinite(vectors).all():
            row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
            raise DataError(f"{self.name}: vector {row} is not finite; encode the texts again")
        left = vectors[self.left]
        if self.right is None:
            return left
        right = vectors[self.right]
        return np.concatenate([np.abs(left - right), left * right], axis=1)


def read_probe_task(name: str, folder: Path | str) -> ProbeTask:
    """Read a task of PROBE_TASKS from the data folder.

    Raises DataError for an unknown name or rows without a class, ColumnError for a missing column, and what reading a
    file raises.
    """
    if name not in PROBE_TASKS:
        raise DataError(f"{name} is no task; choose one of {', '.join(PROBE_TASKS)}")
    file = Path(folder) / PROBE_TASKS[name].path
    return probe_task(name, read_table(file), PROBE_TASKS[name].texts)


def probe_task(name: str, table: Table, columns: tuple[str, ...]) -> ProbeTask:
    """A task of one's own from a table with one or two columns of texts, `label`, and perhaps `split`."""
    missing = [column for column in (*columns, "label") if column not in table.names]
    if missing:
        raise ColumnError(
            f"{table.source}: there is no column {', '.join(missing)}; there are {', '.join(table.names)}"
        )
    labels = table.columns["label"]
    unlabelled = next((row for row, cell in enumerate(labels) if not cell.strip()), None)
    if unlabelled is not None:
        raise DataError(f"{table.source}: {table.unit} {table.line[unlabelled]}: label is empty; give the row a class")
    texts, ids = TextTable.from_texts([text for column in columns for text in table.columns[column]])
    sides = np.split(ids, len(columns))
    names, classes = np.unique(np.asarray(labels, dtype=object).astype(str), return_inverse=True)
    split = table.columns.get("split", ["all"] * len(table))
    right = sides[1] if len(sides) > 1 else None
    return ProbeTask(name, texts, sides[0], right, classes.astype(np.int32), tuple(names.tolist()), tuple(split))
