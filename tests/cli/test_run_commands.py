"""`bsc sweep`, `bsc train` with several seeds, `bsc queue` and `bsc worker`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bsc_core.cli import main
from bsc_core.cli.parser import make_parser
from bsc_core.config import DataConfig, RunConfig, make_config
from bsc_core.jobs import Queue, launch, supervisor
from bsc_core.jobs.queue import supervisor_lock
from bsc_core.runs import RunStore
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

CONFIG = """
[data]
train = "pairs.tsv"
[encoder]
name = "static"
[batching]
strategy = "random"
[training]
epochs = 1
batch_size = 4
threads = 1
[sweep.over]
loss.temperature = [0.05, 0.1]
"""
INVALID_SWEEP = ("sweep", "sweep.toml", "--over", "loss.temperature=0.1,-1")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("BSC_RUNS", raising=False)
    monkeypatch.delenv("BSC_ROOTS", raising=False)
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"question {n} of many\tanswer {n} to it\n" for n in range(24))
    (tmp_path / "pairs.tsv").write_text("query\tdocument\n" + rows)
    (tmp_path / "sweep.toml").write_text(CONFIG)
    (tmp_path / "config.toml").write_text(CONFIG.partition("[sweep")[0])
    return tmp_path


@pytest.fixture
def served(folder):
    """A runs folder whose supervisor lock is held, so that queued runs are not started."""
    store = RunStore()
    store.root.mkdir()
    with supervisor_lock(store.root):
        yield store


def report_of(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    result = main([*words, "--json"])
    captured = capsys.readouterr()
    assert result == status, captured.err
    report: dict[str, Any] = json.loads(captured.out)
    return report


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    report = report_of(capsys, *words, status=2)
    assert set(report) == {"error"}
    return str(report["error"])


def test_a_sweep_runs_every_setting_with_every_seed_and_summarizes_them(folder, capsys):
    report = report_of(capsys, "sweep", "sweep.toml", "--set", "training.seeds=[1,2]")
    assert [run["state"] for run in report["runs"]] == ["done"] * 4
    summary = report["summary"]
    assert (summary["group"], summary["done"], summary["keys"]) == (report["group"], 4, ["loss.temperature"])
    assert sorted(one["setting"]["loss.temperature"] for one in summary["settings"]) == [0.05, 0.1]
    assert [one["seeds"] for one in summary["settings"]] == [[1, 2], [1, 2]]
    stored = [run.config() for run in RunStore().list()]
    assert sorted((config.loss.temperature, config.training.seed) for config in stored) == [
        (0.05, 1),
        (0.05, 2),
        (0.1, 1),
        (0.1, 2),
    ]


def test_training_with_seeds_is_a_group_of_runs(folder, capsys):
    assert main(["train", "config.toml", "--set", "training.seeds=[1,2]"]) == 0
    reported = capsys.readouterr()
    assert "all: mean " in reported.out
    assert [run.config().training.seeds for run in RunStore().list()] == [(), ()]


def test_a_group_ends_when_a_run_is_stopped(folder, capsys, monkeypatch):
    def interrupted(config, run, callbacks):
        signal.raise_signal(signal.SIGINT)
        assert run.stop_requested()
        return {"state": "stopped"}

    monkeypatch.setattr("bsc_core.pipeline.run_experiment", interrupted)
    report = report_of(capsys, "sweep", "sweep.toml", status=1)
    assert [run["state"] for run in report["runs"]] == ["stopped"]


def test_the_number_of_runs_is_printed_first(folder, capsys):
    report = report_of(capsys, "sweep", "sweep.toml", "--over", "training.batch_size=4,8,16", "--dry-run")
    assert (report["number_of_runs"], report["checked"]) == (6, True)
    many = f"training.batch_size={','.join(map(str, range(2, 102)))}"
    report = report_of(capsys, "sweep", "sweep.toml", "--over", many, "--dry-run")
    assert (report["number_of_runs"], report["checked"]) == (200, False)
    assert not RunStore().root.exists()


def test_a_sweep_of_many_runs_needs_confirmation(folder, capsys):
    values = ",".join(map(str, range(2, 102)))
    seeds = ",".join(map(str, range(50)))
    words = ("sweep", "sweep.toml", "--over", f"training.batch_size={values}", "--set", f"training.seeds=[{seeds}]")
    assert "this sweep is 10,000 runs; add --yes to start them" in refusal(capsys, *words)
    assert not RunStore().root.exists()


def test_a_detached_sweep_is_a_group_in_the_queue(served, capsys):
    report = report_of(capsys, "sweep", "sweep.toml", "--over", "training.epochs=1,2", "--random", "3", "--detach")
    names = [run["run"] for run in report["runs"]]
    assert names == Queue(served.root).waiting()
    assert all(name.startswith(f"{report['group']}-00{number}-") for number, name in enumerate(names, start=1))
    assert {run.status().group for run in served.list()} == {report["group"]}


def test_a_chain_to_a_run_without_a_model_is_refused(served, folder, capsys):
    assert "run nothing: not in" in refusal(capsys, "train", "config.toml", "--set", "encoder.name=run:nothing")
    failed = served.create(make_config({"data": {"train": "pairs.tsv"}}), "failed")
    failed.update_status(state="failed")
    for ending in ((), ("--detach",)):
        words = ("train", "config.toml", "--set", "encoder.name=run:failed", *ending)
        assert "that run is failed" in refusal(capsys, *words)
    failed.update_status(state="running", pid=os.getpid(), process_created=1.0, process_mark="another:1")
    assert "that run is running" in refusal(capsys, "train", "config.toml", "--set", "encoder.name=run:failed")
    queued = report_of(capsys, "train", "config.toml", "--set", "encoder.name=run:failed", "--detach")
    assert report_of(capsys, "queue")["waiting"] == [{"run": queued["run"], "waits_for": "failed"}]


def test_the_queue_is_shown_and_changed(served, capsys):
    for name in "abc":
        launch(served, RunConfig(data=DataConfig(train="pairs.tsv")), name)
    assert [run["run"] for run in report_of(capsys, "queue", "move", "c", "1")["waiting"]] == ["c", "a", "b"]
    assert [run["run"] for run in report_of(capsys, "queue", "move", "a", "9" * 30)["waiting"]] == ["c", "b", "a"]
    assert [run["run"] for run in report_of(capsys, "queue", "move", "b", "3")["waiting"]] == ["c", "a", "b"]
    assert report_of(capsys, "queue", "pause")["paused"]
    assert report_of(capsys, "queue", "slots", "3")["slots"] == 3
    assert report_of(capsys, "queue", "slots", "default")["slots"] == 1
    for undo in ("resume", "unpause"):
        assert not report_of(capsys, "queue", undo)["paused"]
        assert report_of(capsys, "queue", "pause")["paused"]
    assert not report_of(capsys, "queue", "resume")["paused"]
    Queue(served.root).claim("a")
    report = report_of(capsys, "queue")
    assert (report["going"], [run["run"] for run in report["waiting"]]) == (["a"], ["c", "b"])
    assert main(["queue"]) == 0
    assert "   1. c\n   2. b\n" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("jump",), ("move", "a"), ("move", "a", "0"), ("slots", "none"), ("pause", "a")])
def test_an_unknown_change_of_the_queue_is_refused(served, capsys, words):
    assert "unknown change; use one of pause, resume, move RUN POSITION" in refusal(capsys, "queue", *words)


def test_only_a_waiting_run_can_be_moved(served, capsys):
    served.create(RunConfig(data=DataConfig(train="pairs.tsv")), "one").update_status(state="done")
    assert "run one is done; only a waiting run can be moved" in refusal(capsys, "queue", "move", "one", "1")


def test_a_worker_that_keeps_running_ends_cleanly_on_sigterm(folder):
    environment = {**os.environ, "PYTHONPATH": str(Path(supervisor.__file__).parents[2])}
    command = [sys.executable, "-P", "-m", "bsc_core.cli", "worker", "--keep-running", "--json"]
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def holds_lock():
        return (folder / "runs" / "queue.sqlite").exists()

    wait_until(holds_lock, "the worker does not lock the queue")
    worker.send_signal(signal.SIGTERM)
    out, _ = worker.communicate(timeout=PATIENCE_SECONDS)
    assert (worker.returncode, json.loads(out)) == (0, {"runs_taken": 0})


def test_runs_are_listed_although_the_queue_is_locked(served, capsys, monkeypatch):
    launch(served, RunConfig(data=DataConfig(train="pairs.tsv")), "one")
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.05)
    with FileLock(served.root / ".queue.lock", is_singleton=False):
        assert main(["runs"]) == 0
    captured = capsys.readouterr()
    assert captured.out.split()[:2] == ["one", "queued"]
    assert "another process has locked the queue" in captured.err


def test_a_group_is_refused_in_a_distributed_process(folder, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "start each run separately" in refusal(capsys, "sweep", "sweep.toml")
    assert not RunStore().root.exists()


def test_check_creates_no_run(folder, capsys, monkeypatch):
    class Result:
        def as_report(self):
            return {"rows": 24}

    def estimate(config, *, store):
        assert (config.training.batch_size, store.root) == (8, folder / "runs")
        return Result()

    monkeypatch.setattr("bsc_core.preflight.preflight", estimate)
    assert report_of(capsys, "check", "config.toml", "--set", "training.batch_size=8") == {"rows": 24}
    assert not RunStore().root.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "config.toml", "--backend", "ray"), "needs --detach"),
        (("train", "sweep.toml"), "use `bsc sweep sweep.toml`"),
        ((*INVALID_SWEEP, "--dry-run"), "with loss.temperature = -1: loss: temperature is -1"),
        (INVALID_SWEEP, "with loss.temperature = -1: loss: temperature is -1"),
        (("queue", "slots", "0"), "slots is 0; it must be >= 1"),
        (("sweep", "config.toml", "--random", "3"), "nothing to sample"),
        (("sweep", "sweep.toml", "--over", "training.epochs=1,2", "--over", "training.epochs=3,4"), "given 2 times"),
        (("queue", "slots", "9" * 30), "slots is 9"),
        (("stop", "one", "--grace", "nan"), "nan is not between"),
    ],
)
def test_an_unused_or_invalid_option_is_refused(folder, capsys, words, message):
    assert message in report_of(capsys, *words, status=2)["error"]
    assert RunStore().list() == []


def test_an_invalid_runs_folder_is_reported_as_json(folder, capsys):
    result = report_of(capsys, "train", "config.toml", "--runs", str(folder / "config.toml"), status=1)
    assert "Not a directory" in result["error"]


def test_a_damaged_result_hides_no_other_run_and_a_copied_run_has_its_folder_name(folder, capsys):
    store = RunStore()
    config = RunConfig(data=DataConfig(train="pairs.tsv"))
    store.create(config, "copied").write_json("result", {"run": "elsewhere", "folder": "/elsewhere"})
    damaged = store.create(config, "damaged")
    (damaged.folder / "result.json").write_text("{")
    store.create(config, "odd").write_json("result", [1])
    result = {run["run"]: run for run in report_of(capsys, "runs")["runs"]}
    assert set(result) == {"copied", "damaged", "odd"}
    assert result["copied"]["folder"] == str(store.root / "copied")
    assert "result.json is damaged" in result["damaged"]["error"]
    assert "result.json is damaged" in result["odd"]["error"]
    assert report_of(capsys, "runs")["runs"]


def test_a_run_that_could_not_be_queued_is_named(served, capsys, monkeypatch):
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.05)
    with FileLock(served.root / ".queue.lock", is_singleton=False):
        report = report_of(capsys, "train", "config.toml", "--detach", status=1)
    assert report["error"].startswith(f"run {served.list()[0].id} was created but not queued yet")


@pytest.mark.parametrize("option", ["--keep-running", "--keep"])
def test_the_previous_name_of_keep_running_is_accepted(option):
    assert make_parser().parse_args(["worker", option]).keep_running
