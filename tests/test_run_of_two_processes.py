"""Ctrl-C in a run of two processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from bsc_core.jobs.worker_ranks import follow
from bsc_core.runs import Run, RunStore
from tests.helpers.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[1]
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


def performed_by_two(run: Run, process: str) -> list[Any]:
    """Run Python code in processes of rank 0 and 1; return what they printed, by rank."""
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
