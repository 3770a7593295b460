"""Helpers for a similarity matrix on a canvas: what each of its cells shows, and a click on one."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, expect

CELLS = """canvas => {
    const [left, side, x, y, span] = canvas.dataset.plot.split(",").map(Number), size = side / span;
    const box = canvas.getBoundingClientRect(), tip = canvas.parentNode.querySelector(".tip"), cells = [];
    for (let row = 0; row < span; row++)
        for (let column = 0; column < span; column++) {
            const place = {clientX: box.left + left + (column + 0.5) * size, clientY: box.top + (row + 0.5) * size};
            canvas.dispatchEvent(new PointerEvent("pointermove", place));
            cells.push(Object.fromEntries([...tip.children].map(
                line => [line.firstChild.textContent.trim(), line.lastChild.textContent])));
        }
    canvas.dispatchEvent(new PointerEvent("pointerleave"));
    return cells;
}"""


def matrix_of(visit, name: str = "") -> Locator:
    """Return the canvas of the matrix whose label has this pattern before the number of pairs, once it is drawn."""
    canvas = visit.page.get_by_role("img", name=re.compile(rf"^{name}\d+ pairs?, \d+ positive"))
    expect(canvas).to_have_count(1)  # the previous canvas stays for a moment
    expect(canvas).to_have_attribute("data-plot", re.compile(r"\d"))
    return canvas


def cells_of(canvas: Locator) -> list[dict[str, str]]:
    """Return the tooltip of each visible cell, row by row: two cosines, query, document and kind."""
    cells: list[dict[str, str]] = canvas.evaluate(CELLS)
    return cells


def click_cell(canvas: Locator, row: int, column: int) -> None:
    """Click a visible cell."""
    left, side, x, y, span = map(float, (canvas.get_attribute("data-plot") or "").split(","))
    canvas.click(position={"x": left + (column + 0.5 - x) * side / span, "y": (row + 0.5 - y) * side / span})
