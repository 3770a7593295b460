"""The metrics that every run has, as a recipe compares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bsc_core.comparison import When, compare_measured, compared_metrics, run_measured, setting_interval
from bsc_core.evaluation.bootstrap import Interval
from bsc_core.evaluation.significance import Comparison
from bsc_core.runs import Run

DRAW_SEED = 0


class RunMeasure:
    """What was measured when a run ended: metrics of each query, and of all pairs together."""

    def intervals(self, runs: Sequence[Run], split: str, when: When, metrics: Sequence[str]) -> dict[str, Interval]:
        """The mean over seeds of each metric that is defined, with queries and seeds drawn anew.

        Before training all seeds are one encoder, which counts once.
        """
        measured = [run_measured(run, split, when=when) for run in runs]
        defined = set(compared_metrics(measured))
        return {name: setting_interval(measured, name, seed=DRAW_SEED) for name in metrics if name in defined}

    def compare(
        self, first: Sequence[Run], second: Sequence[Run], metric: str, split: str, *, whens: tuple[When, When]
    ) -> Comparison:
        """`compare_measured` on the runs of two settings. Raises DataError and RunError as `compare_runs` does."""
        one, two = (
            [run_measured(run, split, when=when) for run in runs]
            for runs, when in zip((first, second), whens, strict=True)
        )
        return compare_measured(one, two, metric, seed=DRAW_SEED)

    def details(self, runs: Sequence[Run], when: When) -> dict[str, Any]:
        """Nothing: tables and intervals say it all."""
        return {}
