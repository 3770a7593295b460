"""A toy batch trained while one looks: it learns, it repeats, and what is drawn is what happened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from bsc_core.config import LossConfig
from bsc_core.errors import ConfigError
from bsc_core.lab.batch import LabBatch
from bsc_core.lab.circle import circle_batch
from bsc_core.lab.presets import preset_batch
from bsc_core.lab.watch import Watched, watch_points
from bsc_core.losses import build_loss


def loss(**values: Any) -> LossConfig:
    return TypeAdapter(LossConfig).validate_python(values)


@pytest.fixture(scope="module")
def batch() -> LabBatch:
    return circle_batch(pairs=8, spread=90, seed=1)


@pytest.mark.parametrize("name", ["bsc", "mnrl", "mse", "contrastive"])
def test_a_hundred_steps_bring_every_query_to_its_document(name: str, batch: LabBatch) -> None:
    watched = watch_points(batch, loss(name=name))
    assert watched.loss[-1] < 0.2 * watched.loss[0]
    assert watched.correct[0] < 1
    assert watched.correct[-1] == 1
    assert watched.points.shape == (101, 16, 2)
    assert all(np.isfinite(part).all() for part in (watched.points, watched.moves, watched.similarity, watched.loss))


def test_a_learned_temperature_moves_and_a_loss_without_one_has_none(batch: LabBatch) -> None:
    learned = watch_points(batch, loss(name="bsc", learn_temperature=True)).temperature
    assert learned[0] == pytest.approx(0.1)
    assert learned[-1] < 0.095
    assert (watch_points(batch, loss(name="bsc")).temperature == np.float32(0.1)).all()
    assert np.isnan(watch_points(batch, loss(name="mse")).temperature).all()


def test_the_first_arrows_are_the_negative_gradient(batch: LabBatch) -> None:
    config = loss(name="bsc", temperature=0.3)
    watched = watch_points(batch, config, steps=1)
    module = build_loss(config)

    def value(points: np.ndarray) -> float:
        sides = torch.tensor(points)
        return float(module(sides[:8], sides[8:], torch.ones(8)).total)

    points, step = np.concatenate([batch.queries, batch.documents]), 1e-6
    for place in ((0, 0), (3, 1), (11, 0)):
        moved = np.zeros_like(points)
        moved[place] = step
        slope = (value(points + moved) - value(points - moved)) / (2 * step)
        assert watched.moves[0][place] == pytest.approx(-slope, rel=1e-3, abs=1e-5)


def test_the_same_batch_and_loss_are_watched_alike(batch: LabBatch) -> None:
    first, second = (watch_points(batch, loss(name="bsc"), steps=5) for _ in range(2))
    assert (first.points == second.points).all()


def test_vectors_of_many_dimensions_are_drawn_in_one_plane() -> None:
    watched: Watched = watch_points(preset_batch("confusable"), loss(name="bsc"), steps=3)
    assert watched.points.shape == (4, 12, 2)
    batch = preset_batch("confusable")
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (batch.queries, batch.documents)]
    np.testing.assert_allclose(watched.similarity[0], unit[0] @ unit[1].T, atol=1e-5)


@pytest.mark.parametrize(
    ("values", "settings", "words"),
    [
        ({"name": "triplet"}, {}, "triplet needs negatives"),
        ({"name": "softmax"}, {}, "softmax needs classes"),
        ({"name": "bsc"}, {"steps": 0}, "steps is 0"),
        ({"name": "bsc"}, {"steps": 10_000}, "steps is 10000"),
        ({"name": "bsc"}, {"learning_rate": 0.0}, "learning_rate is 0"),
    ],
)
def test_what_cannot_be_watched_is_refused(values, settings, words: str, batch: LabBatch) -> None:
    with pytest.raises(ConfigError, match=words):
        watch_points(batch, loss(**values), **settings)


def test_words_shared_by_texts_move_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from bsc_core.lab import watch

    shares = np.eye(8, 5, dtype=np.float32)
    shares[5:] = 0.2
    table = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    monkeypatch.setattr(watch, "_tokens", lambda texts: (shares, table))
    watched = watch.watch_words(circle_batch(pairs=4), loss(name="bsc"), steps=20)
    assert (watched.points[:, 5] == watched.points[:, 6]).all()
    assert (watched.points[-1] != watched.points[0]).any()
