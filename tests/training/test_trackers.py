"""Trackers: reported values, a missing tracker, and one that fails."""

from __future__ import annotations

import pytest

from bsc_core.errors import ConfigError
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run, RunStore
from bsc_core.training.trackers import Trackers
from tests.helpers.configs import with_changes


def reporting(config, *names: str):
    return with_changes(config, training={"report_to": names, "epochs": 2})


def scalars(run: Run) -> dict[str, list[tuple[int, float]]]:
    """Return the content of TensorBoard's files of a run: (step, value) by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (folder,) = {path.parent for path in (run.folder / "trackers").rglob("events.out.tfevents.*")}
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_gets_every_step_and_evaluation(small_config, tmp_path):
    config = reporting(small_config, "tensorboard")
    run = RunStore(tmp_path).create(config)
    run_experiment(config, run)
    reported, lines = scalars(run), run.metrics()[0]
    steps = [line for line in lines if line["kind"] == "step"]
    for name in ("loss", "temperature", "learning_rate", "grad_norm", "tokens_per_second", "hardness", "memory_bytes"):
        expected = [(line["step"], pytest.approx(line[name], rel=1e-5)) for line in steps if line[name] is not None]
        assert reported[f"train/{name}"] == expected, name
    evaluations = [line for line in lines if line["kind"] == "evaluation"]
    ends = [0, *(max(line["step"] for line in steps if line["epoch"] == epoch) for epoch in (1, 2))]
    assert reported["dev/mrr"] == [
        (step, pytest.approx(line["dev"]["mrr"], rel=1e-5)) for step, line in zip(ends, evaluations, strict=True)
    ]


def test_a_tracker_that_is_not_installed_is_refused_before_any_work(small_config, tmp_path, monkeypatch):
    monkeypatch.setattr("bsc_core.training.trackers.find_spec", lambda name: None)
    config = reporting(small_config, "wandb")
    run = RunStore(tmp_path).create(config)
    with pytest.raises(ConfigError, match=r"report_to names wandb, which is not installed; run pip install wandb"):
        run_experiment(config, run)
    assert run.status().message == ""


class Fake:
    """A tracker that stores reported values and fails at one step."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at, self.reported, self.closed = fails_at, [], False

    def log(self, values, step) -> None:
        if step == self.fails_at:
            raise ConnectionError("the server is away\nand more")
        self.reported.append((step, values))

    def finish(self) -> None:
        self.closed = True


@pytest.fixture
def fakes(monkeypatch) -> dict[str, Fake]:
    trackers = {"mlflow": Fake(), "wandb": Fake(fails_at=2)}
    monkeypatch.setattr("bsc_core.training.trackers.check_trackers", lambda names: None)
    monkeypatch.setattr("bsc_core.training.trackers._start", lambda name, *_: trackers[name])
    return trackers


def test_a_tracker_that_fails_is_reported_once_and_the_others_continue(fakes, tmp_path, capsys):
    trackers = Trackers(["mlflow", "wandb"], tmp_path, run_id="one", settings={})
    for step in (1, 2, 3):
        trackers.log({"loss": 0.5, "hardness": None}, step)
    trackers.finish()
    assert fakes["mlflow"].reported == [(step, {"loss": 0.5}) for step in (1, 2, 3)]
    assert fakes["mlflow"].closed
    assert [step for step, _ in fakes["wandb"].reported] == [1]
    assert capsys.readouterr().err.splitlines() == [
        "Note: reporting to wandb failed (the server is away); the run continues without it"
    ]


def test_a_tracker_that_cannot_be_started_is_refused_and_the_others_are_closed(fakes, tmp_path, monkeypatch):
    def start(name, *_):
        if name == "wandb":
            raise ConnectionError("no such server")
        return fakes[name]

    monkeypatch.setattr("bsc_core.training.trackers._start", start)
    with pytest.raises(ConfigError, match=r"wandb could not be started \(no such server\)"):
        Trackers(["mlflow", "wandb"], tmp_path, run_id="one", settings={})
    assert fakes["mlflow"].closed


def test_without_trackers_no_folder_is_created(tmp_path):
    Trackers([], tmp_path / "trackers", run_id="one", settings={}).finish()
    assert not (tmp_path / "trackers").exists()
