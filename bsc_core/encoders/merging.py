"""Weighted averages of the weights of models: interpolation with the start of training, and model soups.

- WiSE-FT (Wortsman et al. 2021, arXiv 2109.01903): (1 - alpha) * start + alpha * trained. alpha = 0 is the start and
  alpha = 1 the trained model.
- Model soup (Wortsman et al. 2022, arXiv 2203.05482): the mean of models that were trained from the same start, such as
  runs that differ only in their seed, or the last checkpoints of one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from bsc_core.encoders.lora import has_lora, scaled
from bsc_core.errors import ModelError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Weights = dict[str, Tensor]


def copy_weights(model: nn.Module) -> Weights:
    """Return copies of a model's weights and buffers by name."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def average_weights(models: Iterable[Mapping[str, Tensor]], shares: Sequence[float] | None = None) -> Weights:
    """Return the sum of shares[i] * models[i], computed in float64 and returned in the types of the first model.

    A model with a share of 0 has no influence. Integers, such as position numbers, are those of the first model. The
    models are read one after the other, so an iterator needs the memory of one of them.

    Args:
        models: Weights by name, of the same names and shapes.
        shares: One for each model, with a sum of 1; None: equal shares.

    Raises:
        ModelError: Names or shapes differ.
    """
    if shares is None:
        models = list(models)
        shares = [1 / len(models)] * len(models)
    first: Mapping[str, Tensor] = {}
    totals: Weights = {}
    for share, model in zip(shares, models, strict=True):
        if not first:
            first = {name: tensor if tensor.is_floating_point() else tensor.clone() for name, tensor in model.items()}
            totals = {
                name: torch.zeros(tensor.shape, dtype=torch.float64)
                for name, tensor in first.items()
                if tensor.is_floating_point()
            }
        name = next((name for name in {**first, **model} if _shape(first, name) != _shape(model, name)), None)
        if name is not None:
            raise ModelError(
                f"the models have different architectures ({name} is {_shape(first, name)} and {_shape(model, name)}); "
                "average models that were trained from the same encoder"
            )
        for name, total in totals.items() if share else ():
            total.add_(model[name].detach().to("cpu", torch.float64), alpha=share)
    return {
        name: totals[name].to(tensor.device, tensor.dtype) if name in totals else tensor
        for name, tensor in first.items()
    }


def interpolate(start: Mapping[str, Tensor], trained: Mapping[str, Tensor], alpha: float) -> Weights:
    """Return (1 - alpha) * start + alpha * trained: the start for alpha = 0, the trained weights for alpha = 1.

    Raises:
        ModelError: Names or shapes differ.
    """
    return average_weights((start, trained), (1 - alpha, alpha))


def set_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights and buffers into a model that has the same names and shapes.

    Raises:
        ModelError: Names or shapes differ.
    """
    state = model.state_dict()
    if {name: tensor.shape for name, tensor in state.items()} != {name: one.shape for name, one in weights.items()}:
        raise ModelError("the models have weights of other names or shapes, so they cannot be merged")
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(weights[name])


class MergeWithStart:
    """Interpolation of a model in training with its weights before training; see `interpolate`.

    With low-rank matrices B A, the interpolation is W + alpha (B A), since their start is W.

    Args:
        alpha: Share of the trained weights, in [0, 1]; None or 1: no interpolation.
        start: The encoder before training, which is copied. Not needed for a model with low-rank matrices.
    """

    def __init__(self, alpha: float | None, start: SentenceTransformer | None) -> None:
        self.alpha = 1.0 if alpha is None else alpha
        self.start = copy_weights(start) if start is not None and self.is_active else {}

    @property
    def is_active(self) -> bool:
        """Whether the merged model differs from the trained one."""
        return self.alpha < 1

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Replace the weights by the merged ones inside the block; afterwards they are restored exactly."""
        if not self.is_active:
            yield
        elif has_lora(model):
            with scaled(model, self.alpha):
                yield
        else:
            trained = copy_weights(model)
            set_weights(model, interpolate(self.start, trained, self.alpha))
            try:
                yield
            finally:
                set_weights(model, trained)


def _shape(weights: Mapping[str, Tensor], name: str) -> str:
    """Return the shape of a tensor as text, such as `(3, 4)`; `missing` if there is none."""
    return str(tuple(weights[name].shape)) if name in weights else "missing"
