"""Low-rank matrices: what they train, what a saved model holds, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bsc_core.config import LoRAConfig
from bsc_core.encoders import encode, save_model, tokenise
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
    return encode(model, tokenise(model, TEXTS, 16))


def test_new_matrices_change_no_vector_and_are_all_that_is_trained(plain, tiny_encoder):
    before = vectors(plain)
    add_lora(plain, CONFIG)
    np.testing.assert_array_equal(vectors(plain), before)
    trained = {name: tuple(p.shape) for name, p in plain.named_parameters() if p.requires_grad}
    assert len(trained) == 2 * 2 * 2  # A and B, of query and value, in two layers
    assert set(trained.values()) == {(4, 32), (32, 4)}


def test_a_saved_model_is_plain_and_holds_the_weights_plus_the_scaled_product(adapted, plain, tmp_path):
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


def test_saving_leaves_the_model_as_it_was_to_the_bit(adapted, tmp_path):
    before = {name: value.clone() for name, value in adapted.state_dict().items()}
    save_model(adapted, tmp_path / "model", "card")
    after = adapted.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_state_gives_a_merged_model_its_own_weights_and_matrices_back(adapted, tmp_path):
    folder = save_model(adapted, tmp_path / "model", "card")
    again = load_folder(folder, 16)
    assert lora_state(again) is None
    add_lora(again, CONFIG)
    load_lora_state(again, lora_state(adapted))
    one, two = adapted.state_dict(), again.state_dict()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_named_layers_take_the_matrices(plain):
    add_lora(plain, LoRAConfig(rank=2, targets=("dense",)))
    assert all("dense" in name for name, p in plain.named_parameters() if p.requires_grad)


def test_layers_that_are_not_there_are_refused_with_those_that_are(plain):
    with pytest.raises(ConfigError, match=r"encoder\.lora: .*nowhere.*targets \(dense, key, query, value\)") as caught:
        add_lora(plain, LoRAConfig(targets=("nowhere",)))
    assert "\n" not in str(caught.value)


def test_an_encoder_without_layers_is_refused(tiny_static):
    with pytest.raises(ConfigError, match="this encoder has none; leave it out"):
        add_lora(tiny_static, CONFIG)


def test_a_missing_peft_is_named_with_the_way_out(plain, monkeypatch):
    monkeypatch.setattr("bsc_core.encoders.lora.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"encoder\.lora needs the package peft.*pip install 'bsc-lab\[lora\]'"):
        add_lora(plain, CONFIG)
