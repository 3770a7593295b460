"""Runs, config files, presets and links of the version before config keys were renamed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from bsc_core.batching import BatchPlan
from bsc_core.config import LossConfig, RunConfig, expand_seeds, make_config, read_config, read_sweep, sweep_configs
from bsc_core.jobs.actions.resuming import can_resume, continue_run
from bsc_core.jobs.worker import main as execute
from bsc_core.lab.link import read_link
from bsc_core.presets.catalog import PRESETS
from bsc_core.run_results import compare_runs, run_intervals
from bsc_core.runs import RunStore
from bsc_core.runs.documents import PREVIOUS_NAMES
from pages.ui.components.navigation import PARAMETERS

FIXTURE = Path(__file__).parent / "fixtures" / "previous_version"
STATES = {
    "20261101-100000-finished-0001": "done",
    "20261101-110000-stopped-static-0002": "stopped",
    "20261101-120000-stopped-bert-0003": "stopped",
    "20261101-130000-sweep-0004-001": "done",
    "20261101-130000-sweep-0004-002": "done",
}
STOPPED = [run_id for run_id, state in STATES.items() if state == "stopped"]
TOLERANCE = 1e-4
# Old names in the stored expectations, with the current ones.
NAMES = {"labelled_negatives": "labeled_negatives"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the fixture as the working folder, to which its paths are relative."""
    copy = tmp_path / "previous"
    shutil.copytree(FIXTURE, copy)
    monkeypatch.chdir(copy)
    monkeypatch.setenv("BSC_ROOTS", str(copy))
    return copy


@pytest.fixture
def store(folder: Path) -> RunStore:
    return RunStore(folder / "runs")


def expected(name: str) -> Any:
    return json.loads((FIXTURE / f"{name}.json").read_text(encoding="utf-8"))


def deprecations(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "bsc_core.config"]


def assert_close(value: Any, reference: Any, path: str = "") -> None:
    """Compare nested values; numbers within the tolerance, keys that the reference lacks are ignored."""
    if isinstance(reference, Mapping):
        for key, item in reference.items():
            assert_close(value[key], item, f"{path}.{key}")
    elif isinstance(reference, list):
        assert len(value) == len(reference), path
        for number, item in enumerate(reference):
            assert_close(value[number], item, f"{path}.{number}")
    elif isinstance(reference, float):
        assert value == pytest.approx(reference, abs=TOLERANCE), path
    else:
        assert value == reference, path


def test_old_runs_are_listed_with_their_configs_and_no_deprecation(
    store: RunStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    runs = {run.id: run for run in store.list()}
    assert {run_id: run.status().state for run_id, run in runs.items()} == STATES
    configs = {run_id: run.config() for run_id, run in runs.items()}
    assert configs["20261101-110000-stopped-static-0002"].training.gradient_accumulation_steps == 2
    assert configs["20261101-110000-stopped-static-0002"].batching.no_duplicates
    assert configs["20261101-130000-sweep-0004-002"].loss.temperature == 0.1
    assert configs["20261101-100000-finished-0001"].training.max_steps == 12
    assert deprecations(caplog) == []


def test_the_plans_metrics_and_models_of_old_runs_are_read(store: RunStore) -> None:
    for run in store.list():
        plan = BatchPlan.load(run.plans_folder / "epoch-001.npz")
        assert sum(map(len, plan.batches(run.config().training.batch_size))) > 0
        assert run.read_json("evaluation/before")["dev"]
        assert run.metrics()[0]
        for name, previous in PREVIOUS_NAMES.items():
            assert run.read_json(name) == run.read_json(previous) != None  # noqa: E711
        if run.status().state == "done":
            assert run.model_folder.is_dir()


def test_comparisons_of_old_runs_are_unchanged(store: RunStore) -> None:
    reference = expected("expected/compared")
    for item in reference["comparisons"]:
        result = asdict(compare_runs([store.get(item["first"])], [store.get(item["second"])], item["metric"]))
        assert result.pop("method").replace("resamples", "draws") == item["result"].pop("method")  # reworded
        assert_close(json.loads(json.dumps(result)), item["result"], item["metric"])
    for run_id, intervals in reference["intervals"].items():
        found = {name: asdict(interval) for name, interval in run_intervals(store.get(run_id)).items()}
        assert_close(found, intervals, run_id)


@pytest.mark.parametrize("run_id", STOPPED)
def test_a_stopped_old_run_resumes_to_the_stored_metrics(store: RunStore, run_id: str) -> None:
    reference = expected("expected/resumed")[run_id]
    run = store.get(run_id)
    assert can_resume(run)
    resumed = continue_run(store, run)
    assert execute(resumed.folder) == 0, resumed.log_tail()
    status = resumed.status()
    assert (status.state, status.step, status.epoch) == (reference["state"], reference["step"], reference["epoch"])
    assert_close(resumed.read_json("result")["metrics"], reference["metrics"])
    steps = [line for line in resumed.metrics()[0] if line["kind"] == "step"]
    assert_close(steps, reference["steps"])


def test_the_old_config_files_are_read_with_one_deprecation_line(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reference = expected("expected/configs")
    for name in ("every_key", "finished", "stopped_static", "stopped_bert"):
        caplog.clear()
        path = folder / "configs" / f"{name}.toml"
        config = read_config(path)
        assert len(deprecations(caplog)) == 1
        configs = [relative(RunConfig.model_validate(values), folder) for values in reference[name]]
        assert expand_seeds(config) == configs


def test_the_old_sweep_file_is_read(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / "configs" / "sweep.toml"
    values, sweep = read_sweep(path)
    configs = sweep_configs(values, sweep, source=str(path))
    assert len(deprecations(caplog)) == 1
    assert [config.loss.temperature for config in configs] == [0.05, 0.1]
    assert configs[0].data.filters == ("drop_duplicates", "drop_self_pairs")


def test_the_old_loss_sections_are_read() -> None:
    adapter = TypeAdapter(LossConfig)
    for name, section in expected("configs/every_loss").items():
        loss = adapter.validate_python(section)
        assert loss.name == name
        current = loss.model_dump(mode="json")
        assert {NAMES.get(key, key) for key in section} <= current.keys()


def test_the_old_presets_exist_and_their_values_are_valid() -> None:
    for name, preset in expected("presets").items():
        assert name in PRESETS
        make_config({"data": {"train": "pairs.tsv"}, **preset["values"]})


@pytest.mark.parametrize("item", expected("links/lab"), ids=lambda item: item["link"][:40])
def test_an_old_link_of_the_loss_lab_is_read(item: dict[str, Any]) -> None:
    state, faults = read_link({PARAMETERS.get(name, name): value for name, value in item["query"].items()})
    result = json.loads(json.dumps(asdict(state)))
    assert_close(result, renamed(item["state"]))
    assert len(faults) == len(item.get("faults", []))


def renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {NAMES.get(key, key): renamed(item) for key, item in value.items()}
    return value


def relative(config: RunConfig, folder: Path) -> RunConfig:
    """Return a config of the expectations with its paths absolute in the copy."""
    values = config.model_dump()
    for key in ("train", "dev", "test", "corpus", "false_negatives"):
        if values["data"][key] and not values["data"][key].startswith("hf://"):
            values["data"][key] = str(folder / values["data"][key])
    values["data"]["mix"] = [str(folder / path) for path in values["data"]["mix"]]
    if (folder / values["encoder"]["name"]).is_dir():
        values["encoder"]["name"] = str(folder / values["encoder"]["name"])
    return RunConfig.model_validate(values)


@pytest.mark.parametrize("command", [("plan",), ("train", "--runs", "new-runs")])
def test_the_command_line_takes_an_old_config_file(folder: Path, command: tuple[str, ...]) -> None:
    name, *options = command
    arguments = [sys.executable, "-m", "bsc_core.cli", name, "configs/finished.toml", *options, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    report = json.loads(done.stdout)
    assert report["state"] == "done" if name == "train" else report
    assert done.stderr.count("deprecated config keys") == 1
