"""Transitions between run states."""

from itertools import product
from typing import get_args

import pytest

from bsc_core.jobs.states import TRANSITIONS, advance, may_follow, stopped_message
from bsc_core.runs import FINISHED, RunStore, State

STATES = get_args(State)


def test_every_state_has_a_row_and_leads_to_known_states():
    assert set(TRANSITIONS) == set(STATES)
    assert set().union(*TRANSITIONS.values()) <= set(STATES)


@pytest.mark.parametrize("state", ["done", "failed", "stopped"])
def test_nothing_follows_a_final_state(state):
    assert not TRANSITIONS[state]


def test_a_lost_run_can_only_become_running_or_stopped():
    assert TRANSITIONS["lost"] == {"running", "stopped"}


def test_every_active_state_can_become_stopped_or_lost():
    for state in set(STATES) - FINISHED:
        assert {"stopped", "lost", "failed"} <= TRANSITIONS[state]


def test_no_state_follows_itself_and_only_a_run_without_a_process_is_queued_again():
    assert not any(may_follow(state, state) for state in STATES)
    assert [state for state in STATES if may_follow(state, "queued")] == ["starting"]


@pytest.mark.parametrize(("state", "following"), list(product(STATES, STATES)))
def test_a_run_changes_only_to_allowed_states(store, config, state, following):
    run = store.create(config, "one")
    before = run.update_status(state=state)
    after = advance(run, following, message="moved")
    if may_follow(state, following):
        assert (after.state, after.message) == (following, "moved")
    else:
        assert after == before == run.status()


def test_times_are_written_when_a_run_starts_and_ends(store, config):
    times = iter(float(number) for number in range(1, 100))
    run = RunStore(store.root, clock=lambda: next(times)).create(config, "one")
    started = advance(run, "running", eta_seconds=5.0)
    assert (started.started is None, started.finished) == (False, None)
    ended = advance(run, "done")
    assert ended.started == started.started
    assert ended.finished > started.started
    assert ended.eta_seconds is None


def test_the_message_of_a_stopped_run_names_what_is_saved(store, config):
    run = store.create(config, "one")
    assert stopped_message(run) == "stopped before a checkpoint or a model was saved"
    run.model_folder.mkdir()
    assert stopped_message(run) == "stopped; the best model so far is saved"
    (run.checkpoints_folder / "step-2").mkdir(parents=True)
    assert stopped_message(run) == "stopped; checkpoints and the best model so far are saved"
