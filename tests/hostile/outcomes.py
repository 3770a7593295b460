"""Outcomes of reading hostile inputs in one separate process, whose memory and processor time are measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from bsc_core.errors import BscError
from tests.helpers.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
REFERENCE_SECONDS = 0.14  # of processor time that `_reference_seconds` takes on a quiet machine of 2024


def read_outcomes(reader: Path, folder: Path) -> dict[str, Any]:
    """Run the script `reader` on a folder; return what its `write_outcomes` writes, and its standard error as `log`."""
    result = subprocess.run(
        [sys.executable, str(reader), str(folder)],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=PATIENCE_SECONDS,
    )
    found: dict[str, Any] = json.loads(result.stdout)
    return found | {"log": result.stderr}


def write_outcomes(*reads: Callable[[Path], object]) -> None:
    """Read every entry of the folder in the first argument; write the results, the seconds and the memory as JSON.

    Each entry has the result of the function, or a list of those of several functions, and the seconds of the slowest.
    These are seconds of processor time on the reference machine: on a slower machine, or one that shares its cores,
    the time is divided by that of a fixed computation beside it. The memory is that above the peak at the beginning,
    so import libraries before.
    """
    start = _peak_bytes()
    outcomes, seconds = {}, {}
    for path in sorted(Path(sys.argv[1]).iterdir()):
        times, results = [time.process_time()], []
        for read in reads:
            results.append(read(path))
            times.append(time.process_time())
        outcomes[path.name] = results if len(results) > 1 else results[0]
        slowest = max(after - before for before, after in pairwise(times))
        seconds[path.name] = slowest if slowest < 1 else slowest * min(1.0, REFERENCE_SECONDS / _reference_seconds())
        sys.stderr.write(f"{path}: {_peak_bytes() - start:,} bytes\n")
    sys.stdout.write(json.dumps({"outcomes": outcomes, "bytes": _peak_bytes() - start, "seconds": seconds}))


def outcome(read: Callable[[], str]) -> str:
    """Return what was read, the message of an error that is raised on purpose, or the traceback of another one."""
    try:
        return read()
    except BscError as error:
        return str(error)
    except BaseException:
        return traceback.format_exc()


def _reference_seconds() -> float:
    """Return the processor time in seconds of reading 500,000 rows of JSON."""
    text = json.dumps([{"query": f"text {number}", "document": "text"} for number in range(20_000)])
    start = time.process_time()
    for _ in range(25):
        json.loads(text)
    return time.process_time() - start


def _peak_bytes() -> int:
    """Return the peak memory of this process; `ru_maxrss` would include that of the process which started it."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])
