"""What happens to runs from outside: clocks, reused pids, damaged files, deleted folders, full disks."""

import errno
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from bsc_core.config import RunConfig
from bsc_core.errors import InputError, JobError, RunError, RunNotFoundError
from bsc_core.jobs import launch, reconcile, resume, stop
from bsc_core.jobs.backend import Look
from bsc_core.jobs.identity import find_process, identity_of, is_of_this_boot, own_identity
from bsc_core.jobs.local_backend import LocalBackend
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.reconciling import settle
from bsc_core.jobs.states import advance
from bsc_core.jobs.worker import heartbeat, perform
from bsc_core.runs import Run, RunStatus, RunStore

Launch = Callable[..., Run]
Until = Callable[[Callable[[], bool]], None]


@pytest.fixture
def run(store: RunStore, config: RunConfig) -> Run:
    return store.create(config, "one")


def age_status(run: Run) -> None:
    """Make the status file old enough that no worker is about to write it."""
    long_ago = time.time() - 3600
    os.utime(run.folder / "status.json", (long_ago, long_ago))


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_jumps_ends_no_run(started: Launch, store: RunStore, hours: int) -> None:
    run = started("patient")
    jumped = RunStore(store.root, clock=lambda: time.time() + 3600 * hours)
    assert reconcile(jumped) == []
    assert run.status().state == "running"


def test_a_clock_that_jumps_while_a_worker_is_being_started_ends_no_run(
    store: RunStore, config: RunConfig, until: Until
) -> None:
    run = launch(store, config, "one", start=lambda store: None)
    advance(run, "starting")
    local = LocalBackend([sys.executable, "-c", "import time; time.sleep(60)"])
    local.start(run, {})
    later = Run(run.folder, clock=lambda: time.time() + 3600)
    assert settle(later, local).state == settle(later).state == "starting"
    local.end(run, signal.SIGKILL)
    until(lambda: local.look(run) == Look("ended", -signal.SIGKILL))


def test_a_process_is_the_same_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    identity = own_identity()
    status = RunStatus(**identity)
    assert find_process(RunStatus(**identity | {"process_created": 1.0})) is not None
    assert find_process(RunStatus(**identity | {"process_mark": None})) is not None
    assert find_process(RunStatus(**identity | {"process_created": 1.0, "process_mark": None})) is None
    boot, _, tick = str(identity["process_mark"]).partition(":")
    assert find_process(RunStatus(**identity | {"process_mark": f"{boot}:{int(tick) + 1}"})) is None
    assert is_of_this_boot(status)
    assert not is_of_this_boot(RunStatus(process_mark="another:1"))


def test_a_process_that_has_ended_has_no_time_of_making() -> None:
    assert identity_of(2**22 + 7) == {"pid": 2**22 + 7, "process_created": None, "process_mark": None}


def test_a_run_of_another_machine_is_judged_by_its_heartbeat(run: Run) -> None:
    run.update_status(state="running", pid=os.getpid(), process_created=1.0, process_mark="another-boot:1")
    assert settle(run).state == "running"
    later = Run(run.folder, clock=lambda: time.time() + 100)
    assert settle(later).state == "lost"


def test_a_pid_that_another_process_has_now_is_not_the_run(started: Launch, store: RunStore, until: Until) -> None:
    run = started("patient")
    process = find_process(run.status())
    assert process is not None
    run.update_status(pid=os.getpid())
    reconcile(store)
    assert run.status().state == "lost"
    process.send_signal(signal.SIGKILL)


def test_a_damaged_status_is_written_anew_by_the_process_that_runs(started: Launch, until: Until) -> None:
    run = started("patient")
    before = run.status()
    (run.folder / "status.json").write_text('{"state": "runn')
    until(lambda: run.status().is_readable)
    after = run.status()
    assert (after.state, after.pid, after.created) == ("running", before.pid, pytest.approx(before.created, abs=5))


def test_a_failed_run_whose_status_is_damaged_later_keeps_its_cause(store: RunStore, run: Run) -> None:
    def experiment(config: RunConfig, run: Run) -> dict[str, Any]:
        raise MemoryError

    perform(run, experiment)
    before = run.status()
    os.truncate(run.folder / "status.json", 5)
    reconcile(store)
    after = run.status()
    assert (after.state, after.exit_code, after.error) == (before.state, before.exit_code, before.error)
    assert after.state == "failed"


def test_a_status_that_is_damaged_as_a_run_ends_does_not_hide_how_it_ended(run: Run) -> None:
    def experiment(config: RunConfig, run: Run) -> dict[str, Any]:
        os.truncate(run.folder / "status.json", 5)
        raise MemoryError

    assert perform(run, experiment, heartbeat_seconds=1000) == 1
    assert (run.status().state, run.status().is_readable) == ("failed", True)
    assert "out of memory" in (run.status().error or "")


def test_a_damaged_status_of_a_waiting_run_leaves_it_waiting(store: RunStore, config: RunConfig) -> None:
    run = launch(store, config, "one", start=lambda store: None)
    (run.folder / "status.json").write_text("")
    reconcile(store, start=lambda store: None)
    assert not run.status().is_readable  # young: whoever writes it may be about to
    age_status(run)
    reconcile(store, start=lambda store: None)
    assert run.status().state == "queued"
    assert Queue(store.root).waiting() == ["one"]


def test_a_damaged_status_of_a_run_that_was_stopped_in_the_queue_leaves_it_stopped(
    store: RunStore, config: RunConfig
) -> None:
    run = launch(store, config, "one", start=lambda store: None)
    assert stop(run).state == "stopped"
    (run.folder / "status.json").write_text("")
    age_status(run)
    reconcile(store, start=lambda store: None)
    assert run.status().state == "stopped"


def test_a_waiting_run_that_the_queue_has_forgotten_is_queued_again(store: RunStore, config: RunConfig) -> None:
    early = RunStore(store.root, clock=lambda: 1000.0)
    launch(early, config, "one", start=lambda store: None)
    Queue(store.root).finish("one")
    reconcile(store, start=lambda store: None)
    assert Queue(store.root).waiting() == ["one"]


@pytest.mark.parametrize(
    ("result", "state", "cause"),
    [({"state": "done"}, "done", None), ({"state": "stopped"}, "stopped", None), (None, "lost", "without a word")],
)
def test_a_damaged_status_of_an_ended_run_is_told_from_what_it_left(
    store: RunStore, run: Run, result: Any, state: str, cause: str | None
) -> None:
    run.write_json("worker", own_identity() | {"process_created": 1.0, "process_mark": None})
    if result:
        run.write_json("result", result)
    run.update_status(group="group")
    run.write_json("group", {"group": "group", "setting": {}, "seed": 0})
    os.truncate(run.folder / "status.json", 10)
    reconcile(store)
    status = run.status()
    assert (status.state, status.group, status.is_readable) == (state, "group", True)
    assert (cause or "") in (status.error or "")


def test_a_state_of_no_known_name_is_damage(run: Run) -> None:
    (run.folder / "status.json").write_text('{"state": "flying", "created": 1}')
    assert "it holds no state of a run" in (run.status().error or "")


def test_a_result_that_was_written_makes_a_run_done_though_its_last_word_was_not(store: RunStore, run: Run) -> None:
    run.update_status(state="running", **own_identity() | {"process_created": 1.0, "process_mark": None})
    run.write_json("result", {"state": "done"})
    assert [one.status().state for one in reconcile(store)] == ["done"]


def test_deleting_the_folder_of_a_run_by_hand_ends_its_process(started: Launch, store: RunStore, until: Until) -> None:
    run = started("blind")
    process = find_process(run.status())
    assert process is not None
    shutil.rmtree(run.folder, ignore_errors=True)  # its process may be writing meanwhile
    until(lambda: not process.is_running() or process.status() == "zombie")
    assert store.list() == reconcile(store) == []
    until(lambda: Queue(store.root).claimed() == [])


def test_a_deleted_run_is_not_made_again_by_writing_to_it(run: Run) -> None:
    shutil.rmtree(run.folder)
    for write in (
        lambda: run.update_status(step=1),
        lambda: run.write_json("result", {}),
        lambda: run.write_json("evaluation/after", {}),
    ):
        with pytest.raises(RunNotFoundError, match="was deleted or moved"):
            write()
    assert not run.folder.exists()


def test_a_worker_whose_run_another_process_took_over_ends_itself(run: Run, until: Until) -> None:
    def experiment(config: RunConfig, run: Run) -> dict[str, Any]:
        run.update_status(pid=1, process_created=1.0, process_mark=None)
        while True:
            time.sleep(0.01)

    before = signal.getsignal(signal.SIGTERM)
    assert perform(run, experiment, heartbeat_seconds=0.02) == 1
    assert (run.status().pid, run.status().state) == (1, "running")
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_heartbeat_says_when_it_was_on_a_clock_that_only_goes_on(run: Run, until: Until) -> None:
    run.update_status(state="running", **own_identity())
    before = time.monotonic()
    with heartbeat(run, 0.01):
        until(lambda: (run.status().pulse or 0.0) > before)


def refuse(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_launch_on_a_full_disk_is_one_sentence(
    store: RunStore, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsc_core.runs.write_whole", refuse)
    with pytest.raises(JobError, match=r"No space left on device.*free disk space, then retry"):
        launch(store, config, "one", start=lambda store: None)


def test_a_full_disk_keeps_no_other_run_from_its_true_state(
    store: RunStore, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = own_identity() | {"process_created": 1.0, "process_mark": None}
    full, free = store.create(config, "full"), store.create(config, "free")
    for run in (full, free):
        run.update_status(state="running", **dead)
    change = Run.change_status

    def changing(run: Run, how: Callable[[RunStatus], RunStatus]) -> RunStatus:
        return change(run, how) if run.id == "free" else refuse()  # type: ignore[func-returns-value,return-value]

    with monkeypatch.context() as patch:
        patch.setattr(Run, "change_status", changing)
        with pytest.raises(JobError, match=r"run full: its state could not be brought up to date .*No space left"):
            reconcile(store)
    assert (full.status().state, free.status().state) == ("running", "lost")
    reconcile(store)
    assert full.status().state == "lost"


def test_the_last_word_of_a_run_is_said_again_until_the_disk_takes_it(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    left = iter(range(2))
    change = Run.change_status

    def changing(run: Run, how: Callable[[RunStatus], RunStatus]) -> RunStatus:
        if run.read_json("result") is not None and next(left, None) is not None:
            refuse()
        return change(run, how)

    monkeypatch.setattr(Run, "change_status", changing)
    monkeypatch.setattr("bsc_core.jobs.worker.wait_until", partial(_patiently))
    assert perform(run, lambda config, run: {"state": "done"}) == 0
    assert run.status().state == "done"
    assert "how the run ended could not be written" in capsys.readouterr().err


def _patiently(condition: Callable[[], bool], seconds: float, *, poll_seconds: float) -> bool:
    return any(condition() for _ in range(int(seconds / poll_seconds)))


def test_a_lost_run_whose_process_is_still_there_is_not_resumed(store: RunStore, run: Run) -> None:
    run.update_status(state="lost", **own_identity())
    with pytest.raises(InputError, match="its process is still there; stop it first"):
        resume(store, run, start=lambda store: None)


def test_a_worker_that_cannot_be_started_is_a_job_error(run: Run) -> None:
    with pytest.raises(JobError, match="could not be started"):
        LocalBackend(["/no/such/program"]).start(run, {})


def test_a_status_that_someone_holds_is_an_error_that_names_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    monkeypatch.setattr("bsc_core.runs._LOCK_SECONDS", 0.05)
    with FileLock(run.folder / ".status.lock"), pytest.raises(RunError, match="another process holds its status"):
        run.update_status(step=1)
