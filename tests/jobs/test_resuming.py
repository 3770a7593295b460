"""A run that is killed and resumed ends as if it had never been killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bsc_core.config import make_config
from bsc_core.errors import CheckpointError, InputError, JobError
from bsc_core.jobs.resuming import can_resume, continue_run, resume
from bsc_core.jobs.worker import main
from bsc_core.runs import Run, RunStore
from bsc_core.training.checkpoint import checkpoints, last_checkpoint

ROOT = Path(__file__).resolve().parents[2]
KILLER = """
import os, signal, sys
from bsc_core.jobs import worker
from bsc_core.training import checkpoint
from bsc_core import pipeline

step, syncs = int(sys.argv[2]), int(sys.argv[3])
seen = 0

class Journal(pipeline.Journal):
    def step(self, report):
        super().step(report)
        if report.step == step and not syncs:
            os.kill(os.getpid(), signal.SIGKILL)

def sync(path):
    global seen
    seen += 1
    if seen == syncs:
        os.kill(os.getpid(), signal.SIGKILL)

pipeline.Journal = Journal
if syncs:
    checkpoint._sync = sync
worker.main(sys.argv[1])
"""


def config_of(encoder: Path, loss: dict, batching: dict):
    return make_config(
        {
            "data": {"train": str(ROOT / "sample_data" / "pairs.tsv")},
            "encoder": {"name": str(encoder), "max_length": 16},
            "batching": {"group_size": 4, **batching},
            "loss": loss,
            "training": {
                **{"epochs": 3, "batch_size": 64, "learning_rate": 1e-2, "threads": 1, "precision": "fp32"},
                "checkpoint_steps": 4,
            },
        }
    )


def performed(store: RunStore, config) -> Run:
    run = store.create(config)
    assert main(run.folder) == 0
    return run


def killed(store: RunStore, config, *, step: int = 0, syncs: int = 0) -> Run:
    """A run whose process ends by SIGKILL after a step, or on the way through a checkpoint's files."""
    run = store.create(config)
    command = [sys.executable, "-c", KILLER, str(run.folder), str(step), str(syncs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, capture_output=True, check=False, timeout=200)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    run.update_status(state="lost")
    return run


def resumed(store: RunStore, run: Run) -> Run:
    following = continue_run(store, run)
    assert main(following.folder) == 0, following.status().error
    assert following.status().resumed_from == run.id
    return following


def weights(run: Run) -> dict[str, np.ndarray]:
    return load_file(str(next(run.model_folder.rglob("model.safetensors"))))


def assert_same_end(run: Run, other: Run) -> None:
    one, two = weights(run), weights(other)
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[name], two[name]) for name in one)
    ends = [
        {name: run.read_json("result")[name] for name in ("metrics", "best_epoch", "state")} for run in (run, other)
    ]
    assert ends[0] == ends[1]
    curves = [[line["loss"] for line in run.metrics()[0] if line["kind"] == "step"] for run in (run, other)]
    assert curves[0] == curves[1]
    newest = [
        load_file(str(checkpoints(run.checkpoints_folder)[-1] / "model" / "model.safetensors")) for run in (run, other)
    ]
    assert all(np.array_equal(newest[0][name], newest[1][name]) for name in newest[0])


CASES = {
    "learned temperature, examples": ({"name": "bsc", "learn_temperature": True}, {"strategy": "examples"}),
    "reused vectors": ({"name": "combined"}, {"strategy": "examples", "refresh": "reuse"}),
    "clusters of every second epoch": ({"name": "bsc"}, {"strategy": "clusters", "clusters": 8, "refresh_epochs": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_ends_with_the_same_bits(tiny_encoder: Path, tmp_path: Path, name: str) -> None:
    config = config_of(tiny_encoder, *CASES[name])
    whole = performed(RunStore(tmp_path / "whole"), config)
    step = int(np.random.default_rng(len(name)).integers(5, whole.status().step))
    store = RunStore(tmp_path / "killed")
    assert_same_end(resumed(store, killed(store, config, step=step)), whole)


def test_a_kill_within_a_checkpoint_leaves_the_one_before(tiny_encoder: Path, tmp_path: Path) -> None:
    config = config_of(tiny_encoder, {"name": "bsc"}, {"strategy": "random"})
    whole = performed(RunStore(tmp_path / "whole"), config)
    files = sum(1 for _ in checkpoints(whole.checkpoints_folder)[-1].rglob("*")) + 2
    store = RunStore(tmp_path / "killed")
    run = killed(store, config, syncs=files + 3)  # within the second checkpoint
    assert [path.name for path in checkpoints(run.checkpoints_folder)] == ["step-000004"]
    assert_same_end(resumed(store, run), whole)


def test_a_run_killed_after_its_last_step_is_only_finished(tiny_encoder: Path, tmp_path: Path) -> None:
    config = config_of(tiny_encoder, {"name": "bsc"}, {"strategy": "random"})
    store = RunStore(tmp_path)
    whole = performed(store, config)
    (whole.folder / "result.json").unlink()
    whole.update_status(state="lost", pid=None)
    following = resumed(store, whole)
    assert all(np.array_equal(value, weights(following)[name]) for name, value in weights(whole).items())


def test_a_damaged_checkpoint_is_named_and_the_one_before_used(tiny_encoder: Path, tmp_path: Path, capfd) -> None:
    run = performed(RunStore(tmp_path), config_of(tiny_encoder, {"name": "bsc"}, {"strategy": "random"}))
    before, newest = checkpoints(run.checkpoints_folder)
    weights_file = newest / "model" / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:100])
    found = last_checkpoint(run.checkpoints_folder)
    assert found is not None
    assert found.folder == before
    assert f"{newest.name}: this checkpoint cannot be read" in capfd.readouterr().err
    (before / "state.pt").write_bytes(b"no state")
    with pytest.raises(CheckpointError, match="none of its 2 checkpoint"):
        last_checkpoint(run.checkpoints_folder)


def test_a_run_whose_newest_checkpoint_is_damaged_ends_with_the_same_bits_and_curve(
    tiny_encoder: Path, tmp_path: Path
) -> None:
    config = config_of(tiny_encoder, {"name": "bsc"}, {"strategy": "random"})
    whole = performed(RunStore(tmp_path / "whole"), config)
    store = RunStore(tmp_path / "killed")
    run = killed(store, config, step=whole.status().step - 1)
    (checkpoints(run.checkpoints_folder)[-1] / "state.pt").write_bytes(b"no state")
    following = resumed(store, run)
    assert_same_end(following, whole)
    told = [
        [(line["kind"], line.get("step"), line["epoch"]) for line in one.metrics()[0]] for one in (following, whole)
    ]
    assert told[0] == told[1]


def test_a_newest_checkpoint_that_does_not_say_where_it_stands_is_passed_over(small_config, tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = store.create(small_config)
    for step, words in ((2, json.dumps({"step": 2, "epoch": 1, "ends_epoch": False})), (4, '{"step"')):
        folder = run.checkpoints_folder / f"step-{step:06d}"
        folder.mkdir(parents=True)
        (folder / "progress.json").write_text(words, encoding="utf-8")
        run.append_metrics({"kind": "step", "step": step, "epoch": 1})
    with run.metrics_file.open("ab") as file:
        file.write(b"torn\n")
    run.update_status(state="stopped")
    following = continue_run(store, run)
    assert [line["step"] for line in following.metrics()[0]] == [2]
    (run.checkpoints_folder / "step-000002" / "progress.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="none of its checkpoints can be read"):
        continue_run(store, run)
    assert len(store.list()) == 2


def test_a_run_that_cannot_be_copied_leaves_none_half_made(small_config, tmp_path: Path, monkeypatch) -> None:
    store = RunStore(tmp_path)
    run = store.create(small_config)
    folder = run.checkpoints_folder / "step-000002"
    folder.mkdir(parents=True)
    (folder / "progress.json").write_text(json.dumps({"step": 2, "epoch": 1, "ends_epoch": False}), encoding="utf-8")
    run.update_status(state="stopped")

    def full(*where: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bsc_core.jobs.resuming._copy", full)
    with pytest.raises(JobError, match=r"could not be copied .* free disk space"):
        continue_run(store, run)
    assert [found.id for found in store.list()] == [run.id]


def test_what_cannot_be_resumed_is_said_in_one_sentence(small_config, tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = store.create(small_config)
    with pytest.raises(InputError, match="is queued; stop it first"):
        continue_run(store, run)
    run.update_status(state="done")
    with pytest.raises(InputError, match="is done"):
        continue_run(store, run)
    run.update_status(state="lost")
    assert not can_resume(run)
    with pytest.raises(InputError, match="left no checkpoint"):
        continue_run(store, run)
    assert len(store.list()) == 1


def test_resuming_queues_a_new_run(small_config, tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run = store.create(small_config)
    folder = run.checkpoints_folder / "step-000002"
    folder.mkdir(parents=True)
    (folder / "progress.json").write_text(json.dumps({"step": 2, "epoch": 1, "ends_epoch": False}), encoding="utf-8")
    for step in (1, 2, 3):
        run.append_metrics({"kind": "step", "step": step, "epoch": 1})
    run.update_status(state="stopped")
    assert can_resume(run)
    started: list[RunStore] = []
    following = resume(store, run, start=started.append)
    assert started == [store]
    assert following.id != run.id
    assert following.status().state == "queued"
    assert [line["step"] for line in following.metrics()[0]] == [1, 2]
