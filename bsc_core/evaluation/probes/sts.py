"""Semantic textual similarity: Spearman correlation with human scores, by subset and as a weighted mean."""

# N pairs of all subsets

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from bsc_core.data.dataset import TextTable
from bsc_core.data.io.tables import check_complete, read_table
from bsc_core.errors import DataError
from bsc_core.evaluation.metrics.pairs import pair_metrics
from bsc_core.types import Ids, Numbers

SUBSETS = ("subset", "dataset", "genre", "source", "file", "split")
"""Columns that may name the subset of a pair; the first one in the file is used."""
MAX_SUBSETS = 100


@dataclass(frozen=True, eq=False)
class StsTask:
    """Scored pairs of one year or dataset."""

    name: str
    texts: TextTable  # distinct texts
    left: Ids  # (N,) text ids
    right: Ids  # (N,) text ids
    scores: Numbers  # (N,) human scores, of any scale
    subset: tuple[str, ...]  # (N,) names
    unscored: int  # number of excluded rows without a score


@dataclass(frozen=True)
class StsResult:
    """Spearman correlation by subset."""

    spearman: Mapping[str, float]  # correlation of each subset
    pairs: Mapping[str, int]  # number of pairs of each subset
    constant: tuple[str, ...]  # subsets whose scores or similarities are all equal; their correlation is 0

    @property
    def weighted(self) -> float:
        """Mean weighted by the number of pairs, SentEval's "wmean"."""
        return sum(self.pairs[name] * value for name, value in self.spearman.items()) / sum(self.pairs.values())

    @property
    def mean(self) -> float:
        """Unweighted mean over subsets."""
        return sum(self.spearman.values()) / len(self.spearman)


def read_sts(path: Path | str, *, split: str | None = None, name: str | None = None) -> StsTask:
    """Read `pairs.tsv.gz` with the columns sentence1, sentence2, score, and optionally one of SUBSETS.

    Args:
        path: the file or its folder.
        split: read only the rows of this split.
        name: name of the task; by default the name of the folder.

    Raises:
        DataError: A column is missing, a row cannot be read, a score is not a number, no row has a score, or there are
            more than MAX_SUBSETS subsets.
    """
    file = Path(path) / "pairs.tsv.gz" if Path(path).is_dir() else Path(path)
    table = read_table(file)
    check_complete(table)
    missing = [column for column in ("sentence1", "sentence2", "score") if column not in table.names]
    if missing or (split is not None and "split" not in table.names):
        raise DataError(
            f"{file}: there is no column {', '.join(missing) or 'split'}; there are {', '.join(table.names)}"
        )
    column = next((column for column in SUBSETS if column in table.names), None)
    subsets = table.columns[column] if column else [""] * len(table)
    wanted = [row for row in range(len(table)) if split is None or table.columns["split"][row] == split]
    rows = [row for row in wanted if table.columns["score"][row].strip()]
    if not rows:
        part = "" if split is None else f"of the split {split!r} "
        raise DataError(f"{file}: no row {part}has a score; add scores{part and ', or name another split'}")
    sentences = [table.columns[side][row] for side in ("sentence1", "sentence2") for row in rows]
    texts, ids = TextTable.from_texts(sentences)
    left, right = np.split(ids, 2)
    scores = np.asarray([_score(table.columns["score"][row], table.line[row], file) for row in rows])
    task = name or file.parent.name
    named = tuple(subsets[row] or task for row in rows)
    if (count := len(set(named))) > MAX_SUBSETS:
        raise DataError(
            f"{file}: the column {column!r} names {count:,} subsets, and at most {MAX_SUBSETS} are supported; rename "
            "it, or give larger subsets"
        )
    return StsTask(task, texts, left, right, scores, named, len(wanted) - len(rows))


def sts_result(similarities: ArrayLike, task: StsTask) -> StsResult:
    """Return Spearman of similarities (N,) with the task's scores in each subset; ties share their mean rank."""
    return weighted_spearman(similarities, task.scores, task.subset)


def weighted_spearman(similarities: ArrayLike, scores: ArrayLike, subset: Sequence[str]) -> StsResult:
    """Compute Spearman of similarities (N,) and human scores (N,) within each subset, given by name (N,).

    Raises:
        DataError: A value is NaN, the lengths differ, or there is no pair.
    """
    given, gold, names = np.asarray(similarities), np.asarray(scores), np.asarray(subset, dtype=object)
    if not len(given) == len(gold) == len(names):
        raise DataError(
            f"sts: {len(given)} similarities, {len(gold)} scores and {len(names)} subsets; give one of each"
        )
    result, pairs, constant = {}, {}, []
    for name in dict.fromkeys(names.tolist()):
        rows = names == name
        metrics = pair_metrics(given[rows], gold[rows])
        result[name], pairs[name] = metrics["spearman"] or 0.0, int(rows.sum())
        constant += [name] if metrics["constant"] else []
    if not result:
        raise DataError("sts: there are no pairs; give at least one")
    return StsResult(result, pairs, tuple(constant))


def _score(cell: str, line: int, file: Path) -> float:
    try:
        return float(cell)
    except ValueError:
        raise DataError(
            f"{file}: line {line}: score is {cell[:40]!r}; write a number, or leave the cell empty"
        ) from None
