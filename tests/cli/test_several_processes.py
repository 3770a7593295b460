"""Distributed runs in two processes, as torchrun starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tomli_w

from bsc_core.config import read_config
from bsc_core.pipeline import run_experiment
from bsc_core.runs import RunStore
from bsc_core.training.callbacks import OnStep
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.helpers.warm_processes import two_processes

ROOT = Path(__file__).resolve().parents[2]
BSC = "from bsc_core.cli import entry; entry()"


@pytest.fixture
def config_file(small_config, tmp_path):
    batching = small_config.batching.model_copy(update={"strategy": "nearest", "refresh": "reuse", "group_size": 4})
    more = {"epochs": 2, "micro_tokens": 64, "save_steps": 5, "early_stopping_patience": 2}
    training = small_config.training.model_copy(update=more)
    config = small_config.model_copy(update={"batching": batching, "training": training})
    path = tmp_path / "run.toml"
    path.write_text(tomli_w.dumps(config.model_dump(mode="json", exclude_none=True)), encoding="utf-8")
    return path


def test_two_processes_are_one_run(config_file, tmp_path):
    config = read_config(config_file)
    alone = RunStore(tmp_path / "alone").create(config)
    result = run_experiment(config, alone)
    words = ["train", config_file, "--runs", tmp_path / "two", "--json"]
    main, other = two_processes(BSC, lambda rank: words, tmp_path)
    report = json.loads(main.stdout)
    assert other.stdout == ""
    (run,) = RunStore(tmp_path / "two").list()
    assert (report["run"], report["state"], run.status().state) == (run.id, "done", "done")
    lines, expected = run.metrics()[0], alone.metrics()[0]
    assert [(line["kind"], line.get("step")) for line in lines] == [
        (line["kind"], line.get("step")) for line in expected
    ]
    losses = [[line["loss"] for line in one if line["kind"] == "step"] for one in (lines, expected)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    for split, metrics in result["metrics"]["after"].items():
        assert report["metrics"]["after"][split] == pytest.approx(metrics, abs=1e-3)
    files = [{path.name for path in one.folder.iterdir() if path.name[0] != "."} for one in (run, alone)]
    assert files[0] == files[1] | {"ended.json", "worker.json"}


def test_a_stopped_run_resumes_in_two_processes(config_file, tmp_path):
    store = RunStore(tmp_path / "runs")
    run = store.create(read_config(config_file))
    result = run_experiment(
        run.config(), run, callbacks=[OnStep(lambda report: report.step == 3 and run.request_stop())]
    )
    assert result["state"] == "stopped"
    run.update_status(state="stopped")
    main, _ = two_processes(BSC, lambda rank: ["resume", run.id, "--runs", store.root, "--json"], tmp_path)
    following = store.get(json.loads(main.stdout)["run"])
    assert following.status().resumed_from == run.id
    assert len(store.list()) == 2
    steps = [line["step"] for line in following.metrics()[0] if line["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) > 3


def test_an_error_ends_both_processes_and_is_printed_once(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(f'[data]\ntrain = "{tmp_path}/missing.tsv"\n', encoding="utf-8")
    words = ["train", path, "--runs", tmp_path / "runs"]
    main, other = two_processes(BSC, lambda rank: words, tmp_path, status=2)
    assert main.stderr.count("missing.tsv") == 1
    assert other.stderr == ""
    assert not (tmp_path / "runs").exists()


def test_a_process_of_several_ends_although_a_thread_of_a_library_is_alive():
    code = (
        "import sys, threading, time; from bsc_core.cli import entry; "
        f"threading.Thread(target=time.sleep, args=({2 * PATIENCE_SECONDS},)).start(); "
        "sys.argv = ['bsc', 'train', 'missing.toml']; entry()"
    )
    shared = {"WORLD_SIZE": "2", "RANK": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(
        command, env={**os.environ, **shared}, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )
    assert ended.returncode == 2
    assert "missing.toml" in ended.stderr
