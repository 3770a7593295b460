"""Public datasets are read completely and correctly."""

import csv
import gzip

import numpy as np
import pytest

from bsc_core.config import DataConfig
from bsc_core.data import audit, load_data, read_corpus, read_pairs
from bsc_core.errors import DataError


def rows_by_the_csv_module(path):
    with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


@pytest.mark.parametrize(
    ("name", "query", "document", "label", "scale"),
    [
        ("pfcc_s", ["query"], ["doc"], "label", (0, 1)),
        ("wikiqa", ["query"], ["doc"], "label", (0, 1)),
        ("cqa_b", ["query_subject", "query_body"], ["doc_subject", "doc_body"], "label", (0, 1)),
        ("stsb", ["sentence1"], ["sentence2"], "score", (0, 5)),
        ("sick", ["sentence1"], ["sentence2"], "score", (1, 5)),
        ("mrpc", ["sentence1"], ["sentence2"], "label", (0, 1)),
    ],
)
def test_every_row_of_a_real_file_is_read_as_the_csv_module_reads_it(shared_data, name, query, document, label, scale):
    path = shared_data / name / "pairs.tsv.gz"
    pairs = read_pairs(path, label_min=scale[0], label_max=scale[1])
    rows = rows_by_the_csv_module(path)
    assert not pairs.report.rejected
    for side, names in ((pairs.query, query), (pairs.document, document)):
        assert pairs.texts.take(side) == [" ".join(filter(None, (row[name] for name in names))) for row in rows]
    expected = [(float(row[label]) - scale[0]) / (scale[1] - scale[0]) for row in rows]
    np.testing.assert_allclose(pairs.label, expected, atol=1e-6)
    assert pairs.split == tuple(row["split"] for row in rows)


def test_every_row_of_a_large_file_is_read(shared_data):
    assert len(read_pairs(shared_data / "wikiqa" / "pairs.tsv.gz")) == 29_258


def test_texts_such_as_null_and_na_stay_texts(shared_data):
    rows = rows_by_the_csv_module(shared_data / "qqp" / "pairs.tsv.gz")
    pairs = read_pairs(shared_data / "qqp" / "pairs.tsv.gz")
    assert len(pairs) == len(rows)
    assert set(pairs.texts.texts) == {row[side] for row in rows for side in ("sentence1", "sentence2")}


def test_claims_are_joined_to_their_corpus(shared_data):
    folder = shared_data / "pfcc_s"
    data = load_data(DataConfig(train=str(folder / "pairs.tsv.gz"), corpus=str(folder / "corpus.tsv.gz")), seed=0)
    assert (len(data.train), len(data.dev), data.test, len(data.corpus)) == (700, 100, None, 10_369)
    row_of = {key: row for row, key in enumerate(data.corpus.key)}
    rows = [row_of[key] for key in data.dev.document_key]
    assert data.corpus.document[rows].tolist() == data.dev.document.tolist()
    (repeated,) = [finding for finding in audit(data) if finding.severity != "info"]
    assert (repeated.code, len(repeated.rows)) == ("repeated_documents", 260)


def test_scores_on_another_scale_are_refused(shared_data):
    with pytest.raises(DataError, match=r"labels in column 'score' .*range from 1.1 to 5.*set label_min and label_max"):
        read_pairs(shared_data / "stsb" / "pairs.tsv.gz")


@pytest.mark.parametrize("name", ["snli", "mnli"])
def test_inference_rows_are_read_with_their_classes(shared_data, name):
    dataset = read_pairs(shared_data / name / "pairs.tsv.gz")
    assert dataset.class_names == ("entailment", "neutral", "contradiction")
    assert set(dataset.classes.tolist()) == {0, 1, 2}
    assert ((dataset.label == 1) == (dataset.classes == 0)).all()
    assert dataset.has_negatives


def test_the_sample_files_are_read_completely(sample_pairs, sample_corpus):
    data = load_data(DataConfig(train=str(sample_pairs), corpus=str(sample_corpus)), seed=0)
    assert not [report for report in data.reports if report.rejected]
    assert data.train.has_negatives
    assert set(data.dev.document.tolist()) <= set(data.corpus.document.tolist())
    assert len(read_corpus(sample_corpus)) == len(data.corpus)
