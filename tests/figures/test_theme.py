"""Numbers are written one way, and each colour has one meaning."""

from __future__ import annotations

import re

import pytest

from bsc_core.figures import theme


def test_metrics_have_three_decimals_and_their_interval() -> None:
    assert theme.metric(0.81249) == "0.812"
    assert theme.metric(0.8, (0.79, 0.831)) == "0.800 [0.790, 0.831]"


@pytest.mark.parametrize("value", [None, float("nan")])
def test_what_is_not_defined_says_why_and_never_nan(value: float | None) -> None:
    assert theme.metric(value) == "not defined: no positives"
    assert theme.share(value) == "not defined: nothing to count"
    assert theme.change(value) == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.44, "0.4 s"), (48, "48 s"), (59.7, "1 min 0 s"), (192, "3 min 12 s"), (7500, "2 h 5 min"), (None, "unknown")],
)
def test_durations_read_as_a_person_says_them(seconds: float | None, words: str) -> None:
    assert theme.duration(seconds) == words


@pytest.mark.parametrize(("value", "words"), [(0.0, "0%"), (0.043, "4.3%"), (0.31, "31%"), (1.0, "100%")])
def test_shares_have_a_decimal_only_below_ten_percent(value: float, words: str) -> None:
    assert theme.share(value) == words


def test_counts_have_separators_and_agree_with_their_noun() -> None:
    assert theme.many(1, "query", "queries") == "1 query"
    assert theme.many(12345, "row") == "12,345 rows"


def test_changes_carry_a_sign() -> None:
    assert theme.change(0.0414) == "+0.041"
    assert theme.change(-0.0004) == "+0.000"
    assert theme.change(-0.012) == "\N{MINUS SIGN}0.012"


def test_long_texts_are_cut_at_a_word_on_one_line() -> None:
    assert theme.short("one\ntwo   three", 20) == "one two three"
    cut = theme.short("Why does my rice always come out gluey?", 24)
    assert cut == "Why does my rice always…"
    assert len(theme.short("x" * 100, 24)) <= 24


def test_every_meaning_has_a_colour_of_its_own() -> None:
    meanings = [theme.QUERY, theme.DOCUMENT, theme.POSITIVE, theme.HARD_NEGATIVE, theme.FALSE_NEGATIVE, theme.REFERENCE]
    assert len(set(meanings)) == len(meanings)
    assert all(re.fullmatch(r"#[0-9A-F]{6}", colour) for colour in (*meanings, *theme.COSINE, *theme.PROBABILITY))
    assert len(theme.COSINE) % 2 == 1  # so that a cosine of 0 has the middle colour
