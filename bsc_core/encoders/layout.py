"""How the texts of a micro-batch lie side by side: real tokens only, and the blocks that attention pads them to."""

# n texts, T real tokens of all of them, R rows of matrix products, L tokens of a padded text in a block, m texts of a
# block, h heads

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bsc_core.encoders.tokens import Ids, TokenTable

WIDTH = 16
"""Attention pads texts to multiples of this: a row of scores then fills whole vector registers."""
ROWS = 64
"""Matrix products have multiples of this many rows, so of few shapes: each new one costs time and stays in memory."""


@dataclass(frozen=True)
class Block:
    """m texts of like length, which attention sees padded to L tokens.

    tokens: their T' tokens are tokens[start:stop] of the micro-batch. source: (m * L,) the token of each padded place;
    padding repeats the text's first. place: (T',) the padded place of each token. mask: (m * h, 1, L) float32, 0 for
    tokens and minus infinity for padding.
    """

    texts: int
    length: int
    start: int
    stop: int
    source: Tensor
    place: Tensor
    mask: Tensor


@dataclass(frozen=True)
class Layout:
    """The tokens of n texts, one text after the other, longest blocks first.

    pieces: (R,) word pieces. positions: (R,) places in their texts. The first T of these rows are tokens; the rest fill
    up and reach nothing. text: (T,) which text a token belongs to, counted in the order that the ids were given in.
    first: (n,) first token of each of these texts. lengths: (n,) their tokens.
    """

    pieces: Tensor
    positions: Tensor
    text: Tensor
    first: Tensor
    lengths: Tensor
    blocks: tuple[Block, ...]

    @property
    def real(self) -> int:
        """T."""
        return len(self.text)

    @classmethod
    def of(cls, tokens: TokenTable, ids: Ids, heads: int) -> Layout:
        """The layout of these texts, (n,) ids of the table."""
        rows = np.asarray(ids, dtype=np.int64)
        widths = -(-tokens.lengths[rows] // WIDTH) * WIDTH
        order = np.argsort(-widths, kind="stable")
        lengths = tokens.lengths[rows[order]]
        ends = np.cumsum(lengths)
        starts = ends - lengths
        positions = np.arange(int(ends[-1])) - np.repeat(starts, lengths)  # (T,)
        pieces = tokens.tokens[np.repeat(tokens.offsets[rows[order]], lengths) + positions]
        filling = np.zeros(-len(pieces) % ROWS, dtype=np.int64)
        first = np.empty(len(rows), dtype=np.int64)
        first[order] = starts
        cuts = [0, *(np.flatnonzero(np.diff(widths[order])) + 1).tolist(), len(rows)]
        return cls(
            pieces=torch.from_numpy(np.concatenate([pieces, filling + pieces[0]]).astype(np.int64)),
            positions=torch.from_numpy(np.concatenate([positions, filling])),
            text=torch.from_numpy(np.repeat(order, lengths)),
            first=torch.from_numpy(first),
            lengths=torch.from_numpy(tokens.lengths[rows]),
            blocks=tuple(_block(lengths[a:b], int(starts[a]), int(widths[order[a]]), heads) for a, b in pairwise(cuts)),
        )


def _block(lengths: NDArray[np.int64], start: int, width: int, heads: int) -> Block:
    """Texts of these lengths, (m,), whose tokens follow one another from `start`, padded to `width`."""
    places = np.arange(width)
    real = places < lengths[:, None]  # (m, L)
    firsts = start + np.cumsum(lengths) - lengths
    source = np.where(real, firsts[:, None] + places, firsts[:, None])
    mask = np.where(real, np.float32(0), np.float32(-np.inf))
    return Block(
        texts=len(lengths),
        length=width,
        start=start,
        stop=start + int(lengths.sum()),
        source=torch.from_numpy(source.reshape(-1)),
        place=torch.from_numpy(np.flatnonzero(real)),
        mask=torch.from_numpy(np.repeat(mask, heads, axis=0)[:, None, :]),
    )


def cut(lengths: Ids, budget: int) -> list[NDArray[np.int64]]:
    """Cut n texts into the fewest micro-batches of about equal numbers of real tokens, at most about `budget` each.

    lengths: (n,) tokens of each text. Returns arrays of positions, longest texts first, which together hold 0 ... n - 1
    once each. A text that is longer than the budget stands alone.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    if not len(order):
        return []
    share = int(ends[-1]) / max(1, -(-int(ends[-1]) // budget))
    piece = np.floor((ends - 1) / share).astype(np.int64)  # the micro-batch in which a text's last token falls
    return np.split(order, np.flatnonzero(np.diff(piece)) + 1)
