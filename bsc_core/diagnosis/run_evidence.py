"""What the checks read of a run: config, metrics, vectors, training rows and batches, each loaded at first use."""

# N rows, B rows of a batch, U distinct texts, D dimensions, S steps

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np

from bsc_core.batching.plan import BatchPlan
from bsc_core.config import RunConfig, single_losses
from bsc_core.data import DatasetSplits, PairDataset
from bsc_core.errors import BscError, RunError
from bsc_core.evaluation import Comparison
from bsc_core.evaluation.evaluator import main_metric
from bsc_core.evaluation.metrics.pairs import area_under_curve
from bsc_core.neighbors import paired_cosines
from bsc_core.preparation.experiment import load_experiment
from bsc_core.run_results import WHEN, When, compare_runs
from bsc_core.runs import Run
from bsc_core.runs.documents import TEXTS
from bsc_core.runs.store import epoch_name
from bsc_core.training.data import is_streamed, select_training_rows
from bsc_core.types import Ids, Numbers, Vectors

MAX_STEPS = 5000  # step lines that are read
MAX_EPOCHS = 1_000
MAX_ROWS = 1024  # rows of the first batches that are inspected
MAX_PAIRS = 5000  # pairs of a split whose cosines are computed
SEED = 0  # of all samples

State = Literal["worse", "better", "noise", "unknown"]


class RunEvidence:
    """Evidence of one run. A property raises BscError with the reason where the run folder or the data lack it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._comparisons: dict[str, Comparison] = {}

    @cached_property
    def config(self) -> RunConfig:
        """Config of the run."""
        return self.run.config()

    @cached_property
    def losses(self) -> list[Any]:
        """Configs of the losses; several for a weighted sum."""
        return single_losses(self.config.loss)

    @cached_property
    def steps(self) -> list[dict[str, Any]]:
        """Logged steps, evenly spaced if there are many."""
        rows = [row for row in self.run.metrics(max_steps=MAX_STEPS)[0] if row.get("kind") == "step"]
        if not rows:
            raise RunError("the run logged no training step")
        return rows

    @cached_property
    def step_losses(self) -> Numbers:
        """Loss of each logged step, (S,); nan where it was not finite."""
        return np.array([np.nan if row.get("loss") is None else row["loss"] for row in self.steps], dtype=np.float64)

    @cached_property
    def metric(self) -> str:
        """Dev metric that compares epochs."""
        name = self.run.status().metric_name
        return name or main_metric(self.run.evaluation("before").get("dev") or {}, self.config.evaluation.metric)[0]

    @cached_property
    def dev_by_epoch(self) -> dict[int, float]:
        """Dev metric after each of the first MAX_EPOCHS evaluated epochs."""
        count = min(max(self.run.status().epoch, 1), self.config.training.epochs, MAX_EPOCHS)
        names = {epoch: epoch_name(epoch) for epoch in range(1, count + 1)}
        values = {epoch: (self.run.evaluation(name).get("dev") or {}).get(self.metric) for epoch, name in names.items()}
        return {epoch: value for epoch, value in values.items() if value is not None}

    @cached_property
    def split(self) -> str:
        """Split that decides whether the run got worse: test, or dev where there is none."""
        return "test" if "test" in self.run.evaluation("after") else "dev"

    @cached_property
    def comparison(self) -> Comparison:
        """Comparison of the model before and after training."""
        return self.compare(self.split)

    def compare(self, split: str) -> Comparison:
        """Compare the model before and after training on a split."""
        if split not in self._comparisons:
            compared = compare_runs([self.run], [self.run], self.metric, split, first_when="before")
            self._comparisons[split] = compared
        return self._comparisons[split]

    @cached_property
    def state(self) -> State:
        """Whether the run got worse: "noise" if the difference is not significant."""
        try:
            return state_of(self.comparison)
        except BscError:
            return "unknown"

    @cached_property
    def unchanged(self) -> float:
        """Median cosine of a training text after training with itself before; of any text if the data are missing."""
        before, after = (self.vectors(when) for when in WHEN)
        if before.shape != after.shape:
            raise RunError("the vectors before and after training have different sizes")
        try:
            ids = np.unique(np.concatenate(self.train.text_columns))
        except BscError:
            ids = np.arange(len(before), dtype=np.int32)
        ids = np.sort(np.random.default_rng(SEED).permutation(ids)[:MAX_PAIRS])
        return float(np.median(paired_cosines(before[ids], after[ids])))

    @cached_property
    def data(self) -> DatasetSplits:
        """Data of the run, read as the run read them."""
        if is_streamed(self.config):
            raise RunError("the training pairs are streamed from shards, which the diagnosis does not read")
        data = load_experiment(self.run.data_config(self.config.data))
        stored = self.run.read_json(TEXTS)
        vectors = self.run.embeddings("before")
        if (stored and stored["digest"] != data.texts.digest) or (
            vectors is not None and len(vectors) != len(data.texts)
        ):
            raise RunError("the data files have changed since the run was evaluated")
        return data

    @cached_property
    def train(self) -> PairDataset:
        """Rows that the loss trained on."""
        return select_training_rows(self.config, self.data.train)

    def vectors(self, when: When) -> Vectors:
        """Return the vectors of all texts before or after training, (U, D)."""
        vectors = self.run.embeddings(when)
        if vectors is None:
            raise RunError(f"the run has no vectors from {when} training")
        return vectors

    @cached_property
    def batches(self) -> list[Ids]:
        """Rows of the first batches of the first epoch, at most MAX_ROWS; of a larger batch, its first rows."""
        path = self.run.plan_file(1)
        if not path.is_file():
            raise RunError("the run has no batch plan of its first epoch")
        batches: list[Ids] = []
        rows = 0
        for batch in BatchPlan.load(path, self.train).batches(self.config.training.batch_size):
            if len(batch) >= 2 and (not batches or rows + len(batch) <= MAX_ROWS):
                batches.append(batch[:MAX_ROWS])
                rows += len(batch)
        if not batches:
            raise RunError("the batch plan has no batch of two rows")
        return batches

    def label_signal(self, rows: PairDataset, *, when: When = "before") -> float:
        """Return how well cosines distinguish positive from negative pairs, from -1 to 1: 2 AUC - 1.

        Unlike a correlation with the labels, it does not depend on the share of positive pairs.
        """
        rows = _sample(rows)
        vectors = self.vectors(when)
        area = area_under_curve(paired_cosines(vectors[rows.query], vectors[rows.document]), rows.positive)
        return 0.0 if area is None else 2 * area - 1

    def pair_signal(self, rows: PairDataset, *, when: When = "before") -> float:
        """Return how well cosines distinguish positive from random pairs, from -1 to 1: 2 AUC - 1."""
        rows = _sample(rows.take(rows.positive))
        if len(rows) < 2:
            raise RunError("a split has no two positive pairs")
        vectors = self.vectors(when)
        others = np.roll(np.random.default_rng(SEED).permutation(rows.document), 1)
        random = others != rows.document
        positives = paired_cosines(vectors[rows.query], vectors[rows.document])
        negatives = paired_cosines(vectors[rows.query[random]], vectors[others[random]])
        scores = np.concatenate([positives, negatives])
        area = area_under_curve(scores, np.arange(len(scores)) < len(rows))
        return 0.0 if area is None else 2 * area - 1


def state_of(comparison: Comparison) -> State:
    """Return whether the second model is worse or better; "noise" if the difference is not significant."""
    differs = not comparison.difference.contains_zero if comparison.p is None else comparison.significant
    if not differs:
        return "noise"
    return "better" if comparison.difference.value > 0 else "worse"


def _sample(rows: PairDataset) -> PairDataset:
    """Return at most MAX_PAIRS random rows."""
    if len(rows) <= MAX_PAIRS:
        return rows
    return rows.take(np.sort(np.random.default_rng(SEED).permutation(len(rows))[:MAX_PAIRS]))
