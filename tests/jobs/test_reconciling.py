"""Runs whose process has gone are found; those that live are left alone."""

import os
import signal
from collections.abc import Callable

import pytest

from bsc_core.config import RunConfig
from bsc_core.jobs import launch, reconcile
from bsc_core.jobs.backend import Look
from bsc_core.jobs.identity import find_process, own_identity
from bsc_core.jobs.launching import make
from bsc_core.jobs.local_backend import LocalBackend
from bsc_core.jobs.queue import Queue, supervisor_lock
from bsc_core.jobs.reconciling import settle
from bsc_core.jobs.serving import Serving
from bsc_core.runs import Run, RunStore, State

Launch = Callable[..., Run]
Until = Callable[[Callable[[], bool]], None]


def test_a_killed_child_is_lost_with_the_last_line_of_its_log(started: Launch, store: RunStore, until: Until) -> None:
    run = started("patient")
    process = find_process(run.status())
    assert process is not None
    process.send_signal(signal.SIGKILL)
    until(lambda: find_process(run.status()) is None)
    reconcile(store)
    status = run.status()
    assert status.state == "lost"
    assert (status.error or "").endswith("last line of its log: waiting to be asked")
    assert status.finished is not None


def test_another_process_with_the_same_pid_is_not_the_run(store: RunStore, config: RunConfig) -> None:
    run = store.create(config, "one")
    identity = own_identity()
    run.update_status(state="running", pid=identity["pid"], process_created=identity["process_created"] - 100)
    assert [changed.id for changed in reconcile(store)] == ["one"]
    assert run.status().state == "lost"
    assert "it wrote no log" in (run.status().error or "")


def test_a_live_run_is_left_alone(store: RunStore, config: RunConfig) -> None:
    run = store.create(config, "one")
    before = run.update_status(state="running", **own_identity())
    assert reconcile(store) == []
    assert run.status() == before


def test_a_heartbeat_that_is_too_old_is_none(store: RunStore, config: RunConfig) -> None:
    run = RunStore(store.root, clock=lambda: 1000.0).create(config, "one")
    run.update_status(state="running", **own_identity())
    assert reconcile(RunStore(store.root, clock=lambda: 1059.0), stale_seconds=60) == []
    assert len(reconcile(RunStore(store.root, clock=lambda: 1061.0), stale_seconds=60)) == 1
    assert run.status().state == "lost"
    assert "no sign of life for 61 s" in (run.status().error or "")


def test_a_run_whose_process_is_being_started_is_given_time(store: RunStore, config: RunConfig) -> None:
    run = RunStore(store.root, clock=lambda: 1000.0).create(config, "one")
    run.update_status(state="starting")
    assert reconcile(RunStore(store.root, clock=lambda: 1010.0)) == []
    assert len(reconcile(RunStore(store.root, clock=lambda: 1100.0))) == 1
    assert run.status().state == "lost"


@pytest.mark.parametrize("state", ["starting", "running"])
def test_a_process_that_is_named_while_it_is_looked_for_is_not_lost(
    store: RunStore, config: RunConfig, state: State
) -> None:
    class Slow(LocalBackend):
        def look(self, run: Run) -> Look:
            found = super().look(run)
            run.update_status(state=state, **own_identity())
            return found

    run = store.create(config, "one")
    run.update_status(state="starting")
    assert settle(run, Slow()).state == settle(run).state == state


def test_a_run_whose_launch_was_cut_off_is_lost_and_a_queued_one_is_not(store: RunStore, config: RunConfig) -> None:
    early = RunStore(store.root, clock=lambda: 1000.0)
    cut_off, queued = early.create(config, "cut-off"), early.create(config, "queued")
    Queue(store.root).add(queued.id)
    late = RunStore(store.root, clock=lambda: 2000.0)
    assert [run.id for run in reconcile(late, start=lambda store: None)] == ["cut-off"]
    assert "launch it again" in (cut_off.status().error or "")
    assert queued.status().state == "queued"


def test_waiting_runs_are_served_again_after_a_restart(store: RunStore, config: RunConfig) -> None:
    launch(store, config, "one", start=lambda store: None)
    calls: list[RunStore] = []
    reconcile(store, start=calls.append)
    assert calls == [store]


def test_no_supervisor_is_started_beside_one_at_work(store: RunStore, config: RunConfig) -> None:
    calls: list[RunStore] = []
    launch(store, config, "one", start=lambda store: None)
    with supervisor_lock(store.root):
        reconcile(store, start=calls.append)
        launch(store, config, "two", start=calls.append)
    assert calls == []


def test_an_empty_or_missing_runs_folder_needs_no_work(store: RunStore) -> None:
    assert reconcile(store) == []
    assert not store.root.exists()


@pytest.mark.parametrize("note", ["result", "ended"])
def test_a_damaged_note_keeps_no_dead_run_going(store: RunStore, config: RunConfig, note: str) -> None:
    run = launch(store, config, "one", start=lambda store: None)
    Queue(store.root).claim("one")
    run.update_status(state="running", pid=2**22 + 1, process_created=1.0)
    (run.folder / f"{note}.json").write_text('{"sta')
    assert not Serving(store).look()
    assert run.status().state == "lost"
    assert Queue(store.root).claimed() == []


@pytest.mark.parametrize("content", ['{"pi', "[]"])
def test_a_run_with_a_damaged_status_and_a_damaged_note_of_its_worker_is_lost_and_not_begun_again(
    store: RunStore, config: RunConfig, content: str
) -> None:
    run = launch(store, config, "one", start=lambda store: None)
    (run.folder / "worker.json").write_text(content)
    (run.folder / "status.json").write_text("{")
    os.utime(run.folder / "status.json", (1.0, 1.0))
    assert [ended.id for ended in reconcile(store, start=lambda store: None)] == ["one"]
    assert run.status().is_readable
    assert run.status().state == "lost"


def test_runs_that_are_in_no_queue_are_queued_again_oldest_first(store: RunStore, config: RunConfig) -> None:
    for number in (1, 2, 3):
        make(RunStore(store.root, clock=lambda: 1000.0 + number), config, f"run-{4 - number}")  # noqa: B023
    reconcile(RunStore(store.root, clock=lambda: 2000.0), start=lambda store: None)
    assert Queue(store.root).waiting() == ["run-3", "run-2", "run-1"]
