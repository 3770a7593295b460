"""Text normalization: comparison by words, regardless of punctuation, case and script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.data.text_normalization import WORD, find_words, normalize_text, normalized_ids, one_contains_the_other


def contains(left, right):
    return bool(one_contains_the_other([normalize_text(left), normalize_text(right)], [0], [1])[0])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("A good film .", "a good film"),
        ("good film", "It is a good film!"),
        ("It's a very good film", "very GOOD"),
        ("映画", "いい映画です"),
        ("STRASSE", "Die Straße dort"),
        ("!!!", " !!! "),
    ],
)
def test_containment_is_found_in_both_directions(left, right):
    assert contains(left, right)
    assert contains(right, left)


@pytest.mark.parametrize(
    ("left", "right"), [("art", "a party"), ("good film", "film good"), ("!!!", "a"), ("ab", "a b")]
)
def test_parts_of_words_and_other_orders_are_not_contained(left, right):
    assert not contains(left, right)


@given(st.text(st.characters(max_codepoint=127)))
def test_the_faster_way_for_ascii_texts_gives_the_same_words(text):
    words = WORD.findall(text.casefold()) or [text.strip()]
    assert normalize_text(text) == f" {' '.join(words)} "


WORDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=5)


@given(WORDS, WORDS)
def test_containment_is_a_sequence_of_words(left, right):
    def run(short, long):
        return any(long[start : start + len(short)] == short for start in range(len(long) - len(short) + 1))

    assert contains(" ".join(left), ", ".join(right)) == (run(left, right) or run(right, left))


def test_equal_words_have_equal_numbers():
    assert normalized_ids(["Yes!", "no", "yes", "NO."]).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("left", "right"), [("दिन", "दान"), ("நாள்", "நூல்"), ("x > 5", "x < 5"), ("C++", "C"), ("$5", "£5")]
)
def test_vowel_signs_and_symbols_distinguish_texts(left, right):
    assert normalize_text(left) != normalize_text(right)


@pytest.mark.parametrize(("left", "right"), [("a | b ~", "a b"), ("“a-b”", "a b"), ("`a`", "a")])
def test_punctuation_does_not_distinguish_texts(left, right):
    assert normalize_text(left) == normalize_text(right)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("cat", [True, False, False, True, False]),
        ("CAT  sat", [False, False, False, True, False]),
        ("catc", [False, True, False, False, False]),
        ("a.b*", [False, False, True, False, False]),
        ("\u6771", [False, False, False, False, True]),
        ("absent", [False] * 5),
        ("  ", [False] * 5),
    ],
)
def test_words_are_found_as_complete_words_first(words: str, expected: list[bool]) -> None:
    texts = ["My cat.", "I catch a cold", "a.b* is a pattern", "The CAT sat", "\u6771\u4eac"]
    assert find_words(texts, words).tolist() == expected


def test_finding_words_within_a_long_word_needs_linear_time():
    words = " ".join("a" * length for length in range(1, 19))
    texts = ["a" * 2_000_000 + " " + words, "a" * 2_000_000]
    assert find_words(texts, words).tolist() == [True, False]
