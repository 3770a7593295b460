"""What a recommended setting was measured to gain, in words, read from the findings that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bsc_core.recipes.claims import UNTRAINED
from bsc_core.recipes.findings import FINDINGS, read_findings

Finding = dict[str, Any]


def measured_gain(name: str, folder: Path = FINDINGS) -> str | None:
    """One sentence on what the setting of this name gained where it was measured; None where no finding has the name.

    Such as "On stsb (dev, 3 seeds) spearman went from 0.800 untrained to 0.820: +0.020, interval +0.010 to +0.030."
    """
    finding = read_findings(folder).get(name)
    return None if finding is None else gain_sentence(finding)


def gain_sentence(finding: Finding) -> str:
    """The first statement of a finding in words: where, from what to what, and how sure that is."""
    statement = finding["statements"][0]
    metric, split = statement["metric"], statement["split"]
    before, after = (_value(finding, arm, split, metric) for arm in (UNTRAINED, statement["better"]))
    folder, seeds = finding["data"][0]["folder"], len(finding["seeds"])
    went = f"On {folder} ({split}, {seeds} seeds) {metric} went from {before} untrained to {after}"
    if statement["low"] is None:
        return f"{went}: {statement['difference']:+.3f}, no interval."
    return f"{went}: {statement['difference']:+.3f}, interval {statement['low']:+.3f} to {statement['high']:+.3f}."


def _value(finding: Finding, arm: str, split: str, metric: str) -> str:
    metrics = next(found["metrics"] for found in finding["arms"] if found["name"] == arm)
    return f"{metrics[split][metric]['value']:.3f}"
