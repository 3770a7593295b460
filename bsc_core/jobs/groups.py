"""Groups: runs launched together, such as a sweep or one setting with several seeds, and what came of them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bsc_core.config import RunConfig
from bsc_core.errors import JobError
from bsc_core.jobs.launching import Start, make, not_queued, serve
from bsc_core.jobs.local import start_supervisor
from bsc_core.jobs.queue import Queue
from bsc_core.runs import Run, RunStore

_SEED = "training.seed"
_UNTOLD = frozenset({_SEED, "training.seeds", "name"})


@dataclass(frozen=True)
class Member:
    """One run of a group before it is made. about: what its folder says of it: group, setting and seed."""

    id: str
    config: RunConfig
    about: dict[str, Any]


def members(configs: Sequence[RunConfig], group: str, over: Iterable[str] = ()) -> list[Member]:
    """The runs of a group, `group-001` on. over: the keys in which settings differ; none: told from the configs."""
    keys = [key for key in over if key != _SEED] or differing(configs)
    width = max(3, len(str(len(configs))))
    found = []
    for number, config in enumerate(configs, start=1):
        values = config.model_dump(mode="json")
        setting = {key: _value(values, key) for key in keys}
        about = {"group": group, "setting": setting, "seed": config.training.seed}
        found.append(Member(f"{group}-{number:0{width}d}", config, about))
    return found


def launch_group(
    store: RunStore,
    configs: Sequence[RunConfig],
    group: str,
    *,
    over: Iterable[str] = (),
    backend: str | None = None,
    start: Start = start_supervisor,
) -> list[Run]:
    """Queue runs as a group, in their order, and return at once. group: an id as runs have; theirs are `group-001` on.

    Launching a group again launches what is missing of it. over: the keys in which the settings differ, such as those
    of a sweep; none: told from the configs. Raises as `launch` does; where the queue refuses, all are made and kept.
    """
    runs, refused = [], None
    for member in members(configs, group, over):
        try:
            runs.append(make(store, member.config, member.id, backend=backend, about=member.about))
        except JobError as error:
            raise JobError(f"group {group}: {len(runs)} of {len(configs)} runs are made and kept; {error}") from error
        if refused is None:  # a queue that someone holds is not asked for each run
            try:
                Queue(store.root).add(runs[-1].id)
            except JobError as error:
                refused = error
    if refused is not None:
        raise not_queued(f"group {group} of {len(runs)} runs", refused) from refused
    serve(store, f"group {group}", start=start)
    return runs


def group_runs(store: RunStore, group: str) -> list[Run]:
    """The runs of a group in the order of their launch; those that go on where one ended come after it."""
    return sorted((run for run in store.list() if run.status().group == group), key=lambda run: run.status().created)


def differing(configs: Sequence[RunConfig]) -> list[str]:
    """The keys whose values are not the same in all configs, seeds and names apart."""
    flat = [_flat(config.model_dump(mode="json")) for config in configs]
    keys = dict.fromkeys(key for values in flat for key in values if key not in _UNTOLD)
    return [key for key in keys if any(values.get(key) != flat[0].get(key) for values in flat)]


def group_summary(runs: Sequence[Run]) -> dict[str, Any]:
    """What came of a group: its settings, best mean first, each over its seeds.

    A value is the best main metric on dev of a run that is done; higher is better. `deviation` is that of a sample,
    None for fewer than two values. A run that another goes on from counts through that other one.
    """
    statuses = {run.id: run.status() for run in runs}
    gone_on = {status.resumed_from for status in statuses.values()}
    runs = [run for run in runs if run.id not in gone_on]
    by_setting: dict[str, list[Run]] = {}
    for run in runs:
        by_setting.setdefault(repr(_about(run)["setting"]), []).append(run)
    settings = [_summary(members) for members in by_setting.values()]
    settings.sort(key=lambda one: (one["mean"] is None, -(one["mean"] or 0.0)))
    measured = [one for one in settings if one["best"] is not None]
    best = max(measured, key=lambda one: one["best"], default=None)
    return {
        "group": next((statuses[run.id].group for run in runs), None),
        "metric": next((status.metric_name for status in statuses.values() if status.metric_name), None),
        "runs": len(runs),
        "done": sum(statuses[run.id].state == "done" for run in runs),
        "states": dict(Counter(statuses[run.id].state for run in runs)),
        "keys": list(dict.fromkeys(key for one in settings for key in one["setting"])),
        "settings": settings,
        "best_run": best["best_run"] if best else None,
        "best_setting": measured[0]["setting"] if measured else None,
    }


def _summary(runs: Sequence[Run]) -> dict[str, Any]:
    statuses = [run.status() for run in runs]
    values = [status.metric_best if status.state == "done" else None for status in statuses]
    known = [value for value in values if value is not None]
    best = max(known, default=None)
    return {
        "setting": _about(runs[0])["setting"],
        "runs": [run.id for run in runs],
        "seeds": [_about(run)["seed"] for run in runs],
        "states": [status.state for status in statuses],
        "values": values,
        "mean": statistics.fmean(known) if known else None,
        "deviation": statistics.stdev(known) if len(known) > 1 else None,
        "best": best,
        "best_run": runs[values.index(best)].id if best is not None else None,
    }


def _about(run: Run) -> dict[str, Any]:
    return run.read_json("group") or {"setting": {}, "seed": None}


def _flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return flat


def _value(values: Mapping[str, Any], key: str) -> Any:
    """What stands under a key of plain values; None where there is nothing, as for another loss's key."""
    found: Any = values
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
