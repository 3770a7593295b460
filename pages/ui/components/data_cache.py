"""Datasets, their rows and their vectors, each loaded once for all sessions.

Cache keys are names, file stamps and digests, never arrays.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakValueDictionary

import streamlit as st

from bsc_core import formatting
from bsc_core.config import DataConfig, EncoderConfig, ExamplesConfig
from bsc_core.data.io.sources import is_hub_id
from bsc_core.data.sample_data import sample_config, sample_nli_config
from bsc_core.errors import BscError, InputError
from bsc_core.files import read_regular
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import parent_run_id, short_id
from bsc_core.users.access import UserRuns, shared_files, uploaded_datasets
from bsc_core.users.access import may_read_file as is_readable
from pages.ui.components import display, turns, users

if TYPE_CHECKING:
    import numpy as np

    from bsc_core.data import Table, TextTable
    from bsc_core.data.decisions import Decision
    from bsc_core.data.load import DatasetSplits

MAX_STAMPS = 5_000  # files of a folder
SAMPLE = "sample"
SAMPLE_NLI = "sample-nli"
SAMPLES = (SAMPLE, SAMPLE_NLI)
CACHE_SIZE = 8  # datasets, and sets of vectors, in memory at the same time
MAX_METRIC_VALUES = 3_000_000  # of a kind that are kept, of 100 bytes each
TEXTS_PER_SECOND = 150  # of the bundled encoder on two processor cores

FileStamps = tuple[tuple[str, int, int], ...]
Value = TypeVar("Value")


@dataclass(frozen=True)
class DatasetChoice:
    """A dataset that the context bar offers. key: its name in the URL; data: how it is read."""

    key: str
    label: str
    data: DataConfig
    may_change: bool = True


def run_store() -> RunStore:
    """Return the runs folder of this process (environment BSC_RUNS, else ./runs), with the runs that the user sees."""
    return UserRuns(users.current_user()) if users.is_shared() else RunStore()


def datasets() -> dict[str, DatasetChoice]:
    """Return the datasets that the user may read, by key: sample data first, then uploads, newest first.

    A copy of a dataset of another user is not among them if its files are no longer shared.
    """
    choices = {
        SAMPLE: DatasetChoice(SAMPLE, "Sample questions and answers", _with_filters(SAMPLE, sample_config())),
        SAMPLE_NLI: DatasetChoice(SAMPLE_NLI, "Sample NLI", _with_filters(SAMPLE_NLI, sample_nli_config())),
    }
    user, store = users.current_user(), run_store()
    uploaded = uploaded_datasets(store, user)
    for key, one in uploaded.items():
        choices[key] = DatasetChoice(key, one.label, one.data, one.access.may_change(user))
    if user.is_owner:
        return choices
    shared = shared_files(store, uploaded.values())
    return {
        key: choice
        for key, choice in choices.items()
        if all(file in shared or may_read_file(file) or is_hub_id(file) for file in choice.data.files)
    }


def may_read_file(path: str) -> bool:
    """Whether the user may read a file: sample data, or an upload that belongs to the user or is shared with them."""
    return is_readable(run_store(), users.current_user(), path)


def dataset_labels(choices: Mapping[str, DatasetChoice]) -> dict[str, str]:
    """Return what a select box shows for each dataset: the key of sample data, else its label."""
    return unique_labels({key: key if key in SAMPLES else one.label for key, one in choices.items()})


def unique_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the label of each key, followed by the key where two are equal or a label is another key.

    Streamlit selects the last option with the text that a select box shows.
    """
    shown = dict(labels)
    while True:
        number = Counter(shown.values())
        unclear = {key for key, label in shown.items() if label != key and (number[label] > 1 or label in labels)}
        if not unclear:
            return shown
        shown |= {key: f"{shown[key]} ({key})" for key in unclear}


def run_names(ids: Iterable[str]) -> dict[str, str]:
    """Return the short id of each run, or its id where two short ids are equal."""
    names = {run_id: short_id(run_id) for run_id in ids}
    number = Counter(names.values())
    return {run_id: name if number[name] == 1 else run_id for run_id, name in names.items()}


def _with_filters(key: str, data: DataConfig) -> DataConfig:
    """Return the config of sample data with the filters that the user switched on; without them if they are damaged."""
    path = settings_file(key)
    with suppress(OSError, ValueError, TypeError, RecursionError):
        settings = json.loads(read_regular(path))  # an earlier version wrote the old key of `filters`
        return DataConfig.model_validate({**data.model_dump(exclude={"filters"}), **settings})
    return data


def settings_file(key: str) -> Path:
    """Return the file with the filters of sample data. Uploads store theirs in their `dataset.json`."""
    user = users.current_user()
    return run_store().root / "settings" / ("" if user.is_owner else user.name) / f"{key}.json"


def dataset_key(data: DataConfig) -> str | None:
    """Return the key of the dataset with this config, apart from its marked false negatives; None if there is none."""
    unmarked = data.model_copy(update={"false_negatives": None})
    return next(
        (
            key
            for key, choice in datasets().items()
            if choice.data.model_copy(update={"false_negatives": None}) == unmarked
        ),
        None,
    )


def dataset_of_file(data: DataConfig) -> str | None:
    """Return the key of the dataset of the same file of training pairs with most equal settings; None if none."""

    def equal_settings(other: DataConfig) -> int:
        return sum(getattr(other, name) == value for name, value in data)

    same = {key: equal_settings(choice.data) for key, choice in datasets().items() if choice.data.train == data.train}
    return max(same, key=lambda key: same[key], default=None)


def data_config(key: str) -> DataConfig:
    """Return how a dataset is read, with its marked false negatives.

    Raises:
        InputError: The dataset does not exist.
    """
    choices = datasets()
    if key not in choices:
        raise InputError(f"dataset {key} does not exist; choose another in the bar at the top")
    data, marked = choices[key].data, false_negatives_file(key)
    if data.false_negatives is None and marked.is_file():
        return data.model_copy(update={"false_negatives": str(marked)})
    return data


def false_negatives_file(key: str) -> Path:
    """Return the file of the pairs marked as false negatives; it exists from the first marked pair on."""
    user, choice = users.current_user(), datasets().get(key)
    if choice is not None and choice.may_change and may_change_decisions(choice.data.false_negatives):
        return Path(str(choice.data.false_negatives))
    is_own = user.is_owner or (key not in SAMPLES and choice is not None and choice.may_change)
    return run_store().false_negatives_file(key if is_own else f"{user.name}/{key}")


def may_change_decisions(path: str | None) -> bool:
    """Whether a file of decisions exists in a config and belongs to the user or to a dataset that they may change."""
    user = users.current_user()
    if path is None or user.is_owner:
        return path is not None
    key, choices = Path(path).stem, datasets()
    names = [f"{user.name}/{key}"] + (
        [key] if key not in SAMPLES and key in choices and choices[key].may_change else []
    )
    return Path(path) in map(run_store().false_negatives_file, names)


def save_decisions(path: Path, decisions: Sequence[Decision]) -> None:
    """Add decisions about pairs to a file; they count in the user's disk quota.

    Raises:
        InputError: The disk quota is exceeded, or the file cannot be changed.
    """
    from bsc_core.data.decisions import add_decisions

    users.check_upload(sum(len(text.encode()) for one in decisions for text in one.pair))
    add_decisions(path, decisions)


def dataset_splits(key: str, *, seed: int = 0) -> DatasetSplits:
    """Return the rows of a dataset, read again when one of its files changes. Treat them as read-only."""
    return load_splits(data_config(key), seed=seed)


def load_splits(config: DataConfig, *, seed: int = 0) -> DatasetSplits:
    """Return the rows that a config describes; a progress bar shows while texts are encoded for it."""
    marked, stamps = config.false_negatives, data_stamps(config)
    if marked is not None and (config.negatives is not None or config.examples is not None):
        return _load(config, (*stamps, *file_stamps(marked)), seed)
    unmarked = config.model_copy(update={"false_negatives": None})  # a new mark does not read the files again
    data = _load(unmarked, stamps, seed)
    if marked is None:
        return data
    source = (unmarked.model_dump_json(), stamps, seed)
    return _marked(data, source, marked, file_stamps(marked), config.text_identity)


def source_splits(key: str, *, filtered: bool = False) -> DatasetSplits:
    """Return the rows as they are in the files, before rows are generated from them; with `filtered`, after filters."""
    config = data_config(key)
    changes: dict[str, object] = {"false_negatives": None, "negatives": None, "nli": None}
    changes |= {} if filtered else {"filters": ()}
    source = config.model_copy(update=changes)
    if config.examples is None:
        return load_splits(source)
    columns = ExamplesConfig.model_validate(config.examples.model_dump(include={"text", "class_label", "split"}))
    source = source.model_copy(update={"examples": columns})
    return _sentences(source.model_dump_json(), data_stamps(source))


def data_stamps(data: DataConfig) -> FileStamps:
    """Return the stamps of the files of a dataset and of the model folders from which its rows are generated.

    The file of marked false negatives is not included.
    """
    sections = [section for section in (data.negatives, data.examples) if section is not None]
    models = [getattr(section, name, None) for section in sections for name in ("encoder", "second_opinion")]
    return file_stamps(*data.files, *models)


def file_stamps(*paths: Path | str | None) -> FileStamps:
    """Return path, modification time and size of each file that exists, also of those in a folder, up to MAX_STAMPS."""
    stamps = []
    for path in map(Path, filter(None, paths)):
        with suppress(OSError, ValueError):  # it does not exist, or cannot, as a very long name
            inside = sorted(islice(path.rglob("*"), MAX_STAMPS)) if path.is_dir() else ()
            for one in (path, *inside):
                facts = one.stat()
                stamps.append((str(one), facts.st_mtime_ns, facts.st_size))
    return tuple(stamps)


def shared_value(kind: str, key: Hashable, compute: Callable[[], Value], *, size: int = CACHE_SIZE) -> Value:
    """Return a value that all sessions share; the oldest of `size` values of its kind is dropped.

    Unlike `st.cache_resource`, elements that `compute` draws (progress bars) are not replayed, and None is not cached.
    """
    cache = _cache(kind)
    with _computing(kind, key):  # one session computes it, the others wait
        value = cache.get(key)
        if value is None and (value := compute()) is not None:
            _store(cache, key, value, size)
    return value


def run_metrics(
    kind: str, run: Run, select: Callable[[list[dict[str, Any]]], list[Value]], *, max_steps: int, size: int
) -> list[Value]:
    """Return what `select` returns for the rows of a run's metrics file; only new bytes are read again.

    All sessions share the values of the `size` runs that were read last, up to MAX_METRIC_VALUES. Of many steps, they
    are of a sample.
    """
    cache = _cache(kind)
    with _computing(kind, run.folder):
        facts = run.metrics_file.stat() if run.metrics_file.exists() else None
        inode, length = (facts.st_ino, facts.st_size) if facts else (None, 0)
        known, values, start, count = cache.pop(run.folder, (inode, [], 0, 0))
        if known != inode or length < start or (max_steps and len(values) > 2 * max_steps):
            values, start, count = [], 0, 0
        rows, end = run.metrics(start, max_steps=max_steps)
        if rows:
            added = select(rows)
            values, count = values + added, count + sum(map(_count_values, added))
        while cache and count + sum(kept for *_, kept in list(cache.values())) > MAX_METRIC_VALUES:
            cache.pop(next(iter(cache)), None)
        _store(cache, run.folder, (inode, values, end, count), size)
        return values


def _count_values(value: object) -> int:
    return 1 + sum(map(_count_values, value.values())) if isinstance(value, dict) else 1


def _store(cache: dict[Hashable, Any], key: Hashable, value: object, size: int) -> None:
    """Store a value that is not in the cache, which drops the oldest of `size` values."""
    while len(cache) >= size:
        cache.pop(next(iter(cache)), None)
    cache[key] = value


_locks: WeakValueDictionary[Hashable, threading.RLock] = WeakValueDictionary()
_locks_guard = threading.Lock()


def _computing(kind: str, key: Hashable) -> threading.RLock:
    """Return the lock of a shared value, which exists while a session computes it or waits."""
    with _locks_guard:
        return _locks.setdefault((kind, key), threading.RLock())


@st.cache_resource
def _cache(kind: str) -> dict[Hashable, Any]:
    return {}


@st.cache_resource(max_entries=8, show_spinner=False)
def _marked(
    _data: DatasetSplits,
    source: tuple[str, FileStamps, int],
    path: str,
    stamps: FileStamps,
    text_identity: Literal["exact", "normalized"],
) -> DatasetSplits:
    from bsc_core.data.decisions import apply_decisions, read_decisions

    return apply_decisions(_data, read_decisions(path), text_identity)


@st.cache_resource(max_entries=4, show_spinner="Reading the dataset …")
def _sentences(config_json: str, stamps: FileStamps) -> DatasetSplits:
    """Return classified sentences, each as a pair with itself."""
    from bsc_core.data import load_data

    return load_data(DataConfig.model_validate_json(config_json), seed=0)


def _load(config: DataConfig, stamps: FileStamps, seed: int) -> DatasetSplits:
    return shared_value("datasets", (config.model_dump_json(), stamps, seed), lambda: _read(config, seed))


def _read(config: DataConfig, seed: int) -> DatasetSplits:
    from bsc_core.preparation.experiment import load_experiment

    bar, start = st.empty(), time.monotonic()

    def show_progress(done: int, total: int) -> None:
        left = formatting.duration((time.monotonic() - start) * (total - done) / max(done, 1))
        text = f"Encoding with the reference encoder: {done:,} of {total:,} texts, about {left} left"
        bar.progress(done / max(total, 1), text=text if done < total else "Searching nearest neighbors …")

    try:
        with bar, st.spinner("Reading the dataset …"):
            return load_experiment(config, seed=seed, progress=show_progress)
    finally:
        bar.empty()


def table(path: str) -> Table:
    """Return the cells of a file, read again when it changes."""
    return _table(path, file_stamps(path))


def read_error(path: str) -> str:
    """Return why a file cannot be read, read again when it changes; empty if it can be."""
    return _read_error(path, file_stamps(path))


@st.cache_data(max_entries=1000, show_spinner=False)
def _read_error(path: str, stamps: FileStamps) -> str:
    try:
        table(path)
    except BscError as error:
        return str(error)
    return ""


@st.cache_resource(max_entries=4, show_spinner="Reading the file …")
def _table(path: str, stamps: FileStamps) -> Table:
    from bsc_core.data import read_table

    return read_table(path)


def vectors(key: str, encoder: str, *, seed: int = 0) -> np.ndarray:
    """Return the vectors of the distinct texts of a dataset, from memory, the disk cache, or encoded now.

    Args:
        key: Key of the dataset.
        encoder: `bundled`, `static`, a folder, a Hub id, or `run:<id>` for the model that a run saved.
        seed: Seed of the splits.

    Returns:
        (U, D) float32, aligned with `dataset_splits(key).texts`.
    """
    return text_vectors(encoder_config(encoder), dataset_splits(key, seed=seed).texts)


def text_vectors(encoder: EncoderConfig, texts: TextTable) -> np.ndarray:
    """Return the vectors of these texts, from memory, the disk cache, or encoded now: (U, D) float32."""
    key = vectors_key(encoder, texts.digest)
    with turns.users_waiting_for(key) as names:
        return shared_value("vectors", key, lambda: _encode(encoder, texts, names))


def vectors_key(encoder: EncoderConfig, texts_digest: str) -> tuple[str, str, int, FileStamps]:
    """Return the cache key of the vectors of these texts; it changes when the model folder does."""
    return texts_digest, encoder.name, encoder.max_seq_length, file_stamps(encoder.name)


def encoder_config(encoder: str) -> EncoderConfig:
    """Return how an encoder is loaded; `run:<id>` is the model that the run saved.

    Raises:
        InputError: The run has prompts, which need the sides of its texts; those of a dataset have none.
    """
    users.check_encoder(encoder)
    run_id = parent_run_id(encoder)
    if run_id is None:
        return EncoderConfig(name=encoder)
    trained = run_store().get(run_id).config().encoder
    if trained.has_prompts:
        raise InputError(
            f"{encoder} has prompts of queries and documents, which are applied to the data of its run only; select "
            "this run in the bar at the top, or evaluate its model on other data with `bsc evaluate`"
        )
    return run_store().resolve_encoder(EncoderConfig(name=encoder, max_seq_length=trained.max_seq_length))


def confirm_download(encoder: str) -> None:
    """Ask before a model is downloaded, since a link can name any model of the Hub; ends the page until confirmed."""
    from bsc_core.encoders.registry import needs_download

    if needs_download(encoder):
        name = display.escaped(encoder)
        st.warning(f"The encoder {name} is not on this machine. Its files are downloaded from the Hugging Face Hub.")
        if not st.button("Download the encoder", key=f"download.{encoder}", icon=":material/download:"):
            st.stop()


def _encode(config: EncoderConfig, texts: TextTable, names: list[str]) -> np.ndarray:
    confirm_download(config.name)
    bar = st.progress(0.0, text="Loading the encoder …")
    from bsc_core.encoders import embed

    count = len(texts)
    try:
        waiting = "Waiting for the texts of other pages …"
        with turns.encoding(names, lambda: bar.progress(0.0, text=waiting)) as hand_over:
            bar.progress(0.0, text=f"Encoding {count:,} texts once; about {max(1, count // TEXTS_PER_SECOND)} s")
            start = time.monotonic()

            def report(done: int, total: int) -> None:
                left = formatting.duration((time.monotonic() - start) * (total - done) / max(done, 1))
                bar.progress(done / max(total, 1), text=f"Encoding {count:,} texts once; about {left} left")
                hand_over()

            return embed(config, texts, progress=report)
    finally:
        bar.empty()
        release_models()


def release_models() -> None:
    """Free models that are no longer used, which are part of reference cycles.

    All threads wait while Python visits every object. Later calls leave out those of the first one with the packages
    loaded, which are most of them.
    """
    gc.collect()
    if "sentence_transformers" in sys.modules:
        _exclude_loaded_packages()


@lru_cache(maxsize=1)
def _exclude_loaded_packages() -> None:
    gc.freeze()
