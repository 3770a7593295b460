"""Compilation of an encoder with torch.compile."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from bsc_core.encoders.tokens import TokenTable
from bsc_core.errors import ConfigError
from bsc_core.paths import cache_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BACKEND = "inductor"
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")  # environment variables of torch


def compile_encoder(model: SentenceTransformer, tokens: TokenTable) -> None:
    """Compile the model's transformer in place, for any number and length of texts.

    Runs it once on two texts of the table; weights, gradients and random generators stay unchanged. Dropout samples
    the same random numbers as without compilation, so a text encoded twice in a step gets the same dropout mask.

    Raises:
        ConfigError: The encoder has no transformer, or compilation fails on this machine.
    """
    transformer = model.transformers_model
    if transformer is None:
        raise ConfigError("training.compile is true, and this encoder has no transformer to compile; set it to false")
    for name in CACHES:  # the usual folders are in that of temporary files, where other users may put libraries
        os.environ.setdefault(name, str(cache_folder() / "compiled"))
    options: dict[str, Any] | None = None
    if BACKEND == "inductor":  # precompiled headers are in the folder of temporary files whatever CACHES are
        options = {"fallback_random": True, "cpp_cache_precompile_headers": False}
    try:
        transformer.forward = torch.compile(transformer.forward, dynamic=True, backend=BACKEND, options=options)
        _run_once(model, tokens)
    except Exception as error:  # from torch's compiler, a C++ compiler or a driver
        vars(transformer).pop("forward", None)  # back to the method of the class
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"training.compile is true, and compiling failed here ({reason}); set it to false") from error


def is_compiled(model: SentenceTransformer) -> bool:
    """Return whether `compile_encoder` was applied to the model."""
    return isinstance(model.transformers_model, nn.Module) and "forward" in vars(model.transformers_model)


def _run_once(model: SentenceTransformer, tokens: TokenTable) -> None:
    device = torch.device(model.device)
    features = {name: value.to(device) for name, value in tokens.features(np.arange(min(2, len(tokens)))).items()}
    with torch.random.fork_rng([device] if device.type == "cuda" else []), torch.enable_grad():
        vectors = model(features)["sentence_embedding"]
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        torch.autograd.grad(vectors.sum(), trained, allow_unused=True)
