"""The first batch as the model saw it: texts made again from the tokens that were left of them."""

# B pairs in the batch

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bsc_core.batching.arrays import Ids
from bsc_core.config import LossConfig
from bsc_core.data.pairs import PairDataset
from bsc_core.encoders import tokenise

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

SHOWN = 64


def first_batch(
    model: SentenceTransformer, dataset: PairDataset, rows: Ids, *, loss: LossConfig, max_length: int, epoch: int = 1
) -> dict[str, Any]:
    """The pairs of a batch, at most 64 of them: `epoch`, `size` (all of the batch) and `pairs`.

    rows: (B,). A pair has `query`, `document` (the query again where the loss compares two views of it) and, where the
    loss takes it, `negative`: the words that the tokens say, cut after max_length; the number of tokens, special ones
    included, as `query_tokens` and so on; whether the text was longer, as `query_cut`; and its `label`, None where
    every pair is positive.
    """
    shown = rows[:SHOWN]
    columns = {"query": dataset.query, "document": dataset.query if "views" in loss.needs else dataset.document}
    if loss.takes_negatives and dataset.negative is not None:
        columns["negative"] = dataset.negative
    pairs: list[dict[str, Any]] = [{} for _ in shown]
    for name, column in columns.items():
        seen = _seen(model, [dataset.texts.texts[text] for text in column[shown]], max_length)
        for pair, (words, count, cut) in zip(pairs, seen, strict=True):
            pair |= {name: words, f"{name}_tokens": count, f"{name}_cut": cut}
    for pair, row in zip(pairs, shown, strict=True):
        pair["label"] = None if dataset.label is None else float(dataset.label[row])
    return {"epoch": epoch, "size": len(rows), "pairs": pairs}


def _seen(model: SentenceTransformer, texts: Sequence[str], max_length: int) -> list[tuple[str, int, bool]]:
    """The words, the number of tokens and whether some were cut off, of each text."""
    with _room_for_one_more(model, max_length):
        table = tokenise(model, texts, max_length + 1)
    longer = table.lengths > max_length
    table = tokenise(model, texts, max_length)
    pieces = np.split(table.tokens, table.offsets[1:-1])
    words = [model.tokenizer.decode(piece.tolist(), skip_special_tokens=True) for piece in pieces]
    return list(zip(words, table.lengths.tolist(), longer.tolist(), strict=True))


@contextmanager
def _room_for_one_more(model: SentenceTransformer, max_length: int) -> Iterator[None]:
    """A bare tokeniser cuts by itself; inside the block one token later."""
    bare = hasattr(model.tokenizer, "enable_truncation")
    if bare:
        model.tokenizer.enable_truncation(max_length + 1)
    try:
        yield
    finally:
        if bare:
            model.tokenizer.enable_truncation(max_length)
