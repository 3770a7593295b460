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


def measured_masks(kind: str, margin: float) -> list[dict[str, Any]]:
    """Return what `benchmarks/false_negatives.py` measured with the margin nearest to this one, a row for each dataset.

    The judge is the bundled encoder before training. A row has the keys data, judge, kind, margin, precision, recall.

    Args:
        kind: `absolute` or `relative`; 0 is the same margin in both.
        margin: Margin of the mask.
    """
    measured: list[dict[str, Any]] = json.loads(
        Path(__file__).with_name("mask_measurements.json").read_text(encoding="utf-8")
    )
    rows = [row for row in measured if row["judge"] == "bundled" and (row["kind"] == kind or row["margin"] == 0)]
    nearest = min((row["margin"] for row in rows), key=lambda value: abs(value - margin))
    return [row for row in rows if row["margin"] == nearest]
