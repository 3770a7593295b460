"""Bootstrap that computes a metric from the rows of every resample: the oracle of the weighted one."""

from __future__ import annotations

import numpy as np

from bsc_core.evaluation import pair_metrics
from bsc_core.evaluation.stats.bootstrap import interval
from bsc_core.evaluation.stats.significance import compare_resamples


def pair_statistic(scores, labels, metric, *, threshold=0.5, decision=None):
    """Return a metric of `pair_metrics` as a function of rows. decision: as in `ScoredPairs`."""
    scores, labels = np.asarray(scores), np.asarray(labels)
    cut = "accuracy_decision" if metric == "best_accuracy" else "decision"
    return lambda rows: pair_metrics(scores[rows], labels[rows], threshold=threshold, **{cut: decision})[metric]


def resample_statistics(statistics, groups, n_resamples, seed):
    """Return n functions of rows of all rows (n,) and of resampled groups (B, n); None if too few are defined."""
    _, group = np.unique(np.asarray(groups), return_inverse=True)
    members = [np.flatnonzero(group == number) for number in range(group.max() + 1)]
    generator = np.random.default_rng([seed, 0])
    defined = []
    for _ in range(n_resamples if len(members) > 1 else 0):
        rows = np.concatenate([members[sampled] for sampled in generator.integers(0, len(members), len(members))])
        resample = [statistic(rows) for statistic in statistics]
        defined += [] if None in resample else [resample]
    values = np.array([statistic(np.arange(len(group))) for statistic in statistics], dtype=float)
    return values, np.array(defined) if len(members) > 1 and 2 * len(defined) > n_resamples else None


def bootstrap_statistic(statistic, groups, *, seed, n_resamples=1000):
    values, resamples = resample_statistics([statistic], groups, n_resamples, seed)
    return interval(float(values[0]), None if resamples is None else resamples[:, 0])


def compare_statistics(first, second, groups, *, seed, n_resamples=1000):
    values, resamples = resample_statistics([*first, *second], groups, n_resamples, seed)
    return compare_resamples(values, resamples, len(first), groups=len(np.unique(groups)), seed=seed)
