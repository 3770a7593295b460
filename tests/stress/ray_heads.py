"""Stress test of runs in a Ray cluster whose head is killed while they are active; prints the final states.

Each fault kills the processes of a real head, or only those that answer requests, while one run is active and one
waits; another head is started at the same address. No run may start twice, be lost without that cause, or be reported
as ended while its process is alive. Not part of the test suite:

    python tests/stress/ray_heads.py [--faults 4] [--seed 0]
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psutil

from bsc_core.config import DataConfig, RunConfig
from bsc_core.jobs import Queue, launch, stop
from bsc_core.jobs.supervisor import supervise
from bsc_core.ray.jobs import backend as ray_jobs
from bsc_core.runs import Run, RunStore
from tests.helpers.waiting import wait_until
from tests.jobs import stub_worker
from tests.ray.ray_head import HEAD_ATTEMPTS, end, free_ports, start_head

CONTROL = ("gcs_server", "dashboard")  # processes that answer requests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    generator, start = random.Random(arguments.seed), time.monotonic()
    ray_jobs.POLL_SECONDS = 0.2
    states: Counter[str] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder))
        store = RunStore(Path(folder, "runs"))
        for number in range(arguments.faults):
            only_control = generator.random() < 0.5
            states.update(fault(cluster, store, f"{number:03d}", only_control, failures))
        cluster.kill()
        failures += started_twice(store)
    print(f"heads killed in a run {arguments.faults:>6}")
    for state, times in sorted(states.items()):
        print(f"{state:<22}{times:>6}")
    print(f"failures              {len(failures):>6}\n\n{time.monotonic() - start:.0f} s, seed {arguments.seed}")
    for failure in failures:
        sys.stderr.write(f"{failure}\n")
    return 1 if failures else 0


class Cluster:
    """A Ray head at a fixed address."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ports, self._heads = folder, free_ports(5), 0
        self._process: subprocess.Popen[bytes] | None = None
        python = folder / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} {stub_worker.__file__} perform patient "$4"\n')
        python.chmod(0o755)
        os.environ |= {"BSC_RAY_ADDRESS": f"http://127.0.0.1:{self._ports[1]}", "BSC_RAY_PYTHON": str(python)}
        self.start()

    def start(self) -> None:
        for _ in range(HEAD_ATTEMPTS):
            self._heads += 1
            self._process, _, _ = start_head(self._folder / str(self._heads), self._ports)
            if self._process.poll() is None:
                return
        raise SystemExit("no Ray head started")

    def kill(self, only: tuple[str, ...] = ()) -> None:
        """Send SIGKILL to all processes of the head, or only to those with these names in their command."""
        assert self._process is not None
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                line = " ".join(process.cmdline()[:3])
                if not only or any(name in line for name in only):
                    process.kill()
            except psutil.NoSuchProcess:
                continue
        if not only:
            end(self._process)

    def restart(self) -> None:
        self.kill()
        self.start()


def fault(cluster: Cluster, store: RunStore, name: str, only_control: bool, failures: list[str]) -> list[str]:
    """Kill the head in a run, restart it, and return the final states of both runs."""
    config = RunConfig(data=DataConfig(train="pairs.tsv"))
    active = launch(store, config, f"active-{name}", backend="ray", start=lambda store: None)
    thread = threading.Thread(target=supervise, args=(store,), kwargs={"poll_seconds": 0.05})
    thread.start()
    wait_until(lambda: active.log_tail() == ["waiting for a stop request"], lambda: str(active.status()))
    cluster.kill(CONTROL if only_control else ())
    waiting = launch(store, config, f"waiting-{name}", backend="ray", start=lambda store: None)
    wait_until(lambda: "does not answer" in active.status().message, lambda: str(active.status()))
    wait_until(lambda: "does not answer" in waiting.status().message, lambda: str(waiting.status()))
    if active.status().state != "running" or waiting.status().state != "queued":
        failures.append(f"{name}: {active.status()} {waiting.status()} while the head does not answer")
    cluster.restart()
    wait_until(lambda: active.status().is_finished, lambda: str(active.status()))
    if active.status().state != "lost" or "the cluster was restarted" not in (active.status().error or ""):
        failures.append(f"{name}: {active.status()} after a restart")
    if psutil.pid_exists(active.status().pid or -1):
        failures.append(f"{name}: process {active.status().pid} is alive")
    wait_until(lambda: waiting.log_tail() == ["waiting for a stop request"], lambda: str(waiting.status()))
    stop(waiting)
    wait_until(lambda: waiting.status().is_finished, lambda: str(waiting.status()))
    wait_until(lambda: not thread.is_alive(), lambda: str(Queue(store.root).snapshot()))
    if waiting.status().state != "stopped":
        failures.append(f"{name}: {waiting.status()} after a stop")
    return [f"{'kill of control processes' if only_control else 'kill of all'}: {active.status().state}"]


def started_twice(store: RunStore) -> list[str]:
    return [f"{run.id} started twice" for run in store.list() if len(Run(run.folder).log_tail()) > 1]


if __name__ == "__main__":
    raise SystemExit(main())
