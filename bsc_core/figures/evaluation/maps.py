"""Embedding maps as data for a canvas: points of all maps in one frame, category colors, and selections as bitmasks."""

# N texts, F maps

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bsc_core.figures import theme
from bsc_core.types import Ids, Vectors

PALETTE = theme.CATEGORIES[:7]
SYMBOLS = ("circle", "diamond")
OTHER = "other"
SIDES = {"query": theme.QUERY, "document": theme.DOCUMENT, "both": theme.FALSE_NEGATIVE}
LABELS = {"positive": theme.POSITIVE, "negative": theme.HARD_NEGATIVE, "not labeled": theme.REFERENCE}
FAINT = (OTHER, "not labeled", "not searched", "no group", "corpus only")
MAX_COORDINATE = 65535  # largest coordinate; each coordinate is a uint16
TEXT_LENGTH = 90


@dataclass(frozen=True)
class Overlays:
    """What is drawn over the F maps, in their coordinates.

    pairs: (P, 2) ids of texts that are connected by a line.
    contours: for each map, line segments (S, 2, 2) of each contour, the outermost first; empty for none.
    labels: for each map, x, y and text of each label; empty for none.
    pairs_name: name of the connected texts in the legend.
    """

    pairs: npt.NDArray[np.int32]
    contours: Sequence[Sequence[npt.NDArray[np.float64]]] = ()
    labels: Sequence[Sequence[tuple[float, float, str]]] = ()
    pairs_name: str = "texts of a positive pair"


NO_OVERLAYS = Overlays(np.empty((0, 2), dtype=np.int32))


@dataclass(frozen=True)
class Coloring:
    """The category of each of the N texts of a map, and the color of each category in legend order."""

    values: Sequence[str]
    colors: dict[str, str]

    def mark(self, name: str) -> dict[str, str]:
        """Return the color and symbol of a category."""
        cycle = list(self.colors).index(name) // len(PALETTE)
        symbol = SYMBOLS[cycle] if cycle < len(SYMBOLS) and name != OTHER else SYMBOLS[0]
        return {"color": self.colors[name], "symbol": symbol}


def coloring(values: Sequence[str], fixed: dict[str, str] | None = None) -> Coloring:
    """Assign a color to each category.

    With the default palette, categories 8 to 14 repeat its seven colors and are shown as diamonds; all further
    categories become a gray "other".

    Args:
        values: N category names.
        fixed: category name to color; by default the palette, in order of decreasing category size.
    """
    if fixed is not None:
        return Coloring(values, {name: color for name, color in fixed.items() if name in set(values)})
    sizes = Counter(values)
    ordered = sorted(sizes, key=lambda name: (-sizes[name], name))
    colors = dict(zip(ordered, PALETTE * len(SYMBOLS), strict=False))
    if len(ordered) > len(colors):
        values = [value if value in colors else OTHER for value in values]
        colors[OTHER] = theme.REFERENCE
    return Coloring(values, colors)


def map_points(maps: Sequence[Vectors]) -> dict[str, Any]:
    """Encode F maps (N, 2) as integer coordinates in one frame; all share one scale, equal on both axes.

    Returns:
        id: hash of the points. count: N. size: width and height of the frame that contains every map; the larger is
        65535. frames: F base64 strings of uint16 (N, 2), x to the right and y down.
    """
    scale, frames, digest = _scale(maps), [], hashlib.sha256()
    for points in maps:
        content = np.clip(scale.place(points), 0, MAX_COORDINATE).astype("<u2").tobytes()
        digest.update(content)
        frames.append(base64.b64encode(content).decode("ascii"))
    count, frame = len(maps[0]) if len(maps) else 0, np.maximum(1, scale.size).tolist()
    return {"id": digest.hexdigest()[:24], "count": count, "size": frame, "frames": frames}


@dataclass(frozen=True)
class _Scale:
    """Scale of the frame: its lowest coordinates (2,), the map units of one step, and its width and height (2,)."""

    low: npt.NDArray[np.float64]
    step: float
    size: npt.NDArray[np.int64]

    def place(self, points: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return points (..., 2) in integer coordinates of the frame, y down."""
        coordinates = np.rint((np.asarray(points, dtype=np.float64) - self.low) / self.step)
        coordinates[..., 1] = self.size[1] - coordinates[..., 1]  # the y-axis of a canvas points down
        return coordinates


def _scale(maps: Sequence[Vectors]) -> _Scale:
    stacked = np.concatenate(list(maps)) if len(maps) else np.zeros((0, 2), np.float32)
    low = stacked.min(axis=0) if len(stacked) else np.zeros(2)
    span = (stacked.max(axis=0) - low if len(stacked) else np.zeros(2)).astype(np.float64)
    step = float(span.max()) / MAX_COORDINATE or 1.0
    return _Scale(low, step, np.rint(span / step).astype(int))


def map_picture(
    points: Sequence[Vectors],
    names: Sequence[str],
    colors: Sequence[Coloring],
    *,
    ids: Ids,
    selected: Ids,
    trails: Ids,
    overlays: Overlays = NO_OVERLAYS,
) -> dict[str, Any]:
    """Build the JSON-serializable data of the map canvas: about 5 F bytes per text, without the texts.

    Args:
        points: F maps (N, 2).
        names: F map names.
        colors: one coloring for all maps, or one per map with the same categories.
        ids: (N,) ascending text ids.
        selected: ids of highlighted texts; if empty, no text is faded.
        trails: ids of texts whose path between maps is shown.
        overlays: lines between pairs, contours and labels; pairs with a text that is not on the maps are left out.

    Returns:
        The canvas data. `values` are indices into `categories`, whose items are [name, color, symbol, whether the
        category is faint and in the background].
    """
    marks = {name: coloring.mark(name) for coloring in reversed(colors) for name in coloring.colors}
    categories = list(dict.fromkeys(name for coloring in colors for name in coloring.colors))
    order = {name: number for number, name in enumerate(categories)}
    scale = _scale(points)
    pairs = overlays.pairs[np.isin(overlays.pairs, ids).all(axis=1)]
    values = [np.array([order[value] for value in coloring.values], dtype=np.uint8) for coloring in colors]
    return {
        **map_points(points),
        "names": list(names),
        "categories": [[name, *marks[name].values(), name in FAINT] for name in categories],
        "values": [base64.b64encode(one.tobytes()).decode("ascii") for one in values],
        "selected": pack(np.isin(ids, selected)) if len(selected) else "",
        "trails": np.flatnonzero(np.isin(ids, trails)).tolist(),
        "pairs": np.searchsorted(ids, pairs).tolist(),
        "pairs_name": overlays.pairs_name,
        "contours": [[scale.place(one).reshape(-1, 4).tolist() for one in levels] for levels in overlays.contours],
        "labels": [
            [[*scale.place(np.array([x, y])).tolist(), text] for x, y, text in labels] for labels in overlays.labels
        ],
    }


def pack(mask: npt.NDArray[np.bool_]) -> str:
    """Encode a (N,) boolean mask as base64, one bit per text."""
    return base64.b64encode(np.packbits(mask).tobytes()).decode("ascii")


def unpack(mask: str, count: int) -> npt.NDArray[np.int64]:
    """Decode a mask of `pack` to ascending indices below `count`; padding bits are ignored."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(mask), dtype=np.uint8))
    return np.flatnonzero(bits[:count])
