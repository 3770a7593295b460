"""Fault test of a real Ray cluster: its head is killed during a run and restarted at the same address.

    python tests/stress/ray_head.py

Prints the states of the run. The exit status is 0 if the run keeps its state while the head is down and is lost after
the restart, and if a run that waits is then submitted and done. Needs bsc-lab[ray]; not part of the test suite.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from bsc_core.config import DataConfig, RunConfig
from bsc_core.jobs import launch
from bsc_core.jobs.supervisor import supervise
from bsc_core.ray.jobs import backend as ray_jobs
from bsc_core.runs import Run, RunStore
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until
from tests.ray.ray_head import HEAD_ATTEMPTS, end, free_ports, start_head, stub_python


def main() -> int:
    ray_jobs.POLL_SECONDS = 0.5
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as temporary:
        folder, ports = Path(temporary), free_ports(5)
        os.environ["BSC_RAY_ADDRESS"] = f"http://127.0.0.1:{ports[1]}"
        store = RunStore(folder / "runs")
        head = start(folder, ports)
        active = queue(store, folder, "active", "patient")
        supervisor = threading.Thread(target=supervise, args=(store,), kwargs={"poll_seconds": 0.1})
        supervisor.start()
        wait_until(lambda: active.log_tail() == ["waiting for a stop request"], "the run does not start")
        report("before the fault", active)
        for process in [*psutil.Process(head.pid).children(recursive=True), psutil.Process(head.pid)]:
            process.kill()
        head.wait()
        wait_until(lambda: "does not answer" in active.status().message, "the cluster answers")
        report("head killed", active)
        kept = active.status().state == "running"
        waiting = queue(store, folder, "waiting", "quick")
        head = start(folder, ports)
        wait_until(lambda: active.status().is_finished and waiting.status().is_finished, "a run has not ended")
        report("head restarted", active, waiting)
        supervisor.join(PATIENCE_SECONDS)
        end(head)
        return 0 if kept and (active.status().state, waiting.status().state) == ("lost", "done") else 1


def start(folder: Path, ports: list[int]) -> subprocess.Popen[bytes]:
    """Start a head; try again if a busy machine starts it too slowly for its own limits."""
    for _ in range(HEAD_ATTEMPTS):
        process, _, _ = start_head(Path(tempfile.mkdtemp(prefix="h", dir=folder)) / "head", ports)
        if process.poll() is None:
            return process
        end(process)
    raise SystemExit(f"no Ray head started in {HEAD_ATTEMPTS} attempts")


def queue(store: RunStore, folder: Path, run_id: str, behavior: str) -> Run:
    """Queue a run of the stub experiment in the cluster."""
    os.environ["BSC_RAY_PYTHON"] = str(stub_python(folder, behavior))
    return launch(store, RunConfig(data=DataConfig(train="pairs.tsv")), run_id, backend="ray", start=lambda store: None)


def report(when: str, *runs: Run) -> None:
    for run in runs:
        status = run.status()
        print(f"{when:<18}{run.id:<10}{status.state:<10}{status.error or status.message or ''}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
