"""Waiting in tests for another process or for a browser.

The environment variable BSC_TEST_PATIENCE sets the deadline in seconds. A test fails at the deadline only
when its condition never becomes true, so a long deadline does not slow the tests down.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil

from bsc_core import background_task
from bsc_core.jobs.local import processes
from bsc_core.runs import Run, RunStatus

PATIENCE_SECONDS = float(os.environ.get("BSC_TEST_PATIENCE", "900"))
PATIENCE_MS = int(1000 * PATIENCE_SECONDS)


def wait_for_task(folder: Path, timeout: float = PATIENCE_SECONDS) -> int:
    """Wait for the process of a background task that this process started, and return its exit status."""
    return background_task._children[folder].process.wait(timeout)


def wait_until(condition: Callable[[], bool], what: str | Callable[[], str], *, factor: float = 1.0) -> None:
    """Poll a condition until it is true.

    Args:
        condition: What to wait for.
        what: The condition in words, or a function that returns the text to fail with, such as a log.
        factor: Multiplies the deadline, for something that takes minutes.

    Raises:
        AssertionError: The condition is still false at the deadline.
    """
    seconds = factor * PATIENCE_SECONDS
    if not processes.wait_until(condition, seconds):
        raise AssertionError(f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}")


def final_status(run: Run) -> RunStatus:
    """Wait until a run has ended, and return its status."""
    wait_until(lambda: run.status().is_finished, lambda: f"run {run.id} has not ended: {run.status()}")
    return run.status()


def suspend(run: Run) -> psutil.Process:
    """Suspend the process of a run at a moment when it does not hold the lock of its status, and return it.

    The lock is held until every thread has stopped: a signal takes effect some time after it was sent.
    """
    process = processes.find_process(run.status())
    assert process is not None

    def stop_all_threads(status: RunStatus) -> RunStatus:
        process.suspend()
        wait_until(
            lambda: all(psutil.Process(thread.id).status() == psutil.STATUS_STOPPED for thread in process.threads()),
            f"the process of run {run.id} does not stop",
        )
        return status

    run.change_status(stop_all_threads)
    return process


@contextmanager
def held(run: Run) -> Iterator[None]:
    """Suspend the process of a run while the body runs; its last heartbeat is dated ahead, so that it is not lost."""
    process = suspend(run)
    run.change_status(lambda status: replace(status, pulse=time.monotonic() + PATIENCE_SECONDS))
    try:
        yield
    finally:
        with suppress(psutil.NoSuchProcess):
            process.resume()
