"""What the Embeddings and Retrieval pages read of a run: its rows, its vectors, and its models for typed texts."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from bsc_core.config import DataConfig, EncoderConfig
from bsc_core.errors import RunError
from bsc_core.runs import Run
from pages.ui import store

if TYPE_CHECKING:
    import numpy as np

    from bsc_core.data.experiment import ExperimentData

PARTS = {"before": "before training", "after": "after training"}


@dataclass(frozen=True)
class Model:
    """One model to look through: a run before or after training. `key` is unique and fit for a URL."""

    run: Run
    part: str

    @property
    def key(self) -> str:
        return f"{self.run.id}:{self.part}"

    @property
    def stamp(self) -> str:
        """The key, and when its vectors were written."""
        path = self.run.folder / f"embeddings_{self.part}.npy"
        return f"{self.key} {path.stat().st_mtime_ns if path.is_file() else 0}"

    def vectors(self) -> np.ndarray:
        """(U, D) float32, mapped from disk. Raises RunError while the run has not written them."""
        array = self.run.array(f"embeddings_{self.part}")
        if array is None:
            raise RunError(
                f"run {self.run.id}: it has no vectors from {PARTS[self.part]} yet; wait until it has measured"
            )
        return array

    def metrics(self) -> dict[str, float | None]:
        """Its metrics on dev, as the run measured them; {} while it has not."""
        measured: dict[str, Any] = self.run.read_json(f"evaluation/{self.part}") or {}
        return measured.get("dev") or {}

    def encoder(self) -> EncoderConfig:
        """How its model is loaded."""
        start = self.run.config().encoder
        return (
            start
            if self.part == "before"
            else EncoderConfig(name=str(self.run.model_folder), max_length=start.max_length)
        )


def models(run: Run) -> list[Model]:
    """The models of a run whose vectors are there: before, and after when it is measured."""
    return [Model(run, part) for part in PARTS if run.array(f"embeddings_{part}") is not None]


def same_texts(run: Run) -> list[Run]:
    """Other runs on the same texts, whose vectors can be laid beside this run's."""
    own = run.read_json("texts")
    return [
        other for other in store.run_store().list() if other.id != run.id and own and other.read_json("texts") == own
    ]


def rows_of(run: Run) -> ExperimentData:
    """The rows the run was made from, with its own marks. Raises RunError when the files have changed since."""
    from bsc_core.training.same_data import own_data

    config = own_data(run.config().data, run)
    data = _load(config.model_dump_json(), _times(config))
    known = run.read_json("texts")
    if known and known["digest"] != data.texts.digest:
        raise RunError(
            f"run {run.id}: its data files have changed since, so its vectors fit other texts; launch it again"
        )
    return data


def _times(config: DataConfig) -> tuple[tuple[str, int], ...]:
    names = (config.train, config.dev, config.test, config.corpus, config.false_negatives, *config.mix)
    paths = [Path(name) for name in names if name]
    return tuple((str(path), path.stat().st_mtime_ns) for path in paths if path.exists())


@st.cache_resource(max_entries=4, show_spinner="Reading the data of the run …")
def _load(config_json: str, times: tuple[tuple[str, int], ...]) -> ExperimentData:
    from bsc_core.data import SPLIT_SEED
    from bsc_core.preparation.prepare import load_experiment

    return load_experiment(DataConfig.model_validate_json(config_json), seed=SPLIT_SEED)


@dataclass(frozen=True)
class _Loaded:
    """A model in memory and the lock that lets one session at a time encode with it."""

    model: Any
    lock: threading.Lock


def encode_text(model: Model, text: str) -> np.ndarray:
    """(D,) float32: the vector of a typed text."""
    vector: np.ndarray = encode_texts(model, [text])[0]
    return vector


def encode_texts(model: Model, texts: list[str]) -> np.ndarray:
    """(N, D) float32: vectors of N texts that the run does not know."""
    from bsc_core.encoders import encode, tokenise

    config = store.run_store().encoder(model.encoder())
    loaded = _model(config.name, config.max_length, model.run.id)
    with loaded.lock:
        vectors: np.ndarray = encode(loaded.model, tokenise(loaded.model, texts, config.max_length))
    return vectors


@st.cache_resource(max_entries=3, show_spinner="Loading the model; the first time takes about 10 s …")
def _model(name: str, max_length: int, run_id: str) -> _Loaded:
    from bsc_core.encoders import load_encoder

    return _Loaded(load_encoder(EncoderConfig(name=name, max_length=max_length)), threading.Lock())
