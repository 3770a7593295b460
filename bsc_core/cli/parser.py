"""Parser of the command line: commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bsc_core import __version__
from bsc_core.cli.commands import (
    AUTO,
    Outcome,
    app,
    audit,
    check,
    convert,
    diagnose,
    evaluate,
    merge,
    mine,
    plan,
    shard,
    users,
)
from bsc_core.cli.run_commands import queue, reproduce, resume, runs, stop, sweep, train, worker
from bsc_core.errors import ColumnError, InputError

if TYPE_CHECKING:
    from bsc_core.config import Columns

PAIR_FILE = "pairs: CSV, TSV, JSONL (or .gz), Parquet, a saved dataset, or hf://owner/name"
Number = TypeVar("Number", int, float)
Command = Callable[[argparse.Namespace], Outcome]


class _Parser(argparse.ArgumentParser):
    """Parser that raises InputError instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `bsc`."""
    parser = _Parser(prog="bsc", description="Contrastive fine-tuning of sentence encoders.")
    parser.add_argument("--version", action="version", version=f"bsc {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = _command(commands, "app", app, report=False)
    command.add_argument(
        "--host",
        metavar="ADDRESS",
        help="share the app on this address with the users of `bsc users` (default: localhost, without sign-in)",
    )
    command.add_argument("--port", type=_at_least_one, help="port of the server (default: 8501, or the next free one)")
    command.add_argument("--no-browser", action="store_true", help="open no browser window")

    command = _command(commands, "users", users)
    command.add_argument("action", nargs="?", choices=("list", "add", "remove"), default="list")
    command.add_argument("name", nargs="?", metavar="NAME", help="lower-case letters, digits, '.', '_' and '-'")
    command.add_argument("--role", choices=("owner", "member", "student"), help="what the user may do")
    command.add_argument(
        "--email", help="sign in with the account of this address at a provider (default: a secret link)"
    )
    command.add_argument("--url", default="http://localhost:8501", help="address of the app in the link")

    _add_training(commands)
    _add_evaluation(commands)
    _add_data(commands)
    _add_jobs(commands)
    return parser


def _add_training(commands: Any) -> None:
    """Add the commands that train."""
    command = _command(commands, "train", train)
    _add_config(command)
    _add_detach(command)

    command = _command(commands, "sweep", sweep)
    _add_config(command)
    command.add_argument(
        "--over", action="append", default=[], metavar="KEY=VALUE,...", help="a key and its values; may be repeated"
    )
    command.add_argument(
        "--random", type=_at_least_one, metavar="N", help="sample N combinations instead of running all"
    )
    command.add_argument("--yes", action="store_true", help="start more than 100 runs")
    command.add_argument(
        "--dry-run", action="store_true", help="print the number of runs and validate up to 100 of them; start none"
    )
    _add_detach(command)

    _add_config(_command(commands, "check", check))

    command = _command(commands, "reproduce", reproduce)
    command.add_argument("names", nargs="*", metavar="NAME", help="claims, or all")
    command.add_argument("--list", action="store_true", help="list the claims and their verdicts")
    command.add_argument("--data", metavar="FOLDER", help="folder that contains the datasets, needed by --form full")
    command.add_argument(
        "--form", choices=("full", "small"), default="full", help="small: a few steps on the sample data"
    )
    command.add_argument(
        "--plan",
        action="store_true",
        help="train nothing; predict detectable differences and processor time from stored findings",
    )
    command.add_argument("--seeds", type=_at_least_one, metavar="N", help="number of seeds (default: the claim's)")
    command.add_argument(
        "--processes", type=_at_least_one, default=1, metavar="N", help="train runs in N processes (default: 1)"
    )
    command.add_argument("--publish", action="store_true", help="also store the findings in the package")
    command.add_argument("--report", metavar="FILE.md", help="write the stored findings into a document")


def _add_evaluation(commands: Any) -> None:
    """Add the commands that evaluate a model or a plan."""
    command = _command(commands, "evaluate", evaluate)
    command.add_argument("model", metavar="MODEL_OR_RUN", help="bundled, static, a model folder, a hub id, or a run")
    data = command.add_mutually_exclusive_group(required=True)
    data.add_argument("--data", metavar="FILE", help=PAIR_FILE)
    data.add_argument("--mteb", metavar="TASK", help="MTEB task, such as STSBenchmark (needs bsc-lab[mteb])")
    data.add_argument("--probes", metavar="FOLDER", help="folder of SentEval transfer tasks, such as senteval_mr")
    data.add_argument("--sts", metavar="FOLDER", help="folder of similarity datasets, such as sts12 or stsb")
    data.add_argument(
        "--classes", metavar="FILE", help="classified sentences (text, label, split) for polarity metrics"
    )
    command.add_argument("--tasks", metavar="NAME,...", help="with --probes or --sts: only these tasks")
    command.add_argument(
        "--baseline",
        "--beside",
        metavar="MODEL",
        help="encoder to compare with (default: the one the run started from, else bundled)",
    )
    command.add_argument("--corpus", metavar="FILE", help="file of documents to search")
    _add_columns(command, "the run's, else ")
    command.add_argument(
        "--threshold", type=_share, help="label above which a pair is positive (default: the run's, else 0.5)"
    )
    command.add_argument(
        "--max-seq-length", "--max-length", type=_at_least_one, help="tokens per text (default: the run's, else 90)"
    )

    command.add_argument(
        "--dimensions",
        type=_dimensions,
        default=(),
        metavar="NUMBER,...",
        help="with --data: also evaluate the vectors truncated to their first NUMBER coordinates, such as 256,64",
    )
    for side in ("query", "document"):
        command.add_argument(
            f"--{side}-prompt",
            metavar="TEXT_OR_NAME",
            help=f"text put before each {side}, or a name of the model's prompts (default: the run's)",
        )

    command = _command(commands, "merge", merge)
    command.add_argument("names", nargs="+", metavar="RUN", help="a run, or several that differ only in their seed")
    command.add_argument(
        "--alpha",
        type=_alpha,
        metavar="SHARE",
        help=f"share of the trained weights (the rest is the start), or {AUTO} for the suggested one; default: {AUTO} "
        "for one run, while several runs or checkpoints are averaged and not merged with the start",
    )
    command.add_argument(
        "--tolerance",
        type=_share,
        default=0.005,
        help="decrease of the general score that the suggested alpha may have (default: 0.005)",
    )
    command.add_argument(
        "--last-checkpoints", type=_at_least_one, metavar="K", help="average the last K checkpoints of one run"
    )
    command.add_argument("--output", metavar="FOLDER", help="a new folder for the merged model (default: report only)")

    command = _command(commands, "diagnose", diagnose)
    command.add_argument("run", metavar="RUN", help="id or folder of a run, see `bsc runs`")

    command = _command(commands, "plan", plan)
    _add_config(command)
    command.add_argument("--epoch", type=_at_least_zero, default=0, help="epoch of the plan, from 0")

    command = _command(commands, "shard", shard)
    _add_config(command)
    command.add_argument("out", metavar="OUT", help="a new folder for the shards")
    command.add_argument("--epoch", type=_at_least_zero, default=0, help="epoch of the plan, from 0")
    command.add_argument("--address", help="HOST:PORT of a Ray head, or auto (default: a cluster on this machine)")


def _add_data(commands: Any) -> None:
    """Add the commands that read a file of pairs."""
    command = _command(commands, "audit", audit)
    command.add_argument("file", metavar="FILE", help=PAIR_FILE)
    _add_columns(command)
    command.add_argument("--threshold", type=_share, help="label above which a pair is positive (default: 0.5)")
    command.add_argument("--max-seq-length", "--max-length", type=_at_least_one, help="tokens per text (default: 90)")

    command = _command(commands, "convert", convert)
    command.add_argument("file", metavar="FILE", help=PAIR_FILE)
    command.add_argument("out", metavar="OUT.parquet", help="a new file")
    _add_columns(command)

    command = _command(commands, "mine", mine)
    _add_config(command)
    command.add_argument("--output", metavar="FILE", help="a new .tsv or .parquet file (default: report only)")
    command.add_argument(
        "--layout", choices=("triplet", "n-tuple", "labeled-pair"), default="triplet", help="columns of the file"
    )


def _add_jobs(commands: Any) -> None:
    """Add the commands on runs."""
    _command(commands, "runs", runs)

    command = _command(commands, "resume", resume)
    command.add_argument("run", metavar="RUN", help="id of a run that ended early, see `bsc runs`")
    command.add_argument("--detach", action="store_true", help="queue the run and return at once")

    command = _command(commands, "stop", stop)
    command.add_argument("run", metavar="RUN", help="id of a run, see `bsc runs`")
    command.add_argument(
        "--grace", type=_seconds, metavar="SECONDS", help="time to finish its step (default: as with the Stop button)"
    )

    command = _command(commands, "queue", queue)
    command.add_argument(
        "change", nargs="*", metavar="CHANGE", help="pause, resume, move RUN POSITION (1 is the next), slots N|default"
    )

    command = _command(commands, "worker", worker)
    command.add_argument("--slots", type=_at_least_one, help="number of parallel runs (default: the queue's setting)")
    command.add_argument("--keep-running", "--keep", action="store_true", help="do not exit when the queue is empty")


def _command(commands: Any, name: str, function: Command, *, report: bool = True) -> argparse.ArgumentParser:
    summary = (function.__doc__ or "").partition(".")[0].partition(";")[0]
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary[0].lower() + summary[1:], description=f"{summary}.", allow_abbrev=False
    )
    parser.set_defaults(command=function)
    parser.add_argument("--runs", metavar="DIR", help="runs folder (default: BSC_RUNS, else ./runs)")
    if report:
        parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG.toml", help="config file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key, such as loss.temperature=0.05; may be repeated",
    )


def _add_detach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--detach", action="store_true", help="queue the run and return at once")
    parser.add_argument(
        "--backend", metavar="NAME", help="with --detach: local or ray (default: BSC_BACKEND, else local)"
    )


def _add_columns(parser: argparse.ArgumentParser, default: str = "") -> None:
    parser.add_argument(
        "--columns", type=_columns, metavar="ROLE=COLUMN,...", help="query=..,document=..,label=.. (default: detected)"
    )
    parser.add_argument("--label-min", type=float, help=f"label that is mapped to 0 (default: {default}0)")
    parser.add_argument(
        "--label-max", type=float, help=f"label that is mapped to 1, such as 5 for STSb (default: {default}1)"
    )


def _at_least_one(text: str) -> int:
    return _between(int(text), 1, 2**31)


def _at_least_zero(text: str) -> int:
    return _between(int(text), 0, 2**31)


def _dimensions(text: str) -> tuple[int, ...]:
    return tuple(_at_least_one(part) for part in text.split(","))


def _seconds(text: str) -> float:
    return _between(float(text), 0.0, 1e6)


def _share(text: str) -> float:
    return _between(float(text), 0.0, 1.0)


def _alpha(text: str) -> float | str:
    try:
        return text if text == AUTO else _share(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number from 0 to 1 nor {AUTO}") from None


def _between(value: Number, lowest: Number, highest: Number) -> Number:
    if not lowest <= value <= highest:
        raise argparse.ArgumentTypeError(f"{value} is not between {lowest} and {highest}")
    return value


def _columns(text: str) -> Columns:
    """Return `query=title,query=body,document=text` as Columns; the columns of a repeated role are joined."""
    from pydantic import ValidationError

    from bsc_core.config import Columns, validation_message

    roles: dict[str, tuple[str, ...]] = {}
    for part in text.split(","):
        role, separator, column = (text.strip() for text in part.partition("="))
        if not (role and separator and column):
            raise ColumnError(f"--columns {text}: write it as query=COLUMN,document=COLUMN,label=COLUMN")
        roles[role] = (*roles.get(role, ()), column)
    try:
        return Columns.model_validate({role: names if len(names) > 1 else names[0] for role, names in roles.items()})
    except ValidationError as error:
        raise ColumnError(f"--columns {text}: {validation_message(error)}") from None
