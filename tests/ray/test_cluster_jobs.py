"""Runs as jobs of a real Ray head on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from bsc_core.config import RunConfig, make_config
from bsc_core.jobs import launch
from bsc_core.jobs.actions.escalation import stop_and_wait
from bsc_core.jobs.actions.stopping import stop
from bsc_core.jobs.backends import ProcessInfo
from bsc_core.jobs.local.processes import module_command
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.recovery import refresh_status
from bsc_core.jobs.states import advance
from bsc_core.jobs.supervisor import supervise
from bsc_core.pipeline import run_experiment
from bsc_core.ray.jobs import backend as ray_jobs
from bsc_core.ray.jobs.backend import Job, RayBackend
from bsc_core.runs import Run, RunStore
from tests.helpers.waiting import PATIENCE_SECONDS, final_status, wait_until
from tests.ray.ray_head import STUB_WORKER, ray_head, stub_python

pytestmark = pytest.mark.filterwarnings(r"ignore:::ray\..*")  # Ray warns about its own settings


@pytest.fixture(scope="module")
def head():
    """Address of the dashboard of one Ray head for all tests of this module."""
    with ray_head() as (_, address):
        yield address


@pytest.fixture
def submit(head, store, config, tmp_path, monkeypatch):
    """Queue a run whose worker behaves as named; keyword arguments are environment variables of the launcher."""
    monkeypatch.setattr(ray_jobs, "POLL_SECONDS", 0.2)

    def queue(behavior, run_id="one", **variables):
        python = stub_python(tmp_path, behavior)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"BSC_RAY_ADDRESS": head, "BSC_RAY_PYTHON": str(python), **variables}.items():
                patch.setenv(name, value)
            return launch(store, config, run_id, backend="ray", start=lambda store: None)

    return queue


@pytest.fixture
def start_supervisor(store):
    """Return a function that starts a supervisor thread, which must end with its queue."""
    threads: list[threading.Thread] = []

    def start():
        threads.append(threading.Thread(target=supervise, args=(store,), kwargs={"poll_seconds": 0.05}))
        threads[-1].start()

    yield start
    for run in store.list():
        if not run.status().is_finished:
            stop_and_wait(run, grace_seconds=0, terminate_seconds=10)
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


def test_a_run_goes_through_the_cluster_with_its_log_threads_and_exit_code(submit, store, start_supervisor, until):
    run = submit("environment", BSC_RAY_CPUS="2")
    start_supervisor()
    final_status(run)
    status, result = run.status(), run.read_json("result")
    assert (status.state, status.exit_code, status.backend) == ("done", 0, "ray")
    assert result["environment"]["OMP_NUM_THREADS"] == result["environment"]["OPENBLAS_NUM_THREADS"] == "2"
    until(lambda: Queue(store.root).snapshot().claimed == ())


@pytest.mark.parametrize(
    ("behavior", "state", "exit_code", "expected"),
    [
        ("killed", "lost", -9, "Ray: "),
        ("vanished", "failed", 3, "last line of its log: step 4 of 9"),
        ("nothing of that name", "failed", 1, "KeyError"),
    ],
)
def test_the_status_names_the_cause_of_a_job_that_failed(
    submit, start_supervisor, behavior, state, exit_code, expected
):
    run = submit(behavior.replace(" ", "-"))
    start_supervisor()
    status = final_status(run)
    assert (status.state, status.exit_code) == (state, exit_code)
    assert expected in status.error


def test_a_stop_request_ends_a_run_between_two_steps(submit, start_supervisor, until):
    run = submit("patient")
    start_supervisor()
    until(lambda: run.log_tail() == ["waiting for a stop request"])
    stop(run)
    assert (final_status(run).state, run.read_json("result")) == ("stopped", {"state": "stopped"})


def test_the_cluster_ends_a_run_that_ignores_the_stop_flag(submit, start_supervisor, until):
    run = submit("blind")
    start_supervisor()
    until(lambda: run.log_tail() == ["ignoring the flag"])
    pid = run.status().pid
    assert stop_and_wait(run, grace_seconds=0.2, terminate_seconds=20).state == "stopped"
    assert not psutil.pid_exists(pid)


def test_a_run_without_a_shared_disk_is_stopped_and_its_last_files_are_downloaded(
    submit, start_supervisor, until, tmp_path
):
    run = submit("blind", BSC_RAY_STORAGE=f"file://{tmp_path}/stored")
    stub_worker = [sys.executable, str(STUB_WORKER), "perform", "blind"]
    lines = [
        f"#!{sys.executable}",
        "import sys",
        "from bsc_core.ray.jobs import worker",
        f"worker.module_command = lambda name: {stub_worker!r}",
        "sys.exit(worker.main(*sys.argv[4:]))",
    ]
    (tmp_path / "python-blind").write_text("\n".join(lines), encoding="utf-8")
    start_supervisor()
    until(lambda: run.status().state == "running" and run.log_tail() == ["ignoring the flag"])
    RayBackend().send_signal(run, signal.SIGTERM)
    status = final_status(run)
    assert (status.state, status.exit_code, status.message) == (
        "stopped",
        1,
        "stopped before a checkpoint or a model was saved",
    )
    assert run.config().data.train == "pairs.tsv"


def test_a_run_that_waits_for_resources_says_so_is_resubmitted_and_stops_at_once(submit, start_supervisor, until, head):
    run = submit("quick", BSC_RAY_CPUS="64", BSC_RAY_MEMORY="1GiB")
    start_supervisor()
    until(lambda: run.status().message == "waits for resources in the Ray cluster: 64 CPUs, 1 GiB")
    until(lambda: (job := Job.read(run)) is not None and job.attempt == 2)  # Ray gave up on the first
    assert run.status().state == "starting"
    stop(run)
    assert final_status(run).state == "stopped"
    assert run.read_json("result") is None


def test_a_run_survives_the_end_of_the_supervisor_and_is_submitted_once(submit, store, start_supervisor, until):
    run = submit("patient")
    first = subprocess.Popen(module_command("supervisor", str(store.root)))
    until(lambda: run.log_tail() == ["waiting for a stop request"])
    first.kill()
    first.wait()
    pid, job = run.status().pid, Job.read(run)
    start_supervisor()
    until(lambda: run.read_json(".ray-seen") is not None)
    assert (run.status().state, run.status().pid) == ("running", pid)
    run.request_stop()
    final_status(run)
    assert (run.status().state, Job.read(run)) == ("stopped", job)
    assert run.log_tail() == ["waiting for a stop request"], "performed once"


def test_submitting_again_reuses_the_existing_job(submit, until):
    run, backend = submit("patient"), RayBackend()
    assert backend.inspect(run) == ProcessInfo("ended"), "never started"
    advance(run, "starting")
    backend.start(run, {})
    job = Job.read(run)
    replace(job, submitted=False).write(run)  # as if interrupted before this was written
    backend.start(run, {})
    assert Job.read(run) == job
    until(lambda: run.log_tail() == ["waiting for a stop request"])
    backend.send_signal(run, signal.SIGTERM)
    until(lambda: backend.inspect(run).state == "ended")
    assert run.log_tail() == ["waiting for a stop request"]
    assert run.status().state == "stopped"


def test_a_job_unknown_to_the_head_is_lost_with_its_cause(submit):
    run = submit("quick")
    Job("bsc-forgotten", run.read_json("launch")["BSC_RAY_ADDRESS"], submitted=True).write(run)
    advance(run, "running")
    status = refresh_status(run)
    assert status.state == "lost"
    assert "does not know its job; the cluster was restarted" in status.error


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_encoder):
    """Config of a short run, and its metrics when it is performed in this process."""
    folder = tmp_path_factory.mktemp("trained")
    rows = [f"what is number {number}\tit is the number {number} of ten" for number in range(10)]
    (folder / "pairs.tsv").write_text("\n".join(["query\tdocument", *rows]) + "\n", encoding="utf-8")
    values = {
        "data": {
            "train": str(folder / "pairs.tsv"),
            "columns": {"query": "query", "document": "document"},
            "dev_size": 0.3,
        },
        "encoder": {"name": str(tiny_encoder)},
        "batching": {"strategy": "random"},
        "training": {"max_steps": 3, "batch_size": 4, "threads": 1},
    }
    config = make_config(values)
    return config, run_experiment(config, RunStore(folder / "runs").create(config, "here"))["metrics"]


def check_same_result(run: Run, trained: tuple[RunConfig, dict[str, Any]]) -> None:
    """Check that the run ends with the metrics, curve and model of the run in this process."""
    wait_until(lambda: run.status().is_finished, lambda: str(run.log_tail(20)), factor=2)
    status = run.status()
    assert (status.state, status.error, status.exit_code) == ("done", None, 0), (status.error, run.log_tail(20))
    wait_until(lambda: run.read_json("result") is not None, "the result")  # a last poll may download it again
    result = run.read_json("result")
    for moment, splits in trained[1].items():
        for split, metrics in splits.items():
            assert result["metrics"][moment][split] == pytest.approx(metrics, abs=1e-5)
    assert result["model"] == str(run.model_folder)
    assert (run.model_folder / "modules.json").is_file()
    assert run.config() == trained[0]
    assert [line["step"] for line in run.metrics()[0] if line["kind"] == "step"] == [1, 2, 3]
    assert run.log_tail()


def test_a_run_transferred_through_storage_ends_like_a_local_run(
    head, trained, store, start_supervisor, tmp_path, monkeypatch
):
    monkeypatch.setenv("BSC_RAY_ADDRESS", head)
    monkeypatch.setenv("BSC_RAY_PYTHON", sys.executable)
    monkeypatch.setenv("BSC_RAY_STORAGE", f"file://{tmp_path}/stored")
    roots = [str(Path(trained[0].data.train).parent), trained[0].encoder.name]
    monkeypatch.setenv("BSC_ROOTS", os.pathsep.join(roots))
    run = launch(store, trained[0], "there", backend="ray", start=lambda store: None)
    start_supervisor()
    check_same_result(run, trained)


def test_a_run_of_two_processes_of_ray_train_ends_like_one_of_a_single_process(
    head, trained, store, start_supervisor, monkeypatch
):
    monkeypatch.setenv("BSC_RAY_ADDRESS", head)
    monkeypatch.setenv("BSC_RAY_PYTHON", sys.executable)
    monkeypatch.setenv("BSC_RAY_WORKERS", "2")
    run = launch(store, trained[0], "there", backend="ray", start=lambda store: None)
    start_supervisor()
    check_same_result(run, trained)
    assert "world_rank=1" in run.log_file.read_text(encoding="utf-8")
