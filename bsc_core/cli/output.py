"""Output of commands: reports as JSON or text, and progress on standard error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bsc_core.formatting import one_line

if TYPE_CHECKING:
    from bsc_core.data.io.tables import ReadProgress
    from bsc_core.runs import Run, RunStore

Report = dict[str, Any]
_PROGRESS_SECONDS = 1.0


def run_report(run: Run) -> Report:
    """Return the report of a run: state, model folder, metrics before and after, and its error if any."""
    status = run.status()
    result, result_error = _result(run)
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
    error = status.error or result_error
    return report | ({"error": error} if error else {})


def _result(run: Run) -> tuple[Report, str | None]:
    """Return the content of a run's result file, or an error if it is damaged."""
    from bsc_core.errors import RunError
    from bsc_core.runs.documents import RESULT

    try:
        result = run.read_json(RESULT) or {}
    except RunError as error:
        return {}, str(error)
    return (result, None) if isinstance(result, dict) else ({}, f"run {run.id}: result.json is damaged")


def queue_report(store: RunStore) -> Report:
    """Return the report of the queue: slots, pause, active runs, and waiting runs with the run they wait for."""
    from bsc_core.errors import BscError
    from bsc_core.jobs import Queue, slots, waits_for

    queued = Queue(store.root).snapshot()
    waiting = []
    for run_id in queued.waiting:
        try:
            waits = waits_for(store, store.get(run_id))
        except BscError as error:  # the run will fail with this
            waits = str(error)
        waiting.append({"run": run_id, "waits_for": waits})
    return {"paused": queued.paused, "slots": slots(store), "going": list(queued.claimed), "waiting": waiting}


def as_json(report: Report) -> str:
    """Return the report as one line of JSON; non-finite numbers are null."""
    from bsc_core.files import to_jsonable

    return json.dumps(to_jsonable(report), allow_nan=False)


def lines(report: Report) -> Iterator[str]:
    """Yield a report as text: one line per value, with its path; runs as a table."""
    from bsc_core.config import flatten

    if "skipped" in report:
        yield from _diagnosis(report)
        return
    for run in report.pop("runs", []):
        steps = f"{run['step']}/{run['steps']}" if run["steps"] else "-"
        yield f"{run['run']:<50} {run['state']:<9} {steps:>12}  {run.get('error') or run['message']}"
    for position, run in enumerate(report.pop("waiting", []), start=1):
        yield f"{position:>4}. {run['run']}" + (f"  waits for {run['waits_for']}" if run["waits_for"] else "")
    for summary in report.get("summary", {}).pop("settings", []):
        setting = ", ".join(f"{key} = {value}" for key, value in summary["setting"].items())
        mean, deviation = (("-" if summary[name] is None else f"{summary[name]:.4f}") for name in ("mean", "deviation"))
        yield f"{setting or 'all'}: mean {mean}, deviation {deviation}, {len(summary['runs'])} runs"
    for claim in report.pop("recipes", []):
        yield from _claim(claim)
    for plan in report.pop("plans", []):
        from bsc_core.reproduction.power import plan_lines

        yield from plan_lines(plan)
    if report.get("findings"):
        for finding in report.pop("findings"):
            yield from _finding(finding) if "statements" in finding else _audit_finding(finding)
    report.pop("rows_kept", None)  # the previous name of `rows_valid`, in JSON only
    for name, value in flatten(json.loads(as_json(report))).items():
        yield f"{name}: {_format(value)}"


def _format(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(item, float | None) for item in value):
        return f"[{', '.join(map(_format, value))}]"
    return f"{value:.4f}" if isinstance(value, float) else "-" if value is None else str(value)


def _claim(claim: Report) -> Iterator[str]:
    """Yield the lines of a claim, for `bsc reproduce --list`."""
    seconds, source = claim["seconds"], ", ".join(filter(None, (claim["paper"], claim["table"])))
    cost = "not run yet" if seconds is None else f"{seconds / 60:.0f} minutes of one processor core"
    yield claim["name"] + (f": {claim['verdict']}" if claim["verdict"] else "")
    yield f"    {claim['claim']}"
    yield f"    {source}; data {', '.join(claim['data'])}; {claim['runs']} runs, {cost}"


def _finding(finding: Report) -> Iterator[str]:
    """Yield the lines of a finding on a claim: its verdict, and each statement with its difference."""
    yield f"{finding['name']}: {finding['verdict']}. {finding['reason']}"
    for statement in finding["statements"]:
        yield f"    {statement['text']}: {statement['sentence']}"
        p = statement["p_holm"]
        yield f"        {statement['verdict']}" + ("" if p is None else f", p after Holm's correction {p:.2g}")


def _audit_finding(finding: Report) -> Iterator[str]:
    """Yield the line of a finding of an audit."""
    numbers = finding["lines"]
    rows = f" ({'line' if len(numbers) == 1 else 'lines'} {', '.join(map(str, numbers))})" if numbers else ""
    suggestion = f" Suggestion: {finding['suggestion']}" if finding["suggestion"] else ""
    row_filter = f" Filter: {finding['filter']}" if finding["filter"] else ""
    yield f"{finding['severity']}: {finding['title']}{rows}.{suggestion}{row_filter}"


def _diagnosis(report: Report) -> Iterator[str]:
    """Yield the lines of a diagnosis: its verdict, each finding with its evidence, and the checks that were skipped."""
    yield report["verdict"]
    if not report["findings"]:
        yield "No check found a cause."
    for position, finding in enumerate(report["findings"], start=1):
        yield f"{position}. {finding['severity']}: {finding['title']} [{finding['code']}]"
        for one in finding["evidence"]:
            yield f"    {one['name']}: {one['value']:.3g} (compared with: {one['compared_with']})"
        yield f"    Suggestion: {finding['suggestion']}"
    for name, reason in report["skipped"].items():
        yield f"not checked: {name}: {reason}"


class RunProgressPrinter:
    """Write the status of a run to standard error, at most once a second."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._next = 0.0

    def __call__(self, report: object) -> None:
        """Print the progress."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PROGRESS_SECONDS
        status = self._run.status()
        left = "" if status.eta_seconds is None else f", {status.eta_seconds:.0f} s left"
        steps = f"epoch {status.epoch}/{status.epochs}, step {status.step}/{status.steps}"
        sys.stderr.write(f"{one_line(status.message or 'training')}: {steps}{left}\n")


class ReadProgressPrinter:
    """Write the progress of reading a file to standard error, at most once a second."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = time.monotonic()
        self._next = self._start + _PROGRESS_SECONDS

    def __call__(self, reading: ReadProgress) -> None:
        """Print the progress."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _PROGRESS_SECONDS
        share = min(1.0, reading.done / max(reading.total, 1))
        left = (now - self._start) * (1 - share) / share if share else 0.0
        sys.stderr.write(f"{one_line(self._what)}: {reading.rows:,} rows, {share:.0%}, about {left:.0f} s left\n")
