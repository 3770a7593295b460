"""A run is resumed once, and the new run is visible only when complete."""

import os
import time

import pytest
from filelock import FileLock

from bsc_core.errors import ConfigError, InputError, JobError
from bsc_core.jobs import Queue, reconcile
from bsc_core.jobs.actions import resuming
from bsc_core.jobs.actions.resuming import continue_run
from bsc_core.jobs.local.processes import current_process
from bsc_core.runs import Run, RunStore
from tests.jobs.conftest import add_checkpoint


def serve_nobody(store: RunStore) -> None:
    """Replace the supervisor by one that starts no run."""


def resume(store: RunStore, run: Run) -> Run:
    return resuming.resume(store, run, start=serve_nobody)


@pytest.fixture
def stopped(store, config):
    run = store.create(config, "stopped")
    add_checkpoint(run)
    run.update_status(state="stopped")
    return run


@pytest.mark.parametrize("detached", [True, False])
def test_a_slow_copy_is_not_marked_lost(store, stopped, monkeypatch, detached):
    copy, seen = resuming._copy, []

    def slowly(*where):
        later = RunStore(store.root, clock=lambda: time.time() + 3600)
        reconcile(later, start=serve_nobody)
        seen.append([run.id for run in later.list()])
        copy(*where)

    monkeypatch.setattr(resuming, "_copy", slowly)
    following = resume(store, stopped) if detached else continue_run(store, stopped)
    assert set(map(tuple, seen)) == {("stopped",)}
    assert (following.status().state, following.status().error) == ("queued", None)
    assert (following.checkpoints_folder / "step-000002" / "progress.json").is_file()
    assert time.time() - following.status().updated < 30
    assert Queue(store.root).waiting() == ([following.id] if detached else [])


def test_resuming_in_two_tabs_creates_one_run(store, stopped):
    first, second = resume(store, stopped), resume(store, stopped)
    assert first.id == second.id
    first.update_status(state="running", **current_process())
    assert resume(store, stopped).id == first.id
    first.update_status(state="lost")  # it only sleeps
    assert resume(store, stopped).id == first.id
    assert Queue(store.root).waiting() == [first.id]
    first.update_status(state="failed", pid=None, process_created=None)
    assert resume(store, stopped).id != first.id


def test_a_run_with_a_rebuilt_status_still_resumes_the_other(store, stopped):
    following = resume(store, stopped)
    (following.folder / "status.json").write_text("{")
    os.utime(following.folder / "status.json", (1.0, 1.0))
    reconcile(store, start=serve_nobody)
    assert following.status().state == "queued"
    assert resume(store, stopped).id == following.id


def test_retrying_a_resume_after_a_queue_error_returns_the_same_run(store, stopped, monkeypatch):
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.05)
    lock = FileLock(store.root / ".queue.lock", is_singleton=False)
    with lock, pytest.raises(JobError, match="was created but not queued yet"):
        resume(store, stopped)
    following = resume(store, stopped)
    assert sorted(run.id for run in store.list()) == sorted(["stopped", following.id])
    assert Queue(store.root).waiting() == [following.id]


def test_a_run_resumed_in_the_foreground_is_not_queued(store, stopped):
    following = continue_run(store, stopped)
    assert resume(store, stopped).id == following.id
    assert Queue(store.root).waiting() == []
    with pytest.raises(InputError, match=f"is resumed by run {following.id}, which is queued; stop that one first"):
        continue_run(store, stopped)
    following.update_status(state="stopped")
    assert continue_run(store, stopped).id != following.id


def test_two_processes_do_not_copy_a_run_at_the_same_time(store, stopped, monkeypatch):
    monkeypatch.setattr(resuming, "_BUSY_SECONDS", 0.05)
    lock = FileLock(stopped.folder / ".resume.lock", is_singleton=False)
    with lock, pytest.raises(JobError, match="another process is copying it in order to resume it"):
        resume(store, stopped)
    assert [run.id for run in store.list()] == ["stopped"]


def test_the_copy_of_a_killed_resume_is_removed_by_the_next(store, stopped):
    left, other = Run(store.root / ".new-left-0000"), Run(store.root / ".new-other-0000")
    for draft, parent in ((left, "stopped"), (other, "another")):
        draft.folder.mkdir()
        draft.update_status(resumed_from=parent)
    resume(store, stopped)
    assert (left.folder.exists(), other.folder.exists()) == (False, True)


def test_an_unknown_backend_creates_no_run(store, stopped, monkeypatch):
    monkeypatch.setenv("BSC_BACKEND", "moon")
    with pytest.raises(ConfigError, match="backend is 'moon'"):
        resume(store, stopped)
    assert list(store.root.glob(".new-*")) == []
    assert [run.id for run in store.list()] == ["stopped"]
