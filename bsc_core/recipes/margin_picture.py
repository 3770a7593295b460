"""What a finding on margins looks like: polarity against semantic similarity over margin and epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bsc_core.evaluation.tradeoff import pareto_front
from bsc_core.recipes.claims import UNTRAINED

Row = dict[str, Any]


def margin_points(finding: Mapping[str, Any]) -> list[Row]:
    """One row for each arm and epoch of a finding: setting, loss, margin, epoch, polarity, semantic, front.

    polarity, semantic: means over seeds, P in [0, 1] and S in [-1, 1]; margin: None for a loss without one; front:
    whether no other point, nor the untrained encoder, beats it in both. Empty for a finding of other measures.
    """
    rows = [row for arm in finding["arms"] for row in _rows(arm)]
    reference = untrained_point(finding)
    if not rows or reference is None:
        return []
    sides = [[row[name] for row in rows] + [own] for name, own in zip(("polarity", "semantic"), reference, strict=True)]
    front = pareto_front(*sides)
    return [row | {"front": bool(found)} for row, found in zip(rows, front, strict=False)]


def untrained_point(finding: Mapping[str, Any]) -> tuple[float, float] | None:
    """P and S of the untrained encoder; None for a finding of other measures."""
    return _pair(finding, "reference")


def chance_point(finding: Mapping[str, Any]) -> tuple[float, float] | None:
    """P and S of a pool in random order; None for a finding of other measures."""
    return _pair(finding, "floors")


def _pair(finding: Mapping[str, Any], name: str) -> tuple[float, float] | None:
    found = [arm["details"][name] for arm in finding["arms"] if name in arm.get("details", {})]
    return (float(found[0][0]), float(found[0][1])) if found else None


def _rows(arm: Mapping[str, Any]) -> list[Row]:
    """The epochs of an arm that every seed kept."""
    points: Sequence[Mapping[str, Any]] = arm.get("details", {}).get("points", [])
    if arm["name"] == UNTRAINED or not points:
        return []
    seeds = {point["seed"] for point in points}
    setting = {"setting": arm["title"], "loss": arm["settings"].get("loss.name"), "margin": _margin(arm["settings"])}
    rows = []
    for epoch in sorted({point["epoch"] for point in points}):
        own = [point for point in points if point["epoch"] == epoch]
        if len(own) == len(seeds):
            means = {name: float(np.mean([point[name] for point in own])) for name in ("polarity", "semantic")}
            rows.append({**setting, "epoch": epoch, **means})
    return rows


def _margin(settings: Mapping[str, Any]) -> float | None:
    found = settings.get("loss.margin")
    return None if found is None else float(found)
