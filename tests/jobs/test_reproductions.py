"""A recipe put to the test from a page: started once, watched by files, and told apart from one that died."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from filelock import FileLock

from bsc_core.jobs import reproductions
from bsc_core.jobs.reproductions import reproduction, start_reproduction
from bsc_core.recipes.catalogue import RECIPES
from bsc_core.recipes.findings import reproduce
from bsc_core.recipes.progress import lock_file, read_progress
from bsc_core.runs import Run, RunStore


class Starter:
    """Remembers what would be started."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def __call__(self, command, log, environment) -> None:
        self.commands.append(command)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


def tell(store: RunStore, **told) -> Path:
    path = store.root / "findings" / "mus.progress.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"done": 0, "of": 6, "doing": "bsc, seed 0", "error": None} | told))
    return path


def test_the_command_is_that_of_the_command_line(store: RunStore, tmp_path: Path) -> None:
    started = Starter()
    start_reproduction(store, "mus", "full", tmp_path, start=started)
    assert started.commands[0][2:] == [
        *(
            "-m",
            "bsc_core.cli",
            "reproduce",
            "mus",
            "--form",
            "full",
            "--runs",
            str(store.root),
            "--data",
            str(tmp_path),
        )
    ]


def test_a_second_click_starts_nothing_while_the_first_starts_or_goes_on(store: RunStore) -> None:
    started = Starter()
    start_reproduction(store, "mus", "small", None, start=started)
    start_reproduction(store, "mus", "small", None, start=started)
    with FileLock(lock_file("mus", store.root, "small")):
        start_reproduction(store, "mus", "small", None, start=started)
    assert len(started.commands) == 1


def test_nothing_was_started_in_a_new_folder(store: RunStore) -> None:
    assert reproduction(store, "mus", "full") is None


def test_it_goes_on_while_its_lock_is_held(store: RunStore) -> None:
    tell(store, done=2)
    with FileLock(lock_file("mus", store.root)):
        state = reproduction(store, "mus", "full")
    assert state is not None
    assert (state.going, state.done, state.of, state.error) == (True, 2, 6, None)


class StopError(Exception):
    """Ends a reproduction in the middle of its first run."""


def test_it_goes_on_while_the_command_line_trains_its_runs(store: RunStore) -> None:
    seen = []

    def perform(run: Run) -> None:
        seen.append(reproduction(store, "mu_stsb", "small"))
        raise StopError

    with pytest.raises(StopError):
        reproduce(RECIPES["mu_stsb"], store, perform, form="small")
    assert [(one.going, one.error) for one in seen if one is not None] == [(True, None)]


def test_it_has_not_ended_while_its_runs_are_compared(store: RunStore) -> None:
    tell(store, done=6, doing="comparing")
    with FileLock(lock_file("mus", store.root)):
        state = reproduction(store, "mus", "full")
    assert state is not None
    assert (state.going, state.error) == (True, None)
    died = reproduction(store, "mus", "full")
    assert died is not None
    assert not died.going
    assert "mus.log" in str(died.error)


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"done": 1}'])
def test_a_damaged_file_of_progress_is_none(store: RunStore, text: str) -> None:
    tell(store).write_text(text)
    assert reproduction(store, "mus", "full") is None
    assert read_progress("mus", store.root) is None


def test_one_whose_process_died_says_so_and_where_its_log_is(store: RunStore) -> None:
    tell(store, done=2)
    state = reproduction(store, "mus", "full")
    assert state is not None
    assert not state.going
    assert "mus.log" in str(state.error)


def test_one_that_never_began_is_given_up_after_a_while(store: RunStore) -> None:
    path = tell(store, of=0, doing="starting")
    begun = reproduction(store, "mus", "full")
    assert begun is not None
    assert begun.going
    long_ago = path.stat().st_mtime - reproductions.STARTING_SECONDS - 1
    os.utime(path, (long_ago, long_ago))
    given_up = reproduction(store, "mus", "full")
    assert given_up is not None
    assert given_up.error


def test_a_failure_keeps_its_own_sentence_and_an_end_is_no_failure(store: RunStore) -> None:
    tell(store, error="stsb: there is no such folder")
    failed = reproduction(store, "mus", "full")
    assert failed is not None
    assert (failed.going, failed.error) == (False, "stsb: there is no such folder")
    tell(store, done=6, doing="")
    ended = reproduction(store, "mus", "full")
    assert ended is not None
    assert (ended.going, ended.error) == (False, None)
