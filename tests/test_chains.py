"""Tests of runs that start from the model of another run."""

from __future__ import annotations

import json
import shutil

import pytest

from bsc_core.cli import main
from bsc_core.config import EncoderConfig, RunConfig, make_config, to_toml
from bsc_core.errors import ModelError, RunNotFoundError
from bsc_core.jobs.actions.resuming import continue_run
from bsc_core.jobs.worker import main as perform
from bsc_core.pipeline import run_experiment
from bsc_core.preparation.plan_report import plan_report
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import parent_run_id
from bsc_core.training.callbacks import OnStep
from bsc_core.training.estimate import estimate


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore(tmp_path / "runs")


def after(config: RunConfig, run: Run, **training: object) -> RunConfig:
    """The same config, but from the model of a run, with another loss."""
    values = config.model_dump()
    values["encoder"]["name"] = f"run:{run.id}"
    values["loss"] = {"name": "mse"}
    values["training"] |= training
    return make_config(values)


@pytest.fixture
def parent(small_config, store) -> Run:
    run = store.create(small_config)
    run_experiment(small_config, run)
    run.update_status(state="done")
    return run


def test_the_second_run_starts_where_the_first_one_ended(small_config, store, parent):
    config = after(small_config, parent)
    run = store.create(config)
    result = run_experiment(config, run)
    ended = parent.read_json("result")["metrics"]["after"]["dev"]
    begun = result["metrics"]["before"]["dev"]
    assert {name: begun[name] for name in ended} == pytest.approx(ended)
    assert result["chain"] == {"run": parent.id, "model": str(parent.model_folder)}
    assert f"fine-tuned from run:{parent.id}" in (run.model_folder / "README.md").read_text()
    assert parent.read_json("result")["chain"] is None


def test_a_resumed_run_of_a_chain_does_not_need_the_first_run(small_config, store, parent):
    config = after(small_config, parent, epochs=3)
    whole = run_experiment(config, store.create(config))
    run = store.create(config)
    run_experiment(config, run, callbacks=[OnStep(lambda report: run.request_stop() if report.step == 3 else None)])
    run.update_status(state="stopped")
    following = continue_run(store, run)
    shutil.rmtree(parent.folder)
    assert run_experiment(config, following)["metrics"] == whole["metrics"]


def test_an_estimate_of_a_chain_comes_from_runs_with_the_same_first_encoder(small_config, store, parent):
    from bsc_core.data import load_data

    data = load_data(small_config.data)
    assert parent.id in estimate(after(small_config, parent), data, store).source


@pytest.mark.parametrize("name", ["bundled", "static", "someone/model", "run", "./run:here"])
def test_other_encoder_names_are_not_run_ids(store, name):
    assert parent_run_id(name) is None
    assert store.resolve_encoder(EncoderConfig(name=name)).name == name


def test_a_run_can_start_from_the_model_of_a_stopped_run(store, parent):
    parent.update_status(state="stopped")
    assert store.resolve_encoder(EncoderConfig(name=f"run:{parent.id}")).name == str(parent.model_folder)


def test_the_plan_of_a_chain_is_built_with_the_model_of_the_first_run(small_config, store, parent, tmp_path, capsys):
    config = after(small_config, parent)
    path = tmp_path / "chain.toml"
    path.write_text(to_toml(config), encoding="utf-8")
    assert main(["plan", str(path), "--runs", str(store.root), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    resolved = config.model_copy(update={"encoder": store.resolve_encoder(config.encoder)})
    assert reported["hardest_negative"] == pytest.approx(plan_report(resolved)["hardest_negative"])
    with pytest.raises(ModelError, match="the model of a run can only be resolved in its runs folder"):
        plan_report(config)


def test_a_chain_keeps_the_other_fields_of_the_encoder(store, parent):
    wanted = EncoderConfig(name=f"run:{parent.id}", max_seq_length=24)
    assert store.resolve_encoder(wanted) == EncoderConfig(name=str(parent.model_folder), max_seq_length=24)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("queued", "is queued and has no model yet"),
        ("running", "is running and has no model yet"),
        ("failed", "is failed; start from a run that is done"),
        ("lost", "is lost; start from a run that is done"),
    ],
)
def test_a_chain_to_a_run_that_is_not_done_is_refused_before_training(small_config, store, state, said):
    parent = store.create(small_config)
    parent.update_status(state=state)
    config = after(small_config, parent)
    run = store.create(config)
    with pytest.raises(ModelError, match=f"run:{parent.id}: that run {said}"):
        run_experiment(config, run)
    assert not run.metrics_file.exists()


def test_a_worker_ends_a_run_whose_chain_leads_nowhere_as_refused(small_config, store):
    parent = store.create(small_config)
    parent.update_status(state="failed")
    run = store.create(after(small_config, parent))
    assert perform(run.folder) == 2
    status = run.status()
    assert (status.state, status.exit_code) == ("failed", 2)
    assert (
        status.error == f"run:{parent.id}: that run is failed; start from a run that is done, or resume that one first"
    )


def test_a_chain_to_a_run_without_a_model_or_without_a_folder_is_refused(store, parent):
    wanted = EncoderConfig(name=f"run:{parent.id}")
    shutil.rmtree(parent.model_folder)
    with pytest.raises(ModelError, match="that run has no model"):
        store.resolve_encoder(wanted)
    shutil.rmtree(parent.folder)
    with pytest.raises(RunNotFoundError, match=f"run {parent.id}: not in"):
        store.resolve_encoder(wanted)
