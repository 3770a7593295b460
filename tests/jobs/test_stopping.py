"""The ladder: flag, SIGTERM, SIGKILL; a stopped run is stopped, whatever its process does."""

from collections.abc import Callable

import pytest

from bsc_core.config import RunConfig
from bsc_core.jobs import reconcile, stop
from bsc_core.jobs.identity import find_process, identity_of, own_identity
from bsc_core.jobs.ladder import climb
from bsc_core.jobs.worker import perform
from bsc_core.runs import Run, RunStore

Launch = Callable[..., Run]
Until = Callable[[Callable[[], bool]], None]


def test_a_run_that_looks_at_the_flag_ends_by_itself(started: Launch, store: RunStore) -> None:
    run = started("patient")
    status = climb(run)
    assert (status.state, status.exit_code) == ("stopped", 1)
    assert run.read_json("result") == {"state": "stopped"}
    assert find_process(status) is None
    assert reconcile(store) == []
    assert run.status().state == "stopped"


def test_a_run_that_does_not_look_is_broken_off_by_sigterm(started: Launch) -> None:
    run = started("blind")
    status = climb(run, grace_seconds=0.1, terminate_seconds=20)
    assert (status.state, status.exit_code) == ("stopped", 1)
    assert "Traceback" not in "".join(run.log_tail())


def test_a_run_that_ignores_signals_is_killed_and_stopped(started: Launch, store: RunStore) -> None:
    run = started("deaf")
    status = climb(run, grace_seconds=0.1, terminate_seconds=0.2)
    assert status.state == "stopped"
    assert find_process(status) is None
    assert reconcile(store) == []
    assert run.status().state == "stopped"


def test_stopping_returns_at_once_and_a_detached_ladder_does_the_rest(started: Launch, until: Until) -> None:
    run = started("deaf")
    assert stop(run, grace_seconds=0.1, terminate_seconds=0.1).state == "stopping"
    until(lambda: run.status().is_finished)
    assert run.status().state == "stopped"
    until(lambda: find_process(run.status()) is None)


def test_stopping_twice_stops_once(started: Launch, until: Until) -> None:
    run = started("blind")
    stop(run)
    stop(run, grace_seconds=0.1, terminate_seconds=20)
    until(lambda: run.status().is_finished)
    assert run.status().state == "stopped"


@pytest.mark.parametrize("state", ["done", "failed", "stopped"])
def test_a_finished_run_stays_as_it_is(store: RunStore, config: RunConfig, state: str) -> None:
    run = store.create(config, "one")
    before = run.update_status(state=state)
    assert stop(run) == climb(run) == before
    assert not run.stop_requested()


def test_a_lost_run_whose_process_is_gone_stays_lost_with_its_cause(store: RunStore, config: RunConfig) -> None:
    run = store.create(config, "one")
    identity = own_identity() | {"process_created": 1.0, "process_mark": None}
    before = run.update_status(state="lost", error="its process was killed", **identity)
    assert stop(run) == climb(run) == before


def test_a_lost_run_whose_process_hangs_on_is_ended(started: Launch) -> None:
    run = started("deaf")
    process = find_process(run.status())
    assert process is not None
    process.suspend()
    run.update_status(state="lost")
    status = climb(run, grace_seconds=0.05, terminate_seconds=0.05)
    assert status.state == "stopped"
    assert find_process(status) is None


def test_a_stop_between_claim_and_start_keeps_the_worker_from_starting(store: RunStore, config: RunConfig) -> None:
    run = store.create(config, "one")
    run.update_status(state="starting")
    run.request_stop()
    run.update_status(state="stopping")
    assert perform(run, lambda config, run: pytest.fail("it was performed")) == 1
    assert run.status().state == "stopped"


def test_no_signal_reaches_another_process_with_the_same_pid(
    store: RunStore, config: RunConfig, started: Launch
) -> None:
    other = started("patient", "other")
    pid = other.status().pid
    assert pid is not None
    run = store.create(config, "one")
    run.update_status(state="running", pid=pid, process_created=(identity_of(pid)["process_created"] or 0) - 1000)
    assert climb(run, grace_seconds=0, terminate_seconds=0).state == "stopped"
    assert find_process(other.status()) is not None
    assert climb(other).state == "stopped"


def test_a_stopping_run_that_dies_is_stopped_not_lost(store: RunStore, config: RunConfig) -> None:
    run = store.create(config, "one")
    identity = own_identity() | {"process_created": 1.0, "process_mark": None}
    run.update_status(state="stopping", **identity)
    assert [changed.id for changed in reconcile(store)] == ["one"]
    assert run.status().state == "stopped"
