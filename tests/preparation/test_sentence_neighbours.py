"""The nearest sentences of each class, against all cosines."""

import numpy as np
import pytest

from bsc_core.config import ExamplesConfig, SentenceColumns
from bsc_core.data.reports import ReadReport
from bsc_core.data.sentences import Sentences
from bsc_core.errors import DataError
from bsc_core.preparation import neighbours as searching
from bsc_core.preparation.neighbours import sentence_neighbours


def slow_neighbours(vectors, sentences, config):
    """For each sentence the cosines of its nearest others: k of every class, k of its class and k of the rest, or
    k in all; and the ids' own cosines must be these."""
    unit = vectors[sentences.text].astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit @ unit.T
    expected = []
    for row in range(len(sentences)):
        others = [other for other in range(len(sentences)) if other != row]
        of_class = [[one for one in others if sentences.classes[one] == number] for number in set(sentences.classes)]
        alike = [other for other in others if sentences.classes[other] == sentences.classes[row]]
        strange = [other for other in others if other not in alike]
        kinds = {"all": [others], "own_and_others": [alike, strange], "each_class": of_class}[config.neighbours_of]
        near = [sorted((cosines[row, other] for other in kind), reverse=True)[: config.neighbours] for kind in kinds]
        expected.append(sorted((value for kind in near for value in kind), reverse=True))
    return cosines, expected


@pytest.mark.parametrize("neighbours_of", ["each_class", "own_and_others", "all"])
@pytest.mark.parametrize("small", [0, 3, 1000])
@pytest.mark.parametrize("classes", [1, 2, 9])
def test_neighbours_are_the_nearest_of_each_kind(monkeypatch, neighbours_of, small, classes):
    monkeypatch.setattr(searching, "SMALL", small)
    monkeypatch.setattr(searching, "BLOCK", 50)
    generator = np.random.default_rng(classes)
    vectors = generator.normal(size=(40, 5)).astype(np.float32)
    vectors[7] = vectors[3]  # the same place under two numbers
    number = np.sort(generator.integers(classes, size=45)).astype(np.int32)
    number[:classes] = np.arange(classes)
    text = np.concatenate([np.arange(40), [1, 1, 2, 7, 9]]).astype(np.int32)  # some texts stand twice
    sentences = Sentences(None, text, number, None, None, None, text)
    config = ExamplesConfig(neighbours=6, neighbours_of=neighbours_of)
    found = sentence_neighbours(vectors, sentences, config)
    cosines, expected = slow_neighbours(vectors, sentences, config)
    for row in range(45):
        ids = found.ids[row][found.kept[row]]
        assert row not in ids
        assert len(set(ids.tolist())) == len(ids) == len(expected[row])
        np.testing.assert_allclose(cosines[row, ids], expected[row], atol=1e-5)
        np.testing.assert_allclose(found.similarity[row][found.kept[row]], expected[row], atol=1e-5)
        if neighbours_of != "all":
            assert (number[ids] == number[row]).sum() == min(6, (number == number[row]).sum() - 1)


def test_more_neighbours_than_can_be_held_are_refused(monkeypatch):
    monkeypatch.setattr(searching, "MOST_FOUND", 100)
    number = np.arange(10, dtype=np.int32)
    report = ReadReport("many.tsv", 10, 10, (), SentenceColumns(text="text", class_label="label"), False, "row")
    sentences = Sentences(None, number, number, None, None, report, number)
    with pytest.raises(DataError, match=r"2 neighbours of each of 10 classes for 10 sentences are too many to hold"):
        sentence_neighbours(np.eye(10, dtype=np.float32), sentences, ExamplesConfig(neighbours=2))


@pytest.mark.parametrize("neighbours_of", ["each_class", "own_and_others", "all"])
def test_sentences_in_one_place_still_have_their_neighbours(neighbours_of):
    number = np.repeat(np.arange(2, dtype=np.int32), 20)
    sentences = Sentences(None, np.arange(40, dtype=np.int32), number, None, None, None, number)
    config = ExamplesConfig(neighbours=3, neighbours_of=neighbours_of)
    found = sentence_neighbours(np.ones((40, 4), dtype=np.float32), sentences, config)
    assert found.kept.all()
    assert (found.ids != np.arange(40)[:, None]).all()
