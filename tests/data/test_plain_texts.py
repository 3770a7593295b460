"""Repeats and fragments are told by words, whatever the marks, the case and the script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.data.plain import one_contains_the_other, plain, plain_ids


def contains(left, right):
    return bool(one_contains_the_other([plain(left), plain(right)], [0], [1])[0])


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
def test_repeats_and_fragments_are_found_both_ways(left, right):
    assert contains(left, right)
    assert contains(right, left)


@pytest.mark.parametrize(
    ("left", "right"), [("art", "a party"), ("good film", "film good"), ("!!!", "a"), ("ab", "a b")]
)
def test_parts_of_words_and_other_orders_are_no_fragments(left, right):
    assert not contains(left, right)


WORDS = st.lists(st.sampled_from("abc"), min_size=1, max_size=5)


@given(WORDS, WORDS)
def test_containing_is_a_run_of_words(left, right):
    def run(short, long):
        return any(long[start : start + len(short)] == short for start in range(len(long) - len(short) + 1))

    assert contains(" ".join(left), ", ".join(right)) == (run(left, right) or run(right, left))


def test_equal_words_have_equal_numbers():
    assert plain_ids(["Yes!", "no", "yes", "NO."]).tolist() == [0, 1, 0, 1]
