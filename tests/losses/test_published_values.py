"""Values of released code, claims of the papers that are exact, and peers whose definitions agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from sentence_transformers.sentence_transformer import losses as peers

from bsc_core.config import BSCLossConfig, LossConfig, TripletLossConfig
from bsc_core.losses import build_loss
from bsc_core.losses.margin import SaturatedMarginWarning

ROW = torch.arange(6, dtype=torch.float64)[:, None]
COLUMN = torch.arange(5, dtype=torch.float64)[None, :]
QUERIES = torch.sin(1 + 5 * ROW + COLUMN)
DOCUMENTS = torch.cos(2 + 3 * ROW + COLUMN) + 0.5 * QUERIES


def build(**values: object) -> torch.nn.Module:
    return build_loss(TypeAdapter(LossConfig).validate_python(values))


@pytest.mark.parametrize(("mu", "value"), [(0.1, 1.33428897), (0.5, 3.35981971), (0.9, 5.38535044)])
def test_the_combination_has_the_values_of_the_released_code(mu: float, value: float) -> None:
    grades = torch.tensor([0.9, 0.1, 0.6, 0.5, 0.2, 1.0], dtype=torch.float64)
    just_below = {"threshold": 0.4999}  # the code counts a grade of 0.5 as positive
    parts = build(name="combined", mu=mu, bsc=just_below)(QUERIES, DOCUMENTS, grades)
    assert parts.total.item() == pytest.approx(value, abs=1e-8)
    assert mu * parts.terms["bsc"] + (1 - mu) * parts.terms["mse"] == pytest.approx(value, abs=1e-8)


def test_a_grade_at_the_threshold_is_no_positive() -> None:
    grades = torch.full((6,), 0.5, dtype=torch.float64)
    assert build(name="bsc")(QUERIES, DOCUMENTS, grades).total == 0


@pytest.mark.parametrize(("temperature", "value"), [(1.0, 1.79719816), (0.1, 12.45278994)])
def test_the_supervised_loss_has_the_values_of_the_released_code(temperature: float, value: float) -> None:
    loss = build(name="supcon", mix=1, temperature=temperature, normalization="none")
    ids = {"classes": torch.tensor([0, 0, 1, 2, 0, 1]), "query_ids": torch.tensor([0, 0, 0, 1, 1, 2])}
    assert loss(QUERIES, DOCUMENTS, None, **ids).total.item() == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("normalization", ["l2", "none"])
def test_with_equal_queries_the_averaging_of_equations_3_and_4_changes_nothing(normalization: str) -> None:
    queries = QUERIES[[0, 0, 1, 2, 2, 2]]
    ids = {"query_ids": torch.tensor([0, 0, 1, 2, 2, 2]), "document_ids": torch.arange(6)}
    kept, several = (
        build(name="bsc", normalization=normalization, duplicates=mode)(queries, DOCUMENTS, None, **ids)
        for mode in ("keep", "multi_positive")
    )
    for term in ("query_to_document", "document_to_query"):
        torch.testing.assert_close(kept.terms[term], several.terms[term])
    merged = build(name="bsc", normalization=normalization, duplicates="merge")(queries, DOCUMENTS, None, **ids)
    assert merged.terms["document_to_query"] < kept.terms["document_to_query"]


def test_a_batch_without_entailment_gives_0_and_can_be_trained_on() -> None:
    queries = QUERIES.clone().requires_grad_()
    loss = build(name="supcon", mix=1)
    parts = loss(queries, DOCUMENTS, None, classes=torch.tensor([1, 2, 1, 1, 2, 2]))
    parts.total.backward()
    assert parts.total == 0
    assert (queries.grad == 0).all()


def test_sampled_positives_and_negatives_are_as_many_as_asked_and_really_drawn() -> None:
    generator = torch.Generator().manual_seed(0)
    sides = [torch.randn(30, 8, generator=generator) for _ in range(2)]
    ids = {"classes": torch.zeros(30, dtype=torch.long), "query_ids": torch.arange(30) // 10}
    loss = build(name="supcon", mix=1, max_positives=3, max_negatives=4)
    torch.manual_seed(0)
    rule = loss._rule(torch.arange(30), ids["classes"] == 0, ids["query_ids"])
    positives, candidates = rule(slice(0, 30), slice(0, 30))
    assert (positives.sum(dim=1) == 3).all()
    assert positives.diagonal().all()
    assert (candidates.sum(dim=1) == 4).all()
    assert not (positives & candidates).any()
    values = set()
    for seed in range(5):
        torch.manual_seed(seed)
        values.add(loss(*sides, None, **ids).total.item())
    assert len(values) == 5


def peer_value(loss: torch.nn.Module, *sides: torch.Tensor, labels: torch.Tensor) -> float:
    """What a loss of sentence-transformers computes from embeddings."""

    class Given(torch.nn.Module):
        def forward(self, features):
            return {"sentence_embedding": features["vectors"]}

    loss.model = Given()
    return float(loss([{"vectors": side} for side in sides], labels))


def cosine_apart(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return 1 - torch.nn.functional.cosine_similarity(left, right)


@pytest.mark.parametrize(("distance", "metric"), [("cosine", cosine_apart), ("euclidean", None)])
def test_losses_with_margins_agree_with_the_librarys_own(distance: str, metric) -> None:
    chosen = metric or (lambda left, right: (left - right).norm(dim=1))
    labels = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    negatives = DOCUMENTS.flip(0)
    pairs = {"contrastive": peers.ContrastiveLoss, "online_contrastive": peers.OnlineContrastiveLoss}
    for name, peer in pairs.items():
        theirs = peer_value(peer(None, distance_metric=chosen, margin=0.5), QUERIES, DOCUMENTS, labels=labels)
        ours = build(name=name, distance=distance, margin=0.5)(QUERIES, DOCUMENTS, labels).total.item()
        assert ours == pytest.approx(theirs, rel=1e-9)
    triplet = peers.TripletLoss(None, distance_metric=chosen, triplet_margin=0.3)
    theirs = peer_value(triplet, QUERIES, DOCUMENTS, negatives, labels=labels)
    ours = build(name="triplet", distance=distance, margin=0.3)(QUERIES, torch.cat([DOCUMENTS, negatives])).total.item()
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_triplet_margins_beyond_2_are_one_loss_up_to_a_constant() -> None:
    documents = torch.cat([DOCUMENTS, DOCUMENTS.flip(0)])
    totals, gradients = [], []
    for margin in (5.0, 7.5, 10.0):
        with pytest.warns(SaturatedMarginWarning, match="no pair can ever meet it"):
            loss = build_loss(TripletLossConfig(margin=margin))
        queries = QUERIES.clone().requires_grad_()
        total = loss(queries, documents).total
        total.backward()
        totals.append(total.item() - margin)
        gradients.append(queries.grad)
    assert totals == pytest.approx([totals[0]] * 3)
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])


def test_swapping_the_sides_keeps_a_symmetric_loss() -> None:
    for values in ({"name": "bsc"}, {"name": "mse"}, {"name": "pearson"}, {"name": "contrastive"}):
        labels = torch.tensor([1.0, 0.0, 1.0, 0.6, 0.0, 0.9], dtype=torch.float64)
        loss = build(**values)
        there, back = (loss(*sides, labels).total for sides in ((QUERIES, DOCUMENTS), (DOCUMENTS, QUERIES)))
        torch.testing.assert_close(there, back)


@pytest.mark.parametrize("parameter", ["log", "linear"])
def test_a_learned_temperature_moves_by_its_own_slope_and_stays_in_bounds(parameter: str) -> None:
    config = BSCLossConfig(temperature=0.5, learn_temperature=True, temperature_parameter=parameter)
    loss = build_loss(config).double()
    total = loss(QUERIES, DOCUMENTS).total
    total.backward()
    (trained,) = loss.parameters()
    at, step = trained.item(), 1e-6
    values = []
    for moved in (at - step, at + step):
        with torch.no_grad():
            trained.fill_(moved)
        values.append(loss(QUERIES, DOCUMENTS).total.item())
    assert trained.grad.item() == pytest.approx((values[1] - values[0]) / (2 * step), rel=1e-5)
    for pushed, edge in ((-1e3, 100.0), (1e3, 0.01)):
        with torch.no_grad():
            trained.fill_(pushed if parameter == "linear" else -pushed)
        assert np.isfinite(loss(QUERIES, DOCUMENTS).total.item())
        assert loss.temperature.value == pytest.approx(edge)
