"""Diagnosis of a run: whether it got worse, and the findings of all checks, likely causes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from bsc_core.background_task import OnProgress, no_progress
from bsc_core.data.quality.audit import SEVERITIES
from bsc_core.diagnosis import data_checks, training_checks
from bsc_core.diagnosis.findings import Finding
from bsc_core.diagnosis.run_evidence import RunEvidence, State
from bsc_core.errors import BscError
from bsc_core.evaluation import Comparison
from bsc_core.formatting import metric, metric_name, signed
from bsc_core.runs import Run

CHECKS: dict[str, Callable[[RunEvidence], Iterator[Finding]]] = {
    "leaks": data_checks.leak,
    "loss and data": data_checks.loss_data,
    "label direction": data_checks.label_direction,
    "random labels": data_checks.labels_random,
    "swapped columns": data_checks.swapped_columns,
    "truncation": data_checks.truncation,
    "mask": training_checks.mask,
    "false negatives": training_checks.false_negatives,
    "temperature": training_checks.temperature,
    "learned temperature": training_checks.temperature_bound,
    "batch size": training_checks.batch_small,
    "high learning rate": training_checks.learning_rate_high,
    "low learning rate": training_checks.learning_rate_low,
    "normalization": training_checks.normalization,
    "prompts": data_checks.prompts,
    "distribution": data_checks.other_distribution,
    "repeated rows": data_checks.repeated_rows,
    "forgetting": training_checks.forgetting,
    "overfitting": training_checks.overfitting,
    "highest metric": training_checks.highest_metric,
    "noise": training_checks.noise,
}
"""The checks by name, causes before their symptoms: findings of equal severity have this order."""


START: dict[State, str] = {
    "worse": "The run got worse",
    "better": "The run got better",
    "noise": "No clear difference",
}


@dataclass(frozen=True)
class Diagnosis:
    """Result of all checks of a run.

    Attributes:
        run: Id of the run.
        state: "worse", "better", "noise" (the interval of the difference contains 0), or "unknown".
        verdict: One sentence on the difference of the model before and after training.
        findings: Likely causes, the most likely first.
        skipped: Reason by name of each check that was not possible.
    """

    run: str
    state: State
    verdict: str
    findings: tuple[Finding, ...]
    skipped: dict[str, str]

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """Findings that are errors or warnings."""
        return tuple(finding for finding in self.findings if finding.severity != "info")

    def as_report(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return asdict(self)


def diagnose(run: Run, *, on_progress: OnProgress = no_progress) -> Diagnosis:
    """Return why a run got worse, from its folder and its data.

    Args:
        run: A run that has ended, or at least one with some evidence. Checks whose evidence is missing are skipped.
        on_progress: Called with the progress.
    """
    evidence = RunEvidence(run)
    findings: list[Finding] = []
    skipped: dict[str, str] = {}
    for done, (name, check) in enumerate(CHECKS.items()):
        on_progress(done, len(CHECKS), name)
        try:
            findings += check(evidence)
        except BscError as error:
            skipped[name] = str(error)
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    state, verdict = _verdict(evidence)
    return Diagnosis(run.id, state, verdict, tuple(findings), skipped)


def _verdict(evidence: RunEvidence) -> tuple[State, str]:
    try:
        results = {split: evidence.compare(split) for split in dict.fromkeys((evidence.split, "dev"))}
    except BscError as error:
        return "unknown", f"Whether the run got worse is unknown: {error}."
    name = metric_name(evidence.metric)
    parts = [f"{name} on {split} {_change(evidence, split, result)}" for split, result in results.items()]
    return evidence.state, f"{START[evidence.state]}: {'; '.join(parts)}."


def _change(evidence: RunEvidence, split: str, result: Comparison) -> str:
    before, after = (
        (evidence.run.evaluation(when).get(split) or {}).get(evidence.metric) for when in ("before", "after")
    )
    low, high = result.difference.low, result.difference.high
    if low is None or high is None:
        return f"{metric(before)} → {metric(after)} (no interval)"
    return f"{metric(before)} → {metric(after)} (95% interval of the difference {signed(low)} to {signed(high)})"
