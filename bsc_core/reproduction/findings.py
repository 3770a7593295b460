"""Findings: results of claims as plain values in JSON files, the source of the docs and of the Findings page."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import Timeout
from pydantic import BaseModel, Field, ValidationError

from bsc_core.config import flatten
from bsc_core.config.messages import first_problem
from bsc_core.errors import BscError, FileFormatError, InputError
from bsc_core.files import as_json, atomic_write, error_reason, file_lock, read_regular
from bsc_core.reproduction.claims import PAPERS, UNTRAINED, Claim, FormName, Statement
from bsc_core.reproduction.metrics import METRICS_SOURCES
from bsc_core.reproduction.power import plan_power
from bsc_core.reproduction.progress import FINDINGS_FOLDER, PROGRESS_SUFFIX, Log, ProgressLog, file_stem, lock_file
from bsc_core.reproduction.runs import COST_FILE, SMALL_BUDGET, PlannedRun, Train, plan_runs, train_planned
from bsc_core.reproduction.subsets import row_counts
from bsc_core.reproduction.verdicts import (
    OLD_VERDICTS,
    JudgedStatement,
    Verdict,
    claim_verdict,
    judge,
    judged_values,
    rejudge,
    summarize_verdicts,
)
from bsc_core.run_results import When
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import RESULT

PACKAGED_FINDINGS = Path(__file__).parent / "findings"
Finding = dict[str, Any]
_OLD_STATEMENT_KEYS = {"words": "text", "beside": "informational"}
_NOT_SETTINGS = ("data", "training.seed", "name")


class _Value(BaseModel):
    value: float | None
    low: float | None
    high: float | None


class _ArmValues(BaseModel):
    name: str
    title: str
    settings: dict[str, Any]
    runs: list[dict[str, Any]]
    metrics: dict[str, dict[str, _Value]]
    details: dict[str, Any] = {}


class _StatementValues(BaseModel):
    text: str
    better: str
    metric: str
    split: str
    sentence: str
    verdict: Verdict
    difference: float
    low: float | None
    high: float | None
    p_holm: float | None
    paper: float | None
    detectable: float | None
    queries: int


class _DataValues(BaseModel):
    folder: str
    rows: dict[str, int]


class _FindingValues(BaseModel):
    """Types of the values of a finding, which another program may have changed."""

    name: str
    title: str
    form: FormName
    claim: str
    verdict: Verdict
    reason: str
    note: str
    budget: str
    device: str
    precision: str
    date: str
    command: str
    seconds: float
    seeds: list[int]
    data: list[_DataValues]
    arms: list[_ArmValues]
    statements: list[_StatementValues] = Field(min_length=1)


def reproduce(
    claim: Claim,
    store: RunStore,
    train: Train,
    *,
    form: FormName = "full",
    data: Path | None = None,
    log: Log = lambda line: None,
) -> Finding:
    """Train the runs of a claim, compare them, and write and return the finding.

    Finished runs are not trained again. The progress is stored next to the finding, see `read_progress`.

    Args:
        claim: what to reproduce.
        store: the runs folder, which also gets the finding.
        train: trains one queued run.
        form: full, or small: a few steps on the sample data.
        data: the folder of datasets, needed by the full form.
        log: takes a line for each run.

    Raises:
        PathError: a dataset is missing.
        InputError: another process reproduces the same claim.
        RunError: a run did not finish.
    """
    try:
        lock = file_lock(lock_file(claim.name, store.root, form)).acquire(timeout=0)
    except Timeout:
        raise InputError(
            f"claim {claim.name} is being reproduced by another process in {store.root}; wait for it to end"
        ) from None
    progress = ProgressLog(claim.name, store.root, form, log)
    with lock:
        try:
            planned = plan_runs(claim, form, data=data, runs=store.root)
            progress.of = len(planned)
            first_hash = first_settings_hash(claim, form, store.root)
            runs: dict[str, list[Run]] = {}
            for one in planned:
                progress.update(f"{claim.arms[one.arm].title}, seed {one.seed}")
                runs.setdefault(one.arm, []).append(train_planned(one, store, train))
                progress.done += 1
            progress.update("comparing")
            earlier = stored_finding(claim.name, store.root) if form == "full" else None
            finding = _finding(claim, planned, runs, form=form)
            add_predictions(finding, earlier)
            finding |= {"settings_sha256": claim.settings_hash(), "first_settings_sha256": first_hash}
            write_finding(finding, store.root / FINDINGS_FOLDER)
        except BscError as error:
            progress.update("", str(error))
            raise
        progress.update("")
    return finding


def first_settings_hash(claim: Claim, form: FormName, runs: Path) -> str:
    """Return the hash of the claim's settings at its first run in a runs folder; stores it if this is the first."""
    path = runs / FINDINGS_FOLDER / f"{file_stem(claim.name, form)}.sha256"
    if not path.is_file():
        atomic_write(path, claim.settings_hash())
    return path.read_text(encoding="utf-8").strip()


def add_predictions(finding: Finding, earlier: Finding | None) -> None:
    """Add `planned` to each statement: the detectable difference predicted from `earlier`, a finding on the same data.

    It is None without such a finding, and if that has the same number of seeds.
    """
    comparable = earlier is not None and earlier["data"] == finding["data"] and len(earlier["seeds"]) > 1
    plan = None
    if earlier is not None and comparable and len(earlier["seeds"]) != len(finding["seeds"]):
        plan = plan_power(earlier, max(2, len(finding["seeds"])))
    predicted = {one["text"]: one["planned"] for one in plan["statements"]} if plan else {}
    for one in finding["statements"]:
        one["planned"] = predicted.get(one["text"])


def write_finding(finding: Finding, folder: Path = PACKAGED_FINDINGS) -> Path:
    """Write a finding as NAME.json, or NAME-small.json for the small form, and return the path."""
    path = folder / f"{file_stem(finding['name'], finding['form'])}.json"
    atomic_write(path, as_json(finding, indent=1) + b"\n")
    return path


def read_findings(folder: Path = PACKAGED_FINDINGS) -> dict[str, Finding]:
    """Return the findings of a folder by the stem of their file; those of earlier versions get the present names.

    Raises:
        FileFormatError: a file is not a finding.
    """
    paths = sorted(folder.glob("*.json"))
    return {path.stem: _read(path) for path in paths if not path.name.endswith(PROGRESS_SUFFIX)}


def stored_finding(name: str, runs: Path) -> Finding | None:
    """Return the finding of a claim in a runs folder, else that of the package, in full form; None without either."""
    return _read_finding(name, runs / FINDINGS_FOLDER) or _read_finding(name, PACKAGED_FINDINGS)


def _read_finding(name: str, folder: Path) -> Finding | None:
    path = folder / f"{name}.json"
    return _read(path) if path.is_file() else None


def _read(path: Path) -> Finding:
    try:
        finding = _with_present_names(json.loads(read_regular(path)))
        _FindingValues.model_validate(finding)
    except ValidationError as error:
        problem = first_problem(error)
    except (ValueError, RecursionError, TypeError, AttributeError, LookupError) as error:
        problem = f"it has no {error}" if isinstance(error, KeyError) else error_reason(error)
    else:
        return finding
    raise FileFormatError(f"{path} is not a finding ({problem}); delete it and run `bsc reproduce` again")


def _with_present_names(finding: Finding) -> Finding:
    """Replace the names of verdicts and keys in findings of earlier versions, and judge their statements again."""
    statements = [
        {"informational": False, **{_OLD_STATEMENT_KEYS.get(key, key): value for key, value in one.items()}}
        for one in finding["statements"]
    ]
    for one in statements:
        verdict = one.get("verdict", "")
        one["verdict"] = OLD_VERDICTS.get(verdict, verdict)
    current = all("p_equivalence" in one for one in statements)
    if not current:
        statements = rejudge(statements)
    if not current or finding["verdict"] in OLD_VERDICTS:
        verdicts = [one["verdict"] for one in statements if not one["informational"]]
        finding |= {"verdict": claim_verdict(verdicts), "reason": summarize_verdicts(verdicts)}
    return finding | {"statements": statements}


def _finding(claim: Claim, planned: Sequence[PlannedRun], runs: Mapping[str, list[Run]], *, form: FormName) -> Finding:
    judged = _judge(claim, runs)
    all_runs = [run for arm in runs.values() for run in arm]
    results = [run.read_json(RESULT) for run in all_runs]
    verdicts = [one.verdict for one in judged if not one.statement.informational]
    return {
        **claim.model_dump(include={"name", "title", "paper", "table", "claim", "note"}),
        "citation": PAPERS[claim.paper],
        "budget": claim.budget if form == "full" else SMALL_BUDGET,
        "form": form,
        "verdict": claim_verdict(verdicts),
        "reason": summarize_verdicts(verdicts),
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"bsc reproduce {claim.name} "
        + ("--form small" if form == "small" else f"--data DATA --seeds {len(claim.seeds)}"),
        "device": ", ".join(dict.fromkeys(result["device"] for result in results)),
        "precision": ", ".join(dict.fromkeys(result["precision"] for result in results)),
        "seconds": round(sum(_processor_seconds(run) for run in all_runs), 1),
        "seeds": list(dict.fromkeys(one.seed for one in planned)),
        "data": _data(claim, planned),
        "arms": _arms(claim, planned, runs),
        "statements": [_statement(claim, one) for one in judged],
    }


def _judge(claim: Claim, runs: Mapping[str, list[Run]]) -> list[JudgedStatement]:
    comparisons = []
    for one in claim.statements:
        worse, better = _side(claim, one.worse, one.better, runs), _side(claim, one.better, one.worse, runs)
        source, when = METRICS_SOURCES[claim.metrics_source], (worse[1], better[1])
        comparisons.append(source.compare(worse[0], better[0], one.metric, one.split, when=when))
    return judge(claim.statements, comparisons)


def _side(claim: Claim, arm: str, other: str, runs: Mapping[str, list[Run]]) -> tuple[list[Run], When]:
    """Return the runs of one side of a statement, and whether their models or their initial encoders are compared.

    The untrained encoder is that of runs on the other side's data which do not start from another run.
    """
    if arm != UNTRAINED:
        return runs[arm], "after"
    return runs[claim.untrained_arm(claim.subset_of(other))], "before"


def _data(claim: Claim, planned: Sequence[PlannedRun]) -> list[dict[str, Any]]:
    sections = {claim.subset_of(one.arm): one.values["data"] for one in planned}
    return [
        {"name": name, "folder": claim.subsets[name].folder, "rows": row_counts(section)}
        for name, section in sections.items()
    ]


def _arms(claim: Claim, planned: Sequence[PlannedRun], runs: Mapping[str, list[Run]]) -> list[dict[str, Any]]:
    """Return the results of every arm, the untrained encoder of each subset before the arms on it."""
    settings = _settings(planned)
    results = []
    for subset in dict.fromkeys(claim.subset_of(name) for name in claim.arms):
        title = "Untrained" if len(claim.subsets) == 1 else f"Untrained, {subset}"
        untrained = {"name": UNTRAINED, "title": title, "data": subset, "settings": {}}
        results.append(_arm(claim, runs[claim.untrained_arm(subset)], untrained))
        for name, arm in claim.arms.items():
            if claim.subset_of(name) == subset:
                about = {"name": name, "title": arm.title, "data": subset, "settings": settings[name]}
                results.append(_arm(claim, runs[name], {**about, "after": arm.after}))
    return results


def _arm(claim: Claim, runs: Sequence[Run], about: dict[str, Any]) -> dict[str, Any]:
    source = METRICS_SOURCES[claim.metrics_source]
    trained = about["name"] != UNTRAINED
    when: When = "after" if trained else "before"
    names = list(dict.fromkeys([*claim.metrics, *(one.metric for one in claim.statements)]))
    evaluated = runs[0].evaluation(when)
    metrics = {}
    for split in ("dev", "test"):
        if split in evaluated:
            intervals = source.intervals(runs, split, when, names).items()
            metrics[split] = {key: {"value": one.value, "low": one.low, "high": one.high} for key, one in intervals}
    each = [_run(run, names) for run in runs] if trained else []
    return {**about, "runs": each, "metrics": metrics, "details": source.details(runs, when)}


def _run(run: Run, metrics: Sequence[str]) -> dict[str, Any]:
    splits = run.evaluation("after")
    return {
        "run": run.id,
        "seed": run.config().training.seed,
        "seconds": _processor_seconds(run),
        "steps": run.status().steps or run.read_json(RESULT).get("steps"),
        "values": {split: {name: row[name] for name in metrics if name in row} for split, row in splits.items()},
    }


def _processor_seconds(run: Run) -> float:
    return float((run.read_json(COST_FILE) or {}).get("processor_seconds", 0.0))


def _statement(claim: Claim, judged: JudgedStatement) -> dict[str, Any]:
    comparison, statement = judged.comparison, judged.statement
    return {
        "text": _text(claim, statement),
        **statement.model_dump(exclude={"text"}),
        "difference": comparison.difference.value,
        "low": comparison.difference.low,
        "high": comparison.difference.high,
        "p": comparison.p,
        **{name: getattr(comparison, name) for name in ("queries", "wins", "losses", "ties", "method")},
        **judged_values(judged),
        "sentence": comparison.sentence(),
    }


def _text(claim: Claim, statement: Statement) -> str:
    """Return a statement for a reader, by default built from the titles of its arms."""
    better, worse = (
        "untrained encoder" if name == UNTRAINED else claim.arms[name].title
        for name in (statement.better, statement.worse)
    )
    if statement.expects == "same":
        text = f"{statement.metric}: {better} and {worse} differ by at most {statement.margin:g}"
    else:
        text = f"{statement.metric}: {better} > {worse}"
    return f"{statement.text or text}{' (informational)' if statement.informational else ''}"


def _settings(planned: Sequence[PlannedRun]) -> dict[str, dict[str, Any]]:
    """Return for each arm the config keys in which arms differ."""
    settings = {one.arm: flatten(one.values) for one in planned}  # seeds differ in training.seed only
    keys = dict.fromkeys(key for values in settings.values() for key in values if not key.startswith(_NOT_SETTINGS))
    differing = [key for key in keys if len({repr(values.get(key)) for values in settings.values()}) > 1]
    return {arm: {key: values[key] for key in differing if key in values} for arm, values in settings.items()}


def measured_gain(name: str, folder: Path = PACKAGED_FINDINGS) -> str | None:
    """Return one sentence on the gain of a setting; None without a finding of this name.

    For example "On stsb (dev, 3 seeds) spearman went from 0.800 untrained to 0.820: +0.020, interval +0.010 to +0.030."
    """
    finding = _read_finding(name, folder)
    return None if finding is None else gain_sentence(finding)


def gain_sentence(finding: Finding) -> str:
    """Return a sentence on the first statement of a finding: data, values before and after, and the interval."""
    statement = finding["statements"][0]
    metric, split = statement["metric"], statement["split"]
    before, after = (_arm_value(finding, arm, split, metric) for arm in (UNTRAINED, statement["better"]))
    folder, seeds = finding["data"][0]["folder"], len(finding["seeds"])
    change = f"On {folder} ({split}, {seeds} seeds) {metric} went from {before} untrained to {after}"
    if statement["low"] is None:
        return f"{change}: {statement['difference']:+.3f}, no interval."
    return f"{change}: {statement['difference']:+.3f}, interval {statement['low']:+.3f} to {statement['high']:+.3f}."


def _arm_value(finding: Finding, arm: str, split: str, metric: str) -> str:
    metrics = next(one["metrics"] for one in finding["arms"] if one["name"] == arm)
    return f"{metrics[split][metric]['value']:.3f}"
