"""The main path on data small enough to train in a second."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer

from bsc_core import pipeline
from bsc_core.config import RunConfig, make_config
from bsc_core.data import load_data
from bsc_core.data.sample_data import sample_config
from bsc_core.errors import ConfigError, DataError, ModelError
from bsc_core.evaluate_model import evaluate_model
from bsc_core.evaluation import Evaluator
from bsc_core.files import folder_bytes
from bsc_core.pipeline import guide_vectors, load_training_data, run_experiment
from bsc_core.preparation.plan_report import plan_report
from bsc_core.runs import Run, RunStore
from bsc_core.training.callbacks import OnStep
from bsc_core.training.checkpoint import checkpoints
from bsc_core.training.data import select_training_rows
from bsc_core.training.estimate import estimate, measured_speed
from tests.helpers.configs import with_changes


def conduct(config: RunConfig, folder, **options) -> tuple[dict, Run]:
    run = RunStore(folder).create(config)
    return run_experiment(config, run, **options), run


def test_a_run_trains_evaluates_and_saves_a_loadable_model(small_config, tmp_path):
    config = with_changes(small_config, training={"epochs": 2}, batching={"strategy": "nearest", "group_size": 3})
    result, run = conduct(config, tmp_path)
    assert result["state"] == "done"
    assert set(result["metrics"]) == {"before", "after"}
    assert json.loads((run.folder / "result.json").read_text()) == json.loads(json.dumps(result))
    steps = [line for line in run.metrics()[0] if line["kind"] == "step"]
    evaluations = [line for line in run.metrics()[0] if line["kind"] == "evaluation"]
    assert [line["epoch"] for line in evaluations] == [0, 1, 2]
    assert steps[-1]["step"] == run.status().step == run.status().steps
    assert sorted(path.name for path in run.plans_folder.iterdir()) == ["epoch-001.npz", "epoch-002.npz"]
    vector = SentenceTransformer(result["model"], device="cpu").encode(["how do i cook soup"])
    assert vector.shape == (1, 32)
    assert "bsc-lab" in (run.model_folder / "README.md").read_text()


def test_a_run_that_ends_early_reports_the_steps_that_it_took(small_config, tmp_path):
    changes = {"epochs": 6, "early_stopping_patience": 1, "learning_rate": 1e-9}
    _, run = conduct(with_changes(small_config, training=changes), tmp_path)
    epochs = [line for line in run.metrics()[0] if line["kind"] == "evaluation"][-1]["epoch"]
    assert epochs < 6
    steps = [line["step"] for line in run.metrics()[0] if line["kind"] == "step"]
    assert run.status().step == run.status().steps == max(steps)


def test_the_stored_vectors_are_those_of_the_stored_model_and_give_the_reported_metrics(small_config, tmp_path):
    result, run = conduct(with_changes(small_config, training={"epochs": 3}), tmp_path)
    data = load_data(small_config.data)
    after = np.array(run.array("embeddings_after"))
    model = SentenceTransformer(result["model"], device="cpu")
    assert np.allclose(model.encode(list(data.texts.texts)), after, atol=1e-5)
    evaluator = Evaluator(data, small_config.evaluation)
    assert evaluator.evaluate(after) == result["metrics"]["after"]
    assert (
        Evaluator(data, small_config.evaluation).evaluate(np.array(run.array("embeddings_before")))
        == result["metrics"]["before"]
    )


def test_the_best_epoch_on_dev_is_saved_not_the_last(small_config, tmp_path):
    result, run = conduct(with_changes(small_config, training={"epochs": 4, "learning_rate": 5e-3}), tmp_path)
    name = run.status().metric_name
    by_epoch = {line["epoch"]: line["dev"][name] for line in run.metrics()[0] if line["kind"] == "evaluation"}
    del by_epoch[0]
    assert result["metrics"]["after"]["dev"][name] == max(by_epoch.values())
    assert result["best_epoch"] == min(epoch for epoch, value in by_epoch.items() if value == max(by_epoch.values()))


def test_two_runs_of_one_seed_are_equal_bit_for_bit(small_config, tmp_path):
    config = with_changes(
        small_config, batching={"strategy": "nearest", "group_size": 3}, loss={"learn_temperature": True}
    )
    (first, one), (second, two) = conduct(config, tmp_path / "a"), conduct(config, tmp_path / "b")
    assert first["metrics"] == second["metrics"]
    left, right = (load_file(run.model_folder / "model.safetensors") for run in (one, two))
    assert all(torch.equal(left[name], right[name]) for name in left)
    losses = [[line["loss"] for line in run.metrics()[0] if line["kind"] == "step"] for run in (one, two)]
    assert losses[0] == losses[1]


def test_a_stop_ends_after_the_current_step_with_a_checkpoint_and_a_model(small_config, tmp_path):
    config = with_changes(small_config, training={"epochs": 50})
    run = RunStore(tmp_path).create(config)
    result = run_experiment(
        config, run, callbacks=[OnStep(lambda report: run.request_stop() if report.step == 2 else None)]
    )
    assert result["state"] == "stopped"
    assert [line["step"] for line in run.metrics()[0] if line["kind"] == "step"] == [1, 2]
    assert [path.name for path in run.checkpoints_folder.iterdir()] == ["step-000002"]
    assert result["metrics"]["after"]["dev"]
    assert SentenceTransformer(result["model"], device="cpu").encode(["soup"]).shape == (1, 32)


def test_without_evaluation_per_epoch_only_before_and_after_are_evaluated(small_config, tmp_path):
    config = with_changes(
        small_config, evaluation={"each_epoch": False}, training={"epochs": 2}, batching={"strategy": "nearest"}
    )
    result, run = conduct(config, tmp_path)
    assert [line["epoch"] for line in run.metrics()[0] if line["kind"] == "evaluation"] == [0, 2]
    assert result["best_epoch"] == 2


def test_switching_labeled_negatives_off_trains_on_positive_pairs_only(small_config):
    data = load_data(small_config.data)
    kept = select_training_rows(with_changes(small_config, loss={"labeled_negatives": False}), data.train)
    assert kept.positive.all()
    assert len(kept) == int(data.train.positive.sum()) < len(data.train)


def test_a_threshold_above_every_label_is_refused_with_a_fix(small_config, tmp_path):
    with pytest.raises(DataError, match=r"no pair has a label above threshold 1; lower data\.threshold"):
        conduct(with_changes(small_config, data={"threshold": 1.0}), tmp_path)


def test_the_dev_queries_do_not_depend_on_the_training_seed(small_config, tmp_path):
    one, _ = conduct(with_changes(small_config, training={"seed": 1}), tmp_path)
    two, _ = conduct(with_changes(small_config, training={"seed": 2}), tmp_path)
    assert one["metrics"]["before"] == two["metrics"]["before"]


def test_an_estimate_comes_from_a_finished_run_with_the_same_encoder(small_config, tmp_path):
    store, data = RunStore(tmp_path), load_data(small_config.data)
    assert estimate(small_config, data, store).seconds is None
    run = store.create(small_config)
    run_experiment(small_config, run)
    reported = estimate(small_config, data, store)
    longer = estimate(with_changes(small_config, training={"epochs": 10}), data, store)
    assert run.id in reported.source
    assert 0 < reported.seconds < longer.seconds
    assert reported.memory_bytes > 0
    assert reported.disk_bytes == pytest.approx(folder_bytes(run.folder), rel=0.1)
    checkpoint = folder_bytes(checkpoints(run.checkpoints_folder)[-1])
    more = estimate(with_changes(small_config, training={"epochs": 10, "save_total_limit": 7}), data, store)
    had = len(checkpoints(run.checkpoints_folder))
    assert more.disk_bytes - reported.disk_bytes == pytest.approx((7 - had) * checkpoint, rel=0.1)
    assert estimate(with_changes(small_config, encoder={"name": "static"}), data, store).seconds is None
    run.update_status(state="done")
    stopped = store.create(small_config)  # newer, but with fewer files
    stopped.write_json("result", run.read_json("result"))
    stopped.update_status(state="stopped")
    assert estimate(small_config, data, store).source == run.id
    newer = store.create(with_changes(small_config, data={"train": "other.csv"}))
    newer.write_json("result", run.read_json("result"))
    newer.update_status(state="done")
    assert estimate(small_config, data, store).source == run.id, "not the run on the same data"
    assert estimate(newer.config(), data, store).source == newer.id
    shutil.rmtree(newer.folder)
    run.update_status(state="stopped")
    assert estimate(small_config, data, store).source in (run.id, stopped.id)


def test_a_plan_report_describes_the_batches_without_training(small_config):
    report = plan_report(with_changes(small_config, batching={"strategy": "nearest", "group_size": 3}))
    assert report["rows"] == sum(int(size) * count for size, count in report["groups"].items())
    assert max(map(int, report["groups"])) <= 3
    assert 0 <= report["closer_share"] <= 1
    assert report["likely_false_negatives"] >= report["collisions"] > 0


def test_evaluating_a_model_uses_every_pair_of_the_file(small_config, small_pairs, tiny_encoder):
    report = evaluate_model(small_config.encoder, small_config.data)
    assert report["rows"] == 40
    assert 0 < report["metrics"]["mrr"] <= 1
    assert report["f1_threshold_from"] == "these pairs"
    reported = evaluate_model(small_config.encoder, small_config.data, decision=0.9)
    assert reported["metrics"]["f1_threshold"] == 0.9


def test_the_recommended_preset_fits_the_sample_data(sample_pairs, sample_corpus):
    from bsc_core.config import DataConfig
    from bsc_core.presets.catalog import PRESETS, preset_config

    data = DataConfig(train=str(sample_pairs), corpus=str(sample_corpus))
    assert all(preset_config(name, data).data == data for name in PRESETS)


def test_epochs_that_differ_by_a_batch_end_with_an_evaluated_model(small_config, tmp_path):
    config = with_changes(
        small_config,
        batching={"strategy": "nearest", "group_size": 5, "keep_groups": True},
        training={"epochs": 6, "batch_size": 7},
        evaluation={"each_epoch": False},
    )
    run = RunStore(tmp_path).create(config)
    lasts = []
    result = run_experiment(config, run, callbacks=[OnStep(lambda report: lasts.append(report.last))])
    assert lasts == [False] * (len(lasts) - 1) + [True]
    assert result["state"] == "done"
    assert result["metrics"]["after"]["dev"]
    assert run.model_folder.is_dir()
    rates = [line["learning_rate"] for line in run.metrics()[0] if line["kind"] == "step"]
    assert min(rates) > 0


def test_a_stop_requested_at_the_last_step_leaves_the_run_done(small_config, tmp_path):
    run = RunStore(tmp_path).create(small_config)
    result = run_experiment(
        small_config, run, callbacks=[OnStep(lambda report: run.request_stop() if report.last else None)]
    )
    assert result["state"] == "done"


def test_the_time_of_building_an_encoder_is_not_part_of_an_estimate(small_config, tmp_path):
    run, data = RunStore(tmp_path).create(small_config), load_data(small_config.data)
    seconds = {"total": 700.0, "train": 20.0, "encode": 30.0}
    summary = {"pairs": len(data.train), "texts_encoded": len(data.texts)}
    startup = [
        measured_speed({**summary, "seconds": seconds | built}, data, run)["startup_seconds"]
        for built in ({}, {"build": 600.0})
    ]
    assert startup == [650, 50]


def test_an_estimate_passes_over_runs_that_it_cannot_read(small_config, tmp_path):
    store, data = RunStore(tmp_path), load_data(small_config.data)
    broken, other = store.create(small_config), store.create(small_config)
    (broken.folder / "result.json").write_text("{half")
    other.write_json("result", {"state": "done"})
    assert estimate(small_config, data, store).seconds is None


def test_a_learned_temperature_out_of_its_range_is_refused_before_training(small_config):
    with pytest.raises(
        ConfigError, match=r"temperature is 0\.005; a learned temperature must start between 0\.01 and 100"
    ):
        with_changes(small_config, loss={"learn_temperature": True, "temperature": 0.005})


def test_rejected_rows_are_named_counted_and_no_others_are_lost(tmp_path, tiny_encoder):
    path = tmp_path / "pairs.csv"
    path.write_text("query,document,label\nhow,soup,1\n,rain,0\nwhy,salt,x\nwhen,tea,0.2\nwhat,rose,1\nwho,seed,1\n")
    config = make_config(
        {
            "data": {"train": str(path), "dev_size": 0.4},
            "encoder": {"name": str(tiny_encoder), "max_seq_length": 16},
            "batching": {"strategy": "random"},
        }
    )
    rejected = plan_report(config)["rejected"]
    assert len(rejected) == 3
    assert "line 3" in rejected[0]
    assert "line 4" in rejected[1]
    assert rejected[2] == f"{path}: 2 of 6 rows rejected"
    result, _run = conduct(config, tmp_path / "runs")
    assert result["rejected"] == rejected
    assert sum(result["rows"].values()) == 4


def test_a_guide_whose_vectors_are_not_finite_is_refused(tmp_path, monkeypatch) -> None:
    loss = {"name": "mnrl", "mask": "guide", "mask_guide": "static"}
    config = make_config({"data": sample_config().model_dump(), "encoder": {"name": "static"}, "loss": loss})
    data = load_training_data(config)
    vectors = np.ones((len(data.splits.texts), 4), dtype=np.float32)
    monkeypatch.setattr(pipeline, "embed", lambda *_, **__: vectors)
    assert guide_vectors(config, data, RunStore(tmp_path)) is vectors
    vectors[3, 2] = np.nan
    with pytest.raises(ModelError, match="static: the guide gives a text a vector that is not finite"):
        guide_vectors(config, data, RunStore(tmp_path))
