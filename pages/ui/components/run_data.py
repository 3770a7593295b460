"""Rows, vectors and models of a run, and untrained encoders, for the Embeddings and Retrieval pages."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from bsc_core import jobs
from bsc_core.config import EncoderConfig, EvaluationConfig
from bsc_core.errors import BscError, RunError
from bsc_core.figures import theme
from bsc_core.runs import Run
from bsc_core.runs.documents import EVALUATION_SIZES, INTERVALS, TEXTS
from bsc_core.runs.ids import short_id
from pages.ui.components import data_cache, turns

if TYPE_CHECKING:
    import numpy as np

    from bsc_core.data.dataset import TextTable
    from bsc_core.data.load import DatasetSplits
    from bsc_core.evaluation import Interval
    from bsc_core.evaluation.evaluator import EvalResult

LOADING = ("name", "max_seq_length", "query_prompt", "document_prompt")
"""Fields of an encoder's config that decide how it is loaded."""
MAX_ENCODERS = 6  # in memory, each of about 90 MB
QUERIES_AT_ONCE = 64  # in one turn
PARTS = {"before": "before training", "after": "after training"}
SO_FAR = "best epoch so far"
CHECK_INTERVAL = "2s"


def evaluation_stamps(run: Run, part: str) -> data_cache.FileStamps:
    """Return the stamps of the files of an evaluation before or after training, which are written one by one."""
    arrays = [f"evaluation/{part}-{split}-{kind}.npy" for split in ("dev", "test") for kind in ("pairs", "queries")]
    names = (f"evaluation/{part}.json", f"{EVALUATION_SIZES}.json", f"{INTERVALS}.json", *arrays)
    return data_cache.file_stamps(*(run.folder / name for name in names))


@dataclass(frozen=True)
class Model:
    """Model of a run before or after training. `key` is unique and safe in a URL."""

    run: Run
    part: str

    @property
    def key(self) -> str:
        return f"{self.run.id}:{self.part}"

    @property
    def name(self) -> str:
        """When it was saved, and the name of its run."""
        return f"{self.when.capitalize()} · {short_id(self.run.id)}"

    @property
    def when(self) -> str:
        """One of PARTS, or SO_FAR for the model of a run that still trains."""
        return PARTS[self.part] if self.part == "before" or self.run.status().is_finished else SO_FAR

    @property
    def stamp(self) -> str:
        """The key and the stamps of its vectors and results; it changes when they do."""
        return f"{self.key} {data_cache.file_stamps(self.run.folder / f'embeddings_{self.part}.npy')}"

    def vectors(self) -> np.ndarray:
        """Return the (U, D) float32 vectors, mapped from disk.

        Raises:
            RunError: The run has no vectors yet.
        """
        array = self.run.embeddings(self.part)
        if array is None:
            raise RunError(f"run {self.run.id} has no vectors from {PARTS[self.part]} yet; wait until it is evaluated")
        return array

    def metrics(self) -> dict[str, float | None]:
        """Return its dev metrics from the run; {} when there are none yet."""
        results: dict[str, Any] = self.run.evaluation(self.part)
        return results.get("dev") or {}

    def evaluation(self, split: str) -> tuple[EvalResult, dict[str, Interval]]:
        """Return its results on a split, and the metrics with their intervals."""
        from bsc_core.run_results import load_results, run_intervals

        data, when = load_splits(self.run), self.part
        result = load_results(self.run, split, when=when, data=data)  # type: ignore[arg-type]
        return result, run_intervals(self.run, split, when=when, data=data)  # type: ignore[arg-type]

    def encoder(self) -> EncoderConfig:
        """Return how its model is loaded."""
        start = self.run.config().encoder
        if self.part == "before":
            return start
        return start.model_copy(update={"name": str(self.run.model_folder)})


@dataclass(frozen=True)
class EncoderModel:
    """An encoder on the texts of a dataset, without a run. `encoder_name`: as in `data_cache.encoder_config`."""

    dataset_key: str
    encoder_name: str
    name: str

    @property
    def key(self) -> str:
        return f"encoder:{self.encoder_name}"

    @property
    def stamp(self) -> str:
        """The key of its vectors."""
        digest = data_cache.dataset_splits(self.dataset_key).texts.digest
        return str(data_cache.vectors_key(self.encoder(), digest))

    @property
    def results_stamp(self) -> tuple[str, ...]:
        """The key of its metrics, which also depend on pairs, labels and documents."""
        data = data_cache.dataset_splits(self.dataset_key)
        return (self.stamp, *(part.digest for part in (*data.splits.values(), data.corpus) if part is not None))

    def vectors(self) -> np.ndarray:
        """Return the (U, D) float32 vectors, encoded now unless they are cached."""
        return data_cache.vectors(self.dataset_key, self.encoder_name)

    def metrics(self) -> dict[str, float | None]:
        """Return its dev metrics."""
        from bsc_core.evaluation import Evaluator

        evaluator = Evaluator(data_cache.dataset_splits(self.dataset_key), EvaluationConfig())
        return data_cache.shared_value(
            "encoder_metrics", self.results_stamp, lambda: evaluator.evaluate(self.vectors())["dev"]
        )

    def evaluation(self, split: str) -> tuple[EvalResult, dict[str, Interval]]:
        """Return its results on a split, and the metrics with their intervals."""
        from bsc_core.evaluation.evaluator import INTERVAL_SEED, evaluate_split, result_intervals

        data = data_cache.dataset_splits(self.dataset_key)
        dev = self.metrics()
        result = evaluate_split(self.vectors(), data.splits[split], data.corpus, split=split, dev=dev)
        return result, result_intervals(result, seed=INTERVAL_SEED)

    def encoder(self) -> EncoderConfig:
        """Return how it is loaded."""
        return data_cache.encoder_config(self.encoder_name)


AnyModel = Model | EncoderModel
STAMPS = {Model: lambda model: model.stamp, EncoderModel: lambda model: model.stamp}
"""Keys of cached functions: they change when the vectors do."""


def stamped_vectors(model: AnyModel) -> tuple[str, np.ndarray]:
    """Return the stamp of a model and the vectors that it is of: a run that trains can replace them at any time."""
    while True:
        stamp, vectors = model.stamp, model.vectors()
        if model.stamp == stamp:
            return stamp, vectors


def no_embeddings_text(run: Run, view: str) -> str:
    """Return why a run has no embeddings. view: what appears on the page once it has."""
    if run.status().is_finished:
        return "This run ended before its texts were encoded, so it has no embeddings. Select another run."
    return f"This run has no embeddings yet. {view} when they are computed."


def rerun_with_embeddings(run: Run) -> None:
    """Draw the page again as soon as an active run has embeddings, or has ended."""

    def check() -> None:
        if run.status().is_finished or models(run):
            st.rerun(scope="app")

    if not run.status().is_finished:
        turns.fragment(check, run_every=CHECK_INTERVAL)()


def encode_texts(models: Sequence[AnyModel]) -> None:
    """Encode the texts for encoders now: it can take minutes, in which no other page could compute in a turn."""
    for model in models:
        if isinstance(model, EncoderModel):
            model.vectors()


def run_colors(run_ids: Sequence[str]) -> list[str]:
    """Return the color of each run of a figure; a resumed run has the color of the run that it continues."""
    return theme.run_colors(_first_runs(run_ids), _all_runs())


def colors_alone(run_ids: Sequence[str]) -> list[str]:
    """Return the color of each run in a figure of its own."""
    order = _all_runs()
    return [theme.run_colors([run_id], order)[0] for run_id in _first_runs(run_ids)]


def _all_runs() -> list[str]:
    """Return all runs that do not continue another one, the oldest first.

    Those in the trash count, so that the other runs keep their colors when a run is deleted.
    """
    store = data_cache.run_store()
    runs = [*store.list(), *(one.run for one in jobs.list_trash(store))]
    by_age = sorted((status.created, run.id) for run in runs if not (status := run.status()).resumed_from)
    return [run_id for _, run_id in by_age]


def _first_runs(run_ids: Sequence[str]) -> list[str]:
    """Return for each run the one that it continues, directly or over others; the run itself if it is not resumed."""
    first: dict[str, str] = {}
    for run_id in run_ids:
        chain = [run_id]
        while chain[-1] not in first and (parent := _parent(chain[-1])) and parent not in chain:
            chain.append(parent)
        first |= dict.fromkeys(chain, first.get(chain[-1], chain[-1]))
    return [first[run_id] for run_id in run_ids]


def _parent(run_id: str) -> str | None:
    with suppress(BscError):  # it was deleted, or is not shared with the user
        store = data_cache.run_store()
        parent = store.get(run_id).status().resumed_from
        return parent if parent and store.get(parent) else None
    return None


def model_colors(models: Sequence[AnyModel]) -> list[str]:
    """Return the color of each model: that of its run after training, gray for the first untrained encoder."""
    colors = iter(run_colors([_source(model) for model in models]))
    untrained = next((model for model in models if not (isinstance(model, Model) and model.part == "after")), None)
    return [theme.REFERENCE if model is untrained else color for model, color in zip(models, colors, strict=True)]


def _source(model: AnyModel) -> str:
    return model.run.id if isinstance(model, Model) else model.key


def models(run: Run) -> list[Model]:
    """Return the models of a run that have vectors: before training, and after."""
    return [Model(run, part) for part in PARTS if run.embeddings(part) is not None]


def runs_on_same_texts(run: Run) -> list[Run]:
    """Return other runs on the same texts, whose vectors are comparable."""
    texts = run.read_json(TEXTS)
    others = data_cache.run_store().list() if texts else []
    same = []
    for other in others:
        with suppress(RunError):  # a damaged run is not offered
            same += [other] if other.id != run.id and other.read_json(TEXTS) == texts else []
    return same


def load_splits(run: Run) -> DatasetSplits:
    """Return the rows of the run with its marked false negatives.

    Raises:
        RunError: The data files have changed.
    """
    data = data_cache.load_splits(run.data_config(run.config().data))
    results = data_cache.file_stamps(run.folder / f"{EVALUATION_SIZES}.json", run.folder / f"{TEXTS}.json")
    parts = [part.digest for part in (data.texts, *data.splits.values(), data.corpus) if part is not None]
    _check_unchanged((str(run.folder), results, tuple(parts)), run, data)
    if any(len(model.vectors()) != len(data.texts) for model in models(run)):
        raise RunError(f"run {run.id}: its data files have changed since its vectors were computed; launch it again")
    return data


@st.cache_data(max_entries=256, show_spinner=False)
def _check_unchanged(key: tuple[Any, ...], _run: Run, _data: DatasetSplits) -> None:
    from bsc_core.run_results import check_unchanged

    check_unchanged(_run, _data)


def encode_queries(model: AnyModel, texts: list[str]) -> np.ndarray:
    """Return the (N, D) float32 vectors of queries that are not part of the run, with its prompt for queries."""
    import numpy as np

    from bsc_core.encoders import encode, tokenize

    config = data_cache.run_store().resolve_encoder(model.encoder())
    layers, seed = 0, 0
    if isinstance(model, Model) and model.part == "before":  # its random layers are not stored
        layers, seed = config.reinit_layers, model.run.config().training.seed
    encoder = _loaded_encoder(config, layers, seed)
    side: Literal["query"] | None = "query" if config.has_prompts else None
    parts = []
    for start in range(0, len(texts), QUERIES_AT_ONCE):
        with turns.turn(draw=False):
            tokens = tokenize(encoder, texts[start : start + QUERIES_AT_ONCE], config.max_seq_length, side=side)
            parts.append(encode(encoder, tokens))
    return np.concatenate(parts)


def encode_few_texts(config: EncoderConfig, texts: TextTable) -> np.ndarray:
    """Return the (U, D) float32 vectors of a few texts, which are not stored on disk."""
    from bsc_core.encoders import encode, tokenize

    encoder = _loaded_encoder(config)
    with turns.turn():
        return encode(encoder, tokenize(encoder, texts, config.max_seq_length))


def _loaded_encoder(config: EncoderConfig, layers: int = 0, seed: int = 0) -> Any:
    data_cache.confirm_download(config.name)  # a link, or a run folder from elsewhere, can name any model
    stamps = data_cache.file_stamps(config.name)
    return _encoder(config.model_dump_json(include=set(LOADING)), stamps, layers, seed)


@st.cache_resource(max_entries=MAX_ENCODERS, show_spinner="Loading the model; the first time takes about 10 s …")
def _encoder(config_json: str, stamps: data_cache.FileStamps, layers: int, seed: int) -> Any:
    """Return a model, loaded again when a file of its folder changes."""
    import sentence_transformers  # noqa: F401 - before `release_models`, which leaves out loaded packages

    from bsc_core.encoders.layers import load_initial_encoder

    data_cache.release_models()
    config = EncoderConfig.model_validate_json(config_json)
    return load_initial_encoder(config.model_copy(update={"reinit_layers": layers}), seed)
