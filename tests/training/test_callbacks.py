"""Vectors of some texts that a run saves after each epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bsc_core.config import EvaluationConfig, RunConfig
from bsc_core.data import DatasetSplits, load_data
from bsc_core.neighbors import unit_rows
from bsc_core.pipeline import run_experiment
from bsc_core.projection import sample_texts
from bsc_core.runs import Run, RunStore
from bsc_core.runs.store import EPOCH_TEXTS, epoch_array, saved_epochs
from bsc_core.training.callbacks import save_epoch_vectors


@pytest.fixture
def data(small_config: RunConfig) -> DatasetSplits:
    return load_data(small_config.data)


@pytest.fixture
def run(tmp_path: Path, small_config: RunConfig) -> Run:
    run = RunStore(tmp_path / "runs").create(small_config)
    run.update_status(epoch=2)
    return run


def test_saved_vectors_have_the_cosines_of_the_vectors(run: Run, data: DatasetSplits) -> None:
    vectors = 30 * np.random.default_rng(0).normal(size=(len(data.texts), 24)).astype(np.float32)
    save_epoch_vectors(run, 1, vectors, data, EvaluationConfig(epoch_texts=7))
    texts, saved = run.array(EPOCH_TEXTS), run.array(epoch_array(1))
    assert texts is not None
    assert saved is not None
    assert (saved.shape, saved.dtype) == ((7, 24), np.float16)
    assert texts.tolist() == sample_texts(data, 7).tolist()
    units = unit_rows(vectors[texts])
    assert np.allclose(unit_rows(saved) @ unit_rows(saved).T, units @ units.T, atol=1e-3)
    assert saved_epochs(run) == [1]


@pytest.mark.parametrize("config", [EvaluationConfig(epoch_texts=0), EvaluationConfig(each_epoch=False)])
def test_nothing_is_saved_if_the_config_does_not_request_it(
    run: Run, data: DatasetSplits, config: EvaluationConfig
) -> None:
    save_epoch_vectors(run, 1, np.ones((len(data.texts), 3), np.float32), data, config)
    assert run.array(EPOCH_TEXTS) is None
    assert saved_epochs(run) == []


def test_a_run_saves_every_epoch_and_its_final_vectors_are_those_of_the_best(
    tmp_path: Path, small_config: RunConfig
) -> None:
    run = RunStore(tmp_path / "runs").create(small_config)
    result = run_experiment(small_config, run)
    assert saved_epochs(run) == list(range(1, small_config.training.epochs + 1))
    texts, after = run.array(EPOCH_TEXTS), run.array("embeddings_after")
    assert texts is not None
    assert after is not None
    best = run.array(epoch_array(result["best_epoch"]))
    assert np.allclose(best, unit_rows(after[texts]), atol=2e-3)


def test_texts_of_pairs_come_before_those_of_the_corpus(data: DatasetSplits) -> None:
    paired = {int(text) for part in data.splits.values() for text in (*part.query, *part.document)}
    assert set(sample_texts(data, 5).tolist()) <= paired
    assert sample_texts(data, 10**6).tolist() == list(range(len(data.texts)))
