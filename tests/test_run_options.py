"""Tests of run options: length, checkpoints, low-rank matrices, compilation, and refused values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from bsc_core.config import RunConfig, make_config
from bsc_core.errors import ConfigError, TrainingError
from bsc_core.jobs.actions.resuming import continue_run
from bsc_core.pipeline import load_training_data, run_experiment
from bsc_core.runs import Run, RunStore
from bsc_core.training.callbacks import Callback, OnStep
from bsc_core.training.checkpoint import PREVIOUS_FINGERPRINT, checkpoints, fingerprint, last_checkpoint
from tests.helpers.configs import with_changes


def conduct(config: RunConfig, folder, **options) -> tuple[dict, Run]:
    run = RunStore(folder).create(config)
    return run_experiment(config, run, **options), run


def lines(run: Run, kind: str) -> list[dict]:
    return [line for line in run.metrics()[0] if line["kind"] == kind]


def weights(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.model_folder / "model.safetensors")


def test_max_steps_ends_the_run_with_an_evaluated_model(small_config, tmp_path):
    result, run = conduct(with_changes(small_config, training={"max_steps": 5}), tmp_path)
    assert [line["step"] for line in lines(run, "step")] == [1, 2, 3, 4, 5]
    assert run.status().steps == 5
    assert lines(run, "evaluation")[-1]["epoch"] == 2
    assert result["metrics"]["after"]["dev"]


def test_every_step_logs_what_the_curves_show(small_config, tmp_path):
    _, run = conduct(with_changes(small_config, loss={"learn_temperature": True}), tmp_path)
    for line in lines(run, "step"):
        for name in ("loss", "temperature", "learning_rate", "grad_norm", "tokens_per_second", "memory_bytes"):
            assert line[name] >= 0, name
        assert line["recomputed"] == 0
    hardness = [line["hardness"] for line in lines(run, "step") if line["hardness"] is not None]
    assert hardness
    assert all(-2 <= value <= 2 for value in hardness)


def worsening(monkeypatch, best: int) -> list[int]:
    """Let the dev metric rise up to the epoch `best` and fall after it. Returns the epochs that were measured."""
    measured: list[int] = []

    def metric(metrics, name):
        measured.append(len(measured))
        epoch = measured[-1]
        return "mrr", 0.5 + (epoch if epoch <= best else best - epoch) / 100

    monkeypatch.setattr("bsc_core.evaluation.evaluator.main_metric", metric)
    return measured


@pytest.mark.parametrize(("best", "patience", "last"), [(1, 1, 2), (1, 3, 4), (3, 2, 5)])
def test_training_ends_after_the_patience_without_a_better_epoch(
    small_config, tmp_path, monkeypatch, best, patience, last
):
    worsening(monkeypatch, best)
    result, run = conduct(
        with_changes(small_config, training={"epochs": 9, "early_stopping_patience": patience}), tmp_path
    )
    assert result["state"] == "done"
    assert result["best_epoch"] == best
    assert [line["epoch"] for line in lines(run, "evaluation")] == list(range(last + 1))
    assert run.status().progress == 1.0
    assert result["metrics"]["after"] == run.read_json(f"evaluation/epoch-{best:03d}")


def test_a_run_that_stopped_early_trains_no_further_when_it_is_resumed(small_config, tmp_path, monkeypatch):
    worsening(monkeypatch, 1)
    config = with_changes(small_config, training={"epochs": 9, "early_stopping_patience": 2})
    result, run = conduct(config, tmp_path)
    run.update_status(state="lost")
    following = continue_run(RunStore(tmp_path), run)
    again = run_experiment(config, following)
    assert (again["state"], again["best_epoch"], again["metrics"]) == ("done", 1, result["metrics"])
    assert len(lines(following, "step")) == len(lines(run, "step"))


def test_early_stopping_without_evaluations_is_refused(small_config, tmp_path):
    config = with_changes(small_config, training={"early_stopping_patience": 1}, evaluation={"each_epoch": False})
    with pytest.raises(ConfigError, match=r"early_stopping_patience is 1 and evaluation\.each_epoch is false"):
        conduct(config, tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_save_total_limit_checkpoints_remain(small_config, tmp_path, kept):
    config = with_changes(small_config, training={"max_steps": 6, "save_steps": 1, "save_total_limit": kept})
    _, run = conduct(config, tmp_path)
    assert [path.name for path in checkpoints(run.checkpoints_folder)] == [
        f"step-{step:06d}" for step in range(7 - kept, 7)
    ]


def test_several_seeds_are_refused_by_a_single_run(small_config, tmp_path):
    with pytest.raises(ConfigError, match=r"training.seeds is \[1, 2\], and a run has one seed; .*bsc sweep"):
        conduct(with_changes(small_config, training={"seeds": (1, 2)}), tmp_path)


def test_low_rank_training_leaves_a_plain_model_that_gives_the_reported_vectors(small_config, tmp_path, tiny_encoder):
    config = with_changes(
        small_config, encoder={"lora": {"rank": 4, "alpha": 16.0, "dropout": 0.1}}, training={"epochs": 2}
    )
    result, run = conduct(config, tmp_path)
    saved, before = weights(run), load_file(tiny_encoder / "model.safetensors")
    assert saved.keys() == before.keys()
    moved = {name for name in saved if not torch.equal(saved[name], before[name])}
    assert moved == {
        f"encoder.layer.{layer}.attention.self.{part}.weight" for layer in (0, 1) for part in ("query", "value")
    }
    data = load_training_data(config).splits
    encoded = SentenceTransformer(result["model"], device="cpu").encode(list(data.texts.texts))
    np.testing.assert_allclose(encoded, np.array(run.array("embeddings_after")), atol=1e-5)


@pytest.mark.parametrize("stop", [3, 5])
def test_resumed_low_rank_training_equals_uninterrupted_training(small_config, tmp_path, stop):
    config = with_changes(
        small_config,
        encoder={"lora": {"rank": 4, "dropout": 0.1}},
        training={"epochs": 3, "bias_correction": False, "layer_decay": 0.8},
    )
    whole, run = conduct(config, tmp_path / "whole")
    broken = RunStore(tmp_path).create(config)
    run_experiment(
        config, broken, callbacks=[OnStep(lambda report: broken.request_stop() if report.step == stop else None)]
    )
    broken.update_status(state="stopped")
    following = continue_run(RunStore(tmp_path), broken)
    assert run_experiment(config, following)["metrics"] == whole["metrics"]
    one, two = weights(run), weights(following)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_an_encoder_that_cannot_be_compiled_here_is_refused_in_one_sentence(small_config, tmp_path, monkeypatch):
    monkeypatch.setattr("bsc_core.encoders.compiled.BACKEND", "no_such_backend")
    with pytest.raises(ConfigError, match=r"training.compile is true, and compiling failed here \(.*; set it to false"):
        conduct(with_changes(small_config, training={"compile": True}), tmp_path)


def test_a_learning_rate_that_breaks_the_weights_ends_the_run_at_a_named_step(small_config, tmp_path):
    config = with_changes(small_config, training={"epochs": 3, "save_steps": 1, "warmup_ratio": 0})
    run = RunStore(tmp_path).create(config)

    class Explode(Callback):
        def on_step_end(self, trainer, report):
            if report.step == 4:
                for group in trainer.optimizer.param_groups:
                    group["lr"] = 1e30

    with pytest.raises(TrainingError, match=r"step 5: .*lower training.learning_rate"):
        run_experiment(config, run, [Explode()])
    assert [path.name for path in checkpoints(run.checkpoints_folder)] == ["step-000003", "step-000004"]
    left = last_checkpoint(run.checkpoints_folder)
    assert all(torch.isfinite(value).all() for value in load_file(left.model_folder / "model.safetensors").values())


@pytest.mark.parametrize("name", ["config_fingerprint", PREVIOUS_FINGERPRINT])
def test_a_checkpoint_of_another_config_is_named_and_the_one_before_used(small_config, tmp_path, capsys, name):
    config = with_changes(small_config, training={"max_steps": 4, "save_steps": 1})
    _, run = conduct(config, tmp_path)
    other = fingerprint(with_changes(config, training={"seed": 1}))
    assert fingerprint(config) != other
    path = checkpoints(run.checkpoints_folder)[-1] / "progress.json"
    path.write_text(path.read_text().replace(fingerprint(config), other).replace("config_fingerprint", name))
    result = last_checkpoint(run.checkpoints_folder, {fingerprint(config)})
    assert result.step == 3
    assert "step-000004: this checkpoint belongs to a run with another config; resume with" in capsys.readouterr().err


def test_a_fingerprint_depends_on_settings_and_not_on_their_names(small_config):
    assert fingerprint(small_config) == fingerprint(small_config.model_copy(update={"name": "again"}))


def test_runs_from_one_encoder_encode_its_texts_once(small_config, tmp_path, monkeypatch):
    monkeypatch.setenv("BSC_CACHE", str(tmp_path / "cache"))
    (first, one), (second, two) = (conduct(small_config, tmp_path / name) for name in ("one", "two"))
    assert second["texts_encoded"] == first["texts_encoded"] - first["texts"]
    for when in ("before", "after"):
        np.testing.assert_array_equal(one.array(f"embeddings_{when}"), two.array(f"embeddings_{when}"))
    half = with_changes(small_config, training={"precision": "bf16"})
    assert conduct(half, tmp_path / "three")[0]["texts_encoded"] == first["texts_encoded"]  # other vectors


def test_without_evaluation_only_the_texts_that_a_plan_compares_are_encoded_again(small_config, tmp_path, monkeypatch):
    monkeypatch.setenv("BSC_CACHE", str(tmp_path / "cache"))
    config = with_changes(
        small_config,
        batching={"strategy": "nearest", "group_size": 3},
        training={"epochs": 3},
        evaluation={"each_epoch": False},
    )
    result, _ = conduct(config, tmp_path)
    queries = len(np.unique(load_training_data(config).train.query))
    assert queries < result["texts"] / 2
    for_plans = queries // 2 + queries  # epoch 2: half of them, since they hardly moved; epoch 3: all, since they did
    assert result["texts_encoded"] == 2 * result["texts"] + for_plans  # all texts before and after


def test_the_first_batch_in_the_run_folder_is_the_one_that_was_trained_on(small_config, tmp_path):
    config = with_changes(small_config, encoder={"max_seq_length": 6})
    _, run = conduct(config, tmp_path)
    reported = run.read_json("first_batch")
    assert (reported["epoch"], reported["size"], len(reported["pairs"])) == (1, 8, 8)
    assert all(pair["query_tokens"] <= 6 for pair in reported["pairs"])
    assert any(pair["document_cut"] or pair["query_cut"] for pair in reported["pairs"])
    assert {pair["label"] for pair in reported["pairs"]} <= {1.0, float(np.float32(0.2))}


def test_a_loss_of_two_views_shows_the_query_twice_in_the_first_batch(small_config, tmp_path):
    _, run = conduct(make_config({**small_config.model_dump(), "loss": {"name": "simcse"}}), tmp_path)
    assert all(pair["document"] == pair["query"] for pair in run.read_json("first_batch")["pairs"])
