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
    "A statement that one setting is better is supported if the 95% interval of the difference is above 0 and p is "
    "below 0.05 after Holm's correction over the statements of the claim; it is contradicted if the same is true of "
    "the opposite. A statement that two settings are the same within a margin is supported if the whole interval is "
    "within the margin, and contradicted if it is outside. Anything else is inconclusive in these runs. A claim is "
    "supported if all its statements are, and contradicted if one of them is. Informational statements, which the "
    "paper does not make, are corrected separately and have no part in the verdict."
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
