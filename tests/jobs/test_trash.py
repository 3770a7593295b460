"""Deleting with undo: a run leaves the list, can come back whole, and is gone for good only later."""

import shutil
import time
from collections.abc import Callable
from importlib import import_module

import pytest

from bsc_core.config import RunConfig
from bsc_core.errors import InputError, RunNotFoundError
from bsc_core.jobs import Queue, empty_trash, launch, reconcile, restore, trash, trashed
from bsc_core.jobs.identity import own_identity
from bsc_core.jobs.trash import KEPT_SECONDS
from bsc_core.runs import Run, RunStore

Launch = Callable[..., Run]


@pytest.fixture
def ended(store: RunStore, config: RunConfig) -> Run:
    run = store.create(config, "one")
    run.write_json("result", {"state": "done"})
    run.update_status(state="done")
    return run


def test_a_deleted_run_is_out_of_sight_and_comes_back_whole(store: RunStore, ended: Run) -> None:
    before, files = ended.status(), sorted(path.name for path in ended.folder.iterdir())
    trash(store, ended)
    assert store.list() == []
    assert [one.id for one in trashed(store)] == ["one"]
    assert trashed(store)[0].run.status() == before
    back = restore(store, "one")
    assert back.status() == before
    assert sorted(path.name for path in back.folder.iterdir()) == files
    assert trashed(store) == []


def test_a_run_that_goes_on_is_not_deleted(store: RunStore, ended: Run) -> None:
    ended.update_status(state="running", **own_identity())
    with pytest.raises(InputError, match="run one is running; stop it first"):
        trash(store, ended)
    ended.update_status(state="lost")
    with pytest.raises(InputError, match="its process is still there"):
        trash(store, ended)
    assert store.get("one")


def test_a_waiting_run_leaves_the_queue_when_it_is_deleted(store: RunStore, config: RunConfig) -> None:
    run = launch(store, config, "one", start=lambda store: None)
    trash(store, run)
    assert Queue(store.root).waiting() == []
    assert restore(store, "one").status().state == "stopped"
    assert Queue(store.root).waiting() == []


def test_what_is_gone_or_taken_is_refused_in_one_sentence(store: RunStore, config: RunConfig, ended: Run) -> None:
    with pytest.raises(RunNotFoundError, match="not among the deleted runs"):
        restore(store, "one")
    trash(store, ended)
    store.create(config, "one")
    with pytest.raises(InputError, match="there is a run of that name"):
        restore(store, "one")


def test_deleting_a_second_run_of_a_name_keeps_the_second(store: RunStore, config: RunConfig, ended: Run) -> None:
    trash(store, ended)
    second = store.create(config, "one")
    second.update_status(state="failed", error="the second")
    trash(store, second)
    assert restore(store, "one").status().error == "the second"


def look_at(store: RunStore, now: float) -> int:
    """Look at the trash as every look at the runs does, at a time of the clock. Returns how many runs were removed."""
    return empty_trash(store, older_than_seconds=KEPT_SECONDS, clock=lambda: now)


def test_the_trash_is_emptied_after_a_week_of_looks(store: RunStore, ended: Run) -> None:
    trash(store, ended)
    reconcile(store, start=lambda store: None)
    began = time.time()
    removed = [look_at(store, began + hours * 3600) for hours in range(7 * 24 + 2)]
    assert (removed[:-2], sum(removed)) == ([0] * 7 * 24, 1)
    assert trashed(store) == []


def test_the_trash_is_emptied_on_demand(store: RunStore, ended: Run) -> None:
    trash(store, ended)
    assert (empty_trash(store), trashed(store)) == (1, [])
    assert (empty_trash(store), look_at(store, time.time())) == (0, 0)
    assert [path for path in (store.root / ".trash").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_that_jumps_does_not_empty_the_trash(store: RunStore, ended: Run, years: int) -> None:
    trash(store, ended)
    now = time.time()
    jumped = now + years * 365 * 24 * 3600.0
    looks = [now, jumped, jumped + 3, jumped + 3600, jumped + 7200, now + 10800, now + 10803]
    assert [look_at(store, at) for at in looks] == [0] * len(looks)
    assert restore(store, "one").status().state == "done"


def test_a_run_that_came_back_has_a_whole_week_when_it_is_deleted_again(store: RunStore, ended: Run) -> None:
    for _ in range(2):
        trash(store, ended)
        now = time.time()
        assert [look_at(store, now + days * 24 * 3600) for days in range(5)] == [0] * 5
        restore(store, "one")


def test_a_damaged_note_of_the_looks_lets_the_week_begin_anew(store: RunStore, ended: Run) -> None:
    trash(store, ended)
    now = time.time()
    for content in ("{", "[]", '{"last": 0, "ages": []}', '{"last": null}'):
        (store.root / ".trash" / ".looks.json").write_text(content)
        assert look_at(store, now) == 0
    assert look_at(store, now + KEPT_SECONDS) == 0


def test_two_who_empty_the_trash_at_once_do_not_meet(
    store: RunStore, ended: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    trash(store, ended)
    found = trashed(store)  # both looked before either removed
    monkeypatch.setattr(import_module("bsc_core.jobs.trash"), "trashed", lambda store: found)
    assert (empty_trash(store), empty_trash(store)) == (1, 0)
    with pytest.raises(RunNotFoundError, match="the trash was emptied just now"):
        restore(store, "one")


def test_a_run_that_is_removed_while_the_trash_is_looked_through_is_passed_over(
    store: RunStore, ended: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    trash(store, ended)

    def too_late(run: Run, name: str) -> None:
        shutil.rmtree(run.folder)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "read_json", too_late)
        assert trashed(store) == []


def test_what_a_process_left_that_was_killed_while_it_emptied_the_trash_is_removed(store: RunStore, ended: Run) -> None:
    trash(store, ended)
    left = store.root / ".trash" / ".gone-one-0000"
    trashed(store)[0].run.folder.rename(left)
    assert trashed(store) == []
    look_at(store, time.time())
    assert not left.exists()


def test_a_damaged_note_does_not_keep_a_run_from_coming_back(store: RunStore, ended: Run) -> None:
    trash(store, ended)
    (trashed(store)[0].run.folder / "trashed.json").write_text("{")
    assert restore(store, "one").id == "one"
