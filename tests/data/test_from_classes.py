"""Examples from classified sentences, compared with a slow transcription of their definition."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import ExamplesConfig, SentenceColumns
from bsc_core.data import PairDataset
from bsc_core.data.generation import from_classes
from bsc_core.data.generation.from_classes import Neighbors, generate_examples, repeats
from bsc_core.data.read_report import ReadReport
from bsc_core.errors import ConfigError, DataError

NAMES = ["sentences", "neighbors", "above the threshold", "distinct", "examples", "limited per anchor", "sampled"]


def sentences_of(texts, classes):
    report = ReadReport(
        "rows.csv", len(texts), len(texts), (), SentenceColumns(text="text", class_label="label"), False
    )
    return replace(PairDataset.from_pairs(texts, texts, classes=classes), report=report)


def random_sentences(generator, number, classes=3):
    texts = [" ".join(generator.choice(list("abcdefgh"), size=generator.integers(1, 4))) for _ in range(number)]
    return sentences_of(texts, generator.integers(classes, size=number))


def random_neighbors(generator, number, width):
    """Distinct other rows, some missing, in any order."""
    ids = np.full((number, width), -1)
    for row in range(number):
        others = generator.permutation([other for other in range(number) if other != row])
        result = generator.integers(0, min(width, len(others)) + 1)
        ids[row, :result] = others[:result]
    similarity = generator.permutation(np.linspace(-1, 1, number * width)).reshape(number, width)
    return ids, similarity.astype(np.float32)


def words(text):
    return f" {' '.join(re.findall(r'[a-z0-9]+', text.lower()))} "


def slow_examples(sentences, ids, similarity, config):
    """The definition, anchor by anchor: text ids of anchor, first and second sentence, and the label."""
    least = -2 if config.min_similarity is None else config.min_similarity
    result = []
    for row in range(len(sentences)):
        anchor = sentences.texts[sentences.query[row]]
        neighbors = sorted((-similarity[row, index], other) for index, other in enumerate(ids[row]) if other >= 0)
        left, seen = [], set()
        for negative, other in neighbors:
            text = sentences.texts[sentences.query[other]]
            if -negative < least:
                continue
            if config.distinct:
                again = (words(text), int(sentences.classes[other])) in seen
                seen.add((words(text), int(sentences.classes[other])))
                if again or words(anchor) in words(text) or words(text) in words(anchor):
                    continue
            left.append(other)
        same = [other for other in left if sentences.classes[other] == sentences.classes[row]]
        others = [other for other in left if sentences.classes[other] != sentences.classes[row]]
        if config.kind == "triplets":
            rows = [(row, one, two, None) for one, two in itertools.product(same, others)]
        elif config.kind == "pairs":
            rows = [(row, one, one, 1.0) for one in same] + [(row, one, one, 0.0) for one in others]
        else:
            rows = [(row, one, one, None) for one in same]
        result += [(*(int(sentences.query[index]) for index in three), label) for *three, label in rows]
    return result


def rows_of(result):
    second = result.document if result.negative is None else result.negative
    labels = [None] * len(result) if result.label is None else result.label.tolist()
    return list(zip(result.query.tolist(), result.document.tolist(), second.tolist(), labels, strict=True))


@settings(max_examples=150)
@given(
    st.integers(0, 10**6),
    st.integers(4, 25),
    st.sampled_from(["triplets", "pairs", "same_class"]),
    st.booleans(),
    st.none() | st.floats(-1, 1, width=32),
)
def test_examples_are_those_of_the_definition(seed, number, kind, distinct, least):
    generator = np.random.default_rng(seed)
    sentences = random_sentences(generator, number)
    ids, similarity = random_neighbors(generator, number, 6)
    config = ExamplesConfig(kind=kind, distinct=distinct, min_similarity=least)
    expected = slow_examples(sentences, ids, similarity, config)
    if not expected or (kind != "same_class" and len(set(sentences.classes.tolist())) == 1):
        with pytest.raises(DataError):
            generate_examples(sentences, Neighbors.from_ids(ids, similarity), config)
        return
    result, funnel = generate_examples(sentences, Neighbors.from_ids(ids, similarity), config)
    assert rows_of(result) == expected
    assert [stage.name for stage in funnel] == NAMES
    counts = [stage.count for stage in funnel]
    assert counts[0] == number
    assert counts[1] == (ids >= 0).sum()
    assert counts[2] == ((ids >= 0) & (similarity >= (-2 if least is None else least))).sum()
    assert counts[4] == counts[5] == counts[6] == len(expected)
    for stage in funnel:
        assert len(stage.examples) == min(3, stage.count)
    texts = {tuple(sentences.texts.take(row[:3] if kind == "triplets" else row[:2])) for row in expected}
    assert all(shown[: 3 if kind == "triplets" else 2] in texts for shown in funnel[-1].examples)


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.none() | st.integers(1, 4), st.none() | st.integers(2, 30))
def test_the_cap_and_the_target_sample_from_the_same_examples(seed, cap, target):
    generator = np.random.default_rng(seed)
    sentences = random_sentences(generator, 20, 2)
    neighbors = Neighbors.from_ids(*random_neighbors(generator, 20, 8))
    config = ExamplesConfig(distinct=False, seed=seed)
    try:
        everything, _ = generate_examples(sentences, neighbors, config)
    except DataError:
        return
    limited = config.model_copy(update={"cap": cap, "target": target})
    result, funnel = generate_examples(sentences, neighbors, limited, split="dev")
    assert set(rows_of(result)) <= set(rows_of(everything))
    _, per_anchor = np.unique(result.line, return_counts=True)
    assert cap is None or per_anchor.max() <= cap
    of_line = dict(zip(*np.unique(everything.line, return_counts=True), strict=True))
    after_cap = sum(min(cap or count, count) for count in of_line.values())
    assert funnel[4].count == len(everything)
    assert funnel[5].count == after_cap
    assert funnel[6].count == len(result) == min(target or after_cap, after_cap)
    again, _ = generate_examples(sentences, neighbors, limited, split="dev")
    assert rows_of(again) == rows_of(result)


def ring(number, width):
    """Each sentence's neighbors are the next ones, ever less similar."""
    ids = (np.arange(number)[:, None] + np.arange(1, width + 1)) % number
    return ids, np.tile(np.linspace(0.9, 0.1, width, dtype=np.float32), (number, 1))


def test_a_percentile_selects_that_share_of_neighbors_and_reports_the_cosine():
    sentences = sentences_of([f"word{number}" for number in range(50)], [number % 2 for number in range(50)])
    result, funnel = generate_examples(sentences, Neighbors.from_ids(*ring(50, 8)), ExamplesConfig(min_percentile=50))
    assert funnel[2].count == 4 * 50
    assert funnel[2].note == "cosine of at least 0.500"
    assert len(result) == 50 * 2 * 2


def test_a_neighbor_at_the_threshold_counts():
    sentences = sentences_of(["a", "b", "c"], [0, 0, 1])
    similarity = np.array([[0.7, 0.3], [0.7, 0.3], [0.3, 0.3]], dtype=np.float32)
    result = Neighbors.from_ids([[1, 2], [0, 2], [0, 1]], similarity)
    assert generate_examples(sentences, result, ExamplesConfig(min_similarity=0.3))[1][2].count == 6
    assert generate_examples(sentences, result, ExamplesConfig(min_similarity=0.7, kind="same_class"))[1][2].count == 2


def test_repeats_and_fragments_of_the_anchor_and_later_repeats_are_dropped():
    texts = [
        "a good film",
        "A good film!",
        "good film",
        "what a good film it is",
        "a dull film",
        "A dull film .",
        "bad",
    ]
    sentences = sentences_of(texts, [1, 1, 1, 0, 0, 0, 0])
    result = Neighbors.from_ids([[1, 2, 3, 4, 5, 6]] + [[-1] * 6] * 6, np.tile(np.linspace(0.9, 0.1, 6), (7, 1)))
    assert repeats(sentences, result)[0].tolist() == [True, True, True, False, True, False]


def test_every_class_counts_where_there_are_many():
    sentences = sentences_of([f"word{number}" for number in range(30)], [number % 10 for number in range(30)])
    result, _ = generate_examples(sentences, Neighbors.from_ids(*ring(30, 20)), ExamplesConfig())
    classes = dict(zip(sentences.query.tolist(), sentences.classes.tolist(), strict=True))
    assert all(classes[a] == classes[p] != classes[n] for a, p, n, _ in rows_of(result))
    assert len(result) == 30 * 2 * 18  # two more of its class, eighteen others


SIX = ["one", "two", "three", "four", "five", "six"]


@pytest.mark.parametrize(
    ("texts", "classes", "config", "message"),
    [
        (SIX, [1] * 6, {}, "all sentences are of class '1', and triplets need two"),
        (SIX, [1] * 6, {"kind": "pairs"}, "and pairs need two; .*same_class"),
        (SIX, [0, 1] * 3, {"min_similarity": 0.95}, "no neighbor reaches a cosine of 0.95, the nearest has 0.900"),
        (["same"] * 6, [0, 1] * 3, {}, "every neighbor repeats its anchor.*distinct = false"),
        (SIX, [0, 0, 0, 1, 1, 1], {"min_similarity": 0.85}, "no anchor has a neighbor of its class and one of another"),
    ],
)
def test_impossible_examples_are_refused_in_one_sentence(texts, classes, config, message):
    with pytest.raises(DataError, match=message) as caught:
        generate_examples(sentences_of(texts, classes), Neighbors.from_ids(*ring(6, 3)), ExamplesConfig(**config))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("rows.csv, train: ")


def test_a_single_sentence_is_refused():
    with pytest.raises(DataError, match="1 sentence has no neighbor; give more sentences"):
        generate_examples(
            sentences_of(["a"], [0]), Neighbors.from_ids([[-1]], [[0]]), ExamplesConfig(kind="same_class")
        )


def test_one_class_is_enough_for_pairs_of_one_class():
    result, _ = generate_examples(
        sentences_of(SIX, [3] * 6), Neighbors.from_ids(*ring(6, 2)), ExamplesConfig(kind="same_class")
    )
    assert len(result) == 12
    assert result.label is None


def test_a_target_above_the_examples_is_refused_for_train_and_a_limit_elsewhere():
    sentences, result = sentences_of(SIX, [0, 1] * 3), Neighbors.from_ids(*ring(6, 2))
    with pytest.raises(ConfigError, match=r"data\.examples\.target is 500 and rows\.csv, train gives 6 examples"):
        generate_examples(sentences, result, ExamplesConfig(target=500))
    assert len(generate_examples(sentences, result, ExamplesConfig(target=500), split="test")[0]) == 6


@pytest.mark.parametrize("limits", [{}, {"target": 6}, {"cap": 1}])
def test_the_number_of_examples_is_limited_also_with_a_target_or_a_cap(monkeypatch, limits):
    sentences, result = sentences_of(SIX, [0, 1] * 3), Neighbors.from_ids(*ring(6, 2))
    monkeypatch.setattr(from_classes, "MAX_EXAMPLES", 6)
    assert len(generate_examples(sentences, result, ExamplesConfig(**limits))[0]) == 6
    monkeypatch.setattr(from_classes, "MAX_EXAMPLES", 5)
    with pytest.raises(DataError, match="6 examples exceed the limit of 5; lower"):
        generate_examples(sentences, result, ExamplesConfig(**limits))


def test_equal_texts_are_used_without_the_distinct_filter():
    result, _ = generate_examples(
        sentences_of(["same"] * 6, [0, 1] * 3), Neighbors.from_ids(*ring(6, 2)), ExamplesConfig(distinct=False)
    )
    assert len(result) == 6


def test_missing_neighbors_are_reported():
    sentences = sentences_of(["a", "b", "c"], [0, 0, 1])
    result = Neighbors.from_ids(
        [[1, 2, -1], [0, 2, -1], [0, 1, -1]], np.full((3, 3), 0.5), "approximate search, recall 0.990"
    )
    assert generate_examples(sentences, result, ExamplesConfig())[1][1].note == (
        "approximate search, recall 0.990; 3 sentences have fewer neighbors than data.examples.neighbors"
    )


def test_seventy_thousand_anchors_give_the_target_number_of_examples():
    generator = np.random.default_rng(0)
    number, width = 70_000, 32
    texts = [" ".join(row) for row in generator.choice([f"w{n}" for n in range(5000)], size=(number, 9))]
    sentences = sentences_of(texts, generator.integers(2, size=number))
    ids = (np.arange(number)[:, None] + generator.integers(1, number, size=(number, width))) % number
    neighbors = Neighbors.from_ids(ids, generator.random((number, width)))
    result, _ = generate_examples(sentences, neighbors, ExamplesConfig(cap=16, target=250_000))
    assert len(result) == 250_000
