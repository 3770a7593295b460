"""The static encoder: its arithmetic on small arrays, and the distilled model."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from bsc_core.config import EncoderConfig
from bsc_core.data import read_pairs
from bsc_core.encoders import build_encoder, encode, load_encoder, static, tokenize
from bsc_core.encoders.static import check_quality, inverse_frequency, principal_axes
from bsc_core.errors import ModelError


def test_principal_axes_equal_those_of_scikit_learn():
    from sklearn.decomposition import PCA

    vectors = np.random.default_rng(1).normal(size=(50, 6)) @ np.diag([5, 4, 3, 2, 1, 0.5])
    actual = principal_axes(vectors.astype(np.float32), 3)
    expected = PCA(3).fit_transform(vectors)
    expected /= np.sqrt(np.linalg.norm(expected, axis=0))  # half-whitened
    expected /= np.linalg.norm(expected, axis=1).mean()
    np.testing.assert_allclose(np.abs(actual), np.abs(expected), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(actual.mean(axis=0), 0, atol=1e-8)


def test_rare_pieces_have_larger_weights_up_to_one():
    weights = inverse_frequency(30_522)
    assert (np.diff(weights) >= 0).all()
    assert weights[-1] == 1
    assert 0 < weights[0] == weights[static.FIRST_WORD] < 1e-3


def test_an_encoder_that_confuses_texts_is_refused(tiny_static):
    tiny_static[0].embedding.weight.data[:] = 1
    with pytest.raises(ModelError, match="does not separate similar from dissimilar texts"):
        check_quality(tiny_static)


def test_similarities_correlate_with_labels_on_real_pairs(shared_data):
    columns = {"query": "sentence1", "document": "sentence2", "label": "score", "split": "split"}
    pairs = read_pairs(shared_data / "stsb" / "pairs.tsv.gz", columns, label_max=5)
    pairs = pairs.take(np.asarray(pairs.split) == "dev").compact()
    model = load_encoder(EncoderConfig(name="static"))
    vectors = encode(model, tokenize(model, pairs.texts.texts, 90))
    left, right = vectors[pairs.query], vectors[pairs.document]
    cosines = np.sum(left * right, axis=1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert vectors.shape[1] == 256
    assert spearmanr(cosines, pairs.label)[0] > 0.78


def test_it_is_distilled_once(tmp_path, monkeypatch, tiny_static):
    monkeypatch.setenv("BSC_CACHE", str(tmp_path))
    calls = []
    monkeypatch.setattr(static, "distil", lambda: calls.append(1) or tiny_static)
    monkeypatch.setattr(static, "check_quality", lambda model: None)
    messages = []
    for name in ("bundled", "static", "static"):
        build_encoder(name, messages.append)
    assert messages == ["Building the static encoder from the bundled one, once on each machine"]
    folder = static.static_folder()
    assert static.static_folder() == folder
    assert len(calls) == 1
    assert (folder / "model.safetensors").is_file()
