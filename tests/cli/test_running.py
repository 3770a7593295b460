"""`bsc sweep`, `bsc train` with several seeds, `bsc queue` and `bsc worker`."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bsc_core.cli import main
from bsc_core.config import DataConfig, RunConfig, make_config
from bsc_core.jobs import Queue, launch, supervisor
from bsc_core.jobs.identity import wait_until
from bsc_core.jobs.queue import supervisor_lock
from bsc_core.runs import RunStore

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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("BSC_RUNS", raising=False)
    monkeypatch.delenv("BSC_ROOTS", raising=False)
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"question {n} of many\tanswer {n} to it\n" for n in range(24))
    (tmp_path / "pairs.tsv").write_text("query\tdocument\n" + rows)
    (tmp_path / "sweep.toml").write_text(CONFIG)
    (tmp_path / "config.toml").write_text(CONFIG.partition("[sweep")[0])
    return tmp_path


@pytest.fixture
def served(folder: Path) -> Iterator[RunStore]:
    """A runs folder that is served by someone who does nothing, so that what is queued stays queued."""
    store = RunStore()
    store.root.mkdir()
    with supervisor_lock(store.root):
        yield store


def report_of(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    found = main([*words, "--json"])
    captured = capsys.readouterr()
    assert found == status, captured.err
    report: dict[str, Any] = json.loads(captured.out)
    return report


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    report = report_of(capsys, *words, status=2)
    assert set(report) == {"error"}
    return str(report["error"])


def test_a_sweep_performs_every_setting_with_every_seed_and_sums_them_up(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(capsys, "sweep", "sweep.toml", "--set", "training.seeds=[1,2]")
    assert [run["state"] for run in report["runs"]] == ["done"] * 4
    summary = report["summary"]
    assert (summary["group"], summary["done"], summary["keys"]) == (report["group"], 4, ["loss.temperature"])
    assert sorted(one["setting"]["loss.temperature"] for one in summary["settings"]) == [0.05, 0.1]
    assert [one["seeds"] for one in summary["settings"]] == [[1, 2], [1, 2]]
    stored = [run.config() for run in RunStore().list()]
    assert sorted((config.loss.temperature, config.training.seed) for config in stored) == [  # type: ignore[union-attr]
        (0.05, 1),
        (0.05, 2),
        (0.1, 1),
        (0.1, 2),
    ]


def test_training_with_seeds_is_a_group_of_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "config.toml", "--set", "training.seeds=[1,2]"]) == 0
    told = capsys.readouterr()
    assert "all: mean " in told.out
    assert [run.config().training.seeds for run in RunStore().list()] == [(), ()]


def test_a_group_ends_with_the_run_that_is_stopped(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(config: RunConfig, run: Any, on_report: Any) -> dict[str, Any]:
        signal.raise_signal(signal.SIGINT)
        assert run.stop_requested()
        return {"state": "stopped"}

    monkeypatch.setattr("bsc_core.pipeline.run_experiment", interrupted)
    report = report_of(capsys, "sweep", "sweep.toml", status=1)
    assert [run["state"] for run in report["runs"]] == ["stopped"]


def test_the_number_of_runs_is_said_before_one_is_made(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(capsys, "sweep", "sweep.toml", "--over", "training.batch_size=4,8,16", "--dry-run")
    assert (report["number_of_runs"], report["checked"]) == (6, True)
    many = f"training.batch_size={','.join(map(str, range(2, 102)))}"
    report = report_of(capsys, "sweep", "sweep.toml", "--over", many, "--dry-run")
    assert (report["number_of_runs"], report["checked"]) == (200, False)
    assert not RunStore().root.exists()
    assert "with loss.temperature = -1: loss: temperature is -1" in refusal(
        capsys, "sweep", "sweep.toml", "--over", "loss.temperature=0.1,-1", "--dry-run"
    )


def test_a_sweep_of_many_runs_asks_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = ",".join(map(str, range(2, 102)))
    seeds = ",".join(map(str, range(50)))
    words = ("sweep", "sweep.toml", "--over", f"training.batch_size={values}", "--set", f"training.seeds=[{seeds}]")
    assert "this sweep is 10,000 runs; add --yes to make them" in refusal(capsys, *words)
    assert not RunStore().root.exists()


def test_a_detached_sweep_is_a_group_in_the_queue(served: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    report = report_of(capsys, "sweep", "sweep.toml", "--over", "training.epochs=1,2", "--random", "3", "--detach")
    names = [run["run"] for run in report["runs"]]
    assert names == [f"{report['group']}-00{number}" for number in (1, 2, 3)] == Queue(served.root).waiting()
    assert {run.status().group for run in served.list()} == {report["group"]}


def test_a_setting_that_cannot_work_is_refused_before_a_run_is_made(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "with loss.temperature = -1: loss: temperature is -1" in refusal(
        capsys, "sweep", "sweep.toml", "--over", "loss.temperature=0.1,-1"
    )
    assert not RunStore().root.exists()


def test_one_run_is_not_made_from_a_sweep(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "use `bsc sweep sweep.toml`" in refusal(capsys, "train", "sweep.toml")


def test_a_chain_to_a_run_that_left_no_model_is_refused(
    served: RunStore, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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


def test_the_queue_is_shown_and_changed(served: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    for name in "abc":
        launch(served, RunConfig(data=DataConfig(train="pairs.tsv")), name)
    assert [run["run"] for run in report_of(capsys, "queue", "move", "c", "1")["waiting"]] == ["c", "a", "b"]
    assert report_of(capsys, "queue", "pause")["paused"]
    assert report_of(capsys, "queue", "slots", "3")["slots"] == 3
    assert report_of(capsys, "queue", "slots", "default")["slots"] == 1
    assert not report_of(capsys, "queue", "unpause")["paused"]
    Queue(served.root).claim("a")
    report = report_of(capsys, "queue")
    assert (report["going"], [run["run"] for run in report["waiting"]]) == (["a"], ["c", "b"])
    assert main(["queue"]) == 0
    assert "   1. c\n   2. b\n" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("jump",), ("move", "a"), ("move", "a", "0"), ("slots", "none"), ("pause", "a")])
def test_a_change_of_the_queue_that_is_none_is_refused(
    served: RunStore, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert "it must be one of pause, unpause, move RUN PLACE" in refusal(capsys, "queue", *words)


def test_only_a_waiting_run_is_moved(served: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    served.create(RunConfig(data=DataConfig(train="pairs.tsv")), "one").update_status(state="done")
    assert "run one is done; only a run that waits" in refusal(capsys, "queue", "move", "one", "1")


def test_no_slots_are_refused(served: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert "slots is 0; it must be >= 1" in refusal(capsys, "queue", "slots", "0")


def test_a_worker_that_keeps_serving_ends_cleanly_on_sigterm(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(supervisor.__file__).parents[2])}
    command = [sys.executable, "-P", "-m", "bsc_core.cli", "worker", "--keep", "--json"]
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def holds_lock() -> bool:
        return (folder / "runs" / "queue.sqlite").exists()

    assert wait_until(holds_lock, 60)
    worker.send_signal(signal.SIGTERM)
    out, _ = worker.communicate(timeout=60)
    assert (worker.returncode, json.loads(out)) == (0, {"runs_taken": 0})


def test_runs_are_listed_though_the_queue_does_not_answer(
    served: RunStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(served, RunConfig(data=DataConfig(train="pairs.tsv")), "one")
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.05)
    with FileLock(served.root / ".queue.lock", is_singleton=False):
        assert main(["runs"]) == 0
    captured = capsys.readouterr()
    assert captured.out.split()[:2] == ["one", "queued"]
    assert "another process holds the queue" in captured.err


def test_a_group_is_not_made_by_several_processes_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "start each run by itself" in refusal(capsys, "sweep", "sweep.toml")
    assert not RunStore().root.exists()


def test_a_run_is_checked_without_being_made(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told:
        def as_report(self) -> dict[str, Any]:
            return {"rows": 24}

    def look(config: RunConfig, *, store: RunStore) -> Told:
        assert (config.training.batch_size, store.root) == (8, folder / "runs")
        return Told()

    monkeypatch.setattr("bsc_core.preflight.preflight", look)
    assert report_of(capsys, "check", "config.toml", "--set", "training.batch_size=8") == {"rows": 24}
    assert not RunStore().root.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "config.toml", "--backend", "ray"), "add --detach"),
        (("sweep", "config.toml", "--random", "3"), "nothing to draw from"),
        (("sweep", "sweep.toml", "--over", "training.epochs=1,2", "--over", "training.epochs=3,4"), "given 2 times"),
        (("queue", "slots", "9" * 30), "slots is 9"),
        (("stop", "one", "--grace", "nan"), "nan is not between"),
    ],
)
def test_an_option_that_would_be_passed_over_or_cannot_work_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert said in report_of(capsys, *words, status=2)["error"]
    assert RunStore().list() == []


def test_a_place_far_behind_the_last_is_the_last(served: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "two"):
        launch(served, RunConfig(data=DataConfig(train="pairs.tsv")), name)
    found = report_of(capsys, "queue", "move", "one", "9" * 30)
    assert [run["run"] for run in found["waiting"]] == ["two", "one"]


def test_a_runs_folder_that_cannot_be_is_one_json_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report_of(capsys, "train", "config.toml", "--runs", str(folder / "config.toml"), status=1)
    assert "Not a directory" in found["error"]


def test_a_damaged_result_hides_no_other_run_and_a_copied_run_has_its_own_name(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RunStore()
    config = RunConfig(data=DataConfig(train="pairs.tsv"))
    store.create(config, "copied").write_json("result", {"run": "elsewhere", "folder": "/elsewhere"})
    damaged = store.create(config, "damaged")
    (damaged.folder / "result.json").write_text("{")
    store.create(config, "odd").write_json("result", [1])
    found = {run["run"]: run for run in report_of(capsys, "runs")["runs"]}
    assert set(found) == {"copied", "damaged", "odd"}
    assert found["copied"]["folder"] == str(store.root / "copied")
    assert "result.json is damaged" in found["damaged"]["error"]
    assert "result.json is damaged" in found["odd"]["error"]
    assert report_of(capsys, "runs")["runs"]


def test_a_queue_that_does_not_answer_keeps_the_run_and_its_name_is_told(
    served: RunStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.05)
    with FileLock(served.root / ".queue.lock", is_singleton=False):
        report = report_of(capsys, "train", "config.toml", "--detach", status=1)
    assert report["error"].startswith(f"run {served.list()[0].id} is kept but not queued yet")
