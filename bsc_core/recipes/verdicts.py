"""From comparisons to verdicts: holds, does not hold, or cannot be told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bsc_core.evaluation.bootstrap import LEVEL
from bsc_core.evaluation.significance import Comparison, holm
from bsc_core.recipes.claims import Statement

Verdict = Literal["holds", "does not hold", "cannot be told"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
OPEN: Verdict = "cannot be told"
RULE = (
    "A statement that one setting is better holds where the difference has an interval of 95% above 0 and p below 0.05 "
    "after Holm's correction over the claim's statements; it does not hold where the same is true of the opposite. A "
    "statement that two settings are the same within a margin holds where the whole interval lies within the margin, "
    "and does not hold where it lies outside. Anything else cannot be told from these runs. A claim holds where all "
    "its statements hold, and does not hold where one of them does not. What stands beside the claim, since the paper "
    "does not say it, is corrected on its own and has no part in the verdict."
)


@dataclass(frozen=True)
class Judged:
    """A statement beside what was found. comparison: better minus worse; p: adjusted, None where nothing is tested."""

    statement: Statement
    comparison: Comparison
    p: float | None
    verdict: Verdict


def judge(statements: Sequence[Statement], comparisons: Sequence[Comparison]) -> list[Judged]:
    """The verdict of every statement, by RULE. comparisons: what `better` has over `worse`, one for each statement.

    The p-values of the statements that expect a difference are corrected together (Holm 1979), those beside the claim
    on their own.
    """
    adjusted: dict[int, float] = {}
    for beside in (False, True):
        tested = [
            place
            for place, (statement, found) in enumerate(zip(statements, comparisons, strict=True))
            if statement.expects == "better" and found.p is not None and statement.beside == beside
        ]
        adjusted |= zip(tested, holm([comparisons[place].p or 0.0 for place in tested]), strict=True)
    judged = []
    for place, (statement, found) in enumerate(zip(statements, comparisons, strict=True)):
        p = adjusted.get(place)
        verdict = _same(found, statement.margin) if statement.expects == "same" else _better(found, p)
        judged.append(Judged(statement, found, p, verdict))
    return judged


def claim_verdict(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict of a claim from those of its statements; cannot be told without any."""
    if FAILS in verdicts:
        return FAILS
    return HOLDS if verdicts and set(verdicts) == {HOLDS} else OPEN


def reason(verdicts: Sequence[Verdict]) -> str:
    """How many of the statements came out which way, as a sentence."""
    counts = Counter(verdicts)
    parts = [f"{counts[name]} {words[counts[name] > 1]}" for name, words in _COUNTED.items() if counts[name]]
    noun = "statement" if len(verdicts) == 1 else "statements"
    return f"Of {len(verdicts)} {noun}, {', '.join(parts)}." if verdicts else "No statement was tested."


_COUNTED: dict[Verdict, tuple[str, str]] = {
    HOLDS: ("holds", "hold"),
    FAILS: ("does not hold", "do not hold"),
    OPEN: ("cannot be told", "cannot be told"),
}


def _better(found: Comparison, p: float | None) -> Verdict:
    if p is None or p >= 1 - LEVEL or found.difference.holds_zero:
        return OPEN
    return HOLDS if found.difference.value > 0 else FAILS


def _same(found: Comparison, margin: float | None) -> Verdict:
    low, high = found.difference.low, found.difference.high
    if margin is None or low is None or high is None:
        return OPEN
    if -margin <= low and high <= margin:
        return HOLDS
    return FAILS if low > margin or high < -margin else OPEN
