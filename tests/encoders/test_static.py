"""The static encoder: its arithmetic on small arrays, and the real one distilled once."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from bsc_core.config import EncoderConfig
from bsc_core.data import read_pairs
from bsc_core.encoders import TokenTable, encode, load_encoder, static, tokenise
from bsc_core.encoders.static import check_quality, inverse_frequency, principal_axes
from bsc_core.errors import ModelError


def test_principal_axes_equal_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    vectors = np.random.default_rng(1).normal(size=(50, 6)) @ np.diag([5, 4, 3, 2, 1, 0.5])
    found = principal_axes(vectors.astype(np.float32), 3)
    expected = PCA(3).fit_transform(vectors)
    expected /= np.sqrt(np.linalg.norm(expected, axis=0))  # half-whitened
    expected /= np.linalg.norm(expected, axis=1).mean()
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-8)


def test_rarer_pieces_weigh_more_and_the_rarest_weighs_one():
    weights = inverse_frequency(30_522)
    assert (np.diff(weights) >= 0).all()
    assert weights[-1] == 1
    assert 0 < weights[0] == weights[static.FIRST_WORD] < 1e-3


def test_an_encoder_that_confuses_texts_is_refused(tiny_static):
    tiny_static[0].embedding.weight.data[:] = 1
    with pytest.raises(ModelError, match="does not tell like texts from unlike ones"):
        check_quality(tiny_static)


def test_its_token_vectors_follow_the_bundled_encoder_on_real_pairs(shared_data):
    columns = {"query": "sentence1", "document": "sentence2", "label": "score", "split": "split"}
    pairs = read_pairs(shared_data / "stsb" / "pairs.tsv.gz", columns, label_max=5)
    pairs = pairs.take(np.asarray(pairs.split) == "dev").compact()
    model = load_encoder(EncoderConfig(name="static"))
    vectors = encode(model, tokenise(model, pairs.texts.texts, 90))
    left, right = vectors[pairs.query], vectors[pairs.document]
    cosines = np.sum(left * right, axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert vectors.shape[1] == 256
    assert spearmanr(cosines, pairs.label)[0] > 0.78


def test_it_trains_hundreds_of_pairs_a_second():
    model = load_encoder(EncoderConfig(name="static"))
    chooser = np.random.default_rng(0)
    pieces = chooser.integers(2000, 20_000, (600, 15))
    tokens = TokenTable(pieces.astype(np.int32).reshape(-1), np.arange(601, dtype=np.int64) * 15, bag=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    model.train()
    started = time.process_time()
    for step in range(10):
        features = tokens.features(np.arange(60) + 60 * step)
        vectors = torch.nn.functional.normalize(model(features)["sentence_embedding"])
        torch.nn.functional.cross_entropy(vectors[:30] @ vectors[30:].T / 0.1, torch.arange(30)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    assert 300 / (time.process_time() - started) > 300


def test_it_is_made_once_and_kept_whole(tmp_path, monkeypatch, tiny_static):
    monkeypatch.setenv("BSC_CACHE", str(tmp_path))
    made = []
    monkeypatch.setattr(static, "distil", lambda: made.append(1) or tiny_static)
    monkeypatch.setattr(static, "check_quality", lambda model: None)
    folder = static.static_folder()
    assert static.static_folder() == folder
    assert len(made) == 1
    assert (folder / "model.safetensors").is_file()
