"""From comparisons to verdicts."""

import pytest

from bsc_core.evaluation import Comparison, Interval
from bsc_core.recipes.claims import Statement
from bsc_core.recipes.verdicts import claim_verdict, judge, reason


def found(difference: float, low: float | None, high: float | None, p: float | None) -> Comparison:
    return Comparison(Interval(difference, low, high), p, 100, "made up")


BETTER = Statement("new", "old", "mrr")
SAME = Statement("new", "old", "mrr", expects="same", margin=0.01)


@pytest.mark.parametrize(
    ("statement", "comparison", "verdict"),
    [
        (BETTER, found(0.05, 0.02, 0.08, 0.001), "holds"),
        (BETTER, found(-0.05, -0.08, -0.02, 0.001), "does not hold"),
        (BETTER, found(0.05, -0.01, 0.11, 0.1), "cannot be told"),
        (BETTER, found(0.05, 0.001, 0.11, 0.06), "cannot be told"),
        (BETTER, found(0.05, -0.001, 0.11, 0.01), "cannot be told"),
        (BETTER, found(0.0, None, None, None), "cannot be told"),
        (SAME, found(0.002, -0.005, 0.009, 0.4), "holds"),
        (SAME, found(0.004, 0.001, 0.009, 0.001), "holds"),
        (SAME, found(0.05, 0.02, 0.08, 0.001), "does not hold"),
        (SAME, found(-0.05, -0.08, -0.02, 0.001), "does not hold"),
        (SAME, found(0.002, -0.02, 0.02, 0.8), "cannot be told"),
        (SAME, found(0.0, None, None, None), "cannot be told"),
    ],
)
def test_a_statement_is_judged_by_its_interval_and_its_p(
    statement: Statement, comparison: Comparison, verdict: str
) -> None:
    assert judge([statement], [comparison])[0].verdict == verdict


def test_statements_of_one_claim_are_corrected_together() -> None:
    clear, weak = found(0.05, 0.02, 0.08, 0.001), found(0.05, 0.01, 0.08, 0.03)
    assert judge([BETTER], [weak])[0].verdict == "holds"
    both = judge([BETTER, BETTER], [weak, weak])
    assert [one.p for one in both] == [0.06, 0.06]
    assert [one.verdict for one in both] == ["cannot be told", "cannot be told"]
    assert [one.p for one in judge([BETTER, BETTER], [weak, clear])] == pytest.approx([0.03, 0.002])


def test_statements_of_sameness_and_untested_ones_do_not_weigh_on_the_correction() -> None:
    weak, untested = found(0.05, 0.01, 0.08, 0.03), found(0.0, None, None, None)
    judged = judge([SAME, BETTER, BETTER], [found(0.002, -0.005, 0.009, 0.4), weak, untested])
    assert [one.p for one in judged] == [None, 0.03, None]


def test_what_stands_beside_a_claim_is_corrected_on_its_own() -> None:
    weak, beside = found(0.05, 0.01, 0.08, 0.03), Statement("new", "old", "map", beside=True)
    assert [one.p for one in judge([BETTER, beside], [weak, weak])] == [0.03, 0.03]
    assert [one.p for one in judge([beside, BETTER, beside], [weak, weak, weak])] == [0.06, 0.03, 0.06]


def test_a_claim_holds_where_all_its_statements_hold_and_falls_with_one_of_them() -> None:
    assert claim_verdict(["holds", "holds"]) == "holds"
    assert claim_verdict(["holds", "cannot be told"]) == "cannot be told"
    assert claim_verdict(["holds", "cannot be told", "does not hold"]) == "does not hold"
    assert claim_verdict([]) == "cannot be told"


def test_the_reason_counts_the_statements() -> None:
    told = reason(["holds", "cannot be told", "holds", "does not hold"])
    assert told == "Of 4 statements, 2 hold, 1 does not hold, 1 cannot be told."
    assert reason([]) == "No statement was tested."
