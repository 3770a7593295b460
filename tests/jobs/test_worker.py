"""The wrapper around an experiment: states, exit status, causes, heartbeat and signals."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from safetensors import SafetensorError

from bsc_core.config import RunConfig
from bsc_core.errors import DataError, TrainingError
from bsc_core.jobs.identity import own_identity
from bsc_core.jobs.worker import heartbeat, main, perform
from bsc_core.runs import Run, RunStore

Until = Callable[[Callable[[], bool]], None]


class OutOfMemoryError(RuntimeError):
    """Named as the one of torch."""


@pytest.fixture
def run(store: RunStore, config: RunConfig) -> Run:
    return store.create(config, "one")


def raising(error: BaseException) -> Callable[[RunConfig, Run], dict[str, Any]]:
    def experiment(config: RunConfig, run: Run) -> dict[str, Any]:
        raise error

    return experiment


def test_a_run_that_ends_well_is_done_with_its_result(run: Run) -> None:
    seen = []

    def experiment(config: RunConfig, run: Run) -> dict[str, Any]:
        seen.append((config, run.status().state, run.status().pid))
        return {"state": "done", "loss": float("nan")}

    assert perform(run, experiment) == 0
    status = run.status()
    assert seen == [(run.config(), "running", os.getpid())]
    assert (status.state, status.exit_code, status.message, status.error) == ("done", 0, "", None)
    assert status.process_created == own_identity()["process_created"]
    assert None not in (status.started, status.finished)
    assert run.read_json("result") == {"state": "done", "loss": None}


@pytest.mark.parametrize(
    ("error", "exit_code", "cause"),
    [
        (DataError("pairs.tsv: line 3 has no label"), 2, "pairs.tsv: line 3 has no label"),
        (TrainingError("the loss is not finite at step 4"), 1, "the loss is not finite at step 4"),
        (ValueError("odd"), 1, "ValueError: odd"),
        (MemoryError(), 1, "out of memory: lower the batch size"),
        (OutOfMemoryError("CUDA out of memory"), 1, "out of memory: lower the batch size"),
        (SafetensorError("I/O error: No space left on device (os error 28)"), 1, "the disk took no more"),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"), 1, "the disk took no"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, "out of memory: lower the batch size"),
    ],
)
def test_a_run_that_fails_says_why(run: Run, error: Exception, exit_code: int, cause: str) -> None:
    assert perform(run, raising(error)) == exit_code
    status = run.status()
    assert (status.state, status.exit_code) == ("failed", exit_code)
    assert (status.error or "").startswith(cause)


def test_an_unexpected_error_leaves_its_traceback_in_the_output(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    perform(run, raising(ValueError("odd")))
    assert "Traceback" in capsys.readouterr().err


def test_a_refused_input_leaves_no_traceback(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    perform(run, raising(DataError("line 3")))
    assert "Traceback" not in capsys.readouterr().err


def test_a_config_that_no_longer_reads_fails_the_run(run: Run) -> None:
    (run.folder / "config.json").write_text('{"data": {"train": "a.tsv"}, "looss": {}}')
    assert perform(run, raising(AssertionError("it was performed"))) == 2
    assert "looss is not a known key" in (run.status().error or "")


def test_a_run_is_performed_once(run: Run) -> None:
    assert perform(run, lambda config, run: {"state": "done"}) == 0
    assert perform(run, raising(AssertionError("it was performed again"))) == 1
    assert run.status().state == "done"


def test_a_run_of_another_process_is_left_to_it(run: Run) -> None:
    before = run.update_status(state="running", pid=1, process_created=1.0)
    assert perform(run, raising(AssertionError("it was performed"))) == 1
    assert run.status() == before


def test_ctrl_c_asks_for_a_stop_and_a_second_one_breaks_off(run: Run) -> None:
    def experiment(config: RunConfig, run: Run) -> dict[str, Any]:
        signal.raise_signal(signal.SIGINT)
        assert run.stop_requested()
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it went on")

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert perform(run, experiment) == 1
    assert run.status().state == "stopped"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_run_can_be_performed_outside_the_main_thread(run: Run) -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(perform(run, lambda config, run: {"state": "done"})))
    thread.start()
    thread.join()
    assert codes == [0]


def test_the_heartbeat_goes_on_through_a_long_step(run: Run, until: Until) -> None:
    times = iter(float(number) for number in range(10_000))
    ticking = Run(run.folder, clock=lambda: next(times))
    ticking.update_status(state="running", **own_identity())
    first = ticking.status().updated
    with heartbeat(ticking, 0.01):
        until(lambda: ticking.status().updated >= first + 3)
    last = ticking.status()
    assert last.state == "running"
    assert ticking.status() == last


def test_a_run_given_up_for_lost_comes_back_with_its_next_heartbeat(run: Run, until: Until) -> None:
    run.update_status(state="lost", error="no sign of life", finished=1.0, **own_identity())
    with heartbeat(run, 0.01):
        until(lambda: run.status().state == "running")
    assert (run.status().error, run.status().finished) == (None, None)


def test_a_run_given_up_for_lost_can_still_end_well(run: Run) -> None:
    def experiment(config: RunConfig, run: Run) -> dict[str, Any]:
        run.update_status(state="lost", error="no sign of life")
        return {"state": "done"}

    assert perform(run, experiment) == 0
    assert (run.status().state, run.status().error) == ("done", None)


def test_a_heartbeat_that_cannot_be_written_does_not_end_the_run(
    run: Run, until: Until, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.folder / ".status.lock").unlink(missing_ok=True)
    (run.folder / ".status.lock").mkdir()
    said: list[str] = []

    def complained() -> bool:
        said.append(capsys.readouterr().err)
        return "no sign of life could be written" in "".join(said)

    with heartbeat(run, 0.01):
        until(complained)


def test_the_module_is_what_a_worker_process_runs(run: Run) -> None:
    assert main(run.folder, lambda config, run: {"state": "done"}) == 0
    assert run.status().state == "done"
