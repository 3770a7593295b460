"""A claim put to the test: runs trained once, gone on with, and compared."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bsc_core.errors import ConfigError, InputError, RunError
from bsc_core.jobs.worker import perform as work
from bsc_core.jobs.worker import run_pipeline
from bsc_core.recipes import reproducing
from bsc_core.recipes.catalogue import RECIPES
from bsc_core.recipes.claims import PAPERS, UNTRAINED, Arm, Recipe
from bsc_core.recipes.findings import reproduce
from bsc_core.recipes.progress import read_progress
from bsc_core.recipes.reproducing import Perform, merged, plans
from bsc_core.runs import Run, RunStore


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


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_every_recipe_runs_in_its_small_form(
    train: Perform, store: RunStore, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        subsets = [recipe.subsets[recipe.subset_of(side)] for side in sides - {UNTRAINED}]
        held_out = {(one.folder, one.parts.get("dev"), one.parts.get("test"), one.corpus) for one in subsets}
        assert len(held_out) == 1 or recipe.measure is not None
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
    assert finding["budget"] == "3 steps of 8 pairs of the sample data"
    assert finding["seeds"] == [0, 1]
    assert finding["device"] == "cpu"
    assert finding["seconds"] > 0
    assert finding["data"][0]["rows"]["train"] >= 96
    warm = next(arm for arm in finding["arms"] if arm["name"] == "warm")
    assert warm["settings"]["loss.temperature"] == 1.0
    assert warm["runs"][0]["steps"] == 3
    assert finding["statements"][2]["verdict"] == "holds"  # no correlations differ by more than 2


def test_what_is_there_is_not_trained_again(turns: Recipe, store: RunStore, finding: dict[str, Any]) -> None:
    counting = Counting()
    again = reproduce(turns, store, counting, form="small")
    assert counting.ids == []
    assert again["statements"] == finding["statements"]


def test_recipes_share_their_runs(turns: Recipe, store: RunStore, finding: dict[str, Any]) -> None:
    counting = Counting()
    fewer = replace(turns, name="other", arms={"again": Arm("The same", turns.arms["first"].values)}, statements=())
    found = reproduce(fewer, store, counting, form="small")
    assert counting.ids == []
    assert found["verdict"] == "cannot be told"


def test_a_reproduction_that_was_broken_off_goes_on_where_it_was(turns: Recipe, tmp_path: Path) -> None:
    store, failing, going_on = RunStore(tmp_path), Counting(failing=2), Counting()
    with pytest.raises(RunError, match="is failed: the disk took no more"):
        reproduce(turns, store, failing, form="small")
    told = read_progress("turns", tmp_path, "small")
    assert told is not None
    assert (told["done"], told["of"]) == (1, 6)
    assert "the disk took no more" in told["error"]
    reproduce(turns, store, going_on, form="small")
    assert len(going_on.ids) == 5
    assert failing.ids[0] not in going_on.ids
    assert f"{failing.ids[1]}-2" in going_on.ids  # the failed run stays as it ended
    assert read_progress("turns", tmp_path, "small") == {"done": 6, "of": 6, "doing": "", "error": None}


def test_only_one_process_reproduces_a_recipe(turns: Recipe, tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()
    with (
        FileLock(tmp_path / "findings" / ".turns-small.lock"),
        pytest.raises(InputError, match="another process is at it"),
    ):
        reproduce(turns, RunStore(tmp_path), Counting(), form="small")


def test_an_id_says_the_settings_and_not_where_the_runs_lie(turns: Recipe, tmp_path: Path) -> None:
    one, two = (plans(turns, "small", data=None, runs=tmp_path / name) for name in ("one", "two"))
    assert [plan.id for plan in one] == [plan.id for plan in two]
    assert len({plan.id for plan in one}) == 6
    other = replace(turns, values={**turns.values, "training": {"learning_rate": 1e-5}})
    changed = plans(
        replace(other, values={**other.values, "encoder": {"max_length": 32}}), "small", data=None, runs=tmp_path
    )
    assert not {plan.id for plan in one} & {plan.id for plan in changed}


def test_arms_are_ordered_by_what_they_go_on_from(turns: Recipe, tmp_path: Path) -> None:
    assert [plan.arm for plan in plans(turns, "small", data=None, runs=tmp_path)][:3] == ["first", "warm", "second"]
    lost = replace(turns, arms={"second": Arm("MSE", {"loss": {"name": "mse"}}, after="nowhere")})
    with pytest.raises(ConfigError, match="second goes on from an arm that is not there"):
        plans(lost, "small", data=None, runs=tmp_path)


def test_a_loss_with_a_name_takes_the_place_of_the_one_below() -> None:
    below = {"loss": {"name": "bsc", "temperature": 0.1}, "training": {"steps": 5}}
    assert merged([below, {"loss": {"temperature": 1.0}}])["loss"] == {"name": "bsc", "temperature": 1.0}
    assert merged([below, {"loss": {"name": "mse"}}])["loss"] == {"name": "mse"}
    assert merged([below, {"training": {"batch_size": 8}}])["training"] == {"steps": 5, "batch_size": 8}
