"""Launching runs with real supervisors and workers."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from filelock import FileLock

from bsc_core.config import TrainingConfig
from bsc_core.errors import JobError
from bsc_core.jobs import launch, reconcile, stop
from bsc_core.jobs.local.backend import LocalBackend
from bsc_core.jobs.local.processes import find_process, start_detached
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.supervisor import supervise
from bsc_core.runs import Run, RunStore
from tests.helpers.waiting import PATIENCE_SECONDS, final_status, wait_until
from tests.jobs import stub_worker


def test_a_launched_run_is_executed_by_another_process(start):
    run = start("quick")
    status = final_status(run)
    assert (status.state, status.exit_code, status.error) == ("done", 0, None)
    assert run.read_json("result") == {"state": "done", "run": "one"}
    assert run.metrics()[0][0]["pid"] == status.pid != psutil.Process().pid


def test_a_detached_process_that_ends_is_reaped_although_nobody_looks(tmp_path):
    child = start_detached([sys.executable, "-S", "-c", ""], tmp_path / "log.txt", {}).pid
    wait_until(lambda: not psutil.pid_exists(child), "the process is a zombie")


def test_launching_twice_is_one_run(start, store):
    first, second = start("quick"), start("quick")
    final_status(first)
    third = start("quick")
    assert first.folder == second.folder == third.folder
    assert len(store.list()) == 1
    assert len(first.metrics()[0]) == 1
    assert Queue(store.root).waiting() == []


def test_runs_without_a_name_are_different_runs(store, config):
    runs = [launch(store, config, start=lambda store: None) for _ in range(3)]
    assert len({run.id for run in runs}) == 3
    assert sorted(Queue(store.root).waiting()) == sorted(run.id for run in runs)


def test_two_supervisors_execute_each_run_once(store, config):
    runs = [launch(store, config, f"run-{number}", start=lambda store: None) for number in range(4)]
    command = stub_worker.command("supervise", "quick", "2", str(store.root))
    supervisors = [start_detached(command, store.root / "log.txt", {}) for _ in range(2)]
    exits = [supervisor.wait(PATIENCE_SECONDS) for supervisor in supervisors]
    assert exits == [0, 0], (store.root / "log.txt").read_text()
    assert [run.status().state for run in runs] == ["done"] * 4
    assert [len(run.metrics()[0]) for run in runs] == [1] * 4
    assert Queue(store.root).snapshot().claimed == ()


def test_one_slot_executes_one_run_at_a_time(started, start, until):
    first = started("patient", "first")
    second = start("patient", "second")
    assert second.status().state == "queued"
    first.request_stop()
    until(lambda: second.status().state == "running")
    assert first.status().state == "stopped"
    second.request_stop()
    until(lambda: second.status().state == "stopped")


def test_killing_the_launching_process_and_its_group_does_not_touch_the_run(store, until):
    launcher = subprocess.Popen(stub_worker.command("wait", "patient", "one", str(store.root)), start_new_session=True)
    run = Run(store.root / "one")
    until(lambda: run.folder.exists() and run.status().state == "running" and bool(run.log_tail()))
    os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait(PATIENCE_SECONDS)
    assert reconcile(store) == []
    assert find_process(run.status()) is not None
    run.request_stop()
    assert final_status(run).state == "stopped"


def test_killing_the_supervisor_leaves_its_run_to_the_next(store, config, until):
    first = launch(store, config, "first", start=lambda store: None)
    command = stub_worker.command("supervise", "patient", "1", str(store.root))
    supervisor = start_detached(command, store.root / "log.txt", {})
    until(lambda: first.status().state == "running")
    supervisor.kill()
    supervisor.wait(PATIENCE_SECONDS)
    assert find_process(first.status()) is not None
    second = launch(store, config, "second", start=lambda store: stub_worker.start_supervising(store, behavior="quick"))
    first.request_stop()
    assert (final_status(first).state, final_status(second).state) == ("stopped", "done")


def test_a_worker_with_much_output_is_never_blocked(start):
    run = start("chatty")
    assert final_status(run).state == "done"
    assert run.log_file.stat().st_size > 3_000_000
    assert run.log_tail(1) == ["line 59999 of very many that nobody reads while the run is active"]


def test_thread_counts_are_set_before_heavy_imports(store, config):
    config = config.model_copy(update={"training": TrainingConfig(threads=3)})
    run = launch(store, config, "one", start=lambda store: stub_worker.start_supervising(store, behavior="environment"))
    final_status(run)
    result = run.read_json("result")
    assert result["environment"] == {
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "3",
        "OPENBLAS_NUM_THREADS": "3",
    }
    assert result["loaded"] == []


def test_a_run_stopped_in_the_queue_is_never_started(started, start, until):
    first = started("patient", "first")
    second = start("patient", "second")
    assert stop(second).state == "stopped"
    third = start("patient", "third")
    first.request_stop()
    until(lambda: third.status().state == "running")
    third.request_stop()
    final_status(third)
    assert (second.status().state, second.status().pid, second.log_tail()) == ("stopped", None, [])


def test_a_worker_that_cannot_be_started_fails_its_run(store, config, tmp_path):
    run = launch(store, config, "one", start=lambda store: None)
    assert supervise(store, backends={"local": LocalBackend([str(tmp_path / "no-such-program")])}) == 1
    assert run.status().state == "failed"
    assert "no-such-program could not be started" in run.status().error


def test_a_run_whose_folder_was_deleted_leaves_the_queue(store):
    Queue(store.root).add("gone")
    assert supervise(store) == 0
    assert Queue(store.root).snapshot().waiting == Queue(store.root).snapshot().claimed == ()


@pytest.mark.parametrize("behavior", ["killed", "vanished"])
def test_the_supervisor_gives_a_run_that_died_its_final_state(start, behavior):
    run = start(behavior)
    status = final_status(run)
    if behavior == "killed":
        assert (status.state, status.exit_code) == ("lost", -signal.SIGKILL)
        assert "killed by signal 9" in status.error
        assert "step 3 of 9" in status.error
    else:
        assert (status.state, status.exit_code) == ("failed", 3)
        assert "exit status 3; last line of its log: step 4 of 9" in status.error


def test_a_run_may_read_what_its_launcher_may_read(store, config, monkeypatch):
    monkeypatch.setenv("BSC_ROOTS", "/launcher")
    run = launch(store, config, "one", start=lambda store: None)
    monkeypatch.setenv("BSC_ROOTS", "/supervisor")
    says = LocalBackend([sys.executable, "-c", "import os; print(os.environ['BSC_ROOTS'])"])
    supervise(store, backends={"local": says}, poll_seconds=0.02)
    assert run.log_tail(1) == ["/launcher"]


def test_a_run_that_could_not_be_queued_is_queued_later_once(store, config, monkeypatch):
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.05)
    lock = FileLock(store.root / ".queue.lock", is_singleton=False)
    with (
        lock,
        pytest.raises(
            JobError, match=r"^run one was created but not queued yet .* do not launch it again$"
        ) as reported,
    ):
        launch(store, config, "one", start=lambda store: None)
    assert "another process has locked the queue" in str(reported.value)
    assert "try again" not in str(reported.value)
    for _ in range(2):
        reconcile(RunStore(store.root, clock=lambda: time.time() + 61), start=lambda store: None)
        launch(store, config, "one", start=lambda store: None)
    assert Queue(store.root).waiting() == ["one"]


def test_a_run_is_queued_although_no_supervisor_can_be_started(store, config):
    def refuse(store):
        raise JobError("no process could be started; free some memory")

    with pytest.raises(
        JobError, match=r"^run one was queued but no supervisor was started \(no process could be started\)"
    ):
        launch(store, config, "one", start=refuse)
    assert Queue(store.root).waiting() == ["one"]
