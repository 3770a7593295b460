"""Histograms of the columns of the table of runs: bins, selected ranges, and their text in the URL."""

from __future__ import annotations

import pytest

from bsc_core.figures.runs.histograms import BINS, histogram, read_ranges, write_ranges

RATES = {"a": 1e-5, "b": 1e-4, "c": 1e-3, "d": 1e-3}


def test_bins_have_equal_ratios_for_values_of_several_magnitudes() -> None:
    rates = histogram("rate", RATES)
    assert rates.bins == {"a": 0, "b": BINS // 2, "c": BINS - 1, "d": BINS - 1}
    assert histogram("rate", RATES, logarithmic=False).bins == {"a": 0, "b": 1, "c": BINS - 1, "d": BINS - 1}
    assert histogram("score", {"a": -1.0, "b": 0.0, "c": 1.0}).bins == {"a": 0, "b": BINS // 2, "c": BINS - 1}


def test_equal_or_missing_values_have_no_histogram() -> None:
    assert histogram("rate", {"a": 0.5, "b": 0.5, "c": float("nan")}) is None
    assert histogram("rate", {}) is None


def test_a_range_of_bins_is_the_range_of_their_values() -> None:
    rates = histogram("rate", RATES)
    assert rates.range_of(1, BINS - 1) == (1e-4, 1e-3)
    assert rates.range_of(0, BINS - 1) is None
    assert rates.range_of(1, 2) is None  # bins without values
    selected = histogram("rate", RATES, (1e-4, 1e-3))
    assert [run for run in (*RATES, "without a value") if selected.contains(run)] == ["b", "c", "d"]
    data = selected.canvas_data(["b"])
    assert data["selected"] == [BINS // 2, BINS - 1]
    assert (sum(data["counts"]), data["counts"][-1], sum(data["shown"])) == (4, 2, 1)
    assert data["ends"][0] == ["1e-05", "1e-05"]


def test_a_range_without_values_selects_no_run() -> None:
    nothing = histogram("rate", RATES, (5.0, 6.0))
    assert not any(map(nothing.contains, RATES))
    assert nothing.canvas_data([])["selected"] is None


def test_ranges_are_read_as_they_were_written() -> None:
    ranges = {"Best ndcg@10": (0.123456789, 0.7), "training.learning_rate": (1e-5, 1e-3), "score": (-0.5, 0.25)}
    read = read_ranges(write_ranges(ranges))
    assert read == {name: pytest.approx(ends, rel=1e-5) for name, ends in ranges.items()}
    first = {"a": 0.123456789, "b": 0.7}
    assert histogram("m", first, read["Best ndcg@10"]).contains("a")  # although the range was rounded
    assert read_ranges("") == {}


@pytest.mark.parametrize(
    "text", ["rate", "rate:1", "rate:x:2", "rate:2:1", ":1:2", "rate:nan:1", "rate:0:inf", "a:1:2,"]
)
def test_other_texts_are_no_ranges(text: str) -> None:
    assert read_ranges(text) is None
