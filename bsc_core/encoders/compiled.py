"""An encoder through torch.compile: slow at first, then perhaps faster; the vectors stay the same but for rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from bsc_core.encoders.tokens import TokenTable
from bsc_core.errors import ConfigError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BACKEND = "inductor"


def compile_encoder(model: SentenceTransformer, tokens: TokenTable) -> None:
    """Let the model's transformer compute with compiled code from now on, for texts of any number and length.

    Tried at once on two texts of the table; weights, gradients and random generators stay as they are. Dropout draws as
    without compiling, so that a text encoded again meets the same draws. Raises ConfigError where it cannot be done.
    """
    inner = model.transformers_model
    if inner is None:
        raise ConfigError("training.compile is true, and this encoder has no transformer to compile; set it to false")
    options: dict[str, Any] | None = {"fallback_random": True} if BACKEND == "inductor" else None
    try:
        inner.forward = torch.compile(inner.forward, dynamic=True, backend=BACKEND, options=options)
        _try(model, tokens)
    except Exception as error:  # of torch's compiler, a C++ compiler or a driver
        vars(inner).pop("forward", None)  # the class's own again
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"training.compile is true, and compiling failed here ({reason}); set it to false") from error


def is_compiled(model: SentenceTransformer) -> bool:
    """Whether `compile_encoder` was done."""
    return isinstance(model.transformers_model, nn.Module) and "forward" in vars(model.transformers_model)


def _try(model: SentenceTransformer, tokens: TokenTable) -> None:
    device = torch.device(model.device)
    features = {name: value.to(device) for name, value in tokens.features(np.arange(min(2, len(tokens)))).items()}
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
        vectors = model(features)["sentence_embedding"]
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        torch.autograd.grad(vectors.sum(), trained, allow_unused=True)
