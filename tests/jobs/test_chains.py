"""Chains: a run waits for the run whose model it starts from, and fails if there is no model."""

import pytest

from bsc_core.config import RunConfig
from bsc_core.errors import RunError
from bsc_core.jobs import launch, stop, waits_for
from bsc_core.runs import Run, RunStore
from tests.helpers.waiting import final_status


def from_run(config: RunConfig, run_id: str) -> RunConfig:
    return config.model_copy(update={"encoder": config.encoder.model_copy(update={"name": f"run:{run_id}"})})


def queued(store: RunStore, config: RunConfig, run_id: str) -> Run:
    return launch(store, config, run_id, start=lambda store: None)


def test_a_run_waits_for_the_run_whose_model_it_starts_from(store, config, started, start, until):
    parent = started("modeled", "parent")
    child = queued(store, from_run(config, "parent"), "child")
    assert waits_for(store, child) == "parent"
    other = start("modeled", "other")
    assert (child.status().state, other.status().state) == ("queued", "queued")
    parent.request_stop()
    until(lambda: child.status().state == "running")
    assert parent.status().state == "stopped"
    child.request_stop()
    until(lambda: other.status().state == "running")
    other.request_stop()
    final_status(other)


def test_ready_runs_start_before_one_that_waits_for_its_parent(store, config, start, until):
    store.create(config, "parent").update_status(state="running", message="in the foreground of another terminal")
    child = queued(store, from_run(config, "parent"), "child")
    other = start("quick", "other")
    until(lambda: other.status().state == "done")
    assert child.status().state == "queued"
    store.get("parent").update_status(state="failed")
    assert final_status(child).state == "failed"
    assert "that run is failed" in child.status().error


@pytest.mark.parametrize(
    ("state", "sentence"),
    [("failed", "that run is failed"), ("stopped", "that run has no model"), (None, "run parent: not in")],
)
def test_a_run_whose_parent_has_no_model_fails(store, config, start, until, state, sentence):
    if state:
        store.create(config, "parent").update_status(state=state)
    child = queued(store, from_run(config, "parent"), "child")
    last = start("quick", "last")
    until(lambda: last.status().state == "done" and child.status().is_finished)
    assert child.status().state == "failed"
    assert sentence in child.status().error
    assert child.status().pid is None


def test_runs_that_wait_for_each_other_are_refused(store, config):
    first = queued(store, from_run(config, "b"), "a")
    second = queued(store, from_run(config, "a"), "b")
    with pytest.raises(RunError, match="waits for itself \\(a for b for a\\)"):
        waits_for(store, first)
    with pytest.raises(RunError, match="waits for itself"):
        waits_for(store, second)


def test_a_stopped_run_leaves_the_queue(store, config):
    queued(store, config, "parent")
    child = queued(store, from_run(config, "parent"), "child")
    assert stop(child).state == "stopped"


def test_a_resumed_run_does_not_wait_for_the_parent(store, config):
    child = queued(store, from_run(config, "gone"), "child")
    child.update_status(resumed_from="earlier")
    assert waits_for(store, child) is None
