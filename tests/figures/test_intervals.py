"""Tests of the interval plot of settings."""

from __future__ import annotations

from bsc_core.figures import theme
from bsc_core.figures.runs.intervals import UNTRAINED, intervals_figure, intervals_table


def test_intervals_are_drawn_in_their_order_with_the_untrained_encoder_in_gray() -> None:
    table = intervals_table(
        [(UNTRAINED, 0.5, 0.4, 0.6, ""), ("cold", 0.7, 0.6, 0.8, "yes"), ("one", 0.1, None, None, "")]
    )
    spec = intervals_figure(table, title="mrr: cold is better", metric="mrr").to_dict()
    assert spec["title"] == "mrr: cold is better"
    scale = spec["layer"][1]["encoding"]["color"]["scale"]
    assert scale["domain"] == [UNTRAINED, "cold", "one"]
    assert scale["range"] == [theme.REFERENCE, *theme.RUNS[:2]]
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["rule", "point", "rule"]
    assert spec["layer"][2]["mark"]["strokeDash"] == list(theme.BASELINE_DASH)
    assert table["low"].isna().tolist() == [False, False, True]
