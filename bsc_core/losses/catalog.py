"""Catalog of losses: data, equation, paper, and differences from released code; the texts are in catalog.toml."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LossCard:
    """Description of one loss."""

    title: str  # display name
    data: str  # rows it trains on
    equation: str  # laTeX
    paper: str  # paper, with the number of the equation
    when: str  # one sentence on when to choose it
    deviation: str = ""  # differences between paper, released code and this implementation


_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
PAPERS: dict[str, str] = _TEXTS["papers"]
CATALOG: dict[str, LossCard] = {
    name: LossCard(**{**card, "paper": card["paper"].format_map(PAPERS)}) for name, card in _TEXTS["losses"].items()
}
MASK_MEASUREMENTS: list[dict[str, Any]] = json.loads(
    Path(__file__).with_name("mask_measurements.json").read_text(encoding="utf-8")
)
"""Rows of `benchmarks/false_negatives.py`: data, judge, kind and value of the margin, precision and recall."""


def measured_masks(kind: str, margin: float, judge: str = "bundled") -> list[dict[str, Any]]:
    """Return the measurements with the margin nearest to this one, one for each dataset.

    Args:
        kind: `absolute` or `relative`; 0 is the same margin in both.
        margin: Margin of the mask.
        judge: Encoder that judges; those measured are not fine-tuned.
    """
    rows = [row for row in MASK_MEASUREMENTS if row["judge"] == judge and (row["kind"] == kind or row["margin"] == 0)]
    nearest = min((row["margin"] for row in rows), key=lambda measured: abs(measured - margin))
    return [row for row in rows if row["margin"] == nearest]
