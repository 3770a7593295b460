"""Number formats."""

from __future__ import annotations

import pytest

from bsc_core import formatting
from bsc_core.config import setting_name


def test_metrics_have_three_decimals_and_their_interval() -> None:
    assert formatting.metric(0.81249) == "0.812"
    assert formatting.metric(0.8, (0.79, 0.831)) == "0.800 [0.790, 0.831]"
    assert formatting.metric(-0.303) == formatting.MINUS + "0.303"


@pytest.mark.parametrize("value", [None, float("nan")])
def test_undefined_values_give_a_reason_and_never_nan(value: float | None) -> None:
    assert formatting.metric(value) == "not defined: no positives"
    assert formatting.percent(value) == "not defined: nothing to count"
    assert formatting.signed(value) == ""


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.44, "0.4 s"), (48, "48 s"), (59.7, "1 min 0 s"), (192, "3 min 12 s"), (7500, "2 h 5 min"), (None, "unknown")],
)
def test_durations_use_the_largest_fitting_unit(seconds: float | None, expected: str) -> None:
    assert formatting.duration(seconds) == expected


@pytest.mark.parametrize(("value", "expected"), [(0.0, "0%"), (0.043, "4.3%"), (0.31, "31%"), (1.0, "100%")])
def test_percentages_have_a_decimal_only_below_ten(value: float, expected: str) -> None:
    assert formatting.percent(value) == expected


def test_config_keys_are_written_as_words() -> None:
    names = {
        **{"training.learning_rate": "Learning rate", "loss.name": "Loss", "encoder.name": "Encoder"},
        **{"batching.metric": "Batching metric", "evaluation.metric": "Best model by", "loss.margin": "Margin"},
        **{"data.threshold": "Positive if label exceeds", "loss.bsc.mask_guide": "Guide model"},
        **{
            "data.negatives.count": "Negatives",
            "encoder.lora.rank": "Rank",
            "loss.removed_key": "Removed key",
        },
    }
    assert {key: setting_name(key) for key in names} == names
    texts = ["Learning rate", "v1.2", "a b.c"]
    assert [setting_name(text) for text in texts] == texts


def test_metrics_are_written_as_in_papers() -> None:
    names = ("mrr", "has_positive@1", "ndcg@10", "spearman", "average_precision")
    written = ["MRR", "HasPositive@1", "nDCG@10", "Spearman", "Average precision"]
    assert [formatting.metric_name(name) for name in names] == written
    assert [formatting.metric_name(name) for name in written] == written


def test_counts_have_separators_and_agree_with_their_noun() -> None:
    assert formatting.plural(1, "query", "queries") == "1 query"
    assert formatting.plural(12345, "row") == "12,345 rows"


def test_differences_have_a_sign() -> None:
    assert formatting.signed(0.0414) == "+0.041"
    assert formatting.signed(-0.0004) == "+0.000"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.041, 0.012, 0.07), "+0.041 [+0.012, +0.070]"),
        ((-0.0013, -0.0026, -0.0002), "-0.0013 [-0.0026, -0.0002]"),
        ((0.00012, 0.00004, 0.0002), "+0.00012 [+0.00004, +0.00020]"),
        ((0.01, 0.0, 0.02), "+0.010 [+0.000, +0.020]"),
        ((0.01, -1e-9, 0.02), "+0.010 [+0.000, +0.020]"),
        ((0.5, None, None), "+0.500"),
    ],
)
def test_an_interval_has_the_decimals_that_show_on_which_side_of_0_it_ends(values: tuple, expected: str) -> None:
    assert formatting.difference(*values) == expected.replace("-", formatting.MINUS)
    assert formatting.signed(-0.012) == "\N{MINUS SIGN}0.012"


def test_long_texts_are_cut_at_a_word_on_one_line() -> None:
    assert formatting.shorten("one\ntwo   three", 20) == "one two three"
    cut = formatting.shorten("Why does my rice always come out gluey?", 24)
    assert cut == "Why does my rice always…"
    assert len(formatting.shorten("x" * 100, 24)) <= 24


def test_only_the_start_of_a_long_text_is_shortened() -> None:
    assert formatting.shorten("a " * 39 + "a", 80) == ("a " * 39 + "a")
    assert formatting.shorten("a " * 60, 40) == "a " * 19 + "a…"
    assert formatting.shorten("word " * 1_000_000, 12) == "word word…"
