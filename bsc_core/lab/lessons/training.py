"""The toy trainings of two lessons: a linear map over fixed vectors, small enough to train while one looks."""

# N rows, D dimensions of the shipped vectors, K of the map's output

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
from bsc_core.lab.presets import shipped_rows

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bsc_core.data.pairs import PairDataset

STEPS = 150
LEARNING_RATE = 0.01
GRADED_WIDTH, CLASS_WIDTH = 2, 8


@dataclass(frozen=True, eq=False)
class Graded:
    """What a loss made of graded pairs, on the rows it was trained on.

    mrr: of the positive pairs' documents among all documents; spearman: of cosines and grades; error: mean squared
    difference of cosine and grade; cosines, grades: (N,).
    """

    rows: int
    mrr: float
    spearman: float
    error: float
    cosines: NDArray[np.float64]
    grades: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Classed:
    """What a loss made of NLI rows, on the rows it was trained on.

    accuracy: of the head's classes; nearest: share of premises whose nearest hypothesis of all is the entailed one;
    cosines: mean cosine of premise and hypothesis by class; similarity: (N,) cosine of each row; classes: (N,).
    """

    premises: int
    accuracy: float
    nearest: float
    cosines: tuple[float, float, float]
    similarity: NDArray[np.float64]
    classes: NDArray[np.int32]


@cache
def trained_on_grades(mu: float) -> Graded:
    """A linear map to two dimensions trained with mu * bsc + (1 - mu) * mse; mu 0 and 1 are the losses alone."""
    dataset, vectors = shipped_rows("graded")
    assert dataset.label is not None
    config: LossConfig = CombinedLossConfig(mu=mu) if 0 < mu < 1 else BSCLossConfig() if mu else MSELossConfig()
    queries, documents, _ = _trained(dataset, vectors, config, GRADED_WIDTH)
    similarity = _unit(queries) @ _unit(documents).T  # (N, N)
    own = np.diag(similarity)
    asked = np.flatnonzero(dataset.positive)
    ranks = 1 + (similarity[asked] > own[asked, None]).sum(axis=1)
    grades = dataset.label.astype(np.float64)
    return Graded(
        rows=len(dataset),
        mrr=float((1 / ranks).mean()),
        spearman=float(spearmanr(own, grades).statistic),
        error=float(np.square(own - grades).mean()),
        cosines=own,
        grades=grades,
    )


@cache
def trained_on_classes(mix: float) -> Classed:
    """A linear map to eight dimensions trained with (1 - mix) * cross-entropy + mix * SCL; mix 0 is the former "
    "alone."""
    dataset, vectors = shipped_rows("classes")
    assert dataset.classes is not None
    config: LossConfig = SupConLossConfig(mix=mix) if mix else SoftmaxLossConfig()
    premises, hypotheses, loss = _trained(dataset, vectors, config, CLASS_WIDTH)
    similarity = _unit(premises) @ _unit(hypotheses).T  # (N, N)
    own = np.diag(similarity)
    entailed = np.flatnonzero(dataset.classes == 0)
    told = _told(loss, premises, hypotheses)
    means = [float(own[dataset.classes == number].mean()) for number in range(3)]
    return Classed(
        premises=len(entailed),
        accuracy=float((told == dataset.classes).mean()),
        nearest=float((similarity[entailed].argmax(axis=1) == entailed).mean()),
        cosines=(means[0], means[1], means[2]),
        similarity=own,
        classes=dataset.classes,
    )


def _trained(
    dataset: PairDataset, vectors: NDArray[np.float32], config: LossConfig, width: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], nn.Module]:
    """Queries and documents (N, K) under the trained map, and the loss with its head."""
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


def _told(loss: nn.Module, premises: NDArray[np.float64], hypotheses: NDArray[np.float64]) -> NDArray[np.int64]:
    """(N,) the class that the loss's head tells for each row."""
    import torch

    from bsc_core.losses import SoftmaxLoss

    head = next(module for module in loss.modules() if isinstance(module, SoftmaxLoss))
    sides = [torch.from_numpy(side.astype(np.float32)) for side in (premises, hypotheses)]
    told: NDArray[np.int64] = head.predict(sides[0], sides[1]).argmax(dim=1).numpy()
    return told


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float64] = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit
