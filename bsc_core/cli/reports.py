"""What a command says: the report as JSON or as lines for reading, and progress on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bsc_core.data.stream import Progress as Reading
    from bsc_core.runs import Run, RunStore

Report = dict[str, Any]
_PROGRESS_SECONDS = 1.0


def run_report(run: Run) -> Report:
    """What is known of a run: state, model folder, metrics before and after, and its error if it has one."""
    status = run.status()
    result, fault = _result(run)
    report = {
        "run": run.id,
        "folder": str(run.folder),
        "created": status.created,
        "step": status.step,
        "steps": status.steps,
        "eta_seconds": status.eta_seconds,
        "message": status.message,
        "metrics": {"before": {}, "after": {}},
    }
    model = str(run.model_folder) if run.model_folder.is_dir() else None
    report |= {**result, "run": run.id, "folder": str(run.folder), "state": status.state, "model": model}
    error = status.error or fault
    return report | ({"error": error} if error else {})


def _result(run: Run) -> tuple[Report, str | None]:
    """What a run's result file holds; nothing, and why, where it is damaged: the other runs are still to be listed."""
    from bsc_core.errors import RunError

    try:
        result = run.read_json("result") or {}
    except RunError as error:
        return {}, str(error)
    return (result, None) if isinstance(result, dict) else ({}, f"run {run.id}: result.json is damaged")


def queue_report(store: RunStore) -> Report:
    """The queue: slots, whether it is paused, what goes on, and what waits, next first, and for which run."""
    from bsc_core.errors import BscError
    from bsc_core.jobs import Queue, slots, waits_for

    standing = Queue(store.root).look()
    waiting = []
    for run_id in standing.waiting:
        try:
            waits = waits_for(store, store.get(run_id))
        except BscError as error:  # the run fails with this when its turn comes
            waits = str(error)
        waiting.append({"run": run_id, "waits_for": waits})
    return {"paused": standing.paused, "slots": slots(store), "going": list(standing.claimed), "waiting": waiting}


def as_json(report: Report) -> str:
    """The report as one line of JSON; a number that is not finite is null."""
    from bsc_core.files import plain

    return json.dumps(plain(report), allow_nan=False)


def lines(report: Report) -> Iterator[str]:
    """A report for reading: one line for each value, named by its path; runs in a table."""
    for run in report.pop("runs", []):
        steps = f"{run['step']}/{run['steps']}" if run["steps"] else "-"
        yield f"{run['run']:<50} {run['state']:<9} {steps:>12}  {run.get('error') or run['message']}"
    for place, run in enumerate(report.pop("waiting", []), start=1):
        yield f"{place:>4}. {run['run']}" + (f"  waits for {run['waits_for']}" if run["waits_for"] else "")
    for one in report.get("summary", {}).pop("settings", []):
        setting = ", ".join(f"{key} = {value}" for key, value in one["setting"].items())
        mean, deviation = (("-" if one[name] is None else f"{one[name]:.4f}") for name in ("mean", "deviation"))
        yield f"{setting or 'all'}: mean {mean}, deviation {deviation}, {len(one['runs'])} runs"
    for recipe in report.pop("recipes", []):
        yield from _recipe(recipe)
    if any("statements" in finding for finding in report.get("findings", [])):  # of recipes, not of an audit
        for finding in report.pop("findings"):
            yield from _finding(finding)
    for name, value in _flat(json.loads(as_json(report))):
        yield f"{name}: {_worded(value)}"


def _worded(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, float | None) for item in value):
        return f"[{', '.join(map(_worded, value))}]"
    return f"{value:.4f}" if isinstance(value, float) else "-" if value is None else str(value)


def _recipe(recipe: Report) -> Iterator[str]:
    """A recipe as `bsc reproduce --list` shows it."""
    minutes = (
        "not run yet" if recipe["seconds"] is None else f"{recipe['seconds'] / 60:.0f} minutes of one processor core"
    )
    verdict = f": {recipe['verdict']}" if recipe["verdict"] else ""
    yield f"{recipe['name']}{verdict}"
    yield f"    {recipe['claim']}"
    data = ", ".join(recipe["data"])
    yield f"    {recipe['paper']}, {recipe['table']}; data {data}; {recipe['runs']} runs, {minutes}"


def _finding(finding: Report) -> Iterator[str]:
    """What came of a recipe: its verdict, and each statement with its difference."""
    yield f"{finding['name']}: {finding['verdict']}. {finding['reason']}"
    for said in finding["statements"]:
        yield f"    {said['words']}: {said['sentence']}"
        corrected = "" if said["p_holm"] is None else f", p after Holm's correction {said['p_holm']:.2g}"
        yield f"        {said['verdict']}{corrected}"


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, item in value.items():
        yield from _flat(item, f"{path}.{key}" if path else key)


class Progress:
    """Writes the status of a run to standard error, at most once a second."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next = 0.0

    def __call__(self, report: object) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PROGRESS_SECONDS
        status = self._run.status()
        left = "" if status.eta_seconds is None else f", {status.eta_seconds:.0f} s left"
        steps = f"epoch {status.epoch}/{status.epochs}, step {status.step}/{status.steps}"
        sys.stderr.write(f"{status.message or 'training'}: {steps}{left}\n")


class ReadingProgress:
    """Writes how far a file is read to standard error, at most once a second."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = time.monotonic()
        self._next = self._start + _PROGRESS_SECONDS

    def __call__(self, reading: Reading) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PROGRESS_SECONDS
        share = min(1.0, reading.done / max(reading.whole, 1))
        left = (now - self._start) * (1 - share) / share if share else 0.0
        sys.stderr.write(f"{self._what}: {reading.rows:,} rows, {share:.0%}, about {left:.0f} s left\n")
