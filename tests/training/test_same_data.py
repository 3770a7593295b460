"""A run that goes on reads the rows it began with, or says that it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bsc_core.config import RunConfig, make_config
from bsc_core.data.marks import add_mark
from bsc_core.errors import DataError
from bsc_core.jobs.resuming import continue_run
from bsc_core.jobs.worker import attempt
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run, RunStore
from bsc_core.training.checkpoint import checkpoints
from bsc_core.training.ranks import Ranks
from bsc_core.training.same_data import own_data, with_own_marks


def changed(config: RunConfig, **data: object) -> RunConfig:
    values = config.model_dump()
    training = {**values["training"], "epochs": 2, "checkpoint_steps": 2}
    return make_config({**values, "data": {**values["data"], **data}, "training": training})


def interrupted(config: RunConfig, store: RunStore) -> Run:
    """A run whose process ended after its third step, with a checkpoint after the second."""

    def end(report):
        if report.step == 3:
            raise InterruptedError

    run = store.create(config)
    with pytest.raises(InterruptedError):
        run_experiment(config, run, on_report=end)
    run.update_status(state="lost")
    return run


def lines_of(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write(file: Path, lines: list[dict]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def shuffled(lines: list[dict]) -> list[dict]:
    documents = [line["document"] for line in lines]
    return [{**line, "document": other} for line, other in zip(lines, documents[4:] + documents[:4], strict=True)]


def relabelled(lines: list[dict]) -> list[dict]:
    return [{**line, "label": 0.3 if line["label"] < 0.5 else line["label"]} for line in lines]


@pytest.mark.parametrize("change", [shuffled, relabelled, lambda lines: lines[:24]], ids=["texts", "labels", "fewer"])
def test_a_run_does_not_go_on_with_other_rows_until_they_are_back(
    small_config: RunConfig, small_pairs: Path, tmp_path: Path, change
) -> None:
    config, store = changed(small_config), RunStore(tmp_path / "runs")
    run = interrupted(config, store)
    lines = lines_of(small_pairs)
    write(small_pairs, change(lines))
    refused = continue_run(store, run)
    outcome = attempt(refused, run_experiment)
    assert outcome.exit_code == 2
    assert outcome.error is not None
    assert "not those that it trained on until step 2; bring its data files back as they were" in outcome.error
    refused.update_status(state="failed")
    write(small_pairs, lines)
    assert run_experiment(config, continue_run(store, refused))["state"] == "done"


def test_other_dev_pairs_are_other_rows_too(small_config: RunConfig, small_pairs: Path, tmp_path: Path) -> None:
    dev = tmp_path / "dev.jsonl"
    lines = lines_of(small_pairs)
    write(dev, lines[20:])
    write(small_pairs, lines[:20])
    store = RunStore(tmp_path / "runs")
    run = interrupted(changed(small_config, dev=str(dev)), store)
    write(dev, relabelled(lines[20:]))
    with pytest.raises(DataError, match="bring its data files back as they were"):
        run_experiment(run.config(), continue_run(store, run))


def test_a_mark_of_today_concerns_the_runs_of_tomorrow(
    small_config: RunConfig, small_pairs: Path, tmp_path: Path
) -> None:
    marks = tmp_path / "marked" / "marks.tsv"
    texts = [(line["query"], line["document"]) for line in lines_of(small_pairs) if line["label"] < 0.5]
    add_mark(marks, *texts[0])
    config, store = changed(small_config, false_negatives=str(marks)), RunStore(tmp_path / "runs")
    whole = store.create(config)
    result = run_experiment(config, whole)
    run = interrupted(config, store)
    for pair in texts:
        add_mark(marks, *pair)
    following = continue_run(store, run)
    assert run_experiment(config, following)["metrics"] == result["metrics"]
    ends = [one.array("embeddings_after") for one in (whole, following)]
    assert np.array_equal(*ends)
    assert following.read_json("result")["rows"] == result["rows"]
    assert own_data(config.data, run).false_negatives == str(run.folder / "marks" / "marks.tsv")
    later = store.create(config)
    assert run_experiment(config, later)["rows"]["train"] < result["rows"]["train"]


def test_marks_stay_where_they_are_when_the_runs_folder_may_not_be_read(
    small_config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "data" / "marks.tsv"
    add_mark(marks, "a", "b")
    config = changed(small_config, false_negatives=str(marks))
    run = RunStore(tmp_path / "runs").create(config)
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path / "data"))
    assert with_own_marks(config, run, Ranks()) == config
    assert own_data(config.data, run) == config.data
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path / "runs"))
    assert with_own_marks(config, run, Ranks()) == config


def test_a_checkpoint_that_tells_no_rows_is_gone_on_from(
    small_config: RunConfig, small_pairs: Path, tmp_path: Path
) -> None:
    config, store = changed(small_config), RunStore(tmp_path / "runs")
    run = interrupted(config, store)
    progress = checkpoints(run.checkpoints_folder)[-1] / "progress.json"
    told = json.loads(progress.read_text(encoding="utf-8"))
    progress.write_text(json.dumps({**told, "data": ""}), encoding="utf-8")
    write(small_pairs, relabelled(lines_of(small_pairs)))
    assert run_experiment(config, continue_run(store, run))["state"] == "done"
