"""Runs of a claim: each arm is trained as an ordinary run, once for all claims that share it.

The id of a run is a function of its settings and data, so an interrupted reproduction resumes with the missing runs.
"""

import hashlib
import json
import multiprocessing
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bsc_core.config import RunConfig, flatten, make_config
from bsc_core.config.reading import format_value
from bsc_core.errors import ConfigError, RunError
from bsc_core.formatting import shorten
from bsc_core.reproduction.claims import Claim, FormName, Sections, merge_sections
from bsc_core.reproduction.metrics.nli import EXTRA_DATA_FILE
from bsc_core.reproduction.subsets import prepare_subset
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import GROUP

Train = Callable[[Run], object]
"""Trains a queued run in this process, such as `jobs.worker.perform` does."""
COST_FILE = "cost"
"""The file of a run with its `processor_seconds`, which do not depend on other work on the machine."""
SMALL_SEEDS = (0, 1)
SMALL: Sections = {
    "encoder": {"name": "static", "reinit_layers": 0},
    "batching": {"clusters": 8},
    "training": {"max_steps": 3, "batch_size": 8, "learning_rate": 1e-3, "precision": "fp32"},
}
"""Config of the small form, which overrides that of every arm."""
SMALL_DIMENSIONS: Sections = {"loss": {"matryoshka_dims": [16, 8]}}
"""Config of the arms with Matryoshka in the small form, whose encoder has fewer dimensions than that of the arms."""
SMALL_BUDGET = "{max_steps} steps of {batch_size} pairs of the sample data".format(**SMALL["training"])
BASE: Sections = {
    "evaluation": {"each_epoch": False, "epoch_texts": 0},
    "training": {"threads": 1, "save_total_limit": 1},
}
"""Default config of every arm: no epoch is chosen by its metrics, so dev and test are both held out."""
_NOT_COMPARED = {
    "name",
    "encoder.unpadded",
    *(f"training.{key}" for key in ("compile", "report_to", "save_steps", "save_total_limit", "threads")),
}
"""Keys that depend on the machine and do not change results, except for rounding."""
MAX_SHOWN = 60  # characters of a value in an error message


@dataclass(frozen=True)
class PlannedRun:
    """One run of a claim before it is created.

    values: its config without `name`. after: the id of the run whose model it starts from. extra_data: the `data`
    section of each further dataset that the metrics source reads.
    """

    claim: Claim
    arm: str
    seed: int
    id: str
    values: Mapping[str, Any]
    after: str | None
    extra_data: Mapping[str, Mapping[str, Any]]


def plan_runs(claim: Claim, form: FormName, *, data: Path | None, runs: Path) -> list[PlannedRun]:
    """Plan every run of a claim, parents of other runs first. Writes the subsets that do not exist yet.

    Args:
        claim: what to reproduce.
        form: full or small.
        data: the folder of datasets; not used by the small form.
        runs: the runs folder.

    Raises:
        ConfigError: an arm starts from an unknown one.
        PathError: a dataset is missing.
    """
    small = form == "small"
    sections, extra_data = (
        {name: prepare_subset(subset, None if small else data, runs) for name, subset in subsets.items()}
        for subsets in (claim.subsets, claim.extra_data)
    )
    planned: dict[tuple[str, int], PlannedRun] = {}
    for seed in SMALL_SEEDS if small else claim.seeds:
        waiting = dict(claim.arms)
        while waiting:
            ready = [name for name, arm in waiting.items() if arm.after is None or (arm.after, seed) in planned]
            if not ready:
                name, arm = next(iter(waiting.items()))
                raise ConfigError(f"claim {claim.name}: arm {name} starts from {arm.after!r}, which is not an arm")
            for name in ready:
                arm = waiting.pop(name)
                layers = [BASE, claim.values, arm.values, {"training": {"seed": seed}}]
                if small:
                    shortened = "matryoshka_dims" in arm.values.get("loss", {})
                    layers += [SMALL, SMALL_DIMENSIONS if shortened else {}]
                values = {**merge_sections(layers), "data": sections[claim.subset_of(name)]}
                after = None if arm.after is None else planned[arm.after, seed].id
                run_id = _run_id(claim, name, values, after=after, runs=runs)
                planned[name, seed] = PlannedRun(claim, name, seed, run_id, values, after, extra_data)
    return list(planned.values())


def _run_id(claim: Claim, arm: str, values: dict[str, Any], *, after: str | None, runs: Path) -> str:
    """Return an id that depends on the settings and the data, and not on the path of the runs folder."""
    content = json.dumps({**values, "after": after}, sort_keys=True, default=list).replace(str(runs), "")
    digest = hashlib.sha256(content.encode()).hexdigest()[:8]
    config = make_config(values, source=f"claim {claim.name}, arm {arm}")
    folder = claim.subsets[claim.subset_of(arm)].folder
    return f"{folder}-{config.loss.name}-{config.batching.strategy}-s{config.training.seed}-{digest}"


def train_in_processes(
    claims: Sequence[Claim],
    store: RunStore,
    train: Train,
    *,
    form: FormName,
    data: Path | None,
    processes: int,
) -> Iterator[Claim]:
    """Train the runs of several claims in parallel processes, each run once, and yield each claim when they are done.

    Claims and seeds are begun in their order. A run that starts from the model of another one follows it in its
    process.

    Args:
        claims: What to reproduce.
        store: The runs folder.
        train: Trains one queued run; a function that can be pickled.
        form: Full or small.
        data: The folder of datasets; not used by the small form.
        processes: Number of processes.

    Raises:
        PathError: A dataset is missing.
        RunError: A run did not finish; runs that had not begun are not trained.
    """
    chains: dict[str, dict[str, PlannedRun]] = {}  # by the id of the first run
    first: dict[str, str] = {}
    missing: list[set[str]] = []  # for each claim, the first runs of its chains
    for claim in claims:
        planned = plan_runs(claim, form, data=data, runs=store.root)
        for one in planned:
            first[one.id] = one.id if one.after is None else first[one.after]
            chains.setdefault(first[one.id], {})[one.id] = one
        missing.append({first[one.id] for one in planned})
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(_train_chain, [*chain.values()], store, train): name for name, chain in chains.items()}
        try:
            for future in as_completed(futures):
                future.result()
                for claim, names in zip(claims, missing, strict=True):
                    if names == {futures[future]}:
                        yield claim
                    names.discard(futures[future])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _train_chain(chain: Sequence[PlannedRun], store: RunStore, train: Train) -> None:
    for planned in chain:
        train_planned(planned, store, train)


def train_planned(planned: PlannedRun, store: RunStore, train: Train) -> Run:
    """Return the finished run of a plan, trained now unless it exists.

    A run that was interrupted or failed is not changed; the next one of the same settings gets a numbered id.

    Raises:
        RunError: training did not finish, or the run that exists has other settings.
    """
    run = latest_attempt(store, planned.id)
    if run.exists:
        _check_settings(planned, run)
    if not (run.exists and run.status().state == "done"):
        _train(planned, run, store, train)
    if planned.extra_data:
        run.write_json(EXTRA_DATA_FILE, planned.extra_data)
    return run


def latest_attempt(store: RunStore, base: str) -> Run:
    """Return the finished run of these settings, else the one to train: queued or not created yet."""
    number, run = 1, Run(store.root / base)
    while run.exists and run.status().state not in ("done", "queued"):
        number += 1
        run = Run(store.root / f"{base}-{number}")
    return run


def _check_settings(planned: PlannedRun, run: Run) -> None:
    """Raise RunError if a run with the id of a plan, which may come from elsewhere, has other settings."""
    claim = planned.claim.name
    is_done = run.status().state == "done"  # its runs folder may have been moved since
    expected = _settings(make_config(dict(planned.values), source=f"claim {claim}"), only_subset=is_done)
    found = _settings(run.config(), only_subset=is_done)
    if planned.after is not None:
        parent = expected["encoder.name"] = f"run:{planned.after}"
        if re.fullmatch(rf"{re.escape(parent)}-\d+", found["encoder.name"]):  # a later attempt
            found["encoder.name"] = parent
    for key in dict.fromkeys([*expected, *found]):
        if found.get(key) != expected.get(key):
            one, other = (shorten(format_value(values.get(key)), MAX_SHOWN) for values in (found, expected))
            raise RunError(
                f"run {run.id}: its config has {key} = {one}, and claim {claim} needs {other}; delete the run, or use "
                "another runs folder"
            )


def _settings(config: RunConfig, *, only_subset: bool) -> dict[str, Any]:
    """Return the settings of a config that decide its results.

    With `only_subset`, the paths of files begin at the folder of their subset.
    """
    settings = {key: value for key, value in flatten(config).items() if key not in _NOT_COMPARED}
    for key in ("data.train", "data.dev", "data.test", "data.corpus"):
        if only_subset and settings[key] is not None:
            settings[key] = "/".join(Path(settings[key]).parts[-2:])  # the name of the folder is a digest of the data
    return settings


def _train(planned: PlannedRun, run: Run, store: RunStore, train: Train) -> None:
    claim, arm, values = planned.claim, planned.arm, dict(planned.values)
    if planned.after is not None:
        parent = latest_attempt(store, planned.after)
        values["encoder"] = {**values.get("encoder", {}), "name": f"run:{parent.id}"}
    name = f"{claim.arms[arm].title}, seed {planned.seed}"[:80]
    run = store.create(make_config({**values, "name": name}, source=f"claim {claim.name}"), run.id)
    group = f"{claim.name}-{arm}"
    run.write_json(GROUP, {"group": group, "setting": {"arm": arm}, "seed": planned.seed})
    run.update_status(group=group)
    started = time.process_time()
    train(run)
    run.write_json(COST_FILE, {"processor_seconds": round(time.process_time() - started, 1)})
    status = run.status()
    if status.state != "done":
        reason = status.error or "it was stopped; run the same command to resume"
        raise RunError(f"run {run.id} is {status.state}: {reason}")
    shutil.rmtree(run.checkpoints_folder, ignore_errors=True)  # a finished run is never resumed
