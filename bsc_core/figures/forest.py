"""The statements of a claim as an SVG file for documents: differences with intervals, the paper's own as diamonds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from bsc_core.figures import theme
from bsc_core.figures.verdicts import COLOURS

WIDTH, LEFT, RIGHT, TOP, ROW = 760, 24, 24, 16, 46
TEXT = "#5A6068"  # read on white and on black
TICKS = 5


def forest_svg(statements: Sequence[Mapping[str, Any]], title: str) -> str:
    """An SVG picture of a finding's statements, a row each, coloured by verdict; a dashed line stands at 0.

    title: of the picture, for readers who cannot see it. Values without an interval are points.
    """
    numbers = [one[name] for one in statements for name in ("difference", "low", "high", "paper")]
    known: list[float] = [0.0, *(number for number in numbers if number is not None)]
    low, high = min(known), max(known)
    margin = 0.06 * (high - low or 1.0)
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return round(LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1)

    height = TOP + ROW * len(statements) + 34
    foot = height - 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        f'font-family="sans-serif" font-size="13" fill="{TEXT}"><title>{escape(title)}</title>',
        f'<line x1="{place(0)}" x2="{place(0)}" y1="{TOP - 8}" y2="{foot}" stroke="{TEXT}" stroke-dasharray="4 3"/>',
    ]
    for row, one in enumerate(statements):
        parts += _row(one, TOP + ROW * row, place)
    for step in range(TICKS):
        value = low + margin + (high - low - 2 * margin) * step / (TICKS - 1)
        parts.append(f'<text x="{place(value)}" y="{foot + 16}" text-anchor="middle">{theme.change(value)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _row(one: Mapping[str, Any], top: int, place: Callable[[float], float]) -> list[str]:
    """Words, interval, point and the paper's difference of one statement."""
    colour, middle = COLOURS[one["verdict"]], top + 26
    words = theme.short(f"{one['words']}: {one['verdict']}", 108)
    parts = [f'<text x="{LEFT}" y="{top + 10}">{escape(words)}</text>']
    if one["low"] is not None and one["high"] is not None:
        ends = f'x1="{place(one["low"])}" x2="{place(one["high"])}"'
        parts.append(f'<line {ends} y1="{middle}" y2="{middle}" stroke="{colour}" stroke-width="3"/>')
    parts.append(f'<circle cx="{place(one["difference"])}" cy="{middle}" r="5" fill="{colour}"/>')
    if one["paper"] is not None:
        x = place(one["paper"])
        shape = f"M{x} {middle - 7}L{x + 7:g} {middle}L{x} {middle + 7}L{x - 7:g} {middle}Z"
        parts.append(f'<path d="{shape}" fill="none" stroke="{theme.QUERY}" stroke-width="1.6"/>')
    return parts
