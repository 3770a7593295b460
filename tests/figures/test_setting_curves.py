"""Settings as curves with bands and as intervals: means over seeds, the best and the last, titles that say it."""

from __future__ import annotations

import pytest

from bsc_core.figures import curves, theme
from bsc_core.figures.intervals import UNTRAINED, intervals_figure, intervals_table
from bsc_core.figures.setting_curves import BestAndLast, best_and_last, mean_curve, setting_metric, setting_steps


def measured(*values: float) -> list[dict[str, object]]:
    return [{"kind": "evaluation", "epoch": epoch, "dev": {"mrr": value}} for epoch, value in enumerate(values)]


def steps(*values: float) -> list[dict[str, object]]:
    return [{"kind": "step", "step": number, "epoch": 1, "loss": value} for number, value in enumerate(values, 1)]


def test_the_curve_of_a_setting_is_the_mean_of_its_seeds_where_all_have_a_value() -> None:
    found = [curves.evaluations(rows, "mrr") for rows in (measured(0.5, 0.6, 0.9), measured(0.5, 0.8))]
    assert mean_curve(found, across="epoch") == [
        {"epoch": 0, "value": 0.5, "low": 0.5, "high": 0.5},
        {"epoch": 1, "value": pytest.approx(0.7), "low": 0.6, "high": 0.8},
    ]


def test_one_seed_has_no_band_and_none_has_no_curve() -> None:
    alone = curves.evaluations(measured(0.5, 0.6), "mrr")
    assert mean_curve([alone, []], across="epoch") == alone
    assert mean_curve([[], []], across="epoch") == []


def test_the_best_epoch_is_the_first_of_equals_and_never_the_untrained_one() -> None:
    found = best_and_last(curves.evaluations(measured(0.9, 0.6, 0.7, 0.7, 0.5), "mrr"))
    assert found == BestAndLast(0.7, 2, 0.5, 4)
    assert best_and_last(curves.evaluations(measured(0.9), "mrr")) is None


def test_titles_say_what_is_reached() -> None:
    settings = {"cold": [measured(0.5, 0.6), measured(0.5, 0.8)], "warm": [measured(0.5, 0.4)]}
    assert setting_metric(settings, "mrr").to_dict()["title"] == "mrr on dev reaches 0.700 and 0.400"
    assert setting_metric({"cold": [[]]}, "mrr").to_dict()["title"] == "mrr on dev: no value yet"
    assert setting_steps({"cold": [steps(2.0, 1.0)]}, "loss").to_dict()["title"] == "The loss ends at 1"
    assert setting_steps({"cold": [[]]}, "loss").to_dict()["title"] == "The loss: no value yet"


def test_only_a_setting_of_several_seeds_has_a_band() -> None:
    assert len(setting_metric({"a": [measured(0.5, 0.6)]}, "mrr").to_dict()["layer"]) == 1
    spec = setting_metric({"a": [measured(0.5, 0.6), measured(0.5, 0.7)]}, "mrr").to_dict()
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["line", "area"]


def test_intervals_are_drawn_in_their_order_with_the_untrained_encoder_in_grey() -> None:
    table = intervals_table(
        [(UNTRAINED, 0.5, 0.4, 0.6, ""), ("cold", 0.7, 0.6, 0.8, "yes"), ("one", 0.1, None, None, "")]
    )
    spec = intervals_figure(table, title="mrr: cold is better", metric="mrr").to_dict()
    assert spec["title"] == "mrr: cold is better"
    scale = spec["layer"][1]["encoding"]["color"]["scale"]
    assert scale["domain"] == [UNTRAINED, "cold", "one"]
    assert scale["range"] == [theme.REFERENCE, *curves.RUN_COLOURS[:2]]
    assert table["low"].isna().tolist() == [False, False, True]
