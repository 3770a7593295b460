"""Values of released code and by hand, exact claims of the papers, and equal losses of sentence-transformers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer import losses as peers

from bsc_core.config import BSCLossConfig, TripletLossConfig
from bsc_core.losses import build_loss
from bsc_core.losses.margin import SaturatedMarginWarning
from tests.losses.oracles import loss_of

ROW = torch.arange(6, dtype=torch.float64)[:, None]
COLUMN = torch.arange(5, dtype=torch.float64)[None, :]
QUERIES = torch.sin(1 + 5 * ROW + COLUMN)
DOCUMENTS = torch.cos(2 + 3 * ROW + COLUMN) + 0.5 * QUERIES
LABELS = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], dtype=torch.float64)


@pytest.mark.parametrize(("mu", "value"), [(0.1, 1.33428897), (0.5, 3.35981971), (0.9, 5.38535044)])
def test_the_combination_has_the_values_of_the_released_code(mu: float, value: float) -> None:
    grades = torch.tensor([0.9, 0.1, 0.6, 0.5, 0.2, 1.0], dtype=torch.float64)
    just_below = {"threshold": 0.4999}  # the code counts a grade of 0.5 as positive
    parts = loss_of(name="combined", mu=mu, bsc=just_below)(QUERIES, DOCUMENTS, grades)
    assert parts.total.item() == pytest.approx(value, abs=1e-8)
    assert mu * parts.terms["bsc"] + (1 - mu) * parts.terms["mse"] == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize(("temperature", "value"), [(1.0, 1.79719816), (0.1, 12.45278994)])
def test_the_supervised_loss_has_the_values_of_the_released_code(temperature: float, value: float) -> None:
    loss = loss_of(name="supcon", mix=1, temperature=temperature, normalization="none")
    ids = {"classes": torch.tensor([0, 0, 1, 2, 0, 1]), "query_ids": torch.tensor([0, 0, 0, 1, 1, 2])}
    assert loss(QUERIES, DOCUMENTS, None, **ids).total.item() == pytest.approx(value, abs=1e-8)


@pytest.mark.parametrize("normalization", ["l2", "none"])
def test_with_equal_queries_the_averaging_of_equations_3_and_4_changes_nothing(normalization: str) -> None:
    queries = QUERIES[[0, 0, 1, 2, 2, 2]]
    ids = {"query_ids": torch.tensor([0, 0, 1, 2, 2, 2]), "document_ids": torch.arange(6)}
    unchanged, several = (
        loss_of(name="bsc", normalization=normalization, duplicates=mode)(queries, DOCUMENTS, None, **ids)
        for mode in ("keep", "multi_positive")
    )
    for term in ("query_to_document", "document_to_query"):
        torch.testing.assert_close(unchanged.terms[term], several.terms[term])
    merged = loss_of(name="bsc", normalization=normalization, duplicates="merge")(queries, DOCUMENTS, None, **ids)
    assert merged.terms["document_to_query"] < unchanged.terms["document_to_query"]


def test_a_batch_without_entailment_gives_0_and_can_be_trained_on() -> None:
    queries = QUERIES.clone().requires_grad_()
    loss = loss_of(name="supcon", mix=1)
    parts = loss(queries, DOCUMENTS, None, classes=torch.tensor([1, 2, 1, 1, 2, 2]))
    parts.total.backward()
    assert parts.total == 0
    assert (queries.grad == 0).all()


def test_positives_and_negatives_are_sampled_in_the_configured_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    sides = [torch.randn(30, 8, generator=generator) for _ in range(2)]
    ids = {"classes": torch.zeros(30, dtype=torch.long), "query_ids": torch.arange(30) // 10}
    loss = loss_of(name="supcon", mix=1, max_positives=3, max_negatives=4)
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
def test_margin_losses_equal_those_of_sentence_transformers(distance: str, metric) -> None:
    chosen = metric or (lambda left, right: (left - right).norm(dim=1))
    labels = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    negatives = DOCUMENTS.flip(0)
    pairs = {"contrastive": peers.ContrastiveLoss, "online_contrastive": peers.OnlineContrastiveLoss}
    for name, peer in pairs.items():
        theirs = peer_value(peer(None, distance_metric=chosen, margin=0.5), QUERIES, DOCUMENTS, labels=labels)
        ours = loss_of(name=name, distance=distance, margin=0.5)(QUERIES, DOCUMENTS, labels).total.item()
        assert ours == pytest.approx(theirs, rel=1e-9)
    triplet = peers.TripletLoss(None, distance_metric=chosen, triplet_margin=0.3)
    theirs = peer_value(triplet, QUERIES, DOCUMENTS, negatives, labels=labels)
    ours = loss_of(name="triplet", distance=distance, margin=0.3)(QUERIES, torch.cat([DOCUMENTS, negatives])).total
    assert ours.item() == pytest.approx(theirs, rel=1e-9)


def test_triplet_margins_beyond_2_are_one_loss_up_to_a_constant() -> None:
    documents = torch.cat([DOCUMENTS, DOCUMENTS.flip(0)])
    totals, gradients = [], []
    for margin in (5.0, 7.5, 10.0):
        with pytest.warns(SaturatedMarginWarning, match="all triplet margins of 2 or more give the same gradient"):
            loss = build_loss(TripletLossConfig(margin=margin))
        queries = QUERIES.clone().requires_grad_()
        total = loss(queries, documents).total
        total.backward()
        totals.append(total.item() - margin)
        gradients.append(queries.grad)
    assert totals == pytest.approx([totals[0]] * 3)
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(gradients[0], gradients[2])


@pytest.mark.parametrize("name", ["contrastive", "online_contrastive"])
def test_the_gradient_of_contrastive_losses_grows_with_margins_beyond_2(name: str) -> None:
    labels = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    norms = []
    for margin in (3.0, 5.0):
        with pytest.warns(SaturatedMarginWarning, match="negative pair is pushed apart") as caught:
            loss = loss_of(name=name, margin=margin)
        assert not any("same gradient" in str(warning.message) for warning in caught)
        documents = DOCUMENTS.clone().requires_grad_()
        loss(QUERIES, documents, labels).total.backward()
        norms.append(documents.grad[labels == 0].norm())
    assert norms[1] > 1.5 * norms[0] > 0


def test_swapping_the_sides_keeps_a_symmetric_loss() -> None:
    for values in ({"name": "bsc"}, {"name": "mse"}, {"name": "pearson"}, {"name": "contrastive"}):
        labels = torch.tensor([1.0, 0.0, 1.0, 0.6, 0.0, 0.9], dtype=torch.float64)
        loss = loss_of(**values)
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
    for labeled_negatives in (True, False):
        queries = QUERIES.clone().requires_grad_()
        loss = build_loss(BSCLossConfig(labeled_negatives=labeled_negatives))
        total = loss(queries, DOCUMENTS, torch.zeros(6)).total
        total.backward()
        assert total.item() == 0
        assert torch.equal(queries.grad, torch.zeros_like(queries))


@pytest.mark.parametrize("labeled_negatives", [True, False])
def test_label_at_the_threshold_is_negative(labeled_negatives: bool) -> None:
    config = BSCLossConfig(labeled_negatives=labeled_negatives)
    edge = torch.tensor([0.9, 0.6, 1.0, 0.61, 0.2, 0.7], dtype=torch.float64)
    binary = torch.tensor([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    graded = build_loss(config, threshold=0.6)(QUERIES, DOCUMENTS, edge).total
    assert torch.equal(graded, build_loss(config)(QUERIES, DOCUMENTS, binary).total)


def test_threshold_of_the_config_overrides_that_of_the_data() -> None:
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
