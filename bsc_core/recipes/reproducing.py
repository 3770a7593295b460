"""Putting a claim to the test: its arms as ordinary runs, each trained once whatever recipes share it, then compared.

A run's id follows from its settings and its data, so a reproduction that was broken off goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bsc_core.comparison import When
from bsc_core.config import make_config
from bsc_core.errors import ConfigError, RunError
from bsc_core.recipes.claims import UNTRAINED, FormName, Measure, Recipe, Statement
from bsc_core.recipes.measures import RunMeasure
from bsc_core.recipes.subsets import prepare
from bsc_core.runs import Run, RunStore

Perform = Callable[[Run], object]
"""Trains a queued run in this process, such as `jobs.worker.perform` does."""
Say = Callable[[str], object]
COST = "cost"
"""What a run took, under this name in its folder: `processor_seconds`, which other work on the machine leaves alone."""
SMALL_SEEDS = (0, 1)
BESIDE = "beside"
"""The file of a run that says where the data sets lie that its recipe measures it on, besides its own."""
SMALL: dict[str, dict[str, Any]] = {
    "encoder": {"name": "static"},
    "batching": {"clusters": 8},
    "training": {"steps": 3, "batch_size": 8, "learning_rate": 1e-3, "precision": "fp32"},
}
"""What the small form lays over every arm."""
SMALL_BUDGET = "{steps} steps of {batch_size} pairs of the sample data".format(**SMALL["training"])
ALWAYS: dict[str, dict[str, Any]] = {
    "evaluation": {"each_epoch": False, "epoch_texts": 0},
    "training": {"threads": 1, "keep_checkpoints": 1},
}
"""What lies under every arm: no epoch is chosen by what is measured, so dev and test are both held out."""


@dataclass(frozen=True)
class Plan:
    """One run of a recipe before it is made. values: its config but for `name`.

    after: the id of the run whose model it starts from. beside: the `data` section of each data set that the recipe
    measures on besides the run's own.
    """

    recipe: Recipe
    arm: str
    seed: int
    id: str
    values: Mapping[str, Any]
    after: str | None
    beside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def plans(recipe: Recipe, form: FormName, *, data: Path | None, runs: Path) -> list[Plan]:
    """Every run that a recipe takes, those that others go on from first. Writes the subsets that are not there yet.

    Raises ConfigError for an arm that goes on from an unknown one, and whatever `prepare` raises.
    """
    source = None if form == "small" else data
    sections = {name: prepare(subset, source, runs) for name, subset in recipe.subsets.items()}
    seeds = SMALL_SEEDS if form == "small" else recipe.seeds
    found: dict[tuple[str, int], Plan] = {}
    for seed in seeds:
        waiting = dict(recipe.arms)
        while waiting:
            ready = [name for name, arm in waiting.items() if arm.after is None or (arm.after, seed) in found]
            if not ready:
                raise ConfigError(f"recipe {recipe.name}: {next(iter(waiting))} goes on from an arm that is not there")
            for name in ready:
                section = sections[recipe.subset_of(name)]
                parent = found.get((waiting[name].after or "", seed))
                found[name, seed] = _plan(recipe, name, seed, section, form=form, parent=parent, runs=runs)
                del waiting[name]
    beside = {name: prepare(subset, source, runs) for name, subset in recipe.beside.items()}
    return [replace(plan, beside=beside) for plan in found.values()]


def perform_plan(plan: Plan, store: RunStore, perform: Perform) -> Run:
    """The finished run of a plan: the one that is there, else trained now. Raises RunError where it does not end well.

    A run that was broken off or failed stays as it is; the next one of the same settings has a number behind its id.
    """
    run = _attempt(store, plan.id)
    if run.exists and run.status().state == "done":
        return _measured_beside(run, plan)
    values = dict(plan.values)
    if plan.after is not None:
        parent = _attempt(store, plan.after)
        values["encoder"] = {**values.get("encoder", {}), "name": f"run:{parent.id}"}
    title = plan.recipe.arms[plan.arm].title
    config = make_config({**values, "name": f"{title}, seed {plan.seed}"[:80]}, source=f"recipe {plan.recipe.name}")
    run = store.create(config, run.id)
    group = f"{plan.recipe.name}-{plan.arm}"
    run.write_json("group", {"group": group, "setting": {"arm": plan.arm}, "seed": plan.seed})
    run.update_status(group=group)
    started = time.process_time()
    perform(run)
    run.write_json(COST, {"processor_seconds": round(time.process_time() - started, 1)})
    status = run.status()
    if status.state != "done":
        why = status.error or "it was stopped; the same command goes on from here"
        raise RunError(f"run {run.id} is {status.state}: {why}")
    shutil.rmtree(run.checkpoints_folder, ignore_errors=True)  # nothing goes on from within a run that is done
    return _measured_beside(run, plan)


def _measured_beside(run: Run, plan: Plan) -> Run:
    if plan.beside:
        run.write_json(BESIDE, plan.beside)
    return run


def measure_of(recipe: Recipe) -> Measure:
    """How the recipe's runs are measured."""
    return recipe.measure or RunMeasure()


def side(
    recipe: Recipe, statement: Statement, *, runs: Mapping[str, Sequence[Run]], arm: str
) -> tuple[Sequence[Run], When]:
    """The runs of one side of a statement, and whether it is their models or what they started from that is meant.

    The untrained encoder is what the other side's runs started from, or runs on the same data that did not go on from
    others.
    """
    if arm != UNTRAINED:
        return runs[arm], "after"
    other = statement.worse if statement.better == UNTRAINED else statement.better
    return runs[untrained_arm(recipe, recipe.subset_of(other))], "before"


def untrained_arm(recipe: Recipe, subset: str) -> str:
    """An arm on the subset whose runs began with the untrained encoder. Raises ConfigError where there is none."""
    for name, arm in recipe.arms.items():
        if recipe.subset_of(name) == subset and arm.after is None:
            return name
    raise ConfigError(f"recipe {recipe.name}: no arm on {subset} begins with the untrained encoder")


def _plan(
    recipe: Recipe,
    name: str,
    seed: int,
    data: Mapping[str, Any],
    *,
    form: FormName,
    parent: Plan | None,
    runs: Path,
) -> Plan:
    layers = [ALWAYS, recipe.values, recipe.arms[name].values, *([SMALL] if form == "small" else [])]
    values = {**merged(layers), "data": dict(data)}
    values["training"]["seed"] = seed
    after = None if parent is None else parent.id
    told = json.dumps({**values, "after": after}, sort_keys=True, default=list).replace(str(runs), "")
    digest = hashlib.sha256(told.encode()).hexdigest()[:8]
    made = make_config({**values, "data": dict(data)}, source=f"recipe {recipe.name}, arm {name}")
    words = f"{recipe.subsets[recipe.subset_of(name)].folder}-{made.loss.name}-{made.batching.strategy}"
    return Plan(recipe, name, seed, f"{words}-s{seed}-{digest}", values, after)


def merged(layers: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Sections laid over one another, key by key; a later `loss` that names itself takes the place of the earlier."""
    found: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for section, values in layer.items():
            under = {} if section == "loss" and "name" in values else found.get(section, {})
            found[section] = {**under, **values}
    return found


def _attempt(store: RunStore, base: str) -> Run:
    """The run that is done among those of these settings, else the one to perform: queued, or not made yet."""
    number, following = 1, Run(store.root / base)
    while following.exists and following.status().state not in ("done", "queued"):
        number += 1
        following = Run(store.root / f"{base}-{number}")
    return following
