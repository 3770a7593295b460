"""A toy training played in the browser: sent once, then drawn there step by step."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from bsc_core.figures import theme
from bsc_core.lab.batch import LabBatch
from bsc_core.lab.watch import Watched

FOLDER = Path(__file__).parent

_mount = st.components.v2.component(
    "bsc_lab_player",
    html='<div class="player"></div>',
    css=(FOLDER / "player.css").read_text(encoding="utf-8"),
    js=(FOLDER / "player.js").read_text(encoding="utf-8"),
)


def player(watched: Watched, batch: LabBatch, *, key: str) -> None:
    """Play what was watched of a batch: points with arrows, cosines and curves, with a slider over the steps."""
    has_temperature = not math.isnan(float(watched.temperature[0]))
    digest = hashlib.sha256(watched.points.tobytes() + watched.loss.tobytes()).hexdigest()
    data = {
        "id": digest,
        "pairs": len(batch),
        "texts": [*batch.query_texts, *batch.document_texts],
        "positive": (batch.labels > 0.5).tolist(),
        "points": _short(watched.points),
        "moves": _short(watched.moves, 5),
        "similarity": _short(watched.similarity),
        "loss": _short(watched.loss, 4),
        "temperature": _short(watched.temperature, 4) if has_temperature else None,
        "correct": _short(watched.correct),
        "colours": list(theme.COSINE),
    }
    _mount(key=key, data=data)


def _short(values: np.ndarray, decimals: int = 3) -> Any:
    return np.round(values.astype(np.float64), decimals).tolist()
