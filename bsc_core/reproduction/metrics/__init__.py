"""Metrics by which the runs of a claim are compared, by their source."""

from collections.abc import Mapping, Sequence
from typing import Any

from bsc_core.evaluation.comparison import setting_interval, shared_metrics
from bsc_core.evaluation.stats.bootstrap import Interval
from bsc_core.evaluation.stats.significance import Comparison
from bsc_core.reproduction.metrics.nli import NLIMetrics
from bsc_core.reproduction.metrics.polarity import PolarityMetrics
from bsc_core.reproduction.metrics.source import BOOTSTRAP_SEED, MetricsSource
from bsc_core.run_results import When, compare_runs, load_results
from bsc_core.runs import Run

__all__ = ["METRICS_SOURCES", "MetricsSource", "NLIMetrics", "PolarityMetrics", "RunMetrics"]


class RunMetrics:
    """Metrics of the final evaluation that every run stores: of each query, and of all pairs together."""

    def intervals(self, runs: Sequence[Run], split: str, when: When, metrics: Sequence[str]) -> dict[str, Interval]:
        """Return means over seeds and queries with their intervals."""
        results = [load_results(run, split, when=when) for run in runs]
        defined = set(shared_metrics(results))
        return {name: setting_interval(results, name, seed=BOOTSTRAP_SEED) for name in metrics if name in defined}

    def compare(
        self, first: Sequence[Run], second: Sequence[Run], metric: str, split: str, *, when: tuple[When, When]
    ) -> Comparison:
        """Compare two settings, second minus first."""
        return compare_runs(first, second, metric, split, seed=BOOTSTRAP_SEED, first_when=when[0], second_when=when[1])

    def details(self, runs: Sequence[Run], when: When) -> dict[str, Any]:
        """Return an empty dict: there are no figures of these metrics."""
        return {}


METRICS_SOURCES: Mapping[str, MetricsSource] = {"run": RunMetrics(), "nli": NLIMetrics(), "polarity": PolarityMetrics()}
