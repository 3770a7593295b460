"""Slow oracles written from the equations, in NumPy and float64, one cell at a time; losses to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from pydantic import TypeAdapter
from torch import Tensor

from bsc_core.config import BSCLossConfig, LossConfig
from bsc_core.losses import build_loss
from bsc_core.losses.kernel.temperature import set_progress

DIRECTIONS = ("query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc")
SWITCHES: dict[str, dict[str, Any]] = {
    "self-mask": {"mask": "self", "mask_margin": 0.4},
    "guide": {"mask": "guide", "mask_margin": 0.3, "mask_margin_kind": "relative"},
    "directions": {"directions": DIRECTIONS, "partition": "joint"},
    "in-batch weights": {"hardness": "in_batch_negatives", "hardness_strength": 3.0},
    "hard weights": {"hardness": "hard_negatives"},
    "all weights": {"hardness": "all_negatives", "hardness_strength": 1.0},
    "decoupled": {"decoupled": True},
    "debiased": {"debiased_prior": 0.1},
    "learned": {"learn_temperature": True, "temperature": 0.5},
    "schedule": {"temperature_schedule": "cosine", "temperature_end": 0.1},
    "matryoshka": {"matryoshka_dims": [6, 3], "matryoshka_weights": [1.0, 0.5]},
}
SWITCH_PAIRS = [
    *[(name,) for name in SWITCHES],
    *[pair for pair in combinations(SWITCHES, 2) if pair != ("learned", "schedule")],  # a config has one of them
]
"""Each switch of the treatment of negatives alone, and all pairs of them."""

bsc_configs = st.builds(
    BSCLossConfig,
    temperature=st.floats(0.05, 3),
    normalization=st.sampled_from(["l2", "l2_columns", "range_columns", "minmax_columns", "none"]),
    symmetric=st.booleans(),
    reduction=st.sampled_from(["mean", "sum"]),
    average=st.sampled_from(["batch", "positives"]),
    labeled_negatives=st.booleans(),
    duplicates=st.sampled_from(["keep", "merge", "multi_positive"]),
)
treated_configs = st.builds(
    BSCLossConfig,
    temperature=st.floats(0.05, 3),
    symmetric=st.booleans(),
    reduction=st.sampled_from(["mean", "sum"]),
    average=st.sampled_from(["batch", "positives"]),
    labeled_negatives=st.booleans(),
    duplicates=st.sampled_from(["keep", "merge"]),
    mask=st.sampled_from(["none", "self", "guide"]),
    mask_margin=st.floats(-1, 1),
    mask_margin_kind=st.sampled_from(["absolute", "relative"]),
    hardness=st.sampled_from(["none", "in_batch_negatives", "hard_negatives", "all_negatives"]),
    hardness_strength=st.floats(0, 9),
    decoupled=st.booleans(),
    debiased_prior=st.sampled_from([0.0, 0.05, 0.5]),
)
"""BSC with another treatment of the negatives."""
DIRECTED = [
    {"directions": DIRECTIONS[:1]},
    {"directions": DIRECTIONS[:2]},
    *(
        {"directions": (DIRECTIONS[0], *others), "partition": "joint"}
        for number in range(4)
        for others in combinations(DIRECTIONS[1:], number)
    ),
]
"""All valid values of directions and partition."""
directed_configs = st.builds(
    lambda config, directed: config.model_copy(update=directed),
    bsc_configs | treated_configs,
    st.sampled_from(DIRECTED),
)
shapes = st.tuples(st.integers(0, 10_000), st.integers(2, 8), st.integers(2, 6), st.integers(0, 3))
"""Seed, pairs, dimensions and extra documents of a batch."""


def softmax_losses(scores: Tensor, positives: Tensor, candidates: Tensor | None = None) -> Tensor:
    """Return the losses of `masked_softmax` in one direction, computed from the full matrix, (B,).

    scores: (B, M). positives, candidates: bool (B, M); None if every column is a candidate.
    """
    counts = positives.sum(dim=1)  # (B,)
    counted = counts > 0
    allowed = scores
    if candidates is not None:
        allowed = scores.masked_fill(~(candidates | positives), -torch.inf)
    attracted = torch.where(positives, scores, torch.zeros_like(scores)).sum(dim=1) / counts.clamp(min=1)
    losses = allowed.logsumexp(dim=1) - attracted
    return torch.where(counted, losses, torch.zeros_like(losses))


def config_of(**values: Any) -> LossConfig:
    return TypeAdapter(LossConfig).validate_python(values)


def loss_of(*, dimensions: int | None = None, threshold: float = 0.5, **values: Any) -> Any:
    return build_loss(config_of(**values), threshold=threshold, dimensions=dimensions)


def switched_loss(names: Sequence[str]) -> Any:
    """Return the BSC loss with some of the SWITCHES, after a quarter of the steps of its temperature schedule."""
    values = {key: value for name in names for key, value in SWITCHES[name].items()}
    loss = loss_of(name="bsc", **{"temperature": 0.3} | values)
    set_progress(loss, 0.25)
    return loss


def unit(row: np.ndarray) -> np.ndarray:
    length = np.sqrt(sum(value * value for value in row))
    return row / length if length > 0 else row * 0


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(unit(left) @ unit(right))


def normalized(vectors: np.ndarray, how: str) -> np.ndarray:
    if how == "none":
        return vectors
    if how == "l2":
        return np.array([unit(row) for row in vectors])
    columns, smallest = [], 1e-6 * np.abs(vectors).max()
    for column in vectors.T:
        lowest, highest = min(column), max(column)
        size = np.sqrt(sum(column**2)) if how == "l2_columns" else highest - lowest
        shift = lowest if how == "minmax_columns" else 0
        columns.append([(value - shift) / size if size > smallest else 0 for value in column])
    return np.array(columns).T


def choice_loss(scores: list[float], positives: set[int], candidates: set[int]) -> float:
    """-1/|P| sum_{p in P} log( exp(s_p) / sum_{c in C} exp(s_c) )."""
    highest = max(scores[c] for c in candidates)
    spread = np.log(sum(np.exp(scores[c] - highest) for c in candidates)) + highest
    return sum(spread - scores[p] for p in positives) / len(positives)


def bsc(queries: np.ndarray, documents: np.ndarray, labels: np.ndarray, ids: Any, config: Any) -> dict[str, float]:
    """Equations 1 to 5 of the BSC paper with the repeated texts of each mode. ids: (query ids, document ids)."""
    query, document = normalized(queries, config.normalization), normalized(documents, config.normalization)
    pairs, positive = len(queries), labels > 0.5
    requested, answered = list(ids[0]), [*ids[1], *(-1 - k for k in range(len(documents) - pairs))]
    scores = [[float(q @ a) / config.temperature for a in document] for q in query]
    columns = [[scores[i][j] for i in range(pairs)] for j in range(pairs)]
    count = pairs if config.average == "batch" and config.labeled_negatives else max(1, int(positive.sum()))
    first = direction(scores, positive, requested, answered, config) / count
    second = direction(columns, positive, answered[:pairs], requested, config) / count
    if not config.symmetric:
        return {"total": first, "first": first}
    total = (first + second) / 2 if config.reduction == "mean" else first + second
    return {"total": total, "first": first, "second": second}


def direction(scores: list[list[float]], positive: np.ndarray, generator: list, choice: list, config: Any) -> float:
    total = 0.0
    for i in range(len(positive)):
        if not positive[i]:
            continue
        offered = [j for j in range(len(choice)) if config.labeled_negatives or j >= len(positive) or positive[j]]
        positives, candidates = {i}, set(offered)
        if config.duplicates == "merge":
            candidates = {i}
            for j in offered:
                seen = any(choice[k] == choice[j] for k in offered if k < j)
                if choice[j] != choice[i] and not seen:
                    candidates.add(j)
        if config.duplicates == "multi_positive":
            for j in range(len(choice)):
                copy = choice[j] == choice[i]
                right = j < len(positive) and generator[j] == generator[i] and positive[j]
                if copy or right:
                    positives.add(j)
        total += choice_loss(scores[i], positives, candidates | positives)
    return total


def supervised(premises: np.ndarray, hypotheses: np.ndarray, classes: list[int], ids: list[int], config: Any) -> float:
    """SCL over all positives and negatives, equation 2 of the SCL paper."""
    left, right = normalized(premises, config.normalization), normalized(hypotheses, config.normalization)
    losses, seen = [], set()
    for i, kind in enumerate(classes):
        if kind != 0 or (config.anchor == "premise" and ids[i] in seen):
            continue
        seen.add(ids[i])
        scores = [float(left[i] @ other) / config.temperature for other in right]
        positives = {j for j in range(len(classes)) if ids[j] == ids[i] and classes[j] == 0}
        losses.append(choice_loss(scores, positives, set(range(len(classes)))))
    return sum(losses) / len(losses) if losses else 0.0


def distance(left: np.ndarray, right: np.ndarray, kind: str) -> float:
    return 1 - cosine(left, right) if kind == "cosine" else float(np.sqrt(sum((left - right) ** 2)))


def triplet(queries: np.ndarray, documents: np.ndarray, config: Any) -> float:
    pairs, losses = len(queries), []
    for i, query in enumerate(queries):
        near = distance(query, documents[i], config.distance)
        far = distance(query, documents[pairs + i], config.distance)
        losses.append(max(0.0, near - far + config.margin))
    return float(np.mean(losses) if config.reduction == "mean" else np.sum(losses))


def contrastive(queries: np.ndarray, documents: np.ndarray, labels: np.ndarray, config: Any) -> float:
    losses = []
    for query, document, label in zip(queries, documents, labels, strict=True):
        d = distance(query, document, config.distance)
        losses.append(0.5 * (d**2 if label > 0.5 else max(0.0, config.margin - d) ** 2))
    return float(np.mean(losses) if config.reduction == "mean" else np.sum(losses))


def online(queries: np.ndarray, documents: np.ndarray, labels: np.ndarray, config: Any) -> float:
    apart = [distance(q, a, config.distance) for q, a in zip(queries, documents, strict=True)]
    near = [d for d, label in zip(apart, labels, strict=True) if label > 0.5]
    far = [d for d, label in zip(apart, labels, strict=True) if label <= 0.5]
    limit_far = max(near) if len(near) > 1 else np.mean(far) if far else 0
    limit_near = min(far) if len(far) > 1 else np.mean(near) if near else 0
    hard_far, hard_near = [d for d in far if d < limit_far], [d for d in near if d > limit_near]
    total = sum(d**2 for d in hard_near) + sum(max(0.0, config.margin - d) ** 2 for d in hard_far)
    return float(total / max(1, len(hard_far) + len(hard_near)) if config.reduction == "mean" else total)


def regression(queries: np.ndarray, documents: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean([(cosine(q, a) - y) ** 2 for q, a, y in zip(queries, documents, labels, strict=True)]))


def pearson(queries: np.ndarray, documents: np.ndarray, labels: np.ndarray) -> float:
    return -float(np.corrcoef([cosine(q, a) for q, a in zip(queries, documents, strict=True)], labels)[0, 1])


def classifier(left: np.ndarray, right: np.ndarray, classes: list[int], weights: np.ndarray, bias: np.ndarray) -> float:
    losses = []
    for u, v, kind in zip(left, right, classes, strict=True):
        logits = weights @ np.concatenate([u, v, np.abs(u - v)]) + bias
        losses.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[kind])
    return float(np.mean(losses))
