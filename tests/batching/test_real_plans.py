"""Every strategy on public datasets as people have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bsc_core.batching import STRATEGIES, KnownPairs, build_plan
from bsc_core.config import BatchingConfig, DataConfig
from bsc_core.data import load_data

SETS: dict[str, dict[str, Any]] = {
    "cqa_a": {},
    "pfcc_s": {},
    "stsb": {"label_max": 5},
    "snli": {},
    "sst2": {"examples": {}},
}
ROWS = 1500


@pytest.mark.parametrize("name", SETS)
def test_every_strategy_uses_every_row_once_and_no_duplicates_prevents_collisions(shared_data: Path, name: str) -> None:
    file = "sentences.tsv.gz" if name == "sst2" else "pairs.tsv.gz"
    train = load_data(DataConfig(train=str(shared_data / name / file), **SETS[name]), seed=0).train
    train = train.take(np.arange(min(ROWS, len(train)))).compact()
    vectors = np.random.default_rng(0).normal(size=(len(train.texts), 16)).astype(np.float32)
    known = KnownPairs(train)
    for strategy in STRATEGIES:
        config = BatchingConfig(strategy=strategy, clusters=20, no_duplicates=strategy != "premises")
        plan = build_plan(config, train, vectors, seed=0, epoch=0)
        batches = plan.batches(32)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(train)))
        if strategy in ("words", "clusters", "neighbors", "examples"):
            assert np.unique(plan.groups, return_counts=True)[1].max() <= 8
        if strategy == "premises":
            assert len(np.unique(plan.groups)) == len(np.unique(train.query_group))
        else:
            assert not any(known.collisions(batch).any() for batch in batches)
