"""Python imports this module first if its folder is on PYTHONPATH; `time.time` then adds the seconds in a file."""

import os
import time
from pathlib import Path

_file = Path(os.environ.get("BSC_STRESS_CLOCK", os.devnull))
_real_time = time.time


def _shifted_time() -> float:
    try:
        return _real_time() + float(_file.read_text() or 0)
    except (OSError, ValueError):  # being written
        return _real_time()


time.time = _shifted_time
