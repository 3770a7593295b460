"""Forest plot of a claim's statements as SVG, for the documents; the paper's differences are diamonds."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from bsc_core import formatting
from bsc_core.figures import theme

WIDTH, LEFT, RIGHT, TOP, ROW = 760, 24, 24, 16, 46
TEXT = "#5A6068"  # readable on light and dark backgrounds
TICKS = 5


def verdicts_svg(statements: Sequence[Mapping[str, Any]], title: str) -> str:
    """Render the statements of a finding as SVG, one row each, colored by verdict, with a dashed line at 0.

    Args:
        statements: rows with keys text, verdict, difference, low, high and paper. Without an interval, only the point
            is shown.
        title: accessible title of the image.
    """
    numbers = [one[name] for one in statements for name in ("difference", "low", "high", "paper")]
    known: list[float] = [0.0, *(number for number in numbers if number is not None)]
    low, high = min(known), max(known)
    margin = 0.06 * (high - low or 1.0)
    low, high = low - margin, high + margin

    def x(value: float) -> float:
        return round(LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT), 1)

    height = TOP + ROW * len(statements) + 34
    foot = height - 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
        f'font-family="sans-serif" font-size="13" fill="{TEXT}"><title>{escape(title)}</title>',
        f'<line x1="{x(0)}" x2="{x(0)}" y1="{TOP - 8}" y2="{foot}" stroke="{TEXT}" stroke-dasharray="4 3"/>',
    ]
    for row, one in enumerate(statements):
        parts += _row(one, TOP + ROW * row, x)
    for step in range(TICKS):
        value = low + margin + (high - low - 2 * margin) * step / (TICKS - 1)
        parts.append(f'<text x="{x(value)}" y="{foot + 16}" text-anchor="middle">{formatting.signed(value)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _row(one: Mapping[str, Any], top: int, x: Callable[[float], float]) -> list[str]:
    color, middle = theme.VERDICTS[one["verdict"]], top + 26
    label = formatting.shorten(f"{one['text']}: {one['verdict']}", 108)
    parts = [f'<text x="{LEFT}" y="{top + 10}">{escape(label)}</text>']
    if one["low"] is not None and one["high"] is not None:
        ends = f'x1="{x(one["low"])}" x2="{x(one["high"])}"'
        parts.append(f'<line {ends} y1="{middle}" y2="{middle}" stroke="{color}" stroke-width="3"/>')
    parts.append(f'<circle cx="{x(one["difference"])}" cy="{middle}" r="5" fill="{color}"/>')
    if one["paper"] is not None:
        center = x(one["paper"])
        shape = f"M{center} {middle - 7}L{center + 7:g} {middle}L{center} {middle + 7}L{center - 7:g} {middle}Z"
        parts.append(f'<path d="{shape}" fill="none" stroke="{theme.QUERY}" stroke-width="1.6"/>')
    return parts
