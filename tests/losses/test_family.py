"""Every loss against its oracle, and what must hold for all of them: gradients, permutations, precision, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import DIRECTIONS, LOSS_CONFIGS, BSCLossConfig, LossConfig, SupConLossConfig
from bsc_core.errors import InputError
from bsc_core.losses import build_loss
from tests.losses import oracles
from tests.losses.oracles import bsc_configs, config_of, shapes

repeatable = settings(max_examples=120, derandomize=True)
CONFIGS: list[dict[str, Any]] = [
    {"name": "bsc"},
    {"name": "bsc", "symmetric": False, "labeled_negatives": False},
    {"name": "bsc", "normalization": "range_columns", "temperature": 1.2, "duplicates": "multi_positive"},
    {"name": "bsc", "normalization": "minmax_columns", "labeled_negatives": False, "duplicates": "merge"},
    {"name": "bsc", "normalization": "l2_columns", "average": "positives", "learn_temperature": True},
    {"name": "combined", "mu": 0.3},
    {"name": "combined", "preset": "bsc_pearson"},
    {"name": "mse"},
    {"name": "pearson"},
    {"name": "softmax"},
    {"name": "softmax", "hidden": 4, "activation": "tanh", "features": ["difference", "product"]},
    {"name": "supcon"},
    {"name": "supcon", "normalization": "none", "mix": 1.0, "anchor": "premise", "temperature": 1.0},
    {"name": "triplet"},
    {"name": "triplet", "distance": "euclidean", "margin": 2.0},
    {"name": "contrastive"},
    {"name": "online_contrastive"},
    {"name": "simcse"},
    {"name": "mnrl", "learn_temperature": True, "temperature_parameter": "linear"},
    {"name": "mnrl", "mask": "self", "mask_margin": 0.2, "directions": DIRECTIONS},
    {"name": "bsc", "mask": "self", "decoupled": True, "debiased_prior": 0.05, "matryoshka_dims": [2, 3]},
    {"name": "sigmoid"},
    {"name": "cosent"},
    {"name": "angle"},
]
NAMES = [f"{config['name']}-{number}" for number, config in enumerate(CONFIGS)]


class Batch:
    """Random vectors with repeated texts, grades and classes; documents come with one negative for each query."""

    def __init__(
        self, seed: int, pairs: int, width: int, extra: int | None = None, *, equal_vectors: bool = True
    ) -> None:
        """equal_vectors: repeated texts have equal vectors."""
        random = np.random.default_rng(seed)
        self.query_ids, self.document_ids = random.integers(0, pairs, pairs), random.integers(0, pairs, pairs)
        queries, own = random.normal(size=(2, pairs, width))
        self.queries, own = (queries[self.query_ids], own[self.document_ids]) if equal_vectors else (queries, own)
        self.documents = np.concatenate([own, random.normal(size=(pairs if extra is None else extra, width))])
        self.labels = random.random(pairs)
        self.classes = random.integers(0, 3, pairs)

    def tensors(self, dtype: torch.dtype = torch.float64) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
        sides = [torch.tensor(side, dtype=dtype, requires_grad=True) for side in (self.queries, self.documents)]
        ids = {"query_ids": self.query_ids, "document_ids": self.document_ids, "classes": self.classes}
        return sides, {name: torch.tensor(values) for name, values in ids.items()}


def total(config: LossConfig, batch: Batch, dtype: torch.dtype = torch.float64, loss: Any = None) -> torch.Tensor:
    loss = loss or built(config, batch.queries.shape[1], dtype)
    (queries, documents), ids = batch.tensors(dtype)
    if "views" in config.needs:
        documents = documents[: len(queries)]
    return loss(queries, documents, torch.tensor(batch.labels, dtype=dtype), **ids).total


def built(config: LossConfig, width: int, dtype: torch.dtype = torch.float64) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_loss(config, dimensions=width).to(dtype)


@given(bsc_configs, shapes)
@settings(max_examples=300, derandomize=True)
def test_bsc_is_its_equations_under_every_setting(config: BSCLossConfig, shape) -> None:
    batch = Batch(*shape)
    (queries, documents), ids = batch.tensors()
    result = build_loss(config)(queries, documents, torch.tensor(batch.labels), **ids)
    expected = oracles.bsc(batch.queries, batch.documents, batch.labels, (batch.query_ids, batch.document_ids), config)
    assert result.total.item() == pytest.approx(expected["total"], rel=1e-8, abs=1e-10)
    assert result.terms["query_to_document"].item() == pytest.approx(expected["first"], rel=1e-8, abs=1e-10)
    if config.symmetric:
        assert result.terms["document_to_query"].item() == pytest.approx(expected["second"], rel=1e-8, abs=1e-10)


@given(shapes, st.sampled_from(["l2", "none"]), st.sampled_from(["row", "premise"]), st.floats(0.1, 2))
@repeatable
def test_the_supervised_loss_is_its_equation(shape, normalization: str, anchor: str, temperature: float) -> None:
    batch = Batch(*shape)
    config = SupConLossConfig(mix=1, normalization=normalization, anchor=anchor, temperature=temperature)
    premises = batch.query_ids.tolist()
    (queries, documents), ids = batch.tensors()
    result = build_loss(config)(queries, documents, None, **ids).total.item()
    own = batch.documents[: len(batch.queries)]
    if anchor == "premise":  # its first entailed row asks; rows of one premise have equal vectors
        assert result == pytest.approx(oracles.supervised(batch.queries, own, batch.classes.tolist(), premises, config))
    assert result == pytest.approx(oracles.supervised(batch.queries, own, batch.classes.tolist(), premises, config))


@given(shapes, st.sampled_from(["cosine", "euclidean"]), st.sampled_from(["mean", "sum"]), st.floats(0.01, 1.9))
@repeatable
def test_losses_with_margins_are_their_equations(shape, distance: str, reduction: str, margin: float) -> None:
    seed, pairs, width, _ = shape
    batch = Batch(seed, pairs, width)
    fields = {"distance": distance, "reduction": reduction, "margin": margin}
    own = batch.documents[:pairs]
    expected = {
        "triplet": lambda config: oracles.triplet(batch.queries, batch.documents, config),
        "contrastive": lambda config: oracles.contrastive(batch.queries, own, batch.labels, config),
        "online_contrastive": lambda config: oracles.online(batch.queries, own, batch.labels, config),
    }
    for name, oracle in expected.items():
        config = config_of(name=name, **fields)
        assert total(config, batch).item() == pytest.approx(oracle(config), rel=1e-9, abs=1e-12)


@given(shapes)
@repeatable
def test_regressions_and_the_classifier_are_their_equations(shape) -> None:
    batch = Batch(*shape)
    own = batch.documents[: len(batch.queries)]
    assert total(config_of(name="mse"), batch).item() == pytest.approx(
        oracles.regression(batch.queries, own, batch.labels)
    )
    if len(batch.queries) > 2:
        result = total(config_of(name="pearson"), batch).item()
        assert result == pytest.approx(oracles.pearson(batch.queries, own, batch.labels), rel=1e-6, abs=1e-9)
    config = config_of(name="softmax")
    loss = built(config, batch.queries.shape[1])
    weights, bias = (value.detach().numpy() for value in (loss.head[0].weight, loss.head[0].bias))
    expected = oracles.classifier(batch.queries, own, batch.classes.tolist(), weights, bias)
    assert total(config, batch, loss=loss).item() == pytest.approx(expected)


@pytest.mark.parametrize("values", CONFIGS, ids=NAMES)
def test_the_gradient_is_that_of_finite_differences(values: dict[str, Any]) -> None:
    config = config_of(**values)
    batch = Batch(4, 5, 3, equal_vectors=False)  # a range has no slope where two rows reach it
    loss = built(config, 3)
    (queries, documents), ids = batch.tensors()
    labels = torch.tensor(batch.labels)

    def value(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return loss(left, right[: len(left)] if "views" in config.needs else right, labels, **ids).total

    assert torch.autograd.gradcheck(value, (queries, documents), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("values", CONFIGS, ids=NAMES)
def test_permuting_the_batch_changes_nothing(values: dict[str, Any]) -> None:
    config, batch = config_of(**values), Batch(7, 6, 4)
    loss = built(config, 4)
    before = total(config, batch, loss=loss).item()
    order = np.random.default_rng(0).permutation(6)
    batch.documents = np.concatenate([batch.documents[:6][order], batch.documents[6:][order]])
    for name in ("queries", "labels", "classes", "query_ids", "document_ids"):
        setattr(batch, name, getattr(batch, name)[order])
    assert total(config, batch, loss=loss).item() == pytest.approx(before, rel=1e-9)


@pytest.mark.parametrize("values", CONFIGS, ids=NAMES)
def test_float32_is_near_float64_and_autocast_does_not_reach_inside(values: dict[str, Any]) -> None:
    config, batch = config_of(**values), Batch(9, 8, 16)
    exact = total(config, batch).item()
    assert total(config, batch, torch.float32).item() == pytest.approx(exact, rel=1e-4, abs=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = total(config, batch, torch.float32)
    assert cast.dtype == torch.float32
    assert cast.item() == pytest.approx(exact, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("values", CONFIGS, ids=NAMES)
def test_bfloat16_embeddings_give_a_float32_loss(values: dict[str, Any]) -> None:
    config, batch = config_of(**values), Batch(9, 8, 16)
    (queries, documents), ids = batch.tensors(torch.bfloat16)
    documents = documents[:8] if "views" in config.needs else documents
    result = built(config, 16, torch.float32)(queries, documents, torch.tensor(batch.labels).float(), **ids).total
    assert result.dtype == torch.float32
    result.backward()
    assert queries.grad is not None
    assert torch.isfinite(queries.grad).all()


@pytest.mark.parametrize("values", CONFIGS, ids=NAMES)
def test_zero_vectors_and_equal_rows_give_finite_losses_and_gradients(values: dict[str, Any]) -> None:
    config = config_of(**values)
    for vectors in (np.zeros((4, 3)), np.ones((4, 3))):
        batch = Batch(1, 4, 3)
        batch.queries, batch.documents = vectors, np.concatenate([vectors, vectors])
        (queries, documents), ids = batch.tensors()
        sides = documents[:4] if "views" in config.needs else documents
        result = built(config, 3)(queries, sides, torch.tensor(batch.labels), **ids).total
        assert torch.isfinite(result)
        result.backward()
        gradients = [side.grad for side in (queries, documents) if side.grad is not None]
        assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("values", CONFIGS, ids=NAMES)
def test_invalid_values_are_refused(values: dict[str, Any]) -> None:
    config, batch = config_of(**values), Batch(2, 4, 3)
    loss = built(config, 3)
    (queries, documents), ids = batch.tensors()
    documents = documents[:4] if "views" in config.needs else documents
    labels = torch.tensor(batch.labels)
    for broken in (float("nan"), float("inf")):
        bad = documents.detach().clone()
        bad[1, 1] = broken
        with pytest.raises(InputError, match="NaN or infinity"):
            loss(queries, bad, labels, **ids)
    with pytest.raises(InputError, match="two matrices"):
        loss(queries, documents[:, :2], labels, **ids)
    with pytest.raises(InputError, match="one document for each query"):
        loss(queries, documents[:3], labels, **ids)
    uses_labels = config.needs & {"labels"} or config.name in ("bsc", "mnrl", "combined")
    if uses_labels:
        for wrong in (torch.tensor([0.0, 1.0, 2.0, 0.0]), torch.tensor([0.0, float("nan"), 1.0, 0.0])):
            with pytest.raises(InputError, match="0 to 1"):
                loss(queries, documents, wrong, **ids)
    if "classes" in config.needs:
        with pytest.raises(InputError, match="class 7 is out of range"):
            loss(queries, documents, None, **{**ids, "classes": torch.tensor([0, 1, 7, 0])})


@pytest.mark.parametrize("name", ["bsc", "mnrl", "simcse", "supcon"])
def test_a_batch_of_one_has_no_negatives_and_is_refused(name: str) -> None:
    loss = built(config_of(name=name), 3)
    with pytest.raises(InputError, match="at least 2"):
        loss(torch.ones(1, 3), torch.ones(1, 3), None, classes=torch.tensor([0]))


def test_every_loss_of_the_family_is_among_the_cases() -> None:
    assert {config["name"] for config in CONFIGS} == set(LOSS_CONFIGS)
