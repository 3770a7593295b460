"""Launching through the queue, with real supervisors and workers."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from filelock import FileLock

from bsc_core.config import RunConfig, TrainingConfig
from bsc_core.errors import JobError
from bsc_core.jobs import launch, reconcile, stop
from bsc_core.jobs.identity import find_process
from bsc_core.jobs.local import start_detached
from bsc_core.jobs.local_backend import LocalBackend
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.supervisor import supervise
from bsc_core.runs import Run, RunStore

Launch = Callable[..., Run]
Until = Callable[[Callable[[], bool]], None]


def test_a_launched_run_is_performed_by_another_process(start: Launch, until: Until) -> None:
    run = start("quick")
    until(lambda: run.status().is_finished)
    status = run.status()
    assert (status.state, status.exit_code, status.error) == ("done", 0, None)
    assert run.read_json("result") == {"state": "done", "run": "one"}
    assert run.metrics()[0][0]["pid"] == status.pid != psutil.Process().pid


def test_launching_twice_is_one_run(start: Launch, store: RunStore, until: Until) -> None:
    first, second = start("quick"), start("quick")
    until(lambda: first.status().is_finished)
    third = start("quick")
    assert first.folder == second.folder == third.folder
    assert len(store.list()) == 1
    assert len(first.metrics()[0]) == 1
    assert Queue(store.root).waiting() == []


def test_runs_without_a_name_are_different_runs(store: RunStore, config: RunConfig) -> None:
    runs = [launch(store, config, start=lambda store: None) for _ in range(3)]
    assert len({run.id for run in runs}) == 3
    assert sorted(Queue(store.root).waiting()) == sorted(run.id for run in runs)


def test_two_supervisors_at_once_perform_each_run_once(
    store: RunStore, config: RunConfig, stand_in: ModuleType, until: Until
) -> None:
    runs = [launch(store, config, f"run-{number}", start=lambda store: None) for number in range(4)]
    command = stand_in.command("supervise", "quick", "2", str(store.root))
    supervisors = [start_detached(command, store.root / "log.txt", {}) for _ in range(2)]
    assert [supervisor.wait(60) for supervisor in supervisors] == [0, 0], (store.root / "log.txt").read_text()
    assert [run.status().state for run in runs] == ["done"] * 4
    assert [len(run.metrics()[0]) for run in runs] == [1] * 4
    assert Queue(store.root).claimed() == []


def test_one_slot_performs_one_run_at_a_time(started: Launch, start: Launch, until: Until) -> None:
    first = started("patient", "first")
    second = start("patient", "second")
    assert second.status().state == "queued"
    first.request_stop()
    until(lambda: second.status().state == "running")
    assert first.status().state == "stopped"
    second.request_stop()
    until(lambda: second.status().state == "stopped")


def test_killing_the_launching_process_and_its_group_does_not_touch_the_run(
    store: RunStore, stand_in: ModuleType, until: Until
) -> None:
    launcher = subprocess.Popen(stand_in.command("launch", "patient", "one", str(store.root)), start_new_session=True)
    run = Run(store.root / "one")
    until(lambda: run.folder.exists() and run.status().state == "running" and bool(run.log_tail()))
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait(10)
    assert reconcile(store) == []
    assert find_process(run.status()) is not None
    run.request_stop()
    until(lambda: run.status().is_finished)
    assert run.status().state == "stopped"


def test_killing_the_supervisor_leaves_its_run_to_the_next(
    store: RunStore, config: RunConfig, stand_in: ModuleType, until: Until
) -> None:
    first = launch(store, config, "first", start=lambda store: None)
    command = stand_in.command("supervise", "patient", "1", str(store.root))
    supervisor = start_detached(command, store.root / "log.txt", {})
    until(lambda: first.status().state == "running")
    supervisor.kill()
    supervisor.wait(10)
    assert find_process(first.status()) is not None
    second = launch(store, config, "second", start=lambda store: stand_in.start_supervising(store, behaviour="quick"))
    first.request_stop()
    until(lambda: second.status().is_finished)
    assert (first.status().state, second.status().state) == ("stopped", "done")


def test_a_child_that_prints_much_is_never_blocked(start: Launch, until: Until) -> None:
    run = start("chatty")
    until(lambda: run.status().is_finished)
    assert run.status().state == "done"
    assert run.log_file.stat().st_size > 3_000_000
    assert run.log_tail(1) == ["line 59999 of very many that nobody reads while the run goes on"]


def test_thread_counts_stand_in_the_environment_before_anything_heavy_is_loaded(
    store: RunStore, config: RunConfig, stand_in: ModuleType, until: Until
) -> None:
    config = config.model_copy(update={"training": TrainingConfig(threads=3)})
    run = launch(store, config, "one", start=lambda store: stand_in.start_supervising(store, behaviour="environment"))
    until(lambda: run.status().is_finished)
    result = run.read_json("result")
    assert result["environment"] == {
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "3",
        "OPENBLAS_NUM_THREADS": "3",
    }
    assert result["loaded"] == []


def test_a_run_stopped_in_the_queue_is_never_started(started: Launch, start: Launch, until: Until) -> None:
    first = started("patient", "first")
    second = start("patient", "second")
    assert stop(second).state == "stopped"
    third = start("patient", "third")
    first.request_stop()
    until(lambda: third.status().state == "running")
    third.request_stop()
    until(lambda: third.status().is_finished)
    assert (second.status().state, second.status().pid, second.log_tail()) == ("stopped", None, [])


def test_a_worker_that_cannot_be_started_fails_its_run(store: RunStore, config: RunConfig, tmp_path: Path) -> None:
    run = launch(store, config, "one", start=lambda store: None)
    assert supervise(store, backends={"local": LocalBackend([str(tmp_path / "no-such-program")])}) == 1
    assert run.status().state == "failed"
    assert "no-such-program could not be started" in (run.status().error or "")


def test_a_run_whose_folder_was_deleted_leaves_the_queue(store: RunStore) -> None:
    Queue(store.root).add("gone")
    assert supervise(store) == 0
    assert (Queue(store.root).waiting(), Queue(store.root).claimed()) == ([], [])


@pytest.mark.parametrize("behaviour", ["killed", "vanished"])
def test_the_supervisor_gives_a_run_that_died_its_final_state(start: Launch, until: Until, behaviour: str) -> None:
    run = start(behaviour)
    until(lambda: run.status().is_finished)
    status = run.status()
    if behaviour == "killed":
        assert (status.state, status.exit_code) == ("lost", -signal.SIGKILL)
        assert "out of memory" in (status.error or "")
        assert "step 3 of 9" in (status.error or "")
    else:
        assert (status.state, status.exit_code) == ("failed", 3)
        assert "exit status 3; last line of its log: step 4 of 9" in (status.error or "")


def test_a_run_may_read_what_its_launcher_may_whoever_starts_it(
    store: RunStore, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BSC_ROOTS", "/launcher")
    run = launch(store, config, "one", start=lambda store: None)
    monkeypatch.setenv("BSC_ROOTS", "/supervisor")
    says = LocalBackend([sys.executable, "-c", "import os; print(os.environ['BSC_ROOTS'])"])
    supervise(store, backends={"local": says}, poll_seconds=0.02)
    assert run.log_tail(1) == ["/launcher"]


def test_a_run_that_the_queue_does_not_take_is_kept_and_queued_once(
    store: RunStore, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.05)
    lock = FileLock(store.root / ".queue.lock", is_singleton=False)
    with lock, pytest.raises(JobError, match=r"^run one is kept but not queued yet .* do not launch it anew$") as told:
        launch(store, config, "one", start=lambda store: None)
    assert "another process holds the queue" in str(told.value)
    assert "try again" not in str(told.value)
    for _ in range(2):
        reconcile(RunStore(store.root, clock=lambda: time.time() + 61), start=lambda store: None)
        launch(store, config, "one", start=lambda store: None)
    assert Queue(store.root).waiting() == ["one"]


def test_a_run_whose_supervisor_cannot_be_started_is_queued_and_says_so(store: RunStore, config: RunConfig) -> None:
    def refuse(store: RunStore) -> None:
        raise JobError("no process could be started; free some memory")

    with pytest.raises(JobError, match=r"^run one is queued, but is not served yet \(no process could be started\)"):
        launch(store, config, "one", start=refuse)
    assert Queue(store.root).waiting() == ["one"]
