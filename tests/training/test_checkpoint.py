"""A checkpoint tells its own files: one that is damaged anywhere is passed over, and older ones stay readable."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bsc_core.config import RunConfig, make_config
from bsc_core.errors import CheckpointError
from bsc_core.jobs.resuming import continue_run
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run, RunStore
from bsc_core.training.checkpoint import checkpoints, last_checkpoint, read_checkpoint


@pytest.fixture
def config(small_config: RunConfig) -> RunConfig:
    values = small_config.model_dump()
    return make_config({**values, "training": {**values["training"], "checkpoint_steps": 1, "learning_rate": 1e-2}})


@pytest.fixture
def run(config: RunConfig, tmp_path: Path) -> Run:
    """A run whose process ended after its third step, with checkpoints after the first two."""

    def end(report):
        if report.step == 3:
            raise InterruptedError

    run = RunStore(tmp_path / "runs").create(config)
    with pytest.raises(InterruptedError):
        run_experiment(config, run, on_report=end)
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
    ],
)
def test_a_checkpoint_with_any_damaged_file_is_named_and_the_one_before_used(
    run: Run, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], None]
) -> None:
    before, newest = checkpoints(run.checkpoints_folder)
    damage(newest / name)
    found = last_checkpoint(run.checkpoints_folder)
    assert found is not None
    assert found.folder == before
    said = capsys.readouterr().err
    assert f"{newest}: this checkpoint cannot be read ({name} is " in said
    assert said.count("\n") == 1


def test_a_run_whose_newest_encoder_is_damaged_ends_with_the_same_bits(run: Run, config: RunConfig) -> None:
    halve(checkpoints(run.checkpoints_folder)[-1] / "model" / "modules.json")
    store = RunStore(run.folder.parent)
    whole, following = store.create(config), continue_run(store, run)
    results = [run_experiment(config, one) for one in (whole, following)]
    assert results[0]["metrics"] == results[1]["metrics"]
    ends = [one.array("embeddings_after") for one in (whole, following)]
    assert np.array_equal(*ends)


def test_a_checkpoint_that_does_not_tell_its_files_is_read_as_long_as_its_weights_are_whole(
    run: Run, config: RunConfig
) -> None:
    newest = checkpoints(run.checkpoints_folder)[-1]
    progress = json.loads((newest / "progress.json").read_text(encoding="utf-8"))
    for name in ("files", "data"):
        del progress[name]
    (newest / "progress.json").write_text(json.dumps(progress), encoding="utf-8")
    assert read_checkpoint(newest).start.step == 2
    following = continue_run(RunStore(run.folder.parent), run)
    assert run_experiment(config, following)["state"] == "done"
    halve(newest / "model" / "model.safetensors")
    with pytest.raises(CheckpointError, match="step-000002: this checkpoint cannot be read"):
        read_checkpoint(newest)


def test_a_progress_that_is_no_table_is_a_damaged_checkpoint(run: Run) -> None:
    newest = checkpoints(run.checkpoints_folder)[-1]
    (newest / "progress.json").write_text("[]", encoding="utf-8")
    with pytest.raises(CheckpointError, match="step-000002: this checkpoint cannot be read"):
        read_checkpoint(newest)
