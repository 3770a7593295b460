"""Tests of the SVG forest plot: well-formed, complete and to scale."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from bsc_core.figures import theme
from bsc_core.figures.findings.verdicts_svg import verdicts_svg

SVG = "{http://www.w3.org/2000/svg}"


def statement(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"text": "a & b is above <c>", "verdict": "supported", "difference": 0.1}
    return values | {"low": 0.0, "high": 0.2, "paper": None} | changes


def drawn(*statements: dict[str, Any]) -> ElementTree.Element:
    return ElementTree.fromstring(verdicts_svg(statements, "a <title> & more"))


def test_special_characters_are_escaped() -> None:
    picture = drawn(statement())
    assert picture.findtext(f"{SVG}title") == "a <title> & more"
    assert any("a & b is above <c>: supported" in str(text.text) for text in picture.iter(f"{SVG}text"))


def test_positions_are_to_scale() -> None:
    picture = drawn(statement())
    zero, span = picture.findall(f"{SVG}line")
    point = picture.find(f"{SVG}circle")
    assert point is not None
    assert span.get("x1") == zero.get("x1")
    middle = (float(span.get("x1", "")) + float(span.get("x2", ""))) / 2
    assert abs(float(point.get("cx", "")) - middle) < 0.11


def test_colors_are_the_verdicts_and_missing_numbers_are_not_drawn() -> None:
    picture = drawn(statement(), statement(verdict="contradicted", low=None, high=None, paper=0.05))
    colors = [point.get("fill") for point in picture.iter(f"{SVG}circle")]
    assert colors == [theme.VERDICTS["supported"], theme.VERDICTS["contradicted"]]
    assert len(picture.findall(f"{SVG}line")) == 2  # the zero line and the only interval
    assert len(picture.findall(f"{SVG}path")) == 1


def test_equal_numbers_are_drawn() -> None:
    assert drawn(statement(difference=0.0, low=0.0, high=0.0)) is not None
