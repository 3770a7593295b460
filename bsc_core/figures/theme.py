"""Colors, dash patterns and escaping shared by all figures and pages; each color has one meaning.

The palette is that of Okabe and Ito, which color-blind readers can distinguish; its orange, sky blue and yellow are
darker here, so that every mark has a contrast of 3:1 with the background of both themes.
"""

import zlib
from collections.abc import Sequence
from typing import Any

QUERY = "#0072B2"
DOCUMENT = "#BF8000"
POSITIVE = "#009E73"
HARD_NEGATIVE = "#D55E00"
FALSE_NEGATIVE = "#CC79A7"
MARKED_FALSE_NEGATIVE = "#A34E86"  # marked by the user; darker than a likely false negative
MASKED = "#3C7DB8"  # excluded by a mask
REFERENCE = "#8A8F98"
ON_DARK, ON_LIGHT = "#FFFFFF", "#000000"  # numbers in cells, which have no outline in the color of the page
SKY, OLIVE = "#3596CF", "#9A8400"  # have no meaning

COSINE = ("#0B4F8A", "#3C86C0", "#9CC4E2", "#FAFAF7", "#F4C58B", "#E0912F", "#A8560A")  # -1 to 1, 0 in the middle
PROBABILITY = ("#FAFAF7", "#C7E5DA", "#7CC4AC", "#2E9C7C", "#046B50")  # 0 to 1
GRADIENT = ("#046B50", "#5FB59C", "#FAFAF7", "#E39A68", "#A84300")  # from attraction through 0 to repulsion
CATEGORIES = (QUERY, DOCUMENT, POSITIVE, HARD_NEGATIVE, FALSE_NEGATIVE, SKY, OLIVE, REFERENCE)
WITHOUT_MEANING = (SKY, OLIVE, "#B0524A", "#7A74C4", "#4C8C6B", "#96703A", "#A8609C", "#3D7F8C")  # groups, strategies
RUNS = (  # used only for runs; 3:1 in both themes
    *("#5B6BC0", "#2A93A8", "#A9744F", "#9A5FC0", "#6B9A2F"),
    *("#E0406F", "#7A3FF0", "#A64C30", "#D23CB4", "#5E7000"),
)
MODELS = (REFERENCE, RUNS[0])  # untrained and trained
VERDICTS = {
    "supported": POSITIVE,
    "contradicted": HARD_NEGATIVE,
    "ruled out": OLIVE,
    "smaller than claimed": SKY,
    "inconclusive": REFERENCE,
}
BASELINE_DASH = (6, 4)  # of a series in the color REFERENCE
DASHES: tuple[tuple[int, ...], ...] = ((1, 0), (2, 3), (12, 4), (8, 3, 2, 3))  # of the others; the first is solid


def cycle(values: Sequence[Any], number: int) -> list[Any]:
    """Return the first `number` values, starting over after the last."""
    return [values[position % len(values)] for position in range(number)]


def run_colors(run_ids: Sequence[str], order: Sequence[str] = ()) -> list[str]:
    """Return the color of each run of a figure.

    A run has the same color in all figures, unless an older run of the figure has it: then it takes the next free one.

    Args:
        run_ids: Runs of the figure.
        order: All runs, the oldest first; runs that follow each other have different colors. The color of any other
            run depends on its id.
    """
    positions = {run_id: position for position, run_id in enumerate(order)}
    colors: dict[str, str] = {}
    for run_id in sorted(set(run_ids), key=lambda run_id: (positions.get(run_id, len(order)), run_id)):
        start = positions.get(run_id, zlib.crc32(run_id.encode())) % len(RUNS)
        ordered = [*RUNS[start:], *RUNS[:start]]
        colors[run_id] = next((color for color in ordered if color not in colors.values()), ordered[0])
    return [colors[run_id] for run_id in run_ids]


def series(field: str, names: Sequence[str], colors: Sequence[str], legend: Any) -> dict[str, Any]:
    """Return the Altair channels that give each series a color and a dash pattern; a gray one is dashed.

    Args:
        field: column with the name of the series.
        names: all series, in legend order.
        colors: colors of the series, repeated if there are fewer.
        legend: an `alt.Legend`, or None.
    """
    import altair as alt

    shown = cycle(colors, len(names))
    dashes = iter(cycle(DASHES, len(names)))
    patterns = [list(BASELINE_DASH if one == REFERENCE else next(dashes)) for one in shown]
    color, dash = alt.Scale(domain=list(names), range=shown), alt.Scale(domain=list(names), range=patterns)
    return {
        "color": alt.Color(f"{field}:N", scale=color, legend=legend),
        "strokeDash": alt.StrokeDash(f"{field}:N", scale=dash, legend=legend),
    }


def plain(text: str) -> str:
    """Escape a text so that Plotly displays it literally, without its HTML tags and entities.

    Quotes are not escaped because Plotly does not decode their entities.
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
