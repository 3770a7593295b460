"""Commands on data, models and plans. Heavy modules are imported where they are used."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bsc_core.cli.output import ReadProgressPrinter, Report
from bsc_core.formatting import one_line

if TYPE_CHECKING:
    from bsc_core.config import EncoderConfig, RunConfig
    from bsc_core.runs import Run, RunStore

Outcome = tuple[int, Report]
MAX_AUDIT_ROWS = 300_000  # for findings, which need all rows in memory
MAX_FINDING_LINES = 20
AUTO = "auto"
"""Value of `bsc merge --alpha`: the suggested alpha."""


def run_store(arguments: argparse.Namespace) -> RunStore:
    """Return the runs folder of a command."""
    from bsc_core.runs import RunStore

    return RunStore(arguments.runs)


def say(line: str) -> None:
    """Write a progress message to standard error."""
    sys.stderr.write(f"{one_line(line)}\n")


def app(arguments: argparse.Namespace) -> Outcome:
    """Open the app; returns when it is closed. On POSIX the app replaces this process."""
    store = run_store(arguments)
    if arguments.host:
        os.umask(0o077)  # only this system user may read what the app and its runs write
    update_runs(store)
    browser = not arguments.no_browser
    command, environment = app_command(store.root, host=arguments.host, port=arguments.port, browser=browser)
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(command[0], command, environment)
    return subprocess.run(command, env=environment, check=False).returncode, {}


def app_command(
    runs: Path, *, host: str | None = None, port: int | None = None, browser: bool = True
) -> tuple[list[str], dict[str, str]]:
    """Return the command line and environment that open the app on a runs folder.

    Args:
        runs: The runs folder.
        host: Address of a shared app; None for an app on this machine only.
        port: Port of the server; None for its default.
        browser: Whether to open the app in a browser.
    """
    from bsc_core.paths import app_folder

    folder = app_folder()
    roots = os.pathsep.join(str(path) for path in (Path.cwd(), Path.home(), folder, runs))
    command = [sys.executable, "-P", str(folder / "pages" / "ui" / "server" / "__main__.py")]
    command += [f"--host={host}"] if host else []
    command += [f"--port={port}"] if port else []
    command += [] if browser else ["--no-browser"]
    return command, {"BSC_ROOTS": roots, **os.environ, "BSC_RUNS": str(runs)}


def users(arguments: argparse.Namespace) -> Outcome:
    """List, add or remove the users of a shared app."""
    from bsc_core.errors import InputError
    from bsc_core.users.accounts import add_user, read_users, remove_user

    root, name = run_store(arguments).root, arguments.name
    if arguments.action == "list":
        known = {name: {"role": user.role, "email": user.email} for name, user in read_users(root).items()}
        return 0, {"users": known}
    if name is None or (arguments.action == "add" and arguments.role is None):
        raise InputError("write `bsc users add NAME --role owner|member|student` or `bsc users remove NAME`")
    if arguments.action == "remove":
        remove_user(root, name)
        return 0, {"removed": name}
    key = add_user(root, name, arguments.role, arguments.email)
    report: Report = {"user": name, "role": arguments.role, "email": arguments.email}
    if key is not None:
        report["link"] = f"{arguments.url.rstrip('/')}/sign-in#{key}"
    return 0, report


def evaluate(arguments: argparse.Namespace) -> Outcome:
    """Evaluate a model or run on a file of pairs, an MTEB task, or transfer tasks next to the untrained encoder."""
    from pydantic import ValidationError

    from bsc_core.config import DataConfig, validation_message
    from bsc_core.errors import ConfigError, InputError

    run = _find_run(arguments.model, run_store(arguments))
    dev: dict[str, float | None] = {}
    check_files(arguments.data, arguments.corpus)
    named = {name: getattr(arguments, name) for name in ("corpus", "columns", "threshold", "label_min", "label_max")}
    given = {name: value for name, value in named.items() if value is not None}
    encoder, scale = _encoder_config(arguments, run), {}
    if arguments.data is None:
        given |= {"dimensions": arguments.dimensions} if arguments.dimensions else {}
        return 0, _on_task(arguments, encoder, run, given)
    if arguments.baseline or arguments.tasks:
        raise InputError("--baseline and --tasks cannot be used with --data; remove them, or use --probes or --sts")
    if run is not None:
        scale = run.config().data.model_dump(include={"threshold", "label_min", "label_max", "text_identity"})
        dev = run.evaluation("after").get("dev") or {}
    try:
        data = DataConfig.model_validate({**scale, "train": arguments.data, **given})
    except ValidationError as error:
        raise ConfigError(validation_message(error)) from None
    from bsc_core.evaluate_model import evaluate_model

    thresholds = {"decision": dev.get("f1_threshold"), "accuracy_decision": dev.get("accuracy_threshold")}
    return 0, evaluate_model(encoder, data, dimensions=arguments.dimensions, **thresholds)


def merge(arguments: argparse.Namespace) -> Outcome:
    """Merge the model of a run with its start, or average the models of several runs; evaluate and save the result."""
    from bsc_core.errors import InputError, PathError

    store = run_store(arguments)
    runs = [_trained_run(name, store) for name in arguments.names]
    output = None if arguments.output is None else Path(arguments.output)
    if output is not None and output.exists():
        raise PathError(f"{output}: there is such a file or folder; give a new one")
    if len(runs) > 1 and arguments.last_checkpoints:
        raise InputError("--last-checkpoints averages the checkpoints of one run; name one run")
    from bsc_core.jobs.actions.merging import ALPHAS, average_models, merge_curve

    def progress(done: float, total: float, doing: str) -> None:
        say(doing)

    alpha, last = arguments.alpha, arguments.last_checkpoints
    if alpha is None and (len(runs) > 1 or last):
        return 0, average_models(runs, last=last, output=output, on_progress=progress)
    alpha = None if alpha == AUTO else alpha
    return 0, merge_curve(
        runs,
        ALPHAS if alpha is None else sorted({0.0, alpha, 1.0}),
        last=last,
        alpha=alpha,
        tolerance=arguments.tolerance,
        output=output,
        on_progress=progress,
    )


def diagnose(arguments: argparse.Namespace) -> Outcome:
    """Explain why a run got worse: findings with their evidence, the most likely cause first."""
    from bsc_core.diagnosis import diagnose as diagnose_run
    from bsc_core.runs import Run

    is_folder = Path(arguments.run, "status.json").is_file()
    run = Run(Path(arguments.run).resolve()) if is_folder else run_store(arguments).get(arguments.run)
    return 0, diagnose_run(run).as_report()


def _encoder_config(arguments: argparse.Namespace, run: Run | None) -> EncoderConfig:
    """Return the config of the named model or of the run's model."""
    from bsc_core.config import EncoderConfig

    named = {name: getattr(arguments, name) for name in ("max_seq_length", "query_prompt", "document_prompt")}
    given = {name: value for name, value in named.items() if value is not None}
    if run is None:
        return EncoderConfig(name=arguments.model, **given)
    return EncoderConfig(**{**run.config().encoder.model_dump(), "name": str(run.model_folder), **given})


def _on_task(arguments: argparse.Namespace, encoder: EncoderConfig, run: Run | None, given: Report) -> Report:
    """Evaluate on other data than a file of pairs; `given` are the options for reading such a file."""
    from bsc_core.errors import InputError

    if given:
        name = next(iter(given)).replace("_", "-")
        chosen = next(how for how in ("mteb", "probes", "sts", "classes") if getattr(arguments, how))
        raise InputError(f"--{name} applies to --data, not to --{chosen}; remove it, or use --data")
    if arguments.mteb:
        from bsc_core.integrations.mteb import run_mteb

        return run_mteb(encoder, arguments.mteb)
    check_files(arguments.probes, arguments.sts, arguments.classes)
    from bsc_core.evaluation import transfer

    encoders = (encoder, _baseline(arguments, encoder, run))
    seed = 0 if run is None else run.config().training.seed
    if arguments.classes:
        return transfer.polarity_report(encoders, arguments.classes, run_seed=seed)
    report, folder = (
        (transfer.probe_report, arguments.probes) if arguments.probes else (transfer.sts_report, arguments.sts)
    )
    names = [name.strip() for name in (arguments.tasks or "").split(",") if name.strip()]
    return report(encoders, folder, tasks=names, run_seed=seed, say=say)


def _baseline(arguments: argparse.Namespace, encoder: EncoderConfig, run: Run | None) -> EncoderConfig:
    """Return the baseline: the named encoder, the one the run started from, or the bundled one."""
    from bsc_core.config import EncoderConfig

    if run is not None and not arguments.baseline:
        start = run.store.resolve_encoder(run.config().encoder)
        return start.model_copy(update={"lora": None, "max_seq_length": encoder.max_seq_length})
    return EncoderConfig(name=arguments.baseline or "bundled", max_seq_length=encoder.max_seq_length)


def plan(arguments: argparse.Namespace) -> Outcome:
    """Build the batch plan of an epoch and report the hardness of its batches."""
    from bsc_core.config import read_config

    config = _chained(read_config(arguments.config, arguments.set), arguments)
    from bsc_core.preparation.plan_report import plan_report

    return 0, plan_report(config, epoch=arguments.epoch)


def shard(arguments: argparse.Namespace) -> Outcome:
    """Build the batch plan of an epoch as shards with Ray, for data larger than memory."""
    from bsc_core.config import read_config

    config = _chained(read_config(arguments.config, arguments.set), arguments)
    check_files(config.data.train)
    from bsc_core.ray.data.plan import plan_with_ray

    shards = plan_with_ray(config, arguments.out, epoch=arguments.epoch, address=arguments.address, say=say)
    counts = {"rows": len(shards), "groups": shards.groups, "parts": len(shards.parts)}
    return 0, {"folder": str(shards.folder), **counts, **shards.about}


def _chained(config: RunConfig, arguments: argparse.Namespace) -> RunConfig:
    """Return the config with the model's folder instead of `run:ID`."""
    return config.model_copy(update={"encoder": run_store(arguments).resolve_encoder(config.encoder)})


def audit(arguments: argparse.Namespace) -> Outcome:
    """Count the rows of a file of pairs and check their quality, in bounded memory."""
    from bsc_core.data.quality.streaming_audit import audit_file

    given = {"threshold": arguments.threshold, "max_seq_length": arguments.max_seq_length}
    chosen = {name: value for name, value in given.items() if value is not None}
    on_progress = ReadProgressPrinter("audit")
    report = audit_file(arguments.file, arguments.columns, limits=_limits(arguments), on_progress=on_progress, **chosen)
    return 0, report | ({"findings": _findings(arguments)} if report["rows_read"] <= MAX_AUDIT_ROWS else {})


def _findings(arguments: argparse.Namespace) -> list[Report]:
    """Return the findings of the Data page's audit, with lines of the file and the filter that fixes them."""
    from bsc_core.config import DataConfig
    from bsc_core.data import audit as audit_rows
    from bsc_core.data.load import load_data
    from bsc_core.errors import DataError

    low, high = _limits(arguments)
    share = {} if arguments.threshold is None else {"threshold": arguments.threshold}
    values = {"train": arguments.file, "columns": arguments.columns, "label_min": low, "label_max": high, **share}
    try:
        data = load_data(DataConfig.model_validate(values))
    except DataError as error:  # such as rows of a single query, which cannot be split
        return [{"severity": "error", "title": str(error), "lines": [], **_suggestion("", None), "code": "unreadable"}]
    return [
        {
            "code": finding.code,
            "severity": finding.severity,
            "title": finding.title,
            "lines": data.splits[finding.split].line[finding.rows[:MAX_FINDING_LINES]].tolist(),
            **_suggestion(finding.suggestion, finding.filter),
        }
        for finding in audit_rows(data, max_seq_length=arguments.max_seq_length)
    ]


def _suggestion(suggestion: str, row_filter: str | None) -> Report:
    """Return suggestion and filter of a finding, also under their previous keys."""
    return {"suggestion": suggestion, "filter": row_filter, "remedy": suggestion, "remedy_flag": row_filter}


def convert(arguments: argparse.Namespace) -> Outcome:
    """Convert the valid rows of a file of pairs to Parquet, in bounded memory."""
    from bsc_core.data.io.convert import convert_file

    on_progress = ReadProgressPrinter("convert")
    pairs = convert_file(
        arguments.file, arguments.out, arguments.columns, limits=_limits(arguments), on_progress=on_progress
    )
    return 0, {**pairs.as_report(), "out": arguments.out}


def mine(arguments: argparse.Namespace) -> Outcome:
    """Mine hard negatives for positive pairs, and report what was selected and dropped."""
    from bsc_core.config import EncoderConfig, NegativesConfig, read_config
    from bsc_core.errors import ConfigError
    from bsc_core.preparation.mining import mine_file

    data = read_config(arguments.config, arguments.set).data
    negatives = data.negatives or NegativesConfig(method="window")
    if negatives.method != "window":
        raise ConfigError(f'data.negatives.method is {negatives.method}; bsc mine needs method = "window"')
    resolved = run_store(arguments).resolve_encoder(EncoderConfig(name=negatives.encoder))
    negatives = negatives.model_copy(update={"encoder": resolved.name})
    output = None if arguments.output is None else Path(arguments.output)
    data = data.model_copy(update={"negatives": negatives})
    return 0, mine_file(data, output, layout=arguments.layout)


def check(arguments: argparse.Namespace) -> Outcome:
    """Estimate the time, memory and disk of a run from a few steps, and list warnings."""
    from bsc_core.config import read_config
    from bsc_core.preflight import preflight

    config = read_config(arguments.config, arguments.set)
    return 0, preflight(config, store=run_store(arguments)).as_report()


def _limits(arguments: argparse.Namespace) -> tuple[float, float]:
    """Return the labels that are mapped to 0 and 1."""
    low, high = arguments.label_min, arguments.label_max
    return 0.0 if low is None else low, 1.0 if high is None else high


def update_runs(store: RunStore, *, start: bool = True) -> None:
    """Update the states of all runs, and start a supervisor if runs wait; failures are only reported."""
    from bsc_core.errors import JobError
    from bsc_core.jobs import reconcile
    from bsc_core.jobs.local.processes import start_supervisor

    try:
        reconcile(store, start=start_supervisor if start else lambda store: None)
    except JobError as error:
        say(str(error))


def check_files(*paths: str | None) -> None:
    """Raise PathError for a missing or forbidden file before heavy modules are imported."""
    from bsc_core.data.io.sources import is_hub_id
    from bsc_core.paths import check_path

    for path in paths:
        if path and not is_hub_id(path):
            check_path(path)


def _trained_run(name: str, store: RunStore) -> Run:
    """Return the run of an id or folder. Raises RunNotFoundError, or ModelError if it has no model."""
    return _find_run(name, store) or store.get(name)


def _find_run(model: str, store: RunStore) -> Run | None:
    """Return the run of an id or folder; None for an encoder's name, a model folder or a hub id."""
    from bsc_core.errors import ModelError, RunNotFoundError
    from bsc_core.runs import Run

    run = Run(Path(model).resolve()) if Path(model, "status.json").is_file() else None
    if run is None and model not in ("bundled", "static"):
        with suppress(RunNotFoundError):  # it is a folder or a hub id
            run = store.get(model)
    if run is not None and not run.model_folder.is_dir():
        raise ModelError(f"run {run.id} has no model (its state is {run.status().state}); choose a run that is done")
    return run
