"""What a reproduction found: written down, read back, made into a report, and printed by the command."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsc_core.cli import main
from bsc_core.errors import FileFormatError, PathError
from bsc_core.recipes.catalogue import RECIPES, recipes_named
from bsc_core.recipes.claims import UNTRAINED
from bsc_core.recipes.findings import FINDINGS, read_findings, write_finding
from bsc_core.recipes.report import BEGIN, END, picture, picture_of, report, write_report
from bsc_core.runs import RunStore


def test_findings_are_read_back_as_they_were_written(tmp_path: Path, finding: dict[str, Any]) -> None:
    assert write_finding(finding, tmp_path) == tmp_path / "turns-small.json"
    assert read_findings(tmp_path) == {"turns-small": json.loads(json.dumps(finding))}


@pytest.mark.parametrize("text", ["{", "null", "[]", "{}", '{"name": "turns"}'])
def test_a_damaged_finding_is_named_with_the_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "turns.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"turns.json: no finding .*; delete it"):
        read_findings(tmp_path)


def test_a_report_stands_between_its_marks(tmp_path: Path, finding: dict[str, Any]) -> None:
    document = tmp_path / "results.md"
    document.write_text(f"Before.\n\n{BEGIN}\nstale words\n{END}\n\nAfter.\n")
    write_report(document, {"turns": finding})
    written = document.read_text()
    assert written.startswith(f"Before.\n\n{BEGIN}\n")
    assert written.endswith(f"\n{END}\n\nAfter.\n")
    assert "stale words" not in written
    assert "[turns](#one-after-the-other-turns)" in written
    assert re.search(r"\| BSC is above the untrained encoder in spearman \| \+0\.100(, outside)? \|", written)
    write_report(document, {"turns": finding})
    assert document.read_text() == written
    assert (tmp_path / "pictures" / "turns.svg").read_text().startswith("<svg")
    assert "(pictures/turns.svg)" in document.read_text()


def test_a_report_needs_a_document_with_marks(tmp_path: Path) -> None:
    with pytest.raises(PathError, match="there is no such file"):
        write_report(tmp_path / "none.md")
    (tmp_path / "bare.md").write_text("Nothing.\n")
    with pytest.raises(FileFormatError, match="it lacks the marks"):
        write_report(tmp_path / "bare.md")


def test_the_documents_hold_the_findings_of_the_package() -> None:
    document = Path(__file__).parents[2] / "docs" / "results.md"
    _, _, rest = document.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    assert rest.partition(f"\n{END}")[0].split("\n") == report(read_findings())
    for name, found in read_findings().items():
        assert (document.parent / picture_of(name)).read_text(encoding="utf-8") == picture(found)


@pytest.mark.parametrize("name", sorted(read_findings(FINDINGS)))
def test_the_package_holds_full_findings_of_its_own_recipes(name: str) -> None:
    found = read_findings()[name]
    recipe = RECIPES[name]
    assert found["form"] == "full"
    assert found["claim"] == recipe.claim
    assert len(found["seeds"]) >= 3
    assert {arm["name"] for arm in found["arms"]} == {UNTRAINED, *recipe.arms}
    assert [(said["better"], said["worse"], said["metric"]) for said in found["statements"]] == [
        (said.better, said.worse, said.metric) for said in recipe.statements
    ]


Report = Callable[..., dict[str, Any]]


@pytest.fixture
def bsc(capsys: pytest.CaptureFixture[str], store: RunStore) -> Report:
    def told(*words: str, status: int = 0) -> dict[str, Any]:
        assert main(["reproduce", *words, "--runs", str(store.root), "--json"]) == status
        report: dict[str, Any] = json.loads(capsys.readouterr().out)
        return report

    return told


def test_the_command_lists_every_recipe(bsc: Report) -> None:
    listed = bsc("--list")["recipes"]
    assert [one["name"] for one in listed] == list(RECIPES)
    assert all(one["runs"] >= 3 and one["data"] for one in listed)


def test_the_command_shows_recipes_and_findings_as_lines(capsys: pytest.CaptureFixture[str], store: RunStore) -> None:
    assert main(["reproduce", "--list", "--runs", str(store.root)]) == 0
    listed = capsys.readouterr().out
    assert "{" not in listed
    for recipe in RECIPES.values():
        assert f"\n    {recipe.claim}\n" in listed
    assert "data sick, snli, stsb; 15 runs" in listed
    name = next(iter(RECIPES))
    assert main(["reproduce", name, "--form", "small", "--runs", str(store.root)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"{name}: ")
    assert len(shown.splitlines()) == 1 + 2 * len(RECIPES[name].statements)


def test_the_command_prints_the_finding(bsc: Report) -> None:
    name = next(iter(RECIPES))
    found = bsc(name, "--form", "small")["findings"]
    assert [one["name"] for one in found] == [name]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nothing", "--form", "small"), "there is no recipe 'nothing'; there are"),
        ((), "name the recipes to reproduce"),
        ((next(iter(RECIPES)),), "the full form needs --data FOLDER"),
        ((next(iter(RECIPES)), "--data", "/nowhere"), "there is no such file; give the folder"),
    ],
)
def test_the_command_refuses_in_one_sentence(bsc: Report, words: tuple[str, ...], told: str) -> None:
    assert told in bsc(*words, status=2)["error"]


def test_all_means_every_recipe() -> None:
    assert recipes_named(["all"]) == list(RECIPES.values())
