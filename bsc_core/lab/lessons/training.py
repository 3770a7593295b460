"""Toy training for two lessons: a linear map over fixed vectors, trained while the page loads."""

# N rows, D dimensions of the stored vectors, K of the map's output

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from bsc_core.config import (
    BSCLossConfig,
    CombinedLossConfig,
    LossConfig,
    MSELossConfig,
    SoftmaxLossConfig,
    SupConLossConfig,
)
from bsc_core.lab.presets import sample_rows
from bsc_core.losses.explain import first_largest

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bsc_core.data.dataset import PairDataset

STEPS = 150
LEARNING_RATE = 0.01
GRADED_WIDTH, CLASS_WIDTH = 2, 8
TIE = 1e-6
"""Cosines this close are equal: the documents may be the same text, and rounding must not rank them."""


@dataclass(frozen=True, eq=False)
class GradedResult:
    """Metrics of a loss on graded pairs, on the training rows."""

    rows: int
    mrr: float  # mean reciprocal rank of the positive pairs' documents among all documents
    spearman: float  # Spearman correlation of cosines and grades
    error: float  # mean squared difference of cosine and grade
    cosines: NDArray[np.float64]  # (N,)
    grades: NDArray[np.float64]  # (N,)


@dataclass(frozen=True, eq=False)
class ClassResult:
    """Metrics of a loss on NLI rows, on the training rows."""

    premises: int
    accuracy: float  # of the classification head
    nearest: float  # share of premises whose nearest hypothesis is the entailed one
    cosines: tuple[float, float, float]  # mean cosine of premise and hypothesis by class
    similarity: NDArray[np.float64]  # (N,) cosine of each row
    classes: NDArray[np.int32]  # (N,)


@cache
def train_on_grades(mu: float) -> GradedResult:
    """Train a linear map to two dimensions with mu * BSC + (1 - mu) * MSE; mu 0 and 1 are the losses alone."""
    dataset, vectors = sample_rows("graded")
    assert dataset.label is not None
    config: LossConfig = CombinedLossConfig(mu=mu) if 0 < mu < 1 else BSCLossConfig() if mu else MSELossConfig()
    queries, documents, _ = _train(dataset, vectors, config, GRADED_WIDTH)
    similarity = _unit(queries) @ _unit(documents).T  # (N, N)
    cosines = np.diag(similarity)
    positives = np.flatnonzero(dataset.positive)
    ranks = 1 + (similarity[positives] > cosines[positives, None] + TIE).sum(axis=1)
    grades = dataset.label.astype(np.float64)
    return GradedResult(
        rows=len(dataset),
        mrr=float((1 / ranks).mean()),
        spearman=float(spearmanr(cosines, grades).statistic),
        error=float(np.square(cosines - grades).mean()),
        cosines=cosines,
        grades=grades,
    )


@cache
def train_on_classes(mix: float) -> ClassResult:
    """Train a linear map to eight dimensions with (1 - mix) * cross-entropy + mix * SCL; mix 0 is the former alone."""
    dataset, vectors = sample_rows("classes")
    assert dataset.classes is not None
    config: LossConfig = SupConLossConfig(mix=mix) if mix else SoftmaxLossConfig()
    premises, hypotheses, loss = _train(dataset, vectors, config, CLASS_WIDTH)
    similarity = _unit(premises) @ _unit(hypotheses).T  # (N, N)
    cosines = np.diag(similarity)
    entailed = np.flatnonzero(dataset.classes == 0)
    predicted = _predict(loss, premises, hypotheses)
    means = [float(cosines[dataset.classes == number].mean()) for number in range(3)]
    return ClassResult(
        premises=len(entailed),
        accuracy=float((predicted == dataset.classes).mean()),
        nearest=float((first_largest(similarity[entailed]) == entailed).mean()),
        cosines=(means[0], means[1], means[2]),
        similarity=cosines,
        classes=dataset.classes,
    )


def _train(
    dataset: PairDataset, vectors: NDArray[np.float32], config: LossConfig, width: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], nn.Module]:
    """Train; return queries and documents (N, K) under the map, and the loss with its head."""
    import torch

    from bsc_core.losses import build_loss

    generator = torch.Generator().manual_seed(0)
    scale = vectors.shape[1] ** 0.5
    weights = (torch.randn(vectors.shape[1], width, generator=generator) / scale).requires_grad_()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = build_loss(config, dimensions=width)
    trained: list[Tensor] = [weights, *loss.parameters()]
    optimizer = torch.optim.Adam(trained, lr=LEARNING_RATE)
    sides = [torch.from_numpy(vectors[column]) for column in (dataset.query, dataset.document)]
    labels = None if dataset.label is None else torch.from_numpy(dataset.label)
    ids = {"query_ids": torch.from_numpy(dataset.query.astype(np.int64))}
    if dataset.classes is not None:
        ids["classes"] = torch.from_numpy(dataset.classes.astype(np.int64))
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(sides[0] @ weights, sides[1] @ weights, labels, **ids).total.backward()
        optimizer.step()
    with torch.no_grad():
        mapped = [(side @ weights).numpy().astype(np.float64) for side in sides]
    return mapped[0], mapped[1], loss


def _predict(loss: nn.Module, premises: NDArray[np.float64], hypotheses: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return (N,) the class that the head of the loss predicts for each row."""
    import torch

    from bsc_core.losses import SoftmaxLoss

    head = next(module for module in loss.modules() if isinstance(module, SoftmaxLoss))
    sides = [torch.from_numpy(side.astype(np.float32)) for side in (premises, hypotheses)]
    predicted: NDArray[np.int64] = head.predict(sides[0], sides[1]).argmax(dim=1).numpy()
    return predicted


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float64] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit
