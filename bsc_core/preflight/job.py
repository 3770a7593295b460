"""A preflight in a process of its own, for a page: `python -m bsc_core.preflight.job FOLDER`.

The folder holds request.json, {"config": {...}, "runs": folder}; progress.json says how far it is, and result.json
appears whole when it is done. What the run would be refused with stands in progress.json under `error`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bsc_core.config import make_config
from bsc_core.errors import BscError
from bsc_core.preflight import preflight
from bsc_core.projection import say
from bsc_core.runs import RunStore


def result_file(folder: Path) -> Path:
    """Where the report stands once it is made."""
    return folder / "result.json"


def perform(folder: Path) -> None:
    """Do what the folder's request asks for, and write the report."""
    say(folder, 0, 1, "loading the libraries")
    wanted = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    found = preflight(make_config(wanted["config"]), store=RunStore(wanted["runs"]), say=partial(say, folder))
    draft = folder / f"result.{os.getpid()}.json"
    draft.write_text(json.dumps(found.as_report()), encoding="utf-8")
    draft.replace(result_file(folder))


def main(arguments: Sequence[str]) -> int:
    """FOLDER: that of the request. Returns 0 when there is a report or a refusal to read."""
    folder = Path(arguments[0])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what it wrote for the probe is removed
    try:
        perform(folder)
    except BscError as refusal:
        say(folder, 0, 1, "refused", error=str(refusal))
    except KeyboardInterrupt:
        return 1
    except Exception as error:  # the page reads the reason; the log beside it has the trace
        say(folder, 0, 1, "stopped", error=f"{type(error).__name__}: {error}")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
