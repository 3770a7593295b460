"""Rows, vectors and models of a run, for the Embeddings and Retrieval pages."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import streamlit as st

from bsc_core.config import EncoderConfig
from bsc_core.errors import RunError
from bsc_core.runs import TEXTS, Run
from pages.ui.components import data_cache

if TYPE_CHECKING:
    import numpy as np

    from bsc_core.data.load import DatasetSplits

PARTS = {"before": "before training", "after": "after training"}


@dataclass(frozen=True)
class Model:
    """Model of a run before or after training. `key` is unique and safe in a URL."""

    run: Run
    part: str

    @property
    def key(self) -> str:
        return f"{self.run.id}:{self.part}"

    @property
    def stamp(self) -> str:
        """The key and the stamp of its vectors; it changes when they do."""
        return f"{self.key} {data_cache.file_stamps(self.run.folder / f'embeddings_{self.part}.npy')}"

    def vectors(self) -> np.ndarray:
        """Return the (U, D) float32 vectors, mapped from disk. Raises RunError when the run has none yet."""
        array = self.run.embeddings(self.part)
        if array is None:
            raise RunError(f"run {self.run.id} has no vectors from {PARTS[self.part]} yet; wait until it is evaluated")
        return array

    def metrics(self) -> dict[str, float | None]:
        """Return its dev metrics from the run; {} when there are none yet."""
        results: dict[str, Any] = self.run.evaluation(self.part)
        return results.get("dev") or {}

    def encoder(self) -> EncoderConfig:
        """Return how its model is loaded."""
        start = self.run.config().encoder
        if self.part == "before":
            return start
        return EncoderConfig(name=str(self.run.model_folder), max_seq_length=start.max_seq_length)


def models(run: Run) -> list[Model]:
    """Return the models of a run that have vectors: before training, and after."""
    return [Model(run, part) for part in PARTS if run.embeddings(part) is not None]


def runs_on_same_texts(run: Run) -> list[Run]:
    """Return other runs on the same texts, whose vectors are comparable."""
    texts = run.read_json(TEXTS)
    others = data_cache.run_store().list() if texts else []
    return [other for other in others if other.id != run.id and other.read_json(TEXTS) == texts]


def load_splits(run: Run) -> DatasetSplits:
    """Return the rows of the run with its marked false negatives. Raises RunError if the data files have changed."""

    data = data_cache.load_splits(run.data_config(run.config().data))
    known = run.read_json(TEXTS)
    if known and known["digest"] != data.texts.digest:
        raise RunError(f"the data files of run {run.id} have changed since its vectors were computed; launch it again")
    return data


def encode_texts(model: Model, texts: list[str]) -> np.ndarray:
    """Return the (N, D) float32 vectors of texts that are not part of the run."""
    from bsc_core.encoders import encode, tokenize

    config = data_cache.run_store().encoder(model.encoder())
    encoder, lock = _encoder(config.name, config.max_seq_length, model.run.id)
    with lock:  # one session at a time
        vectors: np.ndarray = encode(encoder, tokenize(encoder, texts, config.max_seq_length))
    return vectors


@st.cache_resource(max_entries=3, show_spinner="Loading the model; the first time takes about 10 s …")
def _encoder(name: str, max_seq_length: int, run_id: str) -> tuple[Any, threading.Lock]:
    from bsc_core.encoders import load_encoder

    return load_encoder(EncoderConfig(name=name, max_seq_length=max_seq_length)), threading.Lock()
