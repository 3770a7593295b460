"""Similarity matrix of a batch: all queries against all documents, as a table and as pixels for a canvas."""

# B pairs in a batch

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsc_core import formatting
from bsc_core.figures import theme
from bsc_core.neighbors import TIE
from bsc_core.types import Ids, Mask

POSITIVE = "positive pair"
NEGATIVE_PAIR = "negative pair"
NEGATIVE = "in-batch negative"
LABELED_NEGATIVE = "labeled negative"
CLOSER = "closer than the positive"
COLLISION = "collision"
MASKED = "excluded by the mask"
MARKED = "marked as false negative"
KINDS = (NEGATIVE, LABELED_NEGATIVE, POSITIVE, NEGATIVE_PAIR, CLOSER, MASKED, COLLISION, MARKED)
KIND_COLORS = {
    POSITIVE: theme.POSITIVE,
    NEGATIVE_PAIR: theme.REFERENCE,
    CLOSER: theme.HARD_NEGATIVE,
    MASKED: theme.MASKED,
    COLLISION: theme.FALSE_NEGATIVE,
    MARKED: theme.MARKED_FALSE_NEGATIVE,
}
KIND_SHAPES = {
    POSITIVE: "circle",
    NEGATIVE_PAIR: "circle",
    CLOSER: "triangle-up",
    MASKED: "line",
    COLLISION: "cross",
    MARKED: "diamond",
}
CANVAS_TEXT_LENGTH = 160


@dataclass(frozen=True)
class BatchMask:
    """A mask of likely false negatives, with the encoder of the vectors as judge.

    Attributes:
        margin: How far below the cosine of the positive the limit is.
        relative: Whether the margin is a share of that cosine.
    """

    margin: float = 0.0
    relative: bool = False

    def removes(self, cosines: NDArray[np.float32]) -> Mask:
        """Return which cells are above the limit, (B, B); cosines: (B, B), those of the positives on the diagonal."""
        positive = np.diag(cosines)[:, None]
        removed: Mask = cosines > positive - self.margin * (np.abs(positive) if self.relative else 1.0) + TIE
        return removed


@dataclass(frozen=True, eq=False)
class Cells:
    """The similarity matrix of a batch with its annotations.

    Attributes:
        similarity: (B, B) cosine similarities.
        rows: (B,) dataset rows.
        groups: (B,) group ids.
        positive: (B,) whether the pair on the diagonal is positive.
        collisions: (B, B) off-diagonal pairs that are positives according to the data.
        negatives: (B, B) pairs that are labeled negative.
        marked: (B, B) pairs that the user marked as false negatives; None for none.
        mask: Mask of likely false negatives; None for none.
    """

    similarity: NDArray[np.float32]
    rows: Ids
    groups: Ids
    positive: Mask
    collisions: Mask
    negatives: Mask
    marked: Mask | None = None
    mask: BatchMask | None = None

    def kinds(self) -> NDArray[np.str_]:
        """Return the kind of each cell (B, B); later checks override earlier ones."""
        closer = (self.similarity > np.diag(self.similarity)[:, None]) & self.positive[:, None]
        kinds = np.where(self.negatives, LABELED_NEGATIVE, NEGATIVE).astype("<U40")
        kinds[closer] = CLOSER
        if self.mask is not None:
            kinds[self.mask.removes(self.similarity) & self.positive[:, None] & ~self.negatives] = MASKED
        kinds[self.collisions] = COLLISION
        if self.marked is not None:
            kinds[self.marked] = MARKED
        np.fill_diagonal(kinds, np.where(self.positive, POSITIVE, NEGATIVE_PAIR))
        return kinds


def batch_table(cells: Cells) -> pd.DataFrame:
    """Build the table of matrix cells.

    Returns:
        One row per cell, with columns row and column (indices into the batch), query_row and document_row (dataset
        rows), group (of the query), similarity, positive_similarity (of the query and the document on the diagonal)
        and kind.
    """
    size = len(cells.rows)
    return pd.DataFrame(
        {
            "row": np.repeat(np.arange(size), size),
            "column": np.tile(np.arange(size), size),
            "query_row": np.repeat(cells.rows, size),
            "document_row": np.tile(cells.rows, size),
            "group": np.repeat(cells.groups, size),
            "similarity": cells.similarity.astype(np.float64).ravel().round(4),
            "positive_similarity": np.repeat(np.diag(cells.similarity), size).astype(np.float64).round(4),
            "kind": cells.kinds().ravel(),
        }
    )


def group_borders(groups: Ids) -> pd.DataFrame:
    """Return a row per run of equal ids in `groups` (B,), with columns group, start and end (exclusive)."""
    groups = np.asarray(groups)
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]][: len(groups)])
    return pd.DataFrame({"group": groups[starts], "start": starts, "end": np.r_[starts, len(groups)][1:]})


def canvas_data(cells: Cells, queries: list[str], documents: list[str]) -> dict[str, Any]:
    """Build the JSON-serializable data of the matrix canvas: about 2 bytes per cell, and B shortened texts per side.

    Returns:
        The canvas data: size (B); cosines and kinds (base64 of uint8 (B * B,), row-major; a cosine c as
        round(127.5 * (c + 1)), a kind as index into KINDS); names (KINDS); marks (color and shape by kind); positive
        (whether each pair is positive); borders ([start, end] of each group of at least two rows); ramp (256 colors
        from -1 to 1).
    """
    borders = group_borders(cells.groups)
    several = borders[borders["end"] - borders["start"] >= 2]
    kinds = cells.kinds()
    return {
        "size": len(cells.rows),
        "cosines": _base64(np.rint(127.5 * (np.clip(cells.similarity, -1, 1) + 1))),
        "kinds": _base64(np.select([kinds == kind for kind in KINDS], range(len(KINDS)))),
        "names": list(KINDS),
        "marks": {kind: [color, KIND_SHAPES[kind]] for kind, color in KIND_COLORS.items()},
        "positive": cells.positive.tolist(),
        "borders": several[["start", "end"]].to_numpy().tolist(),
        "ramp": ramp(),
        "queries": [formatting.shorten(text, CANVAS_TEXT_LENGTH) for text in queries],
        "documents": [formatting.shorten(text, CANVAS_TEXT_LENGTH) for text in documents],
    }


def ramp(steps: int = 256) -> list[list[int]]:
    """Interpolate the cosine colors of the theme from -1 to 1, as [red, green, blue] from 0 to 255."""
    stops = np.array([[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in theme.COSINE], dtype=np.float64)
    positions = np.linspace(0, len(stops) - 1, steps)
    channels = [np.interp(positions, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]
    result: list[list[int]] = np.rint(np.stack(channels, axis=1)).astype(int).tolist()
    return result


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(values.astype(np.uint8).tobytes()).decode("ascii")
