"""The commands that make runs and look after them: train, sweep, resume, stop, runs, queue, worker."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from bsc_core.cli.commands import Outcome, check_files, look_after
from bsc_core.cli.reports import Progress, Report, queue_report, run_report
from bsc_core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bsc_core.config import RunConfig
    from bsc_core.runs import Run, RunStore


def train(arguments: argparse.Namespace) -> Outcome:
    """Train in the foreground, or queue the run with `--detach`."""
    from bsc_core.config import of_each_seed, read_config
    from bsc_core.jobs import launch
    from bsc_core.jobs.ranks import shared_run
    from bsc_core.runs import RunStore

    _check_backend(arguments)
    config = read_config(arguments.config, arguments.set)
    _check(config)
    store = RunStore(arguments.runs)
    if config.training.seeds:
        return _group(store, of_each_seed(config), (), detach=arguments.detach, backend=arguments.backend)
    _check_chain(store, config, detach=arguments.detach)
    if arguments.detach:
        return 0, run_report(launch(store, config, backend=arguments.backend))
    run = shared_run(lambda: store.create(config))
    return perform_here(run), run_report(run)


def sweep(arguments: argparse.Namespace) -> Outcome:
    """Train once for each combination of values and seeds, one run after another, or queue them with `--detach`."""
    from bsc_core.config import ASK_ABOVE, count_runs, make_config, read_sweep, sweep_configs
    from bsc_core.errors import ConfigError
    from bsc_core.runs import RunStore

    _check_backend(arguments)
    values, found = read_sweep(arguments.config, arguments.set, arguments.over, random=arguments.random)
    number = count_runs(found, make_config(values, source=arguments.config).training.seeds)
    sys.stderr.write(f"{number:,} runs\n")
    over = dict(found.over) if found else {}
    if arguments.dry_run and number > ASK_ABOVE:
        return 0, {"number_of_runs": number, "checked": False, "over": over}
    if number > ASK_ABOVE and not arguments.yes:
        raise ConfigError(f"this sweep is {number:,} runs; add --yes to make them, or --random N to draw N settings")
    configs = sweep_configs(values, found, source=arguments.config)
    store = RunStore(arguments.runs)
    for config in configs:
        _check(config)
        _check_chain(store, config, detach=arguments.detach)
    if arguments.dry_run:
        return 0, {"number_of_runs": number, "checked": True, "over": over}
    return _group(store, configs, found.over if found else (), detach=arguments.detach, backend=arguments.backend)


def resume(arguments: argparse.Namespace) -> Outcome:
    """Go on with a run that was stopped, lost or failed, from its last checkpoint, as a new run."""
    from bsc_core.jobs.ranks import shared_run
    from bsc_core.jobs.resuming import continue_run
    from bsc_core.jobs.resuming import resume as queue_again
    from bsc_core.runs import RunStore

    store = RunStore(arguments.runs)
    look_after(store)
    run = store.get(arguments.run)
    if arguments.detach:
        return 0, run_report(queue_again(store, run))
    following = shared_run(lambda: continue_run(store, run))
    return perform_here(following), run_report(following)


def runs(arguments: argparse.Namespace) -> Outcome:
    """List the runs, newest first."""
    from bsc_core.runs import RunStore

    store = RunStore(arguments.runs)
    look_after(store)
    return 0, {"runs": [run_report(run) for run in store.list()]}


def stop(arguments: argparse.Namespace) -> Outcome:
    """Stop a run and wait until it has stopped."""
    from bsc_core.jobs.ladder import climb
    from bsc_core.runs import RunStore

    run = RunStore(arguments.runs).get(arguments.run)
    climb(run, grace_seconds=arguments.grace)
    return 0, run_report(run)


def queue(arguments: argparse.Namespace) -> Outcome:
    """Show the queue of runs, or change its order, slots and pause."""
    from bsc_core.runs import RunStore

    store = RunStore(arguments.runs)
    if arguments.change:
        _change(store, *arguments.change)
    look_after(store)
    return 0, queue_report(store)


def worker(arguments: argparse.Namespace) -> Outcome:
    """Serve the queue in the foreground until it is empty, or, with `--keep`, until it is stopped."""
    from bsc_core.jobs.supervisor import supervise
    from bsc_core.runs import RunStore

    store = RunStore(arguments.runs)
    look_after(store, start=False)
    return 0, {"runs_taken": supervise(store, slots=arguments.slots, keep=arguments.keep)}


def _change(store: RunStore, change: str, *words: str) -> None:
    from bsc_core.jobs import Queue, pause, set_slots, unpause

    if (change, *words) == ("pause",):
        pause(store)
    elif (change, *words) == ("unpause",):
        unpause(store)
    elif change == "move" and len(words) == 2 and words[1].isdecimal() and int(words[1]) >= 1:
        run = store.get(words[0])
        if not Queue(store.root).move(run.id, int(words[1]) - 1):
            raise InputError(f"run {run.id} is {run.status().state}; only a run that waits in the queue can be moved")
    elif change == "slots" and len(words) == 1 and (words[0].isdecimal() or words[0] == "default"):
        set_slots(store, None if words[0] == "default" else int(words[0]))
    else:
        known = "pause, unpause, move RUN PLACE (1 is the next), slots N or slots default"
        raise InputError(f"bsc queue {' '.join([change, *words])}: it must be one of {known}")


def _group(
    store: RunStore, configs: Sequence[RunConfig], over: Iterable[str], *, detach: bool, backend: str | None
) -> Outcome:
    """Launch runs as a group, or perform them one after another until one is stopped."""
    from bsc_core.jobs import group_summary, launch_group
    from bsc_core.jobs.groups import members
    from bsc_core.jobs.launching import join_group
    from bsc_core.jobs.ranks import is_together
    from bsc_core.runs import new_run_id

    group = new_run_id(configs[0])
    if detach:
        made = launch_group(store, configs, group, over=over, backend=backend)
        return 0, {"group": group, "runs": [run_report(run) for run in made]}
    if is_together():
        raise InputError("a group of runs is not made by several processes at once; start each run by itself")
    made = []
    for member in members(configs, group, over):
        made.append(store.create(member.config, member.id))
        join_group(made[-1], member.about)
        perform_here(made[-1])
        if made[-1].status().state == "stopped":
            break
    summary = group_summary(made)
    whole = summary["done"] == len(configs)
    return (0 if whole else 1), {"group": group, "runs": [run_report(run) for run in made], "summary": summary}


def perform_here(run: Run) -> int:
    """Perform a queued run in this process, with its progress on standard error; the exit status."""
    from bsc_core.jobs.worker import perform

    sys.stderr.write(f"run {run.id} in {run.folder}\n")
    return perform(run, _experiment)


def _experiment(config: RunConfig, run: Run) -> Report:
    from bsc_core.jobs.ranks import launched_rank
    from bsc_core.pipeline import run_experiment

    return run_experiment(config, run, on_report=None if launched_rank() else Progress(run))


def _check(config: RunConfig) -> None:
    data = config.data
    check_files(data.train, data.dev, data.test, data.corpus, *data.mix)


def _check_backend(arguments: argparse.Namespace) -> None:
    if arguments.backend and not arguments.detach:
        raise InputError(f"--backend {arguments.backend} is where a queued run is performed; add --detach to queue it")


def _check_chain(store: RunStore, config: RunConfig, *, detach: bool) -> None:
    """Refuse an encoder `run:RUN` that cannot be had; a queued run may wait for one that still goes on."""
    from bsc_core.runs import chain_of

    parent = chain_of(config.encoder.name)
    if parent is not None and detach and not store.get(parent).status().is_finished:
        return
    store.encoder(config.encoder)
