"""Plans of a child process: equal to plans built here; errors are reported, no partial file remains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bsc_core.batching import PlanStats, build_plan, plan_stats
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset, read_pairs
from bsc_core.data.decisions import Decision, with_decisions
from bsc_core.preparation.plan_task import PlanItem, load_rows, main, plan_file, refused_file, request_folder, save_rows

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def dataset(small_pairs: Path) -> PairDataset:
    return read_pairs(small_pairs)


@pytest.fixture
def vectors(dataset: PairDataset, tmp_path: Path) -> Path:
    path = tmp_path / "vectors.npy"
    np.save(path, np.random.default_rng(2).normal(size=(len(dataset.texts), 8)).astype(np.float32))
    return path


def ask(folder: Path, dataset: PairDataset, items: list[PlanItem], encoder: dict[str, object] | None = None) -> Path:
    save_rows(dataset, folder / "rows.npz")
    request = request_folder(folder, "one")
    request.mkdir(parents=True)
    text = json.dumps({"encoder": encoder, "items": [asdict(item) for item in items]})
    (request / "request.json").write_text(text, encoding="utf-8")
    return request


def test_saved_rows_are_loaded_unchanged(dataset: PairDataset, tmp_path: Path) -> None:
    marked = with_decisions(
        dataset, [Decision(dataset.texts[int(dataset.query[0])], dataset.texts[int(dataset.document[9])])]
    )
    save_rows(marked, tmp_path / "rows.npz")
    again = load_rows(tmp_path / "rows.npz")
    assert again.digest == marked.digest
    assert again.marked_pairs.tolist() == marked.marked_pairs.tolist()
    assert again.texts == marked.texts
    np.testing.assert_array_equal(again.positive, marked.positive)


def test_a_child_process_builds_the_same_plans(dataset: PairDataset, vectors: Path, tmp_path: Path) -> None:
    configs = [BatchingConfig(strategy=name, group_size=4) for name in ("examples", "words")]
    items = [
        PlanItem(config.strategy, 8, config.model_dump(mode="json"), 3, 1, vectors=str(vectors)) for config in configs
    ]
    request = ask(tmp_path / "plans", dataset, items)
    command = [sys.executable, "-m", "bsc_core.preparation.plan_task", str(request)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    array = np.load(vectors)
    for config in configs:
        build = partial(build_plan, config, dataset, array, seed=3, epoch=1)
        here = plan_stats(build, dataset, array, 8)
        there = PlanStats.load(plan_file(tmp_path / "plans", config.strategy))
        np.testing.assert_array_equal(there.plan.order, here.plan.order)
        np.testing.assert_array_equal(there.hardness.hardest, here.hardness.hardest)
        assert there.hardness.collisions == here.hardness.collisions
    report = json.loads((request / "progress.json").read_text(encoding="utf-8"))
    assert report["done"] == report["total"]
    assert report["error"] is None


def test_a_saved_plan_gets_statistics_and_texts_are_encoded_on_request(
    dataset: PairDataset, tiny_encoder: Path, tmp_path: Path
) -> None:
    plan = build_plan(BatchingConfig(strategy="random"), dataset, seed=5, epoch=0)
    plan.save(tmp_path / "epoch-001.npz")
    item = PlanItem("own", 8, saved=str(tmp_path / "epoch-001.npz"))
    request = ask(tmp_path / "plans", dataset, [item], {"name": str(tiny_encoder), "max_seq_length": 32})
    assert main([str(request)]) == 0
    result = PlanStats.load(plan_file(tmp_path / "plans", "own"))
    np.testing.assert_array_equal(result.plan.order, plan.order)
    assert np.isfinite(result.hardness.pair_similarity).all()


def test_a_refused_plan_is_reported_and_the_others_are_built(
    dataset: PairDataset, vectors: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "broken.npy", np.full_like(np.load(vectors), np.nan))
    bad, good = (BatchingConfig(strategy=name).model_dump(mode="json") for name in ("clusters", "random"))
    items = [
        PlanItem("bad", 8, bad, vectors=str(tmp_path / "broken.npy")),
        PlanItem("good", 8, good, vectors=str(vectors)),
    ]
    request = ask(tmp_path / "plans", dataset, items)
    assert main([str(request)]) == 0
    assert "not finite" in refused_file(request, "bad").read_text(encoding="utf-8")
    assert not plan_file(tmp_path / "plans", "bad").exists()
    assert plan_file(tmp_path / "plans", "good").is_file()


def test_a_failing_child_reports_its_error_and_leaves_no_plan(dataset: PairDataset, tmp_path: Path) -> None:
    item = PlanItem("lost", 8, saved=str(tmp_path / "nowhere.npz"), vectors=str(tmp_path / "nothing.npy"))
    request = ask(tmp_path / "plans", dataset, [item])
    with pytest.raises(FileNotFoundError):
        main([str(request)])
    assert "nothing.npy" in json.loads((request / "progress.json").read_text(encoding="utf-8"))["error"]
    assert not plan_file(tmp_path / "plans", "lost").exists()
