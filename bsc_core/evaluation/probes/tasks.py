"""SentEval transfer tasks (Conneau and Kiela 2018), read from files: one class per text or text pair."""

# N rows, U distinct texts, D dimensions

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bsc_core.data.dataset import TextTable
from bsc_core.data.io.tables import Table, check_complete, read_table
from bsc_core.errors import ColumnError, DataError
from bsc_core.types import Ids, Indices, Vectors

SINGLE = ("text",)
PAIR = ("sentence1", "sentence2")
MAX_CLASSES = 6  # of TREC, the most of all tasks; the time to fit a probe grows with their number


class TaskFile(NamedTuple):
    """Path of a task file relative to the data folder, and its text columns.

    Classes are in the column `label`, splits in `split`.
    """

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
    """Texts or text pairs with one class each."""

    name: str
    texts: TextTable  # distinct texts
    left: Ids  # (N,) text ids
    right: Ids | None  # (N,) text ids of the second sentences; None for single texts
    classes: Ids  # (N,) indices into class_names
    class_names: tuple[str, ...]
    split: tuple[str, ...]  # (N,) `train`, `dev`, `test`, or `all` if the file has no splits

    def __len__(self) -> int:
        return len(self.left)

    @property
    def repeats(self) -> int:
        """Number of rows that repeat the text or pair of an earlier row; folds may separate them."""
        sides = [self.left] if self.right is None else [self.left, self.right]
        return len(self) - len(np.unique(np.stack(sides, axis=1), axis=0))

    def rows(self, split: str) -> Indices:
        """Return the row numbers of a split; empty if the file does not contain it."""
        return np.flatnonzero(np.asarray(self.split, dtype=object) == split)

    def features(self, vectors: Vectors) -> Vectors:
        """Return the features: (N, D) vectors of texts, or (N, 2 D) |u - v| and u * v of pairs.

        Args:
            vectors: (U, D), row i for text i.

        Raises:
            DataError: The number of vectors is wrong, or one is not finite.
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

    Raises:
        DataError, ColumnError: As in `probe_task`, or the task is unknown or has more than MAX_CLASSES classes.
    """
    if name not in PROBE_TASKS:
        raise DataError(f"{name} is not a task; choose one of {', '.join(PROBE_TASKS)}")
    file = Path(folder) / PROBE_TASKS[name].path
    task = probe_task(name, read_table(file), PROBE_TASKS[name].texts)
    if (count := len(task.class_names)) > MAX_CLASSES:
        raise DataError(f"{file}: {count:,} classes, and at most {MAX_CLASSES} are supported; correct its labels")
    return task


def probe_task(name: str, table: Table, columns: tuple[str, ...]) -> ProbeTask:
    """Create a custom task from a table with one or two text columns, `label`, and optionally `split`.

    Raises:
        DataError: A row cannot be read or has no class.
        ColumnError: A column is missing.
    """
    missing = [column for column in (*columns, "label") if column not in table.names]
    if missing:
        raise ColumnError(
            f"{table.source}: there is no column {', '.join(missing)}; there are {', '.join(table.names)}"
        )
    check_complete(table)
    labels = [label.strip() for label in table.columns["label"]]
    unlabeled = next((row for row, cell in enumerate(labels) if not cell.strip()), None)
    if unlabeled is not None:
        raise DataError(f"{table.source}: {table.unit} {table.line[unlabeled]}: label is empty; give the row a class")
    texts, ids = TextTable.from_texts([text for column in columns for text in table.columns[column]])
    sides = np.split(ids, len(columns))
    names = tuple(sorted(set(labels)))
    number_of = {label: number for number, label in enumerate(names)}
    classes = np.asarray([number_of[label] for label in labels], dtype=np.int32)
    split = table.columns.get("split", ["all"] * len(table))
    right = sides[1] if len(sides) > 1 else None
    return ProbeTask(name, texts, sides[0], right, classes, names, tuple(split))
