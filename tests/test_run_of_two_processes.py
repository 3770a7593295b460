"""Ctrl-C in a run of two processes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from bsc_core.jobs.worker_ranks import follow
from bsc_core.runs import RunStore
from tests.helpers.warm_processes import two_processes

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
"""


def test_ctrl_c_that_reaches_both_processes_stops_the_run_after_its_step(small_config, tmp_path):
    run = RunStore(tmp_path / "runs").create(small_config)
    ended = two_processes(INTERRUPTED, lambda rank: [run.folder], tmp_path)
    assert [json.loads(process.stdout.splitlines()[-1]) for process in ended] == [1, 0]
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
