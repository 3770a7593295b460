"""Tests of the plan figures: hardness histograms, group sizes and statistics by epoch."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bsc_core.figures import theme
from bsc_core.figures.batches import plans


@pytest.fixture
def hardest() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    return {name: generator.uniform(0.1, 0.9, 200).astype(np.float32) for name in ("random", "nearest")}


def test_each_histogram_sums_to_one_over_the_same_bins(hardest: dict[str, np.ndarray]) -> None:
    table = plans.hardness_table(hardest, hardest["random"] + 0.05)
    assert table.groupby("strategy")["share"].sum().to_numpy() == pytest.approx([1, 1, 1])
    bins = {name: tuple(part["low"]) for name, part in table.groupby("strategy")}
    assert len(set(bins.values())) == 1


def test_shares_equal_a_slow_count(hardest: dict[str, np.ndarray]) -> None:
    table = plans.hardness_table({"random": hardest["random"]})
    values = hardest["random"]
    for line in table.itertuples():
        last = line.high >= 1.0
        inside = sum(line.low <= value < line.high or (last and value == line.high) for value in values.tolist())
        assert line.share == pytest.approx(inside / len(values), abs=1.01 / len(values))


def test_rows_without_a_negative_are_left_out() -> None:
    values = np.array([0.2, np.nan, 0.4], dtype=np.float32)
    table = plans.hardness_table({"random": values})
    assert table["share"].sum() == pytest.approx(1)
    assert sorted(table.loc[table["share"] > 0, "share"]) == pytest.approx([0.5, 0.5])


def test_a_plan_without_negatives_has_shares_of_zero() -> None:
    table = plans.hardness_table({"random": np.array([np.nan], dtype=np.float32)})
    assert table["share"].sum() == 0
    assert plans.hardness_figure(table).to_dict()["layer"]


def test_the_axis_names_both_cosines_where_positives_are_drawn(hardest: dict[str, np.ndarray]) -> None:
    for positive, title in ((hardest["random"], plans.BOTH_TITLE), (None, plans.HARDEST_TITLE)):
        figure = plans.hardness_figure(plans.hardness_table(hardest, positive)).to_dict()
        assert figure["layer"][0]["encoding"]["x"]["title"] == title


def test_random_is_gray_and_grouped_is_the_color_of_hard_negatives(hardest: dict[str, np.ndarray]) -> None:
    figure = plans.hardness_figure(plans.hardness_table(hardest, hardest["random"])).to_dict()
    scale = figure["layer"][0]["encoding"]["color"]["scale"]
    dashes = figure["layer"][1]["encoding"]["strokeDash"]["scale"]
    dash_of = dict(zip(dashes["domain"], dashes["range"], strict=True))
    assert dash_of["random"] == list(theme.BASELINE_DASH)
    assert all(dash == [1, 0] for name, dash in dash_of.items() if name != "random")
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {
        "random": theme.REFERENCE,
        "nearest": theme.HARD_NEGATIVE,
        plans.POSITIVES: theme.POSITIVE,
    }


def test_existing_histograms_give_the_same_table(hardest: dict[str, np.ndarray]) -> None:
    table = plans.hardness_table({"random": hardest["random"]})
    edges = [*table["low"], float(table["high"].iloc[-1])]
    again = plans.histogram_table(edges, {"random": table["share"].tolist()})
    np.testing.assert_allclose(again["high"], table["high"])
    assert again["share"].tolist() == table["share"].tolist()


def test_shares_of_group_sizes_are_shares_of_the_rows() -> None:
    table = plans.group_size_table({"random": {1: 10}, "nearest": {1: 2, 8: 1, 20: 1, 30: 2}})
    shares = table.set_index(["strategy", "size"])["share"].to_dict()
    assert shares["random", "1"] == 1
    assert shares["nearest", "8"] == pytest.approx(8 / 90)
    assert shares["nearest", f"> {plans.LARGEST_SHOWN}"] == pytest.approx(80 / 90)
    assert table.groupby("strategy")["share"].sum().to_numpy() == pytest.approx([1, 1])
    assert table.loc[table["size"].str.startswith(">"), "groups"].tolist() == [3]
    assert plans.group_size_figure(table).to_dict()["encoding"]["xOffset"]["field"] == "strategy"


def test_undefined_values_are_omitted_from_a_line() -> None:
    table = pd.DataFrame({"series": ["random"] * 3, "epoch": [1, 2, 3], "value": [0.5, np.nan, 0.25]})
    figure = plans.epoch_figure(table, value="groups intact", percent=True).to_dict()
    (rows,) = figure["datasets"].values()
    assert [row["epoch"] for row in rows] == [1, 3]
    assert figure["encoding"]["y"]["axis"]["format"] == "%"


def test_the_axis_of_equal_values_has_a_range_around_them() -> None:
    table = pd.DataFrame({"series": ["random"] * 3, "epoch": [1, 2, 3], "value": [1.0, np.nan, 1.0]})
    figure = plans.epoch_figure(table, value="groups intact", percent=True).to_dict()
    assert figure["encoding"]["y"]["scale"]["domain"] == [0.9, 1.0]


def test_each_series_has_the_color_of_its_strategy() -> None:
    table = pd.DataFrame({"series": ["random", "this run, after training"], "epoch": [1, 1], "value": [0.1, 0.2]})
    scale = plans.epoch_figure(table, value="x", percent=False).to_dict()["encoding"]["color"]["scale"]
    assert scale["range"][0] == theme.REFERENCE
    assert len(set(scale["range"])) == 2


def test_a_single_histogram_keeps_the_axes_of_the_whole_table() -> None:
    edges, shares = [0.0, 0.2, 0.4, 0.6], {"random": [0.9, 0.1, 0.0], "nearest": [0.0, 0.4, 0.6]}
    table = plans.histogram_table(edges, shares)
    both, one = (plans.hardness_figure(table, shown=shown).to_dict() for shown in (None, ["nearest"]))
    for axis in ("x", "y"):
        assert one["layer"][0]["encoding"][axis]["scale"] == both["layer"][0]["encoding"][axis]["scale"]
    assert one["layer"][0]["encoding"]["color"]["scale"]["domain"] == ["nearest"]
