"""Reproductions started by a page: one process, progress in files, and detection of its death."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from filelock import FileLock

from bsc_core.jobs import reproductions
from bsc_core.jobs.reproductions import reproduction, start_reproduction
from bsc_core.reproduction.catalog import CLAIMS
from bsc_core.reproduction.findings import reproduce
from bsc_core.reproduction.progress import lock_file, read_progress
from bsc_core.runs import RunStore


class Starter:
    """Record the commands that would be started."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def __call__(self, command, log, environment) -> None:
        self.commands.append(command)


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs")


def write_state(store: RunStore, **changes) -> Path:
    path = store.root / "findings" / "mus.progress.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"done": 0, "of": 6, "doing": "bsc, seed 0", "error": None} | changes))
    return path


def test_the_command_is_that_of_the_command_line(store, tmp_path):
    started = Starter()
    start_reproduction(store, "mus", "full", tmp_path, start=started)
    options = ["--form", "full", "--runs", str(store.root), "--data", str(tmp_path)]
    assert started.commands[0][2:] == ["-m", "bsc_core.cli", "reproduce", "mus", *options]


def test_a_second_click_starts_nothing_while_the_first_is_active(store):
    started = Starter()
    start_reproduction(store, "mus", "small", None, start=started)
    start_reproduction(store, "mus", "small", None, start=started)
    with FileLock(lock_file("mus", store.root, "small")):
        start_reproduction(store, "mus", "small", None, start=started)
    assert len(started.commands) == 1


def test_nothing_was_started_in_a_new_folder(store):
    assert reproduction(store, "mus", "full") is None


def test_it_is_active_while_its_lock_is_held(store):
    write_state(store, done=2)
    with FileLock(lock_file("mus", store.root)):
        state = reproduction(store, "mus", "full")
    assert (state.is_active, state.done, state.total, state.error) == (True, 2, 6, None)


class StopError(Exception):
    """End a reproduction during its first run."""


def test_it_is_active_while_the_command_line_trains_its_runs(store):
    seen = []

    def perform(run):
        seen.append(reproduction(store, "mu_stsb", "small"))
        raise StopError

    with pytest.raises(StopError):
        reproduce(CLAIMS["mu_stsb"], store, perform, form="small")
    assert [(one.is_active, one.error) for one in seen if one is not None] == [(True, None)]


def test_it_has_not_ended_while_its_runs_are_compared(store):
    write_state(store, done=6, doing="comparing")
    with FileLock(lock_file("mus", store.root)):
        state = reproduction(store, "mus", "full")
    assert (state.is_active, state.error) == (True, None)
    died = reproduction(store, "mus", "full")
    assert not died.is_active
    assert "mus.log" in str(died.error)


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"done": 1}'])
def test_damaged_progress_is_treated_as_missing(store, text):
    write_state(store).write_text(text)
    assert reproduction(store, "mus", "full") is None
    assert read_progress("mus", store.root) is None


def test_a_dead_process_is_reported_with_its_log(store):
    write_state(store, done=2)
    state = reproduction(store, "mus", "full")
    assert not state.is_active
    assert "mus.log" in str(state.error)


def test_a_process_that_never_starts_is_reported_after_a_while(store):
    path = write_state(store, of=0, doing="starting")
    started = reproduction(store, "mus", "full")
    assert started.is_active
    long_ago = path.stat().st_mtime - reproductions.STARTING_SECONDS - 1
    os.utime(path, (long_ago, long_ago))
    given_up = reproduction(store, "mus", "full")
    assert given_up.error


def test_a_failure_keeps_its_message_and_a_normal_end_is_no_failure(store):
    write_state(store, error="stsb: there is no such folder")
    failed = reproduction(store, "mus", "full")
    assert (failed.is_active, failed.error) == (False, "stsb: there is no such folder")
    write_state(store, done=6, doing="")
    ended = reproduction(store, "mus", "full")
    assert (ended.is_active, ended.error) == (False, None)
