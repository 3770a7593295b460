"""Low-rank adaptation through peft: small matrices are trained beside frozen weights, and merged when a model is saved.

The matrices are put into the model itself, layer by layer, so that whatever encodes with it sees them, and nothing else
has to know of them. Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022.
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
    """Refuse LoRA where peft is not installed. Raises ConfigError."""
    if find_spec("peft") is None:
        raise ConfigError(
            "encoder.lora needs the package peft, which is not installed; run pip install 'bsc-lab[lora]', "
            "or leave encoder.lora out"
        )


def add_lora(model: SentenceTransformer, config: LoRAConfig) -> None:
    """Let only low-rank matrices be trained: W becomes W + (alpha / rank) B A, with B = 0, so that nothing changes yet.

    A is drawn from torch's generator. Raises ConfigError where peft is missing, or the encoder has no such layers.
    """
    check_lora()
    from peft import LoraConfig, inject_adapter_in_model

    inner = model.transformers_model
    if inner is None:
        raise ConfigError(
            "encoder.lora adds matrices to a transformer's layers, and this encoder has none; leave it out"
        )
    wanted = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=list(config.targets) or None,
    )
    try:
        inject_adapter_in_model(wanted, inner, ADAPTER)
    except ValueError as error:
        names = sorted({name.rpartition(".")[2] for name, part in inner.named_modules() if isinstance(part, nn.Linear)})
        reason = str(error).splitlines()[0].rstrip(".")
        raise ConfigError(
            f"encoder.lora: {reason}; name some of its linear layers in encoder.lora.targets ({', '.join(names)})"
        ) from None
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in name)


def lora_state(model: nn.Module) -> dict[str, dict[str, Tensor]] | None:
    """The layers that hold low-rank matrices, by name: their own weights and the matrices. None where there are none.

    A saved model holds the two merged, from which neither could be had back to the bit.
    """
    return {name: layer.state_dict() for name, layer in _layers(model)} or None


def load_lora_state(model: nn.Module, state: dict[str, dict[str, Tensor]]) -> None:
    """Give the layers back what `lora_state` told. The model has had `add_lora` with the same config."""
    for name, values in state.items():
        model.get_submodule(name).load_state_dict(values)


@contextmanager
def merged(model: nn.Module) -> Iterator[None]:
    """The model as a plain one inside the block: its own kind of layers, with the matrices added to their weights.

    After it, the layers and their weights are those of before, to the bit.
    """
    with ExitStack() as after:
        for name, layer in list(_layers(model)):
            parent, _, last = name.rpartition(".")
            base = layer.get_base_layer()
            weight = base.weight.data
            base.weight.data = weight + layer.get_delta_weight(ADAPTER)
            setattr(model.get_submodule(parent), last, base)
            after.callback(setattr, model.get_submodule(parent), last, layer)
            after.callback(setattr, base.weight, "data", weight)
        yield


def _layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Names and layers that hold low-rank matrices."""
    for name, part in model.named_modules():
        if hasattr(part, "lora_A") and hasattr(part, "get_base_layer"):
            yield name, part
