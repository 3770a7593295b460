"""Verdicts on statements and claims, from intervals and corrected p-values."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import erfc, sqrt
from typing import Any, Literal

from scipy.special import ndtri

from bsc_core.evaluation.stats.bootstrap import LEVEL, Interval
from bsc_core.evaluation.stats.significance import Comparison, holm
from bsc_core.reproduction.claims import Statement

Verdict = Literal["supported", "contradicted", "ruled out", "smaller than claimed", "inconclusive"]
VERDICTS: tuple[Verdict, ...] = ("supported", "contradicted", "ruled out", "smaller than claimed", "inconclusive")
OLD_VERDICTS: dict[str, Verdict] = {
    "holds": "supported",
    "does not hold": "contradicted",
    "cannot be told": "inconclusive",
}
"""The verdicts by their names in findings of earlier versions."""
CORRELATIONS = ("spearman", "pearson", "stsb", "sick", "sts", "semantic")
"""Metrics whose smallest difference of interest is 0.005; that of every other metric is 0.01."""
POWER = 0.8
RULE = """\
A statement "A > B" is

- **supported** if the 95% interval of A - B is above 0 and p is below 0.05;
- **smaller than claimed** if it is supported and the paper's difference is above the interval;
- **contradicted** if the interval is below 0 and p is below 0.05;
- **ruled out** if none of these applies, the interval excludes the paper's difference, the entire interval is between
  minus and plus the smallest difference of interest (0.005 for correlations, 0.01 for other metrics), and the p-value
  of these two conditions is below 0.05;
- **inconclusive** otherwise.

A statement "A and B differ by at most a margin" is supported if the interval is inside the margin, and contradicted if
it is entirely outside, in both cases with a p-value below 0.05. All p-values are corrected over the statements of a
claim (Holm). Statements that the paper does not make are informational and corrected separately.

A claim is contradicted if at least one of its statements is contradicted; otherwise, it is ruled out if at least one
statement is ruled out. It is supported if all statements are supported, smaller than claimed if all are supported or
smaller than claimed, and inconclusive otherwise."""


@dataclass(frozen=True)
class JudgedStatement:
    """A statement with its result.

    Attributes:
        statement: The statement.
        comparison: `better` minus `worse`.
        p: Corrected p-value of a difference; None if it is not tested.
        p_equivalence: Corrected p-value of the conditions for `ruled out`, or of a difference within or beyond the
            margin; None if neither is tested.
        detectable: Smallest true difference that is significant with a probability of POWER; None without an interval.
        verdict: The verdict, by RULE.
    """

    statement: Statement
    comparison: Comparison
    p: float | None
    p_equivalence: float | None
    detectable: float | None
    verdict: Verdict


def judge(statements: Sequence[Statement], comparisons: Sequence[Comparison]) -> list[JudgedStatement]:
    """Return the verdict on every statement of a claim, by RULE.

    The p-values of a difference and those of equivalence are corrected separately (Holm 1979), each without the
    informational statements, which are corrected among themselves.

    Args:
        statements: The statements of the claim.
        comparisons: `better` minus `worse` of each statement.
    """
    pairs = list(zip(statements, comparisons, strict=True))
    ps = _adjusted(statements, [one.p if statement.expects == "better" else None for statement, one in pairs])
    equivalence = _adjusted(statements, [_equivalence_p(statement, one.difference) for statement, one in pairs])
    judged = []
    for index, (statement, comparison) in enumerate(pairs):
        tests = sum(
            p is not None and one.informational == statement.informational
            for one, p in zip(statements, ps, strict=True)
        )
        detectable = smallest_detectable(standard_error(comparison.difference), tests)
        verdict = _verdict(statement, comparison, ps[index], equivalence[index])
        judged.append(JudgedStatement(statement, comparison, ps[index], equivalence[index], detectable, verdict))
    return judged


def rejudge(statements: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the statements of a finding with verdicts from their stored differences, intervals and p-values."""
    fields = Statement.model_fields
    known = [Statement.model_validate({key: one[key] for key in fields if key in one}) for one in statements]
    comparisons = [
        Comparison(Interval(one["difference"], one["low"], one["high"]), one["p"], one["queries"], one["method"])
        for one in statements
    ]
    return [{**one, **judged_values(result)} for one, result in zip(statements, judge(known, comparisons), strict=True)]


def judged_values(judged: JudgedStatement) -> dict[str, Any]:
    """Return the values of a judged statement that a finding stores in addition to its comparison."""
    return {
        "smallest_difference": smallest_difference(judged.statement),
        "detectable": judged.detectable,
        "p_holm": judged.p,
        "p_equivalence": judged.p_equivalence,
        "verdict": judged.verdict,
    }


def smallest_difference(statement: Statement) -> float:
    """Return the smallest difference of interest of a statement; if it sets none, that of its metric."""
    if statement.smallest_difference is not None:
        return statement.smallest_difference
    return 0.005 if statement.metric in CORRELATIONS else 0.01


def standard_error(difference: Interval) -> float | None:
    """Return the standard error of an approximately normal difference; None without an interval."""
    if difference.low is None or difference.high is None:
        return None
    return (difference.high - difference.low) / (2 * float(ndtri((1 + difference.level) / 2)))


def smallest_detectable(error: float | None, tests: int = 1) -> float | None:
    """Return the smallest true difference that is significant with a probability of POWER.

    It is (z(1 - alpha / 2) + z(POWER)) * error, where alpha is (1 - LEVEL) / tests, the strictest step of Holm's
    correction.

    Args:
        error: Standard error of the difference; None if it is unknown, as is the result then.
        tests: Number of tests that are corrected together.
    """
    if error is None:
        return None
    return error * float(ndtri(1 - (1 - LEVEL) / max(1, tests) / 2) + ndtri(POWER))


def _adjusted(statements: Sequence[Statement], values: Sequence[float | None]) -> list[float | None]:
    adjusted: dict[int, float] = {}
    for informational in (False, True):
        tested = {
            index: p
            for index, (statement, p) in enumerate(zip(statements, values, strict=True))
            if p is not None and statement.informational == informational
        }
        adjusted |= zip(tested, holm(list(tested.values())), strict=True)
    return [adjusted.get(index) for index in range(len(values))]


def _equivalence_p(statement: Statement, difference: Interval) -> float | None:
    """Return the p-value of equivalence; None if it is not tested.

    It is below 0.05 exactly if the interval meets the condition. Two one-sided tests (Schuirmann 1987), with p-values
    doubled to match the two-sided interval.
    """
    if statement.expects == "same" and statement.margin is not None:
        bound = statement.margin
        inside = max(_tail(difference, -bound, "above"), _tail(difference, bound, "below"))
        outside = min(_tail(difference, bound, "above"), _tail(difference, -bound, "below"))
        return None if difference.low is None else min(inside, outside)
    if statement.expects == "same" or statement.paper is None or difference.low is None:
        return None
    bound = smallest_difference(statement)
    side: Literal["above", "below"] = "below" if difference.value < statement.paper else "above"
    return max(
        _tail(difference, -bound, "above"),
        _tail(difference, bound, "below"),
        _tail(difference, statement.paper, side),
    )


def _tail(difference: Interval, bound: float, side: Literal["above", "below"]) -> float:
    """Return twice the one-sided p-value of the hypothesis that the difference is not above, or not below, a bound.

    The standard error is estimated from the half of the interval on the side of the bound.
    """
    if difference.low is None or difference.high is None:
        return 1.0
    gap = difference.value - bound if side == "above" else bound - difference.value
    half = difference.value - difference.low if side == "above" else difference.high - difference.value
    if half <= 0:
        return 0.0 if gap >= 0 else 1.0
    z = gap / half * float(ndtri((1 + difference.level) / 2))
    return min(1.0, erfc(z / sqrt(2)))


def _verdict(statement: Statement, comparison: Comparison, p: float | None, p_equivalence: float | None) -> Verdict:
    difference, alpha = comparison.difference, 1 - LEVEL
    equivalent = p_equivalence is not None and p_equivalence < alpha
    if difference.low is None or difference.high is None:
        return "inconclusive"
    if statement.expects == "better":
        if p is not None and p < alpha and not difference.contains_zero:
            if difference.value < 0:
                return "contradicted"
            smaller = statement.paper is not None and statement.paper > difference.high
            return "smaller than claimed" if smaller else "supported"
        return "ruled out" if equivalent else "inconclusive"
    if not equivalent or statement.margin is None:
        return "inconclusive"
    return "supported" if abs(difference.value) <= statement.margin else "contradicted"


def claim_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a claim from those on its statements; inconclusive without any."""
    present = set(verdicts)
    if "contradicted" in present:
        return "contradicted"
    if "ruled out" in present:
        return "ruled out"
    if not present or "inconclusive" in present:
        return "inconclusive"
    return "smaller than claimed" if "smaller than claimed" in present else "supported"


def summarize_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Return a sentence with the number of statements of each verdict."""
    if not verdicts:
        return "No statement was tested."
    counts = Counter(verdicts)
    noun = "statement" if len(verdicts) == 1 else "statements"
    return f"Of {len(verdicts)} {noun}, {', '.join(f'{counts[name]} {name}' for name in VERDICTS if counts[name])}."
