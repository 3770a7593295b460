"""Catalog of losses: data, equation, paper, and differences from released code; the texts are in catalog.toml."""

import tomllib
from dataclasses import dataclass
from pathlib import Path


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
