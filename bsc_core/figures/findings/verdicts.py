"""Figures of the Findings page: counts of verdicts, and a forest plot of a claim's statements.

In the forest plot, differences to the right of 0 agree with the claim.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from bsc_core import formatting
from bsc_core.figures import theme

LABEL_LENGTH = 96
LINE_LENGTH = 46  # characters of a label that fit in a narrow figure
LINE_HEIGHT = 14
NARROW = 560  # pixels of a figure below which labels are wrapped
ROW_HEIGHT, ROW_HEIGHT_WRAPPED = 48, 60
BAR_HEIGHT = 20
NOT_RUN = "#C9CDD2"  # of claims without a result
MARGIN_HEIGHT = 140  # pixels of title, legend and axis
NUMBERS = ("difference", "low", "high", "paper", "margin", "p_holm")
COLUMNS = ("text", "metric", "split", *NUMBERS[:5], "expects", "p_holm", "verdict")  # keys of a statement


def verdict_bars(counts: Mapping[str, Mapping[str, int]], order: Sequence[str]) -> alt.LayerChart:
    """Plot how many claims of each kind have each verdict, as stacked bars of equal length.

    Args:
        counts: Kind of claims to the number of claims by verdict.
        order: The verdicts in the order of the bars; those without a color are gray.
    """
    table = [
        {"kind": kind, "verdict": verdict, "claims": number, "order": order.index(verdict)}
        for kind, numbers in counts.items()
        for verdict, number in numbers.items()
        if number
    ]
    shown = [verdict for verdict in order if any(row["verdict"] == verdict for row in table)]
    scale = alt.Scale(domain=shown, range=[theme.VERDICTS.get(verdict, NOT_RUN) for verdict in shown])
    legend = alt.Legend(title=None, orient="top", symbolOpacity=1, symbolType="square")
    base = alt.Chart(alt.Data(values=table)).encode(
        y=alt.Y("kind:N", sort=list(counts), title=None, axis=alt.Axis(ticks=False, domain=False, labelLimit=240)),
        order=alt.Order("order:Q"),
        tooltip=[alt.Tooltip("kind:N"), alt.Tooltip("verdict:N"), alt.Tooltip("claims:Q")],
    )
    share = {"stack": "normalize", "axis": None}
    bars = base.mark_bar(size=BAR_HEIGHT).encode(
        x=alt.X("claims:Q", **share), color=alt.Color("verdict:N", scale=scale, legend=legend)
    )
    numbers = base.mark_text(color=theme.ON_LIGHT, fontWeight=600).encode(
        x=alt.X("claims:Q", bandPosition=0.5, **share), text=alt.Text("claims:Q"), detail=alt.Detail("verdict:N")
    )
    return alt.layer(bars, numbers).properties(height=alt.Step(BAR_HEIGHT + 8))


def statements_table(statements: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Build the table of a finding's statements.

    Returns:
        One row per statement. Columns: statement, metric, split, difference (`better` minus `worse`, in units of the
        metric), low and high (confidence interval; NaN without one), paper (difference in the paper; NaN if not
        reported), margin (of an expected equality, else NaN), expects, p (Holm-corrected over the statements), verdict
        and informational (not stated in the paper).
    """
    table = pd.DataFrame(list(statements), columns=COLUMNS).astype(dict.fromkeys(NUMBERS, "float64"))
    table = table.rename(columns={"text": "statement", "p_holm": "p"})
    return table.assign(informational=[one.get("informational", False) for one in statements])


def verdicts_figure(table: pd.DataFrame) -> alt.LayerChart:
    """Plot the differences (output of `statements_table`) with confidence intervals, colored by verdict.

    Diamonds are the paper's values; a gray band is the margin within which two settings count as equal.
    """
    names = _names(table)
    lines = ["\n".join(textwrap.wrap(name, LINE_LENGTH, break_on_hyphens=False)) for name in names]
    rows = table.assign(name=names, lines=lines, margin_below=-table["margin"])
    row_height = ROW_HEIGHT_WRAPPED if lines != names else ROW_HEIGHT
    verdicts = {name: color for name, color in theme.VERDICTS.items() if name in set(table["verdict"])}
    color = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=list(verdicts), range=list(verdicts.values())),
        legend=alt.Legend(orient="top", title=None, symbolType="circle", columns=2),
    )
    titles = {"difference": "difference", "low": "from", "high": "to", "paper": "in the paper"}
    numbers = [alt.Tooltip(f"{name}:Q", title=title, format="+.3f") for name, title in titles.items()]
    p_value = alt.Tooltip("p:Q", title="p, corrected", format=".2g")
    base = alt.Chart(rows).encode(
        y=alt.Y("name:N", title=None, sort=None, axis=None),
        tooltip=[alt.Tooltip("statement:N"), alt.Tooltip("verdict:N"), *numbers, p_value],
    )
    axis = {"title": "difference in the metric", "axis": alt.Axis(format="+.3f", tickCount=6, labelBound=True)}
    zero = base.mark_tick(orient="vertical", size=20, thickness=2, color=theme.REFERENCE).encode(x=alt.datum(0))
    margins = base.transform_filter("isValid(datum.margin)").mark_bar(size=20, color=theme.REFERENCE, opacity=0.25)
    intervals = base.transform_filter("isValid(datum.low)").mark_rule(strokeWidth=3)
    points = base.mark_point(filled=True, size=90, opacity=1).encode(x=alt.X("difference:Q"), color=color)
    diamonds = base.transform_filter("isValid(datum.paper)").mark_point(
        shape="diamond", size=110, strokeWidth=1.6, color=theme.REFERENCE, filled=False, opacity=1
    )
    narrow = f"width < {NARROW}"
    labels = base.mark_text(
        align="left",
        baseline="bottom",
        dy=alt.expr(f"{narrow} ? {LINE_HEIGHT - 12} - {LINE_HEIGHT} * length(split(datum.lines, '\\n')) : -12"),
        fontSize=12,
        lineHeight=LINE_HEIGHT,
        color=theme.REFERENCE,
        text=alt.expr(f"{narrow} ? datum.lines : datum.name"),
        lineBreak="\n",
    )
    return alt.layer(
        margins.encode(x=alt.X("margin_below:Q", **axis), x2=alt.X2("margin:Q")),
        zero,
        intervals.encode(x=alt.X("low:Q", **axis), x2=alt.X2("high:Q"), color=color),
        points,
        diamonds.encode(x=alt.X("paper:Q")),
        labels.encode(x=alt.value(0)),
    ).properties(height=MARGIN_HEIGHT + row_height * len(rows), title=headline(table))


def headline(table: pd.DataFrame) -> str:
    """Return the title: the number of supported statements, not counting informational ones."""
    claimed = table[~table["informational"]]
    supported = int((claimed["verdict"] == "supported").sum())
    title = f"{supported} of {formatting.plural(len(claimed), 'statement')} supported"
    return f"{title}; diamonds: the paper" if table["paper"].notna().any() else title


def caption(table: pd.DataFrame) -> str:
    """Return the caption of the figure: which side agrees with the claim, and why an interval does not decide."""
    sentences = []
    if table["expects"].nunique() == 1:
        claimed = "within the margin, the gray band," if (table["expects"] == "same").all() else "right of 0"
        sentences.append(f"A difference {claimed} supports the paper.")
    if table["p"].notna().any():
        sentences.append(
            "Verdicts use p-values corrected for several statements (Holm), so a statement whose interval is right of "
            "0 can be inconclusive."
        )
    return " ".join(sentences)


def _names(table: pd.DataFrame) -> list[str]:
    """Return unique statement labels, shortened to fit; the metric is appended where the statement does not name it."""
    result = []
    for text, metric in zip(table["statement"], table["metric"], strict=True):
        suffix = "" if metric in text else f" ({metric})"
        result.append(f"{formatting.shorten(text, LABEL_LENGTH - len(suffix))}{suffix}")
    return result if len(set(result)) == len(result) else [f"{n}. {name}" for n, name in enumerate(result, start=1)]
