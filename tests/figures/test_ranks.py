"""Tests of the ranked lists of two models: connecting lines, marked gold documents and escaped texts."""

from __future__ import annotations

from bsc_core.figures import theme
from bsc_core.figures.evaluation import ranks

LEFT = [ranks.Hit(1, "one", 0.9, False, 2), ranks.Hit(2, "two", 0.8, True, 1), ranks.Hit(3, "three", 0.7, False, 40)]
RIGHT = [ranks.Hit(2, "two", 0.95, True, 2), ranks.Hit(1, "one", 0.8, False, 1), ranks.Hit(4, "four", 0.6, False, None)]


def connections(figure: object) -> list[object]:
    return [trace for trace in figure.data if trace.xaxis == "x2"]  # type: ignore[attr-defined]


def test_a_document_in_both_lists_has_a_line_from_rank_to_rank() -> None:
    lines = [trace for trace in connections(ranks.rank_lines(LEFT, RIGHT, ("a", "b"))) if "lines" in trace.mode]
    assert [(tuple(trace.x), tuple(trace.y)) for trace in lines] == [((0.0, 1.0), (1, 2)), ((0.0, 1.0), (2, 1))]


def test_a_document_in_one_list_has_its_rank_in_the_other_outside_the_lines() -> None:
    dots = [trace for trace in connections(ranks.rank_lines(LEFT, RIGHT, ("a", "b"))) if "text" in trace.mode]
    assert [(trace.text[0], trace.x[0], trace.textposition) for trace in dots] == [
        ("40", 0.0, "middle left"),
        ("?", 1.0, "middle right"),
    ]


def test_relevant_documents_are_green_and_starred_in_both_lists() -> None:
    figure = ranks.rank_lines(LEFT, RIGHT, ("a", "b"))
    assert [trace.line.color for trace in connections(figure)].count(theme.POSITIVE) == 1
    starred = [text for trace in figure.data if trace.xaxis in ("x", "x3") for text in trace.text if "★" in text]
    assert len(starred) == 2


def test_ranks_count_from_the_top() -> None:
    figure = ranks.rank_lines(LEFT, RIGHT, ("a", "b"))
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]


def test_texts_and_names_are_escaped() -> None:
    hit = ranks.Hit(1, "<b>bold</b> & <a href='x'>link</a> " * 9, 0.5, False, 1)
    figure = ranks.rank_lines([hit], [hit], ("<i>x</i>", "y"))
    texts = [trace for trace in figure.data if trace.xaxis in ("x", "x3")]
    shown = [text for trace in texts for text in (*trace.text, *trace.hovertext)] + [figure.layout.annotations[0].text]
    assert not any("<b>bold" in text or "<a " in text or "<i>" in text for text in shown)


def test_quotes_are_not_escaped_and_entities_are() -> None:
    hit = ranks.Hit(1, 'a "quoted" &quot;text&quot;', 0.5, False, 1)
    [texts, *_] = [trace for trace in ranks.rank_lines([hit], [], ("x", "y")).data if trace.xaxis == "x"]
    assert texts.text[0].endswith('a "quoted" &amp;quot;text&amp;quot;')


def test_empty_lists_give_an_empty_figure() -> None:
    assert len(connections(ranks.rank_lines([], [], ("a", "b")))) == 0
