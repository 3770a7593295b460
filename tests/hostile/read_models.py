"""Load every model of a folder and write the outcome of each as JSON: python read_models.py FOLDER."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import sentence_transformers  # noqa: F401  (imported before the memory is measured)

from bsc_core.config import EncoderConfig
from bsc_core.encoders import load_encoder
from tests.hostile.outcomes import outcome, write_outcomes


def dimensions(folder: Path) -> str:
    """Return the number of dimensions of a model."""
    model = load_encoder(EncoderConfig(name=str(folder), max_seq_length=16))
    return f"{model.get_embedding_dimension()} dimensions"


if __name__ == "__main__":
    write_outcomes(lambda path: outcome(partial(dimensions, path / "model")))
