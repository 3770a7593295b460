"""Tests of the evaluation of a model on a file: intervals, and a corpus that is encoded once."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bsc_core.config import DataConfig, EncoderConfig
from bsc_core.data import load_evaluation_data
from bsc_core.encoders import embed
from bsc_core.errors import InputError
from bsc_core.evaluate_model import embed_with_corpus, evaluate_model
from bsc_core.evaluation import evaluate


@pytest.fixture
def config(tiny_encoder):
    return EncoderConfig(name=str(tiny_encoder), max_seq_length=16)


@pytest.fixture
def files(tmp_path):
    """A corpus and two files of queries, one of which repeats a document as a query."""
    (tmp_path / "corpus.jsonl").write_text(lines({"document": text} for text in DOCUMENTS), encoding="utf-8")
    for name, queries in {"one": ["cook soup", "ride bike"], "two": ["bread soup", "tea cat", "plant rose"]}.items():
        pairs = [{"query": query, "document": text} for query, text in zip(queries, DOCUMENTS, strict=False)]
        (tmp_path / f"{name}.jsonl").write_text(lines(pairs), encoding="utf-8")
    return tmp_path


DOCUMENTS = ["bread soup", "bike wheel brake", "garden rose seed soil", "train ticket"]


def lines(values):
    return "\n".join(json.dumps(value) for value in values) + "\n"


def data(folder, name):
    return DataConfig(train=str(folder / f"{name}.jsonl"), corpus=str(folder / "corpus.jsonl"))


def test_a_corpus_is_encoded_once_for_all_queries(own_cache, config, files, monkeypatch):
    from bsc_core.encoders import encoding

    encoded, plain = [], encoding.encode
    monkeypatch.setattr(
        encoding, "encode", lambda model, tokens, **options: encoded.append(len(tokens)) or plain(model, tokens)
    )
    for name in ("one", "two", "one"):
        embed_with_corpus(config, *load_evaluation_data(data(files, name)))
    assert encoded == [4, 2, 2]  # the corpus, then new queries alone


def test_vectors_with_a_corpus_equal_those_of_the_full_table(own_cache, config, files):
    dataset, corpus = load_evaluation_data(data(files, "two"))
    parts = embed_with_corpus(config, dataset, corpus)
    whole = embed(config, dataset.texts)
    np.testing.assert_allclose(parts, whole, atol=1e-5)
    np.testing.assert_array_equal(embed_with_corpus(config, dataset, corpus), whole)  # now known
    np.testing.assert_array_equal(embed_with_corpus(config, dataset, None), whole)


def test_a_report_has_an_interval_for_every_ranking_metric(own_cache, config, small_pairs):
    report = evaluate_model(config, DataConfig(train=str(small_pairs)))
    low, high = report["intervals"]["mrr"]
    assert low < report["metrics"]["mrr"] < high
    assert set(report["intervals"]) < set(report["metrics"])
    assert json.loads(json.dumps(report, allow_nan=False)) == report


def test_thresholds_of_a_run_are_applied_unchanged(own_cache, config, small_pairs):
    metrics = evaluate_model(config, DataConfig(train=str(small_pairs)), decision=0.9, accuracy_decision=2.0)["metrics"]
    assert (metrics["f1_threshold"], metrics["accuracy_threshold"]) == (0.9, 2.0)
    assert metrics["best_accuracy"] == pytest.approx(1 - metrics["positives"])


def test_truncated_vectors_are_evaluated_too(own_cache, config, small_pairs):
    data = DataConfig(train=str(small_pairs))
    report = evaluate_model(config, data, dimensions=(8, 32))
    dataset, _ = load_evaluation_data(data)
    vectors = embed(config, dataset.texts)
    assert report["dimensions"]["8"] == evaluate(vectors[:, :8], dataset)
    assert report["dimensions"]["32"] == report["metrics"]
    assert report["dimensions"]["8"]["mrr"] != report["metrics"]["mrr"]
    with pytest.raises(InputError, match=r"dimensions has 64, and the vectors of .* have 32"):
        evaluate_model(config, data, dimensions=(64,))
