"""Reproduction of a claim: runs are trained once, resumed after an interruption, and compared."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from bsc_core.config import flatten
from bsc_core.errors import ConfigError, InputError, RunError
from bsc_core.jobs.worker import perform as work
from bsc_core.jobs.worker import run_pipeline
from bsc_core.reproduction.catalog import CLAIMS
from bsc_core.reproduction.claims import PAPERS, UNTRAINED, Arm, Claim
from bsc_core.reproduction.findings import reproduce
from bsc_core.reproduction.progress import read_progress
from bsc_core.reproduction.runs import Train, merge_sections, plan_runs
from bsc_core.reproduction.verdicts import VERDICTS, claim_verdict
from bsc_core.runs import Run, RunStore


class Counting:
    """Trains and records the ids of the runs; the run with the number `failing` fails."""

    def __init__(self, failing: int | None = None) -> None:
        self.ids: list[str] = []
        self.failing = failing

    def __call__(self, run: Run) -> int:
        self.ids.append(run.id)
        return work(run, self._fail if len(self.ids) == self.failing else run_pipeline)

    def _fail(self, config: Any, run: Run) -> dict[str, Any]:
        raise RunError("the disk is full")


def features(claim: Claim) -> set[object]:
    """Return what distinguishes the runs of a claim from others: settings of arms apart from numbers, data, metrics."""
    found: set[object] = {claim.metrics_source}
    for arm in claim.arms.values():
        found.add(("after", bool(arm.after)))
        for name, value in flatten(arm.values).items():
            found.add((name, value if isinstance(value, str | bool) else type(value)))
    for subset in claim.subsets.values():
        found |= {subset.folder, (*sorted(subset.parts), bool(subset.corpus))}
    return found | {(one.metric, one.split, one.expects) for one in claim.statements}


def claims_with_every_feature() -> list[str]:
    """Return few claims that together have each feature of all claims."""
    missing = {name: features(one) for name, one in CLAIMS.items() if not one.repeats}
    chosen = ["scl_counts_weak"]
    while most := max(missing.values(), key=len):
        chosen.append(next(name for name, some in missing.items() if some is most))
        missing = {name: some - most for name, some in missing.items()}
    return chosen


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_has_valid_configs(tmp_path: Path, name: str) -> None:
    assert {plan.arm for plan in plan_runs(CLAIMS[name], "small", data=None, runs=tmp_path)} == set(CLAIMS[name].arms)


@pytest.mark.usefixtures("one_small_seed")
@pytest.mark.parametrize("name", claims_with_every_feature())
def test_a_claim_can_be_reproduced_in_the_small_form(train: Train, store: RunStore, name: str) -> None:
    claim = CLAIMS[name]
    finding = reproduce(claim, store, train, form="small")
    assert finding["verdict"] == claim_verdict(
        [one["verdict"] for one in finding["statements"] if not one["informational"]]
    )
    assert {one["verdict"] for one in finding["statements"]} <= set(VERDICTS)
    assert [one["metric"] for one in finding["statements"]] == [one.metric for one in claim.statements]
    for arm in finding["arms"]:
        assert any(arm["metrics"].values()), f"{arm['name']} has no metrics"
    assert (store.root / "findings" / f"{claim.name}-small.json").is_file()


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_names_existing_arms_and_papers(claim: Claim) -> None:
    assert claim.paper in PAPERS
    assert claim.claim.endswith(".")
    assert len(claim.seeds) >= 3
    for statement in claim.statements:
        sides = {statement.better, statement.worse}
        assert sides <= {*claim.arms, UNTRAINED}
        assert len(sides) == 2
        assert (statement.expects == "same") == (statement.margin is not None)
        subsets = [claim.subsets[claim.subset_of(side)] for side in sides - {UNTRAINED}]
        held_out = {(one.folder, one.parts.get("dev"), one.parts.get("test"), one.corpus) for one in subsets}
        assert len(held_out) == 1 or claim.metrics_source != "run"
    assert set(claim.arms) >= {arm.after for arm in claim.arms.values() if arm.after}


def test_an_arm_starts_from_the_model_of_the_same_seed(store: RunStore, finding: dict[str, Any]) -> None:
    arms = {arm["name"]: arm for arm in finding["arms"]}
    for index in range(2):
        second = store.get(arms["second"]["runs"][index]["run"])
        assert second.config().encoder.name == f"run:{arms['first']['runs'][index]['run']}"
    assert arms["second"]["after"] == "first"


def test_the_untrained_encoder_is_that_of_an_arm_without_a_parent(store: RunStore, finding: dict[str, Any]) -> None:
    untrained = finding["arms"][0]
    first = next(arm for arm in finding["arms"] if arm["name"] == "first")
    before = store.get(first["runs"][0]["run"]).read_json("evaluation/before")
    assert untrained["name"] == UNTRAINED
    assert untrained["metrics"]["test"]["spearman"]["value"] == pytest.approx(before["test"]["spearman"])
    statement = finding["statements"][0]
    gain = first["metrics"]["test"]["spearman"]["value"] - before["test"]["spearman"]
    assert statement["difference"] == pytest.approx(gain)
    assert statement["text"] == "spearman: BSC > untrained encoder"
    reverse = finding["statements"][1]
    second = next(arm for arm in finding["arms"] if arm["name"] == "second")
    loss = before["dev"]["spearman"] - second["metrics"]["dev"]["spearman"]["value"]
    assert reverse["difference"] == pytest.approx(loss)


def test_a_finding_records_command_data_and_settings(finding: dict[str, Any]) -> None:
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
    assert finding["statements"][2]["verdict"] == "supported"  # no correlations differ by more than 2


def test_finished_runs_are_not_trained_again(turns: Claim, store: RunStore, finding: dict[str, Any]) -> None:
    counting = Counting()
    again = reproduce(turns, store, counting, form="small")
    assert counting.ids == []
    assert again["statements"] == finding["statements"]


def copy_of_runs(store: RunStore, finding: dict[str, Any], folder: Path) -> RunStore:
    """Copy the runs of a finding to another runs folder."""
    for run_id in (run["run"] for arm in finding["arms"] for run in arm["runs"]):
        shutil.copytree(store.root / run_id, folder / run_id)
    return RunStore(folder)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("training.max_steps", 9, "training.max_steps = 9, and claim turns needs 3"),
        ("loss.temperature", 0.2, "loss.temperature = 0.2, and claim turns needs 0.1"),
        ("batching.strategy", "random", "batching.strategy = random, and claim turns needs nearest"),
        ("data.train", "/other/stsb-0/train.tsv", "data.train = stsb-0/train.tsv, and claim turns needs stsb-"),
        ("encoder.name", "run:another", "encoder.name = run:another, and claim turns needs run:"),
    ],
)
@pytest.mark.parametrize("state", ["done", "queued"])
def test_a_run_of_the_planned_id_with_other_settings_is_refused(
    turns: Claim, store: RunStore, finding: dict[str, Any], tmp_path: Path, key: str, value: Any, shown: str, state: str
) -> None:
    arm = "second" if key == "encoder.name" else "first"
    run_id = next(one for one in finding["arms"] if one["name"] == arm)["runs"][0]["run"]
    copies = copy_of_runs(store, finding, tmp_path)
    copies.get(run_id).update_status(state=state)
    path = copies.get(run_id).folder / "config.json"
    config = json.loads(path.read_text().replace(str(store.root), str(tmp_path)))
    section, name = key.split(".")
    config[section][name] = value
    path.write_text(json.dumps(config))
    if (key, state) == ("data.train", "queued"):  # the whole paths are compared
        shown = f"data.train = {value}, and claim turns needs {tmp_path.anchor}"
    with pytest.raises(RunError, match=re.escape(f"run {run_id}: its config has {shown}")):
        reproduce(turns, copies, Counting(), form="small")


@pytest.mark.parametrize(("state", "is_refused"), [("done", False), ("queued", True)])
def test_only_a_finished_run_may_have_read_its_data_in_another_folder(
    turns: Claim, store: RunStore, finding: dict[str, Any], tmp_path: Path, state: str, is_refused: bool
) -> None:
    run_id = next(one for one in finding["arms"] if one["name"] == "first")["runs"][0]["run"]
    copies = copy_of_runs(store, finding, tmp_path)
    copies.get(run_id).update_status(state=state)
    with pytest.raises(RunError, match=r"its config has data\.train = ") if is_refused else nullcontext():
        reproduce(turns, copies, Counting(), form="small")


def test_runs_of_another_folder_version_and_machine_are_used(
    turns: Claim, store: RunStore, finding: dict[str, Any], tmp_path: Path
) -> None:
    copies, counting = copy_of_runs(store, finding, tmp_path), Counting()
    for run in copies.list():
        config = json.loads((run.folder / "config.json").read_text())
        training = config["training"]
        training["steps"] = training.pop("max_steps")  # its name in earlier versions
        training["threads"] = 4
        config["encoder"]["unpadded"] = True
        del config["evaluation"]["general"]  # a key that they lack
        (run.folder / "config.json").write_text(json.dumps(config))
    assert reproduce(turns, copies, counting, form="small")["statements"] == finding["statements"]
    assert counting.ids == []


def test_parallel_processes_train_every_run(tmp_path: Path) -> None:
    options = ["--form", "small", "--processes", "2", "--runs", str(tmp_path), "--json"]
    command = [sys.executable, "-m", "bsc_core.cli", "reproduce", "negatives_cqa_a", "negatives_cqa_a_weak", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    findings = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    store, counting = RunStore(tmp_path), Counting()
    for name, finding in findings.items():
        assert reproduce(CLAIMS[name], store, counting, form="small")["statements"] == finding["statements"]
    assert list(map(len, (findings, store.list(), counting.ids))) == [2, 8, 0]


def test_claims_share_their_runs(turns: Claim, store: RunStore, finding: dict[str, Any]) -> None:
    counting = Counting()
    arm = turns.arms["first"].model_copy(update={"title": "The same"})
    fewer = turns.model_copy(update={"name": "other", "arms": {"again": arm}, "statements": ()})
    finding = reproduce(fewer, store, counting, form="small")
    assert counting.ids == []
    assert finding["verdict"] == "inconclusive"


def test_an_interrupted_reproduction_resumes_with_the_runs_that_are_missing(turns: Claim, tmp_path: Path) -> None:
    store, failing, resumed = RunStore(tmp_path), Counting(failing=2), Counting()
    with pytest.raises(RunError, match="is failed: the disk is full"):
        reproduce(turns, store, failing, form="small")
    progress = read_progress("turns", tmp_path, "small")
    assert progress is not None
    assert (progress["done"], progress["of"]) == (1, 6)
    assert "the disk is full" in progress["error"]
    reproduce(turns, store, resumed, form="small")
    assert len(resumed.ids) == 5
    assert failing.ids[0] not in resumed.ids
    assert f"{failing.ids[1]}-2" in resumed.ids  # the failed run is not changed
    assert read_progress("turns", tmp_path, "small") == {"done": 6, "of": 6, "doing": "", "error": None}


def test_only_one_process_reproduces_a_claim(turns: Claim, tmp_path: Path) -> None:
    (tmp_path / "findings").mkdir()
    with (
        FileLock(tmp_path / "findings" / ".turns-small.lock"),
        pytest.raises(InputError, match="is being reproduced by another process"),
    ):
        reproduce(turns, RunStore(tmp_path), Counting(), form="small")


def test_an_id_depends_on_the_settings_and_not_on_the_runs_folder(turns: Claim, tmp_path: Path) -> None:
    one, two = (plan_runs(turns, "small", data=None, runs=tmp_path / name) for name in ("one", "two"))
    assert [plan.id for plan in one] == [plan.id for plan in two]
    assert len({plan.id for plan in one}) == 6
    values = {**turns.values, "training": {"learning_rate": 1e-5}, "encoder": {"max_seq_length": 32}}
    changed = plan_runs(turns.model_copy(update={"values": values}), "small", data=None, runs=tmp_path)
    assert not {plan.id for plan in one} & {plan.id for plan in changed}


def test_an_arm_is_planned_after_the_one_that_it_starts_from(turns: Claim, tmp_path: Path) -> None:
    assert [plan.arm for plan in plan_runs(turns, "small", data=None, runs=tmp_path)][:3] == ["first", "warm", "second"]
    orphan = Arm(title="MSE", values={"loss": {"name": "mse"}}, after="nowhere")
    lost = turns.model_copy(update={"arms": {"second": orphan}})
    with pytest.raises(ConfigError, match="arm second starts from 'nowhere', which is not an arm"):
        plan_runs(lost, "small", data=None, runs=tmp_path)


def test_a_named_loss_replaces_the_one_below() -> None:
    below = {"loss": {"name": "bsc", "temperature": 0.1}, "training": {"max_steps": 5}}
    assert merge_sections([below, {"loss": {"temperature": 1.0}}])["loss"] == {"name": "bsc", "temperature": 1.0}
    assert merge_sections([below, {"loss": {"name": "mse"}}])["loss"] == {"name": "mse"}
    assert merge_sections([below, {"training": {"batch_size": 8}}])["training"] == {"max_steps": 5, "batch_size": 8}
