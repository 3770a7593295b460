"""Re-initialized and frozen layers: which weights change, seeds, resumed runs, and errors."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bsc_core.config import RunConfig, make_config
from bsc_core.data import load_data
from bsc_core.encoders import embed
from bsc_core.encoders.layers import freeze_layers, reinit_layers
from bsc_core.encoders.pretrained import load_folder
from bsc_core.errors import ConfigError
from bsc_core.pipeline import load_model, run_experiment, validate
from bsc_core.runs import RunStore

DATA = {"data": {"train": "pairs.csv"}}


def state(model) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def changed(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> set[str]:
    return {name for name in first if not torch.equal(first[name], second[name])}


def test_only_the_upper_layers_and_the_pooler_change(tiny_encoder: Path) -> None:
    model = load_folder(tiny_encoder, 16)
    layers = model.transformers_model.config.num_hidden_layers
    before = state(model)
    reinit_layers(model, 1, seed=0)
    names = changed(before, state(model))
    assert any(f"layer.{layers - 1}." in name for name in names)
    assert all(f"layer.{layers - 1}." in name or "pooler" in name for name in names)
    weight = next(value for name, value in state(model).items() if f"layer.{layers - 1}.intermediate" in name)
    assert weight.std().item() == pytest.approx(model.transformers_model.config.initializer_range, rel=0.2)


def test_the_weights_depend_on_the_seed_and_nothing_else(tiny_encoder: Path) -> None:
    models = [load_folder(tiny_encoder, 16) for _ in range(3)]
    for position, (model, seed) in enumerate(zip(models, (3, 3, 4), strict=True)):
        torch.manual_seed(position)
        reinit_layers(model, 1, seed=seed)
    assert not changed(state(models[0]), state(models[1]))
    assert changed(state(models[0]), state(models[2]))


def test_a_run_reinitializes_its_encoder_with_its_seed(tiny_encoder: Path, tmp_path: Path) -> None:
    values = DATA | {"encoder": {"name": str(tiny_encoder), "max_seq_length": 16}, "training": {"seed": 7}}
    plain = load_model(make_config(values, source="test"), RunStore(tmp_path))
    values["encoder"]["reinit_layers"] = 1
    model = load_model(make_config(values, source="test"), RunStore(tmp_path))
    assert changed(state(plain), state(model))
    reinit_layers(plain, 1, seed=7)
    assert not changed(state(plain), state(model))


def test_a_resumed_run_has_the_weights_of_its_checkpoint(tiny_encoder: Path, tmp_path: Path) -> None:
    encoder = {"name": str(tiny_encoder), "max_seq_length": 16, "reinit_layers": 1}
    config, store = make_config(DATA | {"encoder": encoder}, source="test"), RunStore(tmp_path / "runs")
    model = load_model(config, store)
    for parameter in model.parameters():
        parameter.data += 0.5  # as after training
    model.save(str(tmp_path / "model"))
    resumed = load_model(config, store, SimpleNamespace(model_folder=tmp_path / "model", lora=None))
    assert not changed(state(model), state(resumed))


def test_more_layers_than_the_encoder_has_and_static_encoders_are_refused(tiny_encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"reinit_layers is 99, and this encoder has \d+ layers; set it to at most"):
        reinit_layers(load_folder(tiny_encoder, 16), 99, seed=0)
    config = make_config(DATA | {"encoder": {"name": "static", "reinit_layers": 1}}, source="test")
    with pytest.raises(ConfigError, match="has no transformer layers; set it to 0"):
        load_model(config, RunStore(tmp_path))


@pytest.mark.parametrize("name", ["reinit_layers", "freeze_layers"])
def test_changed_layers_with_lora_are_refused(name: str) -> None:
    pytest.importorskip("peft")
    config = make_config(DATA | {"encoder": {name: 1, "lora": {"rank": 2}}}, source="test")
    with pytest.raises(ConfigError, match=f"encoder.{name} is 1, and encoder.lora freezes these layers"):
        validate(config)


def test_a_run_trains_only_the_layers_above_the_frozen_ones_and_resumes(
    small_config: RunConfig, tmp_path: Path
) -> None:
    store, states = RunStore(tmp_path / "runs"), []
    encoder = small_config.encoder.model_copy(update={"freeze_layers": 1})
    training = small_config.training.model_copy(update={"epochs": 2, "save_total_limit": 9})
    config = small_config.model_copy(update={"encoder": encoder, "training": training})
    runs = [store.create(config, f"run-{number}") for number in range(2)]
    for run in runs:
        run_experiment(config, run)
    shutil.rmtree(sorted(runs[1].checkpoints_folder.glob("step-*"))[-1])  # as if killed in the second epoch
    run_experiment(config, runs[1])
    for run in runs:
        last = sorted(run.checkpoints_folder.glob("step-*"))[-1]
        states.append(state(load_folder(last / "model", 32)))
    assert not changed(*states)
    names = changed(state(load_folder(Path(encoder.name), 32)), states[0])
    assert names
    assert all("encoder.layer.1." in name for name in names)


@pytest.mark.parametrize(
    ("frozen", "reinitialized", "reason"),
    [
        (2, 0, "this encoder has 2 layers, and no layer would be trained; set it to at most 1"),
        (1, 2, "encoder.reinit_layers is 2, so random layers would be frozen; set it to at most 0"),
    ],
)
def test_frozen_layers_that_leave_nothing_to_train_are_refused(
    tiny_encoder: Path, frozen: int, reinitialized: int, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        freeze_layers(load_folder(tiny_encoder, 16), frozen, reinitialized)


def test_the_vectors_before_training_are_those_of_the_new_weights_and_are_not_cached(
    small_config: RunConfig, tmp_path: Path
) -> None:
    store = RunStore(tmp_path / "runs")
    vectors = []
    for number, layers in enumerate((1, 0, 1)):
        encoder = small_config.encoder.model_copy(update={"reinit_layers": layers})
        run = store.create(small_config.model_copy(update={"encoder": encoder}), f"run-{number}")
        run_experiment(run.config(), run)
        vectors.append(np.array(run.embeddings("before")))
    assert np.array_equal(vectors[0], vectors[2])
    assert not np.allclose(vectors[0], vectors[1], atol=1e-3)
    data = load_data(small_config.data)
    assert np.allclose(vectors[1], embed(small_config.encoder, data.texts), atol=1e-4)
