"""Vectors of a run's texts: of the model at the last update, and as the training steps computed them."""

# U distinct texts, D dimensions

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bsc_core.encoders import TokenTable, encode, get_or_compute, tokenize
from bsc_core.encoders.forward import autocast
from bsc_core.training.loop.device import resolve_precision
from bsc_core.types import Ids, Vectors

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from bsc_core.config import EncoderConfig, RunConfig
    from bsc_core.data.dataset import TextTable


class Embeddings:
    """Vectors of the texts of a run, encoded in the precision of its training.

    Attributes:
        from_steps: (U, D) vectors that the training steps computed; None unless `batching.refresh` is `reuse`.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        tokens: TokenTable,
        config: RunConfig,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        self.model, self.tokens, self.progress = model, tokens, progress
        self.precision = resolve_precision(config.training.precision, model.device)
        self.max_seq_length = config.encoder.max_seq_length
        self._others: dict[str, TokenTable] = {}  # by the digest of their texts
        self._current: Vectors | None = None
        self.from_steps: Vectors | None = self._zeros() if config.batching.refresh == "reuse" else None

    @property
    def current(self) -> Vectors:
        """(U, D) vectors of the model at the last update; encoded now if there was none."""
        if self._current is None:
            self.update()
        assert self._current is not None
        return self._current

    def load_or_encode(self, encoder: EncoderConfig, texts: TextTable) -> None:
        """Set all vectors to those of the model before training, cached in this precision.

        They are those of the encoder that the model was loaded from, unless some of its layers were re-initialized.
        """
        if encoder.reinit_layers:
            self.update()
        else:
            self._current = get_or_compute(encoder, texts, lambda _: self._encode(None), precision=self.precision)
        assert self._current is not None
        self.restore_steps(self._current)

    def restore(self, current: Vectors) -> None:
        """Set the vectors to those of an earlier process."""
        self._current = current

    def restore_steps(self, vectors: Vectors) -> None:
        """Set the vectors of the training steps, where they are recorded."""
        if self.from_steps is not None:
            self.from_steps[:] = vectors

    def update(self) -> None:
        """Encode every text with the model as it is now."""
        self._current = self._encode(None)

    def clear(self) -> None:
        """Forget the vectors of the last update, which are not those of the model in training."""
        self._current = None

    def encode(self, texts: Ids) -> Vectors:
        """Encode some texts with the model as it is now, (U, D); rows of other texts are 0.

        Args:
            texts: Text ids, each once.
        """
        vectors = self._zeros()
        vectors[texts] = self._encode(texts)
        return vectors

    def of_texts(self, texts: TextTable, encoder: EncoderConfig | None = None) -> Vectors:
        """Encode texts of another table with the model as it is now, (len(texts), D).

        Args:
            texts: The other table.
            encoder: The encoder that the model still equals, whose vectors are cached; None after training has started.
        """
        if encoder is not None and not encoder.reinit_layers:
            return get_or_compute(encoder, texts, lambda _: self.of_texts(texts), precision=self.precision)
        if texts.digest not in self._others:
            self._others[texts.digest] = tokenize(self.model, texts, self.max_seq_length)
        with autocast(self.precision, self.model.device):
            return encode(self.model, self._others[texts.digest], progress=self.progress)

    def _zeros(self) -> Vectors:
        return np.zeros((len(self.tokens), self.model.get_embedding_dimension() or 0), dtype=np.float32)

    def _encode(self, texts: Ids | None) -> Vectors:
        with autocast(self.precision, self.model.device):
            return encode(self.model, self.tokens, texts, progress=self.progress)
