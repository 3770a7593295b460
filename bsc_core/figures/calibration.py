"""What a score is worth: the share of positive pairs at each height of it, for one model or two beside each other."""

# n bins

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from bsc_core.figures import theme
from bsc_core.figures.ranks import AFTER

HEIGHT = 400


class Bin(NamedTuple):
    """Pairs of about one score: its mean, the share of positives among them with its interval, and their number."""

    score: float
    share: float
    low: float
    high: float
    pairs: int


def calibration(models: Mapping[str, Sequence[Bin]], *, cuts: Mapping[str, float | None]) -> alt.LayerChart:
    """Share of positive pairs by cosine for each model (name -> bins by rising score), with its interval.

    cuts: name -> the threshold of F1 chosen on dev, drawn as an upright line; None for none. The first model is grey
    and solid, the second dashed.
    """
    names = list(models)
    scale = alt.Scale(domain=names, range=[theme.REFERENCE, AFTER][: len(names)])
    colour = alt.Color("model:N", scale=scale, legend=None)
    legend = alt.Legend(orient="bottom", title=None, labelLimit=320, symbolType="stroke", symbolStrokeWidth=3)
    dashes = [list(theme.DASHES[number % len(theme.DASHES)]) for number in range(len(names))]
    dash = alt.StrokeDash("model:N", scale=alt.Scale(domain=names, range=dashes), legend=None)
    x = alt.X("score:Q", title="cosine of the pair", scale=alt.Scale(zero=False))
    base = alt.Chart(alt.Data(values=table(models))).encode(x=x, color=colour)
    share = alt.Y("share:Q", title="share of positive pairs", scale=alt.Scale(domain=[0, 1]))
    told = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("score", "share", "low", "high")]
    lines = base.mark_line(strokeWidth=2).encode(y=share, strokeDash=dash, color=colour.legend(legend))
    spans = base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(y=alt.Y("low:Q"), y2="high:Q")
    dots = base.mark_point(size=60, filled=True, opacity=1).encode(y=share, tooltip=["model:N", *told, "pairs:Q"])
    layers = [lines, spans, dots, *_cuts(cuts, colour, dash)]
    return alt.layer(*layers).properties(height=HEIGHT, title="How many pairs are positive at each cosine")


def table(models: Mapping[str, Sequence[Bin]]) -> list[dict[str, Any]]:
    """One line for each model and bin."""
    return [{"model": name, **one._asdict()} for name, bins in models.items() for one in bins]


def _cuts(cuts: Mapping[str, float | None], colour: alt.Color, dash: alt.StrokeDash) -> list[alt.Chart]:
    chosen = [{"model": name, "score": cut, "what": "threshold of F1"} for name, cut in cuts.items() if cut is not None]
    if not chosen:
        return []
    rule = alt.Chart(alt.Data(values=chosen)).mark_rule(strokeWidth=1)
    return [
        rule.encode(
            x="score:Q",
            color=colour,
            strokeDash=dash,
            tooltip=["model:N", "what:N", alt.Tooltip("score:Q", format=".3f")],
        )
    ]
