"""Findings of a diagnosis: a statement, the numbers behind it, and what to change."""

from dataclasses import dataclass, field
from typing import Any

from bsc_core.data.quality.audit import Severity


@dataclass(frozen=True)
class Evidence:
    """A number of the run and what it is compared with."""

    name: str
    value: float
    compared_with: str


@dataclass(frozen=True)
class Finding:
    """One likely cause. `AuditFinding` has rows of the data instead of numbers.

    Attributes:
        code: Stable identifier of the kind of finding.
        severity: "error", "warning" or "info"; the first two are alarms.
        title: The finding in one sentence.
        evidence: Numbers of the run.
        suggestion: What to change, in one sentence.
        change: Config keys with their new values; empty if the change is not one of the config.
    """

    code: str
    severity: Severity
    title: str
    evidence: tuple[Evidence, ...]
    suggestion: str
    change: dict[str, Any] = field(default_factory=dict)
