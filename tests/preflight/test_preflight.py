"""Preflight: estimates compared with the run, traces on disk, progress, refusals and warnings."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bsc_core.background_task import run_task
from bsc_core.config import RunConfig, make_config
from bsc_core.data import PairDataset
from bsc_core.data.load import DatasetSplits
from bsc_core.errors import ConfigError, DataError, ModelError, RunNotFoundError
from bsc_core.jobs.states import advance
from bsc_core.pipeline import run_experiment
from bsc_core.preflight import Preflight, preflight
from bsc_core.preflight.probe import run_warnings
from bsc_core.preflight.task import perform
from bsc_core.runs import RunStore
from bsc_core.training.data import TrainingData

TOPICS = "soup bread salt garden rose seed tent train ticket bank cat dog bike wheel song book rain storm".split()
GIB = 2**30


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty labeled pairs of fifteen questions."""
    lines = []
    for number in range(15):
        first, second = TOPICS[number % len(TOPICS)], TOPICS[(number * 5 + 3) % len(TOPICS)]
        for answer in range(4):
            text = f"{first} {second} {number} {answer}" + " more" * (10 if answer == 3 else 0)
            line = {"query": f"how do i {first} {second} {number}", "document": text, "label": float(answer == 0)}
            lines.append(json.dumps(line))
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


def config_of(pairs: Path, encoder: Path | str, /, **sections: dict[str, Any]) -> RunConfig:
    values: dict[str, dict[str, Any]] = {
        "data": {"train": str(pairs), "dev_size": 0.2},
        "encoder": {"name": str(encoder), "max_seq_length": 32},
        "batching": {"strategy": "nearest", "group_size": 4},
        "loss": {"name": "bsc"},
        "training": {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "threads": 1, "precision": "fp32"},
    }
    changed = {name: {**values.get(name, {}), **section} for name, section in sections.items()}
    return make_config({**values, **changed})


def test_estimates_agree_with_the_run_and_can_be_stored(pairs: Path, tiny_encoder: Path, store: RunStore) -> None:
    config = config_of(pairs, tiny_encoder)
    report = preflight(config, store=store)
    run = store.create(config)
    result = run_experiment(config, run)
    assert report.rows == result["rows"]["train"]
    assert report.texts == result["texts"]
    steps = [line for line in run.metrics()[0] if line["kind"] == "step"]
    assert report.steps == len(steps)
    assert (report.precision, report.device) == (result["precision"], result["device"])
    size = sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file())
    assert 0.5 * size < report.disk_bytes < 3 * size
    assert report.total_seconds == pytest.approx(sum(report.seconds.values()))
    assert set(report.seconds) == {"start", "encode", "plan", "train", "checkpoint"}
    assert all(seconds > 0 for seconds in report.seconds.values())
    assert Preflight.from_report(json.loads(json.dumps(report.as_report()))) == report
    assert report.as_report()["total_seconds"] == report.total_seconds


def test_no_file_remains_and_the_progress_only_grows(pairs: Path, tiny_encoder: Path, store: RunStore) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny_encoder.rglob("*")}
    messages: list[tuple[int, int, str]] = []
    preflight(
        config_of(pairs, tiny_encoder), steps=2, store=store, on_progress=lambda *message: messages.append(message)
    )
    assert list(store.root.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in tiny_encoder.rglob("*")} == before
    shares = [done / total for done, total, _ in messages]
    assert shares == sorted(shares)
    descriptions = {description for *_, description in messages}
    assert {"reading the data", "loading the encoder", "writing a checkpoint"} <= descriptions
    assert messages[-1][0] < messages[-1][1]


@pytest.mark.parametrize(
    ("training", "steps", "epochs"),
    [
        ({"gradient_accumulation_steps": 3}, 2 * 2, 2),
        ({"steps": 7}, 7, 2),
        ({"seeds": [1, 2, 3]}, 2 * 6, 2),
        ({"batch_size": 500}, 2, 2),
    ],
)
def test_steps_are_those_of_one_run(
    pairs: Path, tiny_encoder: Path, store: RunStore, training: dict[str, Any], steps: int, epochs: int
) -> None:
    report = preflight(config_of(pairs, tiny_encoder, training=training), steps=1, store=store)
    assert (report.steps, report.epochs, report.rows) == (steps, epochs, 48)


def test_a_config_that_the_run_would_refuse_is_refused(pairs: Path, tiny_encoder: Path, store: RunStore) -> None:
    with pytest.raises(DataError, match="softmax learns from classes"):
        preflight(config_of(pairs, tiny_encoder, loss={"name": "softmax"}), store=store)
    early = config_of(pairs, tiny_encoder, training={"early_stopping_patience": 1}, evaluation={"each_epoch": False})
    with pytest.raises(ConfigError, match="early_stopping_patience is 1"):
        preflight(early, store=store)
    with pytest.raises(RunNotFoundError, match="20260101-gone"):
        preflight(config_of(pairs, "run:20260101-gone"), store=store)


def test_lora_makes_checkpoints_smaller(pairs: Path, tiny_encoder: Path, store: RunStore) -> None:
    pytest.importorskip("peft")
    full = preflight(config_of(pairs, tiny_encoder), steps=1, store=store)
    lora = preflight(config_of(pairs, tiny_encoder, encoder={"lora": {"rank": 2}}), steps=1, store=store)
    assert lora.disk_bytes < full.disk_bytes
    assert (lora.steps, lora.rows) == (full.steps, full.rows)


def test_a_chain_to_an_unfinished_run_uses_the_encoder_that_it_starts_from(pairs: Path, store: RunStore) -> None:
    first = store.create(config_of(pairs, "static"), "first")
    second = store.create(config_of(pairs, "run:first"), "second")
    encoder, notes = store.available_encoder(config_of(pairs, f"run:{second.id}").encoder)
    assert (encoder.name, encoder.max_seq_length) == ("static", 32)
    assert any(first.id in sentence for sentence in notes)


def test_a_chain_to_a_finished_run_uses_its_model_or_is_refused(pairs: Path, store: RunStore) -> None:
    run = store.create(config_of(pairs, "static"), "first")
    advance(run, "running")
    advance(run, "failed", error="no")
    with pytest.raises(ModelError, match="failed"):
        store.available_encoder(config_of(pairs, "run:first").encoder)
    done = store.create(config_of(pairs, "static"), "second")
    done.model_folder.mkdir()
    advance(done, "running")
    advance(done, "done", exit_code=0)
    encoder, notes = store.available_encoder(config_of(pairs, "run:second").encoder)
    assert (encoder.name, notes) == (str(done.model_folder), ())


def write_request(folder: Path, config: RunConfig, store: RunStore) -> Path:
    folder.mkdir()
    content = {"config": config.model_dump(mode="json"), "runs": str(store.root)}
    (folder / "request.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_a_process_writes_the_report(pairs: Path, tiny_encoder: Path, store: RunStore, tmp_path: Path) -> None:
    folder = write_request(tmp_path / "task", config_of(pairs, tiny_encoder), store)
    command = [sys.executable, "-m", "bsc_core.preflight.task", str(folder)]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert process.returncode == 0, process.stderr
    report = Preflight.from_report(json.loads((folder / "result.json").read_text(encoding="utf-8")))
    assert (report.rows, report.steps_timed) == (48, 3)


def test_a_refusal_is_in_the_progress_file(pairs: Path, store: RunStore, tmp_path: Path) -> None:
    folder = write_request(tmp_path / "task", config_of(pairs, tmp_path / "gone"), store)
    assert run_task(perform, [str(folder)]) == 2
    progress = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
    assert str(tmp_path / "gone") in progress["error"]
    assert not (folder / "result.json").exists()


def warnings_of(
    store: RunStore, queries: str = "abcdefgh", length: int = 10, memory: int = GIB, disk: int = GIB
) -> list[str]:
    """Return the warnings about eight pairs, half of their texts with `length` tokens, and 8 GiB free."""
    train = PairDataset.from_pairs(list(queries), list("ijklmnop"))
    return run_warnings(
        make_config({"data": {"train": "pairs.tsv"}}),
        TrainingData(DatasetSplits(train=train, dev=train, test=None, corpus=None), train),
        np.array([10, length] * 8),
        [np.arange(4, dtype=np.int32), np.arange(4, 8, dtype=np.int32)],
        space={"memory": (memory, 8 * GIB), "disk": (disk, 8 * GIB)},
        store=store,
    )


def test_an_ordinary_run_has_no_warnings(store: RunStore) -> None:
    assert warnings_of(store) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": 8 * GIB}, "8.0 GiB of memory and 8.0 GiB are free"),
        ({"disk": 9 * GIB}, "9.0 GiB of disk and 8.0 GiB are free"),
        ({"length": 90}, "50% of the texts reach 90 tokens"),
    ],
)
def test_likely_problems_are_reported(store: RunStore, changes: dict[str, int], message: str) -> None:
    [sentence] = warnings_of(store, **changes)
    assert message in sentence


def test_collisions_and_active_runs_are_reported(pairs: Path, store: RunStore) -> None:
    run = store.create(config_of(pairs, "static"), "busy")
    advance(run, "running")
    sentences = warnings_of(store, queries="aaaabbbb")
    assert any("100.0% of the in-batch pairs of random batches are collisions" in sentence for sentence in sentences)
    assert any(sentence.startswith("Another run was running") for sentence in sentences)
    assert not any("busy" in sentence for sentence in sentences)  # the run may belong to another user


def test_runs_that_start_from_each_other_are_refused(pairs: Path, store: RunStore) -> None:
    for name, other in (("first", "second"), ("second", "first")):
        store.create(config_of(pairs, f"run:{other}"), name)
    with pytest.raises(ModelError, match="run first starts from its own model"):
        store.available_encoder(config_of(pairs, "run:first").encoder)
