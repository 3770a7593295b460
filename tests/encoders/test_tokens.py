"""Token tables compared with the models' own tokenization and padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from bsc_core.encoders import TokenTable, micro_batches, tokenize
from bsc_core.encoders.pretrained import tokenizer_errors
from bsc_core.errors import ModelError


def test_features_equal_those_of_the_model(either_model, texts):
    tokens = tokenize(either_model, texts, 16)
    ids = [4, 0, 2, 0, 3]
    expected = either_model.preprocess([texts[number] for number in ids])
    expected.pop("modality", None)
    features = tokens.features(ids)
    assert features.keys() == expected.keys()
    for name, tensor in features.items():
        assert tensor.dtype == torch.int64
        assert torch.equal(tensor, expected[name]), name


def test_long_texts_are_truncated_before_their_last_special_token(tiny_model):
    tokens = tokenize(tiny_model, ["cat " * 50], 16)
    assert tokens.lengths.tolist() == [16]
    assert tokens.tokens[-1] == tiny_model.tokenizer.sep_token_id


def test_many_texts_in_blocks_equal_one_block(tiny_model, texts, monkeypatch):
    at_once = tokenize(tiny_model, texts, 16)
    monkeypatch.setattr("bsc_core.encoders.tokens.TOKENIZER_BATCH", 2)
    blocks = tokenize(tiny_model, texts, 16)
    np.testing.assert_array_equal(blocks.tokens, at_once.tokens)
    np.testing.assert_array_equal(blocks.offsets, at_once.offsets)


def test_the_default_prompt_is_put_before_each_text(tiny_model):
    plain = tokenize(tiny_model, ["how soup"], 16)
    tiny_model.prompts, tiny_model.default_prompt_name = {"ask": "how "}, "ask"
    np.testing.assert_array_equal(tokenize(tiny_model, ["soup"], 16).tokens, plain.tokens)


def test_no_texts_give_an_empty_table_without_micro_batches(either_model):
    tokens = tokenize(either_model, [], 16)
    assert len(tokens) == 0
    assert tokens.micro_batches([], 64) == []


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 100))
def test_micro_batches_partition_the_texts_within_the_budget(lengths, budget):
    pieces = micro_batches(np.asarray(lengths, dtype=np.int64), budget)
    assert sorted(position for piece in pieces for position in piece.tolist()) == list(range(len(lengths)))
    for piece in pieces:
        longest = max(lengths[position] for position in piece)
        assert len(piece) == 1 or longest * len(piece) <= budget


def test_sorting_by_length_wastes_little_padding():
    lengths = np.random.default_rng(3).integers(3, 60, 500)
    padded = sum(int(lengths[piece].max()) * len(piece) for piece in micro_batches(lengths, 1024))
    assert padded < 1.1 * lengths.sum()


def test_a_static_model_encodes_small_batches_in_one_pass(tiny_static, texts):
    assert len(tokenize(tiny_static, texts, 16).micro_batches(np.arange(len(texts)), 16)) == 1


@pytest.mark.parametrize("bag", [False, True])
def test_a_text_without_tokens_has_an_empty_row(bag):
    tokens = TokenTable(np.asarray([5, 6], dtype=np.int32), np.asarray([0, 0, 2]), padding=9, bag=bag)
    features = tokens.features([0, 1])
    if bag:
        assert features["offsets"].tolist() == [0, 0]
    else:
        assert features["input_ids"].tolist() == [[9, 9], [5, 6]]
        assert features["attention_mask"].tolist() == [[0, 0], [1, 1]]


def test_the_error_of_a_tokenizer_is_reported() -> None:
    tokenizer = Tokenizer(WordLevel({"a": 0}, unk_token="unknown"))
    with tokenizer_errors():
        assert tokenizer.encode("a").ids == [0]
    with pytest.raises(ModelError, match="the tokenizer of this model fails"), tokenizer_errors():
        tokenizer.encode("b")
