"""At the limits of their numbers losses give the right value or one clear sentence, never NaN."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from bsc_core.config import BSCLossConfig
from bsc_core.errors import CheckpointError, InputError, TrainingError
from bsc_core.losses import load_loss, save_loss
from bsc_core.losses.explain import explain, normalize
from bsc_core.losses.kernel.normalization import NORMALIZATIONS, l2, l2_columns
from tests.losses import oracles

CLASSES = torch.tensor([0, 1, 2, 0])
loss_of = partial(oracles.loss_of, dimensions=5)


@pytest.mark.parametrize("size", [1e-25, 1e-12, 1.0, 1e12, 1e20, 1e37])
def test_rows_of_any_length_have_a_direction(size: float) -> None:
    rows = torch.tensor([[3.0, 4.0], [-1.0, 0.0], [0.0, 0.0]])
    scaled = (rows * size).requires_grad_(True)
    unit = l2(scaled)
    torch.testing.assert_close(unit, torch.tensor([[0.6, 0.8], [-1.0, 0.0], [0.0, 0.0]]))
    unit[:, 0].sum().backward()
    assert scaled.grad is not None
    expected = torch.tensor([[0.64, -0.48], [0.0, 0.0], [0.0, 0.0]]) / torch.tensor([[5.0], [1.0], [1.0]])
    torch.testing.assert_close(scaled.grad * size, expected)


@pytest.mark.parametrize("normalization", ["l2_columns", "range_columns", "minmax_columns"])
def test_a_column_of_rounding_errors_is_constant_whatever_the_scale(normalization: str) -> None:
    noise = 5e-8 * torch.tensor([1.0, -1.0, 1.0, -1.0])
    vectors = torch.stack([torch.tensor([0.5, -1.0, 2.0, 0.1]), noise], dim=1)
    for scale in (1e-6, 1.0, 1e6):
        columns = NORMALIZATIONS[normalization](scale * vectors, False)
        assert columns[:, 0].abs().max() > 0.5
        assert (columns[:, 1] == 0).all()
        np.testing.assert_allclose(normalize(scale * vectors.double().numpy(), normalization), columns, atol=1e-6)


def test_columns_of_any_length_have_a_scale() -> None:
    columns = torch.tensor([[3.0, 1.0], [4.0, 0.0]])
    torch.testing.assert_close(l2_columns(columns * 1e20), torch.tensor([[0.6, 1.0], [0.8, 0.0]]))


@pytest.mark.parametrize("size", [1e-25, 1e20])
def test_regression_sees_the_cosine_of_long_and_short_vectors(size: float) -> None:
    ones = torch.ones(2, 16) * size
    assert float(loss_of(name="mse")(ones, ones, torch.ones(2)).total) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"name": "bsc", "normalization": "none"}, 1e20),
        ({"name": "supcon", "normalization": "none"}, 1e30),
        ({"name": "triplet", "distance": "euclidean"}, 1e30),
        ({"name": "contrastive", "distance": "euclidean"}, 1e30),
    ],
)
def test_scores_beyond_the_range_of_their_numbers_are_reported(config: dict, size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    queries, documents = (torch.randn(4, 5, generator=generator) * size for _ in range(2))
    given = torch.cat([documents, -documents]) if config["name"] == "triplet" else documents
    labels = torch.tensor([1.0, 0.0, 1.0, 0.0])
    with pytest.raises(TrainingError, match="exceed the range of their number format"):
        loss_of(**config)(queries, given, labels, classes=CLASSES)


def test_a_learned_temperature_that_became_nan_is_reported() -> None:
    loss = loss_of(name="bsc", learn_temperature=True)
    loss.temperature.log_temperature.data.fill_(torch.nan)
    with pytest.raises(TrainingError, match="the loss is nan"):
        loss(torch.randn(4, 5), torch.randn(4, 5))


@pytest.mark.parametrize("temperature", [1e-45, 1e-320, 1e30])
def test_a_temperature_out_of_range_is_refused_by_the_config(temperature: float) -> None:
    with pytest.raises(ValidationError, match="temperature is"):
        BSCLossConfig(temperature=temperature)


def test_explaining_scores_beyond_the_range_is_refused() -> None:
    vectors = np.full((3, 2), 1e200)
    with pytest.raises(InputError, match="choose normalization l2"):
        explain(vectors, vectors, config=BSCLossConfig(normalization="none"))
    with pytest.raises(InputError, match="query_ids are"):
        explain(np.eye(3), np.eye(3), config=BSCLossConfig(duplicates="merge"), query_ids=[1], document_ids=[1, 2, 3])


@pytest.mark.parametrize("name", ["softmax", "supcon"])
def test_a_head_takes_embeddings_in_float64_and_refuses_another_width(name: str) -> None:
    loss = loss_of(name=name)
    queries, documents = torch.randn(4, 5).double(), torch.randn(4, 5).double()
    assert torch.isfinite(loss(queries, documents, classes=CLASSES).total)
    with pytest.raises(InputError, match="the head expects embeddings of 5 dimensions, and these have 6"):
        loss(torch.randn(4, 6), torch.randn(4, 6), classes=CLASSES)


def test_premise_ids_of_the_wrong_number_are_refused() -> None:
    with pytest.raises(InputError, match="query_ids are"):
        loss_of(name="supcon")(torch.randn(4, 5), torch.randn(4, 5), classes=CLASSES, query_ids=torch.tensor([1, 2]))


@pytest.mark.parametrize("order", [1, -1])
def test_a_sum_with_two_kinds_of_heads_is_saved_and_read_back(tmp_path: Path, order: int) -> None:
    parts = [{"loss": {"name": "supcon"}}, {"loss": {"name": "softmax", "features": ["u", "v"]}}][::order]
    loss = loss_of(name="combined", preset="custom", parts=parts)
    save_loss(loss, tmp_path)
    read = load_loss(tmp_path)
    assert all(torch.equal(read.state_dict()[name], value) for name, value in loss.state_dict().items())


def test_a_sum_keeps_the_threshold_of_its_data(tmp_path: Path) -> None:
    loss = oracles.loss_of(name="combined", threshold=0.9)
    save_loss(loss, tmp_path)
    assert load_loss(tmp_path).losses[0].threshold == 0.9


def test_a_head_without_weights_is_not_saved(tmp_path: Path) -> None:
    loss = oracles.loss_of(name="softmax")
    with pytest.raises(CheckpointError, match="before its first batch"):
        save_loss(loss, tmp_path / "loss")
    assert not (tmp_path / "loss").exists()
