"""Near duplicates: texts that differ by form or a few words, compared with a slow oracle."""

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.data import near_duplicates
from bsc_core.data.near_duplicates import JACCARD, near_groups
from bsc_core.data.text_normalization import limit_marks, normalize_text

LONG = "the quick brown fox jumps over the lazy dog near the old river bank at noon today while birds sing"


def are_near(one, other):
    first, second = near_groups([one, other])
    return bool(first == second)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What if?", "what  if"),
        ("caf\u00e9", "cafe\u0301"),
        ("\uff21\uff22\uff23 test", "abc test"),
        ("ﬁne words", "fine words"),
        ("Straße", "STRASSE"),
        (LONG, LONG.replace("quick", "rapid")),
        (LONG, LONG + " again"),
    ],
)
def test_texts_that_differ_in_form_or_one_word_of_many_are_near_duplicates(one, other):
    assert are_near(one, other)


def test_long_sequences_of_combining_marks_are_cut():
    text = LONG + " a" + "\u0301" * 200_000 + "\u0316" * 200_000
    assert len(limit_marks(text)) == len(LONG) + 2 + 30
    assert limit_marks("caf\u00e9 cafe\u0301 a\u0301\u0316") == "caf\u00e9 cafe\u0301 a\u0301\u0316"
    assert are_near(text, LONG + " a" + "\u0301" * 30)
    halfwidth = LONG + " a" + "\u0301\uff9e" * 100_000  # becomes a mark by normalization
    assert len(limit_marks(halfwidth)) == len(LONG) + 2 + 30


def test_a_text_that_unicode_forms_make_far_longer_is_compared_as_it_is():
    squares = "\u3316" * 20 + " " + LONG  # each becomes six words
    assert near_duplicates._form(squares) == normalize_text(squares)
    assert near_duplicates._form("\u3316 " + LONG) == normalize_text("キロメートル " + LONG)


def test_no_text_can_be_written_to_have_the_smallest_hashes_of_its_data():
    def smallest(others):
        """Return the word of a long text that decides the first number of the first band."""
        shingles = near_duplicates._Shingles([" ".join(words), *others])
        salts = shingles._salts()
        return words[int(np.argmin(near_duplicates.mix_bits(shingles.single[: len(words)] ^ salts[0, 0])))]

    words = [f"w{number}" for number in range(1000)]
    assert len({smallest([f"{LONG} {number}"]) for number in range(8)}) > 1
    assert smallest([LONG]) == smallest([LONG])


def test_many_similar_texts_below_the_limit_are_compared_together(monkeypatch):
    generator = random.Random(0)
    words = [f"w{number}" for number in range(5000)]
    common = words[:24]
    texts = [" ".join([*common, *generator.sample(words[24:], 6)]) for _ in range(2000)]
    calls = []
    whole = near_duplicates._Shingles._matrix
    monkeypatch.setattr(
        near_duplicates._Shingles, "_matrix", lambda self, rows: calls.append(len(rows)) or whole(self, rows)
    )
    groups = near_groups(texts)
    assert len(set(groups.tolist())) == len(texts)
    assert sum(calls) > len(texts)  # nearly all are candidates
    assert len(calls) <= 2 * 2 * near_duplicates.BANDS


def test_a_text_is_not_compared_with_far_shorter_ones(monkeypatch):
    compared = []
    whole = near_duplicates._Shingles._jaccard
    monkeypatch.setattr(
        near_duplicates._Shingles,
        "_jaccard",
        lambda self, left, right: compared.extend(left) or whole(self, left, right),
    )
    words = [f"w{number}" for number in range(2000)]
    texts = [" ".join(words), *(" ".join(words[start : start + 8]) for start in range(0, 1600, 8))]
    assert len(set(near_groups(texts).tolist())) == len(texts)
    assert not compared


def test_the_size_of_blocks_does_not_change_the_groups(monkeypatch):
    texts = [LONG.replace("quick", word) for word in LONG.split()] + ["other words that are in no other text", "short"]
    groups = near_groups(texts)
    monkeypatch.setattr("bsc_core.data.near_duplicates.BLOCK_WORDS", 50)
    assert near_groups(texts).tolist() == groups.tolist()
    assert len(set(groups.tolist())) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("it is good", "it is not good"),
        ("dog bites man", "man bites dog"),
        ("a b c d e f", "f e d c b a"),
        ("question 1", "question 2"),
        (LONG, " ".join(LONG.split()[::-1])),
        ("!", "?"),
    ],
)
def test_texts_of_other_words_or_another_order_are_not_near_duplicates(one, other):
    assert not are_near(one, other)


def shingles(text):
    words = normalize_text(text).split()
    return set(words) | set(pairwise(words))


def jaccard(one, other):
    return len(shingles(one) & shingles(other)) / len(shingles(one) | shingles(other))


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=5, max_size=9).map(" ".join), min_size=2, max_size=12))
def test_a_group_is_connected_by_near_duplicates(texts):
    groups = near_groups(texts)
    for group in set(groups.tolist()):
        left = [text for text, number in zip(texts, groups, strict=True) if number == group]
        reached = [left.pop()]
        while near := [text for text in left if any(jaccard(text, other) >= JACCARD for other in reached)]:
            reached += near
            left = [text for text in left if text not in near]
        assert not left


def test_most_pairs_above_the_similarity_limit_are_grouped():
    generator = random.Random(0)
    words = [f"w{number}" for number in range(500)]
    pairs = []
    while len(pairs) < 300:
        text = generator.choices(words, k=20)
        other = list(text)
        other[generator.randrange(20)] = generator.choice(words)
        if jaccard(" ".join(text), " ".join(other)) >= JACCARD:
            pairs.append((" ".join(text), " ".join(other)))
    groups = near_groups([text for pair in pairs for text in pair]).reshape(-1, 2)
    assert np.mean(groups[:, 0] == groups[:, 1]) > 0.95


@given(st.lists(st.text(max_size=20), max_size=10))
def test_every_text_has_one_group_and_equal_texts_the_same(texts):
    groups = near_groups(texts)
    assert len(groups) == len(texts)
    for one, group in zip(texts, groups, strict=True):
        assert all(other != one or number == group for other, number in zip(texts, groups, strict=True))
