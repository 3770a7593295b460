"""Command line `bsc`: app, training, evaluation, plans, and background runs.

Each command returns an exit status and a report. `--json` prints the report as one JSON object on standard output;
progress and messages go to standard error. Exit status: 0 done, 1 run failed, 2 invalid input.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import NoReturn

from bsc_core.cli.output import as_json, lines
from bsc_core.cli.parser import Command, make_parser
from bsc_core.errors import BscError, InputError
from bsc_core.formatting import one_line


def entry() -> NoReturn:
    """Run the console script; variables that torch reads are set before it is imported."""
    from bsc_core.jobs.local.processes import PROCESS_ENVIRONMENT

    for name, value in PROCESS_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    status = main()
    from bsc_core.jobs.worker_ranks import is_distributed

    if is_distributed():  # threads of the process group may abort an interpreter that is finalizing
        sys.stderr.flush()
        os._exit(status)
    raise SystemExit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    wants_json = "--json" in words
    try:
        arguments = make_parser().parse_args(words)
        with redirect_stdout(sys.stderr):  # libraries may print; standard output is for the report
            command: Command = arguments.command
            status, report = command(arguments)
    except BscError as error:
        status, report = (2 if isinstance(error, InputError) else 1), {"error": " ".join(str(error).split())}
    except KeyboardInterrupt:
        status, report = 1, {"error": "interrupted by Ctrl-C"}
    except OSError as error:  # such as a full disk or a read-only folder
        where = f"{error.filename}: " if error.filename else ""
        status, report = 1, {"error": f"{where}{error.strerror or error}; check the folder and the free disk space"}
    except Exception as error:
        traceback.print_exc()
        status, report = 1, {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}
    from bsc_core.jobs.worker_ranks import launched_rank

    if launched_rank():  # the main process reports for all of them
        return status
    if report.get("error"):
        sys.stderr.write(f"bsc: {one_line(report['error'])}\n")
    try:
        if wants_json:
            sys.stdout.write(as_json(report) + "\n")
        elif status != 2 and set(report) != {"error"}:
            sys.stdout.writelines(one_line(line) + "\n" for line in lines(report))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status
