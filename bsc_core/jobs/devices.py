"""The GPUs of this machine by id, told without torch, which would take memory on each of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

VISIBLE = "CUDA_VISIBLE_DEVICES"
_ASK = ("--query-gpu=uuid", "--format=csv,noheader")
_ANSWER_SECONDS = 10.0
_FRESH_SECONDS = 60.0


def visible_gpus() -> tuple[str, ...]:
    """Ids of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES takes them; none where there is no driver."""
    named = os.environ.get(VISIBLE)
    if named is not None:
        ids = [word.strip() for word in named.split(",")]
        return tuple(ids[: ids.index("-1")] if "-1" in ids else [word for word in ids if word])
    program = shutil.which("nvidia-smi")
    return _told(program, int(time.monotonic() // _FRESH_SECONDS)) if program else ()


@lru_cache(maxsize=1)
def _told(program: str, moment: int) -> tuple[str, ...]:
    """What the driver says; it takes its time, so it is asked again only at another moment."""
    try:
        told = subprocess.run([program, *_ASK], capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):  # a driver that does not answer serves no run either
        return ()
    return tuple(line.strip() for line in told.stdout.splitlines() if line.strip())


def default_slots(gpus: Sequence[str]) -> int:
    """Runs at the same time where none is set: one for each GPU, else one."""
    return max(1, len(gpus))


def least_used(gpus: Sequence[str], used: Iterable[str]) -> str:
    """The GPU with the fewest runs, the first of several."""
    runs = Counter(used)
    return min(gpus, key=lambda gpu: runs[gpu])
