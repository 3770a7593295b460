"""First batch as the encoder reads it: texts decoded from their tokens after truncation."""

# B pairs in the batch

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bsc_core.config import LossConfig
from bsc_core.data.dataset import PairDataset
from bsc_core.encoders import tokenize
from bsc_core.types import Ids

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MAX_PAIRS = 64
Side = Literal["query", "document"] | None


def first_batch(
    model: SentenceTransformer, dataset: PairDataset, rows: Ids, *, loss: LossConfig, max_seq_length: int
) -> dict[str, Any]:
    """Return at most 64 pairs of a batch.

    Args:
        model: The encoder.
        dataset: The training pairs.
        rows: (B,) rows of the batch.
        loss: Determines which texts of a pair are encoded.
        max_seq_length: Tokens after which a text is truncated.

    Returns:
        `epoch` (1), `size` (B) and `pairs`. A pair has the decoded texts `query`, `document` (the query again where the
        loss compares two views) and, where the loss takes it, `negative`; their numbers of tokens with special ones
        (`query_tokens`); whether they were truncated (`query_cut`); and its `label`, None where every pair is positive.
    """
    shown = rows[:MAX_PAIRS]
    columns = {"query": dataset.query, "document": dataset.query if "views" in loss.needs else dataset.document}
    if loss.takes_negatives and dataset.negative is not None:
        columns["negative"] = dataset.negative
    pairs: list[dict[str, Any]] = [{} for _ in shown]
    for name, column in columns.items():
        side: Side = None if dataset.texts.queries is None else "query" if column is dataset.query else "document"
        decoded = _decode(model, dataset.texts.take(column[shown]), max_seq_length, side)
        for pair, (text, count, cut) in zip(pairs, decoded, strict=True):
            pair |= {name: text, f"{name}_tokens": count, f"{name}_cut": cut}
    for pair, row in zip(pairs, shown, strict=True):
        pair["label"] = None if dataset.label is None else float(dataset.label[row])
    return {"epoch": 1, "size": len(rows), "pairs": pairs}


def _decode(
    model: SentenceTransformer, texts: Sequence[str], max_seq_length: int, side: Side
) -> list[tuple[str, int, bool]]:
    """Return the decoded text, the number of tokens, and whether it was truncated, of each text."""
    with _truncation_plus_one(model, max_seq_length):
        table = tokenize(model, texts, max_seq_length + 1, side=side)
    longer = table.lengths > max_seq_length
    table = tokenize(model, texts, max_seq_length, side=side)
    pieces = np.split(table.tokens, table.offsets[1:-1])
    decoded = [model.tokenizer.decode(piece.tolist(), skip_special_tokens=True) for piece in pieces]
    return list(zip(decoded, table.lengths.tolist(), longer.tolist(), strict=True))


@contextmanager
def _truncation_plus_one(model: SentenceTransformer, max_seq_length: int) -> Iterator[None]:
    """Let a bare tokenizer, which truncates by itself, do so one token later inside the block."""
    bare = hasattr(model.tokenizer, "enable_truncation")
    if bare:
        model.tokenizer.enable_truncation(max_seq_length + 1)
    try:
        yield
    finally:
        if bare:
            model.tokenizer.enable_truncation(max_seq_length)
