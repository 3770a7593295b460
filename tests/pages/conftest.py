"""Runs folders for the pages: one run trained for real, copied for each test, and nobody who serves the queue."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock
from streamlit.testing.v1 import AppTest

from bsc_core.config import make_config
from bsc_core.runs import Run, RunStore

ROOT = Path(__file__).resolve().parents[2]
MARKUP = "<b>bread</b> **bake** $x$"


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Run:
    """A finished run of the tiny encoder on forty pairs with a topic column, one of whose texts looks like markup."""
    from bsc_core.jobs.states import advance
    from bsc_core.pipeline import run_experiment

    folder = tmp_path_factory.mktemp("trained")
    words = "soup bread salt garden rose seed tent train ticket bank cat dog bike wheel song book rain storm".split()
    lines = []
    for number in range(10):
        first, second, third = (words[(number * 7 + step) % len(words)] for step in (0, 3, 5))
        for candidate in range(4):
            answer = (
                f"{first} {second} {number}" if candidate == 0 else f"{third} {words[candidate]} {number} {candidate}"
            )
            text = f"{MARKUP} {number}" if (number, candidate) == (0, 0) else answer
            line = {"query_id": f"q{number}", "query": f"how do i {first} {second} {number}", "document": text}
            lines.append(line | {"label": 1.0 if candidate == 0 else 0.2, "topic": words[number % 3]})
    pairs = folder / "pairs.jsonl"
    pairs.write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    columns = {"query": "query", "document": "document", "label": "label", "query_id": "query_id"}
    config = make_config(
        {
            "data": {"train": str(pairs), "dev_share": 0.4, "columns": columns},
            "encoder": {"name": str(tiny_encoder), "max_length": 32},
            "batching": {"strategy": "random"},
            "training": {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "threads": 1, "precision": "fp32"},
        }
    )
    run = RunStore(folder / "runs").create(config, "20260101-000000-tiny-0001")
    advance(run, "running")
    run_experiment(config, run)
    advance(run, "done", exit_code=0)
    return run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunStore]:
    """An empty runs folder that pages use; its queue is served by nobody, so no process starts."""
    from bsc_core.jobs.queue import supervisor_lock

    monkeypatch.setenv("BSC_RUNS", str(tmp_path / "runs"))
    store = RunStore()
    store.root.mkdir()
    with supervisor_lock(store.root):
        yield store


@pytest.fixture
def queue_held(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[object]:
    """The queue as another process holds it, for the length of a block; who asks is soon refused."""
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.05)
    return FileLock(runs.root / ".queue.lock", is_singleton=False)


@pytest.fixture
def finished(runs: RunStore, trained: Run) -> Run:
    """The trained run in the runs folder of this test."""
    shutil.copytree(trained.folder, runs.root / trained.id)
    return runs.get(trained.id)


@dataclass(frozen=True)
class Pages:
    """Opens pages as a visitor does: alone, or through the app's frame."""

    @staticmethod
    def closed(page: str, **query: str) -> AppTest:
        """A page alone, before it is opened."""
        return _ask(AppTest.from_file(str(ROOT / "pages" / f"{page}.py"), default_timeout=60), query)

    @staticmethod
    def alone(page: str, **query: str) -> AppTest:
        return Pages.closed(page, **query).run()

    @staticmethod
    def in_app(page: str, **query: str) -> AppTest:
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
        return _ask(app.switch_page(f"pages/{page}.py"), query).run()


def _ask(app: AppTest, query: dict[str, str]) -> AppTest:
    for name, value in query.items():
        app.query_params[name] = value
    return app


@pytest.fixture
def pages() -> type[Pages]:
    return Pages


@pytest.fixture(params=["alone", "in_app"])
def visit(request: pytest.FixtureRequest, pages: type[Pages]) -> Callable[..., AppTest]:
    """Both ways to open a page."""
    opener: Callable[..., AppTest] = getattr(pages, request.param)
    return opener


@pytest.fixture
def mapped(finished: Run) -> Run:
    """The finished run with its UMAP already on disk, in the place where the page looks for it."""
    from pages.ui import map_frames
    from tests.pages.mapped_runs import lay_out, view_of

    view = view_of(finished)
    lay_out(view)
    lay_out(view.showing(map_frames.moving(view)))
    return finished
