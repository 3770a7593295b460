"""Points of a finding on margins for its figure: polarity and semantic similarity by margin and epoch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bsc_core.evaluation.metrics.polarity import pareto_front
from bsc_core.reproduction.claims import UNTRAINED

Row = dict[str, Any]


def margin_points(finding: Mapping[str, Any]) -> list[Row]:
    """Return one row for each arm and epoch of a finding: setting, loss, margin, epoch, polarity, semantic, front.

    polarity in [0, 1] and semantic in [-1, 1] are means over seeds; margin is None for a loss without one; front is
    true where no other point, nor the untrained encoder, is better in both. Empty for a finding of other metrics.
    """
    rows = [row for arm in finding["arms"] if arm["name"] != UNTRAINED for row in _rows(arm)]
    reference = untrained_point(finding)
    if not rows or reference is None:
        return []
    points = np.array([[row["polarity"], row["semantic"]] for row in rows] + [reference])
    front = pareto_front(*points.T)
    return [row | {"front": bool(on_front)} for row, on_front in zip(rows, front, strict=False)]


def untrained_point(finding: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return P and S of the untrained encoder; None for a finding of other metrics."""
    return _pair(finding, "reference")


def chance_point(finding: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return P and S of a pool in random order; None for a finding of other metrics."""
    return _pair(finding, "floors")


def _pair(finding: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    values = [arm["details"][name] for arm in finding["arms"] if name in arm.get("details", {})]
    return (float(values[0][0]), float(values[0][1])) if values else None


def _rows(arm: Mapping[str, Any]) -> list[Row]:
    """Return the epochs of an arm that every seed stores."""
    points: Sequence[Row] = arm.get("details", {}).get("points", [])
    if not points:
        return []
    seeds, margin = {point["seed"] for point in points}, arm["settings"].get("loss.margin")
    setting = {"setting": arm["title"], "loss": arm["settings"].get("loss.name")}
    setting["margin"] = None if margin is None else float(margin)
    rows = []
    for epoch in sorted({point["epoch"] for point in points}):
        same = [point for point in points if point["epoch"] == epoch]
        if len(same) == len(seeds):
            means = {name: float(np.mean([point[name] for point in same])) for name in ("polarity", "semantic")}
            rows.append({**setting, "epoch": epoch, **means})
    return rows
