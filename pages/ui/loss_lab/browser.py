"""Browser components of the loss lab: the matrices that follow the controls, and the player of a toy training."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from bsc_core.errors import ConfigError
from bsc_core.figures import theme
from bsc_core.lab.batch import LabBatch
from bsc_core.lab.settings import LabSettings
from bsc_core.lab.toy_training import TrainingTrace
from pages.ui.components.browser.mount import mount
from pages.ui.components.glossary import TERMS

HERE = Path(__file__).parent
ALL_CONTROLS = tuple(asdict(LabSettings()))
ALL_PANELS = ("similarity", "softmax", "gradient")
COLORS = {"cosine": theme.COSINE, "probability": theme.PROBABILITY, "gradient": theme.GRADIENT}

_lab = mount("bsc_loss_lab", "lab", *(HERE / name for name in ("softmax.js", "panels.js", "board.js", "lab.js")))
_player = mount("bsc_lab_player", "player", HERE / "player.js")


@dataclass(frozen=True)
class LabState:
    """State in the browser after the last change of a control or click on a cell."""

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
    """Draw the lab and return its state.

    Args:
        batch: The batch.
        settings: Initial settings; changes by the user win until the key changes.
        key: The widget key.
        controls: Fields of LabSettings that the user can change.
        panels: Of ALL_PANELS, in order.
        compare: Initial second settings; with them the lab shows both settings and their differences.
        pinned: Initial pinned cell.
    """
    state = _browser_state(st.session_state.get(key) or {}, LabState(settings, compare, pinned), len(batch))
    data = {
        "batch": batch.plain(),
        **asdict(state),
        "controls": list(controls),
        "help": {name: TERMS[name].definition.replace("`", "") for name in controls},
        "panels": list(panels),
        "colors": {name: list(colors) for name, colors in COLORS.items()},
    }
    callbacks = dict.fromkeys(("on_settings_change", "on_compare_change", "on_pinned_change"), lambda: None)
    return _browser_state(_lab(key=key, data=data, **callbacks), state, len(batch))


def _browser_state(values: Mapping[str, Any], start: LabState, pairs: int) -> LabState:
    """Return the state of the browser; invalid values keep their initial value."""
    compare = start.compare and _settings(values.get("compare"), start.compare)
    pinned = _cell(values["pinned"], pairs) if "pinned" in values else start.pinned
    return LabState(_settings(values.get("settings"), start.settings), compare, pinned)


def _settings(values: Any, start: LabSettings) -> LabSettings:
    if not isinstance(values, Mapping):
        return start
    try:
        settings = LabSettings(**values)
        settings.config()
    except (TypeError, ConfigError):
        return start
    return settings


def _cell(value: Any, pairs: int) -> tuple[int, int] | None:
    match value:
        case [int(row), int(column)] if 0 <= row < pairs and 0 <= column < pairs:
            return row, column
    return None


def player(trace: TrainingTrace, batch: LabBatch, *, key: str) -> None:
    """Draw the animation of a toy training: points, cosines and curves with a slider over the steps."""
    has_temperature = not math.isnan(float(trace.temperature[0]))
    data = {
        "id": hashlib.sha256(trace.points.tobytes() + trace.loss.tobytes()).hexdigest(),
        "pairs": len(batch),
        "texts": [*batch.query_texts, *batch.document_texts],
        "positive": (batch.labels > 0.5).tolist(),
        "points": _rounded(trace.points),
        "moves": _rounded(trace.moves, 5),
        "similarity": _rounded(trace.similarity),
        "loss": _rounded(trace.loss, 4),
        "temperature": _rounded(trace.temperature, 4) if has_temperature else None,
        "correct": _rounded(trace.correct),
        "colors": list(theme.COSINE),
    }
    _player(key=key, data=data)


def _rounded(values: np.ndarray, decimals: int = 3) -> Any:
    return np.round(values.astype(np.float64), decimals).tolist()
