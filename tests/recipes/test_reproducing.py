"""A claim put to the test: runs trained once, gone on with, compared, and written down."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bsc_core.cli import main
from bsc_core.errors import ConfigError, FileFormatError, InputError, PathError, RunError
from bsc_core.jobs.worker import perform as work
from bsc_core.jobs.worker import run_pipeline
from bsc_core.recipes import reproducing
from bsc_core.recipes.catalogue import RECIPES, recipes_named
from bsc_core.recipes.claims import PAPERS, UNTRAINED, Arm, Recipe, Statement
from bsc_core.recipes.findings import FINDINGS, read_findings, read_progress, reproduce, write_finding
from bsc_core.recipes.report import BEGIN, END, picture, picture_of, report, write_report
from bsc_core.recipes.reproducing import merged, plans
from bsc_core.recipes.subsets import Part, Subset
from bsc_core.runs import Run, RunStore

SENTENCES = {
    "name": "turns",
    "title": "One after the other",
    "paper": "bsc",
    "table": "Table 0",
    "claim": "Training helps.",
    "subsets": {"stsb": Subset("stsb", {"train": Part("train"), "dev": Part("dev"), "test": Part("test")})},
    "values": {"training": {"steps": 2}, "loss": {"name": "bsc", "temperature": 0.1}},
    "metrics": ("spearman",),
}
TURNS = Recipe(
    **SENTENCES,
    arms={
        "second": Arm("MSE after BSC", {"loss": {"name": "mse"}}, after="first"),
        "first": Arm("BSC"),
        "warm": Arm("BSC, tau 1", {"loss": {"temperature": 1.0}}),
    },
    statements=(
        Statement("first", UNTRAINED, "spearman", paper=0.1),
        Statement(UNTRAINED, "second", "spearman", split="dev"),
        Statement("first", "warm", "spearman", expects="same", margin=2.0),
    ),
)


def train(run: Run) -> int:
    return work(run, run_pipeline)


class Counting:
    """Trains, and remembers what it trained; the run of that number fails."""

    def __init__(self, failing: int | None = None) -> None:
        self.ids: list[str] = []
        self.failing = failing

    def __call__(self, run: Run) -> int:
        self.ids.append(run.id)
        return work(run, self._fail if len(self.ids) == self.failing else run_pipeline)

    def _fail(self, config: Any, run: Run) -> dict[str, Any]:
        raise RunError("the disk took no more")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    return RunStore(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def finding(store: RunStore) -> dict[str, Any]:
    return reproduce(TURNS, store, train, form="small")


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_recipe_runs_in_its_small_form(store: RunStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproducing, "SMALL_SEEDS", (0,))
    found = reproduce(recipe, store, train, form="small")
    assert found["verdict"] in ("holds", "does not hold", "cannot be told")
    assert [said["metric"] for said in found["statements"]] == [said.metric for said in recipe.statements]
    for arm in found["arms"]:
        assert any(arm["metrics"].values()), f"{arm['name']} was not measured"
    assert (store.root / "findings" / f"{recipe.name}-small.json").is_file()


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_a_recipe_speaks_of_arms_and_papers_that_are_there(recipe: Recipe) -> None:
    assert recipe.paper in PAPERS
    assert recipe.claim.endswith(".")
    assert len(recipe.seeds) >= 3
    for statement in recipe.statements:
        sides = {statement.better, statement.worse}
        assert sides <= {*recipe.arms, UNTRAINED}
        assert len(sides) == 2
        assert (statement.expects == "same") == (statement.margin is not None)
        assert len({recipe.subset_of(side) for side in sides - {UNTRAINED}}) == 1 or recipe.measure is not None
    assert set(recipe.arms) >= {arm.after for arm in recipe.arms.values() if arm.after}


def test_an_arm_starts_from_the_model_of_the_same_seed(store: RunStore, finding: dict[str, Any]) -> None:
    arms = {arm["name"]: arm for arm in finding["arms"]}
    for place in range(2):
        second = store.get(arms["second"]["runs"][place]["run"])
        assert second.config().encoder.name == f"run:{arms['first']['runs'][place]['run']}"
    assert arms["second"]["after"] == "first"


def test_the_untrained_encoder_is_that_of_an_arm_that_goes_on_from_none(
    store: RunStore, finding: dict[str, Any]
) -> None:
    untrained = finding["arms"][0]
    first = next(arm for arm in finding["arms"] if arm["name"] == "first")
    before = store.get(first["runs"][0]["run"]).read_json("evaluation/before")
    assert untrained["name"] == UNTRAINED
    assert untrained["metrics"]["test"]["spearman"]["value"] == pytest.approx(before["test"]["spearman"])
    said = finding["statements"][0]
    gained = first["metrics"]["test"]["spearman"]["value"] - before["test"]["spearman"]
    assert said["difference"] == pytest.approx(gained)
    assert said["words"] == "BSC is above the untrained encoder in spearman"
    turned = finding["statements"][1]
    second = next(arm for arm in finding["arms"] if arm["name"] == "second")
    lost = before["dev"]["spearman"] - second["metrics"]["dev"]["spearman"]["value"]
    assert turned["difference"] == pytest.approx(lost)


def test_a_finding_says_what_was_done(finding: dict[str, Any]) -> None:
    assert finding["command"] == "bsc reproduce turns --form small"
    assert finding["form"] == "small"
    assert finding["seeds"] == [0, 1]
    assert finding["device"] == "cpu"
    assert finding["seconds"] > 0
    assert finding["data"][0]["rows"]["train"] >= 96
    warm = next(arm for arm in finding["arms"] if arm["name"] == "warm")
    assert warm["settings"]["loss.temperature"] == 1.0
    assert warm["runs"][0]["steps"] == 3
    assert finding["statements"][2]["verdict"] == "holds"  # no correlations differ by more than 2


def test_what_is_there_is_not_trained_again(store: RunStore, finding: dict[str, Any]) -> None:
    counting = Counting()
    again = reproduce(TURNS, store, counting, form="small")
    assert counting.ids == []
    assert again["statements"] == finding["statements"]


def test_recipes_share_their_runs(store: RunStore, finding: dict[str, Any]) -> None:
    counting = Counting()
    fewer = replace(TURNS, name="other", arms={"again": Arm("The same", TURNS.arms["first"].values)}, statements=())
    found = reproduce(fewer, store, counting, form="small")
    assert counting.ids == []
    assert found["verdict"] == "cannot be told"


def test_a_reproduction_that_was_broken_off_goes_on_where_it_was(tmp_path: Path) -> None:
    store, failing, going_on = RunStore(tmp_path), Counting(failing=2), Counting()
    with pytest.raises(RunError, match="is failed: the disk took no more"):
        reproduce(TURNS, store, failing, form="small")
    told = read_progress("turns", tmp_path, "small")
    assert told is not None
    assert (told["done"], told["of"]) == (1, 6)
    assert "the disk took no more" in told["error"]
    reproduce(TURNS, store, going_on, form="small")
    assert len(going_on.ids) == 5
    assert failing.ids[0] not in going_on.ids
    assert f"{failing.ids[1]}-2" in going_on.ids  # the failed run stays as it ended
    assert read_progress("turns", tmp_path, "small") == {"done": 6, "of": 6, "doing": "", "error": None}


def test_only_one_process_reproduces_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()
    with (
        FileLock(tmp_path / "findings" / ".turns-small.lock"),
        pytest.raises(InputError, match="another process is at it"),
    ):
        reproduce(TURNS, RunStore(tmp_path), Counting(), form="small")


def test_an_id_says_the_settings_and_not_where_the_runs_lie(tmp_path: Path) -> None:
    one, two = (plans(TURNS, "small", data=None, runs=tmp_path / name) for name in ("one", "two"))
    assert [plan.id for plan in one] == [plan.id for plan in two]
    assert len({plan.id for plan in one}) == 6
    other = replace(TURNS, values={**TURNS.values, "training": {"learning_rate": 1e-5}})
    changed = plans(
        replace(other, values={**other.values, "encoder": {"max_length": 32}}), "small", data=None, runs=tmp_path
    )
    assert not {plan.id for plan in one} & {plan.id for plan in changed}


def test_arms_are_ordered_by_what_they_go_on_from(tmp_path: Path) -> None:
    assert [plan.arm for plan in plans(TURNS, "small", data=None, runs=tmp_path)][:3] == ["first", "warm", "second"]
    lost = replace(TURNS, arms={"second": Arm("MSE", {"loss": {"name": "mse"}}, after="nowhere")})
    with pytest.raises(ConfigError, match="second goes on from an arm that is not there"):
        plans(lost, "small", data=None, runs=tmp_path)


def test_a_loss_with_a_name_takes_the_place_of_the_one_below() -> None:
    below = {"loss": {"name": "bsc", "temperature": 0.1}, "training": {"steps": 5}}
    assert merged([below, {"loss": {"temperature": 1.0}}])["loss"] == {"name": "bsc", "temperature": 1.0}
    assert merged([below, {"loss": {"name": "mse"}}])["loss"] == {"name": "mse"}
    assert merged([below, {"training": {"batch_size": 8}}])["training"] == {"steps": 5, "batch_size": 8}


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
    assert "| BSC is above the untrained encoder in spearman | +0.100" in written
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
    assert "data sick, snli, stsb; 9 runs" in listed
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
