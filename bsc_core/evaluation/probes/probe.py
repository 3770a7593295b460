"""Linear probes: logistic regression on frozen embeddings (SentEval's transfer tasks).

The classifier is scikit-learn's logistic regression. Its regularization is chosen on rows that are not evaluated. The
untrained encoder is evaluated on the same folds as a baseline.
"""

# N rows, U distinct texts, D dimensions

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bsc_core.errors import DataError
from bsc_core.evaluation.probes.tasks import ProbeTask
from bsc_core.evaluation.stats.bootstrap import Interval, bootstrap_mean
from bsc_core.types import Ids, Indices, Mask, Vectors

ProbeSplit = tuple[Indices, Indices, Indices | None]
"""Rows for training, for evaluation, and for choosing C; None chooses it by folds of the training rows."""

FOLDS = 10
INNER_FOLDS = 5
STRENGTHS = tuple(2.0**power for power in range(-2, 6))
"""Candidates for C: SentEval's grids for nested folds (2^-2 to 2^3) and for one training part (2^-1 to 2^5)."""
STEPS = 2000


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """Accuracy of a probe and the predictions behind it."""

    task: str  # name of the task
    rows: Indices  # (n,) evaluated rows, each once
    correct: Mask  # (n,) whether the predicted class is correct
    split: str  # name of the evaluated split; `all` for folds
    f1: float | None  # F1 of the second of two classes; None for more classes
    majority: float  # accuracy of predicting the most frequent class of the training rows
    strengths: tuple[float, ...]  # C of each evaluated classifier
    unconverged: int  # number of fits that did not converge

    @property
    def accuracy(self) -> float:
        """Share of the evaluated rows whose class is predicted correctly."""
        return float(self.correct.mean())

    def interval(self, *, seed: int) -> Interval:
        """Return the accuracy with its bootstrap interval over rows; the classifiers are not refitted."""
        return bootstrap_mean(self.correct, seed=seed)


def probe(
    task: ProbeTask, vectors: Vectors, *, seed: int, folds: int = FOLDS, inner_folds: int = INNER_FOLDS
) -> ProbeResult:
    """Fit and evaluate a logistic regression on frozen vectors.

    - Without splits (MR, CR, SUBJ, MPQA): nested cross-validation.
    - With `train`, `dev` and `test` (SST2, SICK-E): C is chosen on dev.
    - With `train` and one other split (TREC: test; MRPC without a test split: dev): C is chosen by folds within train.

    Folds are stratified and depend only on the seed, so two encoders are evaluated on the same folds. Of equal
    accuracies, the strongest regularization is chosen.

    Args:
        task: the task.
        vectors: (U, D), row i for text i of the task.
        seed: seed of the folds.
        folds: number of outer folds.
        inner_folds: number of folds that choose C.

    Raises:
        DataError: The vectors do not fit, there are fewer than two classes, or a class has fewer rows than folds.
    """
    features = task.features(np.asarray(vectors, dtype=np.float32))
    classifier = _Classifier(features, task.classes, task.name, seed)
    split, parts = _parts(task, classifier, folds)
    predicted, strengths, majority = np.full(len(task), -1, dtype=np.int32), [], 0
    for train, held_out, dev in parts:
        strength = classifier.choose(train, dev, inner_folds)
        predicted[held_out] = next(classifier.predictions(train, held_out, (strength,)))
        strengths.append(strength)
        majority += int((task.classes[held_out] == np.bincount(task.classes[train]).argmax()).sum())
    rows = np.flatnonzero(predicted >= 0)
    correct = predicted[rows] == task.classes[rows]
    f1 = _f1(predicted[rows], task.classes[rows]) if len(task.class_names) == 2 else None
    share = majority / len(rows)
    return ProbeResult(task.name, rows, correct, split, f1, share, tuple(strengths), classifier.unconverged)


def _parts(task: ProbeTask, classifier: _Classifier, folds: int) -> tuple[str, list[ProbeSplit]]:
    """Return the name of the evaluated split and the rows of each classifier."""
    train, dev, test = (task.rows(split) for split in ("train", "dev", "test"))
    if len(test):
        return "test", [(train, test, dev if len(dev) else None)]
    if len(dev):
        return "dev", [(train, dev, None)]
    return "all", [(rest, fold, None) for rest, fold in classifier.folds(np.arange(len(task)), folds)]


class _Classifier:
    """Logistic regressions on subsets of one feature table (N, F)."""

    def __init__(self, features: Vectors, classes: Ids, name: str, seed: int) -> None:
        self.features, self.classes, self.name, self.seed = features, classes, name, seed
        self.unconverged = 0

    def choose(self, train: Indices, dev: Indices | None, inner_folds: int) -> float:
        """Return the C with the most correct predictions on dev, or on folds of train; the smallest of equal ones."""
        right = np.zeros(len(STRENGTHS))
        for fitted, held_out in [(train, dev)] if dev is not None else self.folds(train, inner_folds):
            for index, predicted in enumerate(self.predictions(fitted, held_out, STRENGTHS)):
                right[index] += int((predicted == self.classes[held_out]).sum())
        return STRENGTHS[int(np.argmax(right))]

    def folds(self, rows: Indices, count: int) -> Iterator[tuple[Indices, Indices]]:
        """Yield training and held-out rows of each stratified fold."""
        from sklearn.model_selection import StratifiedKFold

        rarest = self._class_sizes(rows).min()
        if not 2 <= count <= rarest:
            raise DataError(
                f"{self.name}: {count} folds, and the rarest class has {rarest} training rows; choose from 2 to "
                f"{rarest} folds" if rarest > 1 else f"{self.name}: a class has one training row; add rows"
            )  # fmt: skip
        splitter = StratifiedKFold(count, shuffle=True, random_state=self.seed)
        for train, held_out in splitter.split(rows, self.classes[rows]):
            yield rows[train], rows[held_out]

    def predictions(self, train: Indices, held_out: Indices, strengths: Sequence[float]) -> Iterator[Ids]:
        """Yield the predicted classes of the held-out rows for each C."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        self._class_sizes(train)
        for strength in strengths:
            model: Any = LogisticRegression(C=strength, max_iter=STEPS)
            with warnings.catch_warnings(record=True) as reported:
                warnings.simplefilter("always", ConvergenceWarning)
                with np.errstate(invalid="ignore"):  # OpenBLAS may set this flag for products of finite numbers
                    model.fit(self.features[train], self.classes[train])
            self.unconverged += len(reported)
            yield np.asarray(model.predict(self.features[held_out]), dtype=np.int32)

    def _class_sizes(self, rows: Indices) -> Indices:
        """Return the number of rows of each class. Raises DataError if there is only one class."""
        _, sizes = np.unique(self.classes[rows], return_counts=True)
        if len(sizes) < 2:
            raise DataError(f"{self.name}: its training rows are of one class; a probe needs two or more")
        return np.asarray(sizes)


def _f1(predicted: Ids, classes: Ids) -> float:
    """Return F1 of class 1; 0 if it is neither predicted nor present."""
    hits, total = int(((predicted == 1) & (classes == 1)).sum()), int((predicted == 1).sum() + (classes == 1).sum())
    return 2 * hits / total if total else 0.0
