"""SBERT's classifier for pairs of sentences: cross-entropy on a head over both embeddings."""

# B pairs in a batch, D dimensions, F features, C classes

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bsc_core.config import SoftmaxLossConfig
from bsc_core.data.pairs import PairDataset
from bsc_core.errors import InputError
from bsc_core.losses.checks import check_batch
from bsc_core.losses.parts import LossParts

ACTIVATIONS: dict[str, type[nn.Module]] = {"none": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU}


def pair_features(left: Tensor, right: Tensor, features: tuple[str, ...]) -> Tensor:
    """What the head sees of a pair: any of u, v, |u - v| ("difference") and u * v ("product"), side by side.

    left, right: (B, D). Returns (B, F), F = D times the number of features.
    """
    known = {"u": left, "v": right, "difference": (left - right).abs(), "product": left * right}
    return torch.cat([known[name] for name in features], dim=1)


class SoftmaxLoss(nn.Module):
    """Cross-entropy of softmax(W [u; v; |u - v|]) and the class (Reimers and Gurevych, 2019, section 3).

    The head is part of the loss: it is trained with the encoder, saved and restored. frozen_head leaves it as it was
    drawn, which is what the article's code does by leaving it out of the optimiser. dimensions: width D of the
    embeddings; None: taken from the first batch.
    """

    def __init__(self, config: SoftmaxLossConfig, threshold: float = 0.5, dimensions: int | None = None) -> None:
        super().__init__()
        self.config, self.threshold = config, threshold
        first = config.hidden or config.num_classes
        layers: list[nn.Module] = [
            nn.LazyLinear(first) if dimensions is None else nn.Linear(dimensions * len(config.features), first)
        ]
        if config.hidden:
            layers += [ACTIVATIONS[config.activation](), nn.Linear(config.hidden, config.num_classes)]
        self.head = nn.Sequential(*layers)
        if config.frozen_head:
            self.head.requires_grad_(False)

    @property
    def first(self) -> nn.Linear:
        """The layer that sees the features."""
        layer = self.head[0]
        assert isinstance(layer, nn.Linear)
        return layer

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch.

        queries: (B, D), documents: (B + K, D), of which the first B count. ids: `classes`, whole numbers (B,) from 0;
        without it labels that are whole numbers are the classes. Returns total and the term `softmax`. Raises
        InputError for other input, a class without a row in the head among it.
        """
        check_batch(queries, documents, None)
        classes = class_ids(labels, ids, len(queries), self.config.num_classes).to(queries.device)
        with torch.autocast(queries.device.type, enabled=False):
            total = nn.functional.cross_entropy(self._logits(queries, documents), classes)
        return LossParts(total, {"softmax": total.detach()})

    def predict(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Probability of each class for each pair. queries, documents: (B, D). Returns (B, C)."""
        check_batch(queries, documents, None)
        with torch.no_grad(), torch.autocast(queries.device.type, enabled=False):
            return self._logits(queries, documents).softmax(dim=1)

    def _logits(self, queries: Tensor, documents: Tensor) -> Tensor:
        first = self.first
        precision = first.weight.dtype  # float32, or float64 where the loss was made so
        features = pair_features(
            queries.to(precision), documents[: len(queries)].to(precision), self.config.features
        )  # (B, F)
        if not nn.parameter.is_lazy(first.weight) and features.shape[1] != first.in_features:
            raise InputError(
                f"the head was made for embeddings of {first.in_features // len(self.config.features)} numbers, and "
                f"these have {queries.shape[1]}; build the loss with dimensions={queries.shape[1]}"
            )
        logits: Tensor = self.head(features)  # (B, C)
        return logits


def class_accuracy(loss: nn.Module, dataset: PairDataset, vectors: NDArray[np.float32]) -> float | None:
    """Share of the dataset's pairs whose class the loss's head tells, in [0, 1].

    vectors: (U, D), row t for text t of the dataset. None where the loss has no head, or the dataset no classes.
    """
    heads = [module for module in loss.modules() if isinstance(module, SoftmaxLoss)]
    if not heads or dataset.classes is None or not len(dataset):
        return None
    device = next(heads[0].parameters()).device
    sides = [torch.from_numpy(vectors[column]).to(device) for column in (dataset.query, dataset.document)]
    told = heads[0].predict(sides[0], sides[1]).argmax(dim=1).cpu().numpy()
    return float((told == dataset.classes).mean())


def class_ids(labels: Tensor | None, ids: dict[str, Tensor], pairs: int, number: int) -> Tensor:
    """The class of each pair, long (B,), from the id `classes` or from labels that are whole numbers.

    number: classes that the head knows. Raises InputError when they are missing or out of range.
    """
    given = ids.get("classes", labels)
    if given is None or given.is_floating_point():
        raise InputError("this loss needs a class for each pair; give classes, whole numbers from 0, one a pair")
    if given.shape != (pairs,):
        raise InputError(f"classes are {tuple(given.shape)} for {pairs} pairs; give one a pair")
    lowest, highest = int(given.min()), int(given.max())
    if lowest < 0 or highest >= number:
        wrong = lowest if lowest < 0 else highest
        raise InputError(f"class {wrong} has no row in the head of {number}; raise num_classes or correct the classes")
    return given.long()
