"""Deleting with undo: a run leaves the list, can come back whole, and is gone for good only later."""

from collections.abc import Callable

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


def test_the_trash_is_emptied_on_demand_and_after_a_week(store: RunStore, ended: Run) -> None:
    trash(store, ended)
    assert empty_trash(store, older_than_seconds=KEPT_SECONDS) == 0
    reconcile(store, start=lambda store: None)
    folder = trashed(store)[0].run
    folder.write_json("trashed", {"when": folder.read_json("trashed")["when"] - KEPT_SECONDS - 1})
    reconcile(store, start=lambda store: None)
    assert trashed(store) == []
    assert empty_trash(store) == 0


def test_a_damaged_note_does_not_keep_a_run_from_coming_back(store: RunStore, ended: Run) -> None:
    trash(store, ended)
    (trashed(store)[0].run.folder / "trashed.json").write_text("{")
    assert restore(store, "one").id == "one"
