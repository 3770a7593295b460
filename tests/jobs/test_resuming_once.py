"""A run is gone on with once, and nobody sees the run that does before all of it is there."""

import json
import os
import time
from pathlib import Path

import pytest
from filelock import FileLock

from bsc_core.config import RunConfig
from bsc_core.errors import ConfigError, InputError, JobError
from bsc_core.jobs import Queue, reconcile, resuming
from bsc_core.jobs.identity import own_identity
from bsc_core.jobs.resuming import continue_run
from bsc_core.runs import Run, RunStore


def serve_nobody(store: RunStore) -> None:
    """In place of a supervisor."""


def resume(store: RunStore, run: Run) -> Run:
    return resuming.resume(store, run, start=serve_nobody)


@pytest.fixture
def stopped(store: RunStore, config: RunConfig) -> Run:
    run = store.create(config, "stopped")
    folder = run.checkpoints_folder / "step-000002"
    folder.mkdir(parents=True)
    (folder / "progress.json").write_text(json.dumps({"step": 2, "epoch": 1, "ends_epoch": False}), encoding="utf-8")
    run.update_status(state="stopped")
    return run


@pytest.mark.parametrize("detached", [True, False])
def test_a_copy_that_takes_long_is_not_given_up_for_lost(
    store: RunStore, stopped: Run, monkeypatch: pytest.MonkeyPatch, detached: bool
) -> None:
    copy, seen = resuming._copy, []

    def slowly(*where: object) -> None:
        later = RunStore(store.root, clock=lambda: time.time() + 3600)
        reconcile(later, start=serve_nobody)
        seen.append([run.id for run in later.list()])
        copy(*where)  # type: ignore[arg-type]

    monkeypatch.setattr(resuming, "_copy", slowly)
    following = resume(store, stopped) if detached else continue_run(store, stopped)
    assert set(map(tuple, seen)) == {("stopped",)}
    assert (following.status().state, following.status().error) == ("queued", None)
    assert (following.checkpoints_folder / "step-000002" / "progress.json").is_file()
    assert time.time() - following.status().updated < 30
    assert Queue(store.root).waiting() == ([following.id] if detached else [])


def test_resuming_in_two_tabs_makes_one_run(store: RunStore, stopped: Run) -> None:
    first, second = resume(store, stopped), resume(store, stopped)
    assert first.id == second.id
    first.update_status(state="running", **own_identity())
    assert resume(store, stopped).id == first.id
    first.update_status(state="lost")  # it only sleeps
    assert resume(store, stopped).id == first.id
    assert Queue(store.root).waiting() == [first.id]
    first.update_status(state="failed", pid=None, process_created=None)
    assert resume(store, stopped).id != first.id


def test_a_run_whose_status_was_damaged_still_goes_on_with_the_other(store: RunStore, stopped: Run) -> None:
    following = resume(store, stopped)
    (following.folder / "status.json").write_text("{")
    os.utime(following.folder / "status.json", (1.0, 1.0))
    reconcile(store, start=serve_nobody)
    assert following.status().state == "queued"
    assert resume(store, stopped).id == following.id


def test_a_resume_that_the_queue_refused_is_the_same_run_when_it_is_tried_again(
    store: RunStore, stopped: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.05)
    lock = FileLock(store.root / ".queue.lock", is_singleton=False)
    with lock, pytest.raises(JobError, match="is kept but not queued yet"):
        resume(store, stopped)
    following = resume(store, stopped)
    assert sorted(run.id for run in store.list()) == sorted(["stopped", following.id])
    assert Queue(store.root).waiting() == [following.id]


def test_a_run_that_is_gone_on_with_in_the_foreground_is_queued_by_no_one_else(store: RunStore, stopped: Run) -> None:
    following = continue_run(store, stopped)
    assert resume(store, stopped).id == following.id
    assert Queue(store.root).waiting() == []
    with pytest.raises(InputError, match=f"run {following.id}, which is queued, goes on with it; stop that one first"):
        continue_run(store, stopped)
    following.update_status(state="stopped")
    assert continue_run(store, stopped).id != following.id


def test_two_processes_do_not_copy_a_run_at_the_same_time(
    store: RunStore, stopped: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resuming, "_BUSY_SECONDS", 0.05)
    lock = FileLock(stopped.folder / ".resume.lock", is_singleton=False)
    with lock, pytest.raises(JobError, match="another process copies it to go on with it"):
        resume(store, stopped)
    assert [run.id for run in store.list()] == ["stopped"]


def test_what_a_killed_resume_left_is_removed_by_the_next(store: RunStore, stopped: Run, tmp_path: Path) -> None:
    left, other = Run(store.root / ".new-left-0000"), Run(store.root / ".new-other-0000")
    for draft, parent in ((left, "stopped"), (other, "another")):
        draft.folder.mkdir()
        draft.update_status(resumed_from=parent)
    resume(store, stopped)
    assert (left.folder.exists(), other.folder.exists()) == (False, True)


def test_a_place_that_is_not_known_leaves_no_run(
    store: RunStore, stopped: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BSC_BACKEND", "moon")
    with pytest.raises(ConfigError, match="backend is 'moon'"):
        resume(store, stopped)
    assert list(store.root.glob(".new-*")) == []
    assert [run.id for run in store.list()] == ["stopped"]
