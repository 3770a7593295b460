"""A transformer's layers before training: re-initialized upper layers and frozen lower layers.

Zhang et al., Revisiting Few-sample BERT Fine-tuning, ICLR 2021 (arXiv 2006.05987): the upper layers are specialized for
the previous task, and fine-tuning can improve if they start from random weights. Lee et al., What Would Elsa Do?, 2019
(arXiv 1911.03090): with the lower layers frozen, training the upper ones is often enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from bsc_core.config import EncoderConfig
from bsc_core.encoders.registry import load_encoder
from bsc_core.errors import ConfigError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def load_initial_encoder(encoder: EncoderConfig, seed: int) -> SentenceTransformer:
    """Load the encoder that a run with this seed starts from, with random upper layers where the config says so.

    Raises:
        InputError: The encoder cannot be loaded, or has fewer layers.
    """
    model = load_encoder(encoder)
    if encoder.reinit_layers:
        reinit_layers(model, encoder.reinit_layers, seed)
    return model


def reinit_layers(model: SentenceTransformer, count: int, seed: int) -> None:
    """Re-initialize the upper `count` transformer layers and the pooler of a model in place.

    Weights are sampled from a normal distribution with the config's `initializer_range`, by default 0.02; biases are 0,
    and the scales of normalization layers 1. The values depend on the seed only, not on torch's generator.

    Raises:
        ConfigError: The encoder has no transformer layers, or fewer than `count`.
    """
    transformer, layers = _transformer_layers(model, f"encoder.reinit_layers is {count}")
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


def freeze_layers(model: SentenceTransformer, count: int, reinitialized: int = 0) -> None:
    """Freeze the embeddings and the lowest `count` transformer layers of a model: they are not trained.

    No gradient is computed below the lowest trained layer. Dropout stays active there.

    Args:
        model: The encoder, changed in place.
        count: Number of layers.
        reinitialized: Number of upper layers that were re-initialized.

    Raises:
        ConfigError: The encoder has no transformer layers, no layer would be left to train, or a re-initialized layer
            would be frozen.
    """
    setting = f"encoder.freeze_layers is {count}"
    transformer, layers = _transformer_layers(model, setting)
    most = len(layers) - max(1, reinitialized)
    if count > most:
        reason = (
            f"encoder.reinit_layers is {reinitialized}, so random layers would be frozen"
            if reinitialized
            else "no layer would be trained"
        )
        raise ConfigError(
            f"{setting}, this encoder has {len(layers)} layers, and {reason}; set it to at most {max(0, most)}"
        )
    in_layers = {parameter for layer in layers for parameter in layer.parameters()}
    embeddings = {
        *transformer.get_input_embeddings().parameters(),
        *(parameter for name, parameter in transformer.named_parameters() if "embed" in name.lower()),
    }
    for parameter in (*(embeddings - in_layers), *(p for layer in layers[:count] for p in layer.parameters())):
        parameter.requires_grad_(False)


def _transformer_layers(model: SentenceTransformer, setting: str) -> tuple[Any, nn.ModuleList]:
    """Return the transformer and its list of layers, the longest list of modules.

    setting: start of the error for an encoder without layers. Raises ConfigError.
    """
    transformer = model.transformers_model
    modules = () if transformer is None else transformer.modules()
    lists = [module for module in modules if isinstance(module, nn.ModuleList) and len(module)]
    if not lists:
        raise ConfigError(f"{setting}, and this encoder has no transformer layers; set it to 0")
    return transformer, max(lists, key=len)


def _initialize(module: nn.Module, deviation: float, generator: torch.Generator) -> None:
    """Initialize the parameters of one module without its submodules."""
    for name, parameter in module.named_parameters(recurse=False):
        if name.endswith("bias"):
            parameter.zero_()
        elif parameter.ndim == 1:  # the scale of a normalization layer
            parameter.fill_(1.0)
        else:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * deviation)
