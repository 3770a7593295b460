"""Checkpoints: damaged files are detected, and a resumed run reads the rows that it started with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bsc_core.config import RunConfig
from bsc_core.data.decisions import Decision, add_decisions
from bsc_core.errors import CheckpointError, DataError
from bsc_core.jobs.actions.resuming import continue_run
from bsc_core.jobs.worker import attempt
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run, RunStore
from bsc_core.training.callbacks import OnStep
from bsc_core.training.checkpoint import checkpoints, last_checkpoint, read_checkpoint
from bsc_core.training.data import with_copied_decisions
from bsc_core.training.loop.distributed import Distributed
from tests.helpers.configs import with_changes


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


@pytest.fixture
def config(small_config: RunConfig) -> RunConfig:
    return with_changes(small_config, training={"epochs": 2, "save_steps": 1, "learning_rate": 1e-2})


@pytest.fixture
def run(config: RunConfig, store: RunStore) -> Run:
    return interrupted(config, store)


def interrupted(config: RunConfig, store: RunStore) -> Run:
    """Return a run whose process ended after its third step, with checkpoints after the first two."""

    def end(report):
        if report.step == 3:
            raise InterruptedError

    run = store.create(config)
    with pytest.raises(InterruptedError):
        run_experiment(config, run, callbacks=[OnStep(end)])
    run.update_status(state="lost")
    return run


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model/modules.json", halve),
        ("model/tokenizer.json", halve),
        ("model/1_Pooling/config.json", Path.unlink),
        ("model/config_sentence_transformers.json", halve),
        ("model/model.safetensors", flip),
        ("state.pt", flip),
        ("state.pt", halve),
    ],
)
def test_a_checkpoint_with_a_damaged_file_is_reported_and_the_previous_one_used(
    run: Run, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], None]
) -> None:
    previous, newest = checkpoints(run.checkpoints_folder)
    damage(newest / name)
    result = last_checkpoint(run.checkpoints_folder)
    assert result is not None
    assert result.folder == previous
    message = capsys.readouterr().err
    assert f"{newest}: this checkpoint cannot be read ({name} is " in message
    assert message.count("\n") == 1


def test_a_run_whose_newest_encoder_is_damaged_ends_with_the_same_bits(
    run: Run, config: RunConfig, store: RunStore
) -> None:
    halve(checkpoints(run.checkpoints_folder)[-1] / "model" / "modules.json")
    uninterrupted, resumed = store.create(config), continue_run(store, run)
    results = [run_experiment(config, each) for each in (uninterrupted, resumed)]
    assert results[0]["metrics"] == results[1]["metrics"]
    assert np.array_equal(uninterrupted.array("embeddings_after"), resumed.array("embeddings_after"))


def test_a_checkpoint_without_a_list_of_files_is_read_if_its_weights_are_complete(
    run: Run, config: RunConfig, store: RunStore
) -> None:
    newest = checkpoints(run.checkpoints_folder)[-1]
    progress = json.loads((newest / "progress.json").read_text(encoding="utf-8"))
    for name in ("files", "data"):
        del progress[name]
    (newest / "progress.json").write_text(json.dumps(progress), encoding="utf-8")
    assert read_checkpoint(newest).step == 2
    assert run_experiment(config, continue_run(store, run))["state"] == "done"
    halve(newest / "model" / "model.safetensors")
    with pytest.raises(CheckpointError, match="step-000002: this checkpoint cannot be read"):
        read_checkpoint(newest)


def test_an_invalid_progress_file_is_a_damaged_checkpoint(run: Run) -> None:
    newest = checkpoints(run.checkpoints_folder)[-1]
    (newest / "progress.json").write_text("[]", encoding="utf-8")
    with pytest.raises(CheckpointError, match="step-000002: this checkpoint cannot be read"):
        read_checkpoint(newest)


def read_lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write_lines(file: Path, lines: list[dict]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def shuffled(lines: list[dict]) -> list[dict]:
    documents = [line["document"] for line in lines]
    return [{**line, "document": other} for line, other in zip(lines, documents[4:] + documents[:4], strict=True)]


def relabeled(lines: list[dict]) -> list[dict]:
    return [{**line, "label": 0.3 if line["label"] < 0.5 else line["label"]} for line in lines]


@pytest.mark.parametrize("change", [shuffled, relabeled, lambda lines: lines[:24]], ids=["texts", "labels", "fewer"])
def test_a_run_does_not_resume_with_other_rows_until_they_are_restored(
    run: Run, config: RunConfig, store: RunStore, small_pairs: Path, change: Callable[[list[dict]], list[dict]]
) -> None:
    lines = read_lines(small_pairs)
    write_lines(small_pairs, change(lines))
    refused = continue_run(store, run)
    outcome = attempt(refused, run_experiment)
    assert outcome.exit_code == 2
    assert outcome.error is not None
    assert "the rows differ from those that this run trained on until step 2; restore its data files" in outcome.error
    refused.update_status(state="failed")
    write_lines(small_pairs, lines)
    assert run_experiment(config, continue_run(store, refused))["state"] == "done"


def test_a_run_does_not_resume_with_other_dev_pairs(
    config: RunConfig, store: RunStore, small_pairs: Path, tmp_path: Path
) -> None:
    dev, lines = tmp_path / "dev.jsonl", read_lines(small_pairs)
    write_lines(dev, lines[20:])
    write_lines(small_pairs, lines[:20])
    run = interrupted(with_changes(config, data={"dev": str(dev)}), store)
    write_lines(dev, relabeled(lines[20:]))
    with pytest.raises(DataError, match="restore its data files"):
        run_experiment(run.config(), continue_run(store, run))


def test_later_marks_do_not_change_a_resumed_run(
    config: RunConfig, store: RunStore, small_pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    marks = tmp_path / "marked" / "marks.tsv"
    texts = [(line["query"], line["document"]) for line in read_lines(small_pairs) if line["label"] < 0.5]
    add_decisions(marks, [Decision(*texts[0])])
    config = with_changes(config, data={"false_negatives": str(marks)})
    uninterrupted = store.create(config)
    result = run_experiment(config, uninterrupted)
    run = interrupted(config, store)
    for pair in texts:
        add_decisions(marks, [Decision(*pair)])
    resumed = continue_run(store, run)
    assert run_experiment(config, resumed)["metrics"] == result["metrics"]
    assert np.array_equal(uninterrupted.array("embeddings_after"), resumed.array("embeddings_after"))
    assert resumed.read_json("result")["rows"] == result["rows"]
    applied = "1 decision applied: 1 dropped (ignored by the loss); 1 training row removed"
    assert resumed.read_json("result")["decisions"] == applied
    output = capsys.readouterr()
    assert applied in output.out + output.err, "the worker's log"
    assert run.data_config(config.data).false_negatives == str(run.folder / "false_negatives" / "marks.tsv")
    assert run_experiment(config, store.create(config))["rows"]["train"] < result["rows"]["train"]


def test_marked_pairs_in_the_previous_folder_are_read(store: RunStore, config: RunConfig) -> None:
    run = store.create(config)
    for owner, name in ((run, "pairs.tsv"), (store, "pairs")):
        assert owner.false_negatives_file(name).parent.name == "false_negatives"
    for folder in (run.folder, store.root):
        add_decisions(folder / "marks" / "pairs.tsv", [Decision("a", "b")])
    for owner, name in ((run, "pairs.tsv"), (store, "pairs")):
        assert owner.false_negatives_file(name).parent.name == "marks"


def test_marks_are_not_copied_if_the_runs_folder_may_not_be_read(
    config: RunConfig, store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "data" / "marks.tsv"
    add_decisions(marks, [Decision("a", "b")])
    config = with_changes(config, data={"false_negatives": str(marks)})
    run = store.create(config)
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path / "data"))
    assert with_copied_decisions(config, run, Distributed()) == config
    assert run.data_config(config.data) == config.data
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path / "runs"))
    assert with_copied_decisions(config, run, Distributed()) == config


def test_a_checkpoint_without_a_digest_of_the_rows_is_resumed(
    run: Run, config: RunConfig, store: RunStore, small_pairs: Path
) -> None:
    progress = checkpoints(run.checkpoints_folder)[-1] / "progress.json"
    content = json.loads(progress.read_text(encoding="utf-8"))
    progress.write_text(json.dumps({**content, "data": ""}), encoding="utf-8")
    write_lines(small_pairs, relabeled(read_lines(small_pairs)))
    assert run_experiment(config, continue_run(store, run))["state"] == "done"
