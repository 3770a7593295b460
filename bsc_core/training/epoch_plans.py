"""The batch plan of each epoch of a run: made by the main process, from the vectors of the model as it is then."""

# U distinct texts, D dimensions, T texts that a plan compares

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bsc_core.batching import NEED_VECTORS, BatchPlan, build_plan, plan_collisions
from bsc_core.batching.arrays import Vectors
from bsc_core.batching.knn import unit_rows
from bsc_core.config import RunConfig
from bsc_core.data.pairs import PairDataset
from bsc_core.training.ranks import Ranks
from bsc_core.training.text_vectors import TextVectors

if TYPE_CHECKING:
    from bsc_core.training.journal import Journal

COMPARED = "plans/vectors-"
SETTLED = 0.02
"""Mean squared move of vectors, as a share of their mean squared length, up to which they count as unmoved; for vectors
of length 1, a mean cosine of 0.99."""


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
        self.compared: Vectors | None = self._compared_before(kept)  # (U, D)

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
        alone = batching.refresh == "encode" and not self.config.evaluation.each_epoch
        if epoch and batching.refresh == "reuse" and self.vectors.steps is not None:
            self.compared = self.vectors.steps.copy()
        elif epoch and not self.config.evaluation.each_epoch:
            self.compared = self._encoded_alone(epoch)
        else:
            self.compared = self.vectors.all
        if batching.refresh_epochs > 1 or alone:
            self._keep_compared(epoch)

    def _encoded_alone(self, epoch: int) -> Vectors:
        """Vectors of the grouped side's texts, (U, D): half of them anew, the others too unless that half is settled.

        The two halves, drawn by the run's seed, take turns, so that no vector is older than the look before.
        """
        batching = self.config.batching
        texts = np.unique(self.train.query if batching.by == "query" else self.train.document)  # (T,)
        drawn = np.random.default_rng(self.config.training.seed).permutation(len(texts))
        turn = epoch // batching.refresh_epochs % 2
        first, rest = texts[np.sort(drawn[turn::2])], texts[np.sort(drawn[1 - turn :: 2])]
        vectors, before = self.vectors.of(first), self.compared
        moved = None if before is None else _moved(before[first], vectors[first], unit=batching.metric == "cosine")
        if before is not None and moved is not None and moved <= SETTLED:
            vectors[rest] = before[rest]
            kept = (
                f"the other {len(rest):,} stay as they were, since these moved by {moved:.4f} of their squared length"
            )
            self.journal.say(f"Epoch {epoch + 1}: {len(first):,} texts encoded anew; {kept}")
        else:
            vectors[rest] = self.vectors.of(rest)[rest]
        return vectors

    def _keep_compared(self, epoch: int) -> None:
        """Write the vectors for a run that is resumed before the next look, and drop those that none needs any more."""
        assert self.compared is not None
        self.run.write_array(f"{COMPARED}{epoch + 1:03d}", self.compared)
        for path in self._kept_vectors()[: -1 - self.config.training.keep_checkpoints]:
            path.unlink()

    def _compared_before(self, epochs: int) -> Vectors | None:
        """The vectors that the plans of so many epochs compared last, (U, D), where the run has kept them."""
        found = [path for path in self._kept_vectors() if int(path.stem.rpartition("-")[2]) <= epochs]
        return np.load(found[-1], allow_pickle=False) if found else None

    def _kept_vectors(self) -> list[Path]:
        return sorted(self.run.plans_folder.glob("vectors-*.npy"))

    def _path(self, epoch: int) -> Path:
        return self.run.plans_folder / f"epoch-{epoch + 1:03d}.npz"


def _moved(before: Vectors, after: Vectors, *, unit: bool) -> float | None:
    """Mean squared move of rows, as a share of their mean squared length, where they have any; unit: of length 1."""
    one, other = (unit_rows(before), unit_rows(after)) if unit else (before, after)  # (n, D)
    length = float(np.square(other).sum())
    return float(np.square(other - one).sum()) / length if length else None
