"""Merged models of trained runs: the curve, what is saved, averages of seeds and of checkpoints, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from bsc_core import cli
from bsc_core.config import RunConfig
from bsc_core.data import load_data
from bsc_core.encoders.merging import Weights, average_weights, copy_weights, interpolate
from bsc_core.encoders.pretrained import load_folder
from bsc_core.errors import InputError
from bsc_core.jobs import trash
from bsc_core.jobs.actions import merging
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import GENERAL_SCORE
from bsc_core.training.checkpoint import checkpoints
from bsc_core.users.access import ACCESS
from bsc_core.users.accounts import SHARED, USERS_FILE, add_user
from tests.helpers.configs import with_changes


def conduct(config: RunConfig, store: RunStore, name: str) -> Run:
    run = store.create(config, name)
    run_experiment(config, run)
    run.update_status(state="done")
    return run


@pytest.fixture
def run(small_config: RunConfig, tmp_path: Path) -> Run:
    config = with_changes(small_config, training={"learning_rate": 0.01, "epochs": 2, "save_total_limit": 3})
    return conduct(config, RunStore(tmp_path / "runs"), "run-0")


def merge(capsys: pytest.CaptureFixture[str], run: Run, *arguments: str) -> tuple[int, dict]:
    status = cli.main(["merge", *arguments, "--runs", str(run.folder.parent), "--json"])
    output = capsys.readouterr().out
    return status, json.loads(output)


def vectors(folder: Path, run: Run) -> np.ndarray:
    texts = list(load_data(run.config().data).texts)
    return SentenceTransformer(str(folder), device="cpu").encode(texts)


def state(folder: Path) -> Weights:
    return copy_weights(load_folder(folder, 32))


def test_the_curve_starts_at_the_start_and_ends_at_the_trained_model(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, report = merge(capsys, run, run.id, "--alpha", "0.25", "--output", str(tmp_path / "merged"))
    assert status == 0
    first, middle, last = report["points"]
    assert [point["alpha"] for point in report["points"]] == [0, 0.25, 1]
    metric = report["metric"]
    assert first["dev"] == pytest.approx(run.evaluation("before")["dev"][metric])
    assert last["dev"] == pytest.approx(run.evaluation("after")["dev"][metric])
    assert all(-1 <= point[GENERAL_SCORE] <= 1 for point in report["points"])

    start, trained = state(Path(run.config().encoder.name)), state(run.model_folder)
    model = SentenceTransformer(str(tmp_path / "merged"), device="cpu")
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            slow = 0.75 * start[name].double() + 0.25 * trained[name].double()
            assert np.allclose(value.double(), slow, rtol=0, atol=1e-7), name
    assert "0.25" in (tmp_path / "merged" / "README.md").read_text(encoding="utf-8")
    evaluator = merging.Candidates(run).evaluator
    values = evaluator.evaluate(vectors(tmp_path / "merged", run))["dev"][metric]
    assert middle["dev"] == pytest.approx(values)
    status, report = merge(capsys, run, run.id, "--output", str(tmp_path / "merged"))
    assert (status, "give a new one" in report["error"]) == (2, True)


def test_a_deleted_run_gets_no_merged_model(run: Run) -> None:
    candidates = merging.Candidates(run)
    point = candidates.evaluate(candidates.trained)
    trash(run.store, run)
    with pytest.raises(InputError, match="was deleted"):
        candidates.save(candidates.trained, merging.merged_folder(run, 0.5), "title", {}, point)
    assert not run.folder.exists()


def test_a_merged_model_beyond_the_disk_quota_of_the_owner_is_not_saved(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARED, str(run.folder.parent))
    add_user(run.folder.parent, "ben", "member")
    file = run.folder.parent / USERS_FILE
    file.write_text(file.read_text() + "\n[users.ben.quota]\ndisk_gb = 1e-6\n")
    merging.check_run_disk(run, 10**9)  # of the owner of the app
    run.write_signed(ACCESS, {"owner": "ben"})
    with pytest.raises(InputError, match=r"of 1e-06 GB"):
        merging.perform(tmp_path, {"run": str(run.folder), "alpha": 0.5})
    candidates = merging.Candidates(run)  # in another session, after a first check
    point = candidates.evaluate(candidates.trained)
    with pytest.raises(InputError, match=r"of 1e-06 GB"):
        candidates.save(candidates.trained, merging.merged_folder(run, 0.5), "title", {}, point)
    assert not run.merged_folder.exists()


def test_averages_of_seeds_and_of_checkpoints(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = conduct(with_changes(run.config(), training={"seed": 1}), run.store, "run-1")
    status, report = merge(capsys, run, run.id, other.id, "--output", str(tmp_path / "soup"))
    assert status == 0
    assert [point["model"] for point in report["points"]] == ["run-0", "run-1", "average"]
    expected = average_weights([state(run.model_folder), state(other.model_folder)])
    assert all(bool((value == expected[name]).all()) for name, value in state(tmp_path / "soup").items())

    status, report = merge(capsys, run, run.id, "--last-checkpoints", "2", "--output", str(tmp_path / "last"))
    names = [folder.name for folder in checkpoints(run.checkpoints_folder)]
    assert [point["model"] for point in report["points"]] == [*names, "average"]
    expected = average_weights([state(folder / "model") for folder in checkpoints(run.checkpoints_folder)])
    assert all(bool((value == expected[name]).all()) for name, value in state(tmp_path / "last").items())

    status, report = merge(capsys, run, run.id, other.id, "--alpha", "0.5", "--output", str(tmp_path / "half"))
    assert (status, report["models"]) == (0, ["run-0", "run-1"])
    assert [point["alpha"] for point in report["points"]] == [0, 0.5, 1]
    half = interpolate(state(Path(run.config().encoder.name)), state(tmp_path / "soup"), 0.5)
    for name, value in state(tmp_path / "half").items():
        assert np.allclose(value.double(), half[name].double(), rtol=0, atol=1e-7), name

    for arguments, error in (
        ((run.id, "--last-checkpoints", "9"), "has 2 checkpoints, and 9 are to be averaged"),
        ((run.id, other.id, "--alpha", "half"), "'half' is neither a number from 0 to 1 nor auto"),
        ((run.id, other.id, "--last-checkpoints", "2"), "name one run"),
        (("missing",), "run missing"),
    ):
        status, report = merge(capsys, run, *arguments)
        assert (status, error in report["error"]) == (2, True), report
    config = with_changes(run.config(), training={"learning_rate": 0.5}).model_dump(mode="json")
    other.write_json("config", config)
    status, report = merge(capsys, run, run.id, other.id)
    assert "differ in training.learning_rate" in report["error"]
    other.write_json("config", with_changes(run.config(), encoder={"reinit_layers": 1}).model_dump(mode="json"))
    status, report = merge(capsys, run, other.id)
    assert (status, "its start has random layers" in report["error"]) == (2, True)


@pytest.mark.parametrize(
    ("name", "content", "expected", "error"),
    [
        ("evaluation/before", {}, 2, "do not define any of its defaults; metrics they define: none"),
        ("evaluation/before", {"dev": {"x" * 400_000: 0.1}}, 1, "before.json"),
        ("result", {"precision": "fp9"}, 1, "result.json"),
    ],
)
def test_a_damaged_run_is_not_merged(
    run: Run, capsys: pytest.CaptureFixture[str], name: str, content: object, expected: int, error: str
) -> None:
    (run.folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    status, report = merge(capsys, run, run.id)
    assert (status, error in report["error"]) == (expected, True), report["error"][:500]
    assert len(report["error"]) < 1_000


def test_a_point_above_the_suggested_alpha_is_also_evaluated(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def evaluate(candidates: merging.Candidates, weights: Weights) -> merging.Point:
        name, trained = next((name, value) for name, value in candidates.trained.items() if value.is_floating_point())
        moved = (weights[name] - candidates.start[name]).norm() / (trained - candidates.start[name]).norm()
        return {"dev": float(moved), GENERAL_SCORE: 0.8 - 0.01 * float(moved), "metrics": {}}

    monkeypatch.setattr(merging.Candidates, "evaluate", evaluate)
    report = merging.merge_curve([run], (0, 0.25, 0.5, 1), tolerance=0.004)
    assert [point["alpha"] for point in report["points"]] == [0, 0.25, 0.375, 0.5, 1]
    assert report["suggested"] == 0.375
    assert merging.merge_curve([run], (0, 0.5, 1), tolerance=0.02)["suggested"] == 1


def test_the_suggested_alpha_has_the_best_dev_metric_within_the_tolerance() -> None:
    def points(*values: tuple[float, float, float | None]) -> list[dict]:
        return [dict(zip(("alpha", "dev", GENERAL_SCORE), value, strict=True)) for value in values]

    curve = points((0, 0.5, 0.80), (0.4, 0.6, 0.798), (0.5, 0.6, 0.797), (0.7, 0.65, 0.78), (1, 0.7, 0.7))
    assert merging.suggest(curve, 0.005)["alpha"] == 0.4
    assert merging.suggest(curve, 0.02)["alpha"] == 0.7
    assert merging.suggest(points((0, 0.5, None), (1, 0.7, None)), 0.0)["alpha"] == 1
