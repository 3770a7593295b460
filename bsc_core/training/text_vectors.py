"""Vectors of a run's texts, as the model makes them now, made them when last asked, or made them in its steps."""

# U distinct texts, D dimensions

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bsc_core.batching.arrays import Ids, Vectors
from bsc_core.encoders import TokenTable, encode, kept_or_made
from bsc_core.training.precision import Precision, autocast

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from bsc_core.config import EncoderConfig
    from bsc_core.data.texts import TextTable


class TextVectors:
    """What a run knows of its texts' vectors, encoded in the precision that it trains in.

    all: (U, D), of the model when `refresh` was last asked for; zeros before. steps: (U, D), what the training steps
    computed, for plans that reuse it, else None. progress is told (texts done, texts in all).
    """

    def __init__(
        self,
        model: SentenceTransformer,
        tokens: TokenTable,
        *,
        precision: Precision,
        progress: Callable[[int, int], object],
    ) -> None:
        self.model, self.tokens, self.precision, self.progress = model, tokens, precision, progress
        self.all: Vectors = self._zeros()
        self.steps: Vectors | None = None

    def begin(self, encoder: EncoderConfig, texts: TextTable) -> None:
        """Vectors of the untouched encoder: from disk where another run has left them in this precision, else encoded.

        encoder: the one that the model was loaded from, by a name or folder of its own.
        """
        self.all = kept_or_made(encoder, texts, lambda _: self._encoded(None), precision=self.precision)

    def refresh(self) -> None:
        """Encode every text with the model as it is."""
        self.all = self._encoded(None)

    def of(self, texts: Ids) -> Vectors:
        """Vectors of some texts, ids without repeats, of the model as it is: (U, D) with zeros for the other texts."""
        vectors = self._zeros()
        vectors[texts] = self._encoded(texts)
        return vectors

    def _zeros(self) -> Vectors:
        return np.zeros((len(self.tokens), self.model.get_embedding_dimension() or 0), dtype=np.float32)

    def _encoded(self, texts: Ids | None) -> Vectors:
        with autocast(self.precision, self.model.device):
            return encode(self.model, self.tokens, texts, progress=self.progress)
