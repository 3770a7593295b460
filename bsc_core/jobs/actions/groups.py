"""Groups of runs that are launched together, such as a sweep or several seeds of one setting, and their summary."""

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from bsc_core.config import RunConfig, flatten
from bsc_core.config.reading import format_value
from bsc_core.errors import JobError
from bsc_core.jobs.actions.launching import Start, create_run, enqueue
from bsc_core.jobs.local.processes import start_supervisor
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import GROUP
from bsc_core.runs.ids import MAX_ID_WORDS, id_words
from bsc_core.runs.store import without_resumed

_SEED = "training.seed"
_EXCLUDED = frozenset({_SEED, "training.seeds", "name"})


def group_members(
    configs: Sequence[RunConfig], group: str, over: Iterable[str] = ()
) -> Iterator[tuple[str, RunConfig, dict[str, Any]]]:
    """Yield id, config and content of `group.json` (group, setting, seed) of each run of a group.

    Args:
        configs: Config of each run.
        group: Id of the group; the ids of its runs are `GROUP-001-temperature-0.05-seed-1` and so on, with the
            values that differ in the group, as far as they fit in MAX_ID_WORDS characters.
        over: Keys in which the settings differ; empty: determined by comparing the configs. A section, such as `loss`,
            is replaced by the keys in which it differs if several of its values have the same name.
    """
    keys = [key for key in over if key != _SEED] or differing_keys(configs)
    keys = [one for key in keys for one in _distinguishing_keys(key, configs)]
    width = max(3, len(str(len(configs))))
    dumps = (config.model_dump(mode="json") for config in configs)
    settings = [{key: _value(values, key) for key in (*keys, _SEED)} for values in dumps]
    differing = [key for key in (*keys, _SEED) if any(one[key] != settings[0][key] for one in settings)]
    for number, (config, setting) in enumerate(zip(configs, settings, strict=True), start=1):
        words = _words({key: setting[key] for key in differing})
        run_id = f"{group}-{number:0{width}d}-{words}".removesuffix("-")
        seed = setting.pop(_SEED)
        yield run_id, config, {"group": group, "setting": setting, "seed": seed}


def _words(setting: Mapping[str, Any]) -> str:
    """Return a setting as a part of an id, such as `temperature-0.05-seed-1`: what fits, with a section by its name."""
    words = ""
    for key, value in setting.items():
        name, value = key.removesuffix(".name"), value.get("name") if isinstance(value, Mapping) else value
        value = value.rpartition("/")[2] if isinstance(value, str) else value  # of a path or a model of the hub
        longer = id_words(f"{words}-{name.rpartition('.')[2]}-{format_value(value)}".replace("_", "-"))
        words = longer if len(longer) <= MAX_ID_WORDS else words
    return words


def launch_group(
    store: RunStore,
    configs: Sequence[RunConfig],
    group: str,
    *,
    over: Iterable[str] = (),
    backend: str | None = None,
    start: Start = start_supervisor,
) -> list[Run]:
    """Queue runs as a group, in their order, and return at once.

    Launching a group again launches its missing runs. See `launch` and `group_members` for the arguments and errors; if
    the queue fails, all runs are created nevertheless.
    """
    runs: list[Run] = []
    try:
        for run_id, config, about in group_members(configs, group, over):
            runs.append(create_run(store, config, run_id, backend=backend, about=about))
    except JobError as error:
        with suppress(JobError):
            enqueue(store, runs, f"group {group}", start=start)
        raise JobError(f"group {group}: {len(runs)} of {len(configs)} runs were created; {error}") from error
    enqueue(store, runs, f"group {group} of {len(runs)} runs", start=start)
    return runs


def differing_keys(configs: Sequence[RunConfig]) -> list[str]:
    """Return the keys whose values differ between configs, except seeds and names."""
    flat = [flatten(config) for config in configs]
    keys = dict.fromkeys(key for values in flat for key in values if key not in _EXCLUDED)
    return [key for key in keys if any(values.get(key) != flat[0].get(key) for values in flat)]


def _distinguishing_keys(key: str, configs: Sequence[RunConfig]) -> list[str]:
    """Return the key or, for a section with several values of the same name, the keys in which these differ."""
    by_name: dict[Any, list[RunConfig]] = {}
    for config in configs:
        value = _value(config.model_dump(mode="json"), key)
        if not isinstance(value, Mapping):
            return [key]
        by_name.setdefault(value.get("name"), []).append(config)
    keys = [one for same in by_name.values() for one in differing_keys(same) if one.startswith(f"{key}.")]
    if not keys:
        return [key]
    return list(dict.fromkeys([f"{key}.name"] * (len(by_name) > 1) + keys))


def group_summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Summarize a group: its settings, best mean over seeds first.

    A value is the best main metric on dev of a finished run; higher is better. If the main metrics of the runs differ,
    it is that of them (`metric`) which most runs define, for the saved model, or None; `main_metrics` has all.
    `deviation` is the sample standard deviation, None for fewer than two values. A run that was resumed is represented
    by the run that resumes it. The keys of a setting are those of the first run, as in each group of `group_members`.
    """
    statuses = {run.id: run.status() for run in runs}
    runs = without_resumed(runs)
    keys = list(_about(runs[0])["setting"]) if runs else []
    by_setting: dict[str, list[Run]] = {}
    for run in runs:
        by_setting.setdefault(repr(_setting(run, keys)), []).append(run)
    metrics = list(dict.fromkeys(status.metric_name for status in statuses.values() if status.metric_name))
    values = {run.id: statuses[run.id].metric_best for run in runs if statuses[run.id].state == "done"}
    if len(metrics) > 1:
        results = {run.id: run.evaluation("after").get("dev") or {} for run in runs if run.id in values}
        metrics.sort(key=lambda name: (-sum(dev.get(name) is not None for dev in results.values()), name))
        values = {run_id: dev.get(metrics[0]) for run_id, dev in results.items()}
    settings = [_summary(group, values, keys) for group in by_setting.values()]
    settings.sort(key=lambda summary: (summary["mean"] is None, -(summary["mean"] or 0.0)))
    evaluated = [summary for summary in settings if summary["best"] is not None]
    best = max(evaluated, key=lambda summary: summary["best"], default=None)
    return {
        "group": next((statuses[run.id].group for run in runs), None),
        "metric": metrics[0] if metrics else None,
        "main_metrics": metrics,
        "runs": len(runs),
        "done": sum(statuses[run.id].state == "done" for run in runs),
        "states": dict(Counter(statuses[run.id].state for run in runs)),
        "keys": keys,
        "settings": settings,
        "best_run": best["best_run"] if best else None,
        "best_setting": evaluated[0]["setting"] if evaluated else None,
    }


def _summary(runs: Sequence[Run], value_of: Mapping[str, float | None], keys: Sequence[str]) -> dict[str, Any]:
    values = [value_of.get(run.id) for run in runs]
    known = [value for value in values if value is not None]
    best = max(known, default=None)
    return {
        "setting": _setting(runs[0], keys),
        "runs": [run.id for run in runs],
        "seeds": [_about(run)["seed"] for run in runs],
        "states": [run.status().state for run in runs],
        "values": values,
        "mean": statistics.fmean(known) if known else None,
        "deviation": statistics.stdev(known) if len(known) > 1 else None,
        "best": best,
        "best_run": runs[values.index(best)].id if best is not None else None,
    }


def _about(run: Run) -> dict[str, Any]:
    return {"setting": {}, "seed": None} | (run.read_json(GROUP) or {})


def _setting(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    setting = _about(run)["setting"]
    return {key: setting[key] for key in keys if key in setting}


def _value(values: Mapping[str, Any], key: str) -> Any:
    """Return the value of a dotted key; None if there is none, as for a key of another loss."""
    value: Any = values
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
