"""What came of a recipe, as plain values in one JSON file, from which docs and the Findings page are written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bsc_core.comparison import When
from bsc_core.errors import BscError, FileFormatError, InputError
from bsc_core.evaluation.bootstrap import Interval
from bsc_core.files import plain, write_whole
from bsc_core.recipes.claims import PAPERS, UNTRAINED, FormName, Recipe, Statement
from bsc_core.recipes.progress import KEPT, PROGRESS, Progress, file_name, lock_file
from bsc_core.recipes.reproducing import (
    COST,
    SMALL_BUDGET,
    Perform,
    Plan,
    Say,
    measure_of,
    perform_plan,
    plans,
    side,
    untrained_arm,
)
from bsc_core.recipes.subsets import rows_of
from bsc_core.recipes.verdicts import Judged, claim_verdict, judge, reason
from bsc_core.runs import Run, RunStore

FINDINGS = Path(__file__).parent / "findings"
"""The findings that come with the package."""
Finding = dict[str, Any]
_KEYS = ("name", "title", "form", "claim", "verdict", "reason", "seconds", "seeds", "data", "arms", "statements")
_HIDDEN = ("data", "training.seed", "name")


def reproduce(
    recipe: Recipe,
    store: RunStore,
    perform: Perform,
    *,
    form: FormName = "full",
    data: Path | None = None,
    say: Say = lambda sentence: None,
) -> Finding:
    """Train what the recipe needs, compare, and write the finding into the runs folder; also the finding.

    data: the folder of data sets, which the small form does without. How far it is stands beside the finding while it
    goes on, see `read_progress`. Raises PathError where a data set is not there, InputError while another process
    reproduces the same recipe, RunError when a run does not end well; what is done by then is used the next time.
    """
    progress = Progress(recipe.name, store.root, form, say)
    try:
        with FileLock(lock_file(recipe.name, store.root, form), timeout=0):
            return _reproduced(recipe, store, perform, form=form, data=data, progress=progress)
    except Timeout:
        raise InputError(f"recipe {recipe.name}: another process is at it in {store.root}; wait for its end") from None


def _reproduced(
    recipe: Recipe, store: RunStore, perform: Perform, *, form: FormName, data: Path | None, progress: Progress
) -> Finding:
    try:
        planned = plans(recipe, form, data=data, runs=store.root)
        progress.of = len(planned)
        runs: dict[str, list[Run]] = {}
        for plan in planned:
            progress.tell(f"{recipe.arms[plan.arm].title}, seed {plan.seed}")
            runs.setdefault(plan.arm, []).append(perform_plan(plan, store, perform))
            progress.done += 1
        progress.tell("comparing")
        found = _finding(recipe, planned, runs, form=form)
        write_finding(found, store.root / KEPT)
    except BscError as error:
        progress.tell("", str(error))
        raise
    progress.tell("")
    return found


def write_finding(finding: Finding, folder: Path = FINDINGS) -> Path:
    """Write a finding as NAME.json, NAME-small.json for the small form, into a folder; the package's where none is."""
    path = folder / f"{file_name(finding['name'], finding['form'])}.json"
    text = json.dumps(plain(finding), indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(path, (text + "\n").encode())
    return path


def read_findings(folder: Path | None = None) -> dict[str, Finding]:
    """The findings of a folder by the name of their file, those of the package where none is named.

    Raises FileFormatError, naming the file, where one cannot be read.
    """
    paths = sorted((folder or FINDINGS).glob("*.json"))
    return {path.stem: _read(path) for path in paths if not path.name.endswith(PROGRESS)}


def _read(path: Path) -> Finding:
    try:
        found: Finding = json.loads(path.read_bytes())
        lacking = [key for key in _KEYS if key not in found] if isinstance(found, dict) else _KEYS
    except ValueError as error:
        raise FileFormatError(f"{path}: no finding ({error}); delete it and run `bsc reproduce` again") from None
    if lacking:
        raise FileFormatError(f"{path}: no finding (no {lacking[0]!r}); delete it and run `bsc reproduce` again")
    return found


def _finding(recipe: Recipe, planned: Sequence[Plan], runs: Mapping[str, list[Run]], *, form: FormName) -> Finding:
    judged = _judged(recipe, runs)
    results = [run.read_json("result") for own in runs.values() for run in own]
    verdicts = [one.verdict for one in judged if not one.statement.beside]
    return {
        "name": recipe.name,
        "title": recipe.title,
        "paper": recipe.paper,
        "citation": PAPERS[recipe.paper],
        "table": recipe.table,
        "claim": recipe.claim,
        "budget": recipe.budget if form == "full" else SMALL_BUDGET,
        "note": recipe.note,
        "form": form,
        "verdict": claim_verdict(verdicts),
        "reason": reason(verdicts),
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"bsc reproduce {recipe.name}" + (" --form small" if form == "small" else " --data DATA"),
        "device": ", ".join(dict.fromkeys(result["device"] for result in results)),
        "precision": ", ".join(dict.fromkeys(result["precision"] for result in results)),
        "seconds": round(sum(seconds_of(run) for own in runs.values() for run in own), 1),
        "seeds": list(dict.fromkeys(plan.seed for plan in planned)),
        "data": _data(recipe, planned),
        "arms": _arms(recipe, planned, runs),
        "statements": [_statement(recipe, one) for one in judged],
    }


def _judged(recipe: Recipe, runs: Mapping[str, list[Run]]) -> list[Judged]:
    measure = measure_of(recipe)
    found = []
    for one in recipe.statements:
        (worse, worse_when), (better, better_when) = (
            side(recipe, one, runs=runs, arm=name) for name in (one.worse, one.better)
        )
        found.append(measure.compare(worse, better, one.metric, one.split, whens=(worse_when, better_when)))
    return judge(recipe.statements, found)


def _data(recipe: Recipe, planned: Sequence[Plan]) -> list[dict[str, Any]]:
    sections = {recipe.subset_of(plan.arm): plan.values["data"] for plan in planned}
    return [
        {"name": name, "folder": recipe.subsets[name].folder, "rows": rows_of(section)}
        for name, section in sections.items()
    ]


def _arms(recipe: Recipe, planned: Sequence[Plan], runs: Mapping[str, list[Run]]) -> list[dict[str, Any]]:
    """What every arm came to, the untrained encoder of each subset before the arms on it."""
    settings = _settings(planned)
    found = []
    for subset in dict.fromkeys(recipe.subset_of(name) for name in recipe.arms):
        untrained = runs[untrained_arm(recipe, subset)]
        title = "Untrained" if len(recipe.subsets) == 1 else f"Untrained, {subset}"
        found.append(_arm(recipe, untrained, UNTRAINED, {"title": title, "data": subset, "settings": {}}))
        for name, arm in recipe.arms.items():
            if recipe.subset_of(name) == subset:
                about = {"title": arm.title, "data": subset, "settings": settings[name], "after": arm.after}
                found.append(_arm(recipe, runs[name], name, about))
    return found


def _arm(recipe: Recipe, runs: Sequence[Run], name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    measure = measure_of(recipe)
    when: When = "before" if name == UNTRAINED else "after"
    shown = list(dict.fromkeys([*recipe.metrics, *(one.metric for one in recipe.statements)]))
    splits = [split for split in ("dev", "test") if split in (runs[0].read_json(f"evaluation/{when}") or {})]
    metrics = {}
    for split in splits:
        intervals = measure.intervals(runs, split, when, shown)
        metrics[split] = {metric: _range(interval) for metric, interval in intervals.items()}
    told = [] if name == UNTRAINED else [_run(run, when, shown) for run in runs]
    return {"name": name, **about, "runs": told, "metrics": metrics, "details": measure.details(runs, when)}


def _run(run: Run, when: str, metrics: Sequence[str]) -> dict[str, Any]:
    measured = run.read_json(f"evaluation/{when}")
    values = {split: {name: values[name] for name in metrics if name in values} for split, values in measured.items()}
    config, result = run.config(), run.read_json("result")
    steps = run.status().steps or result.get("steps")
    return {"run": run.id, "seed": config.training.seed, "seconds": seconds_of(run), "steps": steps, "values": values}


def seconds_of(run: Run) -> float:
    """Processor seconds that a run took; nothing else that went on beside it is in them."""
    return float((run.read_json(COST) or {}).get("processor_seconds", 0.0))


def _range(interval: Interval) -> dict[str, float | None]:
    return {"value": interval.value, "low": interval.low, "high": interval.high}


def _statement(recipe: Recipe, one: Judged) -> dict[str, Any]:
    found, statement = one.comparison, one.statement
    return {
        "words": _words(recipe, statement),
        "better": statement.better,
        "worse": statement.worse,
        "metric": statement.metric,
        "split": statement.split,
        "expects": statement.expects,
        "margin": statement.margin,
        "beside": statement.beside,
        "paper": statement.paper,
        "difference": found.difference.value,
        "low": found.difference.low,
        "high": found.difference.high,
        "p": found.p,
        "p_holm": one.p,
        "queries": found.queries,
        "wins": found.wins,
        "losses": found.losses,
        "ties": found.ties,
        "method": found.method,
        "verdict": one.verdict,
        "sentence": found.sentence(),
    }


def _words(recipe: Recipe, statement: Statement) -> str:
    """The statement, made from the titles of its arms where it has no words of its own."""
    said = statement.words or _made(recipe, statement)
    return f"Beside the claim: {said}" if statement.beside else said


def _made(recipe: Recipe, statement: Statement) -> str:
    better, worse = (
        "the untrained encoder" if name == UNTRAINED else recipe.arms[name].title
        for name in (statement.better, statement.worse)
    )
    if statement.expects == "same":
        return f"{better} and {worse} differ by at most {statement.margin:g} in {statement.metric}"
    return f"{better} is above {worse} in {statement.metric}"


def _settings(planned: Sequence[Plan]) -> dict[str, dict[str, Any]]:
    """For each arm the keys of its config in which arms differ."""
    first: dict[str, dict[str, Any]] = {}
    for plan in planned:
        if plan.arm not in first:
            first[plan.arm] = _flat(plan.values)
    keys = dict.fromkeys(key for values in first.values() for key in values if not key.startswith(_HIDDEN))
    differing = [key for key in keys if len({repr(values.get(key)) for values in first.values()}) > 1]
    return {arm: {key: values[key] for key in differing if key in values} for arm, values in first.items()}


def _flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return flat
