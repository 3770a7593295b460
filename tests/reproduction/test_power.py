"""Planned power: predicted detectable differences against those of more seeds, on simulated runs."""

from typing import Any

import numpy as np
import pytest

from bsc_core.cli import main
from bsc_core.errors import InputError
from bsc_core.evaluation import compare_seeds
from bsc_core.reproduction.claims import UNTRAINED, Statement
from bsc_core.reproduction.findings import add_predictions, read_findings
from bsc_core.reproduction.power import MAX_SEEDS, plan_lines, plan_power
from bsc_core.reproduction.verdicts import judge, judged_values
from bsc_core.runs import RunStore
from bsc_core.types import Numbers

QUERIES, SEEDS = 100, 12
STATEMENT = Statement(better="new", worse="old", metric="map", paper=0.02)


def simulated_tables(seed: int) -> tuple[Numbers, Numbers]:
    """Return the values (SEEDS, QUERIES) of two settings with effects of query, of seed and of both together."""
    generator = np.random.default_rng(seed)
    gains = generator.normal(0.0, 0.05, QUERIES)
    tables = [
        generator.normal(0.0, 0.006, (SEEDS, 1)) + generator.normal(0.0, 0.03, (SEEDS, QUERIES)) + shared
        for shared in (0.0, gains)
    ]
    return tables[0], tables[1]


def simulated_finding(seed: int, seeds: int, statement: Statement = STATEMENT) -> dict[str, Any]:
    tables = [table[:seeds] for table in simulated_tables(seed)]
    comparison = compare_seeds(*tables, seed=0, n_resamples=2000)
    arms = [
        {"name": name, "runs": [{"values": {"test": {"map": float(one.mean())}}} for one in table]}
        for name, table in zip(("old", "new"), tables, strict=True)
    ]
    row = {
        **statement.model_dump(),
        **{"text": "new > old", "queries": QUERIES, "difference": comparison.difference.value, "p": comparison.p},
        **{"low": comparison.difference.low, "high": comparison.difference.high},
        **judged_values(judge([statement], [comparison])[0]),
    }
    return {
        **{"name": "simulated", "seconds": 60.0 * seeds, "seeds": list(range(seeds)), "data": []},
        **{"arms": [{"name": UNTRAINED, "runs": []}, *arms], "statements": [row]},
    }


def test_the_predicted_detectable_difference_is_within_10_percent_of_that_of_more_seeds() -> None:
    ratios, pilots = [], []
    for seed in range(30):
        pilot, later = simulated_finding(seed, 5), simulated_finding(seed, SEEDS)
        add_predictions(later, pilot)
        ratios.append(later["statements"][0]["planned"] / later["statements"][0]["detectable"])
        pilots.append(pilot["statements"][0]["detectable"] / later["statements"][0]["detectable"])
    assert np.median(ratios) == pytest.approx(1, abs=0.1)
    assert np.mean(np.abs(np.subtract(ratios, 1)) <= 0.1) >= 0.7
    assert np.median(pilots) > 1.1  # the pilot itself is no such prediction


def test_a_plan_for_the_stored_seeds_equals_the_stored_differences() -> None:
    finding = simulated_finding(1, 5)
    one = plan_power(finding, 5)["statements"][0]
    assert one["planned"] == pytest.approx(one["detectable"])
    add_predictions(finding, finding)
    assert finding["statements"][0]["planned"] is None  # nothing to predict


def test_the_plan_chooses_the_seeds_that_detect_the_difference_of_the_paper() -> None:
    finding = simulated_finding(2, 4)
    row = finding["statements"][0]
    limits = [plan_power(finding, seeds)["statements"][0]["planned"] for seeds in (6, 7)]
    row["paper"] = sum(limits) / 2
    plan = plan_power(finding)
    assert plan["seeds"] == plan["statements"][0]["needed_seeds"] == 7
    assert (plan["runs"], plan["seconds"], plan["more_seconds"]) == (14, 420.0, 180.0)
    row["paper"] = 0.9 * plan["statements"][0]["limit"]
    plan = plan_power(finding)
    assert (plan["seeds"], plan["statements"][0]["needed_seeds"]) == (4, None)
    assert f"more than {MAX_SEEDS} seeds or more rows needed" in list(plan_lines(plan))[1]


def test_a_metric_that_the_runs_do_not_store_is_not_predicted() -> None:
    finding = simulated_finding(3, 5)
    finding["arms"][1]["runs"][0]["values"] = {}
    plan = plan_power(finding, 9)
    assert (plan["statements"][0]["planned"], plan["statements"][0]["needed_seeds"]) == (None, None)
    assert "no prediction" in list(plan_lines(plan))[1]


def test_the_command_plans_without_training(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, store: RunStore
) -> None:
    assert main(["reproduce", "combined_cqa_b", "--plan", "--seeds", "10", "--runs", str(store.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    finding = read_findings()["combined_cqa_b"]
    assert lines[0].startswith("combined_cqa_b: 10 seeds, 40 runs, ")
    assert len(lines) == 1 + len(finding["statements"])
    monkeypatch.setattr("bsc_core.reproduction.findings.stored_finding", lambda name, runs: None)
    assert main(["reproduce", "combined_cqa_b", "--plan", "--runs", str(store.root)]) == 2
    assert "claim combined_cqa_b has no finding of the full form" in capsys.readouterr().err


def test_a_plan_needs_two_seeds() -> None:
    with pytest.raises(InputError, match="has 1 seed; a plan needs"):
        plan_power(simulated_finding(1, 5) | {"seeds": [0]})
    with pytest.raises(InputError, match="--seeds is 1"):
        plan_power(simulated_finding(1, 5), 1)
