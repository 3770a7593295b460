"""Runs as jobs of a real Ray head, which these tests start on loopback and end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bsc_core.config import RunConfig, make_config
from bsc_core.jobs import ray_jobs
from bsc_core.jobs.backend import Look
from bsc_core.jobs.identity import wait_until
from bsc_core.jobs.ladder import climb
from bsc_core.jobs.launching import enqueue
from bsc_core.jobs.local import module_command
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.ray_jobs import Job, RayBackend
from bsc_core.jobs.reconciling import settle
from bsc_core.jobs.states import advance
from bsc_core.jobs.stopping import stop
from bsc_core.jobs.supervisor import supervise
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run, RunStore
from tests.jobs.ray_head import ray_head

pytestmark = pytest.mark.filterwarnings(r"ignore:::ray\..*")  # Ray warns of its own settings
Until = Callable[[Callable[[], bool]], None]
Submit = Callable[..., Run]


@pytest.fixture(scope="module")
def head() -> Iterator[str]:
    """Address of the dashboard of a Ray head, the same for all these tests."""
    with ray_head() as address:
        yield address


@pytest.fixture
def submit(head: str, store: RunStore, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """Queue a run for the cluster whose worker behaves as named; further words are variables of its launcher."""
    monkeypatch.setattr(ray_jobs, "LOOK_SECONDS", 0.2)

    def queue(behaviour: str, run_id: str = "one", **variables: str) -> Run:
        python = tmp_path / f"python-{behaviour}"
        stand_in = Path(__file__).with_name("stand_in.py")
        python.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} perform {behaviour} "$4"\n', encoding="utf-8")
        python.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"BSC_RAY_ADDRESS": head, "BSC_RAY_PYTHON": str(python), **variables}.items():
                patch.setenv(name, value)
            return enqueue(store, config, run_id, backend="ray")

    return queue


@pytest.fixture
def serving(store: RunStore) -> Iterator[Callable[[], None]]:
    """Start a supervisor of this process, and see that it ends with its queue."""
    threads: list[threading.Thread] = []

    def serve() -> None:
        threads.append(threading.Thread(target=supervise, args=(store,), kwargs={"poll_seconds": 0.05}))
        threads[-1].start()

    yield serve
    for run in store.list():
        if not run.status().is_finished:
            climb(run, grace_seconds=0, terminate_seconds=10)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_run_goes_through_the_cluster_with_its_log_threads_and_exit_code(
    submit: Submit, store: RunStore, serving: Callable[[], None], until: Until
) -> None:
    run = submit("environment", BSC_RAY_CPUS="2")
    serving()
    until(lambda: run.status().is_finished)
    status, result = run.status(), run.read_json("result")
    assert (status.state, status.exit_code, status.backend) == ("done", 0, "ray")
    assert result["environment"]["OMP_NUM_THREADS"] == result["environment"]["OPENBLAS_NUM_THREADS"] == "2"
    until(lambda: Queue(store.root).claimed() == [])


@pytest.mark.parametrize(
    ("behaviour", "state", "exit_code", "said"),
    [
        ("killed", "lost", -9, "Ray: "),
        ("vanished", "failed", 3, "last line of its log: step 4 of 9"),
        ("nothing of that name", "failed", 1, "KeyError"),
    ],
)
def test_a_job_that_breaks_off_leaves_its_cause(
    submit: Submit, serving: Callable[[], None], until: Until, behaviour: str, state: str, exit_code: int, said: str
) -> None:
    run = submit(behaviour.replace(" ", "-"))
    serving()
    until(lambda: run.status().is_finished)
    status = run.status()
    assert (status.state, status.exit_code) == (state, exit_code)
    assert said in (status.error or "")


def test_a_stop_is_heard_between_two_steps(submit: Submit, serving: Callable[[], None], until: Until) -> None:
    run = submit("patient")
    serving()
    until(lambda: run.log_tail() == ["waiting to be asked"])
    stop(run)
    until(lambda: run.status().is_finished)
    assert (run.status().state, run.read_json("result")) == ("stopped", {"state": "stopped"})


def test_a_run_that_does_not_look_is_ended_by_the_cluster(
    submit: Submit, serving: Callable[[], None], until: Until
) -> None:
    run = submit("blind")
    serving()
    until(lambda: run.log_tail() == ["not looking"])
    pid = run.status().pid
    assert climb(run, grace_seconds=0.2, terminate_seconds=20).state == "stopped"
    assert pid is not None
    assert not psutil.pid_exists(pid)


def test_a_run_without_a_shared_disk_is_ended_and_its_last_words_come_back(
    submit: Submit, serving: Callable[[], None], until: Until, tmp_path: Path
) -> None:
    run = submit("blind", BSC_RAY_STORAGE=f"file://{tmp_path}/stored")
    stand_in = [sys.executable, str(Path(__file__).with_name("stand_in.py")), "perform", "blind"]
    lines = [
        f"#!{sys.executable}",
        "import sys",
        "from bsc_core.jobs import ray_worker",
        f"ray_worker.module_command = lambda name: {stand_in!r}",
        "sys.exit(ray_worker.main(*sys.argv[4:]))",
    ]
    (tmp_path / "python-blind").write_text("\n".join(lines), encoding="utf-8")
    serving()
    until(lambda: run.status().state == "running" and run.log_tail() == ["not looking"])
    RayBackend().end(run, signal.SIGTERM)
    until(lambda: run.status().is_finished)
    status = run.status()
    assert (status.state, status.exit_code, status.message) == ("stopped", 1, "stopped; what was saved by then is kept")
    assert run.config().data.train == "pairs.tsv"


def test_a_run_that_waits_for_room_says_so_keeps_its_place_and_is_stopped_at_once(
    submit: Submit, serving: Callable[[], None], until: Until, head: str
) -> None:
    run = submit("quick", BSC_RAY_CPUS="64", BSC_RAY_MEMORY="1GiB")
    serving()
    until(lambda: run.status().message == "waits for room in the Ray cluster: 64 CPUs, 1 GiB")
    until(lambda: (job := Job.of(run)) is not None and job.attempt == 2)  # Ray gave up on the first
    assert run.status().state == "starting"
    stop(run)
    until(lambda: run.status().is_finished)
    assert run.status().state == "stopped"
    assert run.read_json("result") is None


def test_a_run_survives_the_end_of_the_app_and_is_never_submitted_twice(
    submit: Submit, store: RunStore, serving: Callable[[], None], until: Until
) -> None:
    run = submit("patient")
    first = subprocess.Popen(module_command("supervisor", str(store.root)))
    until(lambda: run.log_tail() == ["waiting to be asked"])
    first.kill()
    first.wait()
    pid, job = run.status().pid, Job.of(run)
    serving()
    until(lambda: run.read_json(".ray-seen") is not None)
    assert (run.status().state, run.status().pid) == ("running", pid)
    run.request_stop()
    until(lambda: run.status().is_finished)
    assert (run.status().state, Job.of(run)) == ("stopped", job)
    assert run.log_tail() == ["waiting to be asked"], "it was performed once"


def test_submitting_again_finds_the_job_that_is_there(submit: Submit, until: Until) -> None:
    run, backend = submit("patient"), RayBackend()
    assert backend.look(run) == Look("ended"), "never started"
    advance(run, "starting")
    backend.start(run, {})
    job = Job.of(run)
    assert job is not None
    run.write_json("ray", {**run.read_json("ray"), "submitted": False})  # the end came before this was written
    backend.start(run, {})
    assert Job.of(run) == job
    until(lambda: run.log_tail() == ["waiting to be asked"])
    backend.end(run, signal.SIGTERM)
    until(lambda: backend.look(run).state == "ended")
    assert run.log_tail() == ["waiting to be asked"]
    assert run.status().state == "stopped"


def test_a_job_that_the_head_has_forgotten_is_lost_with_its_cause(submit: Submit) -> None:
    run = submit("quick")
    Job("bsc-forgotten", run.read_json("launch")["BSC_RAY_ADDRESS"], submitted=True).write(run)
    advance(run, "running")
    status = settle(run)
    assert status.state == "lost"
    assert "does not know its job; it was started anew since" in (status.error or "")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, dict[str, Any]]:
    """A short run, and what it measures when it is performed in this process."""
    folder = tmp_path_factory.mktemp("trained")
    rows = [f"what is number {number}\tit is the number {number} of ten" for number in range(10)]
    (folder / "pairs.tsv").write_text("\n".join(["query\tdocument", *rows]) + "\n", encoding="utf-8")
    values = {
        "data": {
            "train": str(folder / "pairs.tsv"),
            "columns": {"query": "query", "document": "document"},
            "dev_share": 0.3,
        },
        "encoder": {"name": "static"},
        "batching": {"strategy": "random"},
        "training": {"steps": 3, "batch_size": 4, "threads": 1},
    }
    config = make_config(values)
    return config, run_experiment(config, RunStore(folder / "runs").create(config, "here"))["metrics"]


def check_like_here(run: Run, trained: tuple[RunConfig, dict[str, Any]]) -> None:
    """The run ended with the metrics, the curve and the model of one that was performed in this process."""
    assert wait_until(lambda: run.status().is_finished, 200)
    status = run.status()
    assert (status.state, status.error, status.exit_code) == ("done", None, 0), run.log_tail(20)
    assert wait_until(lambda: run.read_json("result") is not None, 20)  # a last look may still bring it anew
    result = run.read_json("result")
    for moment, splits in trained[1].items():
        for split, metrics in splits.items():
            assert result["metrics"][moment][split] == pytest.approx(metrics, abs=1e-5)
    assert result["model"] == str(run.model_folder)
    assert (run.model_folder / "modules.json").is_file()
    assert run.config() == trained[0]
    assert [line["step"] for line in run.metrics()[0] if line["kind"] == "step"] == [1, 2, 3]
    assert run.log_tail()


def test_a_trained_run_comes_back_from_storage_as_one_of_this_machine(
    head: str,
    trained: tuple[RunConfig, dict[str, Any]],
    store: RunStore,
    serving: Callable[[], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BSC_RAY_ADDRESS", head)
    monkeypatch.setenv("BSC_RAY_PYTHON", sys.executable)
    monkeypatch.setenv("BSC_RAY_STORAGE", f"file://{tmp_path}/stored")
    monkeypatch.setenv("BSC_ROOTS", str(Path(trained[0].data.train).parent))
    run = enqueue(store, trained[0], "there", backend="ray")
    serving()
    check_like_here(run, trained)


def test_a_run_of_two_processes_that_ray_train_joins_ends_like_one_of_one(
    head: str,
    trained: tuple[RunConfig, dict[str, Any]],
    store: RunStore,
    serving: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BSC_RAY_ADDRESS", head)
    monkeypatch.setenv("BSC_RAY_PYTHON", sys.executable)
    monkeypatch.setenv("BSC_RAY_WORKERS", "2")
    run = enqueue(store, trained[0], "there", backend="ray")
    serving()
    check_like_here(run, trained)
    assert "world_rank=1" in run.log_file.read_text(encoding="utf-8")
