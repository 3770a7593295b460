"""Learned temperature, its bounds and its state; inputs that a loss refuses."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from bsc_core.config import BSCLossConfig
from bsc_core.errors import InputError
from bsc_core.losses import BSCLoss
from bsc_core.losses.kernel.temperature import LearnedTemperature

QUERIES = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
DOCUMENTS = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))


def test_fixed_temperature_is_kept_exactly_and_has_no_parameter() -> None:
    loss = BSCLoss(BSCLossConfig(temperature=0.055))
    assert loss.temperature.value == 0.055
    assert list(loss.parameters()) == []


def test_learned_temperature_starts_where_the_config_says_and_gives_the_same_loss() -> None:
    learned = BSCLoss(BSCLossConfig(temperature=0.07, learn_temperature=True))
    fixed = BSCLoss(BSCLossConfig(temperature=0.07))
    assert learned.temperature.value == pytest.approx(0.07)
    assert learned(QUERIES, DOCUMENTS).total.item() == pytest.approx(fixed(QUERIES, DOCUMENTS).total.item(), rel=1e-6)


def test_learned_temperature_descends_the_loss() -> None:
    loss = BSCLoss(BSCLossConfig(temperature=1.0, learn_temperature=True))
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
    values = []
    for _ in range(20):
        optimizer.zero_grad()
        total = loss(QUERIES, QUERIES).total
        total.backward()
        optimizer.step()
        values.append(total.item())
    assert values == sorted(values, reverse=True)
    assert loss.temperature.value < 1


@pytest.mark.parametrize(("pushed", "edge"), [(-50.0, 0.01), (50.0, 100.0)])
def test_learned_temperature_returns_from_beyond_its_bounds(pushed: float, edge: float) -> None:
    temperature = LearnedTemperature(1.0)
    with torch.no_grad():
        temperature.log_temperature.fill_(pushed)
    assert temperature.value == pytest.approx(edge)
    value = temperature()
    assert value.item() == pytest.approx(edge)
    value.backward()
    assert temperature.log_temperature.grad.item() == pytest.approx(edge)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_temperature_that_is_not_positive_is_refused(value: float, learn: bool) -> None:
    with pytest.raises(ValidationError, match="temperature"):
        BSCLossConfig(temperature=value, learn_temperature=learn)


def test_learned_temperature_that_starts_outside_its_bounds_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"temperature is 0\.001; .* between 0\.01 and 100"):
        BSCLossConfig(temperature=0.001, learn_temperature=True)


@pytest.mark.parametrize(
    ("queries", "documents", "labels", "message"),
    [
        (QUERIES, DOCUMENTS[:5], None, "6 queries have 5 documents"),
        (QUERIES, DOCUMENTS[:, :3], None, r"\(6, 4\) and documents \(6, 3\)"),
        (QUERIES[0], DOCUMENTS, None, "two matrices"),
        (QUERIES, DOCUMENTS, torch.ones(5), r"labels are \(5,\) for 6 pairs"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(queries, documents, labels, message: str) -> None:
    with pytest.raises(InputError, match=message):
        BSCLoss(BSCLossConfig())(queries, documents, labels)
