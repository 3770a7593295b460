"""Maps of texts as data: one frame, ids that come back, one selection in both maps, and texts that are never markup."""

from __future__ import annotations

import numpy as np

from bsc_core.figures import maps, theme

POINTS = np.array([[0, 0], [1, 2], [3, 1], [2, 5]], dtype=np.float32)
IDS = np.array([10, 11, 12, 13], dtype=np.int32)
SIDES = maps.colouring(["query", "document", "document", "query"], maps.SIDES)
NOTHING = np.empty(0, dtype=np.int32)


def drawn(**changes: object) -> object:
    values = {"ids": IDS, "texts": ["a", "b", "c", "d"], "colours": SIDES, "picked": NOTHING} | changes
    return maps.text_map([POINTS, POINTS + 1], ["Before", "After"], **values)  # type: ignore[arg-type]


def dots(figure: object) -> list[object]:
    """The traces that hold texts, without those that only make the legend."""
    return [trace for trace in figure.data if trace.customdata is not None]  # type: ignore[attr-defined]


def test_each_map_holds_every_text_once_with_its_id() -> None:
    figure = drawn()
    for axis in ("x", "x2"):
        ids = [int(point) for trace in dots(figure) if trace.xaxis == axis for point in trace.customdata]
        assert sorted(ids) == IDS.tolist()


def test_both_maps_have_the_same_range_and_zoom_together() -> None:
    figure = drawn()
    assert figure.layout.xaxis.range == figure.layout.xaxis2.range
    assert figure.layout.yaxis.range == figure.layout.yaxis2.range
    assert figure.layout.xaxis2.matches == "x"
    assert figure.layout.yaxis2.matches == "y"
    assert figure.layout.xaxis.range[0] < 0 < 4 < figure.layout.xaxis.range[1]


def test_sides_have_the_colours_they_have_everywhere() -> None:
    colours = {trace.name: trace.marker.color for trace in dots(drawn())}
    assert colours == {"query": theme.QUERY, "document": theme.DOCUMENT}


def test_what_is_picked_stands_out_in_both_maps_and_the_rest_fades() -> None:
    figure = drawn(picked=np.array([11, 13], dtype=np.int32))
    for axis in ("x", "x2"):
        strong = [trace for trace in dots(figure) if trace.xaxis == axis and trace.marker.opacity > 0.5]
        assert sorted(int(point) for trace in strong for point in trace.customdata) == [11, 13]


def test_a_legend_names_each_category_once() -> None:
    for picked in (NOTHING, np.array([11], dtype=np.int32)):
        entries = [trace for trace in drawn(picked=picked).data if trace.showlegend is not False]
        colours = {trace.name: trace.marker.color for trace in entries}
        assert colours == {"query": theme.QUERY, "document": theme.DOCUMENT}
        assert len(entries) == 2


def test_texts_and_names_are_never_markup() -> None:
    figure = drawn(texts=["<b>bold</b>", "a & b", "<a href='x'>y</a>", "d"])
    hover = " ".join(text for trace in dots(figure) for text in trace.text)
    assert "<b>" not in hover
    assert "<a" not in hover
    assert "&lt;b&gt;bold" in hover


def test_past_seven_categories_colours_come_again_as_diamonds() -> None:
    made = maps.colouring([f"c{number:02}" for number in range(10)])
    marks = [tuple(made.mark(name).values()) for name in made.colours]
    assert len(set(marks)) == 10
    assert made.mark("c00")["color"] == made.mark("c07")["color"]
    assert made.mark("c07")["symbol"] == "diamond"


def test_past_fourteen_categories_the_smallest_become_other() -> None:
    values = [f"c{number:02}" for number in range(20) for _ in range(20 - number)]
    made = maps.colouring(values)
    assert len(made.colours) == 15
    assert made.mark(maps.OTHER) == {"color": theme.REFERENCE, "symbol": "circle"}
    assert next(iter(made.colours)) == "c00"
    assert set(made.values) == set(made.colours)


def test_a_single_text_still_has_a_frame() -> None:
    figure = maps.text_map(
        [POINTS[:1]], ["Only"], ids=IDS[:1], texts=["a"], colours=maps.colouring(["x"]), picked=NOTHING
    )
    assert figure.layout.xaxis.range[0] < figure.layout.xaxis.range[1]
