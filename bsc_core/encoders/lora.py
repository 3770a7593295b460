"""Low-rank adaptation (LoRA) with peft: trains small added matrices, merged into the frozen weights on saving.

The matrices are injected into the model's layers, so other modules need no special case. Hu et al., LoRA: Low-Rank
Adaptation of Large Language Models, ICLR 2022.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from bsc_core.config import LoRAConfig
from bsc_core.errors import ConfigError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

ADAPTER = "default"


def check_lora() -> None:
    """Raise ConfigError if peft is not installed."""
    if find_spec("peft") is None:
        raise ConfigError(
            "encoder.lora needs the package peft, which is not installed; run pip install 'bsc-lab[lora]', "
            "or leave encoder.lora out"
        )


def add_lora(model: SentenceTransformer, config: LoRAConfig) -> None:
    """Add low-rank matrices and train only these: W becomes W + (alpha / rank) B A.

    B starts at 0, so the model's vectors do not change yet; A is sampled from torch's generator.

    Raises:
        ConfigError: peft is not installed, or the encoder has no matching layers.
    """
    check_lora()
    from peft import LoraConfig, inject_adapter_in_model

    transformer = model.transformers_model
    if transformer is None:
        raise ConfigError(
            "encoder.lora adds matrices to a transformer's layers, and this encoder has none; leave it out"
        )
    lora_config = LoraConfig(
        r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=list(config.targets) or None
    )
    try:
        inject_adapter_in_model(lora_config, transformer, ADAPTER)
    except ValueError as error:
        linear = [name for name, module in transformer.named_modules() if isinstance(module, nn.Linear)]
        names = sorted({name.rpartition(".")[2] for name in linear})
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"encoder.lora: {reason}; name some of its linear layers in encoder.lora.targets ({', '.join(names)})"
        ) from None
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)


def lora_state(model: nn.Module) -> dict[str, dict[str, Tensor]] | None:
    """Return the state of each layer with low-rank matrices by name, or None if there is none.

    A saved model has the matrices merged into the weights, from which neither can be restored exactly.
    """
    return {name: layer.state_dict() for name, layer in _layers(model)} or None


def load_lora_state(model: nn.Module, state: dict[str, dict[str, Tensor]]) -> None:
    """Restore what `lora_state` returned into a model prepared by `add_lora` with the same config."""
    for name, values in state.items():
        model.get_submodule(name).load_state_dict(values)


@contextmanager
def merged(model: nn.Module) -> Iterator[None]:
    """Replace the layers with plain ones, the matrices merged into their weights, inside the block.

    Afterwards the layers and their weights are restored exactly.
    """
    with ExitStack() as restore:
        for name, layer in list(_layers(model)):
            parent, _, last = name.rpartition(".")
            base = layer.get_base_layer()
            weight = base.weight.data
            base.weight.data = weight + layer.get_delta_weight(ADAPTER)
            setattr(model.get_submodule(parent), last, base)
            restore.callback(setattr, model.get_submodule(parent), last, layer)
            restore.callback(setattr, base.weight, "data", weight)
        yield


def has_lora(model: nn.Module) -> bool:
    """Return whether `add_lora` was applied to the model."""
    return any(True for _ in _layers(model))


@contextmanager
def scaled(model: nn.Module, factor: float) -> Iterator[None]:
    """Multiply the products of the matrices by a factor inside the block: W + factor (alpha / rank) B A."""
    layers = [(layer, layer.scaling[ADAPTER]) for _, layer in _layers(model)]
    for layer, scale in layers:
        layer.scaling[ADAPTER] = factor * scale
    try:
        yield
    finally:
        for layer, scale in layers:
            layer.scaling[ADAPTER] = scale


def _layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the name and module of each layer with low-rank matrices."""
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") and hasattr(module, "get_base_layer"):
            yield name, module
