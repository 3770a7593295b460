"""Worker: states, exit status, causes, heartbeat and signals."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from safetensors import SafetensorError

from bsc_core.background_task import NICENESS
from bsc_core.config import RunConfig
from bsc_core.errors import BscError, DataError, TrainingError
from bsc_core.jobs.local.processes import SESSION_PRIORITY, current_process
from bsc_core.jobs.worker import heartbeat, main, perform
from bsc_core.runs import Run


class OutOfMemoryError(RuntimeError):
    """Has the name of torch's error."""


@pytest.fixture
def run(store, config):
    return store.create(config, "one")


def raising(error: BaseException) -> Callable[[RunConfig, Run], dict[str, Any]]:
    def experiment(config: RunConfig, run: Run) -> dict[str, Any]:
        raise error

    return experiment


def test_a_successful_run_is_done_with_its_result(run):
    seen = []

    def experiment(config, run):
        seen.append((config, run.status().state, run.status().pid))
        return {"state": "done", "loss": float("nan")}

    assert perform(run, experiment) == 0
    status = run.status()
    assert seen == [(run.config(), "running", os.getpid())]
    assert (status.state, status.exit_code, status.message, status.error) == ("done", 0, "", None)
    assert status.process_created == current_process()["process_created"]
    assert None not in (status.started, status.finished)
    assert run.read_json("result") == {"state": "done", "loss": None}


@pytest.mark.parametrize(
    ("error", "exit_code", "cause"),
    [
        (DataError("pairs.tsv: line 3 has no label"), 2, "pairs.tsv: line 3 has no label"),
        (TrainingError("the loss is not finite at step 4"), 1, "the loss is not finite at step 4"),
        (ValueError("odd"), 1, "ValueError: odd"),
        (MemoryError(), 1, "out of memory: lower training.batch_size"),
        (OutOfMemoryError("CUDA out of memory"), 1, "out of memory: lower training.batch_size"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), 1, "the disk is full"),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"), 1, "the disk is full"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, "out of memory: lower training.batch_size"),
    ],
)
def test_a_failed_run_has_the_reason_and_an_unexpected_error_a_traceback(run, capsys, error, exit_code, cause):
    assert perform(run, raising(error)) == exit_code
    status = run.status()
    assert (status.state, status.exit_code) == ("failed", exit_code)
    assert status.error.startswith(cause)
    assert ("Traceback" in capsys.readouterr().err) == (not isinstance(error, BscError))


def test_an_unreadable_config_fails_the_run(run):
    (run.folder / "config.json").write_text('{"data": {"train": "a.tsv"}, "looss": {}}')
    assert perform(run, raising(AssertionError("it was performed"))) == 2
    assert "looss is not a known key" in run.status().error


def test_a_run_is_executed_once(run):
    assert perform(run, lambda config, run: {"state": "done"}) == 0
    assert perform(run, raising(AssertionError("it was performed again"))) == 1
    assert run.status().state == "done"


def test_a_run_of_another_process_is_left_to_it(run):
    before = run.update_status(state="running", pid=1, process_created=1.0)
    assert perform(run, raising(AssertionError("it was performed"))) == 1
    assert run.status() == before


def test_ctrl_c_requests_a_stop_and_a_second_one_interrupts(run):
    def experiment(config, run):
        signal.raise_signal(signal.SIGINT)
        assert run.stop_requested()
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it went on")

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert perform(run, experiment) == 1
    assert run.status().state == "stopped"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_run_can_be_executed_outside_the_main_thread(run):
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(perform(run, lambda config, run: {"state": "done"})))
    thread.start()
    thread.join()
    assert codes == [0]


def test_the_heartbeat_continues_during_a_long_step(run, until):
    times = iter(float(number) for number in range(10_000))
    ticking = Run(run.folder, clock=lambda: next(times))
    ticking.update_status(state="running", **current_process())
    first = ticking.status().updated
    with heartbeat(ticking, 0.01):
        until(lambda: ticking.status().updated >= first + 3)
    last = ticking.status()
    assert last.state == "running"
    assert ticking.status() == last


def test_a_lost_run_is_running_again_after_its_next_heartbeat(run, until):
    run.update_status(state="lost", error="no heartbeat", finished=1.0, **current_process())
    with heartbeat(run, 0.01):
        until(lambda: run.status().state == "running")
    assert (run.status().error, run.status().finished) == (None, None)


def test_a_lost_run_can_still_finish(run):
    def experiment(config, run):
        run.update_status(state="lost", error="no heartbeat")
        return {"state": "done"}

    assert perform(run, experiment) == 0
    assert (run.status().state, run.status().error) == ("done", None)


def test_a_heartbeat_that_cannot_be_written_does_not_end_the_run(run, until, capsys):
    run.update_status(state="running", **current_process())
    before = run.status().updated
    lock = run.folder / ".status.lock"
    lock.unlink(missing_ok=True)
    lock.mkdir()
    output: list[str] = []

    def is_reported():
        output.append(capsys.readouterr().err)
        return "the heartbeat could not be written" in "".join(output)

    with heartbeat(run, 0.01):
        until(is_reported)
        lock.rmdir()
        until(lambda: run.status().updated > before)
    assert run.status().state == "running"


def test_the_main_function_of_the_worker_executes_a_run(run):
    assert main(run.folder, lambda config, run: {"state": "done"}) == 0
    assert run.status().state == "done"


@pytest.mark.skipif(sys.platform == "win32", reason="niceness is of POSIX")
def test_a_worker_process_has_a_lower_priority_than_the_app(run):
    code = "import os, sys, runpy; sys.argv = ['worker', sys.argv[1]]\n"
    code += "try:\n    runpy.run_module('bsc_core.jobs.worker', run_name='__main__')\n"
    code += f"except SystemExit:\n    print(os.nice(0))\n    if os.path.exists({str(SESSION_PRIORITY)!r}):\n"
    code += f"        print(open({str(SESSION_PRIORITY)!r}).read())"
    (run.folder / "config.json").write_text("{", encoding="utf-8")  # ends at once
    command = [sys.executable, "-c", code, str(run.folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, start_new_session=True)
    niceness, *session = ended.stdout.splitlines()
    assert int(niceness) == min(os.nice(0) + NICENESS, 19)
    assert all(line.endswith(f" nice {niceness}") for line in session if line)
