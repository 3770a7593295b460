"""What must hold for any batch: oracles, symmetries, limits, gradients and precision."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bsc_core.config import BSCLossConfig
from bsc_core.losses import BSCLoss
from bsc_core.losses.kernel.normalization import l2
from bsc_core.losses.kernel.softmax import logits
from tests.losses.oracles import softmax_losses

Batch = tuple[Tensor, Tensor, Tensor]
batches = st.builds(
    lambda seed, pairs, width, extra: make_batch(seed, pairs, width, extra),
    st.integers(0, 10_000),
    st.integers(2, 9),
    st.integers(2, 6),
    st.integers(0, 5),
)
temperatures = st.floats(0.05, 5)
repeatable = settings(max_examples=100, derandomize=True)


def make_batch(seed: int, pairs: int, width: int, extra: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(pairs, width, generator=generator, dtype=torch.float64)
    documents = torch.randn(pairs + extra, width, generator=generator, dtype=torch.float64)
    return queries, documents, torch.rand(pairs, generator=generator, dtype=torch.float64)


@given(batches)
@repeatable
def test_labeled_negatives_off_is_the_loss_of_the_batch_without_them(batch: Batch) -> None:
    queries, documents, labels = batch
    keep = labels > 0.5
    loss = BSCLoss(BSCLossConfig(labeled_negatives=False))
    total = loss(queries, documents, labels).total.item()
    if keep.sum() >= 2:
        columns = torch.cat([keep, torch.ones(len(documents) - len(queries), dtype=torch.bool)])
        assert total == pytest.approx(BSCLoss(BSCLossConfig())(queries[keep], documents[columns]).total.item())
    else:
        assert total >= 0


@given(batches, st.floats(0.01, 100))
@repeatable
def test_length_of_the_vectors_does_not_matter_with_l2(batch: Batch, factor: float) -> None:
    queries, documents, labels = batch
    loss = BSCLoss(BSCLossConfig())
    assert loss(queries * factor, documents, labels).total.item() == pytest.approx(
        loss(queries, documents, labels).total.item()
    )


@given(batches)
@repeatable
def test_an_extra_negative_raises_the_first_direction_and_leaves_the_second(batch: Batch) -> None:
    queries, documents, _ = batch
    loss = BSCLoss(BSCLossConfig())
    without, more = loss(queries, documents), loss(queries, torch.cat([documents, -documents[:1]]))
    assert more.terms["query_to_document"].item() > without.terms["query_to_document"].item()
    assert more.terms["document_to_query"].item() == pytest.approx(without.terms["document_to_query"].item(), rel=1e-12)


@given(batches)
@repeatable
def test_high_temperature_tends_to_the_logarithm_of_the_candidates(batch: Batch) -> None:
    queries, documents, _ = batch
    terms = BSCLoss(BSCLossConfig(temperature=1e9))(queries, documents).terms
    assert terms["query_to_document"].item() == pytest.approx(math.log(len(documents)))
    assert terms["document_to_query"].item() == pytest.approx(math.log(len(queries)))


@given(batches)
@repeatable
def test_low_temperature_times_loss_tends_to_the_gap_to_the_hardest(batch: Batch) -> None:
    queries, documents, _ = batch
    temperature = 1e-6
    total = BSCLoss(BSCLossConfig(temperature=temperature, symmetric=False))(queries, documents).total.item()
    scores = l2(queries) @ l2(documents).T
    gaps = (scores.max(dim=1).values - scores.diagonal()).clamp(min=0)
    assert total * temperature == pytest.approx(gaps.mean().item(), abs=1e-5)


def test_large_raw_dot_products_stay_finite() -> None:
    queries, documents, _ = make_batch(5, 8, 512)
    queries = (100 * queries).float().requires_grad_()
    total = BSCLoss(BSCLossConfig(normalization="none", temperature=0.01))(queries, 100 * documents.float()).total
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(queries.grad).all()


def test_equation_3_a_repeated_query_leaves_the_attraction_unchanged() -> None:
    """With q_1 = q_2, averaging over both answers outside the logarithm gives the plain loss."""
    queries, documents, _ = make_batch(8, 5, 4)
    queries[1] = queries[0]
    scores = logits(queries, documents, 0.3)
    diagonal = torch.eye(5, dtype=torch.bool)
    several = diagonal.clone()
    several[0, 1] = several[1, 0] = True
    for cells in (scores, scores.T):
        assert softmax_losses(cells, several).sum().item() == pytest.approx(
            softmax_losses(cells, diagonal).sum().item()
        )


def test_kernel_leaves_excluded_candidates_out() -> None:
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    positives = torch.eye(4, 6, dtype=torch.bool)
    positives[3] = False
    candidates = torch.tensor([[True, True, False, False, True, False]]).expand(4, 6).clone()
    candidates[3] = False
    losses = softmax_losses(scores, positives, candidates)
    for i in range(3):
        seen = [j for j in range(6) if candidates[i, j] or j == i]
        expected = math.log(sum(math.exp(float(scores[i, j].detach() - scores[i, i].detach())) for j in seen))
        assert losses[i].item() == pytest.approx(expected)
    assert losses[3].item() == 0
    losses.sum().backward()
    assert torch.isfinite(scores.grad).all()
    assert torch.equal(scores.grad[3], torch.zeros(6, dtype=torch.float64))
