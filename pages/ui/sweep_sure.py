"""How sure the order of a sweep's settings is: each with its interval, and the best held against the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bsc_core.figures import parallel, theme
from bsc_core.runs import Run
from pages.ui import compare_table, compared
from pages.ui.compared import Setting

if TYPE_CHECKING:
    from bsc_core.evaluation import Comparison

SPLIT = "dev"
MOST_DRAWN = 24  # settings, the best means first, whose intervals are drawn
Cell = Mapping[str, Any]


def spans(summary: Mapping[str, Any], runs: list[Run]) -> list[str]:
    """The interval of each setting in the order of the summary, `[0.612, 0.688]`; in words where there is none."""
    found = []
    for place, cell in enumerate(summary["settings"]):
        span = None
        if cell["mean"] is not None and summary["metric"] and place < MOST_DRAWN:
            span = compare_table.interval(setting_of(cell, runs), SPLIT, summary["metric"])
        if span is not None and span.low is not None and span.high is not None:
            found.append(f"[{theme.metric(span.low)}, {theme.metric(span.high)}]")
        else:
            found.append("" if cell["mean"] is None else "not drawn" if place >= MOST_DRAWN else "no interval")
    return found


def against_next(summary: Mapping[str, Any], runs: list[Run]) -> str | None:
    """Whether the best setting is above the next one, in a sentence; None while fewer than two are measured."""
    done = [cell for cell in summary["settings"] if cell["mean"] is not None]
    if len(done) < 2 or not summary["metric"]:
        return None
    best, following = (setting_of(cell, runs) for cell in done[:2])
    return sentence(compared.compared(following, best, SPLIT, summary["metric"]), following.name)


def sentence(found: Comparison | str, following: str) -> str:
    """`The best is above the next one (temperature 0.1) by +0.012 [+0.004, +0.020], p = 0.003.`"""
    if isinstance(found, str):
        why = found.removeprefix("comparison: ").rstrip(".")
        return f"The best is not held against the next one ({following}): {why}."
    change = compare_table.difference(found.difference)
    if found.p is None:
        why = "there is one query" if found.queries < 2 else "no query differs"
        return f"The best cannot be told apart from the next one ({following}): {why}."
    chance = "p < 0.001" if found.p < 0.001 else f"p = {found.p:.2g}"
    if not found.is_difference:
        return f"The best cannot be told apart from the next one ({following}): {change}, {chance}."
    side = "above" if found.difference.value > 0 else "below"
    return f"The best is {side} the next one ({following}) by {change}, {chance}."


def setting_of(cell: Cell, runs: list[Run]) -> Setting:
    """The runs of a setting that are done, as one that is compared."""
    by_id = {run.id: run for run in runs}
    done = [by_id[name] for name, value in zip(cell["runs"], cell["values"], strict=True) if value is not None]
    return Setting(done[0].id, named(cell), tuple(done))


def named(cell: Cell) -> str:
    """`loss.temperature 0.05, training.batch_size 32`."""
    return ", ".join(f"{key} {parallel.words(value)}" for key, value in cell["setting"].items()) or "the one setting"
