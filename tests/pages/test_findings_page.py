"""Findings page: a card for every claim, verdicts and numbers of results, and running an experiment again."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.jobs import reproductions
from bsc_core.presets.catalog import PRESETS
from bsc_core.reproduction.catalog import CLAIMS as ALL_CLAIMS
from bsc_core.reproduction.findings import read_findings, write_finding
from bsc_core.reproduction.progress import lock_file, progress_file
from bsc_core.runs import RunStore
from pages.ui.findings import details
from pages.ui.findings.table import RECOMMENDED, summary_title
from tests.helpers.pages import open_page, page_text

CLAIMS = {name: claim for name, claim in ALL_CLAIMS.items() if not claim.repeats}  # the others have no result
NAME = "mu_stsb"


def statement(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "text": "mu 0.5 and mu 0.1 differ by at most 0.004",
        "better": "a",
        "worse": "b",
        "metric": "spearman",
        "split": "test",
        "expects": "better",
        "margin": None,
        "informational": False,
        "paper": None,
        "difference": -0.0123,
        "low": -0.02,
        "high": -0.004,
        "p": 0.002,
        "p_holm": 0.004,
        "p_equivalence": None,
        "smallest_difference": 0.005,
        "detectable": 0.0114,
        "queries": 1379,
        "wins": None,
        "losses": None,
        "ties": None,
        "method": "2,000 draws",
        "verdict": "contradicted",
        "sentence": "a sentence about the statement",
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
    """A result in this runs folder, as `bsc reproduce` writes it."""
    claim = CLAIMS[NAME]
    result = {
        **{key: getattr(claim, key) for key in ("name", "title", "paper", "table", "claim", "budget", "note")},
        "citation": "a paper",
        "form": "full",
        "verdict": "contradicted",
        "reason": "Of 1 statement, 1 contradicted.",
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
    write_finding(result, runs.root / "findings")
    return result


def claims_table(app: AppTest) -> pd.DataFrame:
    return app.dataframe[0].value


def test_every_claim_is_a_row_with_its_verdict_and_reason(visit: Callable[..., AppTest], runs: RunStore) -> None:
    table = claims_table(visit("findings"))
    assert sorted(table["Claim"]) == sorted(claim.title for claim in CLAIMS.values())
    shipped = {result["title"]: result for result in read_findings().values()}
    for row in table.to_dict("records"):
        if row["Claim"] in shipped:
            assert row["Verdict"] == shipped[row["Claim"]]["verdict"]
            assert re.match(
                r"[\w ]+(@\d+)? [+\N{MINUS SIGN}]\d\.\d{3,} \[.*\](; \d+ of \d+ statements)?$", row["Why"]
            ), row["Why"]
            assert not re.search(r"\d, [+\N{MINUS SIGN}]0\.000\]", row["Why"]) or row["Verdict"] != "contradicted"


def test_the_summary_counts_the_claims_of_each_verdict(runs: RunStore) -> None:
    app = open_page("findings")
    table, drawn = claims_table(app), app.get("vega_lite_chart")[0].proto.alt
    verdicts = table.loc[table["Group"] != "Recommended", "Verdict"]
    assert f"{len(verdicts)} claims" in drawn
    for verdict, number in verdicts.value_counts().items():
        assert f"{number} {verdict}" in drawn


def test_the_title_of_the_summary_counts_tested_claims(runs: RunStore) -> None:
    counts = Counter({"supported": 1, "contradicted": 5, "inconclusive": 16, "not run yet": 11})
    assert summary_title(counts) == "1 of 22 tested claims is supported, 5 are contradicted"
    assert summary_title(Counter({"supported": 2, "contradicted": 1})) == (
        "2 of 3 tested claims are supported, 1 is contradicted"
    )
    assert not summary_title(Counter({"not run yet": 3}))
    table = claims_table(open_page("findings"))
    title = summary_title(Counter(table.loc[table["Group"] != "Recommended", "Verdict"]))
    assert title in page_text(open_page("findings"))


def test_a_claim_and_its_repetition_from_a_weak_start_share_a_row_and_a_card(
    finding: dict[str, Any], runs: RunStore
) -> None:
    weak = finding | {"name": f"{NAME}_weak", "title": "from the weak start", "verdict": "ruled out"}
    write_finding(weak, runs.root / "findings")
    app = open_page("findings", **{"findings.claim": NAME})
    rows = claims_table(app).set_index("Claim")
    assert rows.loc[CLAIMS[NAME].title, ["Verdict", "Weak start"]].tolist() == ["contradicted", "ruled out"]
    assert len(rows) == len(CLAIMS)
    assert app.header[0].value == CLAIMS[NAME].title
    app.get("button_group")[-1].set_value("weak start").run()
    assert app.header[0].value == ALL_CLAIMS[f"{NAME}_weak"].title
    linked = open_page("findings", **{"findings.claim": f"{NAME}_weak"})
    assert linked.header[0].value == ALL_CLAIMS[f"{NAME}_weak"].title


def test_the_table_without_a_selection_draws_no_figure_but_the_summary(runs: RunStore) -> None:
    app = open_page("findings")
    assert len(app.get("vega_lite_chart")) == 1
    assert not app.header


@pytest.mark.parametrize("name", CLAIMS)
def test_a_link_opens_a_claim_in_detail(runs: RunStore, name: str) -> None:
    app = open_page("findings", **{"findings.claim": name})
    assert not app.exception
    assert [heading.value for heading in app.header] == [CLAIMS[name].title]
    assert CLAIMS[name].claim in page_text(app)
    assert (len(app.get("vega_lite_chart")) > 1) == (name in read_findings())


def test_the_row_of_a_link_is_among_the_visible_ones(runs: RunStore) -> None:
    last = [claim for claim in CLAIMS.values() if claim.paper == RECOMMENDED][-1]
    app = open_page("findings", **{"findings.claim": last.name})
    assert claims_table(app)["Claim"][0] == last.title
    assert [button.label for button in app.button if button.key.startswith("findings.use.")] == ["Use this setting"] * (
        last.name in PRESETS
    )


def test_a_link_to_an_unknown_claim_is_reported(runs: RunStore) -> None:
    app = open_page("findings", **{"findings.claim": "nope"})
    assert "The claim nope was not found" in page_text(app)


def test_a_local_result_takes_precedence_over_the_shipped_one(finding: dict[str, Any]) -> None:
    app = open_page("findings", **{"findings.verdict": "contradicted"})
    rows = claims_table(app).set_index("Claim")
    assert (
        rows.loc[CLAIMS[NAME].title, "Why"] == "Spearman \N{MINUS SIGN}0.012 [\N{MINUS SIGN}0.020, \N{MINUS SIGN}0.004]"
    )


def test_the_claims_of_one_paper_can_be_selected(runs: RunStore) -> None:
    app = open_page("findings")
    app.segmented_control(key="findings.paper").set_value("scl").run()
    wanted = [claim.title for claim in CLAIMS.values() if claim.paper == "scl"]
    assert sorted(claims_table(app)["Claim"]) == sorted(wanted)


def test_the_tables_name_undefined_values_and_use_a_minus_sign(finding: dict[str, Any]) -> None:
    arms = details.arms_table(finding)
    assert arms["Spearman, test"].tolist() == ["0.812", "not defined: not applicable to these data"]
    assert arms["Steps"].tolist() == ["120", "120"]
    tests = details.tests_table(finding)
    assert tests["Difference"].tolist() == ["\N{MINUS SIGN}0.012"]
    assert tests["Verdict"].tolist() == ["contradicted"]


def test_a_difference_of_the_paper_outside_the_interval_is_marked(finding: dict[str, Any]) -> None:
    statements = [statement(paper=paper) for paper in (None, -0.01, 0.02)]
    differences = details.tests_table(finding | {"statements": statements})["In the paper"].tolist()
    assert differences == ["", "\N{MINUS SIGN}0.010", "+0.020, outside the interval"]


def test_run_again_starts_one_process(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(reproductions, "start_reproduction", lambda *given: started.append(given))
    app = open_page("findings", **{"findings.claim": NAME})
    app.button(key=f"findings.again.{NAME}").click().run()
    assert app.button(key=f"findings.run.{NAME}").disabled  # the full experiment needs the datasets
    app.segmented_control(key=f"findings.form.{NAME}").set_value("small").run()
    app.button(key=f"findings.run.{NAME}").click().run()
    assert [given[1:] for given in started] == [(NAME, "small", None)]


def test_a_folder_without_the_datasets_is_refused_before_the_start(
    runs: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(reproductions, "start_reproduction", lambda *given: started.append(given))
    app = open_page("findings", **{"findings.claim": NAME})
    app.button(key=f"findings.again.{NAME}").click().run()
    for folder in (tmp_path, tmp_path / "nowhere"):
        app.text_input(key="findings.data").input(str(folder)).run()
        app.button(key=f"findings.run.{NAME}").click().run()
        assert not app.exception
        assert str(folder) in page_text(app)
    assert "--data" not in page_text(app)
    assert started == []


def test_a_failed_run_shows_its_error_and_a_running_one_its_progress(runs: RunStore) -> None:
    from filelock import FileLock

    folder = runs.root / "findings"
    folder.mkdir()
    state = {"done": 2, "of": 6, "doing": "mu 0.1, seed 1", "error": None}
    (folder / f"{NAME}.progress.json").write_text(json.dumps(state | {"error": "stsb: there is no such folder"}))
    text = page_text(open_page("findings", **{"findings.claim": NAME}))
    assert "stsb: there is no such folder" in text
    assert "**Full experiment failed**" in text
    (folder / f"{NAME}.progress.json").write_text(json.dumps(state))
    with FileLock(lock_file(NAME, runs.root)):
        app = open_page("findings", **{"findings.claim": NAME})
    assert not app.exception
    assert "**Full experiment failed**" not in page_text(app)
    assert f"findings.again.{NAME}" not in [button.key for button in app.button]


@pytest.mark.parametrize(
    "change",
    [
        "{",
        "[" * 100_000,
        "[]",
        {"statements": [1]},
        {"statements": []},
        {"verdict": "weird"},
        {"arms": [{"name": "best"}]},
        {"seconds": "long"},
        {"data": None},
    ],
)
def test_a_damaged_result_is_named_in_an_error(finding: dict[str, Any], runs: RunStore, change: Any) -> None:
    path: Path = runs.root / "findings" / f"{NAME}.json"
    path.write_text(change if isinstance(change, str) else json.dumps(finding | change))
    app = open_page("findings")
    assert not app.exception
    assert f"{NAME}.json" in page_text(app)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"done": "x", "of": 1, "doing": "", "error": null}', "[]"])
def test_a_damaged_progress_is_ignored(finding: dict[str, Any], runs: RunStore, content: str) -> None:
    progress_file(NAME, runs.root).write_text(content)
    assert not open_page("findings", **{"findings.claim": NAME}).exception
