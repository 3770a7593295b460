"""Verdicts on statements and claims."""

import pytest

from bsc_core.evaluation import Comparison, Interval
from bsc_core.reproduction.claims import Statement
from bsc_core.reproduction.verdicts import claim_verdict, judge, summarize_verdicts


def compared(difference: float, low: float | None, high: float | None, p: float | None) -> Comparison:
    return Comparison(Interval(difference, low, high), p, 100, "bootstrap")


BETTER = Statement(better="new", worse="old", metric="mrr")
SAME = Statement(better="new", worse="old", metric="mrr", expects="same", margin=0.01)


@pytest.mark.parametrize(
    ("statement", "comparison", "verdict"),
    [
        (BETTER, compared(0.05, 0.02, 0.08, 0.001), "supported"),
        (BETTER, compared(-0.05, -0.08, -0.02, 0.001), "contradicted"),
        (BETTER, compared(0.05, -0.01, 0.11, 0.1), "inconclusive"),
        (BETTER, compared(0.05, 0.001, 0.11, 0.06), "inconclusive"),
        (BETTER, compared(0.05, -0.001, 0.11, 0.01), "inconclusive"),
        (BETTER, compared(0.0, None, None, None), "inconclusive"),
        (SAME, compared(0.002, -0.005, 0.009, 0.4), "supported"),
        (SAME, compared(0.004, 0.001, 0.009, 0.001), "supported"),
        (SAME, compared(0.05, 0.02, 0.08, 0.001), "contradicted"),
        (SAME, compared(-0.05, -0.08, -0.02, 0.001), "contradicted"),
        (SAME, compared(0.002, -0.02, 0.02, 0.8), "inconclusive"),
        (SAME, compared(0.0, None, None, None), "inconclusive"),
    ],
)
def test_a_statement_is_judged_by_its_interval_and_its_p(
    statement: Statement, comparison: Comparison, verdict: str
) -> None:
    assert judge([statement], [comparison])[0].verdict == verdict


def test_statements_of_one_claim_are_corrected_together() -> None:
    clear, weak = compared(0.05, 0.02, 0.08, 0.001), compared(0.05, 0.01, 0.08, 0.03)
    assert judge([BETTER], [weak])[0].verdict == "supported"
    both = judge([BETTER, BETTER], [weak, weak])
    assert [one.p for one in both] == [0.06, 0.06]
    assert [one.verdict for one in both] == ["inconclusive", "inconclusive"]
    assert [one.p for one in judge([BETTER, BETTER], [weak, clear])] == pytest.approx([0.03, 0.002])


def test_statements_of_equality_and_untested_ones_do_not_count_in_the_correction() -> None:
    weak, untested = compared(0.05, 0.01, 0.08, 0.03), compared(0.0, None, None, None)
    judged = judge([SAME, BETTER, BETTER], [compared(0.002, -0.005, 0.009, 0.4), weak, untested])
    assert [one.p for one in judged] == [None, 0.03, None]


def test_informational_statements_are_corrected_separately() -> None:
    weak = compared(0.05, 0.01, 0.08, 0.03)
    other = Statement(better="new", worse="old", metric="map", informational=True)
    assert [one.p for one in judge([BETTER, other], [weak, weak])] == [0.03, 0.03]
    assert [one.p for one in judge([other, BETTER, other], [weak, weak, weak])] == [0.06, 0.03, 0.06]


def test_a_claim_is_supported_by_all_its_statements_and_contradicted_by_one() -> None:
    assert claim_verdict(["supported", "supported"]) == "supported"
    assert claim_verdict(["supported", "inconclusive"]) == "inconclusive"
    assert claim_verdict(["supported", "inconclusive", "contradicted"]) == "contradicted"
    assert claim_verdict([]) == "inconclusive"


def test_the_summary_counts_the_statements() -> None:
    summary = summarize_verdicts(["supported", "inconclusive", "supported", "contradicted"])
    assert summary == "Of 4 statements, 2 supported, 1 contradicted, 1 inconclusive."
    assert summarize_verdicts([]) == "No statement was tested."
