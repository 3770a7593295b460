"""Nearest sentences of each class, compared with all cosines."""

import numpy as np
import pytest

from bsc_core.config import ExamplesConfig, SentenceColumns
from bsc_core.data import PairDataset
from bsc_core.data.read_report import ReadReport
from bsc_core.errors import DataError
from bsc_core.preparation import generate
from bsc_core.preparation.generate import sentence_neighbors


def sentences_of(text, classes, report=None):
    columns = dict.fromkeys(("query", "document", "query_group", "line"), text)
    return PairDataset(texts=None, **columns, threshold=0.5, report=report, classes=classes)


def slow_neighbors(vectors, sentences, config):
    """For each sentence the cosines of its nearest others: k of every class, k of its class and k of the rest, or
    k in all; and the cosines of the ids must be these."""
    unit = vectors[sentences.query].astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit @ unit.T
    expected = []
    for row in range(len(sentences)):
        others = [other for other in range(len(sentences)) if other != row]
        of_class = [[one for one in others if sentences.classes[one] == number] for number in set(sentences.classes)]
        same_class = [other for other in others if sentences.classes[other] == sentences.classes[row]]
        other_class = [other for other in others if other not in same_class]
        kinds = {"all": [others], "own_and_others": [same_class, other_class], "each_class": of_class}[
            config.neighbors_of
        ]
        near = [sorted((cosines[row, other] for other in kind), reverse=True)[: config.neighbors] for kind in kinds]
        expected.append(sorted((value for kind in near for value in kind), reverse=True))
    return cosines, expected


@pytest.mark.parametrize("neighbors_of", ["each_class", "own_and_others", "all"])
@pytest.mark.parametrize("small", [0, 3, 1000])
@pytest.mark.parametrize("classes", [1, 2, 9])
def test_neighbors_are_the_nearest_of_each_kind(monkeypatch, neighbors_of, small, classes):
    monkeypatch.setattr(generate, "SMALL_CLASS", small)
    monkeypatch.setattr(generate, "BLOCK", 50)
    generator = np.random.default_rng(classes)
    vectors = generator.normal(size=(40, 5)).astype(np.float32)
    vectors[7] = vectors[3]  # equal vectors of two texts
    number = np.sort(generator.integers(classes, size=45)).astype(np.int32)
    number[:classes] = np.arange(classes)
    text = np.concatenate([np.arange(40), [1, 1, 2, 7, 9]]).astype(np.int32)  # some texts occur twice
    sentences = sentences_of(text, number)
    config = ExamplesConfig(neighbors=6, neighbors_of=neighbors_of)
    result = sentence_neighbors(vectors, sentences, config)
    cosines, expected = slow_neighbors(vectors, sentences, config)
    for row in range(45):
        ids = result.ids[row][result.mask[row]]
        assert row not in ids
        assert len(set(ids.tolist())) == len(ids) == len(expected[row])
        np.testing.assert_allclose(cosines[row, ids], expected[row], atol=1e-5)
        np.testing.assert_allclose(result.similarity[row][result.mask[row]], expected[row], atol=1e-5)
        if neighbors_of != "all":
            assert (number[ids] == number[row]).sum() == min(6, (number == number[row]).sum() - 1)


def test_too_many_neighbors_are_refused(monkeypatch):
    monkeypatch.setattr(generate, "MAX_NEIGHBORS", 100)
    monkeypatch.setattr(generate, "UNCHECKED_NEIGHBORS", 10)
    number = np.arange(10, dtype=np.int32)
    report = ReadReport("many.tsv", 10, 10, (), SentenceColumns(text="text", class_label="label"), False, "row")
    sentences = sentences_of(number, number, report)
    with pytest.raises(DataError, match=r"2 neighbors of each of 10 classes for 10 sentences do not fit into memory"):
        sentence_neighbors(np.eye(10, dtype=np.float32), sentences, ExamplesConfig(neighbors=2))


@pytest.mark.parametrize("neighbors_of", ["each_class", "own_and_others", "all"])
def test_more_neighbors_than_sentences_need_no_more_memory(neighbors_of):
    number = np.repeat(np.arange(2, dtype=np.int32), 20)
    sentences = sentences_of(np.arange(40, dtype=np.int32), number)
    vectors = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    most, more = (
        sentence_neighbors(vectors, sentences, ExamplesConfig(neighbors=neighbors, neighbors_of=neighbors_of))
        for neighbors in (39, 1000)
    )
    np.testing.assert_array_equal(more.ids, most.ids)
    assert (more.mask.sum(axis=1) == 39).all()
    assert most.note == ""


@pytest.mark.parametrize("neighbors_of", ["each_class", "own_and_others", "all"])
def test_sentences_with_equal_vectors_have_neighbors(neighbors_of):
    number = np.repeat(np.arange(2, dtype=np.int32), 20)
    sentences = sentences_of(np.arange(40, dtype=np.int32), number)
    config = ExamplesConfig(neighbors=3, neighbors_of=neighbors_of)
    result = sentence_neighbors(np.ones((40, 4), dtype=np.float32), sentences, config)
    assert result.mask.all()
    assert (result.ids != np.arange(40)[:, None]).all()
