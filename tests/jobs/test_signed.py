"""Run folders from elsewhere: they are not started by themselves, and set nothing for the process that they start."""

import os
import shutil
import stat
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bsc_core.jobs import launch, reconcile
from bsc_core.jobs.actions.launching import create_run
from bsc_core.jobs.actions.resuming import continue_run, resume
from bsc_core.jobs.backends import get_backend
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.scheduler import Scheduler
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import LAUNCHED, RESUMED
from tests.jobs.conftest import add_checkpoint

HOSTILE = {"PYTHONPATH": "runs/one/code", "LD_PRELOAD": "x.so", "BSC_ROOTS": "", "BSC_BACKEND": "local"}


def test_values_are_read_in_the_runs_folder_in_which_they_were_written(store, config, tmp_path):
    run = store.create(config, "one")
    assert run.read_signed("document") is None
    run.write_signed("document", {"text": "ü", "number": 1.5, "list": [1, None]})
    assert run.read_signed("document") == {"text": "ü", "number": 1.5, "list": [1, None]}
    for root in (tmp_path / "without_key", tmp_path / "with_key"):
        shutil.copytree(run.folder, root / "one")
    RunStore(tmp_path / "with_key").create(config, "two").write_signed("document", {})
    assert [Run(tmp_path / name / "one").read_signed("document") for name in ("without_key", "with_key")] == [None] * 2
    run.write_json("other", run.read_json("document"))
    assert run.read_signed("other") is None
    shutil.copytree(run.folder, store.root / "three")
    assert store.get("three").read_signed("document") is None
    run.write_json("document", run.read_json("document") | {"text": "changed"})
    assert run.read_signed("document") is None
    (run.folder / "document.json").write_text("[1]")
    assert run.read_signed("document") is None


def test_a_waiting_run_from_elsewhere_is_not_started(store, config):
    run = RunStore(store.root, clock=lambda: 1000.0).create(config, "one")
    run.write_json(LAUNCHED, HOSTILE)
    started = []
    reconcile(store, start=started.append)
    assert (run.status().state, started, Queue(store.root).contains("one")) == ("lost", [], False)
    assert "launch it again" in run.status().error


def test_a_queue_that_is_built_again_leaves_out_runs_from_elsewhere(store, config):
    launch(store, config, "mine", start=lambda store: None)
    store.create(config, "other").write_json(LAUNCHED, HOSTILE)
    Queue(store.root).path.unlink()
    assert Queue(store.root).waiting() == ["mine"]


def test_a_run_in_a_queue_from_elsewhere_is_not_started(store, config):
    run = store.create(config, "one")
    Queue(store.root).add("one")
    Scheduler(store).tick()
    assert run.status().state == "lost"
    assert "was not launched in this runs folder" in run.status().error


def test_a_worker_gets_only_variables_of_its_launcher(store, config, monkeypatch):
    monkeypatch.setenv("BSC_ROOTS", "allowed")
    run = create_run(store, config, "one")
    scheduler = Scheduler(store)
    environment = scheduler._environment(run, get_backend("local"), [])
    assert environment["BSC_ROOTS"] == "allowed"
    run.write_json(LAUNCHED, HOSTILE)
    assert not set(HOSTILE) & set(scheduler._environment(run, get_backend("local"), []))


def test_a_run_from_elsewhere_is_not_taken_for_the_one_that_resumes_a_run(store, config):
    run = store.create(config, "one")
    run.update_status(state="stopped")
    add_checkpoint(run)
    other = store.create(config, "other")
    other.write_json(LAUNCHED, HOSTILE)
    other.write_json(RESUMED, {"from": "one"})
    other.update_status(resumed_from="one")
    resumed = resume(store, run, start=lambda store: None)
    assert resumed.id != "other"
    assert Queue(store.root).waiting() == [resumed.id]
    assert other.read_signed(LAUNCHED) is None


def test_a_resumed_run_from_elsewhere_gets_the_variables_of_who_resumes_it(store, config, monkeypatch):
    run = store.create(config, "one")
    run.write_json(LAUNCHED, HOSTILE)
    run.update_status(state="failed")
    add_checkpoint(run)
    monkeypatch.setenv("BSC_ROOTS", os.pathsep.join(["allowed", sys.prefix]))
    resumed = continue_run(store, run)
    launched = resumed.read_signed(LAUNCHED)
    assert launched is None or set(launched) == {"BSC_ROOTS", "BSC_BACKEND"}


def test_a_worker_gets_no_variables_that_could_load_code(store, config):
    run = create_run(store, config, "one")
    run.write_signed(LAUNCHED, HOSTILE)
    environment = Scheduler(store)._environment(run, get_backend("local"), [])
    assert "LD_PRELOAD" not in environment
    assert environment.get("PYTHONPATH") != HOSTILE["PYTHONPATH"]


@pytest.mark.parametrize(("folder", "key"), [(0o755, 0o600), (0o700, 0o600), (0o775, 0o640)])
def test_only_those_who_may_write_to_the_runs_folder_may_read_its_key(store, config, folder, key):
    run = store.create(config, "one")
    store.root.chmod(folder)
    run.write_signed("document", {})
    assert stat.S_IMODE((store.root / ".key").stat().st_mode) == key


def test_processes_that_sign_at_the_same_time_use_one_key(store, config):
    runs = [store.create(config, f"run-{number}") for number in range(16)]
    with ThreadPoolExecutor(len(runs)) as threads:
        list(threads.map(lambda run: run.write_signed("document", {"number": 1}), runs))
    assert [run.read_signed("document") for run in runs] == [{"number": 1}] * len(runs)
    assert [path.name for path in store.root.glob(".key*")] == [".key"]
