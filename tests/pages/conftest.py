"""Fixtures of the page tests: a trained run that is copied for each test, and a queue without a scheduler."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest

from bsc_core.config import make_config
from bsc_core.runs import Run, RunStore
from tests.helpers.pages import open_page, open_page_in_app

MARKUP = "<b>bread</b> **bake** $x$"
HTML_TEXT = '"<b>Is</b> **this** $x$ safe? <script>alert(1)</script>"'


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Run:
    """A finished run of the tiny encoder on forty pairs with a topic column; one text looks like markup."""
    from bsc_core.jobs.states import advance
    from bsc_core.pipeline import run_experiment

    folder = tmp_path_factory.mktemp("session-trained")
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
            "data": {"train": str(pairs), "dev_size": 0.4, "columns": columns},
            "encoder": {"name": str(tiny_encoder), "max_seq_length": 32},
            "batching": {"strategy": "random"},
            "training": {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "threads": 1, "precision": "fp32"},
        }
    )
    run = RunStore(folder / "runs").create(config, "20260101-000000-tiny-0001")
    advance(run, "running")
    run_experiment(config, run)
    advance(run, "done", exit_code=0)
    return run


scan_once = cache(manifest_scanner.scan_component_manifests)


@pytest.fixture(autouse=True)
def one_scan_for_components(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the metadata of all installed packages once, not in every run of a page; a server does it once too."""
    monkeypatch.setattr(manifest_scanner, "scan_component_manifests", scan_once)


@pytest.fixture(autouse=True)
def no_exception_box(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test at the first run of a page that ends in an exception."""
    run_page = AppTest._run

    def run_without_exception(app: AppTest, *arguments: object, **options: object) -> AppTest:
        result = run_page(app, *arguments, **options)  # type: ignore[arg-type]
        assert not result.exception
        return result

    monkeypatch.setattr(AppTest, "_run", run_without_exception)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunStore]:
    """An empty runs folder for the pages. The test holds the scheduler lock, so no process starts."""
    from bsc_core.jobs.queue import supervisor_lock

    monkeypatch.setenv("BSC_RUNS", str(tmp_path / "runs"))
    store = RunStore()
    store.root.mkdir()
    with supervisor_lock(store.root):
        yield store


@pytest.fixture
def locked_queue(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[object]:
    """A context manager that locks the queue as another process would; changes to the queue then fail soon."""
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.05)
    return FileLock(runs.root / ".queue.lock", is_singleton=False)


@pytest.fixture
def finished(runs: RunStore, trained: Run) -> Run:
    """A copy of the trained run in the runs folder of this test."""
    shutil.copytree(trained.folder, runs.root / trained.id)
    return runs.get(trained.id)


@pytest.fixture(params=[open_page, open_page_in_app], ids=["alone", "in_app"])
def visit(request: pytest.FixtureRequest) -> Callable[..., AppTest]:
    """Function that opens a page by name with query parameters; each test runs without and with app.py."""
    opener: Callable[..., AppTest] = request.param
    return opener


@pytest.fixture
def mapped(finished: Run) -> Run:
    """The finished run with UMAP maps in the cache, so that the page does not compute them."""
    from pages.ui.embeddings import frames
    from tests.pages.mapped_runs import build_maps, map_data

    data = map_data(finished)
    build_maps(data)
    build_maps(data.with_frames(frames.animated_frames(data)))
    return finished


@pytest.fixture
def pairs_file(tmp_path: Path) -> Path:
    """Twenty valid rows, one without a reply and one whose label is not a number."""
    rows = [f"what is {number},it is <script>{number}</script> **indeed**,{number % 2}" for number in range(19)]
    rows += [f"{HTML_TEXT},yes it is,1", "no reply,,1", "no label,some reply,many"]
    path = tmp_path / "pairs.csv"
    path.write_text("question,reply,score\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path
