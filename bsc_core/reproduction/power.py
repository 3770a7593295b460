"""Power of a claim's statements with other numbers of seeds, predicted from the variance of stored runs."""

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
    """Predict the differences that a claim detects with another number of seeds, on the rows of a finding.

    The variance of a difference is the variance of the rows plus that between seeds divided by their number. The
    variance between seeds is estimated from the metrics of the stored runs; the variance of the rows is the rest of the
    interval's variance.

    Args:
        finding: A finding with its runs.
        seeds: The number of seeds. None: the smallest number, at least that of the finding, with which every statement
            detects the paper's difference; statements that need more than MAX_SEEDS are not considered.

    Returns:
        `name`, `seeds`, `runs`, `seconds` (processor time of all runs), `more_seconds` (of the runs that are not
        stored), and `statements`. A statement has `text`, `metric`, `split`, `queries`, `paper`, and the detectable
        difference of the stored runs (`detectable`), with these seeds (`planned`) and with any number of seeds
        (`limit`), the last two None if the runs do not store the metric. `needed_seeds` is the number for the paper's
        difference; None without one, or above MAX_SEEDS.

    Raises:
        InputError: The finding has fewer than two seeds, or the number of seeds is below 2.
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
    """Variance of a statement's difference, divided into those of rows and seeds."""

    def __init__(self, finding: Mapping[str, Any], statement: Mapping[str, Any]) -> None:
        self.statement, self._stored = statement, len(finding["seeds"])
        self._row_variance, self._freedom_share = 0.0, 1.0  # degrees of freedom, divided by (seeds - 1)
        family = [one for one in finding["statements"] if one["p_holm"] is not None]
        self._tests = sum(one["informational"] == statement["informational"] for one in family)
        error = standard_error(Interval(statement["difference"], statement["low"], statement["high"]))
        variances = [_variance_between_seeds(finding, statement, statement[side]) for side in ("better", "worse")]
        self._seed_variance: float | None = None
        if error is not None and None not in variances:
            known = [variance for variance in variances if variance]
            self._seed_variance = sum(known)
            if known:  # Welch-Satterthwaite, for equal numbers of seeds
                self._freedom_share = self._seed_variance**2 / sum(variance**2 for variance in known)
            part = self._seed_part(self._stored)
            if part:  # the interval does not include the noise of single queries, so it may be narrower
                self._seed_variance *= min(1.0, error**2 / part)
            self._row_variance = max(0.0, error**2 - self._seed_part(self._stored))

    def detectable(self, seeds: int | None) -> float | None:
        """Return the detectable difference; None if it is unknown.

        Args:
            seeds: Number of seeds; None: infinitely many.
        """
        if self._seed_variance is None:
            return None
        seed_part = 0.0 if seeds is None else self._seed_part(seeds)
        return smallest_detectable(sqrt(self._row_variance + seed_part), self._tests)

    def needed_seeds(self) -> int | None:
        """Return the smallest number of seeds, at most MAX_SEEDS, that detects the paper's difference."""
        paper = self.statement["paper"]
        if self._seed_variance is None or not paper:
            return None
        enough = (n for n in range(2, MAX_SEEDS + 1) if (self.detectable(n) or 0.0) <= abs(paper))
        return next(enough, None)

    def _seed_part(self, seeds: int) -> float:
        """Return the variance due to seeds, multiplied by the squared ratio of Student's t to normal quantiles."""
        freedom = self._freedom_share * (seeds - 1)
        upper = (1 + LEVEL) / 2
        widened = float(t.ppf(upper, freedom) / ndtri(upper))
        return (self._seed_variance or 0.0) / seeds * widened**2


def _variance_between_seeds(finding: Mapping[str, Any], statement: Mapping[str, Any], arm: str) -> float | None:
    """Return the variance of a metric between the seeds of an arm; 0 if untrained, None if runs do not store it."""
    if arm == UNTRAINED:
        return 0.0
    runs = next(one["runs"] for one in finding["arms"] if one["name"] == arm)
    values = [run["values"].get(statement["split"], {}).get(statement["metric"]) for run in runs]
    if len(values) < 2 or None in values:
        return None
    return float(np.var(values, ddof=1))
