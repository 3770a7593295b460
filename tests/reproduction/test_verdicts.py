"""Verdicts on statements and claims."""

import json

import numpy as np
import pytest

from bsc_core.evaluation import Comparison, Interval, compare
from bsc_core.reproduction.claims import Statement
from bsc_core.reproduction.verdicts import (
    Verdict,
    claim_verdict,
    judge,
    judged_values,
    rejudge,
    smallest_detectable,
    summarize_verdicts,
)


def compared(difference: float, low: float | None, high: float | None, p: float | None) -> Comparison:
    return Comparison(Interval(difference, low, high), p, 100, "bootstrap")


BETTER = Statement(better="new", worse="old", metric="mrr")
PAPER = Statement(better="new", worse="old", metric="mrr", paper=0.05)
CORRELATION = Statement(better="new", worse="old", metric="spearman", paper=0.05)
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
        (PAPER, compared(0.05, 0.02, 0.08, 0.001), "supported"),
        (PAPER, compared(0.08, 0.06, 0.1, 0.001), "supported"),
        (PAPER, compared(0.02, 0.01, 0.03, 0.001), "smaller than claimed"),
        (PAPER, compared(0.004, 0.001, 0.007, 0.001), "smaller than claimed"),
        (PAPER, compared(-0.05, -0.08, -0.02, 0.001), "contradicted"),
        (PAPER, compared(0.001, -0.006, 0.008, 0.7), "ruled out"),
        (CORRELATION, compared(0.001, -0.006, 0.008, 0.7), "inconclusive"),
        (CORRELATION, compared(0.001, -0.002, 0.004, 0.7), "ruled out"),
        (BETTER, compared(0.001, -0.006, 0.008, 0.7), "inconclusive"),
        (PAPER.model_copy(update={"paper": 0.005}), compared(0.001, -0.006, 0.008, 0.7), "inconclusive"),
        (PAPER.model_copy(update={"smallest_difference": 0.005}), compared(0.001, -0.006, 0.008, 0.7), "inconclusive"),
        (PAPER, compared(0.001, -0.02, 0.022, 0.7), "inconclusive"),
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
    assert [one.detectable is None for one in judged] == [False, False, True]


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


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["supported", "smaller than claimed"], "smaller than claimed"),
        (["supported", "smaller than claimed", "inconclusive"], "inconclusive"),
        (["supported", "inconclusive", "ruled out"], "ruled out"),
        (["contradicted", "ruled out"], "contradicted"),
    ],
)
def test_a_claim_is_ruled_out_by_one_statement_and_smaller_if_the_others_are_supported(
    verdicts: list[Verdict], expected: str
) -> None:
    assert claim_verdict(verdicts) == expected


def test_the_summary_counts_the_statements() -> None:
    summary = summarize_verdicts(["supported", "inconclusive", "supported", "contradicted"])
    assert summary == "Of 4 statements, 2 supported, 1 contradicted, 1 inconclusive."
    assert summarize_verdicts([]) == "No statement was tested."


def test_the_conditions_for_ruled_out_are_corrected_together() -> None:
    weak, clear = compared(0.0, -0.0095, 0.0095, 1.0), compared(0.0, -0.002, 0.002, 1.0)
    assert judge([PAPER], [weak])[0].verdict == "ruled out"
    judged = judge([PAPER, PAPER], [weak, weak])
    assert [one.verdict for one in judged] == ["inconclusive", "inconclusive"]
    assert [one.p_equivalence for one in judged] == pytest.approx([2 * 0.0391] * 2, abs=0.001)
    assert [one.verdict for one in judge([PAPER, PAPER], [weak, clear])] == ["ruled out", "ruled out"]


def test_statements_of_a_finding_are_judged_again_from_their_stored_values() -> None:
    statements, comparisons = [PAPER, SAME], [compared(0.02, 0.01, 0.03, 0.001), compared(0.002, -0.003, 0.007, 0.4)]
    judged = judge(statements, comparisons)
    stored = [
        {
            **statement.model_dump(exclude={"smallest_difference"}),
            **{"difference": one.difference.value, "low": one.difference.low, "high": one.difference.high},
            **{"p": one.p, "queries": one.queries, "method": one.method, "verdict": "supported"},
        }
        for statement, one in zip(statements, comparisons, strict=True)
    ]
    again = rejudge(json.loads(json.dumps(stored)))
    assert again == [{**one, **judged_values(result)} for one, result in zip(stored, judged, strict=True)]
    assert [one["verdict"] for one in again] == ["smaller than claimed", "supported"]
    assert [one["smallest_difference"] for one in again] == [0.01, 0.01]


STATEMENTS = 3
SIMULATIONS = 400


def simulated_claims(effect: float, paper: float, *, spread: float = 0.04, queries: int = 150) -> list[set[str]]:
    """Return the verdicts of claims with three statements of one true effect, on simulated queries."""
    generator = np.random.default_rng(5)
    statements = [Statement(better="new", worse="old", metric="map", paper=paper)] * STATEMENTS
    verdicts = []
    for seed in range(SIMULATIONS):
        gains = generator.normal(effect, spread, (STATEMENTS, queries))
        comparisons = [compare(np.zeros(queries), gain, seed=seed, n_resamples=400) for gain in gains]
        verdicts.append({one.verdict for one in judge(statements, comparisons)})
    return verdicts


def rate(verdicts: list[set[str]], *names: str) -> float:
    return float(np.mean([bool(one & set(names)) for one in verdicts]))


def test_at_most_5_percent_of_claims_without_an_effect_have_a_supported_statement() -> None:
    verdicts = simulated_claims(0.0, 0.02)
    assert rate(verdicts, "supported", "smaller than claimed") <= 0.05
    assert rate(verdicts, "contradicted") <= 0.05
    assert rate(verdicts, "ruled out") > 0.5  # the rule decides


@pytest.mark.parametrize("effect", [0.01, -0.01, 0.015])
def test_at_most_5_percent_of_claims_with_an_effect_of_interest_have_a_statement_ruled_out(effect: float) -> None:
    assert rate(simulated_claims(effect, 0.02, spread=0.05), "ruled out") <= 0.05


def test_at_most_5_percent_of_claims_with_the_effect_of_the_paper_have_a_statement_ruled_out() -> None:
    assert rate(simulated_claims(0.006, 0.006, spread=0.02), "ruled out") <= 0.05


def test_the_detectable_difference_is_significant_with_80_percent_power() -> None:
    error = 0.05 / 150**0.5
    detectable = smallest_detectable(error, STATEMENTS)
    assert detectable is not None
    assert detectable == pytest.approx(error * (2.394 + 0.8416), rel=1e-3)
    generator = np.random.default_rng(2)
    statements = [Statement(better="new", worse="old", metric="map")] * STATEMENTS
    effects = np.array([detectable, 0.0, 0.0])  # without other effects, Holm's first step decides
    found = 0
    for seed in range(SIMULATIONS):
        gains = generator.normal(effects[:, None], 0.05, (STATEMENTS, 150))
        judged = judge(statements, [compare(np.zeros(150), gain, seed=seed, n_resamples=800) for gain in gains])
        found += judged[0].verdict == "supported"
    assert found / SIMULATIONS == pytest.approx(0.8, abs=0.06)
    assert smallest_detectable(None) is None
