"""Escalation: flag, SIGTERM, SIGKILL; a stopped run is stopped, whatever its process does."""

import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bsc_core.jobs import reconcile, stop
from bsc_core.jobs.actions import escalation, stopping
from bsc_core.jobs.actions.escalation import stop_and_wait
from bsc_core.jobs.local.processes import current_process, find_process, process_fields
from bsc_core.jobs.worker import perform
from bsc_core.runs import Run
from tests.helpers.waiting import final_status, suspend


def test_a_run_that_checks_the_flag_ends_by_itself(started, store, until):
    run = started("patient")
    status = stop_and_wait(run)
    assert (status.state, status.exit_code) == ("stopped", 1)
    assert run.read_json("result") == {"state": "stopped"}
    until(lambda: find_process(status) is None)  # it writes its state before it ends
    assert reconcile(store) == []
    assert run.status().state == "stopped"


def test_a_run_that_does_not_check_the_flag_is_ended_by_sigterm(started):
    run = started("blind")
    status = stop_and_wait(run, grace_seconds=0.1, terminate_seconds=20)
    assert (status.state, status.exit_code) == ("stopped", 1)
    assert "Traceback" not in "".join(run.log_tail())


def test_a_run_that_ignores_signals_is_killed_and_stopped(started, store):
    run = started("deaf")
    status = stop_and_wait(run, grace_seconds=0.1, terminate_seconds=0.2)
    assert status.state == "stopped"
    assert find_process(status) is None
    assert reconcile(store) == []
    assert run.status().state == "stopped"


def test_a_run_that_makes_progress_is_not_killed(store, config, monkeypatch):
    run = store.create(config, "one")
    run.update_status(state="running")
    messages, waits, signals = iter(["a", "b", "c", "c"]), [], []
    backend = SimpleNamespace(request_stop=Run.request_stop, send_signal=lambda run, number: signals.append(number))
    monkeypatch.setattr(escalation, "backend_of", lambda run: backend)
    monkeypatch.setattr(stopping, "backend_of", lambda run: backend)

    def wait(run: Run, seconds: float) -> bool:
        waits.append(seconds)
        if not signals:
            run.update_status(message=next(messages))
        return bool(signals)

    monkeypatch.setattr(escalation, "_ends_within", wait)
    assert stop_and_wait(run, grace_seconds=30, terminate_seconds=7).state == "stopped"
    assert signals == [signal.SIGTERM]
    assert waits == [30, 30, 30, 30, 7]


def test_stop_returns_at_once_and_a_detached_process_escalates(started, until):
    run = started("deaf")
    assert stop(run, grace_seconds=0.1, terminate_seconds=0.1).state == "stopping"
    assert final_status(run).state == "stopped"
    until(lambda: find_process(run.status()) is None)


def test_stopping_twice_stops_once(started):
    run = started("blind")
    stop(run)
    stop(run, grace_seconds=0.1, terminate_seconds=20)
    assert final_status(run).state == "stopped"


@pytest.mark.parametrize("state", ["done", "failed", "stopped"])
def test_a_finished_run_is_not_changed(store, config, state):
    run = store.create(config, "one")
    before = run.update_status(state=state)
    assert stop(run) == stop_and_wait(run) == before
    assert not run.stop_requested()


def test_a_lost_run_without_a_process_stays_lost_with_its_cause(store, config):
    run = store.create(config, "one")
    identity = current_process() | {"process_created": 1.0, "process_mark": None}
    before = run.update_status(state="lost", error="its process was killed", **identity)
    assert stop(run) == stop_and_wait(run) == before


def test_the_live_process_of_a_lost_run_is_ended(started):
    run = started("deaf")
    suspend(run)
    run.update_status(state="lost")
    status = stop_and_wait(run, grace_seconds=0.05, terminate_seconds=0.05)
    assert status.state == "stopped"
    assert find_process(status) is None


def test_a_stop_between_claim_and_start_keeps_the_worker_from_starting(store, config):
    run = store.create(config, "one")
    run.update_status(state="starting")
    run.request_stop()
    run.update_status(state="stopping")
    assert perform(run, lambda config, run: pytest.fail("it was performed")) == 1
    assert run.status().state == "stopped"


def test_no_signal_reaches_another_process_with_the_same_pid(store, config, started):
    other = started("patient", "other")
    pid = other.status().pid
    run = store.create(config, "one")
    run.update_status(state="running", pid=pid, process_created=(process_fields(pid)["process_created"] or 0) - 1000)
    assert stop_and_wait(run, grace_seconds=0, terminate_seconds=0).state == "stopped"
    assert find_process(other.status()) is not None
    assert stop_and_wait(other).state == "stopped"


def test_no_signal_reaches_a_process_that_a_run_folder_from_elsewhere_names(store, config):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True) as other:
        run = store.create(config, "one")
        run.update_status(state="running", **process_fields(other.pid))
        run.write_json("worker", process_fields(other.pid))  # without a signature
        assert stop_and_wait(run, grace_seconds=0, terminate_seconds=0).state == "stopped"
        assert other.poll() is None
        other.kill()


def test_a_stopping_run_that_dies_is_stopped_not_lost(store, config):
    run = store.create(config, "one")
    identity = current_process() | {"process_created": 1.0, "process_mark": None}
    run.update_status(state="stopping", **identity)
    assert [changed.id for changed in reconcile(store)] == ["one"]
    assert run.status().state == "stopped"
