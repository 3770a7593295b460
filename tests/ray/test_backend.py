"""The Ray backend without a cluster: settings, merged statuses, and a head that does not answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bsc_core.errors import JobError
from bsc_core.jobs import launch
from bsc_core.jobs.actions.escalation import stop_and_wait
from bsc_core.jobs.actions.stopping import stop
from bsc_core.jobs.backends import BackendUnavailableError, ProcessInfo
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.recovery import refresh_status
from bsc_core.jobs.scheduler import Scheduler
from bsc_core.jobs.states import advance
from bsc_core.jobs.supervisor import supervise
from bsc_core.ray.jobs import backend as ray_jobs
from bsc_core.ray.jobs.backend import Job, RayBackend, _download, _merge
from bsc_core.ray.jobs.settings import RaySettings
from bsc_core.ray.jobs.storage import Storage, StorageError, Uploader, _path_inside
from bsc_core.runs import Run, RunStatus, RunStore
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until
from tests.ray.ray_head import free_ports

LAUNCHER_STATUS = RunStatus(state="running", created=7.0, group="g", backend="ray", step=3, message="before")


@pytest.mark.parametrize(
    ("state", "downloaded", "merged"),
    [
        ("starting", "running", "running"),
        ("starting", "done", "done"),
        ("running", "done", "done"),
        ("stopping", "running", "stopping"),
        ("stopping", "done", "done"),
        ("stopping", "stopped", "stopped"),
        ("queued", "running", "running"),
        ("lost", "done", "lost"),
        ("done", "running", "done"),
    ],
)
def test_a_status_takes_values_of_the_node_if_the_transition_is_allowed(state, downloaded, merged):
    values = {
        "state": downloaded,
        "step": 9,
        "pid": 12,
        "created": 1.0,
        "group": None,
        "backend": "local",
        "unknown": 1,
    }
    after = _merge(replace(LAUNCHER_STATUS, state=state), values)
    assert (after.state, after.created, after.group, after.backend, after.pid) == (merged, 7.0, "g", "ray", None)
    assert after.step == (3 if state in ("lost", "done") else 9)
    assert after.message == "before"


ADDRESS = {"BSC_RAY_ADDRESS": "10.0.0.1:8265"}


def test_settings_are_read_from_the_environment():
    settings = RaySettings.read({**ADDRESS, "BSC_RAY_CPUS": "4", "BSC_RAY_GPUS": "0.5", "BSC_RAY_MEMORY": "8GiB"})
    assert settings.address == "http://10.0.0.1:8265"
    assert str(settings.per_process) == "4 CPUs, 0.5 GPUs, 8 GiB"
    assert settings.driver == settings.per_process
    assert settings.ranks == []
    together = RaySettings.read({**ADDRESS, "BSC_RAY_WORKERS": "3"})
    assert (together.driver.cpus, together.ranks) == (0, ["3", "1", "0", "0"])


def test_settings_of_the_launcher_take_precedence_over_the_supervisors(store, config, monkeypatch):
    run = store.create(config, "one")
    monkeypatch.setenv("BSC_RAY_ADDRESS", "other:8265")
    monkeypatch.setenv("BSC_RAY_STORAGE", "s3://of-another")
    assert RaySettings.for_run(run).storage == "s3://of-another"
    run.write_json("launch", {**ADDRESS, "BSC_RAY_CPUS": "2"})
    assert RaySettings.for_run(run).storage == "s3://of-another", "a run folder from elsewhere names no cluster"
    run.write_signed("launch", {**ADDRESS, "BSC_RAY_CPUS": "2"})
    settings = RaySettings.for_run(run)
    assert (settings.address, settings.storage, settings.per_process.cpus) == ("http://10.0.0.1:8265", "", 2)


def test_a_status_that_cannot_be_written_is_downloaded_again(store, config, tmp_path, monkeypatch):
    run = store.create(config, "one")
    run.update_status(state="running")
    storage = Storage(f"file://{tmp_path}/stored")
    there = RunStore(tmp_path / "node").create(config, "one")
    there.update_status(state="done", exit_code=0)
    job = Job("bsc-one", "http://head:8265", storage.url, submitted=True)
    Uploader(there.folder, job.run_storage).push()
    with monkeypatch.context() as patch:
        patch.setattr(Run, "change_status", refuse)
        with pytest.raises(JobError, match="the disk is full"):
            _download(run, job)
    assert run.status().state == "running"
    _download(run, job)
    assert (run.status().state, run.status().exit_code) == ("done", 0)


def refuse(run: Run, change: object) -> RunStatus:
    raise JobError("the disk is full")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "BSC_RAY_ADDRESS is not set"),
        ({"BSC_RAY_ADDRESS": "auto"}, "BSC_RAY_ADDRESS is 'auto'; give the address of the cluster's dashboard"),
        ({"BSC_RAY_ADDRESS": "ray://head:10001"}, "BSC_RAY_ADDRESS is 'ray://head:10001'"),
        ({"BSC_RAY_ADDRESS": "http://head:x"}, "BSC_RAY_ADDRESS is 'http://head:x'"),
        ({**ADDRESS, "BSC_RAY_CPUS": "-1"}, "BSC_RAY_CPUS is '-1'; it must be a number of at least 0"),
        ({**ADDRESS, "BSC_RAY_GPUS": "all"}, "BSC_RAY_GPUS is 'all'"),
        ({**ADDRESS, "BSC_RAY_CPUS": "nan"}, "BSC_RAY_CPUS is 'nan'"),
        ({**ADDRESS, "BSC_RAY_MEMORY": "8 apples"}, "BSC_RAY_MEMORY is '8 apples'; write it in bytes or with a unit"),
        ({**ADDRESS, "BSC_RAY_WORKERS": "1.5"}, "BSC_RAY_WORKERS is '1.5'; it must be a whole number of at least 1"),
        ({**ADDRESS, "BSC_RAY_WORKERS": "2", "BSC_RAY_STORAGE": "s3://b"}, "leave BSC_RAY_STORAGE out"),
    ],
)
def test_an_invalid_setting_is_named(variables, expected):
    with pytest.raises(JobError) as caught:
        RaySettings.read(variables)
    assert str(caught.value).startswith(expected) or expected in str(caught.value)


def test_importing_the_backend_does_not_import_ray():
    code = "import sys, bsc_core.ray.jobs.backend, bsc_core.ray.jobs.worker; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_run_stays_queued_with_a_message_while_the_head_does_not_answer(store, config, monkeypatch):
    address = f"http://127.0.0.1:{free_ports(1)[0]}"
    monkeypatch.setenv("BSC_RAY_ADDRESS", address)
    run = launch(store, config, "one", backend="ray", start=lambda store: None)
    thread = threading.Thread(target=supervise, args=(store,), kwargs={"poll_seconds": 0.05})
    thread.start()
    expected = (
        f"the Ray cluster at {address} does not answer (Connection refused); start its head, or correct BSC_RAY_ADDRESS"
    )
    wait_until(lambda: run.status().message.startswith(expected), lambda: run.status().message)
    wait_until(lambda: Queue(store.root).waiting() == ["one"], "the run is queued")
    assert run.status().state == "queued"
    stop(run)
    thread.join(PATIENCE_SECONDS)
    assert (run.status().state, Queue(store.root).waiting()) == ("stopped", [])


def unreachable_run(store, config, storage="") -> Run:
    """Return a run whose job was submitted to a head that does not answer."""
    run = store.create(config, "one")
    Job("bsc-one", f"http://127.0.0.1:{free_ports(1)[0]}", storage, submitted=True).write(run)
    run.update_status(state="running", backend="ray")
    return run


def test_a_run_keeps_its_state_while_the_head_does_not_answer(store, config):
    run = unreachable_run(store, config)
    assert refresh_status(run).state == "running"
    assert "does not answer" in run.status().message
    assert RayBackend().inspect(run) == ProcessInfo("unknown"), "the next poll is some seconds later"
    with pytest.raises(BackendUnavailableError, match="does not answer"):
        RayBackend().send_signal(run, signal.SIGTERM)


@contextmanager
def dashboard(port: int) -> Iterator[dict[str, str]]:
    """Answer Ray's client as the dashboard of a head, which forgets its jobs when it ends; yield their commands."""
    jobs: dict[str, str] = {}

    class Dashboard(BaseHTTPRequestHandler):
        def respond(self, values: dict[str, object], status: int = 200) -> None:
            content = json.dumps(values).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            if name in jobs:
                self.respond({"type": "SUBMISSION", "status": "RUNNING", "entrypoint": jobs[name]})
            elif "/jobs/" in self.path:
                self.respond({"text": f"job {name} does not exist"}, 404)
            else:  # of the version or of a package
                self.respond({"ray_version": "2.60.0"})

        def do_POST(self) -> None:
            values = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            jobs[values["submission_id"]] = values["entrypoint"]
            self.respond({"job_id": values["submission_id"], "submission_id": values["submission_id"]})

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Dashboard) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield jobs
        finally:
            server.shutdown()
            thread.join()


def test_a_run_whose_head_dies_is_lost_after_a_restart_and_a_waiting_run_is_submitted(store, config, monkeypatch):
    for name in ("POLL_SECONDS", "RETRY_SECONDS", "_PAUSE_FACTOR"):
        monkeypatch.setattr(ray_jobs, name, 0.0)
    port = free_ports(1)[0]
    monkeypatch.setenv("BSC_RAY_ADDRESS", f"http://127.0.0.1:{port}")
    active = launch(store, config, "active", backend="ray", start=lambda store: None)
    with dashboard(port) as jobs:
        Scheduler(store).tick()
        assert [*jobs] == [Job.read(active).submission]
        advance(active, "running")
        assert Scheduler(store).tick()
    waiting = launch(store, config, "waiting", backend="ray", start=lambda store: None)
    Scheduler(store).tick()
    assert (active.status().state, waiting.status().state) == ("running", "queued")
    assert all("does not answer" in run.status().message for run in (active, waiting))
    with dashboard(port) as jobs:
        Scheduler(store).tick()
        assert [*jobs] == [Job.read(waiting).submission]
        assert (active.status().state, waiting.status().state) == ("lost", "starting")
        assert "does not know its job; the cluster was restarted" in active.status().error
        assert Queue(store.root).snapshot().claimed == ("waiting",)


def test_stopping_while_the_head_does_not_answer_says_what_is_unknown(store, config):
    run = unreachable_run(store, config)
    status = stop_and_wait(run, grace_seconds=0.1, terminate_seconds=0.1)
    assert status.state == "lost"
    assert "whether the run is still active there is unknown" in status.error
    assert run.stop_requested()


def test_a_run_without_an_address_fails_with_a_clear_message(store, config, monkeypatch):
    monkeypatch.delenv("BSC_RAY_ADDRESS", raising=False)
    run = launch(store, config, "one", backend="ray", start=lambda store: None)
    supervise(store, poll_seconds=0.05)
    assert run.status().state == "failed"
    assert run.status().error.startswith("BSC_RAY_ADDRESS is not set; give the address")


def test_a_run_with_a_damaged_job_record_is_lost_with_its_cause(store, config):
    run = store.create(config, "one")
    run.update_status(state="running", backend="ray")
    (run.folder / "ray.json").write_text("{half", encoding="utf-8")
    status = refresh_status(run)
    assert status.state == "lost"
    assert "ray.json, the record of its job, is damaged" in status.error


@pytest.mark.parametrize("note", [".ray-seen.json", ".ray-taken.json"])
def test_a_damaged_file_of_the_last_poll_is_ignored(store, config, note):
    run = unreachable_run(store, config, f"file://{store.root}/stored")
    (run.folder / note).write_text("{half", encoding="utf-8")
    assert RayBackend().inspect(run) == ProcessInfo("unknown")
    assert run.status().state == "running"


def test_a_run_folder_from_elsewhere_is_not_asked_about_at_the_cluster_that_it_names(store, config):
    run = store.create(config, "one")
    run.update_status(state="running", backend="ray")
    run.write_json("ray", asdict(Job("j", "http://evil.example", "http://evil.example/storage", submitted=True)))
    with pytest.raises(JobError, match="it was not written in this runs folder"):
        Job.read(run)
    info = RayBackend().inspect(run)
    assert (info.state, "was not written in this runs folder" in info.cause) == ("ended", True)


def test_files_of_the_storage_are_not_written_through_links_out_of_the_run(tmp_path):
    for name in ("run", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "run" / "plans").symlink_to(tmp_path / "elsewhere")
    assert _path_inside(tmp_path / "run", "log.txt") == tmp_path / "run" / "log.txt"
    with pytest.raises(StorageError, match="is outside"):
        _path_inside(tmp_path / "run", "plans/x")
