"""The loss lab in the browser: a batch's matrices that follow every control while it moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from bsc_core.errors import ConfigError
from bsc_core.figures import theme
from bsc_core.lab.batch import LabBatch
from bsc_core.lab.settings import LabSettings

FOLDER = Path(__file__).parent
SCRIPTS = ("softmax.js", "panels.js", "board.js", "lab.js")
ALL_CONTROLS = tuple(asdict(LabSettings()))
ALL_PANELS = ("similarity", "softmax", "gradient")
COLOURS = {"cosine": theme.COSINE, "probability": theme.PROBABILITY, "gradient": theme.GRADIENT}

_mount = st.components.v2.component(
    "bsc_loss_lab",
    html='<div class="lab"></div>',
    css=(FOLDER / "lab.css").read_text(encoding="utf-8"),
    js="\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS),
)


@dataclass(frozen=True)
class LabState:
    """What stands in the browser since a control was last let go or a cell last clicked."""

    settings: LabSettings
    compare: LabSettings | None
    pinned: tuple[int, int] | None


def lab_component(
    batch: LabBatch,
    settings: LabSettings,
    *,
    key: str,
    controls: Sequence[str] = ALL_CONTROLS,
    panels: Sequence[str] = ALL_PANELS,
    compare: LabSettings | None = None,
    pinned: tuple[int, int] | None = None,
) -> LabState:
    """Draw the lab and return what was last committed in it.

    settings, compare and pinned are where it starts; what the visitor changes wins until the key changes. controls:
    fields of LabSettings that can be changed; panels: of ALL_PANELS, in order. With `compare` two settings stand one
    above the other, with what differs below.
    """
    state = _committed(st.session_state.get(key) or {}, LabState(settings, compare, pinned), len(batch))
    data = {
        "batch": batch.plain(),
        "settings": asdict(state.settings),
        "compare": asdict(state.compare) if state.compare else None,
        "pinned": list(state.pinned) if state.pinned else None,
        "controls": list(controls),
        "panels": list(panels),
        "colours": {name: list(colours) for name, colours in COLOURS.items()},
    }
    found = _mount(key=key, data=data, on_settings_change=_noted, on_compare_change=_noted, on_pinned_change=_noted)
    return _committed(found, state, len(batch))


def _noted() -> None:
    """Nothing: the script reads the state itself."""


def _committed(found: Mapping[str, Any], start: LabState, pairs: int) -> LabState:
    """The browser's state over the starting one; what makes no sense is left out."""
    compare = start.compare and _settings(found.get("compare"), start.compare)
    pinned = _cell(found["pinned"], pairs) if "pinned" in found else start.pinned
    return LabState(_settings(found.get("settings"), start.settings), compare, pinned)


def _settings(given: Any, start: LabSettings) -> LabSettings:
    if not isinstance(given, Mapping):
        return start
    try:
        settings = LabSettings(**given)
        settings.config()
    except (TypeError, ConfigError):
        return start
    return settings


def _cell(given: Any, pairs: int) -> tuple[int, int] | None:
    if not (isinstance(given, list | tuple) and len(given) == 2):
        return None
    row, column = given
    inside = all(isinstance(place, int) and 0 <= place < pairs for place in (row, column))
    return (row, column) if inside else None
