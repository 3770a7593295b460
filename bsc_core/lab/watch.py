"""Watch a loss at work: a toy batch trained for some steps, with all that can be drawn of every step."""

# B pairs, T steps, D dimensions, V distinct tokens of the texts

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.config import LossConfig
from bsc_core.errors import ConfigError, TrainingError
from bsc_core.lab.batch import LabBatch

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = NDArray[np.float32]
MOST_STEPS = 500


@dataclass(frozen=True, eq=False)
class Watched:
    """T + 1 states of a batch, from before the first step to after the last.

    points: (T + 1, 2B, 2) queries, then documents, in the plane; moves: (T + 1, 2B, 2) the negative gradient of the
    loss at each point; similarity: (T + 1, B, B) cosines; loss: (T + 1,); temperature: (T + 1,), nan for losses without
    one; correct: (T + 1,) share of the positive queries whose most similar document is their own.
    """

    points: Array
    moves: Array
    similarity: Array
    loss: Array
    temperature: Array
    correct: Array


def watch_points(batch: LabBatch, loss: LossConfig, *, steps: int = 100, learning_rate: float = 0.03) -> Watched:
    """Train the batch's vectors themselves, each free to move; 2-D points, such as those on a circle, are drawn as are.

    steps: 1 to 500 of Adam. learning_rate: of points in the plane; in D dimensions, where a step of Adam is longer, it
    is divided by sqrt(D / 2). Vectors of more dimensions are drawn in the plane of their two main axes. Raises
    ConfigError for other settings or a loss that the batch cannot feed, TrainingError for a loss that is no number.
    """
    import torch

    start = np.concatenate([batch.queries, batch.documents])  # (2B, D)
    vectors = torch.tensor(start, dtype=torch.float32, requires_grad=True)
    return _train(batch, loss, [vectors], lambda: vectors, (steps, learning_rate))


def watch_words(batch: LabBatch, loss: LossConfig, *, steps: int = 100, learning_rate: float = 0.03) -> Watched:
    """Train the static encoder's vectors of the tokens that occur in the batch's texts; a text is their mean.

    As `watch_points`, but texts that share words move together. The first use makes the static encoder.
    """
    import torch

    shares, table = _tokens([*batch.query_texts, *batch.document_texts])
    weights = torch.tensor(table, dtype=torch.float32, requires_grad=True)  # (V, D)
    mean = torch.tensor(shares, dtype=torch.float32)  # (2B, V)
    return _train(batch, loss, [weights], lambda: mean @ weights, (steps, learning_rate))


def _tokens(texts: list[str]) -> tuple[Array, Array]:
    """Share of each token in each text (2B, V), and the tokens' vectors (V, D)."""
    from bsc_core.config import EncoderConfig
    from bsc_core.encoders import load_encoder, tokenise

    model = load_encoder(EncoderConfig(name="static"))
    table = tokenise(model, texts, 90)
    used, where = np.unique(table.tokens, return_inverse=True)
    shares = np.zeros((len(texts), len(used)), dtype=np.float32)
    rows = np.repeat(np.arange(len(texts)), table.lengths)
    np.add.at(shares, (rows, where), 1.0)
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
    module: Any = model[0]
    return shares, module.embedding.weight.detach().cpu().numpy()[used]


def _train(
    batch: LabBatch,
    config: LossConfig,
    parameters: list[Tensor],
    vectors_now: Callable[[], Tensor],
    schedule: tuple[int, float],
) -> Watched:
    import torch

    from bsc_core.losses import build_loss

    steps, learning_rate = schedule
    if not 1 <= steps <= MOST_STEPS:
        raise ConfigError(f"steps is {steps}; the lab trains 1 to {MOST_STEPS}")
    if not 0 < learning_rate <= 1:
        raise ConfigError(f"learning_rate is {learning_rate:g}; it must be above 0 and at most 1 here")
    if config.needs - {"labels"}:
        raise ConfigError(
            f"{config.name} needs {', '.join(sorted(config.needs))}, which a batch of the lab does not have"
        )
    torch.manual_seed(0)
    loss = build_loss(config, dimensions=int(vectors_now().shape[1]))
    width = int(vectors_now().shape[1])
    moved: dict[str, Any] = {"params": parameters, "lr": learning_rate / math.sqrt(max(1.0, width / 2))}
    own: dict[str, Any] = {"params": [*loss.parameters()]}
    optimizer = torch.optim.Adam([moved, own] if own["params"] else [moved], lr=learning_rate)
    states = []
    for _ in range(steps + 1):
        vectors = vectors_now()
        vectors.retain_grad()
        value = _value(loss, batch, vectors)
        if not math.isfinite(float(value.detach())):
            raise TrainingError(f"the loss became {float(value.detach())}; raise the temperature or change the batch")
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
    return _drawn(states, batch.labels > 0.5)


def _value(loss: nn.Module, batch: LabBatch, vectors: Tensor) -> Tensor:
    import torch

    pairs = len(batch)
    ids = {"query_ids": torch.from_numpy(batch.query_ids), "document_ids": torch.from_numpy(batch.document_ids)}
    labels = torch.tensor(batch.labels, dtype=torch.float32)
    total: Tensor = loss(vectors[:pairs], vectors[pairs:], labels, **ids).total
    return total


def _drawn(states: list[tuple[Array, Array, float, float]], positive: NDArray[np.bool_]) -> Watched:
    vectors = np.stack([state[0] for state in states])  # (T + 1, 2B, D)
    moves = np.stack([state[1] for state in states])
    pairs = len(positive)
    lengths = np.linalg.norm(vectors, axis=2, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    similarity = np.einsum("tid,tjd->tij", unit[:, :pairs], unit[:, pairs:])
    if vectors.shape[2] != 2:
        axes = _main_axes(unit)
        unit, moves = unit @ axes, moves @ axes
    nearest = similarity.argmax(axis=2) == np.arange(pairs)
    asked = nearest[:, positive] if positive.any() else np.zeros((len(states), 1))
    return Watched(
        points=unit.astype(np.float32),
        moves=moves.astype(np.float32),
        similarity=similarity.astype(np.float32),
        loss=np.asarray([state[2] for state in states], dtype=np.float32),
        temperature=np.asarray([state[3] for state in states], dtype=np.float32),
        correct=asked.mean(axis=1).astype(np.float32),
    )


def _main_axes(vectors: Array) -> Array:
    """(D, 2) the two main axes of all states together, so that they can be compared."""
    flat = vectors.reshape(-1, vectors.shape[2])
    _, _, axes = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    main: Array = axes[:2].T
    return main
