"""The loss lab's whole state as URL parameters: a link opens the same batch, settings and pinned cell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bsc_core.config import LOSS_CONFIGS
from bsc_core.errors import ConfigError
from bsc_core.lab.batch import LARGEST, SMALLEST
from bsc_core.lab.presets import PRESETS
from bsc_core.lab.settings import LabSettings

SOURCES = ("preset", "circle", "dataset", "typed")
COMPARED = "b_"
"""What the parameters of the second setting start with."""
LONGEST_TEXTS = 1500
"""Characters of typed texts that still fit in a link."""
TOLD = ("source", "preset", "pairs", "spread", "seed", "first", "size", "texts", "pin", "watch", "words", "compare")

Row = tuple[str, str, float]


@dataclass(frozen=True)
class LabLink:
    """Where the lab's batch comes from, and what is done with it.

    source: of SOURCES; preset: of PRESETS; pairs, spread and seed make a circle; first (from 1) and size pick rows of
    the dataset; typed: rows of query, document and label; watch: the loss that is watched learning, "" for none; words:
    on word vectors instead of free points.
    """

    source: str = "preset"
    preset: str = "confusable"
    pairs: int = 6
    spread: float = 60.0
    seed: int = 0
    first: int = 1
    size: int = 8
    typed: tuple[Row, ...] = ()
    settings: LabSettings = field(default_factory=LabSettings)
    compare: LabSettings | None = None
    pinned: tuple[int, int] | None = None
    watch: str = ""
    words: bool = False

    def to_query(self) -> dict[str, str]:
        """The parameters that open this state; typed texts that are too long for a link stay out of it."""
        plain = LabLink()
        query = {
            name: str(getattr(self, name))
            for name in ("source", "preset")
            if getattr(self, name) != getattr(plain, name)
        }
        used = {"circle": ("pairs", "spread", "seed"), "dataset": ("first", "size")}.get(self.source, ())
        query |= {name: _written(getattr(self, name)) for name in used if getattr(self, name) != getattr(plain, name)}
        query |= self.settings.to_query()
        if self.source == "typed" and self.fits_in_link and self.typed:
            query["texts"] = json.dumps(self.typed, ensure_ascii=False, separators=(",", ":"))
        if self.compare is not None:
            query |= {"compare": "1"} | self.compare.to_query(COMPARED)
        if self.pinned is not None:
            query["pin"] = f"{self.pinned[0] + 1}-{self.pinned[1] + 1}"
        if self.watch:
            query |= {"watch": self.watch} | ({"words": "1"} if self.words else {})
        return query

    @property
    def fits_in_link(self) -> bool:
        """Whether the typed texts are short enough for a link."""
        return sum(len(query) + len(document) for query, document, _ in self.typed) <= LONGEST_TEXTS


def _written(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def is_told(query: Mapping[str, str]) -> dict[str, str]:
    """The parameters of a URL that are the lab's own."""
    names = {*TOLD, *LabSettings.__dataclass_fields__, *(COMPARED + name for name in LabSettings.__dataclass_fields__)}
    return {name: value for name, value in query.items() if name in names}


def read_link(query: Mapping[str, str]) -> tuple[LabLink, list[str]]:
    """The state that URL parameters ask for, and one sentence for each that cannot be used; its default stands in."""
    faults: list[str] = []
    values: dict[str, Any] = {}
    for name, read in READERS.items():
        if name in query:
            try:
                values |= read(query[name])
            except ConfigError as fault:
                faults.append(str(fault))
    values["settings"] = _settings(query, "", faults)
    if query.get("compare") == "1":
        values["compare"] = _settings(query, COMPARED, faults)
    return LabLink(**values), faults


def _settings(query: Mapping[str, str], prefix: str, faults: list[str]) -> LabSettings:
    """The settings of a link, each that is wrong left at its default."""
    good: dict[str, str] = {}
    for name in LabSettings.__dataclass_fields__:
        if prefix + name in query:
            try:
                LabSettings.from_query({name: query[prefix + name]})
                good[name] = query[prefix + name]
            except ConfigError as fault:
                faults.append(f"{fault}; the link's {prefix + name} is not used")
    return LabSettings.from_query(good)


def _one_of(name: str, known: tuple[str, ...]) -> Any:
    def read(text: str) -> dict[str, Any]:
        if text not in known:
            raise ConfigError(f"{name} is {text[:40]!r} in the link; it must be one of {', '.join(known)}")
        return {name: text}

    return read


def _number(name: str, low: float, high: float) -> Any:
    def read(text: str) -> dict[str, Any]:
        kind = type(getattr(LabLink(), name))
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not low <= value <= high:
            raise ConfigError(f"{name} is {text[:40]!r} in the link; it must be a number from {low:g} to {high:g}")
        return {name: value}

    return read


def _texts(text: str) -> dict[str, Any]:
    try:
        rows = tuple((str(query), str(document), float(label)) for query, document, label in json.loads(text))
    except (ValueError, TypeError):
        raise ConfigError("texts in the link are not rows of a query, a document and a label") from None
    wrong = next((label for _, _, label in rows if not 0 <= label <= 1), None)
    if wrong is not None:
        raise ConfigError(f"a label in the link is {wrong:g}; labels are from 0 to 1")
    return {"typed": rows[:LARGEST]}


def _switch(text: str) -> dict[str, Any]:
    if text not in ("0", "1"):
        raise ConfigError(f"words is {text[:40]!r} in the link; it must be 0 or 1")
    return {"words": text == "1"}


def _pin(text: str) -> dict[str, Any]:
    row, _, column = text.partition("-")
    if not (row.isascii() and row.isdigit() and column.isascii() and column.isdigit()):
        raise ConfigError(f"pin is {text[:40]!r} in the link; it must be row-column, such as 1-3")
    place = (int(row) - 1, int(column) - 1)
    if not all(0 <= at < LARGEST for at in place):
        raise ConfigError(f"pin is {text[:40]!r} in the link; rows and columns go from 1 to {LARGEST}")
    return {"pinned": place}


READERS: dict[str, Any] = {
    "source": _one_of("source", SOURCES),
    "preset": _one_of("preset", tuple(PRESETS)),
    "pairs": _number("pairs", SMALLEST, LARGEST),
    "spread": _number("spread", 0, 180),
    "seed": _number("seed", 0, 9999),
    "first": _number("first", 1, 10**9),
    "size": _number("size", SMALLEST, LARGEST),
    "texts": _texts,
    "pin": _pin,
    "watch": _one_of("watch", tuple(LOSS_CONFIGS)),
    "words": _switch,
}
