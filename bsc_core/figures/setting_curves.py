"""Curves of settings: each is the mean over its runs, a seed each, with a band from the lowest to the highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bsc_core.figures import theme
from bsc_core.figures.curves import STEP_FIELDS, MetricRows, Points, evaluations, lines, series

if TYPE_CHECKING:
    import altair as alt

Settings = Mapping[str, Sequence[MetricRows]]
"""Name -> the metric rows of each of its runs."""


class BestAndLast(NamedTuple):
    """The highest point of a metric's curve after training began, and its last; epochs count from 1."""

    best: float
    best_epoch: int
    last: float
    last_epoch: int


def setting_steps(settings: Settings, field: str) -> alt.LayerChart:
    """One of STEP_FIELDS by step of each setting."""
    noun, axis, unit = STEP_FIELDS[field]
    curves = {
        name: mean_curve([_scaled(series(rows, field), unit) for rows in runs], across="step")
        for name, runs in settings.items()
    }
    ends = [f"{curve[-1]['value']:,.3g}" for curve in curves.values() if curve]
    title = f"{noun} ends at {_listed(ends)}" if ends else f"{noun}: no value yet"
    return lines(curves, title=title, value=axis)


def setting_metric(settings: Settings, metric: str, *, split: str = "dev") -> alt.LayerChart:
    """A metric after each epoch of each setting; 0 is before training."""
    curves = {
        name: mean_curve([evaluations(rows, metric, split=split) for rows in runs], across="epoch")
        for name, runs in settings.items()
    }
    tops = [theme.metric(found.best) for curve in curves.values() if (found := best_and_last(curve)) is not None]
    title = f"{metric} on {split} reaches {_listed(tops)}" if tops else f"{metric} on {split}: no value yet"
    return lines(curves, title=title, value=f"{metric} ({split})", across="epoch", points=True)


def mean_curve(curves: Sequence[Points], *, across: str) -> Points:
    """The mean of curves where all of them have a value, with `low` and `high` where there are several."""
    curves = [curve for curve in curves if curve]
    if len(curves) < 2:
        return curves[0] if curves else []
    found = [{point[across]: point["value"] for point in curve} for curve in curves]
    shared = sorted(set(found[0]).intersection(*found[1:]))
    values = [[curve[place] for curve in found] for place in shared]
    return [
        {across: place, "value": float(np.mean(group)), "low": min(group), "high": max(group)}
        for place, group in zip(shared, values, strict=True)
    ]


def best_and_last(curve: Points) -> BestAndLast | None:
    """Of a curve by epoch, without the untrained encoder; None before the first epoch has ended."""
    trained = [point for point in curve if point["epoch"] > 0]
    if not trained:
        return None
    top, end = max(trained, key=lambda point: (point["value"], -point["epoch"])), trained[-1]
    return BestAndLast(top["value"], top["epoch"], end["value"], end["epoch"])


def _scaled(curve: Points, unit: float) -> Points:
    return [{**point, "value": point["value"] / unit} for point in curve]


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
