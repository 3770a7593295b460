"""Distributions of hardness and of labels as data: shares that sum to one, and bins shared by all."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.figures import hardness, shape, theme


@pytest.fixture
def hardest() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    return {name: generator.uniform(0.1, 0.9, 200).astype(np.float32) for name in ("random", "examples")}


def test_each_histogram_sums_to_one_over_the_same_bins(hardest: dict[str, np.ndarray]) -> None:
    table = hardness.hardness_table(hardest, hardest["random"] + 0.05)
    assert table.groupby("strategy")["share"].sum().to_numpy() == pytest.approx([1, 1, 1])
    bins = {name: tuple(part["low"]) for name, part in table.groupby("strategy")}
    assert len(set(bins.values())) == 1


def test_shares_equal_a_slow_count(hardest: dict[str, np.ndarray]) -> None:
    table = hardness.hardness_table({"random": hardest["random"]})
    values = hardest["random"]
    for line in table.itertuples():
        last = line.high >= 1.0
        inside = sum(line.low <= value < line.high or (last and value == line.high) for value in values.tolist())
        assert line.share == pytest.approx(inside / len(values), abs=1.01 / len(values))


def test_rows_without_a_negative_are_left_out() -> None:
    values = np.array([0.2, np.nan, 0.4], dtype=np.float32)
    table = hardness.hardness_table({"random": values})
    assert table["share"].sum() == pytest.approx(1)
    assert sorted(table.loc[table["share"] > 0, "share"]) == pytest.approx([0.5, 0.5])


def test_nothing_to_count_gives_shares_of_zero() -> None:
    table = hardness.hardness_table({"random": np.array([np.nan], dtype=np.float32)})
    assert table["share"].sum() == 0
    assert hardness.hardness_figure(table).to_dict()["layer"]


def test_random_is_grey_and_grouped_is_the_colour_of_hard_negatives(hardest: dict[str, np.ndarray]) -> None:
    figure = hardness.hardness_figure(hardness.hardness_table(hardest, hardest["random"])).to_dict()
    scale = figure["layer"][0]["encoding"]["color"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
        "random": theme.REFERENCE,
        "examples": theme.HARD_NEGATIVE,
        hardness.OWN: theme.POSITIVE,
    }


def test_counted_histograms_become_the_same_table(hardest: dict[str, np.ndarray]) -> None:
    table = hardness.hardness_table({"random": hardest["random"]})
    edges = [*table["low"], float(table["high"].iloc[-1])]
    again = hardness.counted_table(edges, {"random": table["share"].tolist()})
    np.testing.assert_allclose(again["high"], table["high"])
    assert again["share"].tolist() == table["share"].tolist()


def test_a_label_at_the_threshold_counts_as_negative() -> None:
    table = shape.label_table(np.array([0.5, 0.51, 1.0, 0.0], dtype=np.float32), 0.5)
    assert table.groupby("kind")["pairs"].sum().to_dict() == {"negative": 2, "positive": 2}
    assert shape.label_figure(table, 0.5).to_dict()["layer"][1]["data"]["values"] == [{"threshold": 0.5}]


def test_lengths_are_counted_in_words_for_both_sides() -> None:
    table = shape.length_table(["one two", "one"], ["a b c d e f"] * 2)
    assert table.groupby("side")["share"].sum().to_dict() == pytest.approx({"query": 1, "document": 1})
    longest = table[(table["side"] == "document") & (table["share"] > 0)].iloc[0]
    assert longest["low"] <= 6 < longest["high"]
    assert shape.length_figure(table).to_dict()["encoding"]["x2"]["field"] == "high"
