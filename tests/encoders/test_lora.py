"""LoRA: trained parameters, saved models, and errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bsc_core.config import LoRAConfig
from bsc_core.encoders import encode, save_model, tokenize
from bsc_core.encoders.lora import add_lora, load_lora_state, lora_state
from bsc_core.encoders.pretrained import load_folder
from bsc_core.errors import ConfigError

TEXTS = ["how do i cook soup", "the cat sleeps", "a new bike with a good brake"]
CONFIG = LoRAConfig(rank=4, alpha=8.0)


@pytest.fixture
def plain(tiny_encoder):
    return load_folder(tiny_encoder, 16)


@pytest.fixture
def adapted(tiny_encoder):
    """The tiny encoder with matrices that are not zero, as after training."""
    model = load_folder(tiny_encoder, 16)
    torch.manual_seed(1)
    add_lora(model, CONFIG)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.3)
    return model


def vectors(model) -> np.ndarray:
    return encode(model, tokenize(model, TEXTS, 16))


def test_only_the_new_matrices_are_trained_and_they_change_no_vector(plain, tiny_encoder):
    before = vectors(plain)
    add_lora(plain, CONFIG)
    np.testing.assert_array_equal(vectors(plain), before)
    trained = {name: tuple(p.shape) for name, p in plain.named_parameters() if p.requires_grad}
    assert len(trained) == 2 * 2 * 2  # A and B, of query and value, in two layers
    assert set(trained.values()) == {(4, 32), (32, 4)}


def test_a_saved_model_has_the_matrices_merged(adapted, plain, tmp_path):
    folder = save_model(adapted, tmp_path / "model", "card")
    saved = load_file(folder / "model.safetensors")
    assert not [name for name in saved if "lora" in name or "base_layer" in name]
    parts = dict(adapted.named_parameters())
    for name, weight in plain.transformers_model.named_parameters():
        expected = weight.detach()
        stem = f"0.model.{name.removesuffix('.weight')}"
        if f"{stem}.lora_A.default.weight" in parts:
            left, right = (parts[f"{stem}.lora_{side}.default.weight"].detach() for side in "BA")
            expected = expected + 8.0 / 4 * left @ right
        assert torch.allclose(saved[name], expected, atol=1e-6), name
    np.testing.assert_allclose(vectors(load_folder(folder, 16)), vectors(adapted), atol=1e-5)
    assert np.abs(vectors(adapted) - vectors(plain)).max() > 1e-3


def test_saving_restores_the_model_exactly(adapted, tmp_path):
    before = {name: value.clone() for name, value in adapted.state_dict().items()}
    save_model(adapted, tmp_path / "model", "card")
    after = adapted.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_state_restores_weights_and_matrices_of_a_merged_model(adapted, tmp_path):
    folder = save_model(adapted, tmp_path / "model", "card")
    loaded = load_folder(folder, 16)
    assert lora_state(loaded) is None
    add_lora(loaded, CONFIG)
    load_lora_state(loaded, lora_state(adapted))
    restored = loaded.state_dict()
    assert all(torch.equal(restored[name], value) for name, value in adapted.state_dict().items())


def test_target_layers_get_the_matrices(plain):
    add_lora(plain, LoRAConfig(rank=2, targets=("dense",)))
    assert all("dense" in name for name, p in plain.named_parameters() if p.requires_grad)


def test_unknown_target_layers_are_refused_with_a_list_of_layers(plain):
    with pytest.raises(ConfigError, match=r"encoder\.lora: .*nowhere.*targets \(dense, key, query, value\)") as caught:
        add_lora(plain, LoRAConfig(targets=("nowhere",)))
    assert "\n" not in str(caught.value)


def test_an_encoder_without_layers_is_refused(tiny_static):
    with pytest.raises(ConfigError, match="this encoder has none; leave it out"):
        add_lora(tiny_static, CONFIG)


def test_a_missing_peft_is_reported(plain, monkeypatch):
    monkeypatch.setattr("bsc_core.encoders.lora.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"encoder\.lora needs the package peft.*pip install 'bsc-lab\[lora\]'"):
        add_lora(plain, CONFIG)
