"""The matrix of a large batch as bytes for a canvas: one byte for a cosine, one for what the cell is."""

# B pairs in the matrix

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.figures import similarity, theme

KINDS = (
    similarity.NEGATIVE,
    similarity.LABELLED,
    similarity.OWN,
    similarity.OWN_NEGATIVE,
    similarity.CLOSER,
    similarity.COLLISION,
    similarity.BY_HAND,
)
TEXT_LENGTH = 160


def pixels(cells: similarity.Cells, queries: list[str], documents: list[str]) -> dict[str, Any]:
    """What the canvas draws, ready for JSON: about 2 bytes a cell and the texts, cut to be read in a tooltip.

    size B; cosines and kinds: base64 of uint8 (B * B,), row by row, a cosine c as round(127.5 * (c + 1)), a kind as its
    place in KINDS; borders: [start, end] of each group of two rows or more; ramp: 256 colours from -1 to 1.
    """
    borders = similarity.group_borders(cells.groups)
    several = borders[borders["end"] - borders["start"] >= 2]
    return {
        "size": len(cells.rows),
        "cosines": _base64(np.rint(127.5 * (np.clip(cells.similarity, -1, 1) + 1)).astype(np.uint8)),
        "kinds": _base64(_numbers(cells.kinds())),
        "names": list(KINDS),
        "marks": {kind: similarity.MARKED[kind] for kind in KINDS if kind in similarity.MARKED},
        "borders": several[["start", "end"]].to_numpy().tolist(),
        "ramp": ramp(),
        "queries": [theme.short(text, TEXT_LENGTH) for text in queries],
        "documents": [theme.short(text, TEXT_LENGTH) for text in documents],
    }


def ramp(steps: int = 256) -> list[list[int]]:
    """The colours of cosine from -1 to 1 as [red, green, blue], 0 to 255, between the theme's in equal steps."""
    stops = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in theme.COSINE], dtype=np.float64)
    places = np.linspace(0, len(stops) - 1, steps)
    channels = [np.interp(places, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]
    found: list[list[int]] = np.rint(np.stack(channels, axis=1)).astype(int).tolist()
    return found


def _numbers(kinds: NDArray[np.str_]) -> NDArray[np.uint8]:
    found = np.zeros(kinds.shape, dtype=np.uint8)
    for number, kind in enumerate(KINDS):
        found[kinds == kind] = number
    return found


def _base64(array: NDArray[np.uint8]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
