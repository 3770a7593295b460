"""Tests of resumed runs: their earlier results, and checkpoints that are damaged or of another run."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bsc_core.batching import BatchPlan
from bsc_core.config import RunConfig, make_config
from bsc_core.data.generation.negatives import row_negatives, with_negatives
from bsc_core.errors import TrainingError
from bsc_core.jobs.actions.resuming import continue_run
from bsc_core.pipeline import load_training_data, run_experiment
from bsc_core.runs import Run, RunStore
from bsc_core.runs.store import EPOCH_TEXTS, epoch_array, saved_epochs
from bsc_core.training.callbacks import Callback, OnStep
from bsc_core.training.checkpoint import checkpoints, last_checkpoint, save_checkpoint


def trained(config: RunConfig, **training: object) -> RunConfig:
    values = config.model_dump()
    return make_config({**values, "training": {**values["training"], **training}})


def interrupted(config: RunConfig, folder, step: int) -> Run:
    """A run whose process ended right after this step."""

    def end(report):
        if report.step == step:
            raise InterruptedError

    run = RunStore(folder).create(config)
    with pytest.raises(InterruptedError):
        run_experiment(config, run, callbacks=[OnStep(end)])
    run.update_status(state="lost")
    return run


def test_a_resumed_run_knows_the_best_epoch_of_its_checkpoint(small_config, tmp_path, monkeypatch):
    values = iter([0.1, 0.6, 0.5, 0.5, 0.4, 0.3])  # before, of epoch 1, on resuming, ...
    monkeypatch.setattr("bsc_core.evaluation.evaluator.main_metric", lambda metrics, name: ("mrr", next(values)))
    config = trained(small_config, epochs=3)
    following = continue_run(RunStore(tmp_path), interrupted(config, tmp_path, 6))
    result = run_experiment(config, following)
    assert result["best_epoch"] == 1
    assert following.status().metric_best == 0.6


def test_a_model_saved_right_before_the_kill_is_the_best_of_the_resumed_run(small_config, tmp_path, monkeypatch):
    values = iter([0.1, 0.5, 0.6, 0.6, 0.6])  # before, of epoch 1, of epoch 2, on resuming, ...
    monkeypatch.setattr("bsc_core.evaluation.evaluator.main_metric", lambda metrics, name: ("mrr", next(values)))
    saved = []

    def save_or_be_killed(*args, **kwargs):
        saved.append(args)
        if len(saved) == 2:
            raise InterruptedError
        return save_checkpoint(*args, **kwargs)

    config = trained(small_config, epochs=3, learning_rate=1e-2)
    run = RunStore(tmp_path).create(config)
    with monkeypatch.context() as patch:
        patch.setattr("bsc_core.training.callbacks.save_checkpoint", save_or_be_killed)
        with pytest.raises(InterruptedError):
            run_experiment(config, run)
    run.update_status(state="lost")
    following = continue_run(RunStore(tmp_path), run)
    result = run_experiment(config, following, callbacks=[OnStep(lambda report: following.request_stop())])
    assert result["state"] == "stopped"
    assert result["best_epoch"] == 2
    assert following.read_json("evaluation/after") == run.read_json("evaluation/epoch-002")
    assert np.array_equal(following.array("embeddings_after"), run.array("embeddings_after"))


def test_a_model_saved_by_a_stop_within_an_epoch_is_not_that_of_the_epoch(small_config, tmp_path, monkeypatch):
    def killed(*args, **kwargs):
        raise InterruptedError

    config = trained(small_config, save_steps=1, save_total_limit=9, learning_rate=1e-2)
    store = RunStore(tmp_path)
    whole, run = store.create(config), store.create(config)
    run_experiment(config, whole)
    with monkeypatch.context() as patch:
        patch.setattr("bsc_core.training.callbacks.save_model", killed)  # when the epoch is measured
        with pytest.raises(InterruptedError):
            run_experiment(config, run)
    assert run.read_json("evaluation/epoch-001") is not None
    run.update_status(state="lost")
    for later in checkpoints(run.checkpoints_folder)[1:]:
        shutil.rmtree(later)
    stopped = continue_run(store, run)
    run_experiment(config, stopped, callbacks=[OnStep(lambda report: stopped.request_stop())])
    assert [line["step"] for line in stopped.metrics()[0] if line["kind"] == "step"] == [1, 2]
    stopped.update_status(state="stopped")
    following = continue_run(store, stopped)
    assert run_experiment(config, following)["metrics"] == whole.read_json("result")["metrics"]
    models = [load_file(run.model_folder / "model.safetensors") for run in (whole, following)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_a_resumed_run_retains_the_vectors_of_the_epochs_before_its_checkpoint(small_config, tmp_path):
    config = trained(small_config, epochs=3)
    whole = RunStore(tmp_path).create(config)
    run_experiment(config, whole)
    per_epoch = whole.status().steps // 3
    following = continue_run(RunStore(tmp_path), interrupted(config, tmp_path, 2 * per_epoch + 1))
    run_experiment(config, following)
    assert saved_epochs(following) == [1, 2, 3]
    for name in (EPOCH_TEXTS, *map(epoch_array, (1, 2, 3))):
        assert np.array_equal(following.array(name), whole.array(name))


def test_a_resumed_run_trains_on_the_negatives_that_were_mined(small_config, small_pairs, tmp_path):
    pairs = [json.loads(line) for line in small_pairs.read_text(encoding="utf-8").splitlines()]
    positives, corpus = tmp_path / "positives.jsonl", tmp_path / "corpus.jsonl"
    positives.write_text("\n".join(json.dumps(pair) for pair in pairs if pair["label"] == 1), encoding="utf-8")
    corpus.write_text("\n".join(json.dumps({"document": pair["document"]}) for pair in pairs), encoding="utf-8")
    negatives = {
        "method": "hardest",
        "encoder": small_config.encoder.name,
        "count": 2,
        "margin": 0,
        "refresh_epochs": 1,
    }
    data = {"train": str(positives), "corpus": str(corpus), "dev_size": 0.3, "negatives": negatives}
    config = trained(
        make_config({**small_config.model_dump(), "data": data}), epochs=3, save_steps=1, learning_rate=3e-2
    )
    whole = RunStore(tmp_path).create(config)
    run_experiment(config, whole)
    rows = load_training_data(config).train
    mined = [row_negatives(rows), *(whole.mined_negatives(epoch) for epoch in (2, 3))]
    assert whole.mined_negatives(1) is None
    assert any(not np.array_equal(first, second) for first, second in pairwise(mined))
    for after in mined[1:]:
        assert np.array_equal(after < 0, rows.positive)
        known = np.stack([rows.query, rows.document], axis=1)[rows.positive]
        assert not with_negatives(rows, after).has_pair(known)[~rows.positive].any()
    following = continue_run(RunStore(tmp_path), interrupted(config, tmp_path, whole.status().steps // 3 + 2))
    run_experiment(config, following)
    for epoch in (2, 3):
        assert np.array_equal(following.mined_negatives(epoch), whole.mined_negatives(epoch))
        plans = [BatchPlan.load(run.plan_file(epoch)).order for run in (whole, following)]
        assert np.array_equal(*plans)
    models = [load_file(run.model_folder / "model.safetensors") for run in (whole, following)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_a_run_that_is_resumed_after_its_last_step_has_the_status_of_its_end(small_config, tmp_path):
    config = trained(small_config, epochs=2)
    run = RunStore(tmp_path).create(config)
    run_experiment(config, run)
    run.update_status(state="lost")
    following = continue_run(RunStore(tmp_path), run)
    run_experiment(config, following)
    names = ("step", "steps", "epoch", "epochs", "metric_name", "metric_best")
    assert [getattr(following.status(), name) for name in names] == [getattr(run.status(), name) for name in names]


def test_a_stop_does_not_replace_the_last_good_checkpoint_by_a_broken_model(small_config, tmp_path):
    config = trained(small_config, save_steps=2, save_total_limit=1)
    run = RunStore(tmp_path).create(config)

    class BreakAndStop(Callback):
        def on_step_end(self, trainer, report):
            if report.step == 3:
                next(parameter for _, parameter in trainer.forward.named_parameters()).data.fill_(torch.nan)
                trainer.forward.weights_changed()
                run.request_stop()

    with pytest.raises(TrainingError, match="step 3: the encoder's weights or vectors are not finite"):
        run_experiment(config, run, [BreakAndStop()])
    assert [path.name for path in checkpoints(run.checkpoints_folder)] == ["step-000002"]


def test_a_damaged_later_checkpoint_does_not_delete_the_one_just_written(small_config, tmp_path):
    config = trained(small_config, save_steps=2, save_total_limit=1)
    run = interrupted(config, tmp_path, 3)
    shutil.copytree(run.checkpoints_folder / "step-000002", run.checkpoints_folder / "step-000009")
    (run.checkpoints_folder / "step-000009" / "state.pt").write_bytes(b"damaged")
    following = continue_run(RunStore(tmp_path), run)
    run_experiment(config, following)
    assert last_checkpoint(following.checkpoints_folder).last


def test_incomplete_files_of_a_killed_process_are_deleted_when_the_run_is_resumed(small_config, tmp_path):
    run = interrupted(trained(small_config, save_steps=2), tmp_path, 3)
    scratch = [run.checkpoints_folder / ".step-000004.17", run.folder / ".model-x1"]
    for folder in scratch:
        (folder / "new").mkdir(parents=True)
    following = continue_run(RunStore(tmp_path), run)
    assert not any(folder.exists() for folder in scratch)
    left = following.checkpoints_folder / ".step-000004.18"
    left.mkdir()
    run_experiment(following.config(), following)
    assert not left.exists()


def test_checkpoints_are_in_the_order_of_their_steps_beyond_a_million(tmp_path):
    for step in (1_000_000, 999_999, 3):
        folder = tmp_path / f"step-{step:06d}"
        folder.mkdir()
        (folder / "progress.json").write_text("{}")
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000003", "step-999999", "step-1000000"]


def test_a_checkpoint_whose_optimizer_trained_other_parameters_is_refused_in_one_sentence(
    small_config, tmp_path, monkeypatch
):
    config = trained(small_config, save_steps=1)
    following = continue_run(RunStore(tmp_path), interrupted(config, tmp_path, 3))
    monkeypatch.setattr("bsc_core.encoders.forward.is_packable", lambda model: False)  # as on another device
    with pytest.raises(TrainingError, match=r"optimizer state of the checkpoint does not match .*; resume"):
        run_experiment(config, following)


@pytest.mark.parametrize("rate", [1e-4, 1e-2], ids=["settled", "moving"])
def test_a_resumed_run_groups_texts_as_an_uninterrupted_one(small_config, tmp_path, rate):
    values = trained(small_config, epochs=4, learning_rate=rate).model_dump()
    batching = {"strategy": "nearest", "group_size": 4}
    config = make_config({**values, "batching": batching, "evaluation": {"each_epoch": False}})
    whole = RunStore(tmp_path / "whole").create(config)
    run_experiment(config, whole)
    steps = [line["step"] for line in whole.metrics()[0] if line["kind"] == "step"]
    broken = interrupted(config, tmp_path, steps[-1] * 3 // 4 + 1)  # in the last epoch
    following = continue_run(RunStore(tmp_path), broken)
    run_experiment(config, following)
    plans = [sorted(run.plans_folder.glob("epoch-*.npz")) for run in (whole, following)]
    assert len(plans[0]) == len(plans[1]) == 4
    for one, other in zip(*plans, strict=True):
        assert np.array_equal(BatchPlan.load(one).order, BatchPlan.load(other).order)
    vectors = [run.array("embeddings_after") for run in (whole, following)]
    assert np.array_equal(*vectors)
