"""Values of the released code on a fixed input, and values that can be worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from bsc_core.config import BSCLossConfig
from bsc_core.losses import build_loss

ROW = torch.arange(6, dtype=torch.float64)[:, None]
COLUMN = torch.arange(5, dtype=torch.float64)[None, :]
QUERIES = torch.sin(1 + 5 * ROW + COLUMN)
DOCUMENTS = torch.cos(2 + 3 * ROW + COLUMN) + 0.5 * QUERIES
LABELS = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("normalization", "temperature", "all_positive", "masked"),
    [
        ("l2", 0.1, 6.07804948, 5.89173313),
        ("l2", 0.055, 10.71787919, 10.51845313),
        ("range_columns", 1.2, 1.55850588, 1.10747037),
        ("none", 1.0, 1.74138645, 1.50689308),
    ],
)
def test_values_of_the_released_code_are_met(
    normalization: str, temperature: float, all_positive: float, masked: float
) -> None:
    loss = build_loss(BSCLossConfig(normalization=normalization, temperature=temperature))
    assert loss(QUERIES, DOCUMENTS).total.item() == pytest.approx(all_positive, rel=0, abs=1e-7)
    assert loss(QUERIES, DOCUMENTS, torch.ones(6)).total.item() == pytest.approx(all_positive, rel=0, abs=1e-7)
    assert loss(QUERIES, DOCUMENTS, LABELS).total.item() == pytest.approx(masked, rel=0, abs=1e-7)


def test_sum_of_equation_1_is_twice_the_mean_of_the_released_code() -> None:
    mean = build_loss(BSCLossConfig(reduction="mean"))(QUERIES, DOCUMENTS, LABELS)
    both = build_loss(BSCLossConfig(reduction="sum"))(QUERIES, DOCUMENTS, LABELS)
    assert both.total.item() == pytest.approx(2 * 5.89173313, abs=2e-7)
    assert sum(both.terms.values()).item() == pytest.approx(both.total.item())
    assert sum(mean.terms.values()).item() / 2 == pytest.approx(mean.total.item())


def test_without_symmetry_the_loss_is_the_first_direction_under_either_reduction() -> None:
    both = build_loss(BSCLossConfig())(QUERIES, DOCUMENTS)
    for reduction in ("mean", "sum"):
        one = build_loss(BSCLossConfig(symmetric=False, reduction=reduction))(QUERIES, DOCUMENTS)
        assert list(one.terms) == ["query_to_document"]
        assert one.total.item() == one.terms["query_to_document"].item() == both.terms["query_to_document"].item()


def test_equal_vectors_give_the_logarithm_of_the_batch_size() -> None:
    same = torch.ones(7, 3)
    assert build_loss(BSCLossConfig())(same, same).total.item() == pytest.approx(math.log(7))


def test_two_orthogonal_pairs_give_the_softplus_of_minus_one_over_temperature() -> None:
    parts = build_loss(BSCLossConfig(temperature=0.5))(torch.eye(2), torch.eye(2))
    assert parts.total.item() == pytest.approx(math.log1p(math.exp(-2)))


def test_a_batch_of_negatives_alone_is_zero_with_zero_gradient() -> None:
    for labelled_negatives in (True, False):
        queries = QUERIES.clone().requires_grad_()
        loss = build_loss(BSCLossConfig(labelled_negatives=labelled_negatives))
        total = loss(queries, DOCUMENTS, torch.zeros(6)).total
        total.backward()
        assert total.item() == 0
        assert torch.equal(queries.grad, torch.zeros_like(queries))


@pytest.mark.parametrize("labelled_negatives", [True, False])
def test_label_at_the_threshold_is_negative(labelled_negatives: bool) -> None:
    config = BSCLossConfig(labelled_negatives=labelled_negatives)
    edge = torch.tensor([0.9, 0.6, 1.0, 0.61, 0.2, 0.7], dtype=torch.float64)
    binary = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    graded = build_loss(config, threshold=0.6)(QUERIES, DOCUMENTS, edge).total
    assert torch.equal(graded, build_loss(config)(QUERIES, DOCUMENTS, binary).total)


def test_threshold_of_the_config_goes_before_that_of_the_data() -> None:
    labels = torch.full((6,), 0.4)
    loss = build_loss(BSCLossConfig(threshold=0.3), threshold=0.5)
    assert torch.equal(loss(QUERIES, DOCUMENTS, labels).total, loss(QUERIES, DOCUMENTS).total)


def test_zero_vector_has_similarity_zero_and_no_gradient() -> None:
    queries = QUERIES.clone()
    queries[2] = 0
    queries.requires_grad_()
    parts = build_loss(BSCLossConfig(symmetric=False, reduction="sum"))(queries, DOCUMENTS, torch.eye(6)[2])
    assert parts.total.item() == pytest.approx(math.log(6) / 6)
    parts.total.backward()
    assert torch.isfinite(queries.grad).all()
    assert torch.equal(queries.grad[2], torch.zeros(5, dtype=torch.float64))
