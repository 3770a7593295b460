"""A runs folder whose processes are ended after each test, whatever the test did."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from bsc_core.config import DataConfig, RunConfig
from bsc_core.jobs import launch
from bsc_core.jobs.identity import find_process, signal_group, wait_until
from bsc_core.jobs.queue import Queue
from bsc_core.runs import Run, RunStore

Launch = Callable[..., Run]


@pytest.fixture(scope="session")
def stand_in() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stand_in", Path(__file__).with_name("stand_in.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def config() -> RunConfig:
    return RunConfig(data=DataConfig(train="pairs.tsv"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    store = RunStore(tmp_path / "runs")
    yield store
    for run_id in Queue(store.root).waiting():
        Queue(store.root).finish(run_id)
    for status in [run.status() for run in store.list()]:
        if status.pid != os.getpid():
            signal_group(status, signal.SIGKILL)


@pytest.fixture
def start(store: RunStore, config: RunConfig, stand_in: ModuleType) -> Launch:
    """Launch a run that behaves as named, through the queue, a real supervisor and a real worker."""

    def launch_behaviour(behaviour: str, run_id: str = "one") -> Run:
        return launch(store, config, run_id, start=partial(stand_in.start_supervising, behaviour=behaviour))

    return launch_behaviour


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Look until the condition holds; the test fails after 30 seconds."""

    def look(condition: Callable[[], bool]) -> None:
        assert wait_until(condition, 30), "it did not come to that within 30 s"

    return look


@pytest.fixture
def started(start: Launch, until: Callable[[Callable[[], bool]], None]) -> Launch:
    """Launch a run and wait until its experiment has written its first line."""

    def launch_and_wait(behaviour: str, run_id: str = "one") -> Run:
        run = start(behaviour, run_id)
        until(lambda: run.status().state == "running" and bool(run.log_tail()))
        assert find_process(run.status()) is not None
        return run

    return launch_and_wait
