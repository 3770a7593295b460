"""Re-initialization of a transformer's upper layers before training.

Zhang et al., Revisiting Few-sample BERT Fine-tuning, ICLR 2021 (arXiv 2006.05987): the upper layers are specialized for
the previous task, and fine-tuning can improve if they start from random weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from bsc_core.errors import ConfigError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def reinit_layers(model: SentenceTransformer, count: int, seed: int) -> None:
    """Re-initialize the upper `count` transformer layers and the pooler of a model in place.

    Weights are sampled from a normal distribution with the config's `initializer_range`, by default 0.02; biases are 0,
    and the scales of normalization layers 1. The values depend on the seed only, not on torch's generator.

    Raises:
        ConfigError: The encoder has no transformer layers, or fewer than `count`.
    """
    transformer = model.transformers_model
    layers = None if transformer is None else _layers(transformer)
    if transformer is None or layers is None:
        raise ConfigError(f"encoder.reinit_layers is {count}, and this encoder has no transformer layers; set it to 0")
    if count > len(layers):
        raise ConfigError(
            f"encoder.reinit_layers is {count}, and this encoder has {len(layers)} layers; set it to at most that"
        )
    deviation = float(getattr(transformer.config, "initializer_range", 0.02))
    generator = torch.Generator().manual_seed(seed)
    pooler = getattr(transformer, "pooler", None)
    with torch.no_grad():
        for part in [*layers[len(layers) - count :], *([pooler] if isinstance(pooler, nn.Module) else [])]:
            for module in part.modules():
                _initialize(module, deviation, generator)


def _layers(transformer: nn.Module) -> nn.ModuleList | None:
    """Return the list of transformer layers: the longest list of modules."""
    lists = [module for module in transformer.modules() if isinstance(module, nn.ModuleList) and len(module)]
    return max(lists, key=len, default=None)


def _initialize(module: nn.Module, deviation: float, generator: torch.Generator) -> None:
    """Initialize the parameters of one module without its submodules."""
    for name, parameter in module.named_parameters(recurse=False):
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim == 1:  # the scale of a normalization layer
            parameter.fill_(1.0)
        else:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * deviation)
