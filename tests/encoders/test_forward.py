"""The plain forward pass: vectors and the size of activations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from bsc_core.encoders import TokenTable, tokenize
from bsc_core.encoders.forward.plain import Forward, counted_activations
from bsc_core.encoders.pretrained import static_model


@pytest.fixture
def tokens(model) -> TokenTable:
    words = "soup bread salt water garden rose seed soil tent train".split()
    return tokenize(model, [" ".join(words[number % 10] for number in range(count)) for count in range(1, 60)], 64)


def test_vectors_equal_those_of_the_model(model, tokens) -> None:
    ids = np.array([3, 40, 3, 7])
    with torch.no_grad():
        expected = model(tokens.features(ids))["sentence_embedding"]
    actual = Forward(model, tokens, "fp32").embed(ids)
    assert torch.equal(actual.detach(), expected)
    assert actual.requires_grad
    assert Forward(model, tokens, "fp32").width == actual.shape[1] == 32


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("ids", [[5], [1, 2, 3], [50] * 7, range(20, 59)], ids=["one", "short", "equal", "many"])
def test_the_size_of_activations_is_estimated(model, tokens, precision, training, ids) -> None:
    model.train(training)
    forward = Forward(model, tokens, precision)
    expected = forward.activation_bytes(tokens.lengths[list(ids)])
    with torch.no_grad():
        casts = 0 if precision == "fp32" else sum(p.nbytes for n, p in model.named_parameters() if p.ndim > 1) // 2
    with counted_activations(model.parameters()) as saved:
        forward.embed(np.array(ids))
    assert sum(saved) - casts <= 1.15 * expected + 4096
    assert expected <= 1.15 * sum(saved) + 4096


def test_counting_activations_draws_no_random_numbers(model, tokens) -> None:
    model.train()
    torch.manual_seed(2)
    expected = torch.rand(3)
    torch.manual_seed(2)
    Forward(model, tokens, "fp32").activation_bytes(np.array([5, 5]))
    assert torch.equal(torch.rand(3), expected)


def test_a_static_encoder_has_a_plain_forward_pass() -> None:
    pieces = Tokenizer(WordLevel({"[UNK]": 0, "what": 1, "is": 2, "soup": 3, "rain": 4}, unk_token="[UNK]"))
    pieces.pre_tokenizer = Whitespace()
    model = static_model(pieces, np.ones((5, 8), dtype=np.float32))
    tokens = tokenize(model, ["what is soup", "rain", ""], 16)
    forward = Forward(model, tokens, "fp32")
    assert len(forward.micro_batches(np.arange(3))) == 1
    vectors = forward.embed(np.arange(3))
    assert not vectors[2].any()
    vectors.sum().backward()
    assert forward.activation_bytes(np.array([4, 4])) < 10**5
    assert [name for name, _ in forward.named_parameters()] == [name for name, _ in model.named_parameters()]


def test_frozen_weights_are_not_trained(model, tokens) -> None:
    names = [name for name, _ in Forward(model, tokens, "fp32").named_parameters()]
    model[0].auto_model.embeddings.requires_grad_(False)
    remaining = [name for name, _ in Forward(model, tokens, "fp32").named_parameters()]
    assert set(names) - set(remaining) == {name for name in names if ".embeddings." in name}


def test_the_token_table_can_be_replaced(model, tokens) -> None:
    forward = Forward(model, tokens, "fp32")
    other = tokenize(model, ["rain", "soup and bread"], 64)
    forward.use_tokens(other)
    assert forward.tokens is other
    assert torch.equal(forward.embed(np.array([1])), Forward(model, other, "fp32").embed(np.array([1])))
