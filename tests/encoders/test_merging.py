"""Merged weights: equality with a slow reference, the ends of the interpolation, runs, and refusals."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from bsc_core.config import RunConfig, make_config
from bsc_core.data import load_data
from bsc_core.encoders.merging import average_weights, copy_weights, interpolate, set_weights
from bsc_core.encoders.pretrained import load_folder
from bsc_core.errors import ConfigError, ModelError
from bsc_core.pipeline import run_experiment, validate
from bsc_core.runs import Run, RunStore
from bsc_core.training.checkpoint import checkpoints
from tests.helpers.configs import with_changes


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return copy_weights(load_folder(folder, 32))


def assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor], atol: float = 0.0) -> None:
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=atol, msg=name)


def random_weights(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values = {name: torch.randn(3, 2, generator=generator) for name in ("a", "b")}
    return values | {"positions": torch.arange(4)}


def test_an_average_equals_the_slow_sum_and_its_ends_are_exact() -> None:
    models, shares = [random_weights(seed) for seed in range(3)], (0.2, 0.5, 0.3)
    average = average_weights(models, shares)
    for name in ("a", "b"):
        for cell in np.ndindex(3, 2):
            slow = sum(share * float(model[name][cell]) for share, model in zip(shares, models, strict=True))
            assert float(average[name][cell]) == pytest.approx(slow, abs=1e-7)
    assert torch.equal(average["positions"], torch.arange(4))
    assert_equal(average_weights(models), average_weights(models, [1 / 3] * 3))
    broken = {name: torch.full_like(value, torch.nan) if value.ndim > 1 else value for name, value in models[0].items()}
    assert_equal(interpolate(models[0], broken, 0.0), models[0])
    assert_equal(interpolate(broken, models[1], 1.0), models[1])


def test_models_of_different_architectures_are_refused() -> None:
    with pytest.raises(ModelError, match=r"a is \(3, 2\) and missing"):
        average_weights([random_weights(0), {"b": torch.zeros(3, 2)}])
    with pytest.raises(ModelError, match=r"b is \(3, 2\) and \(1, 1\)"):
        interpolate(random_weights(0), random_weights(1) | {"b": torch.zeros(1, 1)}, 0.5)
    model = torch.nn.Linear(2, 3)
    for other in ({"weight": torch.zeros(1, 2), "bias": torch.zeros(3)}, {"weight": torch.zeros(3, 2)}):
        with pytest.raises(ModelError, match="other names or shapes"):
            set_weights(model, other)


def conduct(config: RunConfig, folder: Path, name: str) -> Run:
    run = RunStore(folder).create(config, name)
    run_experiment(config, run)
    return run


def test_a_run_saves_the_merged_model_trains_as_without_it_and_resumes(small_config: RunConfig, tmp_path: Path) -> None:
    config = with_changes(small_config, training={"epochs": 2, "save_total_limit": 9})
    merging = with_changes(config, training={"merge_with_start": 0.25})
    plain, merged, resumed = (conduct(c, tmp_path, f"run-{n}") for n, c in enumerate((config, merging, merging)))
    shutil.rmtree(checkpoints(resumed.checkpoints_folder)[-1])  # as if killed in the second epoch
    run_experiment(merging, resumed)

    start, saved = weights(Path(config.encoder.name)), weights(merged.model_folder)
    for first, second in zip(*(checkpoints(run.checkpoints_folder) for run in (plain, merged)), strict=True):
        assert_equal(weights(first / "model"), weights(second / "model"))
    assert_equal(saved, weights(resumed.model_folder))
    epoch = merged.read_json("evaluation/best_epoch")["epoch"]
    trained = weights(checkpoints(merged.checkpoints_folder)[epoch - 1] / "model")
    assert_equal(saved, interpolate(start, trained, 0.25))
    assert merged.evaluation("after") == merged.evaluation(f"epoch-{epoch:03d}") == resumed.evaluation("after")

    texts = list(load_data(config.data).texts)
    loaded = SentenceTransformer(str(merged.model_folder), device="cpu")
    assert np.allclose(loaded.encode(texts), merged.embeddings("after"), atol=1e-5)


def test_plans_use_the_trained_weights_also_after_a_resume(small_config: RunConfig, tmp_path: Path) -> None:
    config = with_changes(
        small_config,
        training={"epochs": 2, "merge_with_start": 0.5, "save_total_limit": 9},
        batching={"strategy": "nearest", "group_size": 4},
    )
    runs = [conduct(config, tmp_path, f"run-{number}") for number in range(2)]
    shutil.rmtree(checkpoints(runs[1].checkpoints_folder)[-1])
    shutil.rmtree(runs[1].plans_folder / "epoch-002.npz", ignore_errors=True)
    run_experiment(config, runs[1])
    assert_equal(*(weights(checkpoints(run.checkpoints_folder)[-1] / "model") for run in runs))


def test_with_lora_the_update_is_scaled(small_config: RunConfig, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    config = with_changes(small_config, encoder={"lora": {"rank": 2}}, training={"learning_rate": 0.01})
    merging = with_changes(config, training={"merge_with_start": 0.5})
    plain, merged = (conduct(c, tmp_path, f"run-{n}") for n, c in enumerate((config, merging)))
    start, trained = weights(Path(config.encoder.name)), weights(plain.model_folder)
    assert any(not torch.equal(start[name], trained[name]) for name in start)
    assert_equal(weights(merged.model_folder), interpolate(start, trained, 0.5), atol=1e-6)


def test_a_start_with_random_layers_is_refused() -> None:
    values = {"data": {"train": "p.csv"}, "encoder": {"reinit_layers": 1}, "training": {"merge_with_start": 0.5}}
    with pytest.raises(ConfigError, match=r"merge_with_start is 0.5 and encoder.reinit_layers is 1"):
        validate(make_config(values, source="test"))
