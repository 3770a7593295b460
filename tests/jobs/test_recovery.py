"""Recovery: runs without a process get a final state; live runs are not changed."""

import os
import shutil
import signal
import time
from types import SimpleNamespace

import pytest

from bsc_core.jobs import launch, reconcile, recovery, unpause
from bsc_core.jobs.actions.launching import create_run
from bsc_core.jobs.local import processes
from bsc_core.jobs.local.backend import LocalBackend
from bsc_core.jobs.local.processes import current_process, find_process
from bsc_core.jobs.queue import Queue, supervisor_lock
from bsc_core.jobs.recovery import refresh_status
from bsc_core.jobs.scheduler import Scheduler
from bsc_core.jobs.supervisor import supervise
from bsc_core.jobs.worker import perform
from bsc_core.runs import RunStore


def test_a_killed_child_is_lost_with_the_last_line_of_its_log(started, store, until):
    run = started("patient")
    process = find_process(run.status())
    process.send_signal(signal.SIGKILL)
    until(lambda: find_process(run.status()) is None)
    reconcile(store)
    status = run.status()
    assert status.state == "lost"
    assert status.error.endswith("last line of its log: waiting for a stop request")
    assert status.finished is not None


def test_another_process_with_the_same_pid_is_not_the_run(store, config):
    run = store.create(config, "one")
    identity = current_process()
    run.update_status(state="running", pid=identity["pid"], process_created=identity["process_created"] - 100)
    assert [changed.id for changed in reconcile(store)] == ["one"]
    assert run.status().state == "lost"
    assert "it wrote no log" in run.status().error


def test_a_live_run_is_not_changed(store, config):
    run = store.create(config, "one")
    before = run.update_status(state="running", **current_process())
    assert reconcile(store) == []
    assert run.status() == before


def test_a_run_with_a_stale_heartbeat_is_lost(store, config):
    run = RunStore(store.root, clock=lambda: 1000.0).create(config, "one")
    run.update_status(state="running", **current_process())
    assert reconcile(RunStore(store.root, clock=lambda: 1059.0), stale_seconds=60) == []
    assert len(reconcile(RunStore(store.root, clock=lambda: 1061.0), stale_seconds=60)) == 1
    assert run.status().state == "lost"
    assert "no heartbeat for 61 s" in run.status().error


def test_a_run_whose_process_is_being_started_is_given_time(store, config):
    run = RunStore(store.root, clock=lambda: 1000.0).create(config, "one")
    run.update_status(state="starting")
    assert reconcile(RunStore(store.root, clock=lambda: 1010.0)) == []
    assert len(reconcile(RunStore(store.root, clock=lambda: 1100.0))) == 1
    assert run.status().state == "lost"


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_run_whose_process_starts_during_the_inspection_is_not_lost(store, config, state):
    class Slow(LocalBackend):
        def inspect(self, run):
            result = super().inspect(run)
            run.update_status(state=state, **current_process())
            return result

    run = store.create(config, "one")
    run.update_status(state="starting")
    assert refresh_status(run, Slow()).state == refresh_status(run).state == state


def test_a_process_that_starts_slowly_is_not_lost_and_executes_its_run(store, config):
    run = store.create(config, "one")
    run.update_status(state="starting", pulse=time.monotonic() - 3600, **current_process())
    assert reconcile(store, start=lambda store: None) == []
    assert run.status().state == "starting"
    assert perform(run, lambda config, run: {"state": "done"}) == 0
    assert run.status().state == "done"


def test_a_run_with_an_interrupted_launch_is_lost_and_a_queued_one_is_not(store, config):
    early = RunStore(store.root, clock=lambda: 1000.0)
    cut_off, queued = early.create(config, "cut-off"), early.create(config, "queued")
    Queue(store.root).add(queued.id)
    late = RunStore(store.root, clock=lambda: 2000.0)
    assert [run.id for run in reconcile(late, start=lambda store: None)] == ["cut-off"]
    assert "launch it again" in cut_off.status().error
    assert queued.status().state == "queued"


def test_waiting_runs_start_after_a_restart(store, config):
    launch(store, config, "one", start=lambda store: None)
    calls: list[RunStore] = []
    reconcile(store, start=calls.append)
    assert calls == [store]


def test_no_second_supervisor_is_started(store, config):
    calls: list[RunStore] = []
    launch(store, config, "one", start=lambda store: None)
    with supervisor_lock(store.root):
        reconcile(store, start=calls.append)
        launch(store, config, "two", start=calls.append)
    assert calls == []


def test_no_supervisor_is_started_while_another_one_is_being_started(store, config, monkeypatch):
    commands: list[list[str]] = []

    def start(command, log_file, environment):
        commands.append(command)
        return SimpleNamespace(pid=os.getpid())

    monkeypatch.setattr(processes, "start_detached", start)
    launch(store, config, "one")
    reconcile(store)
    assert len(commands) == 1
    Queue(store.root).pause()
    supervise(store)  # it ends at once
    unpause(store)
    assert len(commands) == 2
    for content in ('{"pid": 1, "process_created": 1.0, "process_mark": null}', '{"pi'):  # it was killed
        (store.root / ".supervisor.starting").write_text(content)
        reconcile(store)
    assert len(commands) == 4


def test_an_empty_or_missing_runs_folder_needs_no_supervisor(store):
    assert reconcile(store) == []
    assert not store.root.exists()


@pytest.mark.parametrize("note", ["result", "ended"])
def test_a_damaged_worker_file_does_not_keep_a_dead_run_active(store, config, note):
    run = launch(store, config, "one", start=lambda store: None)
    Queue(store.root).claim("one")
    run.update_status(state="running", pid=2**22 + 1, process_created=1.0)
    (run.folder / f"{note}.json").write_text('{"sta')
    assert not Scheduler(store).tick()
    assert run.status().state == "lost"
    assert Queue(store.root).snapshot().claimed == ()


@pytest.mark.parametrize("content", ['{"pi', "[]"])
def test_a_run_with_a_damaged_status_and_worker_file_is_lost_and_not_started_again(store, config, content):
    run = launch(store, config, "one", start=lambda store: None)
    (run.folder / "worker.json").write_text(content)
    (run.folder / "status.json").write_text("{")
    os.utime(run.folder / "status.json", (1.0, 1.0))
    assert [ended.id for ended in reconcile(store, start=lambda store: None)] == ["one"]
    assert run.status().is_readable
    assert run.status().state == "lost"


def test_unqueued_runs_are_queued_again_oldest_first(store, config):
    for number in (1, 2, 3):
        create_run(RunStore(store.root, clock=lambda: 1000.0 + number), config, f"run-{4 - number}")  # noqa: B023
    reconcile(RunStore(store.root, clock=lambda: 2000.0), start=lambda store: None)
    assert Queue(store.root).waiting() == ["run-3", "run-2", "run-1"]


def test_waiting_runs_of_a_working_folder_of_others_start_after_a_launch_there_only(
    tmp_path, config, own_cache, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    started: list[RunStore] = []
    store = RunStore(tmp_path / "runs")
    run = launch(store, config, "one", start=lambda store: None)
    store.create(config, "two").update_status(state="running", backend="ray", **current_process())
    inspected: list[str] = []
    monkeypatch.setattr(recovery, "refresh_status", lambda run, **_: inspected.append(run.id) or run.status())
    shutil.rmtree(own_cache)  # as for a user who unpacks an archive of this folder
    reconcile(store, start=started.append)
    assert (started, inspected) == ([], ["one"])  # the other one names a cluster
    assert "bsc queue resume" in run.status().message
    reconcile(RunStore(tmp_path / "runs" / ".." / "runs"), start=started.append)
    assert started == []
    unpause(store, start=started.append)
    reconcile(store, start=started.append)
    assert started == [store, store]
    monkeypatch.chdir("/")
    shutil.rmtree(own_cache)
    reconcile(store, start=started.append)  # a folder that the user has named
    assert len(started) == 3
