"""Trash: deleted runs are hidden, can be restored, and are removed later."""

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest

from bsc_core.errors import InputError, RunError, RunNotFoundError
from bsc_core.jobs import Queue, empty_trash, launch, list_trash, reconcile, restore, trash
from bsc_core.jobs.actions.merging import merged_folder
from bsc_core.jobs.actions.trash import TRASH_SECONDS
from bsc_core.jobs.local.processes import current_process
from bsc_core.runs import Run, RunStore


@pytest.fixture
def ended(store, config):
    run = store.create(config, "one")
    run.write_json("result", {"state": "done"})
    run.update_status(state="done")
    return run


def test_a_deleted_run_is_hidden_and_restored_completely(store, ended):
    before, files = ended.status(), sorted(path.name for path in ended.folder.iterdir())
    trash(store, ended)
    assert store.list() == []
    assert [one.id for one in list_trash(store)] == ["one"]
    assert list_trash(store)[0].run.status() == before
    back = restore(store, "one")
    assert back.status() == before
    assert sorted(path.name for path in back.folder.iterdir()) == files
    assert list_trash(store) == []


def test_an_active_run_is_not_deleted(store, ended):
    ended.update_status(state="running", **current_process())
    with pytest.raises(InputError, match="run one is running; stop it first"):
        trash(store, ended)
    ended.update_status(state="lost")
    with pytest.raises(InputError, match="its process is still alive"):
        trash(store, ended)
    assert store.get("one")


def test_a_waiting_run_leaves_the_queue_when_it_is_deleted(store, config):
    run = launch(store, config, "one", start=lambda store: None)
    trash(store, run)
    assert Queue(store.root).waiting() == []
    assert restore(store, "one").status().state == "stopped"
    assert Queue(store.root).waiting() == []


def test_a_missing_run_and_a_used_id_are_refused(store, config, ended):
    with pytest.raises(RunNotFoundError, match="is not in the trash"):
        restore(store, "one")
    trash(store, ended)
    store.create(config, "one")
    with pytest.raises(InputError, match="exists already"):
        restore(store, "one")


def test_deleting_a_second_run_of_a_name_keeps_the_second(store, config, ended):
    trash(store, ended)
    second = store.create(config, "one")
    second.update_status(state="failed", error="the second")
    trash(store, second)
    assert restore(store, "one").status().error == "the second"


def test_a_run_that_two_users_delete_at_once_is_in_the_trash(store, ended):
    start = threading.Barrier(2)

    def delete() -> str:
        start.wait()
        try:
            trash(store, ended)
        except RunNotFoundError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            outcomes = sorted(one.result() for one in [pool.submit(delete), pool.submit(delete)])
            assert outcomes == ["", "run one was deleted already"]
            assert restore(store, "one").status().state == "done"


def empty_at(store: RunStore, now: float) -> int:
    """Empty the trash at a time of the clock. Returns how many runs were removed."""
    return empty_trash(store, older_than_seconds=TRASH_SECONDS, clock=lambda: now)


def test_the_trash_is_emptied_after_a_week(store, ended):
    trash(store, ended)
    reconcile(store, start=lambda store: None)
    began = time.time()
    removed = [empty_at(store, began + hours * 3600) for hours in range(7 * 24 + 2)]
    assert (removed[:-2], sum(removed)) == ([0] * 7 * 24, 1)
    assert list_trash(store) == []


def test_the_trash_is_emptied_on_demand(store, ended):
    trash(store, ended)
    assert (empty_trash(store), list_trash(store)) == (1, [])
    assert (empty_trash(store), empty_at(store, time.time())) == (0, 0)
    assert [path for path in (store.root / ".trash").iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("years", [-10, 10])
def test_a_clock_that_jumps_does_not_empty_the_trash(store, ended, years):
    trash(store, ended)
    now = time.time()
    jumped = now + years * 365 * 24 * 3600.0
    looks = [now, jumped, jumped + 3, jumped + 3600, jumped + 7200, now + 10800, now + 10803]
    assert [empty_at(store, at) for at in looks] == [0] * len(looks)
    assert restore(store, "one").status().state == "done"


def test_a_restored_run_has_a_full_week_when_it_is_deleted_again(store, ended):
    for _ in range(2):
        trash(store, ended)
        now = time.time()
        assert [empty_at(store, now + days * 24 * 3600) for days in range(5)] == [0] * 5
        restore(store, "one")


def test_damaged_ages_restart_the_week(store, ended):
    trash(store, ended)
    now = time.time()
    for content in ("{", "[]", '{"last": 0, "ages": []}', '{"last": null}'):
        (store.root / ".trash" / ".looks.json").write_text(content)
        assert empty_at(store, now) == 0
    assert empty_at(store, now + TRASH_SECONDS) == 0


def test_two_processes_can_empty_the_trash_at_once(store, ended, monkeypatch):
    trash(store, ended)
    result = list_trash(store)  # both looked before either removed
    monkeypatch.setattr(import_module("bsc_core.jobs.actions.trash"), "list_trash", lambda store: result)
    assert (empty_trash(store), empty_trash(store)) == (1, 0)
    with pytest.raises(RunNotFoundError, match="the trash was emptied just now"):
        restore(store, "one")


def test_a_run_removed_while_the_trash_is_listed_is_skipped(store, ended, monkeypatch):
    trash(store, ended)

    def too_late(run, name):
        shutil.rmtree(run.folder)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "read_json", too_late)
        assert list_trash(store) == []


def test_files_left_by_a_killed_process_are_removed_from_the_trash(store, ended):
    trash(store, ended)
    left = store.root / ".trash" / ".gone-one-0000"
    list_trash(store)[0].run.folder.rename(left)
    assert list_trash(store) == []
    empty_at(store, time.time())
    assert not left.exists()


def test_a_run_with_a_damaged_deletion_time_can_be_restored(store, ended):
    trash(store, ended)
    (list_trash(store)[0].run.folder / "trashed.json").write_text("{")
    assert restore(store, "one").id == "one"


def test_a_pipe_in_place_of_the_ages_is_not_read(store, config):
    trash(store, store.create(config, "one"))
    os.mkfifo(store.root / ".trash" / ".looks.json")
    reconcile(store, start=lambda store: None)
    assert [deleted.id for deleted in list_trash(store)] == ["one"]


def test_the_folder_of_another_place_is_not_emptied(store, config, tmp_path):
    run = store.create(config, "one")
    documents = tmp_path / "documents" / "letters"
    documents.mkdir(parents=True)
    store.root.joinpath(".trash").symlink_to(tmp_path / "documents")
    assert list_trash(store) == []
    assert empty_trash(store) == 0
    with pytest.raises(RunError, match="the trash is a link"):
        trash(store, run)
    assert documents.is_dir()
    store.root.joinpath(".trash").unlink()
    store.root.joinpath(".trash").mkdir()
    store.root.joinpath(".trash", "linked").symlink_to(documents)
    store.root.joinpath(".trash", "folder").mkdir()
    assert list_trash(store) == []
    assert empty_trash(store) == 0
    assert documents.is_dir()
    assert run.exists


def test_a_model_saved_after_the_deletion_does_not_prevent_restoring(store, ended):
    trash(store, ended)
    (merged_folder(ended, 0.5) / "1_Pooling").mkdir(parents=True)
    assert restore(store, "one").status().state == "done"
    assert not ended.merged_folder.exists()
    trash(store, ended)
    ended.folder.mkdir()
    (ended.folder / "notes.txt").write_text("not of the run", encoding="utf-8")
    with pytest.raises(InputError, match="exists already"):
        restore(store, "one")
    assert (ended.folder / "notes.txt").is_file()


def test_a_refused_restore_leaves_the_models_of_the_other_run(store, config, ended):
    trash(store, ended)
    other = store.create(config, "one")
    merged_folder(other, 0.5).mkdir(parents=True)
    with pytest.raises(InputError, match="exists already"):
        restore(store, "one")
    assert merged_folder(other, 0.5).is_dir()
