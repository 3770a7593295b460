"""Interface of the metrics sources, and their resampling of rows."""

# N rows

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bsc_core.evaluation.stats.bootstrap import CELLS_AT_ONCE, Interval
from bsc_core.evaluation.stats.significance import Comparison
from bsc_core.run_results import When
from bsc_core.runs import Run
from bsc_core.types import Numbers

BOOTSTRAP_SEED = 0


class MetricsSource(Protocol):
    """Source of the metrics of a claim."""

    def intervals(self, runs: Sequence[Run], split: str, when: When, metrics: Sequence[str]) -> dict[str, Interval]:
        """Return for each metric its mean over runs that differ in their seed only, with its interval.

        A metric that is not defined for these runs is left out. Before training all seeds are the same encoder, which
        counts once.
        """

    def compare(
        self, first: Sequence[Run], second: Sequence[Run], metric: str, split: str, *, when: tuple[When, When]
    ) -> Comparison:
        """Compare two settings, each given by the runs of its seeds: the difference is second minus first.

        Args:
            first: Runs of the first setting.
            second: Runs of the second setting.
            metric: Name of the metric.
            split: Split on which the runs are evaluated.
            when: Which encoder of the first and of the second runs is compared.

        Raises:
            DataError: The metric is not available.
            RunError: A run lacks the data or the vectors to compute it.
        """

    def details(self, runs: Sequence[Run], when: When) -> dict[str, Any]:
        """Return further plain values of an arm for its figures; empty without any."""


def cached_array(run: Run, name: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Return an array of the run folder, which is computed and stored if it is missing."""
    array = run.array(name)
    if array is None:
        array = compute()
        run.write_array(name, array)
    return np.array(array)


def bootstrap_weights(groups: ArrayLike, resamples: int, seed: int) -> Iterator[Numbers]:
    """Yield blocks (b, N) of how often each row is in a resample; `resamples` resamples in all.

    Rows of one group are resampled together. The same seed and groups give the same resamples, so that compared
    settings are evaluated on the same rows.
    """
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    count = int(group.max()) + 1
    generator = np.random.default_rng([seed, 0])
    height = max(1, CELLS_AT_ONCE // 4 // len(group))
    for start in range(0, resamples, height):
        times = generator.multinomial(count, np.full(count, 1 / count), size=min(height, resamples - start))
        yield times[:, group].astype(np.float64)
