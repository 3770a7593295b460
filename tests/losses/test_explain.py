"""What the lab shows is what the loss does: probabilities, gradients and masks against autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from bsc_core.config import BSCLossConfig
from bsc_core.errors import InputError
from bsc_core.losses.bsc import BSCLoss
from bsc_core.losses.explain import explain, first_largest, normalize
from bsc_core.losses.kernel.normalization import NORMALIZATIONS
from tests.losses.oracles import DIRECTED, bsc_configs, directed_configs, shapes, softmax_losses, treated_configs

TREATMENTS = [
    {},
    *({"mask": mask, "mask_margin": 0.3} for mask in ("self", "guide")),
    {"mask": "self", "mask_margin": 0.4, "mask_margin_kind": "relative", "labeled_negatives": False},
    *(
        {"hardness": kind, "hardness_strength": 3.0}
        for kind in ("in_batch_negatives", "hard_negatives", "all_negatives")
    ),
    {"decoupled": True},
    {"decoupled": True, "duplicates": "multi_positive"},
    {"debiased_prior": 0.1},
    {"debiased_prior": 0.1, "decoupled": True},
    {"duplicates": "merge"},
    {"duplicates": "multi_positive"},
    {"labeled_negatives": False},
    {"average": "positives"},
    {"reduction": "sum"},
    *({"normalization": kind} for kind in ("l2_columns", "range_columns", "minmax_columns", "none")),
]
"""Each of the other settings of the loss."""


def make_batch(shape: tuple[int, int, int, int]) -> tuple[np.ndarray, ...]:
    seed, pairs, width, extra = shape
    random = np.random.default_rng(seed)
    texts, answers = random.normal(size=(pairs, width)), random.normal(size=(pairs, width))
    query, document = random.integers(0, pairs, pairs), random.integers(0, pairs, pairs)
    documents = np.concatenate([answers[document], random.normal(size=(extra, width))])
    return texts[query], documents, random.random(pairs), query, document


def make_guide(shape: tuple[int, int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    seed, pairs, _, extra = shape
    random = np.random.default_rng(seed + 1)
    return random.normal(size=(pairs, 3)), random.normal(size=(pairs + extra, 3))


@given(bsc_configs | treated_configs, shapes)
@settings(max_examples=400, derandomize=True)
def test_every_setting_has_the_total_and_the_terms_of_the_loss(config: BSCLossConfig, shape) -> None:
    queries, documents, labels, query, document = make_batch(shape)
    guide = make_guide(shape)
    result = explain(queries, documents, labels, config=config, query_ids=query, document_ids=document, guide=guide)
    ids = {"query_ids": torch.tensor(query), "document_ids": torch.tensor(document)}
    ids |= {"guide_queries": torch.tensor(guide[0]), "guide_documents": torch.tensor(guide[1])}
    parts = BSCLoss(config)(torch.tensor(queries), torch.tensor(documents), torch.tensor(labels), **ids)
    assert result.total == pytest.approx(parts.total.item(), rel=1e-9, abs=1e-12)
    assert result.query_to_document == pytest.approx(parts.terms["query_to_document"].item(), rel=1e-9, abs=1e-12)
    if config.symmetric:
        assert result.document_to_query == pytest.approx(parts.terms["document_to_query"].item(), rel=1e-9, abs=1e-12)
    else:
        assert result.columns is None
        assert result.document_to_query is None


@given(bsc_configs, shapes)
@settings(max_examples=200, derandomize=True)
def test_the_gradient_of_each_cell_is_that_of_autograd_over_the_shown_masks(config: BSCLossConfig, shape) -> None:
    queries, documents, labels, query, document = make_batch(shape)
    result = explain(queries, documents, labels, config=config, query_ids=query, document_ids=document)
    similarity = torch.tensor(result.similarity, requires_grad=True)
    scores = similarity / config.temperature
    positive = int((labels > 0.5).sum())
    count = len(queries) if config.average == "batch" and config.labeled_negatives else max(1, positive)
    total = (
        softmax_losses(scores, torch.tensor(result.row_positives), torch.tensor(result.row_candidates)).sum() / count
    )
    if config.symmetric:
        turned = scores[:, : len(queries)].T
        masks = (torch.tensor(result.column_positives.T), torch.tensor(result.column_candidates.T))
        total = total + softmax_losses(turned, *masks).sum() / count
        total = total / 2 if config.reduction == "mean" else total
    assert total.item() == pytest.approx(result.total, rel=1e-9, abs=1e-12)
    total.backward()
    np.testing.assert_allclose(result.gradient, similarity.grad.numpy(), rtol=1e-8, atol=1e-12)


@given(bsc_configs, shapes)
@settings(max_examples=50, derandomize=True)
def test_a_small_move_of_one_similarity_moves_the_loss_by_its_gradient(config: BSCLossConfig, shape) -> None:
    queries, documents, labels, query, document = make_batch(shape)
    given_ids = {"query_ids": query, "document_ids": document}
    raw = config.model_copy(update={"normalization": "none"})
    base = normalize(queries, config.normalization) @ normalize(documents, config.normalization).T

    def total(similarity: np.ndarray) -> float:  # similarities as dot products with the unit vectors
        return explain(similarity, np.eye(len(documents)), labels, config=raw, **given_ids).total

    gradient = explain(base, np.eye(len(documents)), labels, config=raw, **given_ids).gradient
    cell, step = (0, len(documents) - 1), 1e-5
    moved = np.zeros_like(base)
    moved[cell] = step
    slope = (total(base + moved) - total(base - moved)) / (2 * step)
    assert gradient[cell] == pytest.approx(slope, rel=1e-4, abs=1e-7)


def check_with_autograd(config: BSCLossConfig, shape: tuple[int, int, int, int]) -> None:
    """Compare an explanation with the loss: the value, and the gradients of the vectors."""
    queries, documents, labels, query, document = make_batch(shape)
    guide = make_guide(shape)
    result = explain(queries, documents, labels, config=config, query_ids=query, document_ids=document, guide=guide)
    ids = {"query_ids": torch.tensor(query), "document_ids": torch.tensor(document)}
    ids |= {"guide_queries": torch.tensor(guide[0]), "guide_documents": torch.tensor(guide[1])}
    sides = [torch.tensor(side, requires_grad=True) for side in (queries, documents)]
    total = BSCLoss(config)(*sides, torch.tensor(labels), **ids).total
    assert result.total == pytest.approx(total.item(), rel=1e-9, abs=1e-12)
    total.backward()
    unit = [torch.tensor(side, requires_grad=True) for side in (queries, documents)]
    left, right = (NORMALIZATIONS[config.normalization](side, False) for side in unit)
    explained = ((left @ right.T) * torch.tensor(result.gradient)).sum()
    for cells, side in ((result.query_query, left), (result.document_document, right)):
        if cells is not None:
            upper = torch.tensor(np.triu(cells.gradient, 1))  # each pair of texts once
            explained = explained + (side[: len(queries)] @ side.T * upper).sum()
    explained.backward()
    for side, expected in zip(sides, unit, strict=True):
        torch.testing.assert_close(side.grad, expected.grad, rtol=1e-6, atol=1e-9)


@given(treated_configs | directed_configs, shapes)
@settings(max_examples=400, derandomize=True)
def test_the_gradient_is_that_of_the_loss(config: BSCLossConfig, shape) -> None:
    check_with_autograd(config, shape)


@pytest.mark.parametrize("directed", DIRECTED, ids=lambda values: " ".join(values["directions"]))
def test_directions_are_explained_with_each_other_setting(directed: dict[str, Any]) -> None:
    for treatment in TREATMENTS:
        config = BSCLossConfig(temperature=0.3, **directed, **treatment)
        for shape in ((1, 5, 4, 0), (2, 4, 3, 4), (3, 6, 4, 3)):
            check_with_autograd(config, shape)


def test_the_probabilities_of_joint_directions_sum_to_one() -> None:
    queries, documents, _, query, document = make_batch((3, 6, 4, 2))
    config = BSCLossConfig(directions=DIRECTED[-1]["directions"], partition="joint", duplicates="merge")
    result = explain(queries, documents, config=config, query_ids=query, document_ids=document)
    assert result.columns is not None
    assert result.query_query is not None
    assert result.document_document is not None
    sums = result.rows.sum(axis=1) + result.columns.sum(axis=0)
    sides = [(result.query_query, query), (result.document_document, document)]
    for cells, ids in sides:
        assert not (cells.candidates[:, :6] & (ids[:, None] == ids)).any()
        assert (cells.probability[~cells.candidates] == 0).all()
        sums = sums + cells.probability.sum(axis=1)
    np.testing.assert_allclose(sums, 1.0)
    assert result.document_to_query is None
    assert result.query_to_document == result.total


def test_cells_of_a_direction_that_is_not_used_are_none() -> None:
    queries, documents, *_ = make_batch((3, 6, 4, 0))
    result = explain(queries, documents, config=BSCLossConfig())
    assert (result.query_query, result.document_document) == (None, None)


@pytest.mark.parametrize(
    ("guide", "words"),
    [
        (None, "the guide's vectors are missing"),
        ((np.ones((6, 2)), np.ones((5, 2))), "6 queries and 5 documents for 6 and 8"),
    ],
)
def test_a_guide_without_vectors_of_all_texts_is_an_error(guide, words: str) -> None:
    queries, documents, labels, *_ = make_batch((3, 6, 4, 2))
    with pytest.raises(InputError, match=words):
        explain(queries, documents, labels, config=BSCLossConfig(mask="guide"), guide=guide)


def test_rows_are_probabilities_over_candidates_alone() -> None:
    queries, documents, labels, query, document = make_batch((3, 6, 4, 2))
    config = BSCLossConfig(duplicates="merge", labeled_negatives=False)
    result = explain(queries, documents, labels, config=config, query_ids=query, document_ids=document)
    offered = result.row_candidates.any(axis=1)
    np.testing.assert_allclose(result.rows.sum(axis=1)[offered], 1.0)
    assert (result.rows[~result.row_candidates] == 0).all()


def test_effective_negatives_go_from_one_to_all_with_the_temperature() -> None:
    random = np.random.default_rng(0)
    queries, documents = random.normal(size=(8, 4)), random.normal(size=(8, 4))
    low, high = (
        explain(queries, documents, config=BSCLossConfig(temperature=tau, normalization="none")).effective_negatives
        for tau in (1e-4, 1e6)
    )
    assert low == pytest.approx(1, abs=1e-3)
    assert high == pytest.approx(7, abs=1e-3)


def test_a_batch_without_a_positive_has_no_loss_no_gradient_and_no_nan() -> None:
    queries, documents, *_ = make_batch((5, 4, 4, 0))
    result = explain(queries, documents, np.zeros(4), config=BSCLossConfig(labeled_negatives=False))
    assert result.total == 0
    assert (result.gradient == 0).all()
    assert np.isfinite(result.rows).all()
    assert result.effective_negatives == 0


def test_zero_vectors_and_equal_columns_have_a_similarity_of_zero() -> None:
    queries, documents = np.zeros((4, 3)), np.ones((4, 3))
    for normalization in ("l2", "l2_columns", "range_columns", "minmax_columns", "none"):
        result = explain(queries, documents, config=BSCLossConfig(normalization=normalization))
        assert (result.similarity == 0).all()
        assert result.query_to_document == pytest.approx(np.log(4))


@pytest.mark.parametrize(
    ("queries", "documents", "labels", "words"),
    [
        (np.ones((1, 2)), np.ones((1, 2)), None, "at least 2"),
        (np.ones((3, 2)), np.ones((2, 2)), None, "one document for each query"),
        (np.full((3, 2), np.nan), np.ones((3, 2)), None, "NaN"),
        (np.ones((3, 2)), np.ones((3, 2)), [0, 1, 2], "0 to 1"),
    ],
)
def test_what_the_loss_refuses_is_refused_in_one_sentence(queries, documents, labels, words) -> None:
    with pytest.raises(InputError, match=words):
        explain(queries, documents, labels, config=BSCLossConfig())


@pytest.mark.parametrize("shift", [0.0, 1e-9, -1e-9])
@pytest.mark.parametrize("row", [0, 4])
def test_of_rows_whose_losses_tie_the_first_is_the_hardest_whatever_rounding_does(row: int, shift: float) -> None:
    generator = np.random.default_rng(0)
    queries = generator.normal(size=(6, 5))
    documents = queries + 0.1 * generator.normal(size=(6, 5))
    documents[0] = -queries[0]
    queries[4], documents[4] = queries[0], documents[0]  # rows 0 and 4 have the same, largest loss
    queries[row, 0] *= 1 + shift
    result = explain(queries, documents, config=BSCLossConfig(temperature=0.1))
    assert result.row_losses[[0, 4]] == pytest.approx(result.row_losses.max(), rel=1e-6)
    assert result.hardest_row == 0


def test_the_first_of_the_largest_values_is_found_along_any_axis() -> None:
    values = np.array([[1.0, 2.0, 2.0 - 1e-9], [3.0 - 1e-9, 0.0, 3.0], [-np.inf, -1.0, -1.0]])
    assert first_largest(values).tolist() == [1, 0, 1]
    assert first_largest(values, axis=0).tolist() == [1, 0, 1]
    assert first_largest([1.0, 1.001]) == 1
