"""Semantic textual similarity: rank correlation with people's scores, by subset and as a weighted mean."""

# N pairs of all subsets

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from bsc_core.data.tables import read_table
from bsc_core.data.texts import Ids, TextTable
from bsc_core.errors import DataError
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.pairs import pair_metrics

SUBSETS = ("subset", "dataset", "genre", "source", "file", "split")
"""Columns that may name a pair's subset; the first that the file has."""


@dataclass(frozen=True, eq=False)
class StsTask:
    """Scored pairs of one year or data set.

    texts: distinct texts; left, right: (N,) text ids; scores: (N,) people's scores, of any scale; subset: (N,) names;
    unscored: rows of the file without a score, left out.
    """

    name: str
    texts: TextTable
    left: Ids
    right: Ids
    scores: Numbers
    subset: tuple[str, ...]
    unscored: int


@dataclass(frozen=True)
class StsResult:
    """spearman by subset; weighted: their mean weighted by pairs, SentEval's "wmean"; mean: their plain mean; pairs:
    by subset. constant: subsets whose scores are all equal on either side, which count as 0."""

    spearman: Mapping[str, float]
    pairs: Mapping[str, int]
    constant: tuple[str, ...]

    @property
    def weighted(self) -> float:
        """sum of pairs x Spearman / sum of pairs."""
        return sum(self.pairs[name] * value for name, value in self.spearman.items()) / sum(self.pairs.values())

    @property
    def mean(self) -> float:
        """Every subset counts alike."""
        return sum(self.spearman.values()) / len(self.spearman)


def read_sts(path: Path | str, *, split: str | None = None, name: str | None = None) -> StsTask:
    """Read `pairs.tsv.gz` with the columns sentence1, sentence2 and score, and one of SUBSETS where there are several.

    path: the file, or its folder. split: read its rows only. name: the task's, by default the folder's. Raises
    DataError where a column is missing, a score is no number, or no row is scored.
    """
    file = Path(path) / "pairs.tsv.gz" if Path(path).is_dir() else Path(path)
    table = read_table(file)
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
        raise DataError(f"{file}: no row {'' if split is None else f'of the split {split!r} '}has a score")
    sentences = [table.columns[side][row] for side in ("sentence1", "sentence2") for row in rows]
    texts, ids = TextTable.from_texts(sentences)
    left, right = np.split(ids, 2)
    scores = np.asarray([_score(table.columns["score"][row], table.line[row], file) for row in rows])
    task = name or file.parent.name
    named = tuple(subsets[row] or task for row in rows)
    return StsTask(task, texts, left, right, scores, named, len(wanted) - len(rows))


def sts_result(similarities: ArrayLike, task: StsTask) -> StsResult:
    """Spearman of similarities (N,) with the task's scores in each subset; equal values share their mean rank."""
    return weighted_spearman(similarities, task.scores, task.subset)


def weighted_spearman(similarities: ArrayLike, scores: ArrayLike, subset: Sequence[str]) -> StsResult:
    """Spearman within each subset. similarities, scores, subset: (N,). Raises DataError for NaN or unequal lengths."""
    given, gold, names = np.asarray(similarities), np.asarray(scores), np.asarray(subset, dtype=object)
    if not len(given) == len(gold) == len(names):
        raise DataError(
            f"sts: {len(given)} similarities, {len(gold)} scores and {len(names)} subsets; give one of each"
        )
    found, pairs, constant = {}, {}, []
    for name in dict.fromkeys(names.tolist()):
        rows = names == name
        metrics = pair_metrics(given[rows], gold[rows])
        found[name], pairs[name] = metrics["spearman"] or 0.0, int(rows.sum())
        constant += [name] if metrics["constant"] else []
    if not found:
        raise DataError("sts: there is no pair to measure; give at least one")
    return StsResult(found, pairs, tuple(constant))


def sts_average(results: Mapping[str, StsResult]) -> tuple[float, tuple[str, ...]]:
    """Plain mean of the tasks' weighted Spearman, as papers report STS 12 to 16, and which tasks they are.

    results: by task. Raises DataError for none.
    """
    if not results:
        raise DataError("sts: the average of no task; give at least one")
    return sum(result.weighted for result in results.values()) / len(results), tuple(results)


def _score(cell: str, line: int, file: Path) -> float:
    try:
        return float(cell)
    except ValueError:
        raise DataError(f"{file}: line {line}: score is {cell[:40]!r}; write a number, or nothing where none") from None
