"""The backend ray without a cluster: its settings, a status that comes from elsewhere, and a head that is away."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bsc_core.config import RunConfig
from bsc_core.errors import JobError
from bsc_core.jobs.backend import AwayError, Look
from bsc_core.jobs.identity import wait_until
from bsc_core.jobs.ladder import climb
from bsc_core.jobs.launching import enqueue
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.ray_jobs import Job, RayBackend, _bring, _merged
from bsc_core.jobs.ray_settings import RaySettings
from bsc_core.jobs.ray_storage import Outgoing, Storage
from bsc_core.jobs.reconciling import settle
from bsc_core.jobs.stopping import stop
from bsc_core.jobs.supervisor import supervise
from bsc_core.runs import Run, RunStatus, RunStore
from tests.jobs.ray_head import free_ports

HERE = RunStatus(state="running", created=7.0, group="g", backend="ray", step=3, message="before")


@pytest.mark.parametrize(
    ("state", "news", "merged"),
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
def test_a_status_takes_what_the_run_says_as_far_as_the_states_allow(state: Any, news: str, merged: str) -> None:
    values = {"state": news, "step": 9, "pid": 12, "created": 1.0, "group": None, "backend": "local", "unknown": 1}
    after = _merged(replace(HERE, state=state), values)
    assert (after.state, after.created, after.group, after.backend, after.pid) == (merged, 7.0, "g", "ray", None)
    assert after.step == (3 if state in ("lost", "done") else 9)
    assert after.message == "before"


ADDRESS = {"BSC_RAY_ADDRESS": "10.0.0.1:8265"}


def test_settings_are_read_from_the_environment() -> None:
    settings = RaySettings.read({**ADDRESS, "BSC_RAY_CPUS": "4", "BSC_RAY_GPUS": "0.5", "BSC_RAY_MEMORY": "8GiB"})
    assert settings.address == "http://10.0.0.1:8265"
    assert str(settings.each) == "4 CPUs, 0.5 GPUs, 8 GiB"
    assert settings.driver == settings.each
    assert settings.ranks == []
    together = RaySettings.read({**ADDRESS, "BSC_RAY_WORKERS": "3"})
    assert (together.driver.cpus, together.ranks) == (0, ["3", "1", "0", "0"])


def test_what_the_launcher_said_holds_whoever_starts_the_supervisor(
    store: RunStore, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.create(config, "one")
    monkeypatch.setenv("BSC_RAY_ADDRESS", "other:8265")
    monkeypatch.setenv("BSC_RAY_STORAGE", "s3://of-another")
    assert RaySettings.of(run).storage == "s3://of-another"
    run.write_json("launch", {**ADDRESS, "BSC_RAY_CPUS": "2"})
    settings = RaySettings.of(run)
    assert (settings.address, settings.storage, settings.each.cpus) == ("http://10.0.0.1:8265", "", 2)


def test_news_that_cannot_be_written_come_again(
    store: RunStore, config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = store.create(config, "one")
    run.update_status(state="running")
    storage = Storage(f"file://{tmp_path}/stored")
    there = RunStore(tmp_path / "node").create(config, "one")
    there.update_status(state="done", exit_code=0)
    job = Job("bsc-one", "http://head:8265", storage.url, submitted=True)
    Outgoing(there.folder, job.own_storage).push()
    with monkeypatch.context() as patch:
        patch.setattr(Run, "change_status", refuse)
        with pytest.raises(JobError, match="the disk is full"):
            _bring(run, job)
    assert run.status().state == "running"
    _bring(run, job)
    assert (run.status().state, run.status().exit_code) == ("done", 0)


def refuse(run: Run, change: object) -> RunStatus:
    raise JobError("the disk is full")


@pytest.mark.parametrize(
    ("variables", "said"),
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
def test_a_setting_that_cannot_work_is_named(variables: dict[str, str], said: str) -> None:
    with pytest.raises(JobError) as caught:
        RaySettings.read(variables)
    assert str(caught.value).startswith(said) or said in str(caught.value)


def test_the_backend_needs_no_ray_until_it_is_used() -> None:
    code = "import sys, bsc_core.jobs.ray_jobs, bsc_core.jobs.ray_worker; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_head_that_is_away_leaves_a_run_queued_and_says_so(
    store: RunStore, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://127.0.0.1:{free_ports(1)[0]}"
    monkeypatch.setenv("BSC_RAY_ADDRESS", address)
    run = enqueue(store, config, "one", backend="ray")
    thread = threading.Thread(target=supervise, args=(store,), kwargs={"poll_seconds": 0.05})
    thread.start()
    said = (
        f"the Ray cluster at {address} does not answer (Connection refused); start its head, or correct BSC_RAY_ADDRESS"
    )
    assert wait_until(lambda: run.status().message.startswith(said), 30)
    assert wait_until(lambda: Queue(store.root).waiting() == ["one"], 30)
    assert run.status().state == "queued"
    stop(run)
    thread.join(30)
    assert (run.status().state, Queue(store.root).waiting()) == ("stopped", [])


def test_a_run_keeps_its_state_while_the_head_is_away(store: RunStore, config: RunConfig) -> None:
    run = store.create(config, "one")
    address = f"http://127.0.0.1:{free_ports(1)[0]}"
    Job("bsc-one", address, submitted=True).write(run)
    run.update_status(state="running", backend="ray")
    assert settle(run).state == "running"
    assert "does not answer" in run.status().message
    assert RayBackend().look(run) == Look("unknown"), "asked again some seconds later"
    with pytest.raises(AwayError, match="does not answer"):
        RayBackend().end(run, signal.SIGTERM)


def test_stopping_while_the_head_is_away_ends_in_a_state_that_says_what_is_not_known(
    store: RunStore, config: RunConfig
) -> None:
    run = store.create(config, "one")
    Job("bsc-one", f"http://127.0.0.1:{free_ports(1)[0]}", submitted=True).write(run)
    run.update_status(state="running", backend="ray")
    status = climb(run, grace_seconds=0.1, terminate_seconds=0.1)
    assert status.state == "lost"
    assert "whether the run goes on there is not known" in (status.error or "")
    assert run.stop_requested()


def test_a_run_without_an_address_fails_with_one_sentence(
    store: RunStore, config: RunConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BSC_RAY_ADDRESS", raising=False)
    run = enqueue(store, config, "one", backend="ray")
    supervise(store, poll_seconds=0.05)
    assert run.status().state == "failed"
    assert (run.status().error or "").startswith("BSC_RAY_ADDRESS is not set; give the address")


def test_a_run_whose_job_cannot_be_named_is_lost_with_its_cause(store: RunStore, config: RunConfig) -> None:
    run = store.create(config, "one")
    run.update_status(state="running", backend="ray")
    (run.folder / "ray.json").write_text("{half", encoding="utf-8")
    status = settle(run)
    assert status.state == "lost"
    assert "ray.json, which names its job, is damaged" in (status.error or "")


@pytest.mark.parametrize("note", [".ray-seen.json", ".ray-taken.json"])
def test_a_damaged_note_of_an_earlier_look_is_made_anew(store: RunStore, config: RunConfig, note: str) -> None:
    run = store.create(config, "one")
    storage = Storage(f"file://{store.root}/stored")
    Job("bsc-one", f"http://127.0.0.1:{free_ports(1)[0]}", storage.url, submitted=True).write(run)
    run.update_status(state="running", backend="ray")
    (run.folder / note).write_text("{half", encoding="utf-8")
    assert RayBackend().look(run) == Look("unknown")
    assert run.status().state == "running"
