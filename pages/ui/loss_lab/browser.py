"""Browser components of the loss lab: the matrices that follow the controls, and the player of a toy training."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from bsc_core.config import LossConfig
from bsc_core.errors import ConfigError
from bsc_core.figures import theme
from bsc_core.lab.batch import LabBatch
from bsc_core.lab.link import SIDES, Cell
from bsc_core.lab.settings import LabSettings
from bsc_core.lab.toy_training import TrainingTrace
from pages.ui.components.browser.mount import mount, pack_matrix
from pages.ui.components.display import cell
from pages.ui.components.glossary import TERMS

HERE = Path(__file__).parent
ALL_CONTROLS = tuple(name for name in asdict(LabSettings()) if name not in ("symmetric", "partition"))
ALL_PANELS = ("similarity", "softmax", "gradient")
COLORS = {"cosine": theme.COSINE, "probability": theme.PROBABILITY, "gradient": theme.GRADIENT}

_lab = mount("bsc_loss_lab", "lab", *(HERE / name for name in ("softmax.js", "panels.js", "board.js", "lab.js")))
_player = mount("bsc_lab_player", "player", *(HERE / name for name in ("softmax.js", "trainer.js", "player.js")))


@dataclass(frozen=True)
class LabState:
    """State in the browser after the last change of a control or click on a cell."""

    settings: LabSettings
    compare: LabSettings | None
    pinned: Cell | None


def lab_component(
    batch: LabBatch,
    settings: LabSettings,
    *,
    key: str,
    controls: Sequence[str] = ALL_CONTROLS,
    panels: Sequence[str] = ALL_PANELS,
    compare: LabSettings | None = None,
    pinned: Cell | None = None,
    sliders: Mapping[str, Sequence[float]] | None = None,
    sizes: Sequence[int] | None = None,
    by_logits: bool = False,
) -> LabState:
    """Draw the lab and return its state.

    Args:
        batch: The batch.
        settings: Initial settings; changes by the user win until the key changes.
        key: The widget key.
        controls: Fields of LabSettings that the user can change; `directions` also changes `symmetric` and `partition`.
        panels: Of ALL_PANELS, in order.
        compare: Initial second settings; with them the lab shows both settings and their differences.
        pinned: Initial pinned cell.
        sliders: Values of the controls that are sliders, evenly spaced; the temperature always is one.
        sizes: Initial number of pairs, and the numbers from which the user selects, in order; the selected one is
            `st.session_state[key]["pairs"]`. None: all pairs.
        by_logits: Whether the gradient is that of the loss of each query with respect to its logits, instead of that of
            the mean loss with respect to the similarities; for one direction of the loss.
    """
    state = _browser_state(st.session_state.get(key) or {}, LabState(settings, compare, pinned), batch)
    data = {
        "batch": packed_batch(batch),
        **asdict(state),
        "defaults": asdict(LabSettings()),
        "controls": list(controls),
        "help": {name: _help(name) for name in controls},
        "panels": list(panels),
        "by_logits": by_logits,
        "sliders": {
            name: {"min": values[0], "max": values[-1], "step": round(values[1] - values[0], 6)}
            for name, values in (sliders or {}).items()
        },
        "sizes": sizes and {"start": sizes[0], "min": min(sizes[1:]), "max": max(sizes[1:])},
        "colors": {name: list(colors) for name, colors in COLORS.items()},
    }
    states = ("settings", "compare", "pinned", "pairs")
    callbacks = {f"on_{name}_change": lambda: None for name in states}
    return _browser_state(_lab(key=key, data=data, **callbacks), state, batch)


def _help(name: str) -> str:
    names = (name, "partition") if name == "directions" else (name,)
    return " ".join(TERMS[one].definition for one in names).replace("`", "")


def packed_batch(batch: LabBatch) -> dict[str, Any]:
    """Return the batch for `batchOf` in softmax.js."""
    packed = {"queries": pack_matrix(batch.queries), "documents": pack_matrix(batch.documents)}
    texts = {name: list(map(cell, getattr(batch, name))) for name in ("query_texts", "document_texts")}
    return batch.plain() | packed | texts


def _browser_state(values: Mapping[str, Any], start: LabState, batch: LabBatch) -> LabState:
    """Return the state of the browser; invalid values keep their initial value, as far as the batch allows it."""
    compare = start.compare and _settings(values.get("compare"), start.compare).for_batch(batch)
    pinned = values.get("pinned")  # None before the first click on a cell, [] if no cell is pinned
    pinned = start.pinned if pinned is None else _cell(pinned, len(batch))
    return LabState(_settings(values.get("settings"), start.settings).for_batch(batch), compare, pinned)


def _settings(values: Any, start: LabSettings) -> LabSettings:
    if not isinstance(values, Mapping):
        return start
    try:
        settings = LabSettings(**values)
        settings.config()
    except (TypeError, ConfigError):
        return start
    return settings


def _cell(value: Any, pairs: int) -> Cell | None:
    match value:
        case [int(row), int(column), *side] if 0 <= row < pairs and 0 <= column < pairs:
            return (row, column, *side) if side in ([], *([one] for one in SIDES)) else None
    return None


def player(
    batch: LabBatch,
    losses: Sequence[LossConfig],
    traces: Sequence[TrainingTrace] | None,
    *,
    key: str,
    angles: Sequence[int] | None = None,
    only_points: bool = False,
    titles: Sequence[str] | None = None,
    on_move: Callable[[], None] = lambda: None,
) -> None:
    """Draw the animation of one or two toy trainings: points, cosines and curves with one slider over the steps.

    Args:
        batch: The batch.
        losses: The losses.
        traces: The training of each loss; None: the browser trains. The points of a circle can then be dragged.
        key: The widget key.
        angles: Angles of the points of the batch, if they were dragged.
        only_points: Draw neither the cosines nor the curves.
        titles: Of the trainings; None: the names of the losses.
        on_move: Called when points were dragged, with the new angles in `st.session_state[key]["angles"]`.
    """
    configs = [loss.model_dump(mode="json") for loss in losses]
    kind = json.dumps([len(batch), configs, traces is None])
    vectors = b"".join(trace.points.tobytes() + trace.loss.tobytes() for trace in traces or ())
    packed = packed_batch(batch)
    data = {
        "id": hashlib.sha256(json.dumps([kind, packed]).encode() + vectors).hexdigest(),
        "kind": kind,
        "angles": None if angles is None else list(angles),
        "texts": [*packed["query_texts"], *packed["document_texts"]],
        "positive": (batch.labels > 0.5).tolist(),
        "batch": packed if traces is None else None,
        "circle": traces is None and batch.queries.shape[1] == 2,
        "only_points": only_points,
        "runs": [
            {"loss": config, "title": title, "trace": None if traces is None else _plain_trace(traces[number])}
            for number, (config, title) in enumerate(
                zip(configs, titles or [loss.name for loss in losses], strict=True)
            )
        ],
        "colors": list(theme.COSINE),
    }
    _player(key=key, data=data, on_angles_change=on_move)


def _plain_trace(trace: TrainingTrace) -> dict[str, Any]:
    has_temperature = not math.isnan(float(trace.temperature[0]))
    return {
        "points": _rounded(trace.points),
        "moves": _rounded(trace.moves, 5),
        "similarity": _rounded(trace.similarity),
        "loss": _rounded(trace.loss, 4),
        "temperature": _rounded(trace.temperature, 4) if has_temperature else None,
        "correct": _rounded(trace.correct),
        "gap": _rounded(trace.gap),
    }


def _rounded(values: np.ndarray, decimals: int = 3) -> Any:
    return np.round(values.astype(np.float64), decimals).tolist()
