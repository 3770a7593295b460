"""What each command does: arguments in, exit status and report out. Heavy modules are imported where they are used."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bsc_core.cli.reports import ReadingProgress, Report

if TYPE_CHECKING:
    from bsc_core.config import EncoderConfig, RunConfig
    from bsc_core.runs import Run, RunStore

Outcome = tuple[int, Report]
FINDINGS_UP_TO = 300_000  # rows whose findings are looked for in memory
LINES_TOLD = 20  # of each finding


def app(arguments: argparse.Namespace) -> Outcome:
    """Open the app; returns when it is closed. On POSIX this process becomes the app's."""
    from bsc_core.runs import RunStore

    store = RunStore(arguments.runs)
    look_after(store)
    command, environment = app_command(store.root, port=arguments.port, browser=not arguments.no_browser)
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(command[0], command, environment)
    return subprocess.run(command, env=environment, check=False).returncode, {}


def app_command(runs: Path, *, port: int | None = None, browser: bool = True) -> tuple[list[str], dict[str, str]]:
    """The command line and environment that open the app on a runs folder.

    Streamlit reads `.streamlit/config.toml` beside the script it runs, whatever the working folder is.
    """
    from bsc_core.data.places import app_folder

    folder = app_folder()
    roots = os.pathsep.join(str(path) for path in (Path.cwd(), Path.home(), folder, runs))
    command = [sys.executable, "-P", "-m", "streamlit", "run", str(folder / "app.py")]
    command += [f"--server.port={port}"] if port else []
    command += [] if browser else ["--server.headless=true"]
    return command, {"BSC_ROOTS": roots, **os.environ, "BSC_RUNS": str(runs)}


def evaluate(arguments: argparse.Namespace) -> Outcome:
    """Measure a model, or the model of a run, on a pair file, a task of mteb, or beside the untrained encoder."""
    from pydantic import ValidationError

    from bsc_core.config import DataConfig, explain
    from bsc_core.errors import ConfigError, InputError
    from bsc_core.runs import RunStore

    run = _run_meant(arguments.model, RunStore(arguments.runs))
    dev: dict[str, float | None] = {}
    check_files(arguments.data, arguments.corpus)
    named = {name: getattr(arguments, name) for name in ("corpus", "columns", "threshold", "label_min", "label_max")}
    given = {name: value for name, value in named.items() if value is not None}
    encoder, scale = _encoder_meant(arguments, run), {}
    if arguments.data is None:
        return 0, _on_task(arguments, encoder, run, given)
    if arguments.beside or arguments.tasks:
        raise InputError("--beside and --tasks belong to --probes, --sts and --classes; leave them out with --data")
    if run is not None:
        scale = run.config().data.model_dump(include={"threshold", "label_min", "label_max"})
        dev = (run.read_json("evaluation/after") or {}).get("dev") or {}
    try:
        data = DataConfig.model_validate({**scale, "train": arguments.data, **given})
    except ValidationError as error:
        raise ConfigError(explain(error)) from None
    from bsc_core.measuring import evaluate_model

    thresholds = {"decision": dev.get("f1_threshold"), "accuracy_decision": dev.get("accuracy_threshold")}
    return 0, evaluate_model(encoder, data, **thresholds)


def _encoder_meant(arguments: argparse.Namespace, run: Run | None) -> EncoderConfig:
    """How the named model, or the model of the run, is loaded."""
    from bsc_core.config import EncoderConfig

    length = {"max_length": arguments.max_length} if arguments.max_length else {}
    if run is None:
        return EncoderConfig(name=arguments.model, **length)
    return EncoderConfig(**{**run.config().encoder.model_dump(), "name": str(run.model_folder), **length})


def _on_task(arguments: argparse.Namespace, encoder: EncoderConfig, run: Run | None, given: Report) -> Report:
    """Measure on what is no pair file. given: options that tell how a file of pairs is read."""
    from bsc_core.errors import InputError

    if given:
        name = next(iter(given)).replace("_", "-")
        chosen = next(how for how in ("mteb", "probes", "sts", "classes") if getattr(arguments, how))
        raise InputError(f"--{name} tells how a file is read, and --{chosen} reads none; leave it out, or give --data")
    if arguments.mteb:
        from bsc_core.integrations.mteb import run_mteb

        return run_mteb(encoder, arguments.mteb)
    check_files(arguments.probes, arguments.sts, arguments.classes)
    from bsc_core import transfer

    encoders = (encoder, _untrained(arguments, encoder, run))
    if arguments.classes:
        return transfer.polarity_report(encoders, arguments.classes)
    report, folder = (
        (transfer.probe_report, arguments.probes) if arguments.probes else (transfer.sts_report, arguments.sts)
    )
    names = [name.strip() for name in (arguments.tasks or "").split(",") if name.strip()]
    return report(encoders, folder, tasks=names, say=lambda sentence: sys.stderr.write(f"{sentence}\n"))


def _untrained(arguments: argparse.Namespace, encoder: EncoderConfig, run: Run | None) -> EncoderConfig:
    """What stands beside: the encoder that is named, what the run started from, or the bundled one."""
    from bsc_core.runs import RunStore

    if run is not None and not arguments.beside:
        start = RunStore(run.folder.parent).encoder(run.config().encoder)
        return start.model_copy(update={"lora": None, "max_length": encoder.max_length})
    return encoder.model_copy(update={"name": arguments.beside or "bundled"})


def plan(arguments: argparse.Namespace) -> Outcome:
    """Make the batch plan of an epoch and say how hard its batches are."""
    from bsc_core.config import read_config

    config = _chained(read_config(arguments.config, arguments.set), arguments)
    from bsc_core.measuring import plan_report

    return 0, plan_report(config, epoch=arguments.epoch)


def shard(arguments: argparse.Namespace) -> Outcome:
    """Write the batch plan of an epoch as shards, with Ray; for data past one machine's memory."""
    from bsc_core.config import read_config

    config = _chained(read_config(arguments.config, arguments.set), arguments)
    check_files(config.data.train)
    from bsc_core.integrations.ray_data import plan_with_ray

    shards = plan_with_ray(
        config,
        arguments.out,
        epoch=arguments.epoch,
        address=arguments.address,
        say=lambda sentence: sys.stderr.write(f"{sentence}\n"),
    )
    counts = {"rows": len(shards), "groups": shards.groups, "parts": len(shards.parts)}
    return 0, {"folder": str(shards.folder), **counts, **shards.about}


def _chained(config: RunConfig, arguments: argparse.Namespace) -> RunConfig:
    """The config with the model's folder in place of `run:ID`."""
    from bsc_core.runs import RunStore

    return config.model_copy(update={"encoder": RunStore(arguments.runs).encoder(config.encoder)})


def audit(arguments: argparse.Namespace) -> Outcome:
    """Count what a file of pairs holds, and what is wrong with it, in bounded memory."""
    from bsc_core.data.tally import audit_file

    given = {"threshold": arguments.threshold, "max_length": arguments.max_length}
    chosen = {name: value for name, value in given.items() if value is not None}
    say = ReadingProgress("audit")
    found = audit_file(arguments.file, arguments.columns, limits=_limits(arguments), say=say, **chosen)
    report = found.as_report()
    return 0, report | ({"findings": _findings(arguments)} if report["rows_read"] <= FINDINGS_UP_TO else {})


def _findings(arguments: argparse.Namespace) -> list[Report]:
    """What the audit of the Data page finds, with lines of the file and the remedy that a config can name."""
    from bsc_core.config import DataConfig
    from bsc_core.data import SPLIT_SEED
    from bsc_core.data import audit as find
    from bsc_core.data.experiment import load_data
    from bsc_core.errors import DataError

    low, high = _limits(arguments)
    share = {} if arguments.threshold is None else {"threshold": arguments.threshold}
    values = {"train": arguments.file, "columns": arguments.columns, "label_min": low, "label_max": high, **share}
    try:
        data = load_data(DataConfig.model_validate(values), seed=SPLIT_SEED)
    except DataError as fault:  # such as rows of one query alone, of which no dev part can be drawn
        return [{"severity": "error", "title": str(fault), "lines": [], "remedy": "", "remedy_flag": None}]
    return [
        {
            "severity": finding.severity,
            "title": finding.title,
            "lines": data.parts[finding.part].line[finding.rows[:LINES_TOLD]].tolist(),
            "remedy": finding.remedy,
            "remedy_flag": finding.remedy_flag,
        }
        for finding in find(data, max_length=arguments.max_length)
    ]


def convert(arguments: argparse.Namespace) -> Outcome:
    """Write the good rows of a file of pairs as Parquet, with columns named by their roles, in bounded memory."""
    from bsc_core.data.convert import convert_file
    from bsc_core.data.tally import reading_report

    say = ReadingProgress("convert")
    pieces = convert_file(arguments.file, arguments.out, arguments.columns, limits=_limits(arguments), say=say)
    return 0, {**reading_report(pieces), "out": arguments.out}


def check(arguments: argparse.Namespace) -> Outcome:
    """Say what a run would take and what is odd about it, from a few steps; nothing is trained."""
    from bsc_core.config import read_config
    from bsc_core.preflight import preflight
    from bsc_core.runs import RunStore

    config = read_config(arguments.config, arguments.set)
    return 0, preflight(config, store=RunStore(arguments.runs)).as_report()


def _limits(arguments: argparse.Namespace) -> tuple[float, float]:
    low, high = arguments.label_min, arguments.label_max
    return 0.0 if low is None else low, 1.0 if high is None else high


def look_after(store: RunStore, *, start: bool = True) -> None:
    """Bring the states of all runs up to date; what cannot be now is said, and no reason to end a command.

    start: start a supervisor where runs wait and none is at work.
    """
    from bsc_core.errors import JobError
    from bsc_core.jobs import reconcile
    from bsc_core.jobs.local import start_supervisor

    try:
        reconcile(store, start=start_supervisor if start else lambda store: None)
    except JobError as error:
        sys.stderr.write(f"{error}\n")


def check_files(*paths: str | None) -> None:
    """Refuse files that are missing or may not be read before anything heavy is loaded."""
    from bsc_core.data.hub import is_hub_id
    from bsc_core.data.places import check_path

    for path in paths:
        if path and not is_hub_id(path):
            check_path(path)


def _run_meant(model: str, store: RunStore) -> Run | None:
    """The run that a name means, by its id or its folder; None for an encoder's name, a model folder or a hub id."""
    from bsc_core.errors import ModelError, RunNotFoundError
    from bsc_core.runs import Run

    run = Run(Path(model).resolve()) if Path(model, "status.json").is_file() else None
    if run is None and model not in ("bundled", "static"):
        with suppress(RunNotFoundError):  # then it is a folder or a hub id
            run = store.get(model)
    if run is not None and not run.model_folder.is_dir():
        raise ModelError(
            f"run {run.id}: it has no model (its state is {run.status().state}); choose a run that is done"
        )
    return run
