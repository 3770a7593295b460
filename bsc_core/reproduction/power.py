"""Power of a claim's statements, predicted from the variance of stored runs before more are trained."""

from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Any

import numpy as np
from scipy.special import ndtri
from scipy.stats import t

from bsc_core.errors import InputError
from bsc_core.evaluation.stats.bootstrap import LEVEL, Interval
from bsc_core.reproduction.claims import UNTRAINED
from bsc_core.reproduction.verdicts import smallest_detectable, standard_error

MAX_SEEDS = 30
"""The largest number of seeds that a plan chooses."""


def plan_power(finding: Mapping[str, Any], seeds: int | None = None) -> dict[str, Any]:
    """Predict the detectable differences of a claim with other numbers of seeds, on the rows of a finding.

    The variance of a difference is that of the rows plus that of the seeds divided by their number. The variance
    between seeds is from the metrics of the stored runs; that of the rows is the rest of the interval's variance.

    Args:
        finding: a finding with its runs.
        seeds: the number of seeds; None: the smallest number with which every statement detects the paper's difference,
            among statements where at most MAX_SEEDS suffice, and at least the finding's number.

    Returns:
        name, seeds, runs and seconds (processor time of all runs with these seeds; `more_seconds` without the stored
        ones), and statements. Each has text, metric, split, queries, paper, detectable now and `planned` with these
        seeds (None where the runs do not store the metric), `limit` with any number of seeds, and `needed_seeds` for
        the paper's difference (None without one, or where MAX_SEEDS do not suffice).

    Raises:
        InputError: the finding has fewer than two seeds, or the number of seeds is below 2.
    """
    stored = len(finding["seeds"])
    if stored < 2:
        raise InputError(f"claim {finding['name']} has {stored} seed; a plan needs the variance of at least 2")
    if seeds is not None and seeds < 2:
        raise InputError(f"--seeds is {seeds}; a plan needs at least 2")
    statements = [_Planned(finding, one) for one in finding["statements"]]
    needed = [one.needed_seeds() for one in statements]
    chosen = seeds or max([stored, *(number for number in needed if number is not None)])
    arms = [arm for arm in finding["arms"] if arm["name"] != UNTRAINED]
    seconds = finding["seconds"] / stored * chosen
    return {
        "name": finding["name"],
        "seeds": chosen,
        "runs": len(arms) * chosen,
        "seconds": round(seconds, 1),
        "more_seconds": round(max(0.0, seconds - finding["seconds"]), 1),
        "statements": [
            {
                **{key: one.statement[key] for key in ("text", "metric", "split", "queries", "paper", "detectable")},
                "planned": one.detectable(chosen),
                "limit": one.detectable(None),
                "needed_seeds": number,
            }
            for one, number in zip(statements, needed, strict=True)
        ],
    }


def plan_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield a plan as text."""
    yield (
        f"{plan['name']}: {plan['seeds']} seeds, {plan['runs']} runs, {plan['seconds'] / 60:.1f} CPU minutes "
        f"({plan['more_seconds'] / 60:.1f} more)"
    )
    for one in plan["statements"]:
        paper = "no difference in the paper" if one["paper"] is None else f"paper {one['paper']:+.4f}"
        if one["planned"] is None:
            yield f"    {one['text']}: detectable now {_number(one['detectable'])}; no prediction; {paper}"
            continue
        if one["paper"] is not None:
            seeds = one["needed_seeds"]
            paper += (
                f", more than {MAX_SEEDS} seeds or more rows needed" if seeds is None else f", {seeds} seeds needed"
            )
        yield (
            f"    {one['text']}: detectable now {_number(one['detectable'])}, planned {one['planned']:.4f}, "
            f"limit of these {one['queries']:,} queries {one['limit']:.4f}; {paper}"
        )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


class _Planned:
    """The parts of the variance of a statement's difference."""

    def __init__(self, finding: Mapping[str, Any], statement: Mapping[str, Any]) -> None:
        self.statement, self._stored = statement, len(finding["seeds"])
        self._rows, self._freedom_share = 0.0, 1.0
        family = [one for one in finding["statements"] if one["p_holm"] is not None]
        self._tests = sum(one["informational"] == statement["informational"] for one in family)
        error = standard_error(Interval(statement["difference"], statement["low"], statement["high"]))
        variances = [_seed_variance(finding, statement, statement[side]) for side in ("better", "worse")]
        self._seeds: float | None = None
        if error is not None and None not in variances:
            known = [variance for variance in variances if variance]
            self._seeds = sum(known)
            self._freedom_share = self._seeds**2 / sum(variance**2 for variance in known) if known else 1.0
            part = self._seed_part(self._stored)
            self._seeds *= min(1.0, error**2 / part) if part else 1.0  # intervals leave out the noise of single queries
            self._rows = max(0.0, error**2 - self._seed_part(self._stored))

    def detectable(self, seeds: int | None) -> float | None:
        """Return the detectable difference with a number of seeds, None meaning infinitely many."""
        if self._seeds is None:
            return None
        return smallest_detectable(sqrt(self._rows + (0.0 if seeds is None else self._seed_part(seeds))), self._tests)

    def needed_seeds(self) -> int | None:
        """Return the smallest number of seeds, at most MAX_SEEDS, that detects the paper's difference."""
        paper = self.statement["paper"]
        if self._seeds is None or not paper:
            return None
        enough = (n for n in range(2, MAX_SEEDS + 1) if (self.detectable(n) or 0.0) <= abs(paper))
        return next(enough, None)

    def _seed_part(self, seeds: int) -> float:
        """Return the variance due to seeds, widened as the quantiles of Student's t are."""
        freedom = self._freedom_share * (seeds - 1)
        upper = (1 + LEVEL) / 2
        widened = float(t.ppf(upper, freedom) / ndtri(upper))
        return (self._seeds or 0.0) / seeds * widened**2


def _seed_variance(finding: Mapping[str, Any], statement: Mapping[str, Any], arm: str) -> float | None:
    """Return the variance of a metric between the seeds of an arm; 0 untrained, None where runs do not store it."""
    if arm == UNTRAINED:
        return 0.0
    runs = next(one["runs"] for one in finding["arms"] if one["name"] == arm)
    values = [run["values"].get(statement["split"], {}).get(statement["metric"]) for run in runs]
    if len(values) < 2 or None in values:
        return None
    return float(np.var(values, ddof=1))
