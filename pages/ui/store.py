"""What pages read: the runs folder, the datasets to choose from, their rows and their vectors, each loaded once.

Caches are keyed on names, file times and digests, never on arrays.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from bsc_core.config import DataConfig, EncoderConfig
from bsc_core.errors import InputError
from bsc_core.recipes.sample import sample_config, sample_nli_config
from bsc_core.runs import RunStore

if TYPE_CHECKING:
    import numpy as np

    from bsc_core.data.experiment import ExperimentData

SAMPLE = "sample"
SAMPLE_NLI = "sample-nli"
SAMPLES = (SAMPLE, SAMPLE_NLI)
SHELF = 8  # sets of vectors kept in memory
TEXTS_A_SECOND = 150  # what two processor cores encode with the bundled encoder


@dataclass(frozen=True)
class DatasetChoice:
    """One dataset of the context bar: its key in the URL, its name, and how to read it."""

    key: str
    label: str
    data: DataConfig


def run_store() -> RunStore:
    """The runs folder of this process (environment BSC_RUNS, else ./runs)."""
    return RunStore()


def datasets() -> dict[str, DatasetChoice]:
    """Key -> dataset: the sample data first, then the uploaded ones, newest first."""
    choices = {
        SAMPLE: DatasetChoice(SAMPLE, "Sample questions and answers", sample_config()),
        SAMPLE_NLI: DatasetChoice(SAMPLE_NLI, "Sample NLI", sample_nli_config()),
    }
    described = sorted(uploads_folder().glob("*/dataset.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in described:
        values = json.loads(path.read_text(encoding="utf-8"))
        choices[path.parent.name] = DatasetChoice(
            path.parent.name, values["label"], DataConfig.model_validate(values["data"])
        )
    return choices


def uploads_folder() -> Path:
    """The folder of uploaded datasets inside the runs folder."""
    return run_store().uploads_folder


def data_config(key: str) -> DataConfig:
    """How the dataset of that key is read. Raises InputError when it is gone."""
    choices = datasets()
    if key not in choices:
        raise InputError(f"dataset {key} is not there any more; choose another in the bar at the top")
    return choices[key].data


def experiment_data(key: str, *, seed: int = 0) -> ExperimentData:
    """The rows of a dataset, read once for all sessions and again when a file of it changes. Treat it as read-only."""
    config = data_config(key)
    return _load(config.model_dump_json(), _file_times(config), seed)


def _file_times(config: DataConfig) -> tuple[tuple[str, int, int], ...]:
    paths = [Path(name) for name in (config.train, config.dev, config.test, config.corpus) if name]
    found = [(str(path), path.stat()) for path in paths if path.exists()]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in found)


@st.cache_resource(max_entries=8, show_spinner="Reading the dataset …")
def _load(config_json: str, file_times: tuple[tuple[str, int, int], ...], seed: int) -> ExperimentData:
    from bsc_core.data.experiment import load_data

    return load_data(DataConfig.model_validate_json(config_json), seed=seed)


def vectors(key: str, encoder: str, *, seed: int = 0) -> np.ndarray:
    """(U, D) float32: a vector for every distinct text of a dataset, aligned with `experiment_data(key).texts`.

    encoder: `bundled`, `static`, a folder, a hub id, or `run:<id>` for the model that a run saved.
    Shows a progress bar the first time; afterwards the vectors come from memory or from the disk cache.
    """
    data = experiment_data(key, seed=seed)
    config = encoder_config(encoder)
    name = (data.texts.digest, config.name, config.max_length, _folder_time(config.name))
    shelf = _shelf()
    if name not in shelf:
        while len(shelf) >= SHELF:
            shelf.pop(next(iter(shelf)), None)
        shelf[name] = _encode(config, data)
    return shelf[name]


def encoder_config(encoder: str) -> EncoderConfig:
    """How the encoder of that name is loaded; `run:<id>` is the model that the run saved."""
    if not encoder.startswith("run:"):
        return EncoderConfig(name=encoder)
    run = run_store().get(encoder.removeprefix("run:"))
    return EncoderConfig(name=str(run.model_folder), max_length=run.config().encoder.max_length)


def _folder_time(name: str) -> int:
    folder = Path(name)
    return folder.stat().st_mtime_ns if folder.is_dir() else 0


@st.cache_resource
def _shelf() -> dict[tuple[str, str, int, int], np.ndarray]:
    return {}


def _encode(config: EncoderConfig, data: ExperimentData) -> np.ndarray:
    bar = st.progress(0.0, text="Loading the encoder …")
    from bsc_core.encoders import embed

    number = len(data.texts)
    bar.progress(0.0, text=f"Encoding {number:,} texts once; about {max(1, number // TEXTS_A_SECOND)} s")
    try:
        return embed(config, data.texts, progress=lambda done, total: bar.progress(done / max(total, 1)))
    finally:
        bar.empty()


def keep_plan(values: dict[str, dict[str, object]]) -> None:
    """Remember settings (sections of RunConfig, such as batching or loss) for the New run page; {} forgets them."""
    st.session_state["plan"] = values


def kept_plan() -> dict[str, dict[str, object]]:
    """The settings that Batches or the loss lab sent on, else {}."""
    kept: dict[str, dict[str, object]] = st.session_state.get("plan", {})
    return kept
