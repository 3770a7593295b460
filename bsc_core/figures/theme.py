"""Colors, dash patterns and escaping shared by all figures and pages; each color has one meaning.

The palette is that of Okabe and Ito, which color-blind readers can distinguish.
"""

from collections.abc import Sequence
from typing import Any

QUERY = "#0072B2"
DOCUMENT = "#E69F00"
POSITIVE = "#009E73"
HARD_NEGATIVE = "#D55E00"
FALSE_NEGATIVE = "#CC79A7"
MARKED_FALSE_NEGATIVE = "#8E3B6E"  # marked by the user; darker than a likely false negative
REFERENCE = "#8A8F98"

COSINE = ("#0B4F8A", "#3C86C0", "#9CC4E2", "#FAFAF7", "#F4C58B", "#E0912F", "#A8560A")  # -1 to 1, 0 in the middle
PROBABILITY = ("#FAFAF7", "#C7E5DA", "#7CC4AC", "#2E9C7C", "#046B50")  # 0 to 1
GRADIENT = ("#046B50", "#5FB59C", "#FAFAF7", "#E39A68", "#A84300")  # from attraction through 0 to repulsion
CATEGORIES = (QUERY, DOCUMENT, POSITIVE, HARD_NEGATIVE, FALSE_NEGATIVE, "#56B4E9", "#B59B00", REFERENCE)
RUNS = ("#5B6BC0", "#B59B00", "#56B4E9", REFERENCE)  # used only for runs
MODELS = (REFERENCE, RUNS[0])  # untrained and trained
VERDICTS = {
    "supported": POSITIVE,
    "contradicted": HARD_NEGATIVE,
    "ruled out": "#B59B00",
    "smaller than claimed": "#56B4E9",
    "inconclusive": REFERENCE,
}
DASHES: tuple[tuple[int, int], ...] = ((1, 0), (6, 4), (2, 3), (8, 3))  # the first series of a comparison is solid


def cycle(values: Sequence[Any], number: int) -> list[Any]:
    """Return the first `number` values, starting over after the last."""
    return [values[position % len(values)] for position in range(number)]


def series(field: str, names: Sequence[str], colors: Sequence[str], legend: Any) -> dict[str, Any]:
    """Return the Altair channels that give each series a color and a dash pattern.

    Args:
        field: column with the name of the series.
        names: all series, in legend order.
        colors: colors of the series, repeated if there are fewer.
        legend: an `alt.Legend`, or None.
    """
    import altair as alt

    color = alt.Scale(domain=list(names), range=cycle(colors, len(names)))
    dash = alt.Scale(domain=list(names), range=[list(dash) for dash in cycle(DASHES, len(names))])
    return {
        "color": alt.Color(f"{field}:N", scale=color, legend=legend),
        "strokeDash": alt.StrokeDash(f"{field}:N", scale=dash, legend=legend),
    }


def plain(text: str) -> str:
    """Escape a text so that Plotly displays it literally, without its HTML tags and entities.

    Quotes are not escaped because Plotly does not decode their entities.
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
