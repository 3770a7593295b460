"""Encoding compared with `encode` of sentence-transformers, and its side effects."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.encoders import encode, eval_mode, tokenize
from bsc_core.encoders import tokens as tokens_module
from bsc_core.encoders.tokens import (
    CHARACTERS_PER_TOKEN,
    NORMALIZED_GROWTH,
    TOKENIZER_CHARACTERS,
    _blocks,
    _cut,
    _growth,
)


def test_vectors_equal_those_of_the_library(either_model, texts):
    tokens = tokenize(either_model, texts, 16)
    vectors = encode(either_model, tokens, micro_tokens=32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, either_model.encode(texts), atol=1e-6)


def test_texts_whose_normal_form_is_long_are_cut_and_counted_as_such():
    assert max(_growth(chr(code)) for code in range(0x110000)) == NORMALIZED_GROWTH - 1
    assert _cut("a" * 100 + "é" * 100, 180) == "a" * 100 + "é" * 80
    assert _cut("\ufdfa" * 100, 180) == "\ufdfa" * 10
    blocks = list(_blocks(["\ufdfa" * 1000] * 200))
    assert max(map(len, blocks)) == TOKENIZER_CHARACTERS // (NORMALIZED_GROWTH * 1000)
    assert sum(map(len, blocks)) == 200


def test_long_texts_are_cut_and_tokenized_in_blocks_of_limited_size(either_model, monkeypatch):
    longest = CHARACTERS_PER_TOKEN * 16
    texts = ["how to bake bread " * 10_000, "x" * 10_000_000, "short", "rain " * 1600, *(["storm " * 20_000] * 3)]
    plain = tokenize(either_model, [text[:longest] for text in texts], 16)
    given = []

    def blocks(texts, blocks=tokens_module._blocks):
        for block in blocks(texts):
            given.append(block)
            yield block

    monkeypatch.setattr(tokens_module, "TOKENIZER_CHARACTERS", 2 * longest)
    monkeypatch.setattr(tokens_module, "_blocks", blocks)
    tokens = tokenize(either_model, texts, 16)
    np.testing.assert_array_equal(tokens.tokens, plain.tokens)
    np.testing.assert_array_equal(tokens.offsets, plain.offsets)
    assert len(given) > 2
    assert all(sum(map(len, block)) <= 2 * longest for block in given)


def test_vectors_follow_the_order_of_the_ids(either_model, texts):
    tokens = tokenize(either_model, texts, 16)
    ids = np.asarray([5, 1, 5, 0], dtype=np.int32)
    np.testing.assert_allclose(encode(either_model, tokens, ids), encode(either_model, tokens)[ids], atol=1e-6)


def test_a_vector_does_not_depend_on_its_neighbors_in_a_micro_batch(either_model, texts):
    tokens = tokenize(either_model, texts, 16)
    alone, together = encode(either_model, tokens, micro_tokens=1), encode(either_model, tokens, micro_tokens=10_000)
    np.testing.assert_allclose(alone, together, atol=1e-6)


def test_no_texts_give_an_empty_array(either_model, texts):
    tokens = tokenize(either_model, texts, 16)
    assert encode(either_model, tokens, []).shape == (0, either_model.get_embedding_dimension())


def test_a_static_model_gives_a_zero_vector_for_a_text_without_tokens(tiny_static):
    assert not encode(tiny_static, tokenize(tiny_static, ["\x00", "cat"], 16))[0].any()


def test_dropout_is_off_while_encoding_and_each_mode_is_restored(tiny_model, texts):
    tokens = tokenize(tiny_model, texts, 16)
    expected = encode(tiny_model, tokens)
    tiny_model.train()
    tiny_model[1].eval()
    np.testing.assert_array_equal(encode(tiny_model, tokens), expected)
    assert tiny_model.training
    assert tiny_model[0].training
    assert not tiny_model[1].training


def test_modes_are_restored_after_an_error(tiny_model):
    tiny_model.train()

    def fail():
        with eval_mode(tiny_model):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert tiny_model.training


def test_the_model_can_train_on_the_same_features_afterwards(either_model, texts):
    tokens = tokenize(either_model, texts, 16)
    encode(either_model, tokens)
    either_model.train()
    either_model(tokens.features([0, 1]))["sentence_embedding"].sum().backward()
    assert any(parameter.grad is not None and parameter.grad.any() for parameter in either_model.parameters())


def test_progress_counts_up_to_all_texts(either_model, texts):
    calls, tokens = [], tokenize(either_model, texts, 16)
    encode(either_model, tokens, micro_tokens=16, progress=lambda *progress: calls.append(progress))
    assert calls[-1] == (len(texts), len(texts))
    assert calls == sorted(calls)
