"""A run keeps the vectors of some texts after each epoch, small, and says which texts and which epochs they are of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bsc_core.config import EvaluationConfig, RunConfig
from bsc_core.data import SPLIT_SEED, ExperimentData, load_data
from bsc_core.pipeline import run_experiment
from bsc_core.projection import drawn_texts, unit_vectors
from bsc_core.runs import Run, RunStore
from bsc_core.training.epoch_vectors import TEXTS, keep_vectors, kept_epochs, name_of


@pytest.fixture
def data(small_config: RunConfig) -> ExperimentData:
    return load_data(small_config.data, seed=SPLIT_SEED)


@pytest.fixture
def run(tmp_path: Path, small_config: RunConfig) -> Run:
    run = RunStore(tmp_path / "runs").create(small_config)
    run.update_status(epoch=2)
    return run


def test_cosines_of_what_is_kept_are_those_of_the_vectors(run: Run, data: ExperimentData) -> None:
    vectors = 30 * np.random.default_rng(0).normal(size=(len(data.texts), 24)).astype(np.float32)
    keep_vectors(run, 1, vectors, data, EvaluationConfig(epoch_texts=7))
    texts, kept = run.array(TEXTS), run.array(name_of(1))
    assert texts is not None
    assert kept is not None
    assert (kept.shape, kept.dtype) == ((7, 24), np.float16)
    assert texts.tolist() == drawn_texts(data, 7).tolist()
    units = unit_vectors(vectors[texts])
    assert np.allclose(unit_vectors(kept) @ unit_vectors(kept).T, units @ units.T, atol=1e-3)
    assert kept_epochs(run) == [1]


@pytest.mark.parametrize("config", [EvaluationConfig(epoch_texts=0), EvaluationConfig(each_epoch=False)])
def test_nothing_is_kept_where_nobody_asks(run: Run, data: ExperimentData, config: EvaluationConfig) -> None:
    keep_vectors(run, 1, np.ones((len(data.texts), 3), np.float32), data, config)
    assert run.array(TEXTS) is None
    assert kept_epochs(run) == []


def test_a_run_keeps_every_epoch_and_its_best_is_what_it_ends_with(tmp_path: Path, small_config: RunConfig) -> None:
    run = RunStore(tmp_path / "runs").create(small_config)
    result = run_experiment(small_config, run)
    assert kept_epochs(run) == list(range(1, small_config.training.epochs + 1))
    texts, after = run.array(TEXTS), run.array("embeddings_after")
    assert texts is not None
    assert after is not None
    best = run.array(name_of(result["best_epoch"]))
    assert np.allclose(best, unit_vectors(after[texts]), atol=2e-3)


def test_texts_of_pairs_come_before_those_of_the_corpus(data: ExperimentData) -> None:
    paired = {int(text) for part in data.parts.values() for text in (*part.query, *part.document)}
    assert set(drawn_texts(data, 5).tolist()) <= paired
    assert drawn_texts(data, 10**6).tolist() == list(range(len(data.texts)))
