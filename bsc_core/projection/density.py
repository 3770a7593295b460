"""Density of a map: contours, and regions named by the words that are typical of their texts."""

# N texts, G grid cells per side, S line segments

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter, maximum_filter

from bsc_core.types import Vectors

Grid = npt.NDArray[np.float64]

CELLS, SMOOTHING = 96, 2.0  # per side of the grid; standard deviation in cells
SHARES = (0.9, 0.5, 0.2)
PEAK_DISTANCE = 5  # cells between two regions
MAX_REGIONS, WORDS = 12, 2
MIN_TEXTS = 5  # of a region
MIN_SHARE = 0.1  # of the texts of a region that contain a word
MIN_RATIO = 4.0  # of this share to the share in the other texts, which leaves out words that are frequent everywhere
WORD = re.compile(r"[^\W\d_]{3,}")
STOP_WORDS = frozenset(  # English; a library's list would be imported with the page
    "about after again all also always and another any anyone anything are around ask away back because been before "
    "being between both but came can come could did does doing don done down each else enough even ever every few "
    "first for from get gets getting give goes going good got had has have having her here him his how however into "
    "isn its just keep know least let like made make many may might more most much must need never not nothing now "
    "off often once one only other others our out over own per please put quite rather really same say see she should "
    "since some someone something still such sure take than thanks that the their them then there these they thing "
    "things this those though through too took two under until upon use used uses using usually very want was way "
    "well went were what whatever when where whether which while who whole whose why will with within without won "
    "would yes yet you your yours".split()
)
SEGMENTS = {  # edges that a contour crosses, by the corners above the level as bits; edge k joins corners k and k + 1
    **{1: [(3, 0)], 2: [(0, 1)], 3: [(3, 1)], 4: [(1, 2)], 5: [(3, 0), (1, 2)], 6: [(0, 2)], 7: [(3, 2)]},
    **{8: [(2, 3)], 9: [(2, 0)], 10: [(0, 1), (2, 3)], 11: [(2, 1)], 12: [(1, 3)], 13: [(1, 0)], 14: [(0, 3)]},
}
CORNERS = np.array([(0, 0), (1, 0), (1, 1), (0, 1)])


class Region(NamedTuple):
    """A peak of the density: its position on the map, the words that name it, and the number of its texts."""

    x: float
    y: float
    words: tuple[str, ...]
    texts: int


class Density(NamedTuple):
    """Smoothed counts of points (G, G) by x and y, and the coordinates (G,) of the grid."""

    values: Grid
    x: Grid
    y: Grid

    def at(self, points: Vectors) -> Grid:
        """Return the density (N,) of the grid cell of each point."""
        return self.values[_nearest(self.x, points[:, 0]), _nearest(self.y, points[:, 1])]


def density(points: Vectors) -> Density:
    """Return the density of points (N, 2), N > 0, smoothed by a Gaussian kernel on a grid that extends beyond them."""
    points = np.asarray(points, dtype=np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.12 * max(float((high - low).max()), 1e-9)
    limits = [(low[axis] - margin, high[axis] + margin) for axis in (0, 1)]
    counts, x, y = np.histogram2d(points[:, 0], points[:, 1], bins=CELLS, range=limits)
    values: Grid = gaussian_filter(counts, SMOOTHING, mode="constant")
    return Density(values, (x[1:] + x[:-1]) / 2, (y[1:] + y[:-1]) / 2)


def contours(points: Vectors, shares: Sequence[float] = SHARES) -> list[npt.NDArray[np.float64]]:
    """Return the contours of the densest regions that contain a share of the points.

    Args:
        points: (N, 2).
        shares: shares of the points inside a contour.

    Returns:
        For each share, line segments (S, 2, 2): start and end, each with x and y. Empty without points.
    """
    if not len(points):
        return [np.empty((0, 2, 2)) for _ in shares]
    grid = density(points)
    at_points = grid.at(points)
    return [_segments(grid, float(np.quantile(at_points, 1 - share))) for share in shares]


def _segments(grid: Density, level: float) -> npt.NDArray[np.float64]:
    """Return the line segments (S, 2, 2) of one level by marching squares, with linear interpolation."""
    above = (grid.values > level).astype(np.int64)
    size = CELLS - 1
    case = sum(above[x : x + size, y : y + size] << bit for bit, (x, y) in enumerate(CORNERS.tolist()))
    parts = [
        np.stack([_crossing(grid, level, cells, edge) for edge in edges], axis=1)
        for code, pairs in SEGMENTS.items()
        if len(cells := np.argwhere(case == code))
        for edges in pairs
    ]
    return np.concatenate(parts) if parts else np.empty((0, 2, 2))


def _crossing(grid: Density, level: float, cells: npt.NDArray[np.int64], edge: int) -> npt.NDArray[np.float64]:
    """Return where the level crosses an edge of each cell, (S, 2)."""
    start, end = (cells + CORNERS[corner % 4] for corner in (edge, edge + 1))
    first, last = grid.values[tuple(start.T)], grid.values[tuple(end.T)]
    share = ((level - first) / (last - first))[:, None]
    left, right = (np.stack([grid.x[one[:, 0]], grid.y[one[:, 1]]], axis=1) for one in (start, end))
    crossing: npt.NDArray[np.float64] = left + share * (right - left)
    return crossing


def regions(points: Vectors, texts: Sequence[str]) -> list[Region]:
    """Return the densest regions of a map with the words that name them, the densest first.

    A text belongs to the nearest peak of the density. Words have the score of class-based TF-IDF: tf log(1 + A / f),
    with the share tf of the region's words, the mean number A of words per region, and the frequency f of the word on
    the map. A text counts a word once. A word has to be in MIN_TEXTS texts and the share MIN_SHARE of the texts of the
    region, be MIN_RATIO times as frequent there as in the other texts, and not be in STOP_WORDS; regions without such a
    word are left out.

    Args:
        points: (N, 2).
        texts: their N texts.
    """
    if len(points) < MIN_TEXTS:
        return []
    grid = density(points)
    is_peak = (grid.values == maximum_filter(grid.values, 2 * PEAK_DISTANCE + 1)) & (grid.values > 0)
    peaks = np.argwhere(is_peak)
    peaks = peaks[np.argsort(-grid.values[tuple(peaks.T)], kind="stable")[:MAX_REGIONS]]
    places = np.stack([grid.x[peaks[:, 0]], grid.y[peaks[:, 1]]], axis=1)
    owner = ((points[:, None] - places[None]) ** 2).sum(axis=2).argmin(axis=1)
    words = [set(WORD.findall(text.casefold())) - STOP_WORDS for text in texts]
    everywhere = Counter(word for one in words for word in one)
    mean_words = everywhere.total() / len(places)
    named = []
    for number, (x, y) in enumerate(places.tolist()):
        members = [words[row] for row in np.flatnonzero(owner == number).tolist()]
        counts = Counter(word for one in members for word in one)
        least = max(MIN_TEXTS, MIN_SHARE * len(members))
        odds = MIN_RATIO * len(members) / max(1, len(texts) - len(members))
        scores = {
            word: count * float(np.log1p(mean_words / everywhere[word]))
            for word, count in counts.items()
            if count >= least and count >= odds * (everywhere[word] - count) and len(members) < len(texts)
        }
        if typical := _different(sorted(scores, key=lambda word: (-scores[word], word))):
            named.append(Region(x, y, typical, len(members)))
    return named


def _different(words: Sequence[str]) -> tuple[str, ...]:
    """Return the first WORDS words, without other forms of the first one, such as its plural."""
    others = [word for word in words[1:] if not word.startswith(words[0]) and not words[0].startswith(word)]
    return (*words[:1], *others[: WORDS - 1])


def _nearest(grid: Grid, values: Vectors) -> npt.NDArray[np.int64]:
    """Return the index of the nearest grid coordinate of each value."""
    step = grid[1] - grid[0]
    cells: npt.NDArray[np.int64] = np.clip(np.rint((values - grid[0]) / step).astype(np.int64), 0, len(grid) - 1)
    return cells
