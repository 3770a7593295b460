"""Toy training of one batch, with the values that the lab displays at each step."""

# B pairs, T steps, D dimensions, V distinct tokens of the texts

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.config import LossConfig
from bsc_core.errors import ConfigError
from bsc_core.lab.batch import LabBatch
from bsc_core.losses.explain import first_largest, normalize

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float32]
TOY_LOSSES = (
    *("bsc", "mnrl", "sigmoid", "mse", "pearson", "cosent", "angle"),
    *("triplet", "contrastive", "online_contrastive"),
)
"""The losses of pairs, in the lab's order; the browser trains with the same equations."""
LEARNING_RATE = 0.03
"""For points in the plane, and for a learned temperature."""
RATE_OF_TEXTS = 0.01
"""For vectors of texts, which then move slowly. It is divided by sqrt(D / 2): Adam's steps grow with the dimensions."""

AXES_EVERY = 10
"""Steps between the states that determine the axes of the plane."""


@dataclass(frozen=True, eq=False)
class TrainingTrace:
    """T + 1 states of a batch, from before the first step to after the last."""

    points: Array  # (T + 1, 2B, 2) queries, then documents, in the plane
    moves: Array  # (T + 1, 2B, 2) negative gradient of the loss at each point
    similarity: Array  # (T + 1, B, B) cosine similarities
    loss: Array  # (T + 1,)
    temperature: Array  # (T + 1,), NaN for losses without one
    correct: Array  # (T + 1,) share of the positive queries whose most similar document is their positive
    gap: Array  # (T + 1,) smallest cosine(query, positive) - cosine(query, nearest other document); 0 without positives


def train_points(batch: LabBatch, loss: LossConfig, *, steps: int = 100) -> TrainingTrace:
    """Train the vectors of the batch directly, as free parameters.

    The negatives of the triplet loss are the most similar other documents of the batch at each step. Vectors of more
    than two dimensions are projected on their two main axes for display.

    Args:
        batch: The pairs to train.
        loss: The loss.
        steps: Steps of Adam.

    Raises:
        ConfigError: The loss needs data that the batch does not have.
        TrainingError: The loss became infinite or NaN.
    """
    import torch

    start = np.concatenate([batch.queries, batch.documents])  # (2B, D)
    vectors = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    return _train(batch, loss, [vectors], lambda: vectors, steps)


def train_tokens(batch: LabBatch, loss: LossConfig, *, steps: int = 100) -> TrainingTrace:
    """Train the static encoder's vectors of the tokens of the batch; a text is the mean of its tokens.

    As `train_points`, but texts that share tokens move together. The first use creates the static encoder.
    """
    import torch

    shares, table = _tokens([*batch.query_texts, *batch.document_texts])
    weights = torch.tensor(table, dtype=torch.float32, requires_grad=True)  # (V, D)
    mean = torch.tensor(shares, dtype=torch.float32)  # (2B, V)
    return _train(batch, loss, [weights], lambda: mean @ weights, steps)


def _tokens(texts: list[str]) -> tuple[Array, Array]:
    """Return the share of each token in each text (2B, V), and the vectors of the tokens (V, D)."""
    from bsc_core.config import EncoderConfig
    from bsc_core.encoders import load_encoder, tokenize

    model = load_encoder(EncoderConfig(name="static"))
    table = tokenize(model, texts, 90)
    used, index = np.unique(table.tokens, return_inverse=True)
    shares = np.zeros((len(texts), len(used)), dtype=np.float32)
    rows = np.repeat(np.arange(len(texts)), table.lengths)
    np.add.at(shares, (rows, index), 1.0)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
    module: Any = model[0]
    return shares, module.embedding.weight.detach().cpu().numpy()[used]


def _train(
    batch: LabBatch, config: LossConfig, parameters: list[Tensor], vectors_now: Callable[[], Tensor], steps: int
) -> TrainingTrace:
    import torch

    from bsc_core.losses import build_loss

    if config.needs - {"labels", "negatives"}:
        raise ConfigError(
            f"{config.name} needs {', '.join(sorted(config.needs))}, which a batch of the lab does not have"
        )
    torch.manual_seed(0)
    width = int(vectors_now().shape[1])
    loss = build_loss(config, dimensions=width).double()
    rate = RATE_OF_TEXTS / math.sqrt(width / 2) if width > 2 else LEARNING_RATE
    groups: list[dict[str, Any]] = [{"params": parameters, "lr": rate}]
    if trained := list(loss.parameters()):
        groups.append({"params": trained})
    optimizer = torch.optim.Adam(groups, lr=LEARNING_RATE)
    pairs = len(batch)
    ids = {"query_ids": torch.from_numpy(batch.query_ids), "document_ids": torch.from_numpy(batch.document_ids)}
    if batch.guide is not None:
        ids |= {"guide_queries": torch.tensor(batch.guide[0]), "guide_documents": torch.tensor(batch.guide[1])}
    labels = torch.tensor(batch.labels)
    states = []
    for _ in range(steps + 1):
        vectors = vectors_now()
        vectors.retain_grad()
        documents = vectors[pairs:]
        if "negatives" in config.needs:
            documents = torch.cat([documents, documents[_hardest_negatives(vectors.detach(), batch)]])
        value: Tensor = loss(vectors[:pairs], documents, labels, **ids).total
        optimizer.zero_grad()
        vectors.grad = None
        value.backward()  # type: ignore[no-untyped-call]
        gradient = torch.zeros_like(vectors) if vectors.grad is None else vectors.grad
        temperature = getattr(loss, "temperature", None)
        states.append(
            (
                vectors.detach().numpy().copy(),
                -gradient.detach().numpy().copy(),
                float(value.detach()),
                math.nan if temperature is None else float(temperature.value),
            )
        )
        optimizer.step()
    return _trace(states, batch)


def _hardest_negatives(vectors: Tensor, batch: LabBatch) -> Tensor:
    """Return (B,) the row of the most similar document of another text for each query. vectors: (2B, D)."""
    import torch

    unit = torch.nn.functional.normalize(vectors, dim=1)
    similarity = unit[: len(batch)] @ unit[len(batch) :].T  # (B, B)
    same = torch.from_numpy(batch.document_ids[:, None] == batch.document_ids)
    return similarity.masked_fill(same, -math.inf).argmax(dim=1)


def _trace(states: list[tuple[NDArray[Any], NDArray[Any], float, float]], batch: LabBatch) -> TrainingTrace:
    vectors = np.stack([state[0] for state in states])  # (T + 1, 2B, D)
    moves = np.stack([state[1] for state in states])
    pairs, positive = len(batch), batch.labels > 0.5
    unit = normalize(vectors.reshape(-1, vectors.shape[2]), "l2").reshape(vectors.shape)
    similarity = np.einsum("tid,tjd->tij", unit[:, :pairs], unit[:, pairs:])
    if vectors.shape[2] != 2:
        axes = _main_axes(unit[::AXES_EVERY])
        unit, moves = unit @ axes, moves @ axes
    nearest = first_largest(similarity) == np.arange(pairs)
    correct = nearest[:, positive] if positive.any() else np.zeros((len(states), 1))
    same = batch.document_ids[:, None] == batch.document_ids
    own = np.diagonal(similarity, axis1=1, axis2=2)  # (T + 1, B)
    gaps = own - np.where(same, -np.inf, similarity).max(axis=2)
    return TrainingTrace(
        points=unit.astype(np.float32),
        moves=moves.astype(np.float32),
        similarity=similarity.astype(np.float32),
        loss=np.asarray([state[2] for state in states], dtype=np.float32),
        temperature=np.asarray([state[3] for state in states], dtype=np.float32),
        correct=correct.mean(axis=1).astype(np.float32),
        gap=(gaps[:, positive].min(axis=1) if positive.any() else np.zeros(len(states))).astype(np.float32),
    )


def _main_axes(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return (D, 2) the two main axes of several states together, so that the states are comparable."""
    flat = vectors.reshape(-1, vectors.shape[2])
    _, _, axes = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    main: NDArray[Any] = axes[:2].T
    return main
