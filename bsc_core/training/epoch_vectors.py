"""The vectors of some texts after each epoch, kept small in the run's folder, so that a map can move."""

# N texts kept, U distinct texts, D dimensions

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bsc_core.config import EvaluationConfig
from bsc_core.data import ExperimentData
from bsc_core.projection import drawn_texts, unit_vectors

if TYPE_CHECKING:
    from bsc_core.runs import Run

TEXTS = "vectors/texts"


def name_of(epoch: int) -> str:
    """The name of the array of an epoch (from 1) in a run's folder."""
    return f"vectors/epoch-{epoch:03d}"


def keep_vectors(
    run: Run, epoch: int, vectors: NDArray[np.float32], data: ExperimentData, config: EvaluationConfig
) -> None:
    """Write the vectors (U, D) of at most `config.epoch_texts` texts as unit rows of float16: (N, D), 2 N D bytes.

    Their text ids (N,) int32, ascending, are the array `vectors/texts`, the same for every epoch. Nothing is written
    where epochs are not measured, or where `epoch_texts` is 0. Cosines of what is kept are off by about 1e-3 at most.
    """
    if not (config.each_epoch and config.epoch_texts):
        return
    texts = drawn_texts(data, config.epoch_texts)
    if run.array(TEXTS) is None:
        run.write_array(TEXTS, texts)
    run.write_array(name_of(epoch), unit_vectors(vectors[texts]).astype(np.float16))


def kept_epochs(run: Run) -> list[int]:
    """The epochs whose vectors the run has kept, ascending; those it left behind when it was resumed come again."""
    last = run.status().epoch or 0
    return [epoch for epoch in range(1, last + 1) if run.array(name_of(epoch)) is not None]
