"""What is to be known of a plan before it is made: settings that ask for more than the data hold."""

# N rows, T distinct texts on the grouped side

from __future__ import annotations

import numpy as np

from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset


def plan_notes(config: BatchingConfig, dataset: PairDataset) -> list[str]:
    """One sentence for each setting that is more than there is, and what is done instead; empty for most plans."""
    texts = len(np.unique(dataset.query if config.by == "query" else dataset.document))
    grouped = config.strategy in ("words", "clusters", "neighbours", "examples")
    notes = []
    if grouped and config.group_size > len(dataset):
        notes.append(f"group_size is {config.group_size:,} and there are {len(dataset):,} rows: no group can be full")
    asked = {"examples": config.neighbours, "neighbours": config.shingle_neighbours}.get(config.strategy, 0)
    name = "neighbours" if config.strategy == "examples" else "shingle_neighbours"
    if asked > texts - 1 and name in config.model_fields_set:
        notes.append(f"{name} is {asked:,} and a text has {texts - 1:,} others: all of them are looked at")
    return notes
