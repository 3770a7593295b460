"""Calibration curves and HasPositive@k for one or two models."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt

from bsc_core.figures import axes, theme

LEGEND = {"orient": "bottom", "title": None, "labelLimit": 320, "symbolType": "stroke", "symbolStrokeWidth": 3}


class Bin(NamedTuple):
    """A bin of pairs: mean score, share of positive pairs with the ends of its interval, and number of pairs."""

    score: float
    share: float
    low: float
    high: float
    pairs: int


def calibration(
    models: Mapping[str, Sequence[Bin]],
    *,
    thresholds: Mapping[str, float | None],
    colors: Sequence[str] = theme.MODELS,
) -> alt.LayerChart:
    """Plot the share of positive pairs by cosine similarity for each model, with confidence intervals.

    Args:
        models: model name to its bins, by increasing score.
        thresholds: model name to the F1 threshold selected on dev, shown as a vertical rule; None for no rule.
        colors: one per model.
    """
    channels = theme.series("model", list(models), colors, None)
    x = alt.X("score:Q", title="cosine of the pair", scale=alt.Scale(zero=False))
    y = alt.Y("share:Q", title="share of positive pairs", scale=alt.Scale(domain=[0, 1]))
    numbers = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("score", "share", "low", "high")]
    base = alt.Chart(alt.Data(values=table(models))).encode(x=x, color=channels["color"])
    legend = channels["color"].legend(alt.Legend(**LEGEND))
    layers = [
        base.mark_line(strokeWidth=2).encode(y=y, strokeDash=channels["strokeDash"], color=legend),
        base.mark_rule(strokeWidth=1.5, opacity=0.6).encode(y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
        base.mark_point(size=60, filled=True, opacity=1).encode(
            y=y, tooltip=[alt.Tooltip("model:N"), *numbers, alt.Tooltip("pairs:Q")]
        ),
    ]
    rules = [
        {"model": name, "score": threshold, "what": "F1 threshold"}
        for name, threshold in thresholds.items()
        if threshold is not None
    ]
    if rules:
        lines = alt.Chart(alt.Data(values=rules)).mark_rule(strokeWidth=1)
        layers.append(
            lines.encode(
                x=alt.X("score:Q"), tooltip=[alt.Tooltip("model:N"), alt.Tooltip("what:N"), numbers[0]], **channels
            )
        )
    return alt.layer(*layers).properties(height=400, title="Share of positive pairs at each cosine")


def table(models: Mapping[str, Sequence[Bin]]) -> list[dict[str, Any]]:
    """Return one row per model and bin."""
    return [{"model": name, **one._asdict()} for name, bins in models.items() for one in bins]


def hit_curve(models: Mapping[str, Mapping[str, float | None]], *, colors: Sequence[str] = theme.MODELS) -> alt.Chart:
    """Plot HasPositive@k over k for each model.

    Args:
        models: model name to metrics such as {"has_positive@1": 0.61}.
        colors: one per model.
    """
    rows = hits(models)
    return (
        alt.Chart(alt.Data(values=rows), height=360, title="Queries with a relevant document in the top k")
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=50, filled=True))
        .encode(
            x=alt.X("k:O", title="k", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("value:Q", title="HasPositive@k", scale=axes.value_scale(row["value"] for row in rows)),
            tooltip=[alt.Tooltip("model:N"), alt.Tooltip("k:O"), alt.Tooltip("value:Q", format=".3f")],
            **theme.series("model", list(models), colors, alt.Legend(**LEGEND)),
        )
    )


def hits(models: Mapping[str, Mapping[str, float | None]]) -> list[dict[str, Any]]:
    """Return one row per model and cutoff, with keys model, k and value (HasPositive@k)."""
    return [
        {"model": name, "k": int(key.partition("@")[2]), "value": value}
        for name, metrics in models.items()
        for key, value in metrics.items()
        if key.startswith("has_positive@") and value is not None
    ]
