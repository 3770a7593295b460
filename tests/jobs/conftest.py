"""Fixtures: a runs folder whose processes are killed after each test, and stub workers."""

from __future__ import annotations

import os
import signal
from functools import partial

import pytest

from bsc_core.config import DataConfig, RunConfig
from bsc_core.jobs import launch
from bsc_core.jobs.local.processes import find_process, signal_group
from bsc_core.jobs.queue import Queue
from bsc_core.runs import RunStore
from tests.helpers.waiting import wait_until
from tests.jobs import stub_worker


@pytest.fixture
def config():
    return RunConfig(data=DataConfig(train="pairs.tsv"))


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path / "runs")
    yield store
    for run_id in Queue(store.root).waiting():
        Queue(store.root).finish(run_id)
    for status in [run.status() for run in store.list()]:
        if status.pid != os.getpid():
            signal_group(status, signal.SIGKILL)


@pytest.fixture
def start(store, config):
    """Launch a run with a stub experiment, through the queue, a real supervisor and a real worker."""

    def launch_behavior(behavior, run_id="one"):
        return launch(store, config, run_id, start=partial(stub_worker.start_supervising, behavior=behavior))

    return launch_behavior


def add_checkpoint(run, step=2):
    """Add a checkpoint that holds only its position."""
    run.write_json(f"checkpoints/step-{step:06d}/progress", {"step": step, "epoch": 1, "ends_epoch": False})


@pytest.fixture
def until():
    """Wait until a condition is true."""
    return partial(wait_until, what="the condition of the test")


@pytest.fixture
def started(start, until):
    """Launch a run and wait until its experiment has written its first line."""

    def launch_and_wait(behavior, run_id="one"):
        run = start(behavior, run_id)
        until(lambda: run.status().state == "running" and bool(run.log_tail()))
        assert find_process(run.status()) is not None
        return run

    return launch_and_wait
