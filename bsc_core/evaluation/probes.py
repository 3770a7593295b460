"""Probes: how well a plain classifier reads classes off frozen embeddings (SentEval's transfer tasks).

The classifier is scikit-learn's logistic regression; its strength of regularisation is chosen on rows that are not
measured. A result means little by itself, so the untrained encoder is measured on the same folds and stands beside it.
"""

# N rows, U distinct texts, D dimensions

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.errors import DataError
from bsc_core.evaluation.bootstrap import Interval, bootstrap_mean
from bsc_core.evaluation.probe_tasks import ProbeTask
from bsc_core.evaluation.retrieval import Ids, Vectors
from bsc_core.evaluation.significance import Comparison, compare

Rows = NDArray[np.int64]
Part = tuple[Rows, Rows, Rows | None]

FOLDS = 10
INNER_FOLDS = 5
STRENGTHS = tuple(2.0**power for power in range(-2, 6))
"""What C is chosen from: SentEval's grids for nested folds (2^-2 to 2^3) and for one training part (2^-1 to 2^5)."""
STEPS = 2000


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """Accuracy of a probe and what it rests on.

    rows: (n,) the rows measured, each once; correct: (n,) whether its class was found; measured: `all` by folds, or
    the part's name. f1: of the second of two classes, None for more. majority: accuracy of always naming the commonest
    class of the training rows. strengths: C of each classifier that was measured. unconverged: fits stopped early.
    """

    task: str
    rows: Rows
    correct: NDArray[np.bool_]
    measured: str
    f1: float | None
    majority: float
    strengths: tuple[float, ...]
    unconverged: int

    @property
    def accuracy(self) -> float:
        """Share of the measured rows whose class was found."""
        return float(self.correct.mean())

    def interval(self, *, seed: int) -> Interval:
        """Accuracy with its bootstrap interval over the measured rows; the classifiers stay as they are."""
        return bootstrap_mean(self.correct, seed=seed)


@dataclass(frozen=True, eq=False)
class ProbePair:
    """A trained encoder and the untrained one on the same rows; comparison: trained - untrained."""

    trained: ProbeResult
    untrained: ProbeResult
    comparison: Comparison


def probe(
    task: ProbeTask, vectors: Vectors, *, seed: int, folds: int = FOLDS, inner_folds: int = INNER_FOLDS
) -> ProbeResult:
    """Fit and measure a logistic regression on frozen vectors (U, D), row i for text i of the task.

    Without parts (MR, CR, SUBJ, MPQA): nested folds. Each of `folds` is measured by a classifier of the others, whose C
    was chosen by `inner_folds` within those. With `train`, `dev` and `test` (SST2, SICK-E): C is chosen on dev. With
    `train` and one other part (TREC: test; MRPC where its test part is absent: dev): C is chosen by folds within train.
    Folds are stratified and drawn by the seed, so that two encoders are measured on the same. Of equal accuracies the
    strongest regularisation is taken. Raises DataError for vectors that do not fit, fewer than two classes, and more
    folds than a class has rows.
    """
    features = task.features(np.asarray(vectors, dtype=np.float32))
    classifier = _Classifier(features, task.classes, task.name, seed)
    measured, parts = _parts(task, classifier, folds)
    found, strengths, majority = np.full(len(task), -1, dtype=np.int32), [], 0
    for train, held, chosen_on in parts:
        strength = classifier.choose(train, chosen_on, inner_folds)
        found[held] = next(classifier.fitted(train, held, (strength,)))
        strengths.append(strength)
        majority += int((task.classes[held] == np.bincount(task.classes[train]).argmax()).sum())
    rows = np.flatnonzero(found >= 0)
    correct = found[rows] == task.classes[rows]
    f1 = _f1(found[rows], task.classes[rows]) if len(task.class_names) == 2 else None
    share = majority / len(rows)
    return ProbeResult(task.name, rows, correct, measured, f1, share, tuple(strengths), classifier.unconverged)


def _parts(task: ProbeTask, classifier: _Classifier, folds: int) -> tuple[str, list[Part]]:
    """What is measured, and for each classifier its training rows, the rows it is measured on, and those C is chosen on
    (None for folds of its training rows)."""
    train, dev, test = (task.rows(part) for part in ("train", "dev", "test"))
    if len(test):
        return "test", [(train, test, dev if len(dev) else None)]
    if len(dev):
        return "dev", [(train, dev, None)]
    return "all", [(rest, fold, None) for rest, fold in classifier.folds(np.arange(len(task)), folds)]


def probe_beside(task: ProbeTask, vectors: Vectors, untrained: Vectors, *, seed: int, folds: int = FOLDS) -> ProbePair:
    """Probe a trained encoder and the untrained one, (U, D) both, and compare them row by row."""
    after = probe(task, vectors, seed=seed, folds=folds)
    before = probe(task, untrained, seed=seed, folds=folds)
    return ProbePair(after, before, compare(before.correct, after.correct, seed=seed))


def average(results: Sequence[ProbeResult]) -> tuple[float, tuple[str, ...]]:
    """Mean accuracy of several tasks, and which they are: an average without its tasks cannot be compared.

    Raises DataError for no result, or a task that stands there twice.
    """
    tasks = tuple(result.task for result in results)
    if not tasks or len(set(tasks)) < len(tasks):
        raise DataError(f"probes: the average of {', '.join(tasks) or 'no task'}; give each task once, at least one")
    return sum(result.accuracy for result in results) / len(tasks), tasks


class _Classifier:
    """Logistic regressions on parts of one table of features (N, F)."""

    def __init__(self, features: Vectors, classes: Ids, name: str, seed: int) -> None:
        self.features, self.classes, self.name, self.seed = features, classes, name, seed
        self.unconverged = 0

    def choose(self, train: Rows, dev: Rows | None, inner_folds: int) -> float:
        """The C with the most right answers on dev, or on folds of the training rows; of equal ones the smallest."""
        right = np.zeros(len(STRENGTHS))
        for fitted, held in [(train, dev)] if dev is not None else self.folds(train, inner_folds):
            for place, found in enumerate(self.fitted(fitted, held, STRENGTHS)):
                right[place] += int((found == self.classes[held]).sum())
        return STRENGTHS[int(np.argmax(right))]

    def folds(self, rows: Rows, count: int) -> Iterator[tuple[Rows, Rows]]:
        """Training and held-out rows of each stratified fold."""
        from sklearn.model_selection import StratifiedKFold

        _, sizes = np.unique(self.classes[rows], return_counts=True)
        if len(sizes) < 2:
            raise DataError(f"{self.name}: its training rows are of one class; a probe needs two or more")
        if not 2 <= count <= sizes.min():
            raise DataError(
                f"{self.name}: {count} folds, and the rarest class has {sizes.min()} training rows; choose from 2 to "
                f"{sizes.min()} folds" if sizes.min() > 1 else f"{self.name}: a class has one training row; add rows"
            )  # fmt: skip
        for train, held in StratifiedKFold(count, shuffle=True, random_state=self.seed).split(rows, self.classes[rows]):
            yield rows[train], rows[held]

    def fitted(self, train: Rows, held: Rows, strengths: Sequence[float]) -> Iterator[Ids]:
        """The classes found for the held-out rows, by one fit for each C."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        if len(np.unique(self.classes[train])) < 2:
            raise DataError(f"{self.name}: its training rows are of one class; a probe needs two or more")
        for strength in strengths:
            model: Any = LogisticRegression(C=strength, max_iter=STEPS)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always", ConvergenceWarning)
                model.fit(self.features[train], self.classes[train])
            self.unconverged += len(told)
            yield np.asarray(model.predict(self.features[held]), dtype=np.int32)


def _f1(found: Ids, classes: Ids) -> float:
    """F1 of class 1; 0 where it is neither found nor there."""
    hits, claims = int(((found == 1) & (classes == 1)).sum()), int((found == 1).sum() + (classes == 1).sum())
    return 2 * hits / claims if claims else 0.0
