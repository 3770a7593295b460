"""A run that starts from another run's model waits for it, and fails with one sentence when there will be none."""

from collections.abc import Callable

import pytest

from bsc_core.config import RunConfig
from bsc_core.errors import RunError
from bsc_core.jobs import launch, stop, waits_for
from bsc_core.runs import Run, RunStore

Launch = Callable[..., Run]
Until = Callable[[Callable[[], bool]], None]


def from_run(config: RunConfig, run_id: str) -> RunConfig:
    return config.model_copy(update={"encoder": config.encoder.model_copy(update={"name": f"run:{run_id}"})})


def queued(store: RunStore, config: RunConfig, run_id: str) -> Run:
    return launch(store, config, run_id, start=lambda store: None)


def test_a_run_waits_for_the_run_whose_model_it_starts_from(
    store: RunStore, config: RunConfig, started: Launch, start: Launch, until: Until
) -> None:
    parent = started("modelled", "parent")
    child = queued(store, from_run(config, "parent"), "child")
    assert waits_for(store, child) == "parent"
    other = start("modelled", "other")
    assert (child.status().state, other.status().state) == ("queued", "queued")
    parent.request_stop()
    until(lambda: child.status().state == "running")
    assert parent.status().state == "stopped"
    child.request_stop()
    until(lambda: other.status().state == "running")
    other.request_stop()
    until(lambda: other.status().is_finished)


def test_runs_that_wait_for_nothing_go_before_one_that_waits(
    store: RunStore, config: RunConfig, start: Launch, until: Until
) -> None:
    store.create(config, "parent").update_status(state="running", message="in the foreground of another terminal")
    child = queued(store, from_run(config, "parent"), "child")
    other = start("quick", "other")
    until(lambda: other.status().state == "done")
    assert child.status().state == "queued"
    store.get("parent").update_status(state="failed")
    until(lambda: child.status().is_finished)
    assert child.status().state == "failed"
    assert "that run is failed" in (child.status().error or "")


@pytest.mark.parametrize(
    ("state", "sentence"),
    [("failed", "that run is failed"), ("stopped", "that run left no model"), (None, "run parent: not in")],
)
def test_a_run_whose_parent_left_no_model_fails_with_one_sentence(
    store: RunStore, config: RunConfig, start: Launch, until: Until, state: str | None, sentence: str
) -> None:
    if state:
        store.create(config, "parent").update_status(state=state)
    child = queued(store, from_run(config, "parent"), "child")
    last = start("quick", "last")
    until(lambda: last.status().state == "done" and child.status().is_finished)
    assert child.status().state == "failed"
    assert sentence in (child.status().error or "")
    assert child.status().pid is None


def test_runs_that_wait_for_each_other_are_refused(store: RunStore, config: RunConfig) -> None:
    first = queued(store, from_run(config, "b"), "a")
    second = queued(store, from_run(config, "a"), "b")
    with pytest.raises(RunError, match="it waits for itself \\(a for b for a\\)"):
        waits_for(store, first)
    with pytest.raises(RunError, match="it waits for itself"):
        waits_for(store, second)


def test_a_stopped_run_in_the_queue_waits_no_more(store: RunStore, config: RunConfig) -> None:
    queued(store, config, "parent")
    child = queued(store, from_run(config, "parent"), "child")
    assert stop(child).state == "stopped"


def test_a_resumed_run_needs_the_model_no_more(store: RunStore, config: RunConfig) -> None:
    child = queued(store, from_run(config, "gone"), "child")
    child.update_status(resumed_from="earlier")
    assert waits_for(store, child) is None
