"""What a launcher's environment says of the cluster for a run: BSC_RAY_ADDRESS and what to ask of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from bsc_core.errors import JobError
from bsc_core.jobs.ray_client import Resources, job_address
from bsc_core.runs import Run

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


@dataclass(frozen=True)
class RaySettings:
    """Where a run is performed and what it occupies there.

    address: URL of the cluster's dashboard. storage: URL that the run's folder goes through; empty: its path is the
    same on the nodes. python: the nodes' interpreter. workers: processes of the run, each with the resources `each`.
    """

    address: str
    storage: str
    python: str
    workers: int
    each: Resources

    @classmethod
    def of(cls, run: Run) -> RaySettings:
        """As its launcher's environment said; this process's where that named no cluster.

        Raises JobError, naming the variable at fault.
        """
        launched = run.read_json("launch") or {}
        return cls.read(launched if launched.get("BSC_RAY_ADDRESS") else {**os.environ, **launched})

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> RaySettings:
        """From environment variables. Raises JobError, naming the one at fault."""
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
            workers=int(_number(variables, "BSC_RAY_WORKERS", "1", least=1, whole=True)),
            each=Resources(
                cpus=_number(variables, "BSC_RAY_CPUS", "1"),
                gpus=_number(variables, "BSC_RAY_GPUS", "0"),
                memory=_size("BSC_RAY_MEMORY", memory),
            ),
        )
        if settings.workers > 1 and settings.storage:
            raise JobError(
                f"BSC_RAY_WORKERS is {settings.workers}, whose processes share the run's folder; keep the runs on a "
                "disk that all nodes share, and leave BSC_RAY_STORAGE out"
            )
        return settings

    @property
    def driver(self) -> Resources:
        """What the job itself occupies: nothing where it only starts the run's processes, which then occupy theirs."""
        return self.each if self.workers == 1 else Resources(cpus=0)

    @property
    def ranks(self) -> list[str]:
        """The arguments that tell how many processes to start and what each occupies; none for a run of one."""
        each = self.each
        return [] if self.workers == 1 else [str(self.workers), f"{each.cpus:g}", f"{each.gpus:g}", str(each.memory)]


def _number(variables: Mapping[str, str], name: str, default: str, *, least: float = 0, whole: bool = False) -> float:
    text = variables.get(name, "").strip() or default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value < 1e6 or (whole and value != int(value)):
        raise JobError(f"{name} is {text!r}; it must be a {'whole ' * whole}number of at least {least:g}")
    return value


def _size(name: str, text: str) -> int:
    found = _SIZE.fullmatch(text)
    unit = _UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None:
        raise JobError(f"{name} is {text!r}; write it in bytes or with a unit, such as 8GiB")
    return int(float(found[1]) * unit)
