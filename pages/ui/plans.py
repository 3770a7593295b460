"""Batch plans as the Batches page needs them: built once for the same settings, at once or by a child process."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import streamlit as st

from bsc_core.batching import BatchPlan, KnownPairs, MeasuredPlan, build_plan, marked_cells, measure_plan
from bsc_core.batching import similarity_matrix as cosines
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import InputError
from bsc_core.figures import similarity
from bsc_core.preparation.plan_job import PlanItem, plan_file
from pages.ui import batch_source, plan_job, show
from pages.ui.batch_source import Source

ROWS_AT_ONCE = 20_000
"""Rows whose plan is built while the page waits: about a second for each strategy on one core."""
SLOW = {"clusters": 4, "neighbours": 4}
"""Strategies that take so many times as long."""
OWN = "this run"
"""Name of the plans that a run has saved, among the strategies."""


@dataclass(frozen=True, eq=False)
class Wanted:
    """The plan of one strategy and epoch. saved: the file of a run's plan instead of one to be built."""

    config: BatchingConfig
    batch_size: int
    seed: int
    epoch: int
    saved: Path | None = None

    def item(self, vectors_name: str, vectors: np.ndarray | None) -> PlanItem:
        """As a child process is told. vectors_name: tells apart what the plan is seen by."""
        if self.saved is None:
            batching, told = self.config.model_dump(mode="json"), self.config.model_dump_json()
        else:
            stat = self.saved.stat()
            batching, told = None, f"{self.saved} {stat.st_mtime_ns}"
        key = f"{told} {self.batch_size} {self.seed} {self.epoch} {vectors_name}"
        return PlanItem(
            hashlib.sha256(key.encode()).hexdigest()[:24],
            self.batch_size,
            batching,
            self.seed,
            self.epoch,
            None if self.saved is None else str(self.saved),
            str(vectors.filename) if isinstance(vectors, np.memmap) else None,
        )


def looks(source: Source, pairs: PairDataset, wanted: dict[str, Wanted]) -> dict[str, MeasuredPlan]:
    """The measured plan of each strategy; one that the data refuse is said in a box and left out.

    While a child process is at them its progress is drawn, and the page is drawn again when they stand; until then
    they are those made before the newest mark, or there are none.
    """
    items = {name: plan.item(source.vectors_name, source.vectors) for name, plan in wanted.items()}
    slowest = max(SLOW.get(plan.config.strategy, 1) for plan in wanted.values())
    if source.vectors is not None and len(pairs) * slowest <= ROWS_AT_ONCE:
        return _at_once(source.vectors, pairs, wanted, items)
    folder = plan_job.folder_of(pairs)
    waiting = {name: item for name, item in items.items() if not plan_file(folder, item.name).is_file()}
    if waiting:
        request = plan_job.begin(source, pairs, list(waiting.values()))
        refused = {name: plan_job.refusal(request, item.name) for name, item in waiting.items()}
        for fault in filter(None, refused.values()):
            show.error(fault)
        open_ = [item.name for name, item in waiting.items() if refused[name] is None]
        if open_:
            plan_job.wait(folder, request, open_)
            return _made_before(pairs, items)
        items = {name: item for name, item in items.items() if name not in waiting}
    found = {name: plan_job.finished(str(plan_file(folder, item.name))) for name, item in items.items()}
    st.session_state[_last(items)] = (
        pairs.texts.digest,
        len(pairs),
        {item.name: found[name] for name, item in items.items()},
    )
    return found


def _last(items: dict[str, PlanItem]) -> str:
    return f"batches.last.{' '.join(items)}"


def _made_before(pairs: PairDataset, items: dict[str, PlanItem]) -> dict[str, MeasuredPlan]:
    """The same plans of the same rows without the newest mark, when these were in view last."""
    digest, rows, made = st.session_state.get(_last(items), ("", 0, {}))
    same = digest == pairs.texts.digest and rows == len(pairs)
    if not same or not all(item.name in made for item in items.values()):
        return {}
    st.caption("Below still stands the plan without the newest mark.")
    return {name: made[item.name] for name, item in items.items()}


def _at_once(
    vectors: np.ndarray, pairs: PairDataset, wanted: dict[str, Wanted], items: dict[str, PlanItem]
) -> dict[str, MeasuredPlan]:
    found = {}
    for name, plan in wanted.items():
        try:
            found[name] = _look(f"{pairs.digest} {items[name].name}", plan, _data=(pairs, vectors))
        except InputError as fault:
            show.error(fault)
    return found


@st.cache_resource(max_entries=256, show_spinner="Grouping the pairs …")
def _look(key: str, _wanted: Wanted, _data: tuple[PairDataset, np.ndarray]) -> MeasuredPlan:
    wanted, (pairs, vectors) = _wanted, _data
    if wanted.saved is not None:
        return measure_plan(partial(BatchPlan.load, wanted.saved), pairs, vectors, wanted.batch_size)
    build = partial(build_plan, wanted.config, pairs, vectors, seed=wanted.seed, epoch=wanted.epoch)
    return measure_plan(build, pairs, vectors, wanted.batch_size)


def vectors_of(source: Source, pairs: PairDataset) -> np.ndarray:
    """The vectors of the texts, which stand once a plan does."""
    if source.vectors is not None:
        return source.vectors
    config = source.encoder
    name, time = config.name, batch_source.folder_time(config.name)
    vectors = batch_source.known(name, config.max_length, time, pairs.texts.digest, _texts=pairs.texts)
    if vectors is None:
        raise InputError("the vectors of these texts have been removed from the cache; open the page again")
    return vectors


def cells(rows: np.ndarray, groups: np.ndarray, dataset: PairDataset, vectors: np.ndarray) -> similarity.Cells:
    """The matrix of these rows with what the data say about its cells."""
    known = KnownPairs(dataset)
    return similarity.Cells(
        cosines(dataset, vectors, rows),
        rows,
        groups,
        dataset.positive[rows],
        known.collisions(rows),
        known.negative(rows),
        marked_cells(dataset, rows),
    )


def by_group(look: MeasuredPlan, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and groups of a batch with the rows of a group side by side."""
    rows, groups = look.batch(batch)
    first = {group: place for place, group in reversed(list(enumerate(groups.tolist())))}
    order = np.argsort([first[group] for group in groups.tolist()], kind="stable")
    return rows[order], groups[order]


def group_rows(look: MeasuredPlan, group: int, config: BatchingConfig) -> np.ndarray:
    """The rows of a group with its anchor first: a reversed plan holds the anchor last."""
    rows: np.ndarray = look.plan.order[look.plan.groups == group]
    return rows[::-1] if config.strategy == "examples" and config.reverse else rows
