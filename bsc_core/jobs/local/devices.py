"""GPUs of this machine, listed without torch, which would allocate memory on each of them."""

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

VISIBLE = "CUDA_VISIBLE_DEVICES"
_QUERY = ("--query-gpu=uuid", "--format=csv,noheader")
_QUERY_SECONDS = 10.0
_CACHE_SECONDS = 60.0


def visible_gpus() -> tuple[str, ...]:
    """Return the ids of the GPUs that this process may use, in the form of CUDA_VISIBLE_DEVICES."""
    variable = os.environ.get(VISIBLE)
    if variable is not None:
        ids = [part.strip() for part in variable.split(",")]
        return tuple(ids[: ids.index("-1")] if "-1" in ids else [part for part in ids if part])
    program = shutil.which("nvidia-smi")
    return _query_driver(program, int(time.monotonic() // _CACHE_SECONDS)) if program else ()


@lru_cache(maxsize=1)
def _query_driver(program: str, period: int) -> tuple[str, ...]:
    """Return the ids that the driver lists; it is slow, so the result is cached for a `period`."""
    try:
        result = subprocess.run([program, *_QUERY], capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):  # a run could not use such a driver either
        return ()
    return tuple(line.strip() for line in result.stdout.splitlines() if line.strip())


def default_slots(gpus: Sequence[str]) -> int:
    """Return the default number of parallel runs: one per GPU, at least one."""
    return max(1, len(gpus))


def least_used(gpus: Sequence[str], used: Iterable[str]) -> str:
    """Return the GPU with the fewest runs; the first if several have."""
    runs = Counter(used)
    return min(gpus, key=lambda gpu: runs[gpu])
