"""Maps of texts as data for a canvas: every map in one frame, a category for each text, and what is picked as bits."""

# N texts, F maps

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bsc_core.figures import theme

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int32]

PALETTE = theme.CATEGORIES[:7]
SYMBOLS = ("circle", "diamond")
OTHER = "other"
SIDES = {"query": theme.QUERY, "document": theme.DOCUMENT, "both": theme.FALSE_NEGATIVE}
LABELS = {"positive": theme.POSITIVE, "negative": theme.HARD_NEGATIVE, "not labelled": theme.REFERENCE}
QUIET = (OTHER, "not labelled", "not asked", "no group", "corpus only")
FINEST = 65535  # a place on the map is two numbers of 16 bits
TEXT_LENGTH = 90


@dataclass(frozen=True)
class Colouring:
    """One category for each text of the map, and the colour of each category in the order of the legend."""

    values: Sequence[str]
    colours: dict[str, str]

    def mark(self, name: str) -> dict[str, str]:
        """The colour and symbol of a category."""
        place = list(self.colours).index(name) // len(PALETTE)
        symbol = SYMBOLS[place] if place < len(SYMBOLS) and name != OTHER else SYMBOLS[0]
        return {"color": self.colours[name], "symbol": symbol}


def colouring(values: Sequence[str], fixed: dict[str, str] | None = None) -> Colouring:
    """Give each category a colour: those of `fixed`, else the palette by falling size; past fourteen, grey "other".

    The second seven have the colours of the first again, and are drawn as diamonds.
    """
    if fixed is not None:
        return Colouring(values, {name: colour for name, colour in fixed.items() if name in set(values)})
    names, sizes = np.unique(np.array(values, dtype=object).astype(str), return_counts=True)
    ordered = [str(names[place]) for place in np.lexsort((names, -sizes))]
    colours = dict(zip(ordered, PALETTE * len(SYMBOLS), strict=False))
    if len(ordered) > len(colours):
        values = [value if value in colours else OTHER for value in values]
        colours[OTHER] = theme.REFERENCE
    return Colouring(values, colours)


@dataclass(frozen=True)
class MapPoints:
    """What a canvas is sent of F maps of the same N texts.

    id: changes with the places. size: width and height of the frame that holds every map, the larger 65535. frames:
    base64 of uint16 (N, 2) each, x to the right and y down, in steps of equal length. trust is told beside the map.
    """

    id: str
    size: tuple[int, int]
    frames: tuple[str, ...]
    count: int


def map_points(maps: Sequence[Floats]) -> MapPoints:
    """Maps (N, 2) each as steps of one frame; a distance is the same in both directions and on every map."""
    every = np.concatenate(list(maps)) if len(maps) else np.zeros((0, 2), np.float32)
    low = every.min(axis=0) if len(every) else np.zeros(2)
    span = (every.max(axis=0) - low if len(every) else np.zeros(2)).astype(np.float64)
    step = float(span.max()) / FINEST or 1.0
    size = np.rint(span / step).astype(int)
    frames, digest = [], hashlib.sha256()
    for points in maps:
        places = np.rint((points - low) / step)
        places[:, 1] = size[1] - places[:, 1]  # y of a canvas points down
        content = np.clip(places, 0, FINEST).astype("<u2").tobytes()
        digest.update(content)
        frames.append(base64.b64encode(content).decode("ascii"))
    width, height = max(1, int(size[0])), max(1, int(size[1]))
    return MapPoints(digest.hexdigest()[:24], (width, height), tuple(frames), len(maps[0]) if len(maps) else 0)


def map_picture(
    points: MapPoints, names: Sequence[str], colours: Sequence[Colouring], *, ids: Rows, picked: Rows, trails: Rows
) -> dict[str, Any]:
    """What the canvas draws, ready for JSON: about F * 5 bytes a text, without the texts themselves.

    names: of the F maps. colours: one for all maps, or one for each, with the same categories; their values are those
    of the N texts. ids: (N,) the texts' ids, ascending; picked: ids in full colour while the rest fades, none: all
    alike; trails: ids whose way from map to map is drawn. Values are places in `categories`: [name, colour, symbol,
    whether it is drawn faintly and below the others].
    """
    known = {name: None for colouring in colours for name in colouring.colours}
    order = {name: place for place, name in enumerate(known)}
    owner = {name: colouring for colouring in reversed(colours) for name in colouring.colours}
    marks = {name: owner[name].mark(name) for name in known}
    values = [np.array([order[value] for value in colouring.values], dtype=np.uint8) for colouring in colours]
    return {
        "id": points.id,
        "count": points.count,
        "size": list(points.size),
        "frames": list(points.frames),
        "names": list(names),
        "categories": [[name, mark["color"], mark["symbol"], name in QUIET] for name, mark in marks.items()],
        "values": [base64.b64encode(one.tobytes()).decode("ascii") for one in values],
        "picked": pack(np.isin(ids, picked)) if len(picked) else "",
        "trails": np.flatnonzero(np.isin(ids, trails)).tolist(),
    }


def pack(chosen: npt.NDArray[np.bool_]) -> str:
    """Which texts are chosen, a bit each in the order of the map, as base64. chosen: (N,)."""
    return base64.b64encode(np.packbits(chosen).tobytes()).decode("ascii")


def unpack(mask: str, count: int) -> npt.NDArray[np.int64]:
    """The places 0 to count - 1 that `pack` marked, ascending; bits past `count` do not count."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(mask), dtype=np.uint8))
    return np.flatnonzero(bits[:count])
