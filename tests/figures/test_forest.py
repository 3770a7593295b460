"""The picture of a claim for documents: well-formed SVG in which every statement stands with its numbers to scale."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from bsc_core.figures.forest import forest_svg
from bsc_core.figures.verdicts import COLOURS

SVG = "{http://www.w3.org/2000/svg}"


def statement(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"words": "a & b is above <c>", "verdict": "holds", "difference": 0.1}
    return values | {"low": 0.0, "high": 0.2, "paper": None} | changes


def drawn(*statements: dict[str, Any]) -> ElementTree.Element:
    return ElementTree.fromstring(forest_svg(statements, "what is <seen> & told"))


def test_it_is_well_formed_whatever_the_words_and_has_a_title() -> None:
    picture = drawn(statement())
    assert picture.findtext(f"{SVG}title") == "what is <seen> & told"
    assert any("a & b is above <c>: holds" in str(text.text) for text in picture.iter(f"{SVG}text"))


def test_a_point_lies_in_the_middle_of_an_even_interval_and_0_at_its_low_end() -> None:
    picture = drawn(statement())
    zero, span = picture.findall(f"{SVG}line")
    point = picture.find(f"{SVG}circle")
    assert point is not None
    assert span.get("x1") == zero.get("x1")
    middle = (float(span.get("x1", "")) + float(span.get("x2", ""))) / 2
    assert abs(float(point.get("cx", "")) - middle) < 0.11


def test_colours_are_the_verdicts_and_missing_numbers_are_not_drawn() -> None:
    picture = drawn(statement(), statement(verdict="does not hold", low=None, high=None, paper=0.05))
    colours = [point.get("fill") for point in picture.iter(f"{SVG}circle")]
    assert colours == [COLOURS["holds"], COLOURS["does not hold"]]
    assert len(picture.findall(f"{SVG}line")) == 2  # 0, and the one interval that there is
    assert len(picture.findall(f"{SVG}path")) == 1


def test_equal_numbers_are_drawn_too() -> None:
    assert drawn(statement(difference=0.0, low=0.0, high=0.0)) is not None
