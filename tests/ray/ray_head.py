"""A real Ray head for tests, on loopback only; it ends with the block."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from bsc_core.errors import JobError
from bsc_core.ray.jobs.client import RayClient
from bsc_core.ray.jobs.settings import Resources
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

HEAD_ATTEMPTS = 5
SHORT = "/tmp" if Path("/tmp").is_dir() else None  # the path of a socket has at most 107 characters
STUB_WORKER = Path(__file__).parents[1] / "jobs" / "stub_worker.py"
JOB_START_SECONDS = round(PATIENCE_SECONDS / 15)
"""After them the head gives up on a job that waits for resources, or whose process starts slowly on a busy machine."""


def stub_python(folder: Path, behavior: str) -> Path:
    """Return a command for BSC_RAY_PYTHON that performs a run with the stub experiment."""
    python = folder / f"python-{behavior}"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {STUB_WORKER} perform {behavior} "$4"\n', encoding="utf-8")
    python.chmod(0o755)
    return python


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def head_command(folder: str, ports: list[int]) -> list[str]:
    agent = ("dashboard-agent-listen-port", "dashboard-agent-grpc-port")
    options = {
        **dict(zip(("port", "dashboard-port", *agent, "ray-client-server-port"), ports, strict=True)),
        "node-ip-address": "127.0.0.1",
        "dashboard-host": "127.0.0.1",
        "num-cpus": 2,
        "num-gpus": 0,
        "memory": 2 * 2**30,
        "object-store-memory": 128 * 2**20,
        "temp-dir": folder,
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    start = [sys.executable, "-W", "ignore", "-c", "from ray.scripts.scripts import main; main()", "start"]
    return [*start, "--head", "--block", "--disable-usage-stats", *arguments]


@contextmanager
def ray_head() -> Iterator[tuple[str, str]]:
    """Start a head with two CPUs for the block; yield its address and that of its dashboard."""
    settings = {
        "RAY_JOB_START_TIMEOUT_SECONDS": str(JOB_START_SECONDS),
        "RAY_ADDRESS": "127.0.0.1:1",  # BSC_RAY_ADDRESS takes precedence
    }
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="r", dir=SHORT, ignore_cleanup_errors=True) as folder,
    ):
        for name, value in settings.items():
            patch.setenv(name, value)
        for attempt in range(HEAD_ATTEMPTS):  # a head gives up if a busy machine starts it too slowly
            process, address, dashboard = start_head(Path(folder, str(attempt)))
            try:
                if process.poll() is None:
                    yield address, dashboard
                    return
            finally:
                end(process)
        log = Path(folder, str(HEAD_ATTEMPTS - 1), "head.log").read_text(encoding="utf-8", errors="replace")
        pytest.fail(f"no Ray head started in {HEAD_ATTEMPTS} attempts: {log[-3000:]}")


def start_head(folder: Path, ports: list[int] | None = None) -> tuple[subprocess.Popen[bytes], str, str]:
    """Start a head and wait until it answers or has ended; return its process, its address and its dashboard's.

    Args:
        folder: Created for its files.
        ports: Five ports; None for free ones.
    """
    folder.mkdir()
    ports = ports or free_ports(5)
    dashboard = f"http://127.0.0.1:{ports[1]}"
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    with (folder / "head.log").open("wb") as log:
        process = subprocess.Popen(head_command(str(folder), ports), stdout=log, stderr=log, env=environment)
    try:
        wait_until(lambda: process.poll() is not None or answers(dashboard), (folder / "head.log").read_text)
    except AssertionError:
        end(process)
        raise
    return process, f"127.0.0.1:{ports[0]}", dashboard


def answers(address: str) -> bool:
    try:
        RayClient(address).submit(f"probe-{secrets.token_hex(4)}", "true", Resources(), {})
    except JobError:
        return False
    return True


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its descendants, each by its id."""
    if process.poll() is not None:
        return
    members = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    process.terminate()
    _, left = psutil.wait_procs(members, timeout=3)
    for member in left:
        member.kill()
    psutil.wait_procs(left, timeout=PATIENCE_SECONDS)
    process.wait(timeout=PATIENCE_SECONDS)
