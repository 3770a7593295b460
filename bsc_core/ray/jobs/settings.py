"""Settings of a run in a Ray cluster, from environment variables: address, storage, processes and their resources."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from bsc_core.errors import JobError
from bsc_core.runs import Run
from bsc_core.runs.documents import LAUNCHED

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


@dataclass(frozen=True)
class Resources:
    """Resources of a job; `memory` in bytes, 0 for no request."""

    cpus: float = 1.0
    gpus: float = 0.0
    memory: int = 0

    def __str__(self) -> str:
        parts = [f"{self.cpus:g} CPU{'s' * (self.cpus != 1)}"] if self.cpus else []
        parts += [f"{self.gpus:g} GPU{'s' * (self.gpus != 1)}"] if self.gpus else []
        parts += [f"{self.memory / 2**30:.3g} GiB"] if self.memory else []
        return ", ".join(parts) or "a free slot"


@dataclass(frozen=True)
class RaySettings:
    """Settings of a run in a cluster."""

    address: str  # of the cluster's dashboard
    storage: str  # URL through which the run's folder is transferred; empty if its path is the same on the nodes
    python: str  # interpreter of the nodes
    workers: int  # number of processes of the run
    per_process: Resources  # of each process

    @classmethod
    def for_run(cls, run: Run) -> RaySettings:
        """Read the environment of the run's launcher, or of this process if that has no BSC_RAY_ADDRESS.

        Raises:
            JobError: A variable is not valid; the message names it.
        """
        launched = run.read_signed(LAUNCHED) or {}
        return cls.read(launched if launched.get("BSC_RAY_ADDRESS") else {**os.environ, **launched})

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> RaySettings:
        """Read environment variables.

        Raises:
            JobError: A variable is not valid; the message names it.
        """
        address = variables.get("BSC_RAY_ADDRESS", "").strip()
        if not address:
            raise JobError(
                "BSC_RAY_ADDRESS is not set; give the address of the Ray cluster's dashboard, such as "
                "http://10.0.0.1:8265, or use the backend local"
            )
        memory = variables.get("BSC_RAY_MEMORY", "").strip() or "0"
        settings = cls(
            address=job_address(address),
            storage=variables.get("BSC_RAY_STORAGE", "").strip(),
            python=variables.get("BSC_RAY_PYTHON", "").strip() or "python",
            workers=int(_number(variables, "BSC_RAY_WORKERS", "1", minimum=1, is_integer=True)),
            per_process=Resources(
                cpus=_number(variables, "BSC_RAY_CPUS", "1"),
                gpus=_number(variables, "BSC_RAY_GPUS", "0"),
                memory=_size("BSC_RAY_MEMORY", memory),
            ),
        )
        if settings.workers > 1 and settings.storage:
            raise JobError(
                f"BSC_RAY_WORKERS is {settings.workers} and needs a runs folder on a disk that all nodes share; "
                "leave BSC_RAY_STORAGE out"
            )
        return settings

    @property
    def driver(self) -> Resources:
        """Resources of the job itself: none if it only starts the processes of a distributed run."""
        return self.per_process if self.workers == 1 else Resources(cpus=0)

    @property
    def ranks(self) -> list[str]:
        """Arguments of `worker_ranks`: number and resources of the processes; empty for a single process."""
        each = self.per_process
        return [] if self.workers == 1 else [str(self.workers), f"{each.cpus:g}", f"{each.gpus:g}", str(each.memory)]


def job_address(address: str) -> str:
    """Return the address of a dashboard as a URL.

    Raises:
        JobError: The address is malformed.
    """
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 80) > 0
    except ValueError:
        is_valid = False
    if not is_valid or (":" not in address and "." not in address):
        raise JobError(
            f"BSC_RAY_ADDRESS is {address!r}; give the address of the cluster's dashboard, such as http://10.0.0.1:8265"
        )
    return url.rstrip("/")


def _number(
    variables: Mapping[str, str], name: str, default: str, *, minimum: float = 0, is_integer: bool = False
) -> float:
    text = variables.get(name, "").strip() or default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not minimum <= value < 1e6 or (is_integer and value != int(value)):
        raise JobError(f"{name} is {text!r}; it must be a {'whole ' * is_integer}number of at least {minimum:g}")
    return value


def _size(name: str, text: str) -> int:
    match = _SIZE.fullmatch(text)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise JobError(f"{name} is {text!r}; write it in bytes or with a unit, such as 8GiB")
    return int(float(match[1]) * unit)
