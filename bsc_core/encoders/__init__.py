"""Sentence encoders: texts in, vectors out. Submodules are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bsc_core.encoders.embedding_cache import cached_vectors, embed, embed_initial, get_or_compute, store_vectors
    from bsc_core.encoders.encoding import encode, eval_mode
    from bsc_core.encoders.pretrained import model_card, save_model
    from bsc_core.encoders.registry import ENCODERS, build_encoder, check_encoder, encoder_folder, load_encoder
    from bsc_core.encoders.tokens import TokenTable, micro_batches, tokenize

_NAMES = {
    "embedding_cache": ("cached_vectors", "embed", "embed_initial", "get_or_compute", "store_vectors"),
    "encoding": ("encode", "eval_mode"),
    "pretrained": ("model_card", "save_model"),
    "registry": ("ENCODERS", "build_encoder", "check_encoder", "encoder_folder", "load_encoder"),
    "tokens": ("TokenTable", "micro_batches", "tokenize"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "ENCODERS",
    "TokenTable",
    "build_encoder",
    "cached_vectors",
    "check_encoder",
    "embed",
    "embed_initial",
    "encode",
    "encoder_folder",
    "eval_mode",
    "get_or_compute",
    "load_encoder",
    "micro_batches",
    "model_card",
    "save_model",
    "store_vectors",
    "tokenize",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
