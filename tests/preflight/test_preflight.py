"""What a preflight tells is what the run does, nothing of it stays, and it refuses what the run would refuse."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bsc_core.config import RunConfig, make_config
from bsc_core.data import PairDataset
from bsc_core.data.experiment import ExperimentData
from bsc_core.errors import ConfigError, DataError, ModelError, RunNotFoundError
from bsc_core.jobs.states import advance
from bsc_core.pipeline import run_experiment
from bsc_core.preflight import Preflight, preflight
from bsc_core.preflight.job import main
from bsc_core.preflight.oddities import Measured, oddities
from bsc_core.preflight.starting import starting_encoder
from bsc_core.runs import RunStore

TOPICS = "soup bread salt garden rose seed tent train ticket bank cat dog bike wheel song book rain storm".split()
GIB = 2**30


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sixty labelled pairs of fifteen questions."""
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


def plan(pairs: Path, start: Path | str, **sections: dict[str, Any]) -> RunConfig:
    values: dict[str, dict[str, Any]] = {
        "data": {"train": str(pairs), "dev_share": 0.2},
        "encoder": {"name": str(start), "max_length": 32},
        "batching": {"strategy": "examples", "group_size": 4},
        "loss": {"name": "bsc"},
        "training": {"epochs": 2, "batch_size": 8, "learning_rate": 1e-3, "threads": 1, "precision": "fp32"},
    }
    given = {name: {**values.get(name, {}), **part} for name, part in sections.items()}
    return make_config({**values, **given})


def test_it_tells_the_rows_texts_steps_and_disk_of_the_run(pairs: Path, tiny_encoder: Path, store: RunStore) -> None:
    config = plan(pairs, tiny_encoder)
    told = preflight(config, store=store)
    run = store.create(config)
    result = run_experiment(config, run)
    assert told.rows == result["rows"]["train"]
    assert told.texts == result["texts"]
    steps = [line for line in run.metrics()[0] if line["kind"] == "step"]
    assert told.steps == len(steps)
    assert (told.precision, told.device) == (result["precision"], result["device"])
    taken = sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file())
    assert 0.5 * taken < told.disk_bytes < 3 * taken
    assert told.total_seconds == pytest.approx(sum(told.seconds.values()))
    assert set(told.seconds) == {"start", "encode", "plan", "train", "checkpoint"}
    assert all(seconds > 0 for seconds in told.seconds.values())


def test_nothing_of_it_stays(pairs: Path, tiny_encoder: Path, store: RunStore) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny_encoder.rglob("*")}
    preflight(plan(pairs, tiny_encoder), store=store)
    assert list(store.root.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in tiny_encoder.rglob("*")} == before


def test_it_says_how_far_it_is_and_never_goes_back(pairs: Path, tiny_encoder: Path, store: RunStore) -> None:
    said: list[tuple[int, int, str]] = []
    preflight(plan(pairs, tiny_encoder), steps=2, store=store, say=lambda *told: said.append(told))
    shares = [done / of for done, of, _ in said]
    assert shares == sorted(shares)
    assert {"reading the data", "loading the encoder", "writing a checkpoint"} <= {doing for *_, doing in said}
    assert said[-1][0] < said[-1][1]


@pytest.mark.parametrize(
    ("training", "steps", "epochs"),
    [
        ({"accumulation": 3}, 2 * 2, 2),
        ({"steps": 7}, 7, 2),
        ({"seeds": [1, 2, 3]}, 2 * 6, 2),
        ({"batch_size": 500}, 2, 2),
    ],
)
def test_steps_are_those_of_one_run(
    pairs: Path, tiny_encoder: Path, store: RunStore, training: dict[str, Any], steps: int, epochs: int
) -> None:
    told = preflight(plan(pairs, tiny_encoder, training=training), steps=1, store=store)
    assert (told.steps, told.epochs, told.rows) == (steps, epochs, 48)


def test_what_the_run_would_refuse_is_refused(pairs: Path, tiny_encoder: Path, store: RunStore) -> None:
    with pytest.raises(DataError, match="softmax learns from classes"):
        preflight(plan(pairs, tiny_encoder, loss={"name": "softmax"}), store=store)
    early = plan(pairs, tiny_encoder, training={"early_stopping": 1}, evaluation={"each_epoch": False})
    with pytest.raises(ConfigError, match="early_stopping is 1"):
        preflight(early, store=store)
    with pytest.raises(RunNotFoundError, match="20260101-gone"):
        preflight(plan(pairs, "run:20260101-gone"), store=store)


def test_low_rank_matrices_make_small_checkpoints_of_the_optimiser(
    pairs: Path, tiny_encoder: Path, store: RunStore
) -> None:
    pytest.importorskip("peft")
    whole = preflight(plan(pairs, tiny_encoder), steps=1, store=store)
    lora = preflight(plan(pairs, tiny_encoder, encoder={"lora": {"rank": 2}}), steps=1, store=store)
    assert lora.disk_bytes < whole.disk_bytes
    assert (lora.steps, lora.rows) == (whole.steps, whole.rows)


def test_a_chain_to_a_run_that_goes_on_takes_what_that_run_starts_from(pairs: Path, store: RunStore) -> None:
    first = store.create(plan(pairs, "static"), "first")
    second = store.create(plan(pairs, "run:first"), "second")
    encoder, told = starting_encoder(plan(pairs, f"run:{second.id}"), store)
    assert (encoder.name, encoder.max_length) == ("static", 32)
    assert any(first.id in sentence for sentence in told)


def test_a_chain_to_a_run_that_ended_takes_its_model_or_is_refused(pairs: Path, store: RunStore) -> None:
    run = store.create(plan(pairs, "static"), "first")
    advance(run, "running")
    advance(run, "failed", error="no")
    with pytest.raises(ModelError, match="failed"):
        starting_encoder(plan(pairs, "run:first"), store)
    done = store.create(plan(pairs, "static"), "second")
    done.model_folder.mkdir()
    advance(done, "running")
    advance(done, "done", exit_code=0)
    encoder, told = starting_encoder(plan(pairs, "run:second"), store)
    assert (encoder.name, told) == (str(done.model_folder), ())


def test_a_report_comes_back_as_it_was_written(pairs: Path, tiny_encoder: Path, store: RunStore) -> None:
    told = preflight(plan(pairs, tiny_encoder), steps=1, store=store)
    again = Preflight.from_report(json.loads(json.dumps(told.as_report())))
    assert again == told
    assert told.as_report()["total_seconds"] == told.total_seconds


def request(folder: Path, config: RunConfig, store: RunStore) -> Path:
    folder.mkdir()
    wanted = {"config": config.model_dump(mode="json"), "runs": str(store.root)}
    (folder / "request.json").write_text(json.dumps(wanted), encoding="utf-8")
    return folder


def test_as_a_process_it_leaves_its_report(pairs: Path, tiny_encoder: Path, store: RunStore, tmp_path: Path) -> None:
    import subprocess

    folder = request(tmp_path / "asked", plan(pairs, tiny_encoder), store)
    command = [sys.executable, "-m", "bsc_core.preflight.job", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    told = Preflight.from_report(json.loads((folder / "result.json").read_text(encoding="utf-8")))
    assert (told.rows, told.steps_timed) == (48, 3)


def test_a_refusal_is_left_where_the_page_reads_it(pairs: Path, store: RunStore, tmp_path: Path) -> None:
    folder = request(tmp_path / "asked", plan(pairs, tmp_path / "gone"), store)
    assert main([str(folder)]) == 0
    told = json.loads((folder / "progress.json").read_text(encoding="utf-8"))
    assert str(tmp_path / "gone") in told["error"]
    assert not (folder / "result.json").exists()


def measured(**changes: Any) -> Measured:
    train = PairDataset.from_pairs(list("abcdefgh"), list("ijklmnop"))
    found = Measured(
        config=make_config({"data": {"train": "pairs.tsv"}}),
        data=ExperimentData(train=train, dev=train, test=None, corpus=None),
        train=train,
        lengths=np.full(16, 10),
        batches=(np.arange(4, dtype=np.int32), np.arange(4, 8, dtype=np.int32)),
        memory_bytes=GIB,
        memory_free_bytes=8 * GIB,
        disk_bytes=GIB,
        disk_free_bytes=8 * GIB,
    )
    return replace(found, **changes)


def test_an_ordinary_run_has_nothing_odd(store: RunStore) -> None:
    assert oddities(measured(), store) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"memory_bytes": 8 * GIB}, "8.0 GiB of memory and 8.0 GiB are free"),
        ({"disk_bytes": 9 * GIB}, "9.0 GiB of disk and 8.0 GiB are free"),
        ({"lengths": np.array([90, 90, 10, 10])}, "50% of the texts reach 90 tokens"),
    ],
)
def test_what_is_odd_is_said(store: RunStore, changes: dict[str, Any], said: str) -> None:
    [sentence] = oddities(measured(**changes), store)
    assert said in sentence


def test_pairs_that_collide_and_runs_that_go_on_are_told(pairs: Path, store: RunStore) -> None:
    same = PairDataset.from_pairs(list("aaaabbbb"), list("ijklmnop"))
    run = store.create(plan(pairs, "static"), "busy")
    advance(run, "running")
    said = oddities(measured(train=same), store)
    assert any("100.0% of the pairs that random batches cross are in truth positive" in one for one in said)
    assert any("busy" in one for one in said)
