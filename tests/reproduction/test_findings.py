"""Findings: written, read, reported as Markdown, and printed by the command."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsc_core.cli import main
from bsc_core.errors import FileFormatError, PathError
from bsc_core.reproduction.catalog import CLAIMS, select_claims
from bsc_core.reproduction.claims import UNTRAINED
from bsc_core.reproduction.findings import read_findings, write_finding
from bsc_core.reproduction.report import BEGIN, END, report_files, summary_lines, write_report
from bsc_core.runs import RunStore

DOCS = Path(__file__).parents[2] / "docs"


def test_findings_are_read_as_written(tmp_path: Path, finding: dict[str, Any]) -> None:
    assert write_finding(finding, tmp_path) == tmp_path / "turns-small.json"
    assert read_findings(tmp_path) == {"turns-small": json.loads(json.dumps(finding))}


@pytest.mark.parametrize(
    ("verdict", "now"),
    [("holds", "supported"), ("does not hold", "contradicted"), ("cannot be told", "inconclusive")],
)
def test_findings_of_earlier_versions_are_read_with_the_present_names(
    tmp_path: Path, finding: dict[str, Any], verdict: str, now: str
) -> None:
    old = json.loads(json.dumps(finding)) | {"verdict": verdict, "reason": "Of 1 statement, 1 holds."}
    one = old["statements"][0] | {"verdict": verdict}
    old["statements"] = [{"words": one.pop("text"), "beside": one.pop("informational"), **one}]
    (tmp_path / "turns-small.json").write_text(json.dumps(old))
    read = read_findings(tmp_path)["turns-small"]
    expected = finding["statements"][0] | {"verdict": now}
    assert read == json.loads(json.dumps(finding)) | {
        "verdict": now,
        "reason": f"Of 1 statement, 1 {now}.",
        "statements": [json.loads(json.dumps(expected))],
    }


@pytest.mark.parametrize("text", ["{", "null", "[]", "{}", '{"name": "turns"}'])
def test_the_error_on_a_damaged_finding_names_its_file_and_the_fix(tmp_path: Path, text: str) -> None:
    (tmp_path / "turns.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"turns.json is not a finding .*; delete it"):
        read_findings(tmp_path)


def test_a_report_is_a_summary_between_marks_with_pages_and_figures(tmp_path: Path, finding: dict[str, Any]) -> None:
    document = tmp_path / "results.md"
    document.write_text(f"Before.\n\n{BEGIN}\nstale words\n{END}\n\nAfter.\n")
    write_report(document, {"turns": finding})
    written = document.read_text()
    assert written.startswith(f"Before.\n\n{BEGIN}\n")
    assert written.endswith(f"\n{END}\n\nAfter.\n")
    assert "stale words" not in written
    assert "[turns](results/bsc.md#one-after-the-other-turns)" in written
    page = (tmp_path / "results" / "bsc.md").read_text()
    assert "\n## One after the other: turns\n" in page
    assert re.search(r"\| spearman: BSC > untrained encoder \| \+0\.100(, outside)? \|", page)
    assert "(../pictures/turns.svg)" in page
    assert (tmp_path / "pictures" / "turns.svg").read_text().startswith("<svg")
    write_report(document, {"turns": finding})
    assert document.read_text() == written


def test_a_report_needs_a_document_with_marks(tmp_path: Path) -> None:
    with pytest.raises(PathError, match="does not exist"):
        write_report(tmp_path / "none.md")
    (tmp_path / "bare.md").write_text("Nothing.\n")
    with pytest.raises(FileFormatError, match="lacks the markers"):
        write_report(tmp_path / "bare.md")


def test_the_documents_equal_the_findings_of_the_package() -> None:
    findings = read_findings()
    _, _, rest = (DOCS / "results.md").read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    assert rest.partition(f"\n{END}")[0].split("\n") == summary_lines(findings)
    for path, text in report_files(findings).items():
        assert (DOCS / path).read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", sorted(read_findings()))
def test_the_package_has_full_findings_of_its_claims(name: str) -> None:
    finding, claim = read_findings()[name], CLAIMS[name]
    assert finding["form"] == "full"
    assert finding["claim"] == claim.claim
    assert len(finding["seeds"]) >= 3
    assert {arm["name"] for arm in finding["arms"]} == {UNTRAINED, *claim.arms}
    assert [(one["better"], one["worse"], one["metric"]) for one in finding["statements"]] == [
        (one.better, one.worse, one.metric) for one in claim.statements
    ]


Report = Callable[..., dict[str, Any]]


@pytest.fixture
def bsc(capsys: pytest.CaptureFixture[str], store: RunStore) -> Report:
    def report_of(*words: str, status: int = 0) -> dict[str, Any]:
        assert main(["reproduce", *words, "--runs", str(store.root), "--json"]) == status
        report: dict[str, Any] = json.loads(capsys.readouterr().out)
        return report

    return report_of


def test_the_command_lists_every_claim(bsc: Report) -> None:
    listed = bsc("--list")["recipes"]
    assert [one["name"] for one in listed] == list(CLAIMS)
    assert all(one["runs"] >= 3 and one["data"] for one in listed)


@pytest.mark.usefixtures("one_small_seed")
def test_the_command_prints_claims_and_findings_as_lines(capsys: pytest.CaptureFixture[str], store: RunStore) -> None:
    assert main(["reproduce", "--list", "--runs", str(store.root)]) == 0
    listed = capsys.readouterr().out
    assert "{" not in listed
    for claim in CLAIMS.values():
        assert f"\n    {claim.claim}\n" in listed
    assert "data sick, snli, stsb; 15 runs" in listed
    name = next(iter(CLAIMS))
    assert main(["reproduce", name, "--form", "small", "--runs", str(store.root)]) == 0
    lines = capsys.readouterr().out
    assert lines.startswith(f"{name}: ")
    assert len(lines.splitlines()) == 1 + 2 * len(CLAIMS[name].statements)


@pytest.mark.usefixtures("one_small_seed")
def test_the_command_prints_the_finding(bsc: Report) -> None:
    name = next(iter(CLAIMS))
    assert [one["name"] for one in bsc(name, "--form", "small")["findings"]] == [name]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing", "--form", "small"), "claim 'nothing' is unknown; choose among"),
        ((), "no claim is named; name claims, or all"),
        ((next(iter(CLAIMS)),), "--form full needs --data FOLDER"),
        ((next(iter(CLAIMS)), "--data", "/nowhere"), "does not exist; give the folder"),
    ],
)
def test_the_command_reports_wrong_input_in_one_sentence(bsc: Report, words: tuple[str, ...], message: str) -> None:
    assert message in bsc(*words, status=2)["error"]


def test_all_selects_every_claim() -> None:
    assert select_claims(["all"]) == list(CLAIMS.values())
