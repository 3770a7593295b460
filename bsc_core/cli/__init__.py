"""The command `bsc`: the app, training, evaluation and plans, and the runs in the background.

Each command returns an exit status and a report. `--json` prints the report as the one JSON object on standard output;
progress and messages go to standard error. Exit status: 0 done, 1 the run failed, 2 the input was refused.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import NoReturn

from bsc_core.cli.parser import Command, make_parser
from bsc_core.cli.reports import as_json, lines
from bsc_core.errors import BscError, InputError


def entry() -> NoReturn:
    """The console script. What torch reads from the environment is set before anything loads it."""
    from bsc_core.jobs.local import CALM_PROCESS

    for name, value in CALM_PROCESS.items():
        os.environ.setdefault(name, value)
    raise SystemExit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    wants_json = "--json" in words
    try:
        arguments = make_parser().parse_args(words)
        with redirect_stdout(sys.stderr):  # whatever a library prints, standard output holds the report only
            command: Command = arguments.command
            status, report = command(arguments)
    except BscError as error:
        status, report = (2 if isinstance(error, InputError) else 1), {"error": " ".join(str(error).split())}
    except KeyboardInterrupt:
        status, report = 1, {"error": "broken off by Ctrl-C"}
    except OSError as error:  # such as a full disk, or a folder that may not be written
        where = f"{error.filename}: " if error.filename else ""
        status, report = 1, {"error": f"{where}{error.strerror or error}; check the folder and the free disk space"}
    except Exception as error:
        traceback.print_exc()
        status, report = 1, {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    from bsc_core.jobs.ranks import launched_rank

    if launched_rank():  # the main process of a run with several says it
        return status
    if report.get("error"):
        sys.stderr.write(f"bsc: {report['error']}\n")
    try:
        if wants_json:
            sys.stdout.write(as_json(report) + "\n")
        elif status != 2 and set(report) != {"error"}:
            sys.stdout.writelines(line + "\n" for line in lines(report))
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has gone, as `head` does; what is left goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
