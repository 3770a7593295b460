"""Packed layout of a micro-batch: concatenated tokens without padding, and padded blocks for attention."""

# n texts, T tokens of all of them, R rows of matrix products, m texts of a block padded to L tokens, h heads

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from bsc_core.encoders.tokens import TextIds, TokenTable
from bsc_core.types import Indices

WIDTH = 16
"""Attention pads texts to multiples of this, so that a row of scores fills whole vector registers."""
ROWS = 64
"""Matrix products have multiples of this many rows: each new shape costs time and memory."""


@dataclass(frozen=True)
class Block:
    """Texts of similar length, padded to L tokens for attention."""

    texts: int  # number of texts, m
    length: int  # padded length, L
    source: Tensor  # token of each padded position, shape (m * L,); padding repeats the text's first token
    padded_position: Tensor  # padded position of each of the block's T' tokens, shape (T',)
    mask: Tensor  # shape (m * h, 1, L), 0 for tokens and minus infinity for padding

    @classmethod
    def build(cls, lengths: Indices, start: int, width: int, heads: int) -> Block:
        """Lay out texts with these lengths, (m,), whose tokens start at row `start`, padded to `width`."""
        positions = np.arange(width)
        real = positions < lengths[:, None]  # (m, L)
        firsts = start + np.cumsum(lengths) - lengths
        source = np.where(real, firsts[:, None] + positions, firsts[:, None])
        mask = np.where(real, np.float32(0), np.float32(-np.inf))
        return cls(
            texts=len(lengths),
            length=width,
            source=torch.from_numpy(source.reshape(-1)),
            padded_position=torch.from_numpy(np.flatnonzero(real)),
            mask=torch.from_numpy(np.repeat(mask, heads, axis=0)[:, None, :]),
        )


@dataclass(frozen=True)
class Layout:
    """The concatenated tokens of n texts, longest blocks first.

    The first T of R rows are tokens; the others are padding that does not affect the result.
    """

    pieces: Tensor  # word piece of each row, shape (R,)
    positions: Tensor  # position of each row in its text, shape (R,)
    text: Tensor  # index of each token's text, in the order of the given ids, shape (T,)
    first: Tensor  # row of each text's first token, shape (n,)
    lengths: Tensor  # number of tokens of each text, shape (n,)
    blocks: tuple[Block, ...]  # blocks for attention, which partition the tokens

    @classmethod
    def build(cls, tokens: TokenTable, ids: TextIds, heads: int) -> Layout:
        """Lay out the texts with these ids, (n,)."""
        rows = np.asarray(ids, dtype=np.int64)
        widths = -(-tokens.lengths[rows] // WIDTH) * WIDTH
        order = np.argsort(-widths, kind="stable")
        lengths = tokens.lengths[rows[order]]
        pieces, positions, bounds = tokens.concatenate(rows[order])
        starts, padding = bounds[:-1], np.zeros(-len(pieces) % ROWS, dtype=np.int64)
        first = np.empty(len(rows), dtype=np.int64)
        first[order] = starts
        edges = [0, *(np.flatnonzero(np.diff(widths[order])) + 1).tolist(), len(rows)]
        return cls(
            pieces=torch.from_numpy(np.concatenate([pieces, padding + pieces[0]])),
            positions=torch.from_numpy(np.concatenate([positions, padding])),
            text=torch.from_numpy(np.repeat(order, lengths)),
            first=torch.from_numpy(first),
            lengths=torch.from_numpy(tokens.lengths[rows]),
            blocks=tuple(
                Block.build(lengths[a:b], int(starts[a]), int(widths[order[a]]), heads) for a, b in pairwise(edges)
            ),
        )


def unpadded_micro_batches(lengths: TextIds, budget: int) -> list[Indices]:
    """Split n texts into the fewest micro-batches of about equal numbers of tokens, without padding.

    A micro-batch has approximately `budget` tokens at most; a longer text gets a separate one. Returns arrays of
    positions, longest texts first, a partition of 0 ... n - 1.
    """
    lengths = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths[order])
    if not len(order):
        return []
    share = int(ends[-1]) / max(1, -(-int(ends[-1]) // budget))
    batch = np.floor((ends - 1) / share).astype(np.int64)  # of each text's last token
    return np.split(order, np.flatnonzero(np.diff(batch)) + 1)
