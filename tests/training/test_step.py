"""A step over distinct texts equals a step that encodes every row by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bsc_core.config import BSCLossConfig, EncoderConfig
from bsc_core.data import PairDataset, read_pairs
from bsc_core.encoders import load_encoder, tokenise
from bsc_core.losses import build_loss
from bsc_core.training.step import batch_labels, embed_batch, make_batch


@pytest.fixture
def parts(small_pairs, tiny_encoder):
    dataset = read_pairs(small_pairs)
    model = load_encoder(EncoderConfig(name=str(tiny_encoder), max_length=32)).eval()
    return dataset, model, tokenise(model, dataset.texts.texts, 32)


def gradients(model) -> list[torch.Tensor]:
    taken = [torch.zeros(1) if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return taken


@pytest.mark.parametrize("micro_tokens", [8, 64, 4096])
def test_distinct_texts_give_the_plain_steps_loss_and_gradients(parts, micro_tokens):
    dataset, model, tokens = parts
    rows = np.array([0, 1, 2, 3, 8, 9, 30, 0], dtype=np.int32)  # repeated queries and a repeated row
    loss = build_loss(BSCLossConfig(temperature=0.1))
    labels = batch_labels(dataset, rows, model.device)

    def alone(ids):
        return torch.cat([model(tokens.features(np.array([i])))["sentence_embedding"] for i in ids])

    plain = loss(alone(dataset.query[rows]), alone(dataset.document[rows]), labels).total
    plain.backward()
    expected = gradients(model)

    total = loss(*embed_batch(model, tokens, dataset, rows, micro_tokens), labels).total
    total.backward()

    assert total.item() == pytest.approx(plain.item(), abs=1e-5)
    for ours, theirs in zip(gradients(model), expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_each_distinct_text_is_encoded_once(parts):
    dataset, model, tokens = parts
    rows = np.arange(8, dtype=np.int32)  # two queries, eight documents
    seen = []
    hook = model.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0]["input_ids"])))
    embed_batch(model, tokens, dataset, rows, 4096)
    hook.remove()
    assert sum(seen) == 10


def test_positives_only_have_no_labels(parts, tmp_path):
    path = tmp_path / "positives.csv"
    path.write_text("query,document\nwhat is soup,hot water\nwhat is rain,cold water\n")
    dataset = read_pairs(path)
    assert batch_labels(dataset, np.array([0, 1], dtype=np.int32), torch.device("cpu")) is None


def test_a_negative_text_is_known_by_the_same_id_as_a_document(tiny_encoder):
    dataset = PairDataset.from_pairs(["a", "b"], ["x", "y"], negatives=["y", "z"])
    model = load_encoder(EncoderConfig(name=str(tiny_encoder), max_length=32)).eval()
    tokens = tokenise(model, dataset.texts.texts, 32)
    rows = np.arange(2, dtype=np.int32)
    batch = make_batch(model, tokens, dataset, rows, loss=BSCLossConfig(), micro_tokens=None)
    assert batch.ids["document_ids"].tolist() == [*dataset.document.tolist(), *dataset.negative.tolist()]
    assert len(batch.documents) == 4
