"""Batch plans and their statistics, built while the page waits or in a background task, and cached."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import streamlit as st

from bsc_core import background_task, batching
from bsc_core.batching import BatchPlan, KnownPairs, PlanStats, build_plan, marked_cells, similarity_matrix
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import InputError
from bsc_core.figures.batches import similarity
from bsc_core.paths import cache_folder
from bsc_core.preparation.plan_task import PlanItem, plan_file, refused_file, request_folder, save_rows
from pages.ui.batches.source import BatchSource, cached_vectors
from pages.ui.components import data_cache, display, turns, users

MAX_ROWS_INLINE = 20_000
"""Rows whose plan is built while the page waits: about a second per strategy on one core."""
SLOWDOWN = {"clusters": 4, "neighbors": 4, "communities": 4, "cuthill_mckee": 4}
"""Time of slow strategies, relative to the others."""
RUN_PLANS = "this run"
"""Name of a run's saved plans among the strategies."""
POLL_INTERVAL = "1s"
MAX_FOLDERS = 12


@dataclass(frozen=True, eq=False)
class PlanRequest:
    """The plan of one strategy and epoch. saved: file of a run's plan to load instead of building one."""

    config: BatchingConfig
    batch_size: int
    seed: int
    epoch: int
    saved: Path | None = None

    def task_item(self, vectors_key: str, vectors: np.ndarray | None) -> PlanItem:
        """Return the request for a background task.

        Args:
            vectors_key: Identifies the vectors of the statistics.
            vectors: (U, D) vectors of the texts; the task opens the file that they are mapped from, if any.
        """
        if self.saved is None:
            config, source = self.config.model_dump(mode="json"), self.config.model_dump_json()
        else:
            config, source = None, str(data_cache.file_stamps(self.saved))
        key = f"{source} {self.batch_size} {self.seed} {self.epoch} {vectors_key}"
        return PlanItem(
            hashlib.sha256(key.encode()).hexdigest()[:24],
            self.batch_size,
            config,
            self.seed,
            self.epoch,
            None if self.saved is None else str(self.saved),
            str(vectors.filename) if isinstance(vectors, np.memmap) else None,
        )


def plan_stats(source: BatchSource, pairs: PairDataset, requests: dict[str, PlanRequest]) -> dict[str, PlanStats]:
    """Return the plan and statistics of each strategy; a refused one is shown as an error and left out.

    While a background task builds them, its progress is drawn and the page reruns when they are ready. Until then the
    result is empty, or the same plans without the newest marked pair.
    """
    items = {name: plan.task_item(source.vectors_key, source.vectors) for name, plan in requests.items()}
    slowdown = max(SLOWDOWN.get(plan.config.strategy, 1) for plan in requests.values())
    if source.vectors is not None and len(pairs) * slowdown <= MAX_ROWS_INLINE:
        return _build_inline(source.vectors, pairs, requests, items)
    folder = plans_folder(pairs)
    missing = {name: item for name, item in items.items() if not plan_file(folder, item.name).is_file()}
    if missing:
        request = _start_task(source, pairs, list(missing.values()))
        errors = {name: _refusal(request, item.name) for name, item in missing.items()}
        for error in filter(None, errors.values()):
            display.error_box(error)
        pending = [item.name for name, item in missing.items() if errors[name] is None]
        if pending:
            turns.fragment(_draw_progress, run_every=POLL_INTERVAL)(folder, request, pending)
            return _previous_plans(pairs, items)
        items = {name: item for name, item in items.items() if name not in missing}
    stats = {name: _load(str(plan_file(folder, item.name))) for name, item in items.items()}
    by_item = {item.name: stats[name] for name, item in items.items()}
    st.session_state[_previous_key(items)] = (pairs.texts.digest, len(pairs), by_item)
    return stats


def plans_folder(pairs: PairDataset) -> Path:
    """Return the cache folder of the plans of these rows."""
    return cache_folder() / "plans" / pairs.digest[:24]


@st.cache_resource(max_entries=48, show_spinner=False)
def _load(path: str) -> PlanStats:
    return PlanStats.load(Path(path))


def _previous_key(items: dict[str, PlanItem]) -> str:
    return f"batches.last.{' '.join(items)}"


def _previous_plans(pairs: PairDataset, items: dict[str, PlanItem]) -> dict[str, PlanStats]:
    """Return the same plans of the same rows without the newest mark, if they were shown last."""
    digest, rows, by_item = st.session_state.get(_previous_key(items), ("", 0, {}))
    same = digest == pairs.texts.digest and rows == len(pairs)
    if not same or not all(item.name in by_item for item in items.values()):
        return {}
    st.caption("The plan below does not include the newest marked pair yet.")
    return {name: by_item[item.name] for name, item in items.items()}


def _build_inline(
    vectors: np.ndarray, pairs: PairDataset, requests: dict[str, PlanRequest], items: dict[str, PlanItem]
) -> dict[str, PlanStats]:
    stats = {}
    for name, request in requests.items():
        try:
            stats[name] = _build(f"{pairs.digest} {items[name].name}", request, _data=(pairs, vectors))
        except InputError as error:
            display.error_box(error)
    return stats


@st.cache_resource(max_entries=256, show_spinner="Building batch plans …")
def _build(key: str, _request: PlanRequest, _data: tuple[PairDataset, np.ndarray]) -> PlanStats:
    request, (pairs, vectors) = _request, _data
    if request.saved is not None:
        build = partial(BatchPlan.load, request.saved, pairs)
    else:
        build = partial(build_plan, request.config, pairs, vectors, seed=request.seed, epoch=request.epoch)
    return batching.plan_stats(build, pairs, vectors, request.batch_size)


def _start_task(source: BatchSource, pairs: PairDataset, items: list[PlanItem]) -> Path:
    """Start the task that builds these plans, if it was not started before; return its folder."""
    folder = plans_folder(pairs)
    encoder = None if all(item.vectors for item in items) else source.encoder.model_dump()
    if encoder is not None:
        data_cache.confirm_download(source.encoder.name)
    content = {"encoder": encoder, "items": [asdict(item) for item in items]}
    request = request_folder(folder, hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16])
    if not (folder / "rows.npz").is_file():
        background_task.remove_oldest(folder.parent, "*/rows.npz", MAX_FOLDERS - 1)
        save_rows(pairs, folder / "rows.npz")
    background_task.start(request, "bsc_core.preparation.plan_task", content, user=users.task_user())
    return request


def _draw_progress(folder: Path, request: Path, names: list[str]) -> None:
    """Draw the progress of a task; rerun the page when every plan is ready or refused."""
    if all(plan_file(folder, name).is_file() or refused_file(request, name).is_file() for name in names):
        st.rerun(scope="app")
    key = f"batches.again.{request.name}"
    display.task_progress(request, "Building the plan", failed="The plan could not be built", key=key)


def _refusal(request: Path, name: str) -> InputError | None:
    """Return the error of a refused plan, or None."""
    path = refused_file(request, name)
    return InputError(path.read_text(encoding="utf-8")) if path.is_file() else None


def load_vectors(source: BatchSource, pairs: PairDataset) -> np.ndarray:
    """Return the vectors of the texts, which exist once a plan is built.

    Raises:
        InputError: The vectors were deleted.
    """
    if source.vectors is not None:
        return source.vectors
    vectors = cached_vectors(source.encoder, pairs.texts)
    if vectors is None:
        raise InputError("the vectors of these texts were removed from the cache; reload the page")
    return vectors


def batch_cells(
    rows: np.ndarray,
    groups: np.ndarray,
    dataset: PairDataset,
    vectors: np.ndarray,
    mask: similarity.BatchMask | None = None,
) -> similarity.Cells:
    """Return the similarity matrix of these rows, with what the data say about each cell."""
    known = KnownPairs(dataset)
    return similarity.Cells(
        similarity_matrix(dataset, vectors, rows),
        rows,
        groups,
        dataset.positive[rows],
        known.collisions(rows),
        known.negative(rows),
        marked_cells(dataset, rows),
        mask,
    )


def batch_by_group(stats: PlanStats, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and groups of a batch, with the rows of a group next to each other."""
    rows, groups = stats.batch(batch)
    first = {group: position for position, group in reversed(list(enumerate(groups.tolist())))}
    order = np.argsort([first[group] for group in groups.tolist()], kind="stable")
    return rows[order], groups[order]


def group_rows(stats: PlanStats, group: int, config: BatchingConfig) -> np.ndarray:
    """Return the rows of a group, its anchor first; with `easy_first` a plan stores the anchor last."""
    rows: np.ndarray = stats.plan.order[stats.plan.groups == group]
    return rows[::-1] if config.strategy == "nearest" and config.easy_first else rows
