"""Tests of the dataset figures: histograms of labels and lengths, and the count after every generation step."""

from __future__ import annotations

import numpy as np
import pytest

from bsc_core.data.dataset import Stage
from bsc_core.figures.batches import dataset

STAGES = (
    Stage("sentences", 144, (), "2 classes"),
    Stage("neighbors", 4608),
    Stage("above the threshold", 2304),
    Stage("distinct", 1152),
    Stage("examples", 10_000),
    Stage("limited per anchor", 1000),
    Stage("sampled", 0),
)


def test_a_label_at_the_threshold_counts_as_negative() -> None:
    table = dataset.label_table(np.array([0.5, 0.51, 1.0, 0.0], dtype=np.float32), 0.5)
    assert table.groupby("kind")["pairs"].sum().to_dict() == {"negative": 2, "positive": 2}
    assert dataset.label_figure(table, 0.5).title == "50% of the training pairs are positive (label above 0.5)"
    assert dataset.label_figure(table, 0.5).to_dict()["layer"][1]["data"]["values"] == [{"threshold": 0.5}]


def test_lengths_are_counted_in_words_for_both_sides() -> None:
    table = dataset.length_table(dataset.word_counts(["one two", "one"], ["a b c d e f"] * 2))
    assert table.groupby("side")["share"].sum().to_dict() == pytest.approx({"query": 1, "document": 1})
    longest = table[(table["side"] == "document") & (table["share"] > 0)].iloc[0]
    assert longest["low"] <= 6 < longest["high"]
    assert dataset.length_figure(table, "Lengths").to_dict()["encoding"]["x2"]["field"] == "high"


@pytest.mark.parametrize(
    ("document", "title"),
    [
        ("a b c", "Documents are longer than queries: median 3 and 2 words"),
        ("a", "Documents are shorter than queries: median 1 and 2 words"),
        ("a b", "Queries and documents have the same median length: 2 words"),
    ],
)
def test_the_title_compares_the_median_lengths(document: str, title: str) -> None:
    assert dataset.length_title(dataset.word_counts(["one two"], [document])) == title


def test_the_last_bin_of_lengths_also_counts_longer_texts() -> None:
    table = dataset.length_table(dataset.word_counts(["a"] * 199 + [" ".join("x" * 500)], ["a"]))
    assert table[table["side"] == "query"].iloc[-1]["share"] == pytest.approx(1 / 200)
    assert table["low"].max() < 500


def test_lengths_are_in_bins_of_equally_many_whole_words() -> None:
    table = dataset.length_table(dataset.word_counts([" ".join("x" * words) for words in range(1, 31)], ["a"]))
    assert set(table["high"] - table["low"]) == {2}
    assert len(table) <= 2 * dataset.LENGTH_BINS
    assert set(table.loc[table["side"] == "query", "low"]) == set(table.loc[table["side"] == "document", "low"])


def test_each_step_is_a_share_of_the_largest_count_of_its_kind() -> None:
    table = dataset.funnel_table(STAGES)
    assert table["step"].tolist() == [stage.name for stage in STAGES]
    assert table["count"].tolist() == [stage.count for stage in STAGES]
    assert table["left"].tolist() == pytest.approx([1, 1, 0.5, 0.25, 1, 0.1, 0])
    assert table["kind"].tolist() == ["sentences", *["neighbors"] * 3, *["examples"] * 3]


def test_steps_of_other_funnels_all_count_rows() -> None:
    table = dataset.funnel_table((Stage("positive pairs", 50), Stage("negatives", 200), Stage("training rows", 100)))
    assert table["kind"].unique().tolist() == ["rows"]
    assert table["left"].tolist() == pytest.approx([0.25, 1, 0.5])


def test_an_empty_funnel_has_shares_of_zero() -> None:
    assert dataset.funnel_table((Stage("rows read", 0),))["left"].tolist() == [0]


def test_each_step_has_a_bar_and_a_count_in_order() -> None:
    figure = dataset.funnel_figure(dataset.funnel_table(STAGES), "144 sentences became 0 pairs").to_dict()
    [bars, counts] = figure["layer"]
    assert figure["title"] == "144 sentences became 0 pairs"
    assert (bars["mark"]["type"], counts["mark"]["type"]) == ("bar", "text")
    assert bars["encoding"]["y"]["sort"] is None
    [rows] = figure["datasets"].values()
    assert [row["count"] for row in rows][:2] == [144, 4608]
    assert counts["encoding"]["text"]["format"] == ","
    assert bars["encoding"]["color"]["scale"]["domain"] == ["sentences", "neighbors", "examples"]


def test_a_single_kind_has_no_legend() -> None:
    figure = dataset.funnel_figure(dataset.funnel_table((Stage("anchors", 3),)), "3 anchors").to_dict()
    assert figure["layer"][0]["encoding"]["color"]["legend"] is None
