"""Findings: every recipe has a card, a finding shows its verdict and numbers, and a test starts a process once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.jobs import reproductions
from bsc_core.recipes.catalogue import RECIPES
from bsc_core.recipes.findings import read_findings, write_finding
from bsc_core.recipes.progress import lock_file
from bsc_core.runs import RunStore

NAME = "mu_stsb"


def statement(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "words": "mu 0.5 and mu 0.1 differ by at most 0.004",
        "better": "a",
        "worse": "b",
        "metric": "spearman",
        "split": "test",
        "expects": "better",
        "margin": None,
        "paper": None,
        "difference": -0.0123,
        "low": -0.02,
        "high": -0.004,
        "p": 0.002,
        "p_holm": 0.004,
        "queries": 1379,
        "wins": None,
        "losses": None,
        "ties": None,
        "method": "2,000 draws",
        "verdict": "does not hold",
        "sentence": "the test's own sentence",
    }
    return values | changes


def arm(name: str, value: float | None) -> dict[str, Any]:
    return {
        "name": name,
        "title": f"Arm {name}",
        "data": "stsb",
        "settings": {"loss.mu": 0.1},
        "runs": [{"run": f"run-{name}", "seed": 0, "seconds": 3.0, "steps": 120, "values": {}}],
        "metrics": {"test": {"spearman": {"value": value, "low": None, "high": None}}},
    }


@pytest.fixture
def finding(runs: RunStore) -> dict[str, Any]:
    """A finding that this runs folder holds, as `bsc reproduce` leaves it."""
    recipe = RECIPES[NAME]
    found = {
        **{key: getattr(recipe, key) for key in ("name", "title", "paper", "table", "claim", "budget", "note")},
        "citation": "a paper",
        "form": "full",
        "verdict": "does not hold",
        "reason": "Of 1 statement, 1 do not hold.",
        "date": "2026-01-01",
        "command": f"bsc reproduce {NAME} --data DATA",
        "device": "cpu",
        "precision": "fp32",
        "seconds": 372.0,
        "seeds": [0, 1, 2],
        "data": [{"name": "stsb", "folder": "stsb", "rows": {"train": 1500, "queries_train": 1400, "test": 1379}}],
        "arms": [arm("a", 0.81234), arm("b", None)],
        "statements": [statement()],
    }
    write_finding(found, runs.root / "findings")
    return found


def told(app: AppTest) -> str:
    return "\n".join(str(element.value) for kind in ("caption", "markdown", "text") for element in app.get(kind))


def test_every_recipe_has_a_card_with_its_claim(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("findings")
    assert not app.exception
    assert {heading.value for heading in app.subheader} == {recipe.title for recipe in RECIPES.values()}
    assert len(app.subheader) == len(RECIPES)
    assert all(recipe.claim in told(app) for recipe in RECIPES.values())


def test_the_verdicts_that_come_with_the_app_are_those_of_its_files(pages: type, runs: RunStore) -> None:
    app = pages.alone("findings")
    for found in read_findings().values():
        assert found["reason"] in told(app)
    assert app.get("vega_lite_chart") or not read_findings()


def test_a_finding_of_this_runs_folder_comes_before_the_packaged_one(pages: type, finding: dict[str, Any]) -> None:
    app = pages.alone("findings")
    assert finding["reason"] in told(app)
    app.pills(key="findings.verdict").set_value(["does not hold"]).run()
    assert RECIPES[NAME].title in [heading.value for heading in app.subheader]


def test_a_paper_is_chosen_and_the_others_go(pages: type, runs: RunStore) -> None:
    app = pages.alone("findings")
    app.segmented_control(key="findings.paper").set_value("scl").run()
    wanted = [recipe.title for recipe in RECIPES.values() if recipe.paper == "scl"]
    assert sorted(heading.value for heading in app.subheader) == sorted(wanted)


def test_the_tables_say_what_is_not_defined_and_the_true_minus_sign(finding: dict[str, Any]) -> None:
    from pages.ui import finding_cards

    arms = finding_cards.arms_table(finding)
    assert arms["spearman, test"].tolist() == ["0.812", "not defined: not for these data"]
    assert arms["Steps"].tolist() == ["120", "120"]
    tests = finding_cards.tests_table(finding)
    assert tests["Difference"].tolist() == ["\N{MINUS SIGN}0.012"]
    assert tests["Verdict"].tolist() == ["does not hold"]


def test_the_papers_own_difference_is_marked_where_the_interval_rules_it_out(finding: dict[str, Any]) -> None:
    from pages.ui import finding_cards

    statements = [statement(paper=paper) for paper in (None, -0.01, 0.02)]
    told = finding_cards.tests_table(finding | {"statements": statements})["In the paper"].tolist()
    assert told == ["", "\N{MINUS SIGN}0.010", "+0.020, outside the interval"]


def test_run_this_again_starts_the_command_once(pages: type, runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(reproductions, "start_reproduction", lambda *given: started.append(given))
    app = pages.alone("findings")
    app.button(key=f"findings.again.{NAME}").click().run()
    assert app.button(key=f"findings.run.{NAME}").disabled  # in full it needs the data sets
    app.segmented_control(key=f"findings.form.{NAME}").set_value("small").run()
    app.button(key=f"findings.run.{NAME}").click().run()
    assert [given[1:] for given in started] == [(NAME, "small", None)]


def test_a_folder_without_the_data_sets_is_refused_before_anything_starts(
    pages: type, runs: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(reproductions, "start_reproduction", lambda *given: started.append(given))
    app = pages.alone("findings")
    app.button(key=f"findings.again.{NAME}").click().run()
    for folder in (tmp_path, tmp_path / "nowhere"):
        app.text_input(key="findings.data").input(str(folder)).run()
        app.button(key=f"findings.run.{NAME}").click().run()
        assert not app.exception
        assert str(folder) in told(app)
    assert "--data" not in told(app)
    assert started == []


def test_one_that_failed_says_why_and_one_that_goes_on_says_how_far(pages: type, runs: RunStore) -> None:
    from filelock import FileLock

    folder = runs.root / "findings"
    folder.mkdir()
    state = {"done": 2, "of": 6, "doing": "mu 0.1, seed 1", "error": None}
    (folder / f"{NAME}.progress.json").write_text(json.dumps(state | {"error": "stsb: there is no such folder"}))
    assert "stsb: there is no such folder" in told(pages.alone("findings"))
    (folder / f"{NAME}.progress.json").write_text(json.dumps(state))
    with FileLock(lock_file(NAME, runs.root)):
        app = pages.alone("findings")
    assert not app.exception
    assert "did not come to an end" not in told(app)
    assert f"findings.again.{NAME}" not in [button.key for button in app.button]


def test_a_damaged_finding_is_named_and_the_page_stays(pages: type, finding: dict[str, Any], runs: RunStore) -> None:
    path: Path = runs.root / "findings" / f"{NAME}.json"
    path.write_text("{")
    app = pages.alone("findings")
    assert not app.exception
    assert f"{NAME}.json" in told(app)
