"""Faults: clock changes, reused PIDs, damaged files, deleted folders, full disks."""

import errno
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bsc_core.errors import InputError, JobError, RunError, RunNotFoundError
from bsc_core.jobs import launch, reconcile, recovery, resume, stop
from bsc_core.jobs.actions.stopping import check_ended
from bsc_core.jobs.backends import ProcessInfo
from bsc_core.jobs.local.backend import LocalBackend
from bsc_core.jobs.local.processes import current_process, find_process, is_local_process, process_fields
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.recovery import refresh_status
from bsc_core.jobs.states import advance
from bsc_core.jobs.worker import heartbeat, perform
from bsc_core.runs import Run, RunStatus, RunStore
from tests.jobs.conftest import add_checkpoint


@pytest.fixture
def run(store, config):
    return store.create(config, "one")


def age_status(run: Run) -> None:
    """Make the status file old enough to be repaired."""
    long_ago = time.time() - 3600
    os.utime(run.folder / "status.json", (long_ago, long_ago))


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_jumps_ends_no_run(started, store, hours):
    run = started("patient")
    jumped = RunStore(store.root, clock=lambda: time.time() + 3600 * hours)
    assert reconcile(jumped) == []
    assert run.status().state == "running"


def test_a_clock_that_jumps_while_a_worker_is_being_started_ends_no_run(store, config, until):
    run = launch(store, config, "one", start=lambda store: None)
    advance(run, "starting")
    local = LocalBackend([sys.executable, "-c", "import time; time.sleep(60)"])
    local.start(run, {})
    later = Run(run.folder, clock=lambda: time.time() + 3600)
    assert refresh_status(later, local).state == refresh_status(later).state == "starting"
    local.send_signal(run, signal.SIGKILL)
    until(lambda: local.inspect(run) == ProcessInfo("ended", -signal.SIGKILL))


def test_a_process_is_identified_independently_of_the_clock():
    identity = current_process()
    status = RunStatus(**identity)
    assert find_process(RunStatus(**identity | {"process_created": 1.0})) is not None
    assert find_process(RunStatus(**identity | {"process_mark": None})) is not None
    assert find_process(RunStatus(**identity | {"process_created": 1.0, "process_mark": None})) is None
    boot, _, tick = str(identity["process_mark"]).partition(":")
    assert find_process(RunStatus(**identity | {"process_mark": f"{boot}:{int(tick) + 1}"})) is None
    assert is_local_process(status)
    assert not is_local_process(RunStatus(process_mark="another:1"))


@pytest.mark.skipif(not Path("/proc/self/ns/pid").is_symlink(), reason="the system has no PID namespaces")
def test_a_process_of_another_container_on_this_machine_is_judged_by_its_heartbeat(run):
    here, _, tick = str(current_process()["process_mark"]).partition(":")
    boot, _, namespace = here.rpartition("-")
    other = current_process() | {"process_mark": f"{boot}-{int(namespace) + 1}:{tick}"}
    run.update_status(state="running", **other)
    assert find_process(run.status()) is None
    assert refresh_status(run).state == "running"
    with pytest.raises(InputError, match="is running; stop it first"):
        check_ended(run)
    later = Run(run.folder, clock=lambda: time.time() + 100)
    assert refresh_status(later).state == "lost"


def test_an_ended_process_has_no_start_time():
    assert process_fields(2**22 + 7) == {"pid": 2**22 + 7, "process_created": None, "process_mark": None}


def test_a_run_of_another_machine_is_judged_by_its_heartbeat(run):
    run.update_status(state="running", pid=os.getpid(), process_created=1.0, process_mark="another-boot:1")
    assert refresh_status(run).state == "running"
    later = Run(run.folder, clock=lambda: time.time() + 100)
    assert refresh_status(later).state == "lost"


def test_a_reused_pid_is_not_the_run(started, store):
    run = started("patient")
    process = find_process(run.status())
    run.update_status(pid=os.getpid())
    reconcile(store)
    assert run.status().state == "lost"
    process.send_signal(signal.SIGKILL)


def test_a_damaged_status_is_rewritten_by_the_running_process(started, until):
    run = started("patient")
    before = run.status()
    (run.folder / "status.json").write_text('{"state": "runn')
    until(lambda: run.status().is_readable)
    after = run.status()
    assert (after.state, after.pid, after.created) == ("running", before.pid, pytest.approx(before.created, abs=5))


@pytest.mark.parametrize(
    "files",
    [
        {"worker.json": {"now": 1.0, "step": "many", "pid": None}},
        {"worker.json": {"pid": {}}},
        {"ended.json": {"state": "failed", "error": {}, "message": ""}},
        {"resumed.json": {"from": ["one"]}},
    ],
)
def test_forged_files_next_to_a_damaged_status_leave_a_run_whose_state_can_be_read(store, run, files):
    for name, content in files.items():
        (run.folder / name).write_text(json.dumps(content))
    (run.folder / "status.json").write_text("{")
    age_status(run)
    reconcile(store)
    status = run.status()
    assert status.is_readable
    assert (status.state, status.exit_code) == ("lost", None)
    assert "damaged" in status.error or "its process ended" in status.error


def test_a_failed_run_whose_status_is_damaged_later_keeps_its_cause(store, run):
    def experiment(config, run):
        raise MemoryError

    perform(run, experiment)
    before = run.status()
    os.truncate(run.folder / "status.json", 5)
    reconcile(store)
    after = run.status()
    assert (after.state, after.exit_code, after.error) == (before.state, before.exit_code, before.error)
    assert after.state == "failed"


@pytest.mark.parametrize(
    "files",
    [
        {"status": {"state": "running", "pid": -1, "process_created": 1.0, "created": 1.0, "updated": 1.0}},
        {"status": None, "worker": {"x": 1}},
        {"status": None, "ended": {"state": ["done"]}},
        {"status": None, "result": {"state": ["done"]}},
    ],
    ids=["a negative pid", "worker", "ended", "result"],
)
def test_the_files_of_a_damaged_run_do_not_prevent_the_update_of_others(store, run, files):
    other = store.create(run.config(), "20990101-000000-other-0001")
    other.update_status(state="running", pid=2**22 + 7, process_created=1.0)
    for name, values in files.items():
        (run.folder / f"{name}.json").write_text("{" if values is None else json.dumps(values), encoding="utf-8")
        os.utime(run.folder / f"{name}.json", (1, 1))
    with suppress(JobError):
        reconcile(store, start=lambda store: None)
    assert other.status().state == "lost"


def test_a_status_that_is_damaged_as_a_run_ends_does_not_hide_how_it_ended(run):
    def experiment(config, run):
        os.truncate(run.folder / "status.json", 5)
        raise MemoryError

    assert perform(run, experiment, heartbeat_seconds=1000) == 1
    assert (run.status().state, run.status().is_readable) == ("failed", True)
    assert "out of memory" in run.status().error


def test_a_damaged_status_of_a_waiting_run_leaves_it_waiting(store, config):
    run = launch(store, config, "one", start=lambda store: None)
    (run.folder / "status.json").write_text("")
    reconcile(store, start=lambda store: None)
    assert not run.status().is_readable  # young: whoever writes it may be about to
    age_status(run)
    reconcile(store, start=lambda store: None)
    assert run.status().state == "queued"
    assert Queue(store.root).waiting() == ["one"]


def test_a_damaged_status_of_a_run_that_was_stopped_in_the_queue_leaves_it_stopped(store, config):
    run = launch(store, config, "one", start=lambda store: None)
    assert stop(run).state == "stopped"
    (run.folder / "status.json").write_text("")
    age_status(run)
    reconcile(store, start=lambda store: None)
    assert run.status().state == "stopped"


@pytest.mark.parametrize("launched_at", [1000.0, 4e9], ids=["long ago", "before the clock was set back"])
def test_a_waiting_run_that_the_queue_has_forgotten_is_queued_again(store, config, launched_at):
    other = RunStore(store.root, clock=lambda: launched_at)
    launch(other, config, "one", start=lambda store: None)
    Queue(store.root).finish("one")
    reconcile(store, start=lambda store: None)
    assert Queue(store.root).waiting() == ["one"]


@pytest.mark.parametrize(
    ("result", "state", "cause"),
    [({"state": "done"}, "done", None), ({"state": "stopped"}, "stopped", None), (None, "lost", "without a message")],
)
def test_a_damaged_status_of_an_ended_run_is_rebuilt_from_its_files(store, run, result, state, cause):
    run.write_json("worker", current_process() | {"process_created": 1.0, "process_mark": None})
    if result:
        run.write_json("result", result)
    run.update_status(group="group")
    run.write_json("group", {"group": "group", "setting": {}, "seed": 0})
    os.truncate(run.folder / "status.json", 10)
    reconcile(store)
    status = run.status()
    assert (status.state, status.group, status.is_readable) == (state, "group", True)
    assert (cause or "") in (status.error or "")


@pytest.mark.parametrize(
    ("killed_for_memory", "text"), [(0, "signal 9"), (1, "signal 9, possibly out of memory: lower")]
)
def test_a_lack_of_memory_is_named_only_if_the_system_killed_a_process_for_it(monkeypatch, killed_for_memory, text):
    monkeypatch.setattr(recovery, "memory_kills", lambda: killed_for_memory)
    assert recovery._cause(-9).startswith(f"its process was killed by {text}")
    assert ("memory" in recovery._cause(-9)) == bool(killed_for_memory)


def test_an_unknown_state_is_damage(run):
    (run.folder / "status.json").write_text('{"state": "flying", "created": 1}')
    assert "state: Input should be" in run.status().error


def test_a_run_with_a_result_but_no_final_state_is_done(store, run):
    run.update_status(state="running", **current_process() | {"process_created": 1.0, "process_mark": None})
    run.write_json("result", {"state": "done"})
    assert [one.status().state for one in reconcile(store)] == ["done"]


def test_deleting_the_folder_of_a_run_by_hand_ends_its_process(started, store, until):
    run = started("blind")
    process = find_process(run.status())
    shutil.rmtree(run.folder, ignore_errors=True)  # its process may be writing meanwhile
    until(lambda: not process.is_running() or process.status() == "zombie")
    assert store.list() == reconcile(store) == []
    until(lambda: Queue(store.root).snapshot().claimed == ())


def test_writing_to_a_deleted_run_does_not_recreate_it(run):
    shutil.rmtree(run.folder)
    for write in (
        lambda: run.update_status(step=1),
        lambda: run.write_json("result", {}),
        lambda: run.write_json("evaluation/after", {}),
    ):
        with pytest.raises(RunNotFoundError, match="was deleted or moved"):
            write()
    assert not run.folder.exists()


def test_a_worker_whose_run_another_process_took_over_ends_itself(run):
    def experiment(config, run):
        run.update_status(pid=1, process_created=1.0, process_mark=None)
        while True:
            time.sleep(0.01)

    before = signal.getsignal(signal.SIGTERM)
    assert perform(run, experiment, heartbeat_seconds=0.02) == 1
    assert (run.status().pid, run.status().state) == (1, "running")
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_heartbeat_uses_the_monotonic_clock(run, until):
    run.update_status(state="running", **current_process())
    before = time.monotonic()
    with heartbeat(run, 0.01):
        until(lambda: (run.status().pulse or 0.0) > before)


def refuse(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_launch_on_a_full_disk_is_a_job_error(store, config, monkeypatch):
    monkeypatch.setattr("bsc_core.runs.store.atomic_write", refuse)
    with pytest.raises(JobError, match=r"No space left on device.*free disk space, then retry"):
        launch(store, config, "one", start=lambda store: None)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused_before_a_run_is_created(store, config, run, monkeypatch, number):
    def flock(handle: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    run.update_status(state="stopped")
    add_checkpoint(run)
    monkeypatch.setattr("fcntl.flock", flock)
    for act in (lambda: launch(store, config, "two"), lambda: resume(store, run), lambda: reconcile(store)):
        with pytest.raises(JobError, match=r"runs: its file system has no file locks, .*; move the runs folder"):
            act()
    assert [found.id for found in store.list()] == ["one"]
    assert run.status().state == "stopped"
    assert list(store.root.glob("queue*.sqlite")) == []


def test_other_runs_are_updated_although_the_disk_of_one_is_full(store, config, monkeypatch):
    dead = current_process() | {"process_created": 1.0, "process_mark": None}
    full, free = store.create(config, "full"), store.create(config, "free")
    for run in (full, free):
        run.update_status(state="running", **dead)
    change = Run.change_status

    def changing(run, how):
        return change(run, how) if run.id == "free" else refuse()

    with monkeypatch.context() as patch:
        patch.setattr(Run, "change_status", changing)
        with pytest.raises(JobError, match=r"run full: its state could not be updated .*No space left"):
            reconcile(store)
    assert (full.status().state, free.status().state) == ("running", "lost")
    reconcile(store)
    assert full.status().state == "lost"


def test_the_final_state_is_retried_until_the_disk_has_space(run, monkeypatch, capsys):
    left = iter(range(2))
    change = Run.change_status

    def changing(run, how):
        if run.read_json("result") is not None and next(left, None) is not None:
            refuse()
        return change(run, how)

    monkeypatch.setattr(Run, "change_status", changing)
    monkeypatch.setattr("bsc_core.jobs.worker.wait_until", partial(_patiently))
    assert perform(run, lambda config, run: {"state": "done"}) == 0
    assert run.status().state == "done"
    assert "the final state could not be written" in capsys.readouterr().err


def _patiently(condition: Callable[[], bool], seconds: float, *, poll_seconds: float) -> bool:
    return any(condition() for _ in range(int(seconds / poll_seconds)))


def test_a_lost_run_with_a_live_process_is_not_resumed(store, run):
    run.update_status(state="lost", **current_process())
    with pytest.raises(InputError, match="its process is still alive; stop it first"):
        resume(store, run, start=lambda store: None)


def test_a_locked_status_is_an_error_that_names_the_run(run, monkeypatch):
    from filelock import FileLock

    monkeypatch.setattr("bsc_core.runs.store._LOCK_SECONDS", 0.05)
    with FileLock(run.folder / ".status.lock"), pytest.raises(RunError, match="another process has locked its status"):
        run.update_status(step=1)


@pytest.mark.parametrize("make", [Path.mkdir, lambda lock: lock.symlink_to(lock.with_name("config.json"))])
def test_a_status_lock_that_is_no_file_is_an_error_that_names_it(run, make):
    lock = run.folder / ".status.lock"
    lock.unlink(missing_ok=True)
    make(lock)
    config = (run.folder / "config.json").read_bytes()
    with pytest.raises(RunError, match=r"\.status\.lock is no file; delete it"):
        run.update_status(step=1)
    assert (run.folder / "config.json").read_bytes() == config
