"""The batches that the lab ships with: rows of the sample data and their vectors from the bundled encoder.

`python -m bsc_core.lab.presets` writes the vectors into sample_data/lab.npz, since the page must not load an encoder.
"""

# B pairs, D dimensions

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bsc_core.data.places import sample_data_folder
from bsc_core.data.readers import read_pairs
from bsc_core.errors import ConfigError
from bsc_core.lab.batch import LabBatch

if TYPE_CHECKING:
    from bsc_core.data.pairs import PairDataset

VECTORS = "lab.npz"


@dataclass(frozen=True)
class Preset:
    """A shipped batch: what it is, what it shows, and which rows of which file it holds (from 0; a row may repeat)."""

    title: str
    shows: str
    file: str
    rows: tuple[int, ...]


PRESETS: dict[str, Preset] = {
    "confusable": Preset(
        "Questions that are easily confused",
        "Six questions whose answers lie close together, so that the softmax has to decide.",
        "pairs.tsv",
        (759, 739, 355, 718, 236, 359),
    ),
    "easy": Preset(
        "Questions about different things",
        "Six questions of six topics: negatives that cost nothing and teach nothing.",
        "pairs.tsv",
        (0, 214, 285, 495, 633, 770),
    ),
    "near_misses": Preset(
        "Near misses as labelled negatives",
        "Questions with all of their labelled answers: only one is right, the others stay as hard choices.",
        "pairs.tsv",
        (828, 829, 830, 142, 143, 144, 54, 55),
    ),
    "repeats": Preset(
        "Repeated pairs",
        "Some pairs stand in the batch twice, so that a right answer is counted as wrong.",
        "pairs.tsv",
        (759, 739, 355, 718, 759, 739),
    ),
    "inference": Preset(
        "Premises with three hypotheses",
        "Three premises, each with an entailed, a neutral and a contradicting hypothesis; only the first is positive.",
        "nli.tsv",
        (0, 1, 2, 3, 4, 5, 6, 7, 8),
    ),
}


LESSON_ROWS = {
    "graded": ("pairs.tsv", tuple(range(40))),
    "classes": ("nli.tsv", tuple(range(36))),
}
"""More rows with shipped vectors, for the lessons that train on them."""


def preset_batch(name: str, folder: Path | None = None) -> LabBatch:
    """A shipped batch with its texts, labels and vectors; no encoder is loaded.

    Raises ConfigError for an unknown name.
    """
    if name not in PRESETS:
        raise ConfigError(f"preset is {name!r}; it must be one of {', '.join(PRESETS)}")
    return rows_batch(PRESETS[name].title, *shipped_rows(name, folder))


def shipped_rows(name: str, folder: Path | None = None) -> tuple[PairDataset, NDArray[np.float32]]:
    """Pairs of the sample data by the name of their preset or lesson, and the vectors of their texts (U, D)."""
    folder = folder or sample_data_folder()
    file, rows = LESSON_ROWS[name] if name in LESSON_ROWS else (PRESETS[name].file, PRESETS[name].rows)
    dataset = read_pairs(folder / file).take(np.asarray(rows)).compact()
    with np.load(folder / VECTORS) as arrays:
        vectors: NDArray[np.float32] = arrays[name]
    return dataset, vectors


def rows_batch(title: str, dataset: PairDataset, vectors: NDArray[np.float32]) -> LabBatch:
    """A batch of 4 to 16 pairs with the vectors of their texts. vectors: (U, D), row t for text t of the dataset."""
    return LabBatch(
        title=title,
        queries=vectors[dataset.query].astype(np.float64),
        documents=vectors[dataset.document].astype(np.float64),
        labels=np.ones(len(dataset)) if dataset.label is None else dataset.label.astype(np.float64),
        query_texts=tuple(dataset.texts.take(dataset.query)),
        document_texts=tuple(dataset.texts.take(dataset.document)),
    )


def make_vectors(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The vectors of all shipped rows from the bundled encoder, by name, (U, D) each."""
    from bsc_core.encoders import embed

    sets = {name: (preset.file, preset.rows) for name, preset in PRESETS.items()} | LESSON_ROWS
    datasets = {name: read_pairs(folder / file).take(np.asarray(rows)).compact() for name, (file, rows) in sets.items()}
    return {name: embed("bundled", dataset.texts) for name, dataset in datasets.items()}


if __name__ == "__main__":
    home = sample_data_folder()
    np.savez_compressed(home / VECTORS, **make_vectors(home))  # type: ignore[arg-type]
