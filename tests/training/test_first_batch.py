"""The first batch as the model saw it."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from bsc_core.config import BSCLossConfig
from bsc_core.config.losses import TripletLossConfig
from bsc_core.data import PairDataset
from bsc_core.encoders import tokenise
from bsc_core.encoders.pretrained import limit_length, load_folder, static_model
from bsc_core.training.first_batch import SHOWN, first_batch

QUERIES = ["how do i cook soup", "why the rain", "when the bike bike bike bike bike bike bike"]
DOCUMENTS = ["boil water with salt", "wet and cold", "ride"]


@pytest.fixture(params=["transformer", "static"])
def model(request, tiny_encoder):
    if request.param == "transformer":
        return load_folder(tiny_encoder, 8)
    tokenizer = Tokenizer.from_file(str(tiny_encoder / "tokenizer.json"))
    model = static_model(tokenizer, np.ones((tokenizer.get_vocab_size(), 4), dtype=np.float32))
    limit_length(model, 8)
    return model


def test_texts_come_back_from_their_tokens_with_what_was_cut(model):
    pairs = PairDataset.from_pairs(QUERIES, DOCUMENTS, np.array([1, 0.5, 0], dtype=np.float32))
    told = first_batch(model, pairs, np.array([2, 0, 1]), loss=BSCLossConfig(), max_length=8)
    assert (told["epoch"], told["size"]) == (1, 3)
    assert [pair["label"] for pair in told["pairs"]] == [0, 1, 0.5]
    assert [pair["document"] for pair in told["pairs"]] == ["ride", "boil water with salt", "wet and cold"]
    assert [pair["query_cut"] for pair in told["pairs"]] == [True, False, False]
    assert not any(pair["document_cut"] for pair in told["pairs"])
    first, second, _ = told["pairs"]
    assert second["query"] == "how do i cook soup"
    assert QUERIES[2].startswith(first["query"])
    assert first["query_tokens"] == 8
    table = tokenise(model, QUERIES, 8)
    assert second["query_tokens"] == table.lengths[0]


def test_looking_leaves_the_tokeniser_as_it_was(model):
    before = tokenise(model, QUERIES, 8)
    first_batch(model, PairDataset.from_pairs(QUERIES, DOCUMENTS), np.arange(3), loss=BSCLossConfig(), max_length=8)
    after = tokenise(model, QUERIES, 8)
    np.testing.assert_array_equal(before.tokens, after.tokens)
    assert model.encode([QUERIES[2]]).shape == (1, model.get_embedding_dimension())


def test_unlabelled_pairs_have_no_label_and_negatives_are_shown_where_the_loss_takes_them(model):
    pairs = PairDataset.from_pairs(QUERIES, DOCUMENTS, negatives=["snow", "song", "exam"])
    rows = np.arange(3)
    told = first_batch(model, pairs, rows, loss=TripletLossConfig(), max_length=8)["pairs"]
    assert [pair["negative"] for pair in told] == ["snow", "song", "exam"]
    assert {pair["label"] for pair in told} == {None}


def test_a_large_batch_is_counted_whole_and_shown_in_part(model):
    pairs = PairDataset.from_pairs([f"soup {n}" for n in range(100)], [f"rain {n}" for n in range(100)])
    told = first_batch(model, pairs, np.arange(100), loss=BSCLossConfig(), max_length=8)
    assert told["size"] == 100
    assert len(told["pairs"]) == SHOWN == 64
