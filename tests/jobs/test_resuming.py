"""A killed and resumed run ends as if it had not been killed."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from bsc_core.config import make_config
from bsc_core.errors import CheckpointError, InputError, JobError
from bsc_core.jobs import Queue, launch, stop
from bsc_core.jobs.actions.resuming import _check_disk_size, _copy, can_resume, continue_run, resume
from bsc_core.jobs.worker import main
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import EVALUATION_SIZES
from bsc_core.runs.store import without_resumed
from bsc_core.training.checkpoint import checkpoints, last_checkpoint
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.helpers.warm_processes import WarmProcess
from tests.jobs.conftest import add_checkpoint

ROOT = Path(__file__).resolve().parents[2]
KILLER = """
import os, signal, sys
from bsc_core import files, pipeline
from bsc_core.jobs import worker

step, syncs = int(sys.argv[2]), int(sys.argv[3])
synced = {}

class RunLogger(pipeline.RunLogger):
    def on_step_end(self, trainer, report):
        super().on_step_end(trainer, report)
        if report.step == step and not syncs:
            os.kill(os.getpid(), signal.SIGKILL)

def sync(path):
    for part in path.parts:
        if part.startswith(".step-"):
            synced[part] = synced.get(part, 0) + 1
            if len(synced) == 2 and synced[part] == syncs:
                os.kill(os.getpid(), signal.SIGKILL)

pipeline.RunLogger = RunLogger
if syncs:
    files.sync = sync
worker.main(sys.argv[1])
"""


def config_of(encoder: Path, loss: dict, batching: dict):
    return make_config(
        {
            "data": {"train": str(ROOT / "sample_data" / "pairs.tsv")},
            "encoder": {"name": str(encoder), "max_seq_length": 16},
            "batching": {"group_size": 4, **batching},
            "loss": loss,
            "training": {
                **{"epochs": 3, "batch_size": 64, "learning_rate": 1e-2, "threads": 1, "precision": "fp32"},
                "save_steps": 4,
            },
        }
    )


def performed(store: RunStore, config) -> Run:
    run = store.create(config)
    assert main(run.folder) == 0
    return run


def killed(store: RunStore, config, *, step: int = 0, syncs: int = 0) -> Run:
    """Return a run whose process ended by SIGKILL after a step, or while it wrote a checkpoint."""
    run = store.create(config)
    process = WarmProcess(KILLER, run.folder, step, syncs, output=store.root / "killed")
    assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL, process.stderr
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
    "learned temperature, examples": ({"name": "bsc", "learn_temperature": True}, {"strategy": "nearest"}),
    "reused vectors": ({"name": "combined"}, {"strategy": "nearest", "refresh": "reuse"}),
    "clusters of every second epoch": ({"name": "bsc"}, {"strategy": "clusters", "clusters": 8, "refresh_epochs": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_killed_run_ends_with_the_same_bits(tiny_encoder, tmp_path, name):
    config = config_of(tiny_encoder, *CASES[name])
    complete = performed(RunStore(tmp_path / "complete"), config)
    step = int(np.random.default_rng(len(name)).integers(5, complete.status().step))
    store = RunStore(tmp_path / "killed")
    assert_same_end(resumed(store, killed(store, config, step=step)), complete)


def test_a_kill_within_a_checkpoint_leaves_the_one_before(tiny_encoder, tmp_path):
    config = config_of(tiny_encoder, {"name": "bsc"}, {"strategy": "random"})
    complete = performed(RunStore(tmp_path / "complete"), config)
    store = RunStore(tmp_path / "killed")
    run = killed(store, config, syncs=3)  # at the third file of the second checkpoint
    assert [path.name for path in checkpoints(run.checkpoints_folder)] == ["step-000004"]
    assert_same_end(resumed(store, run), complete)


def test_a_run_killed_after_its_last_step_is_only_finished(tiny_encoder, tmp_path):
    config = config_of(tiny_encoder, {"name": "bsc"}, {"strategy": "random"})
    store = RunStore(tmp_path)
    complete = performed(store, config)
    (complete.folder / "result.json").unlink()
    complete.update_status(state="lost", pid=None)
    following = resumed(store, complete)
    assert all(np.array_equal(value, weights(following)[name]) for name, value in weights(complete).items())


def test_a_damaged_checkpoint_is_reported_and_the_previous_one_used(tiny_encoder, tmp_path, capfd):
    run = performed(RunStore(tmp_path), config_of(tiny_encoder, {"name": "bsc"}, {"strategy": "random"}))
    before, newest = checkpoints(run.checkpoints_folder)
    weights_file = newest / "model" / "model.safetensors"
    weights_file.write_bytes(weights_file.read_bytes()[:100])
    result = last_checkpoint(run.checkpoints_folder)
    assert result.folder == before
    assert f"{newest.name}: this checkpoint cannot be read" in capfd.readouterr().err
    (before / "state.pt").write_bytes(b"no state")
    with pytest.raises(CheckpointError, match="none of its 2 checkpoint"):
        last_checkpoint(run.checkpoints_folder)


def test_a_run_whose_newest_checkpoint_is_damaged_ends_with_the_same_bits_and_curve(tiny_encoder, tmp_path):
    config = config_of(tiny_encoder, {"name": "bsc"}, {"strategy": "random"})
    complete = performed(RunStore(tmp_path / "complete"), config)
    store = RunStore(tmp_path / "killed")
    run = killed(store, config, step=complete.status().step - 1)
    (checkpoints(run.checkpoints_folder)[-1] / "state.pt").write_bytes(b"no state")
    following = resumed(store, run)
    assert_same_end(following, complete)
    reported = [
        [(line["kind"], line.get("step"), line["epoch"]) for line in one.metrics()[0]] for one in (following, complete)
    ]
    assert reported[0] == reported[1]


def test_a_checkpoint_without_a_position_is_skipped(small_config, tmp_path):
    store = RunStore(tmp_path)
    run = store.create(small_config)
    for step in (2, 4):
        add_checkpoint(run, step)
        run.append_metrics({"kind": "step", "step": step, "epoch": 1})
    (run.checkpoints_folder / "step-000004" / "progress.json").write_text('{"step"', encoding="utf-8")
    with run.metrics_file.open("ab") as file:
        file.write(b"torn\n")
    run.update_status(state="stopped")
    following = continue_run(store, run)
    assert [line["step"] for line in following.metrics()[0]] == [2]
    (run.checkpoints_folder / "step-000002" / "progress.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InputError, match="none of its checkpoints can be read"):
        continue_run(store, run)
    assert len(store.list()) == 2


def test_a_run_that_cannot_be_copied_leaves_no_partial_run(small_config, tmp_path, monkeypatch):
    store = RunStore(tmp_path)
    run = store.create(small_config)
    add_checkpoint(run)
    run.update_status(state="stopped")

    def full(*where):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("bsc_core.jobs.actions.resuming._copy", full)
    with pytest.raises(JobError, match=r"could not be copied .* free disk space"):
        continue_run(store, run)
    assert [result.id for result in store.list()] == [run.id]


def test_errors_of_resume_are_clear(small_config, tmp_path):
    store = RunStore(tmp_path)
    run = store.create(small_config)
    with pytest.raises(InputError, match="is queued; stop it first"):
        continue_run(store, run)
    run.update_status(state="done")
    with pytest.raises(InputError, match="is done"):
        continue_run(store, run)
    run.update_status(state="lost")
    assert not can_resume(run)
    with pytest.raises(InputError, match="has no checkpoint"):
        continue_run(store, run)
    assert len(store.list()) == 1


def test_resuming_queues_a_new_run(small_config, tmp_path):
    store = RunStore(tmp_path)
    run = store.create(small_config)
    add_checkpoint(run)
    for step in (1, 2, 3):
        run.append_metrics({"kind": "step", "step": step, "epoch": 1})
    for name in ("before", "after", "epoch-1"):
        run.write_evaluation(name, {"dev": {"mrr": 0.5}})
    run.write_json(EVALUATION_SIZES, {})
    run.update_status(state="stopped")
    assert can_resume(run)
    started: list[RunStore] = []
    following = resume(store, run, start=started.append)
    assert started == [store]
    assert following.id != run.id
    assert following.status().state == "queued"
    assert [line["step"] for line in following.metrics()[0]] == [1, 2]
    assert following.evaluation("before") == following.evaluation("epoch-1") == {"dev": {"mrr": 0.5}}
    assert following.evaluation("after") == {}  # written when it ends
    assert following.read_json(EVALUATION_SIZES) is None


def test_a_run_that_was_stopped_in_the_queue_is_queued_again(small_config, tmp_path):
    store = RunStore(tmp_path)
    waiting = launch(store, small_config, "waiting", start=lambda store: None)
    waiting.update_status(group="20260101-000000-sweep")
    stop(waiting)
    assert (waiting.status().state, waiting.status().step) == ("stopped", 0)
    assert can_resume(waiting)
    again = resume(store, waiting, start=lambda store: None)
    assert (again.status().state, again.status().group) == ("queued", "20260101-000000-sweep")
    assert again.config() == waiting.config()
    assert again.resumed_run == waiting.id
    assert Queue(store.root).snapshot().waiting[-1] == again.id
    assert resume(store, waiting, start=lambda store: None).id == again.id
    assert [run.id for run in without_resumed(store.list())] == [again.id]


def test_a_run_of_a_group_that_was_stopped_before_its_first_step_is_queued_with_its_number(small_config, tmp_path):
    store, group = RunStore(tmp_path), "20260101-000000-sweep-4efb"
    run = store.create(small_config, f"{group}-005-temperature-0.2")
    run.update_status(group=group, started=1.0, state="stopped")
    assert can_resume(run)
    for _ in range(2):  # the second time, of the run that resumed the first one
        again = resume(store, run, start=lambda store: None)
        assert re.fullmatch(r"\d{8}-\d{6}-sweep-4efb-005-temperature-0\.2-[0-9a-f]{4}", again.id)
        assert again.status().group == group
        again.update_status(state="stopped")
        run = again
    run.update_status(step=1)
    assert not can_resume(run)


def test_sparse_files_are_not_copied(store, config):
    run = store.create(config, "one")
    (run.folder / "model").mkdir()
    path = run.folder / "model" / "model.safetensors"
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(JobError, match=r"run one has sparse files or hard links"):
        _check_disk_size(run, ["plans", "model"])


@pytest.mark.parametrize("make", ["sparse", "hard links"])
def test_many_files_that_need_little_of_the_disk_are_not_copied(store, config, make):
    run = store.create(config, "one")
    (run.folder / "plans").mkdir()
    (run.folder / "plans" / "first.npy").write_bytes(bytes(2**20))
    for number in range(300):
        path = run.folder / "plans" / f"{number}.npy"
        if make == "sparse":
            path.touch()
            os.truncate(path, 2**20)
        else:
            os.link(run.folder / "plans" / "first.npy", path)
    with pytest.raises(JobError, match=r"run one has sparse files or hard links"):
        _check_disk_size(run, ["plans", "model"])
    (run.folder / "linked").symlink_to(run.folder / "plans")
    _check_disk_size(run, ["linked"])  # links are not copied
    for path in list((run.folder / "plans").iterdir())[:100]:
        path.unlink()
    _check_disk_size(run, ["plans", "model"])


def test_links_of_a_run_folder_are_not_copied(store, config, tmp_path):
    run, draft = store.create(config, "one"), store.create(config, "two")
    (run.folder / "model" / "part").mkdir(parents=True)
    (run.folder / "model" / "config.json").write_text("{}")
    (run.folder / "model" / "zeros").symlink_to("/dev/zero")
    (run.folder / "model" / "part" / "passwords").symlink_to("/etc/passwd")
    (run.folder / "model" / "system").symlink_to("/etc")
    os.mkfifo(run.folder / "model" / "pipe")
    (run.folder / "log.txt").symlink_to("/etc/passwd")
    for name in ("model", "log.txt"):
        _copy(run, draft, name)
    copied = {path.relative_to(draft.folder).as_posix() for path in draft.folder.rglob("*")}
    assert copied - {"config.json", "status.json"} == {"model", "model/part", "model/config.json"}
    assert run.log_tail() == []
