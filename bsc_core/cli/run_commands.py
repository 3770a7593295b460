"""Commands on runs: train, sweep, resume, stop, runs, queue, worker, reproduce."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bsc_core.cli.commands import Outcome, check_files, run_store, say, update_runs
from bsc_core.cli.output import Report, RunProgressPrinter, queue_report, run_report
from bsc_core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bsc_core.config import RunConfig
    from bsc_core.reproduction.claims import Claim
    from bsc_core.runs import Run, RunStore


def train(arguments: argparse.Namespace) -> Outcome:
    """Train in the foreground, or queue the run with `--detach`."""
    from bsc_core.config import expand_seeds, read_config
    from bsc_core.jobs import launch
    from bsc_core.jobs.worker_ranks import shared_run

    _check_backend(arguments)
    config = read_config(arguments.config, arguments.set)
    _check(config)
    store = run_store(arguments)
    if config.training.seeds:
        return _group(store, expand_seeds(config), (), detach=arguments.detach, backend=arguments.backend)
    _check_encoders(store, config, arguments)
    if arguments.detach:
        return 0, run_report(launch(store, config, backend=arguments.backend))
    run = shared_run(lambda: store.create(config))
    return execute(run), run_report(run)


def sweep(arguments: argparse.Namespace) -> Outcome:
    """Train one run per combination of values and seeds, in sequence, or queue them with `--detach`."""
    from bsc_core.config import CONFIRM_ABOVE, count_runs, make_config, read_sweep, sweep_configs
    from bsc_core.errors import ConfigError

    _check_backend(arguments)
    values, sweep_config = read_sweep(arguments.config, arguments.set, arguments.over, random=arguments.random)
    number = count_runs(sweep_config, make_config(values, source=arguments.config).training.seeds)
    sys.stderr.write(f"{number:,} runs\n")
    over = dict(sweep_config.over) if sweep_config else {}
    if arguments.dry_run and number > CONFIRM_ABOVE:
        return 0, {"number_of_runs": number, "checked": False, "over": over}
    if number > CONFIRM_ABOVE and not arguments.yes:
        raise ConfigError(f"this sweep is {number:,} runs; add --yes to start them, or --random N to sample N settings")
    configs = sweep_configs(values, sweep_config, source=arguments.config)
    store = run_store(arguments)
    for config in configs:
        _check(config)
        _check_encoders(store, config, arguments)
    if arguments.dry_run:
        return 0, {"number_of_runs": number, "checked": True, "over": over}
    return _group(store, configs, over, detach=arguments.detach, backend=arguments.backend)


def resume(arguments: argparse.Namespace) -> Outcome:
    """Resume a stopped, lost or failed run from its last checkpoint, as a new run."""
    from bsc_core.jobs.actions.resuming import continue_run
    from bsc_core.jobs.actions.resuming import resume as queue_resumed
    from bsc_core.jobs.worker_ranks import shared_run

    store = run_store(arguments)
    update_runs(store)
    run = store.get(arguments.run)
    if arguments.detach:
        return 0, run_report(queue_resumed(store, run))
    resumed = shared_run(lambda: continue_run(store, run))
    return execute(resumed), run_report(resumed)


def runs(arguments: argparse.Namespace) -> Outcome:
    """List the runs, newest first."""
    store = run_store(arguments)
    update_runs(store)
    return 0, {"runs": [run_report(run) for run in store.list()]}


def stop(arguments: argparse.Namespace) -> Outcome:
    """Stop a run and wait until it has stopped."""
    from bsc_core.jobs.actions.escalation import stop_and_wait
    from bsc_core.jobs.actions.stopping import GRACE_SECONDS

    run = run_store(arguments).get(arguments.run)
    stop_and_wait(run, grace_seconds=GRACE_SECONDS if arguments.grace is None else arguments.grace)
    return 0, run_report(run)


def queue(arguments: argparse.Namespace) -> Outcome:
    """Show the queue of runs, or change its order, slots and pause."""
    store = run_store(arguments)
    if arguments.change:
        _change(store, *arguments.change)
    update_runs(store)
    return 0, queue_report(store)


def worker(arguments: argparse.Namespace) -> Outcome:
    """Start waiting runs, in the foreground, until the queue is empty, or, with `--keep-running`, until stopped."""
    from bsc_core.jobs.supervisor import supervise

    store = run_store(arguments)
    update_runs(store, start=False)
    return 0, {"runs_taken": supervise(store, slots=arguments.slots, keep=arguments.keep_running)}


def _change(store: RunStore, change: str, *words: str) -> None:
    from bsc_core.jobs import Queue, unpause

    if (change, *words) == ("pause",):
        Queue(store.root).pause()
    elif (change, *words) in (("resume",), ("unpause",)):  # unpause: the previous name
        unpause(store)
    elif change == "move" and len(words) == 2 and words[1].isdecimal() and int(words[1]) >= 1:
        run = store.get(words[0])
        if not Queue(store.root).move(run.id, int(words[1]) - 1):
            raise InputError(f"run {run.id} is {run.status().state}; only a waiting run can be moved")
    elif change == "slots" and len(words) == 1 and (words[0].isdecimal() or words[0] == "default"):
        Queue(store.root).set_slots(None if words[0] == "default" else int(words[0]))
    else:
        known = "pause, resume, move RUN POSITION (1 is the next), slots N or slots default"
        raise InputError(f"bsc queue {' '.join([change, *words])}: unknown change; use one of {known}")


def _group(
    store: RunStore, configs: Sequence[RunConfig], over: Iterable[str], *, detach: bool, backend: str | None
) -> Outcome:
    """Launch runs as a group, or execute them in sequence until one is stopped."""
    from bsc_core.jobs import group_summary, launch_group
    from bsc_core.jobs.actions.groups import group_members
    from bsc_core.jobs.actions.launching import join_group
    from bsc_core.jobs.worker_ranks import is_distributed
    from bsc_core.runs.ids import new_run_id

    group = new_run_id(*configs)
    if detach:
        created = launch_group(store, configs, group, over=over, backend=backend)
        return 0, {"group": group, "runs": [run_report(run) for run in created]}
    if is_distributed():
        raise InputError("a group of runs cannot be started by several processes; start each run separately")
    created = []
    for run_id, config, about in group_members(configs, group, over):
        run = store.create(config, run_id)
        created.append(run)
        join_group(run, about)
        execute(run)
        if run.status().state == "stopped":
            break
    summary = group_summary(created)
    all_done = summary["done"] == len(configs)
    return (0 if all_done else 1), {"group": group, "runs": [run_report(run) for run in created], "summary": summary}


def execute(run: Run) -> int:
    """Execute a run in this process with progress on standard error. Returns the exit status."""
    from bsc_core.jobs.worker import perform

    sys.stderr.write(f"run {run.id} in {run.folder}\n")
    return perform(run, _experiment)


def _experiment(config: RunConfig, run: Run) -> Report:
    from bsc_core.pipeline import run_experiment
    from bsc_core.training.callbacks import OnStep

    return run_experiment(config, run, [OnStep(RunProgressPrinter(run))])


def _check(config: RunConfig) -> None:
    data = config.data
    check_files(data.train, data.dev, data.test, data.corpus, *data.mix)


def _check_encoders(store: RunStore, config: RunConfig, arguments: argparse.Namespace) -> None:
    """Raise BscError if the encoder or the guide cannot be used, before heavy modules are imported.

    A queued run may wait for the model of another run.
    """
    from bsc_core.encoders import check_encoder

    guide = [] if config.loss.guide is None else [config.encoder.model_copy(update={"name": config.loss.guide})]
    for encoder in (config.encoder, *guide):
        if not arguments.detach or store.awaited_run(encoder) is None:
            check_encoder(store.resolve_encoder(encoder).name)


def _check_backend(arguments: argparse.Namespace) -> None:
    if arguments.backend and not arguments.detach:
        raise InputError(f"--backend {arguments.backend} needs --detach, since only queued runs have a backend")


def reproduce(arguments: argparse.Namespace) -> Outcome:
    """Reproduce claims of the papers; finished runs are not trained again."""
    from bsc_core.reproduction.catalog import CLAIMS, select_claims

    if arguments.list:
        return 0, {"recipes": [_about(claim) for claim in CLAIMS.values()]}  # the key that scripts read
    if arguments.report is not None:
        from bsc_core.reproduction.report import write_report

        return 0, {"report": str(write_report(Path(arguments.report)))}
    if not arguments.names:
        raise InputError("no claim is named; name claims, or all (`bsc reproduce --list` lists them)")
    if arguments.plan:
        return 0, {"plans": [_plan(claim, arguments) for claim in select_claims(arguments.names)]}
    if arguments.form == "full" and arguments.data is None:
        raise InputError(
            "--form full needs --data FOLDER, the folder that contains the datasets; --form small uses sample data"
        )
    claims: Iterable[Claim] = [_with_seeds(claim, arguments) for claim in select_claims(arguments.names)]
    if arguments.processes > 1:
        from bsc_core.reproduction.runs import train_in_processes

        store, data = run_store(arguments), _data_folder(arguments)
        claims = train_in_processes(
            [*claims], store, execute, form=arguments.form, data=data, processes=arguments.processes
        )
    return 0, {"findings": [_reproduce(claim, arguments) for claim in claims]}


def _plan(claim: Claim, arguments: argparse.Namespace) -> Report:
    from bsc_core.reproduction.findings import stored_finding
    from bsc_core.reproduction.power import plan_power

    finding = stored_finding(claim.name, run_store(arguments).root)
    if finding is None:
        raise InputError(
            f"claim {claim.name} has no finding of the full form; reproduce it with `--seeds 2` first, then plan"
        )
    return plan_power(finding, arguments.seeds)


def _with_seeds(claim: Claim, arguments: argparse.Namespace) -> Claim:
    if arguments.seeds and arguments.form == "full":
        return claim.model_copy(update={"seeds": tuple(range(arguments.seeds))})
    return claim


def _data_folder(arguments: argparse.Namespace) -> Path | None:
    return None if arguments.data is None else Path(arguments.data)


def _reproduce(claim: Claim, arguments: argparse.Namespace) -> Report:
    from bsc_core.reproduction import findings

    finding = findings.reproduce(
        claim,
        run_store(arguments),
        execute,
        form=arguments.form,
        data=_data_folder(arguments),
        log=say,
    )
    if arguments.publish:
        findings.write_finding(finding)
    return finding


def _about(claim: Claim) -> Report:
    from bsc_core.reproduction.findings import read_findings

    finding = read_findings().get(claim.name)
    return {
        "name": claim.name,
        "claim": claim.claim,
        "paper": claim.paper,
        "table": claim.table,
        "data": sorted({subset.folder for subset in (*claim.subsets.values(), *claim.extra_data.values())}),
        "runs": len(claim.arms) * len(claim.seeds),
        "seconds": None if finding is None else finding["seconds"],
        "verdict": None if finding is None else finding["verdict"],
    }
