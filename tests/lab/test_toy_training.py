"""Toy training: it learns, it is deterministic, and its trace is correct."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from bsc_core.config import LossConfig
from bsc_core.errors import ConfigError
from bsc_core.lab.batch import LabBatch, circle_batch
from bsc_core.lab.presets import preset_batch
from bsc_core.lab.settings import explain_batch
from bsc_core.lab.toy_training import TrainingTrace, train_points
from bsc_core.losses import build_loss


def loss(**values: Any) -> LossConfig:
    return TypeAdapter(LossConfig).validate_python(values)


@pytest.fixture(scope="module")
def batch() -> LabBatch:
    return circle_batch(pairs=8, spread=90, seed=1)


@pytest.mark.parametrize("name", ["bsc", "mnrl", "mse", "triplet", "contrastive"])
def test_a_hundred_steps_move_every_query_to_its_document(name: str, batch: LabBatch) -> None:
    trace = train_points(batch, loss(name=name))
    assert trace.loss[-1] < 0.2 * trace.loss[0]
    assert trace.correct[0] < 1
    assert trace.correct[-1] == 1
    assert trace.points.shape == (101, 16, 2)
    assert all(np.isfinite(part).all() for part in (trace.points, trace.moves, trace.similarity, trace.loss))


def test_a_learned_temperature_moves_and_a_loss_without_one_has_none(batch: LabBatch) -> None:
    learned = train_points(batch, loss(name="bsc", learn_temperature=True)).temperature
    assert learned[0] == pytest.approx(0.1)
    assert learned[-1] < 0.095
    assert (train_points(batch, loss(name="bsc")).temperature == np.float32(0.1)).all()
    assert np.isnan(train_points(batch, loss(name="mse")).temperature).all()


def test_the_first_arrows_are_the_negative_gradient(batch: LabBatch) -> None:
    config = loss(name="bsc", temperature=0.3)
    trace = train_points(batch, config, steps=1)
    module = build_loss(config)

    def value(points: np.ndarray) -> float:
        sides = torch.tensor(points)
        return float(module(sides[:8], sides[8:], torch.ones(8)).total)

    points, step = np.concatenate([batch.queries, batch.documents]), 1e-6
    for cell in ((0, 0), (3, 1), (11, 0)):
        moved = np.zeros_like(points)
        moved[cell] = step
        slope = (value(points + moved) - value(points - moved)) / (2 * step)
        assert trace.moves[0][cell] == pytest.approx(-slope, rel=1e-3, abs=1e-5)


def test_the_same_batch_and_loss_give_the_same_trace(batch: LabBatch) -> None:
    first, second = (train_points(batch, loss(name="bsc"), steps=5) for _ in range(2))
    assert (first.points == second.points).all()


def test_a_guide_judges_the_negatives_of_the_toy_training() -> None:
    batch = preset_batch("confusable")
    trace = train_points(batch, loss(name="bsc", mask="guide", mask_margin=0.1), steps=1)
    assert trace.loss[0] == pytest.approx(explain_batch(batch, mask="guide", mask_margin=0.1).total, rel=1e-5)
    assert trace.loss[0] < explain_batch(batch).total


def test_vectors_of_many_dimensions_are_projected_on_one_plane() -> None:
    trace: TrainingTrace = train_points(preset_batch("confusable"), loss(name="bsc"), steps=3)
    assert trace.points.shape == (4, 12, 2)
    batch = preset_batch("confusable")
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (batch.queries, batch.documents)]
    np.testing.assert_allclose(trace.similarity[0], unit[0] @ unit[1].T, atol=1e-5)


def test_the_smallest_gap_separates_a_softmax_from_squared_error(batch: LabBatch) -> None:
    softmax, squared = (train_points(batch, loss(name=name)) for name in ("bsc", "mse"))
    assert softmax.gap.shape == (101,)
    cosines = softmax.similarity[-1]
    others = np.where(np.eye(8, dtype=bool), -np.inf, cosines).max(axis=1)
    assert softmax.gap[-1] == pytest.approx((np.diagonal(cosines) - others).min(), abs=1e-6)
    assert softmax.gap[-1] > squared.gap[-1]


def test_a_loss_of_classes_is_an_error(batch: LabBatch) -> None:
    with pytest.raises(ConfigError, match="softmax needs classes"):
        train_points(batch, loss(name="softmax"))


def test_texts_with_the_same_tokens_move_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from bsc_core.lab import toy_training

    shares = np.eye(8, 5, dtype=np.float32)
    shares[5:] = 0.2
    table = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    monkeypatch.setattr(toy_training, "_tokens", lambda texts: (shares, table))
    trace = toy_training.train_tokens(circle_batch(pairs=4), loss(name="bsc"), steps=20)
    assert (trace.points[:, 5] == trace.points[:, 6]).all()
    assert (trace.points[-1] != trace.points[0]).any()
