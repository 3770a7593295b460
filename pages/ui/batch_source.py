"""What the Batches page looks at: the rows of a dataset or of a run, their vectors, and the marks on them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from bsc_core.config import EncoderConfig
from bsc_core.data import PairDataset
from bsc_core.errors import RunError
from bsc_core.runs import Run
from pages.ui import frame, run_data, store

TEXTS_AT_ONCE = 3000
"""Texts that are encoded while the page waits with a progress bar; more are encoded by a child process."""


@dataclass(frozen=True, eq=False)
class Source:
    """Rows to plan, and what sees them.

    vectors: (U, D), or None while a child process has to encode the texts; vectors_name tells them apart in cache keys.
    views: name -> vectors of the run's models. marks: the file of marked pairs, or None where there is no dataset to
    mark. run: the run in view, or None.
    """

    train: PairDataset
    vectors: np.ndarray | None
    vectors_name: str
    encoder: EncoderConfig
    views: dict[str, np.ndarray]
    marks: Path | None
    run: Run | None

    def saved_plans(self) -> list[Path]:
        """The plans that the run has written, by epoch."""
        return sorted(self.run.plans_folder.glob("epoch-*.npz")) if self.run is not None else []

    def seen_by(self, view: str) -> Source:
        """The same rows as another of the run's models sees them."""
        return replace(self, vectors=self.views[view], vectors_name=vectors_name(self.views[view]))


def of_context(context: frame.Context) -> Source:
    """The run of the bar, as soon as it has vectors; else the bar's dataset and encoder."""
    run = store.run_store().get(context.run_id) if context.run_id else None
    if run is not None and run_data.models(run):
        return _of_run(run, context.dataset_key)
    if run is not None:
        st.caption("This run has not measured its encoder yet; the dataset and the encoder of the bar are shown.")
    data = store.experiment_data(context.dataset_key)
    config = store.encoder_config(context.encoder)
    name = f"{config.name} {config.max_length} {folder_time(config.name)}"
    vectors = _vectors(context, config)
    return Source(data.train, vectors, name, config, {}, store.marks_file(context.dataset_key), None)


def _of_run(run: Run, dataset_key: str) -> Source:
    from bsc_core.data.marks import read_marks, with_marks
    from bsc_core.training.rows import training_rows

    config, found = run.config(), {run_data.PARTS[model.part]: model for model in run_data.models(run)}
    train = training_rows(config, run_data.rows_of(run).train)
    marks = _marks_of(run, dataset_key)
    if marks is not None and marks.is_file():
        train = with_marks(train, read_marks(marks))
    views = {name: model.vectors() for name, model in found.items()}
    names = list(views)
    part = st.segmented_control(
        "Seen by the encoder", names, default=names[-1], required=True, key="batches.part", bind="query-params"
    )
    part = part if part in views else names[-1]
    return Source(train, views[part], vectors_name(views[part]), found[part].encoder(), views, marks, run)


def _marks_of(run: Run, dataset_key: str) -> Path | None:
    """The file of marks of the dataset that a run was made from: its own, else that of the dataset with these files."""
    data = run.config().data
    if data.false_negatives:
        return Path(data.false_negatives)
    choices = store.datasets()
    for key in (dataset_key, *choices):
        if key in choices and choices[key].data == data:
            return store.marks_file(key)
    return None


def vectors_name(vectors: Any) -> str:
    """Tells mapped vectors apart by their file and its time."""
    path = Path(str(vectors.filename))
    return f"{path} {path.stat().st_mtime_ns}"


def folder_time(name: str) -> int:
    folder = Path(name)
    return folder.stat().st_mtime_ns if folder.is_dir() else 0


def _vectors(context: frame.Context, config: EncoderConfig) -> np.ndarray | None:
    data = store.experiment_data(context.dataset_key)
    if len(data.texts) <= TEXTS_AT_ONCE:
        return store.vectors(context.dataset_key, context.encoder)
    return known(config.name, config.max_length, folder_time(config.name), data.texts.digest, _texts=data.texts)


def known(name: str, max_length: int, time: int, digest: str, *, _texts: Any) -> np.ndarray | None:
    """Vectors that lie on disk, mapped; None where the texts are still to be encoded."""
    shelf, key = _shelf(), hashlib.sha256(f"{name} {max_length} {time} {digest}".encode()).hexdigest()
    if key not in shelf:
        from bsc_core.encoders import known_vectors

        vectors = known_vectors(EncoderConfig(name=name, max_length=max_length), _texts)
        if vectors is None:
            return None
        shelf[key] = vectors
    return shelf[key]


@st.cache_resource
def _shelf() -> dict[str, np.ndarray]:
    return {}


def refuse_foreign_plan(source: Source, rows: int) -> None:
    """Raise RunError when a run's plan was made for other rows than are here."""
    if rows != len(source.train) and source.run is not None:
        raise RunError(
            f"run {source.run.id}: its plans hold {rows:,} rows and its data now give {len(source.train):,}; "
            "its files or their reading have changed since"
        )
