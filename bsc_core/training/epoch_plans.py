"""The batch plan of each epoch of a run: made by the main process, from the vectors of the model as it is then."""

# U distinct texts, D dimensions

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bsc_core.batching import NEED_VECTORS, BatchPlan, build_plan, plan_collisions
from bsc_core.batching.arrays import Vectors
from bsc_core.config import RunConfig
from bsc_core.data.pairs import PairDataset
from bsc_core.training.ranks import Ranks
from bsc_core.training.text_vectors import TextVectors

if TYPE_CHECKING:
    from bsc_core.training.journal import Journal

COMPARED = "plans/vectors"


class EpochPlans:
    """Asked for the plans of the epochs one after the other, counted from 0; writes each into the run's folder.

    kept: how many epochs have their plan in the folder already, in a run that is resumed.
    """

    def __init__(
        self,
        config: RunConfig,
        train: PairDataset,
        vectors: TextVectors,
        *,
        journal: Journal,
        ranks: Ranks,
        kept: int = 0,
    ) -> None:
        self.config, self.train, self.vectors = config, train, vectors
        self.journal, self.run, self.ranks, self.kept = journal, journal.run, ranks, kept
        self.plan: BatchPlan | None = None
        array = self.run.array(COMPARED) if kept else None
        self.compared: Vectors | None = None if array is None else np.array(array)  # (U, D)

    def __call__(self, epoch: int) -> BatchPlan:
        """The plan of an epoch, the same in every process."""
        if self.ranks.is_main:
            self.plan = BatchPlan.load(self._path(epoch)) if epoch < self.kept else self._made(epoch)
        self.plan = self.ranks.share(self.plan)
        assert self.plan is not None
        return self.plan

    def _made(self, epoch: int) -> BatchPlan:
        with self.journal.timed("plan"):
            self._look_again(epoch)
            seed = self.config.training.seed
            plan = build_plan(
                self.config.batching, self.train, self.compared, seed=seed, epoch=epoch, previous=self.plan
            )
            self.run.plans_folder.mkdir(exist_ok=True)
            plan.save(self._path(epoch))
            batches = plan.batches(self.config.training.batch_size)
            self.journal.plan(epoch + 1, *plan_collisions(self.train, batches), plan)
        return plan

    def _look_again(self, epoch: int) -> None:
        """The vectors that plans compare: every `refresh_epochs` those of the current model.

        Where no measuring has just encoded all texts, those of the grouped side are encoded alone.
        """
        batching = self.config.batching
        if batching.strategy not in NEED_VECTORS or epoch % batching.refresh_epochs:
            return
        if epoch and batching.refresh == "reuse" and self.vectors.steps is not None:
            self.compared = self.vectors.steps.copy()
        elif epoch and not self.config.evaluation.each_epoch:
            side = self.train.query if batching.by == "query" else self.train.document
            self.compared = self.vectors.of(np.unique(side))
        else:
            self.compared = self.vectors.all
        if batching.refresh_epochs > 1:
            self.run.write_array(COMPARED, self.compared)  # for a run that is resumed before the next look

    def _path(self, epoch: int) -> Path:
        return self.run.plans_folder / f"epoch-{epoch + 1:03d}.npz"
