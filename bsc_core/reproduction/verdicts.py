"""Verdicts on statements and claims: supported, contradicted or inconclusive."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bsc_core.evaluation.stats.bootstrap import LEVEL
from bsc_core.evaluation.stats.significance import Comparison, holm
from bsc_core.reproduction.claims import Statement

Verdict = Literal["supported", "contradicted", "inconclusive"]
VERDICTS: tuple[Verdict, ...] = ("supported", "contradicted", "inconclusive")
OLD_VERDICTS = dict(zip(("holds", "does not hold", "cannot be told"), VERDICTS, strict=True))
"""The verdicts by their names in findings of earlier versions."""
RULE = (
    "A > B: supported if the 95% interval of A - B is above 0 and p, after Holm's correction over the statements of "
    "the claim, is below 0.05; contradicted if the interval is below 0 and p is below 0.05. A and B differ by at most "
    "a margin: supported if the interval of A - B is inside the margin; contradicted if it is entirely outside. "
    "Otherwise, a statement is inconclusive. A claim is supported if all its statements are, and contradicted if at "
    "least one is. Informational statements, which the paper does not make, are corrected separately and do not count."
)


@dataclass(frozen=True)
class JudgedStatement:
    """A statement with its result. comparison: better minus worse; p: adjusted, None where nothing is tested."""

    statement: Statement
    comparison: Comparison
    p: float | None
    verdict: Verdict


def judge(statements: Sequence[Statement], comparisons: Sequence[Comparison]) -> list[JudgedStatement]:
    """Return the verdict on every statement of a claim, by RULE.

    The p-values of the statements that expect a difference are corrected together (Holm 1979), those of informational
    statements separately. comparisons: `better` minus `worse`, one for each statement.
    """
    pairs = list(zip(statements, comparisons, strict=True))
    adjusted: dict[int, float] = {}
    for informational in (False, True):
        tested = {
            index: comparison.p
            for index, (statement, comparison) in enumerate(pairs)
            if statement.expects == "better" and comparison.p is not None and statement.informational == informational
        }
        adjusted |= zip(tested, holm(list(tested.values())), strict=True)
    ps = [adjusted.get(index) for index in range(len(pairs))]
    return [JudgedStatement(*pair, p, _verdict(*pair, p)) for pair, p in zip(pairs, ps, strict=True)]


def _verdict(statement: Statement, comparison: Comparison, p: float | None) -> Verdict:
    difference, margin = comparison.difference, statement.margin
    if statement.expects == "better":
        if p is None or p >= 1 - LEVEL or difference.contains_zero:
            return "inconclusive"
        return "supported" if difference.value > 0 else "contradicted"
    if margin is None or difference.low is None or difference.high is None:
        return "inconclusive"
    if -margin <= difference.low and difference.high <= margin:
        return "supported"
    return "contradicted" if difference.low > margin or difference.high < -margin else "inconclusive"


def claim_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the verdict on a claim from those on its statements; inconclusive without any."""
    if "contradicted" in verdicts:
        return "contradicted"
    return "supported" if set(verdicts) == {"supported"} else "inconclusive"


def summarize_verdicts(verdicts: Sequence[Verdict]) -> str:
    """Return a sentence with the number of statements of each verdict."""
    if not verdicts:
        return "No statement was tested."
    counts = Counter(verdicts)
    noun = "statement" if len(verdicts) == 1 else "statements"
    return f"Of {len(verdicts)} {noun}, {', '.join(f'{counts[name]} {name}' for name in VERDICTS if counts[name])}."
