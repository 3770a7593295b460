"""Tests of a run by two processes: one of them writes, and the numbers equal those of one process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bsc_core.config import make_config
from bsc_core.jobs.worker_ranks import follow
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run, RunStore
from tests.helpers.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[1]
PROCESS = """
import json, sys
from pathlib import Path
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run
from bsc_core.training.loop.distributed import leave_process_group

run = Run(Path(sys.argv[1]))
print(json.dumps(run_experiment(run.config(), run)), flush=True)
leave_process_group()
"""

INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from bsc_core.jobs.worker import perform
from bsc_core.pipeline import run_experiment
from bsc_core.runs import Run
from bsc_core.training.callbacks import OnStep

def press(report):
    if report.step == 3:
        os.kill(os.getpid(), signal.SIGINT)

code = perform(Run(Path(sys.argv[1])), lambda config, run: run_experiment(config, run, callbacks=[OnStep(press)]))
print(code, flush=True)
os._exit(0)  # how the interpreter takes torch apart is not looked at here
"""


@pytest.fixture
def steady_encoder(tiny_encoder, tmp_path) -> Path:
    """The tiny encoder without dropout, whose draws would depend on who encodes what."""
    folder = shutil.copytree(tiny_encoder, tmp_path / "encoder")
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def performed_by_two(run: Run, process: str = PROCESS) -> list[Any]:
    """What the two processes returned, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in (0, 1)]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", process, str(run.folder)],
            env={**os.environ, **shared, **names, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for names in own
    ]
    ended = [process.communicate(timeout=PATIENCE_SECONDS) for process in started]
    assert [process.returncode for process in started] == [0, 0], ended[0][1].decode() + ended[1][1].decode()
    return [json.loads(out.decode().splitlines()[-1]) for out, _ in ended]


def test_two_processes_train_one_run_as_one_would(steady_encoder, tmp_path):
    config = make_config(
        {
            "data": {"train": str(ROOT / "sample_data" / "pairs.tsv")},
            "encoder": {"name": str(steady_encoder), "max_seq_length": 16},
            "batching": {"strategy": "nearest", "group_size": 4, "refresh": "reuse"},
            "training": {
                **{"epochs": 2, "batch_size": 64, "learning_rate": 1e-3, "threads": 1, "precision": "fp32"},
                **{"save_steps": 5, "early_stopping_patience": 2},
            },
        }
    )
    store = RunStore(tmp_path / "runs")
    together, alone = store.create(config), store.create(config)
    main, follower = performed_by_two(together)
    result = run_experiment(config, alone)
    assert follower == {"run": together.id, "state": "done"}
    assert main["metrics"]["after"]["dev"]["mrr"] == pytest.approx(result["metrics"]["after"]["dev"]["mrr"], abs=0.02)
    kinds = [[line["kind"] for line in run.metrics()[0]] for run in (together, alone)]
    assert kinds[0] == kinds[1]
    losses = [[line["loss"] for line in run.metrics()[0] if line["kind"] == "step"] for run in (together, alone)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    assert together.status().steps == alone.status().steps
    left = [sorted(path.name for path in run.folder.iterdir() if path.name[0] != ".") for run in (together, alone)]
    assert left[0] == left[1]


def test_ctrl_c_that_reaches_both_processes_stops_the_run_after_its_step(small_config, tmp_path):
    run = RunStore(tmp_path / "runs").create(small_config)
    assert performed_by_two(run, INTERRUPTED) == [1, 0]
    assert (run.status().state, run.status().error) == ("stopped", None)
    assert [line["step"] for line in run.metrics()[0] if line["kind"] == "step"] == [1, 2, 3]
    assert [path.name for path in run.checkpoints_folder.iterdir()] == ["step-000003"]


def test_a_process_that_follows_leaves_ctrl_c_to_the_main_one(small_config, tmp_path):
    before, steps = signal.getsignal(signal.SIGINT), []

    def press(config, run):
        for step in (1, 2, 3):
            os.kill(os.getpid(), signal.SIGINT)
            steps.append(step)
        return {}

    assert follow(RunStore(tmp_path).create(small_config), press) == 0
    assert steps == [1, 2, 3]
    assert signal.getsignal(signal.SIGINT) is before
