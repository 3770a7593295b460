"""A second model that scores mined candidates: an encoder by cosine, or a cross-encoder."""

# n pairs of texts

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bsc_core.config import NegativesConfig
from bsc_core.data.dataset import TextTable
from bsc_core.encoders import embed, encoder_folder
from bsc_core.encoders.checks.folder import has_architecture
from bsc_core.encoders.pretrained import load_cross_encoder, tokenizer_errors
from bsc_core.neighbors import check_finite, unit_rows
from bsc_core.types import Ids, Progress, Vectors

Scorer = Callable[[Ids, Ids], Vectors]
"""Returns the scores (n,) of pairs, given the text ids of their queries (n,) and documents (n,)."""
PAIRS_AT_ONCE = 4096
NOT_FINITE = "{}: the model gives pairs a score that is not finite; choose another model"


def scorer_of(config: NegativesConfig, texts: TextTable, progress: Progress | None = None) -> Scorer | None:
    """Return the scorer of `config.second_opinion`, or None; other arguments and errors as `second_scorer`."""
    if config.second_opinion is None or config.method != "window":
        return None
    return second_scorer(config.second_opinion, texts, progress)


def second_scorer(name: str, texts: TextTable, progress: Progress | None = None) -> Scorer:
    """Return the function that scores pairs of texts with a model.

    Args:
        name: An encoder (built in, a folder or a hub id), or a folder or hub id of a cross-encoder of
            sentence-transformers, which is recognized by its architecture.
        texts: The table that the text ids index.
        progress: Called with (texts encoded, texts) for an encoder.

    Raises:
        ModelError, PathError: As `load_encoder`, and when a score is not finite.
    """
    folder = encoder_folder(name)
    if has_architecture(folder, "ForSequenceClassification"):
        return _cross_encoder(folder, texts)
    unit = unit_rows(embed(name, texts, progress=progress))

    def cosines(queries: Ids, documents: Ids) -> Vectors:
        scores = np.empty(len(queries), dtype=np.float32)
        for start in range(0, len(queries), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            scores[part] = np.einsum("nd,nd->n", unit[queries[part]], unit[documents[part]])
        return check_finite(scores, NOT_FINITE.format(name))

    return cosines


def _cross_encoder(folder: Path, texts: TextTable) -> Scorer:
    model = load_cross_encoder(folder)

    def scores(queries: Ids, documents: Ids) -> Vectors:
        pairs = list(zip(texts.take(queries), texts.take(documents), strict=True))
        with tokenizer_errors():
            predicted = np.asarray(model.predict(pairs, show_progress_bar=False), dtype=np.float32)
        return check_finite(predicted, NOT_FINITE.format(folder))

    return scores
