"""Rows of the Batches page: those of a dataset or a run, their vectors, and the file of decisions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core.config import EncoderConfig
from bsc_core.data import PairDataset, TextTable
from bsc_core.data.dataset import DECIDED
from bsc_core.data.decisions import read_decisions, with_decisions
from bsc_core.runs import Run
from bsc_core.training.data import select_training_rows
from pages.ui.batches.decide import dataset_file, run_file
from pages.ui.components import data_cache, page_layout, run_data, url

MAX_TEXTS_INLINE = 3000
"""Texts that are encoded while the page waits; more are encoded in a background task."""
PART = "batches.part"
REVISION = "batches.triage.revision"


@dataclass(frozen=True, eq=False)
class BatchSource:
    """Rows to plan and the vectors of their texts."""

    train: PairDataset
    vectors: np.ndarray | None  # (U, D); None if a background task has to encode the texts
    vectors_key: str  # identifies the vectors in cache keys
    encoder: EncoderConfig
    models: dict[str, np.ndarray]  # vectors of each model of the run, by name
    false_negatives: Path | None  # file of decisions; None if there is no dataset to store them for
    run: Run | None
    mined: bool = False  # whether the negatives of the rows were mined

    def saved_plans(self) -> list[Path]:
        """Return the plan files of the run, by epoch."""
        return [] if self.run is None else list(self.run.numbered_plans("epoch-*.npz"))

    def with_model(self, name: str) -> BatchSource:
        """Return the same rows with the vectors of another model of the run."""
        return replace(self, vectors=self.models[name], vectors_key=_vectors_key(self.models[name]))


def revise() -> None:
    """Build the queue of the triage again on the next run of the page, because decisions were changed elsewhere."""
    st.session_state[REVISION] = st.session_state.get(REVISION, 0) + 1


def load_source(context: page_layout.Context, cell: DeltaGenerator) -> BatchSource:
    """Load the run of the context bar if it has vectors, else the dataset and encoder of the bar.

    Args:
        context: The selections of the bar.
        cell: Where one of several models of a run is selected.
    """
    run = data_cache.run_store().get(context.run_id) if context.run_id else None
    if run is not None and run_data.models(run):
        return _run_source(run, context.dataset_key, cell)
    if run is not None:
        st.caption("This run has no embeddings yet, so the dataset and encoder selected above are shown.")
    data = data_cache.dataset_splits(context.dataset_key)
    config = data_cache.encoder_config(context.encoder)
    train = data.train if data.corpus is None else _without_other_texts(data.train)
    if len(train.texts) <= MAX_TEXTS_INLINE:
        vectors: np.ndarray | None = data_cache.text_vectors(config, train.texts)
    else:
        vectors = cached_vectors(config, train.texts)
    key = str(data_cache.vectors_key(config, train.texts.digest))
    mined = data_cache.data_config(context.dataset_key).negatives is not None
    return BatchSource(train, vectors, key, config, {}, dataset_file(context.dataset_key), None, mined)


ROWS_KEY = {PairDataset: lambda train: (train.digest, train.line.tobytes())}


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=ROWS_KEY)
def _without_other_texts(train: PairDataset) -> PairDataset:
    """Return the rows on a table of their texts and of those with a decision: a plan does not use the corpus."""
    decided = [pairs.ravel() for name in DECIDED if (pairs := getattr(train, name)) is not None]
    used = np.unique(np.concatenate([*train.text_columns, *decided]))
    return train.reindex_texts(*train.texts.subset(used))


def _run_source(run: Run, dataset_key: str, cell: DeltaGenerator) -> BatchSource:
    config, by_name = run.config(), {model.when: model for model in run_data.models(run)}
    train = select_training_rows(config, run_data.load_splits(run).train)
    marked = run_file(run, dataset_key)
    if marked is not None and marked.is_file():
        train = with_decisions(train, read_decisions(marked), config.data.text_identity)
    models = {name: model.vectors() for name, model in by_name.items()}
    names = list(models)
    name = cell.segmented_control("Embeddings from", names, default=names[-1], required=True, **url.bound(PART, names))
    name = name if name in models else names[-1]
    vectors = models[name]
    encoder, mined = by_name[name].encoder(), config.data.negatives is not None
    return BatchSource(train, vectors, _vectors_key(vectors), encoder, models, marked, run, mined)


def _vectors_key(vectors: Any) -> str:
    """Identify memory-mapped vectors by their file and its time."""
    return str(data_cache.file_stamps(Path(str(vectors.filename))))


def cached_vectors(config: EncoderConfig, texts: TextTable) -> np.ndarray | None:
    """Return the vectors of these texts mapped from the disk cache; None when they are not encoded yet."""
    from bsc_core import encoders

    data_cache.confirm_download(config.name)
    key = data_cache.vectors_key(config, texts.digest)
    return data_cache.shared_value("mapped vectors", key, lambda: encoders.cached_vectors(config, texts))
