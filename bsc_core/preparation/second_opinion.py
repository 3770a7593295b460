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
from bsc_core.errors import ModelError
from bsc_core.neighbors import check_finite, unit_rows
from bsc_core.types import Ids, Progress, Vectors

Scorer = Callable[[Ids, Ids], Vectors]
"""Returns the scores (n,) of pairs, given the text ids of their queries (n,) and documents (n,)."""
PAIRS_AT_ONCE = 4096
MAX_PAIR_TOKENS = 512  # that a cross-encoder reads of a pair
PAIR_CHARACTERS_PER_TOKEN = 128  # after which a text is cut; it is tokenized again in each pair
MIN_PAIRS = 4  # that a cross-encoder scores at a time
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
    from bsc_core.encoders.tokens import token_budget  # imports torch

    model = load_cross_encoder(folder)
    tokens = min(model.max_seq_length or MAX_PAIR_TOKENS, MAX_PAIR_TOKENS)
    model.max_seq_length = tokens
    if (special := model.tokenizer.num_special_tokens_to_add(pair=True)) >= tokens:
        raise ModelError(f"{folder}: it reads {tokens} tokens of a pair, and adds {special}; choose another model")
    longest, at_once = PAIR_CHARACTERS_PER_TOKEN * tokens, max(MIN_PAIRS, token_budget(model.device) // tokens)

    def scores(queries: Ids, documents: Ids) -> Vectors:
        sides = [[text[:longest] for text in texts.take(ids)] for ids in (queries, documents)]
        with tokenizer_errors():
            predicted = model.predict(list(zip(*sides, strict=True)), batch_size=at_once, show_progress_bar=False)
            predicted = np.asarray(predicted, dtype=np.float32)
        return check_finite(predicted, NOT_FINITE.format(folder))

    return scores
