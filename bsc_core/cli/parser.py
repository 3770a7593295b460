"""The command line: commands, their options, and how a wrong one is refused."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from bsc_core import __version__
from bsc_core.cli.commands import Outcome, app, audit, check, convert, evaluate, plan, shard
from bsc_core.cli.reproducing import reproduce
from bsc_core.cli.running import queue, resume, runs, stop, sweep, train, worker
from bsc_core.errors import ColumnError, InputError

if TYPE_CHECKING:
    from bsc_core.config import Columns

PAIR_FILE = "pairs: CSV, TSV, JSONL (or .gz), Parquet, a saved data set, or hf://owner/name"
Number = TypeVar("Number", int, float)
Command = Callable[[argparse.Namespace], Outcome]


class _Parser(argparse.ArgumentParser):
    """Refuses a command line in one sentence, as any other input."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bsc", description="See a batch before paying for it: contrastive fine-tuning of encoders.")
    parser.add_argument("--version", action="version", version=f"bsc {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = _command(commands, "app", app, report=False)
    command.add_argument("--port", type=_at_least_one, help="port of the server (default: 8501, or the next free one)")
    command.add_argument("--no-browser", action="store_true", help="open no browser window")

    _add_training(commands)
    _add_looks(commands)
    _add_data(commands)
    _add_jobs(commands)
    return parser


def _add_training(commands: Any) -> None:
    """Commands that train."""
    command = _command(commands, "train", train)
    _add_config(command)
    _add_detach(command)

    command = _command(commands, "sweep", sweep)
    _add_config(command)
    command.add_argument(
        "--over", action="append", default=[], metavar="KEY=VALUE,...", help="a key and its values; may be repeated"
    )
    command.add_argument("--random", type=_at_least_one, metavar="N", help="draw N combinations instead of all")
    command.add_argument("--yes", action="store_true", help="make more than 100 runs")
    command.add_argument("--dry-run", action="store_true", help="say how many runs, check up to 100 of them, make none")
    _add_detach(command)

    _add_config(_command(commands, "check", check))

    command = _command(commands, "reproduce", reproduce)
    command.add_argument("names", nargs="*", metavar="NAME", help="recipes, or all")
    command.add_argument("--list", action="store_true", help="say which recipes there are, and what came of them")
    command.add_argument("--data", metavar="FOLDER", help="the folder of data sets, which the full form reads")
    command.add_argument(
        "--form", choices=("full", "small"), default="full", help="small: a few steps on the sample data, to try it"
    )
    command.add_argument("--publish", action="store_true", help="also keep the findings in the package")
    command.add_argument("--report", metavar="FILE.md", help="write all kept findings between the marks of a file")


def _add_looks(commands: Any) -> None:
    """Commands that measure a model or a plan."""
    command = _command(commands, "evaluate", evaluate)
    command.add_argument("model", metavar="MODEL_OR_RUN", help="bundled, static, a model folder, a hub id, or a run")
    measured = command.add_mutually_exclusive_group(required=True)
    measured.add_argument("--data", metavar="FILE", help=PAIR_FILE)
    measured.add_argument("--mteb", metavar="TASK", help="a task of mteb, as STSBenchmark (needs bsc-lab[mteb])")
    measured.add_argument("--probes", metavar="FOLDER", help="SentEval's transfer tasks, as senteval_mr, in a folder")
    measured.add_argument("--sts", metavar="FOLDER", help="similarity data sets, as sts12 or stsb, in a folder")
    measured.add_argument("--classes", metavar="FILE", help="polarity and semantics of sentences: text, label, split")
    command.add_argument("--tasks", metavar="NAME,...", help="with --probes or --sts: these tasks alone")
    command.add_argument(
        "--beside", metavar="MODEL", help="the untrained encoder (default: what the run started from, else bundled)"
    )
    command.add_argument("--corpus", metavar="FILE", help="documents to search")
    _add_columns(command, "the run's, else ")
    command.add_argument("--threshold", type=_share, help="a pair is positive above this label (the run's, else 0.5)")
    command.add_argument("--max-length", type=_at_least_one, help="tokens kept of a text (default: the run's, else 90)")

    command = _command(commands, "plan", plan)
    _add_config(command)
    command.add_argument("--epoch", type=_at_least_zero, default=0, help="epoch of the plan, from 0")

    command = _command(commands, "shard", shard)
    _add_config(command)
    command.add_argument("out", metavar="OUT", help="a new folder for the shards")
    command.add_argument("--epoch", type=_at_least_zero, default=0, help="epoch of the plan, from 0")
    command.add_argument("--address", help="HOST:PORT of a Ray head, or auto (default: a cluster on this machine)")


def _add_data(commands: Any) -> None:
    """Commands that read a file of pairs."""
    command = _command(commands, "audit", audit)
    command.add_argument("file", metavar="FILE", help=PAIR_FILE)
    _add_columns(command)
    command.add_argument("--threshold", type=_share, help="a pair is positive above this label (0.5)")
    command.add_argument("--max-length", type=_at_least_one, help="tokens that the encoder keeps of a text (90)")

    command = _command(commands, "convert", convert)
    command.add_argument("file", metavar="FILE", help=PAIR_FILE)
    command.add_argument("out", metavar="OUT.parquet", help="a new file")
    _add_columns(command)


def _add_jobs(commands: Any) -> None:
    """Commands that look after runs."""
    _command(commands, "runs", runs)

    command = _command(commands, "resume", resume)
    command.add_argument("run", metavar="RUN", help="a run as `bsc runs` names it, which ended early")
    command.add_argument("--detach", action="store_true", help="queue the run and return at once")

    command = _command(commands, "stop", stop)
    command.add_argument("run", metavar="RUN", help="a run as `bsc runs` names it")
    command.add_argument("--grace", type=_seconds, default=30.0, metavar="SECONDS", help="time to end its step (30)")

    command = _command(commands, "queue", queue)
    command.add_argument(
        "change", nargs="*", metavar="CHANGE", help="pause, unpause, move RUN PLACE (1 is the next), slots N"
    )

    command = _command(commands, "worker", worker)
    command.add_argument("--slots", type=_at_least_one, help="runs at the same time (default: as the queue says)")
    command.add_argument("--keep", action="store_true", help="wait for further runs when the queue is empty")


def _command(commands: Any, name: str, function: Command, *, report: bool = True) -> argparse.ArgumentParser:
    summary = (function.__doc__ or "").partition(".")[0].partition(";")[0]
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary.lower(), description=f"{summary}.", allow_abbrev=False
    )
    parser.set_defaults(command=function)
    parser.add_argument("--runs", metavar="DIR", help="runs folder (default: BSC_RUNS, else ./runs)")
    if report:
        parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG.toml", help="the experiment")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="change a key, as in loss.temperature=0.05"
    )


def _add_detach(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--detach", action="store_true", help="queue it and return at once")
    parser.add_argument("--backend", metavar="NAME", help="with --detach: local or ray (BSC_BACKEND, else local)")


def _add_columns(parser: argparse.ArgumentParser, default: str = "") -> None:
    parser.add_argument(
        "--columns", type=_columns, metavar="ROLE=COLUMN,...", help="query=..,document=..,label=.. (default: guessed)"
    )
    parser.add_argument("--label-min", type=float, help=f"the label that means 0 ({default}0)")
    parser.add_argument("--label-max", type=float, help=f"the label that means 1, as 5 for STSb ({default}1)")


def _at_least_one(text: str) -> int:
    return _between(int(text), 1, 2**31)


def _at_least_zero(text: str) -> int:
    return _between(int(text), 0, 2**31)


def _seconds(text: str) -> float:
    return _between(float(text), 0.0, 1e6)


def _share(text: str) -> float:
    return _between(float(text), 0.0, 1.0)


def _between(value: Number, lowest: Number, highest: Number) -> Number:
    if not lowest <= value <= highest:
        raise argparse.ArgumentTypeError(f"{value} is not between {lowest} and {highest}")
    return value


def _columns(text: str) -> Columns:
    """`query=title,query=body,document=text` as Columns; a role that is given twice joins its columns."""
    from pydantic import ValidationError

    from bsc_core.config import Columns, explain

    roles: dict[str, tuple[str, ...]] = {}
    for part in text.split(","):
        role, separator, column = (word.strip() for word in part.partition("="))
        if not (role and separator and column):
            raise ColumnError(f"--columns {text}: write it as query=COLUMN,document=COLUMN,label=COLUMN")
        roles[role] = (*roles.get(role, ()), column)
    try:
        return Columns.model_validate({role: names if len(names) > 1 else names[0] for role, names in roles.items()})
    except ValidationError as error:
        raise ColumnError(f"--columns {text}: {explain(error)}") from None
