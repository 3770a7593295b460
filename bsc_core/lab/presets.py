"""Preset batches of the lab: rows of the sample data with stored vectors of the bundled encoder.

`python -m bsc_core.lab.presets` writes the vectors to sample_data/lab.npz, so that the page loads no encoder.
"""

# B pairs, D dimensions

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.data.io.read_pairs import read_pairs
from bsc_core.errors import ConfigError
from bsc_core.lab.batch import LabBatch
from bsc_core.paths import sample_data_folder

if TYPE_CHECKING:
    from bsc_core.data.dataset import PairDataset

VECTORS = "lab.npz"
GUIDE, GUIDED = "static", "guide/"
"""Guide model of the mask `guide`, and the prefix of the names of its vectors."""


@dataclass(frozen=True)
class BatchPreset:
    """A preset batch: title, purpose, and the rows of its file (from 0; a row may repeat).

    Its document `longer` (from 0) has STRETCH times the length of the others. couples: whether rows 1 and 2, 3 and 4
    and so on have the same answer in different words.
    """

    title: str
    shows: str
    file: str
    rows: tuple[int, ...]
    longer: int | None = None
    couples: bool = False


STRETCH = 3.0
CONFUSABLE = (759, 739, 355, 718, 236, 359)
PRESETS: dict[str, BatchPreset] = {
    "confusable": BatchPreset(
        "Questions that are easily confused",
        "Six queries with similar documents, which the softmax has to distinguish.",
        "pairs.tsv",
        CONFUSABLE,
    ),
    "easy": BatchPreset(
        "Questions about different things",
        "Six queries on six topics: easy negatives, which have small gradients.",
        "pairs.tsv",
        (0, 214, 285, 495, 633, 770),
    ),
    "near_misses": BatchPreset(
        "Hard negatives as labeled negatives",
        "Queries with all their labeled documents: one is relevant, the others are hard negatives.",
        "pairs.tsv",
        (828, 829, 830, 142, 143, 144, 54, 55),
    ),
    "repeats": BatchPreset(
        "Repeated pairs",
        "Some pairs are in the batch twice, so that a relevant document counts as a negative.",
        "pairs.tsv",
        (759, 739, 355, 718, 759, 739),
    ),
    "paraphrases": BatchPreset(
        "False negatives in other words",
        "Queries 1 and 2 have the same answer in different words, also 3 and 4, and so on: each has a false negative.",
        "paraphrases.tsv",
        tuple(range(10)),
        couples=True,
    ),
    "stretched": BatchPreset(
        "One document with a long vector",
        "The vector of document 3 is longer than the others: without normalization, it ranks first for most queries.",
        "pairs.tsv",
        CONFUSABLE,
        longer=2,
    ),
    "inference": BatchPreset(
        "Premises with three hypotheses",
        "Each premise has a row with an entailed (positive), a neutral and a contradicting hypothesis.",
        "nli.tsv",
        (0, 1, 2, 3, 4, 5, 6, 7, 8),
    ),
}


LESSON_ROWS = {
    "sixteen": ("pairs.tsv", (*CONFUSABLE, 0, 71, 142, 214, 285, 425, 495, 564, 633, 770)),
    "graded": ("pairs.tsv", tuple(range(81))),
    "graded_held_out": ("pairs.tsv", tuple(range(81, 161))),
    "classes": ("nli.tsv", tuple(range(60))),
    "classes_held_out": ("nli.tsv", tuple(range(60, 120))),
    "questions": ("pairs.tsv", tuple(range(425))),
    "questions_held_out": ("pairs.tsv", tuple(range(425, 633))),
}
"""Additional rows with stored vectors, for the lessons."""
POSITIVE_ONLY = ("questions", "questions_held_out")
"""Of these only the positive pairs."""


@cache
def thumbnails() -> dict[str, Any]:
    """Return the shipped numbers of the sample data, computed by `python -m bsc_core.presets.thumbnails`."""
    values: dict[str, Any] = json.loads((sample_data_folder() / "thumbnails.json").read_text(encoding="utf-8"))
    return values


def preset_batch(name: str, folder: Path | None = None) -> LabBatch:
    """Return a preset batch with its texts, labels and the stored vectors of encoder and guide.

    Raises:
        ConfigError: The preset is unknown.
    """
    if name not in PRESETS:
        raise ConfigError(f"preset is {name[:40]!r}; it must be one of {', '.join(PRESETS)}")
    dataset, vectors = sample_rows(name, folder)
    batch, longer = rows_batch(PRESETS[name].title, dataset, vectors), PRESETS[name].longer
    if longer is not None:
        batch.documents[longer] *= STRETCH
    guide = _stored(GUIDED + name, folder or sample_data_folder()).astype(np.float64)
    known = tuple((row, row ^ 1) for row in range(len(batch))) if PRESETS[name].couples else ()
    return replace(batch, guide=(guide[dataset.query], guide[dataset.document]), false_negatives=known)


def sample_rows(name: str, folder: Path | None = None) -> tuple[PairDataset, NDArray[np.float32]]:
    """Return the pairs of a preset or lesson, and the stored vectors of their texts (U, D)."""
    folder = folder or sample_data_folder()
    return _read_rows(name, folder), _stored(name, folder)


@cache
def _stored(name: str, folder: Path) -> NDArray[np.float32]:
    with np.load(folder / VECTORS) as arrays:
        vectors: NDArray[np.float32] = arrays[name]
    return vectors


def rows_batch(title: str, dataset: PairDataset, vectors: NDArray[np.float32]) -> LabBatch:
    """Return a batch of 4 to 16 pairs.

    Args:
        title: Title of the batch.
        dataset: The pairs; without labels, all are positive.
        vectors: (U, D), row t for text t of the dataset.
    """
    return LabBatch(
        title=title,
        queries=vectors[dataset.query].astype(np.float64),
        documents=vectors[dataset.document].astype(np.float64),
        labels=np.ones(len(dataset)) if dataset.label is None else dataset.label.astype(np.float64),
        query_texts=tuple(dataset.texts.take(dataset.query)),
        document_texts=tuple(dataset.texts.take(dataset.document)),
    )


def embed_presets(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Return the vectors (U, D) of the rows of each preset and lesson, from the bundled encoder.

    The vectors of a preset from the guide have GUIDED before their name.
    """
    from bsc_core.encoders import embed

    texts = {name: _read_rows(name, folder).texts for name in (*PRESETS, *LESSON_ROWS)}
    vectors = {name: embed("bundled", rows) for name, rows in texts.items()}
    return vectors | {GUIDED + name: embed(GUIDE, texts[name]) for name in PRESETS}


@cache
def _read_rows(name: str, folder: Path) -> PairDataset:
    file, rows = LESSON_ROWS[name] if name in LESSON_ROWS else (PRESETS[name].file, PRESETS[name].rows)
    dataset = read_pairs(folder / file).take(np.asarray(rows))
    return (dataset.take(np.flatnonzero(dataset.positive)) if name in POSITIVE_ONLY else dataset).compact()


if __name__ == "__main__":
    home = sample_data_folder()
    np.savez_compressed(home / VECTORS, **embed_presets(home))  # type: ignore[arg-type]
