"""Sentences on the gains of the recommended settings, from the packaged findings."""

from pathlib import Path

from bsc_core.reproduction.claims import UNTRAINED
from bsc_core.reproduction.findings import PACKAGED_FINDINGS, Finding, read_findings


def measured_gain(name: str, folder: Path = PACKAGED_FINDINGS) -> str | None:
    """Return one sentence on the gain of a setting; None without a finding of this name.

    For example "On stsb (dev, 3 seeds) spearman went from 0.800 untrained to 0.820: +0.020, interval +0.010 to +0.030."
    """
    finding = read_findings(folder).get(name)
    return None if finding is None else gain_sentence(finding)


def gain_sentence(finding: Finding) -> str:
    """Return a sentence on the first statement of a finding: data, values before and after, and the interval."""
    statement = finding["statements"][0]
    metric, split = statement["metric"], statement["split"]
    before, after = (_value(finding, arm, split, metric) for arm in (UNTRAINED, statement["better"]))
    folder, seeds = finding["data"][0]["folder"], len(finding["seeds"])
    change = f"On {folder} ({split}, {seeds} seeds) {metric} went from {before} untrained to {after}"
    if statement["low"] is None:
        return f"{change}: {statement['difference']:+.3f}, no interval."
    return f"{change}: {statement['difference']:+.3f}, interval {statement['low']:+.3f} to {statement['high']:+.3f}."


def _value(finding: Finding, arm: str, split: str, metric: str) -> str:
    metrics = next(one["metrics"] for one in finding["arms"] if one["name"] == arm)
    return f"{metrics[split][metric]['value']:.3f}"
