"""Encoders with torch.compile, with an eager backend that needs no C++ compiler."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from bsc_core.encoders import compiled, tokenize
from bsc_core.encoders.compiled import compile_encoder, is_compiled
from bsc_core.encoders.forward import make_forward
from bsc_core.encoders.forward.packed import PackedForward
from bsc_core.encoders.pretrained import load_folder
from bsc_core.errors import ConfigError


@pytest.fixture(autouse=True)
def _eager_backend(monkeypatch):
    monkeypatch.setattr("bsc_core.encoders.compiled.BACKEND", "eager")


def test_vectors_gradients_and_dropout_equal_those_of_the_eager_encoder(tiny_model, tiny_encoder, texts):
    changed, tokens = load_folder(tiny_encoder, 16), tokenize(tiny_model, texts, 16)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    compile_encoder(changed, tokens)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in changed.parameters())
    assert (is_compiled(changed), is_compiled(tiny_model)) == (True, False)
    results = []
    for model in (tiny_model, changed):
        vectors = model(tokens.features(np.array([0, 2, 5])))["sentence_embedding"]
        vectors.square().mul(torch.arange(32.0)).sum().backward()
        results.append((vectors, dict(model.named_parameters())))
    (one, plain), (two, other) = results
    assert torch.allclose(one, two, atol=1e-6)
    assert plain.keys() == other.keys()
    for name, parameter in plain.items():
        if parameter.grad is not None:
            assert torch.allclose(parameter.grad, other[name].grad, atol=1e-5), name


def test_a_compiled_encoder_is_not_packed(tiny_model, texts):
    tokens = tokenize(tiny_model, texts, 16)
    compile_encoder(tiny_model, tokens)
    assert not isinstance(make_forward(tiny_model, tokens, "fp32"), PackedForward)


def test_an_encoder_without_a_transformer_is_refused(tiny_static, texts):
    with pytest.raises(ConfigError, match="this encoder has no transformer to compile; set it to false"):
        compile_encoder(tiny_static, tokenize(tiny_static, texts, 16))


def test_a_compiler_error_is_reported_and_leaves_the_encoder_unchanged(tiny_model, texts, monkeypatch):
    monkeypatch.setattr("bsc_core.encoders.compiled.BACKEND", "no_such_backend")
    tokens = tokenize(tiny_model, texts, 16)
    with pytest.raises(ConfigError, match=r"compiling failed here \(.*no_such_backend.*\); set it to false"):
        compile_encoder(tiny_model, tokens)
    assert not is_compiled(tiny_model)
    assert tiny_model.encode(["soup"]).shape == (1, 32)


def test_compiled_libraries_are_stored_in_the_cache_folder(tiny_model, texts, own_cache, monkeypatch):
    for name in compiled.CACHES:
        monkeypatch.delenv(name, raising=False)
    compile_encoder(tiny_model, tokenize(tiny_model, texts, 16))
    assert {Path(os.environ[name]).parent for name in compiled.CACHES} == {own_cache}
