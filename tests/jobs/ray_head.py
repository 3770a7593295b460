"""A real Ray head for tests: it listens on loopback alone, asks for a token, and ends with the block."""

from __future__ import annotations

import os
import secrets
import shutil
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
from bsc_core.jobs.identity import wait_until
from bsc_core.jobs.ray_client import RayClient, Resources

PATIENCE = 10  # seconds after which the head gives up on a job that waits for room


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def head_command(folder: str, ports: list[int]) -> list[str]:
    named = (
        "port",
        "dashboard-port",
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "ray-client-server-port",
    )
    options = {
        **dict(zip(named, ports, strict=True)),
        "node-ip-address": "127.0.0.1",
        "dashboard-host": "127.0.0.1",
        "num-cpus": 2,
        "num-gpus": 0,
        "memory": 2 * 2**30,
        "object-store-memory": 128 * 2**20,
        "temp-dir": folder,
    }
    told = [f"--{name}={value}" for name, value in options.items()]
    code = "from ray.scripts.scripts import main; main()"
    return [sys.executable, "-W", "ignore", "-c", code, "start", "--head", "--block", "--disable-usage-stats", *told]


@contextmanager
def ray_head() -> Iterator[str]:
    """A head with two CPUs, for the block. Yields the address of its dashboard."""
    settings = {
        "RAY_JOB_START_TIMEOUT_SECONDS": str(PATIENCE),
        "RAY_ADDRESS": "127.0.0.1:1",  # what BSC_RAY_ADDRESS says comes first
    }
    folder, ports = tempfile.mkdtemp(prefix="ray-"), free_ports(5)  # short, since sockets live in it
    address = f"http://127.0.0.1:{ports[1]}"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        without = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
        with Path(folder, "head.log").open("wb") as log:
            process = subprocess.Popen(head_command(folder, ports), stdout=log, stderr=log, env=without)
        try:
            assert wait_until(lambda: answers(address), 60), Path(folder, "head.log").read_text(encoding="utf-8")
            yield address
        finally:
            end(process)
            shutil.rmtree(folder, ignore_errors=True)


def answers(address: str) -> bool:
    try:
        RayClient(address).submit(f"probe-{secrets.token_hex(4)}", "true", Resources(), {})
    except JobError:
        return False
    return True


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, each by its id."""
    members = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    process.terminate()
    _, left = psutil.wait_procs(members, timeout=3)
    for member in left:
        member.kill()
    psutil.wait_procs(left, timeout=15)
    process.wait(timeout=15)
