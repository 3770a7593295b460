"""The state of the loss lab as URL parameters: a link opens the same batch, settings and pinned cell."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bsc_core.config import TripletLossConfig
from bsc_core.errors import ConfigError
from bsc_core.lab.batch import LARGEST, SMALLEST
from bsc_core.lab.presets import PRESETS
from bsc_core.lab.settings import LabSettings
from bsc_core.lab.toy_training import TOY_LOSSES

SOURCES = ("preset", "circle", "dataset", "typed")
COMPARED = "b_"
"""Prefix of the parameters of the second setting."""
SETTING_B = "setting_b"
"""The second loss of the toy training if it compares the two settings."""
MAX_TEXT_LENGTH = 1500
"""Characters of typed texts that fit in a link."""
MARGIN_LIMITS = 0.01, 10.0
"""Smallest and largest margin of the triplet loss."""
Row = tuple[str, str, float]
SIDES = ("queries", "documents")
Cell = tuple[int, int] | tuple[int, int, str]
"""Query and document, or two texts of one of SIDES; from 0."""


@dataclass(frozen=True)
class LabLink:
    """The source of the lab's batch, its settings, and its display options."""

    source: str = "preset"  # one of SOURCES
    preset: str = "confusable"  # one of PRESETS
    pairs: int = 6  # number of pairs on the circle
    spread: float = 60.0  # of the circle, in degrees
    seed: int = 0  # of the circle
    angles: tuple[int, ...] | None = None  # of the points that were dragged on the circle, queries then documents
    first: int = 1  # first row of the dataset, from 1
    size: int = 8  # number of rows of the dataset
    typed: tuple[Row, ...] = ()  # rows of query, document and label
    settings: LabSettings = field(default_factory=LabSettings)
    compare: LabSettings | None = None
    pinned: Cell | None = None
    watch: str = ""  # loss of the toy training, "" for none
    second_loss: str = ""  # the second loss of a comparison, or SETTING_B; "" for none
    margin: float = TripletLossConfig().margin  # of the triplet loss of the toy training
    learn_temperature: bool = False  # whether the toy training updates the temperature
    words: bool = False  # whether the toy training updates token vectors instead of free points

    def to_query(self) -> dict[str, str]:
        """Return the parameters that open this state, without typed texts that are too long for a link."""
        default = LabLink()
        used = {"circle": ("pairs", "spread", "seed"), "dataset": ("first", "size")}.get(self.source, ())
        values = {name: getattr(self, name) for name in ("source", "preset", *used)}
        changed = {name: value for name, value in values.items() if value != getattr(default, name)}
        query = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in changed.items()}
        query |= self.settings.to_query()
        if self.source == "typed" and self.fits_in_link and self.typed:
            query["texts"] = json.dumps(self.typed, ensure_ascii=False, separators=(",", ":"))
        if self.compare is not None:
            query |= {"compare": "1"} | self.compare.to_query(COMPARED)
        if self.pinned is not None:
            row, column, *side = self.pinned
            letter = side[0][0] if side else ""  # q1-q3 is a cell of the queries
            query["pin"] = f"{letter}{row + 1}-{letter}{column + 1}"
        if self.source == "circle" and self.angles:
            query["angles"] = ",".join(map(str, self.angles))
        if self.watch:
            query |= {"watch": self.watch} | ({"second_loss": self.second_loss} if self.second_loss else {})
            query |= {"words": "1"} if self.words else {}
            query |= {"margin": f"{self.margin:g}"} if self.margin != default.margin else {}
        if self.learn_temperature:
            query["learn_temperature"] = "1"
        return query

    @property
    def fits_in_link(self) -> bool:
        """Whether the typed texts are short enough for a link."""
        return sum(len(query) + len(document) for query, document, _ in self.typed) <= MAX_TEXT_LENGTH


def lab_parameters(query: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a URL that belong to the lab."""
    return {name: value for name, value in query.items() if name in PARAMETERS}


def read_link(query: Mapping[str, str]) -> tuple[LabLink, list[str]]:
    """Return the state of URL parameters, and one sentence for each invalid one, which gets its default."""
    errors: list[str] = []
    values: dict[str, Any] = {}
    for name, read in READERS.items():
        if name in query:
            try:
                values |= read(query[name])
            except ConfigError as error:
                errors.append(str(error))
    values["settings"] = _settings(query, "", errors)
    if query.get("compare") == "1":
        values["compare"] = _settings(query, COMPARED, errors)
    return LabLink(**values), errors


def _settings(query: Mapping[str, str], prefix: str, errors: list[str]) -> LabSettings:
    """Return the settings of a link; those that are invalid or contradict earlier ones get their defaults."""
    settings = LabSettings()
    valid: dict[str, str] = {}
    for name in LabSettings.__dataclass_fields__:
        if prefix + name in query:
            try:
                settings = LabSettings.from_query(valid | {name: query[prefix + name]})
                valid[name] = query[prefix + name]
            except ConfigError as error:
                errors.append(f"{error}; the link's {prefix + name} is not used")
    return settings


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
        return {name: value + 0}  # 0 for -0

    return read


def _texts(text: str) -> dict[str, Any]:
    try:
        rows = tuple((str(query), str(document), float(label)) for query, document, label in json.loads(text))
        "".join(query + document for query, document, _ in rows).encode()  # no half of a surrogate pair
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise ConfigError("texts in the link are not rows of a query, a document and a label; correct them") from None
    invalid = next((label for _, _, label in rows if not 0 <= label <= 1), None)
    if invalid is not None:
        raise ConfigError(f"a label in the link is {invalid:g}; labels must be from 0 to 1")
    return {"typed": rows[:LARGEST]}


def _switch(name: str) -> Any:
    def read(text: str) -> dict[str, Any]:
        if text not in ("0", "1"):
            raise ConfigError(f"{name} is {text[:40]!r} in the link; it must be 0 or 1")
        return {name: text == "1"}

    return read


def _angles(text: str) -> dict[str, Any]:
    parts = text.split(",")
    if len(parts) % 2 or not SMALLEST <= len(parts) // 2 <= LARGEST:
        raise ConfigError(f"angles in the link are {len(parts)} numbers; give one for each query and document")
    if not all(re.fullmatch("[0-9]{1,3}", part) and int(part) < 360 for part in parts):
        raise ConfigError(f"angles is {text[:40]!r} in the link; angles must be whole numbers from 0 to 359")
    return {"angles": tuple(map(int, parts)), "pairs": len(parts) // 2}


def _pin(text: str) -> dict[str, Any]:
    match = re.fullmatch(r"([qd]?)([0-9]{1,4})-\1([0-9]{1,4})", text)
    if match is None:
        raise ConfigError(
            f"pin is {text[:40]!r} in the link; it must be row-column, such as 1-3, or q1-q3 and d1-d3 for two queries "
            "and two documents"
        )
    cell = (int(match[2]) - 1, int(match[3]) - 1)
    if not all(0 <= index < LARGEST for index in cell):
        raise ConfigError(f"pin is {text[:40]!r} in the link; rows and columns must be 1 to {LARGEST}")
    return {"pinned": (*cell, *(side for side in SIDES if match[1] and side.startswith(match[1])))}


READERS: dict[str, Any] = {
    "source": _one_of("source", SOURCES),
    "preset": _one_of("preset", tuple(PRESETS)),
    "pairs": _number("pairs", SMALLEST, LARGEST),
    "spread": _number("spread", 0, 180),
    "seed": _number("seed", 0, 9999),
    "first": _number("first", 1, 10**9),
    "size": _number("size", SMALLEST, LARGEST),
    "angles": _angles,
    "texts": _texts,
    "pin": _pin,
    "watch": _one_of("watch", TOY_LOSSES),
    "second_loss": _one_of("second_loss", (*TOY_LOSSES, SETTING_B)),
    "margin": _number("margin", *MARGIN_LIMITS),
    "learn_temperature": _switch("learn_temperature"),
    "words": _switch("words"),
}
PARAMETERS = frozenset(
    {*READERS, "compare", *(prefix + name for prefix in ("", COMPARED) for name in LabSettings.__dataclass_fields__)}
)
"""Names of the parameters of a URL that belong to the lab."""
