"""The first batch as the encoder sees it."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer

from bsc_core.config import BSCLossConfig
from bsc_core.config.losses import TripletLossConfig
from bsc_core.data import PairDataset
from bsc_core.encoders import tokenize
from bsc_core.encoders.pretrained import limit_length, load_folder, static_model
from bsc_core.training.first_batch import MAX_PAIRS, first_batch

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


def test_texts_are_decoded_from_their_tokens_after_truncation(model):
    pairs = PairDataset.from_pairs(QUERIES, DOCUMENTS, np.array([1, 0.5, 0], dtype=np.float32))
    reported = first_batch(model, pairs, np.array([2, 0, 1]), loss=BSCLossConfig(), max_seq_length=8)
    assert (reported["epoch"], reported["size"]) == (1, 3)
    assert [pair["label"] for pair in reported["pairs"]] == [0, 1, 0.5]
    assert [pair["document"] for pair in reported["pairs"]] == ["ride", "boil water with salt", "wet and cold"]
    assert [pair["query_cut"] for pair in reported["pairs"]] == [True, False, False]
    assert not any(pair["document_cut"] for pair in reported["pairs"])
    first, second, _ = reported["pairs"]
    assert second["query"] == "how do i cook soup"
    assert QUERIES[2].startswith(first["query"])
    assert first["query_tokens"] == 8
    table = tokenize(model, QUERIES, 8)
    assert second["query_tokens"] == table.lengths[0]


def test_the_tokenizer_is_not_changed(model):
    before = tokenize(model, QUERIES, 8)
    first_batch(model, PairDataset.from_pairs(QUERIES, DOCUMENTS), np.arange(3), loss=BSCLossConfig(), max_seq_length=8)
    after = tokenize(model, QUERIES, 8)
    np.testing.assert_array_equal(before.tokens, after.tokens)
    assert model.encode([QUERIES[2]]).shape == (1, model.get_embedding_dimension())


def test_unlabeled_pairs_have_no_label_and_negatives_are_included_if_the_loss_takes_them(model):
    pairs = PairDataset.from_pairs(QUERIES, DOCUMENTS, negatives=["snow", "song", "exam"])
    rows = np.arange(3)
    reported = first_batch(model, pairs, rows, loss=TripletLossConfig(), max_seq_length=8)["pairs"]
    assert [pair["negative"] for pair in reported] == ["snow", "song", "exam"]
    assert {pair["label"] for pair in reported} == {None}


def test_a_large_batch_is_truncated_but_its_size_is_reported(model):
    pairs = PairDataset.from_pairs([f"soup {n}" for n in range(100)], [f"rain {n}" for n in range(100)])
    reported = first_batch(model, pairs, np.arange(100), loss=BSCLossConfig(), max_seq_length=8)
    assert reported["size"] == 100
    assert len(reported["pairs"]) == MAX_PAIRS == 64
