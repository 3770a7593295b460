"""Tests of the verdicts figure: each statement once, with its interval, in the color of its verdict."""

from __future__ import annotations

from bsc_core.figures import theme
from bsc_core.figures.findings import verdicts

ONE = {
    "text": "a is above b",
    "metric": "mrr",
    "split": "test",
    "expects": "better",
    "difference": 0.02,
    "low": 0.01,
    "high": 0.03,
    "paper": 0.05,
    "p_holm": 0.01,
    "verdict": "supported",
}
OTHER = ONE | {
    "text": "a is above c",
    "verdict": "inconclusive",
    "low": None,
    "high": None,
    "paper": None,
    "p_holm": None,
}


def drawn(chart):
    spec = chart.to_dict()
    return spec, [row for rows in spec["datasets"].values() for row in rows]


def test_every_statement_is_a_row_with_its_numbers():
    table = verdicts.statements_table([ONE, OTHER])
    assert table["statement"].tolist() == ["a is above b", "a is above c"]
    assert table["low"].isna().tolist() == [False, True]
    assert table["p"][0] == 0.01


def test_colors_mean_verdicts_and_only_those_that_occur_are_in_the_legend():
    spec, _ = drawn(verdicts.verdicts_figure(verdicts.statements_table([ONE, OTHER])))
    scales = [layer["encoding"]["color"]["scale"] for layer in spec["layer"] if "color" in layer["encoding"]]
    assert all(scale["domain"] == ["supported", "inconclusive"] for scale in scales)
    assert all(scale["range"] == [theme.VERDICTS["supported"], theme.VERDICTS["inconclusive"]] for scale in scales)


def test_the_margin_of_an_expected_equality_is_a_band_around_zero():
    same = ONE | {"expects": "same", "margin": 0.004}
    spec, rows = drawn(verdicts.verdicts_figure(verdicts.statements_table([same, OTHER])))
    assert [(row["margin_below"], row["margin"]) for row in rows] == [(-0.004, 0.004), (None, None)]
    [band] = [layer for layer in spec["layer"] if layer["mark"]["type"] == "bar"]
    assert (band["encoding"]["x"]["field"], band["encoding"]["x2"]["field"]) == ("margin_below", "margin")


def test_metrics_of_one_statement_are_separate_rows():
    _, rows = drawn(verdicts.verdicts_figure(verdicts.statements_table([ONE, ONE | {"metric": "map"}])))
    assert {"a is above b (mrr)", "a is above b (map)"} <= {row["name"] for row in rows if "name" in row}
    _, rows = drawn(verdicts.verdicts_figure(verdicts.statements_table([ONE, ONE])))
    assert len({row["name"] for row in rows if "name" in row}) == 2


def test_a_figure_grows_with_its_statements():
    heights = [
        verdicts.verdicts_figure(verdicts.statements_table([ONE | {"text": str(n)} for n in range(count)])).height
        for count in (1, 6)
    ]
    assert heights[1] > heights[0]


def test_long_labels_are_wrapped_in_a_narrow_figure():
    text = "the first of two settings that have long names is above the second"
    spec, rows = drawn(verdicts.verdicts_figure(verdicts.statements_table([ONE | {"text": text}])))
    lines = next(row["lines"] for row in rows if "lines" in row).split("\n")
    assert " ".join(lines) == f"{text} (mrr)"
    assert max(map(len, lines)) <= verdicts.LINE_LENGTH
    label = next(layer["mark"] for layer in spec["layer"] if layer["mark"]["type"] == "text")
    assert label["text"] == {"expr": f"width < {verdicts.NARROW} ? datum.lines : datum.name"}


def test_the_caption_names_the_side_that_agrees_and_the_correction():
    assert verdicts.caption(verdicts.statements_table([ONE])).startswith("A difference right of 0 supports the paper. ")
    assert "(Holm)" in verdicts.caption(verdicts.statements_table([ONE]))
    several = verdicts.statements_table([OTHER, OTHER | {"expects": "same"}])
    assert verdicts.caption(several) == ""
