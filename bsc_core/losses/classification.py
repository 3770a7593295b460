"""SBERT's sentence pair classifier: cross-entropy of a head on both embeddings."""

# B pairs in a batch, D dimensions, F features, C classes

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bsc_core.config import SoftmaxLossConfig
from bsc_core.data.dataset import PairDataset
from bsc_core.errors import InputError
from bsc_core.losses.base import Loss, LossParts, check_batch

ACTIVATIONS: dict[str, type[nn.Module]] = {"none": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU}


def pair_features(left: Tensor, right: Tensor, features: tuple[str, ...]) -> Tensor:
    """Concatenate pair features, (B, F): any of u, v, |u - v| ("difference") and u * v ("product").

    Args:
        left: (B, D) vectors u.
        right: (B, D) vectors v.
        features: Names of the features, in order; F is D times their number.
    """
    known = {"u": left, "v": right, "difference": (left - right).abs(), "product": left * right}
    return torch.cat([known[name] for name in features], dim=1)


class SoftmaxLoss(Loss):
    """Cross-entropy of softmax(W [u; v; |u - v|]) and the class (Reimers and Gurevych, 2019, section 3).

    The head is part of the loss: trained with the encoder, saved and restored. `frozen_head` keeps its random
    initialization, as in the article's code, whose optimizer does not include it. `labels` are integer class ids,
    if `classes` is not given; only the first B documents are used. Term: `softmax`.

    Args:
        config: Settings of the loss.
        threshold: Unused.
        dimensions: Width D of the embeddings; None to take it from the first batch.
    """

    reads_labels = False
    config: SoftmaxLossConfig

    def __init__(self, config: SoftmaxLossConfig, threshold: float = 0.5, dimensions: int | None = None) -> None:
        super().__init__(config, threshold)
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
        """The layer that reads the features."""
        layer = self.head[0]
        assert isinstance(layer, nn.Linear)
        return layer

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        classes = class_ids(labels, ids, len(queries), self.config.num_classes).to(queries.device)
        total = nn.functional.cross_entropy(self._logits(queries, documents), classes)
        return LossParts(total, {"softmax": total.detach()})

    def predict(self, queries: Tensor, documents: Tensor) -> Tensor:
        """Return the probability of each class for each pair, (B, C).

        Args:
            queries: (B, D) embeddings.
            documents: (B, D) embeddings.
        """
        check_batch(queries, documents, None)
        with torch.no_grad(), torch.autocast(queries.device.type, enabled=False):
            return self._logits(queries, documents).softmax(dim=1)

    def _logits(self, queries: Tensor, documents: Tensor) -> Tensor:
        first = self.first
        precision = first.weight.dtype  # float32, or float64 if the loss was converted
        features = pair_features(
            queries.to(precision), documents[: len(queries)].to(precision), self.config.features
        )  # (B, F)
        if not nn.parameter.is_lazy(first.weight) and features.shape[1] != first.in_features:
            raise InputError(
                f"the head expects embeddings of {first.in_features // len(self.config.features)} dimensions, and "
                f"these have {queries.shape[1]}; build the loss with dimensions={queries.shape[1]}"
            )
        logits: Tensor = self.head(features)  # (B, C)
        return logits


def class_accuracy(loss: nn.Module, dataset: PairDataset, vectors: NDArray[np.float32]) -> float | None:
    """Return the accuracy of the loss's head on a dataset, in [0, 1]; None without a head or without classes.

    Args:
        loss: Any loss; the first `SoftmaxLoss` in it has the head.
        dataset: Pairs with classes.
        vectors: (U, D), row t for text t of the dataset.
    """
    heads = [module for module in loss.modules() if isinstance(module, SoftmaxLoss)]
    if not heads or dataset.classes is None or not len(dataset):
        return None
    device = next(heads[0].parameters()).device
    sides = [torch.from_numpy(vectors[column]).to(device) for column in (dataset.query, dataset.document)]
    predicted = heads[0].predict(sides[0], sides[1]).argmax(dim=1).cpu().numpy()
    return float((predicted == dataset.classes).mean())


def class_ids(labels: Tensor | None, ids: dict[str, Tensor], pairs: int, number: int) -> Tensor:
    """Return the class of each pair, long (B,), from `classes` or from integer labels.

    Args:
        labels: (B,) labels, used if there are no `classes`.
        ids: Tensors by name, with key `classes` where they are given.
        pairs: Number of pairs, B.
        number: Number of classes of the head.

    Raises:
        InputError: Classes are missing or out of range.
    """
    given = ids.get("classes", labels)
    if given is None or given.is_floating_point():
        raise InputError("this loss needs a class for each pair; give classes, integers from 0, one for each pair")
    if given.shape != (pairs,):
        raise InputError(f"classes are {tuple(given.shape)} for {pairs} pairs; give one for each pair")
    lowest, highest = int(given.min()), int(given.max())
    if lowest < 0 or highest >= number:
        wrong = lowest if lowest < 0 else highest
        raise InputError(
            f"class {wrong} is out of range for a head of {number} classes; raise num_classes or correct the classes"
        )
    return given.long()
