"""Sentence encoders: texts in, vectors out. Nothing heavy is imported before it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bsc_core.encoders.base import encode, eval_mode, model_digest
    from bsc_core.encoders.cache import embed, keep_vectors, kept_or_made, known_vectors
    from bsc_core.encoders.card import model_card
    from bsc_core.encoders.choose import ENCODERS, check_encoder, encoder_folder, load_encoder
    from bsc_core.encoders.pretrained import save_model
    from bsc_core.encoders.tokens import TokenTable, micro_batches, tokenise

_HOMES = {
    "ENCODERS": "choose",
    "TokenTable": "tokens",
    "check_encoder": "choose",
    "embed": "cache",
    "encode": "base",
    "encoder_folder": "choose",
    "eval_mode": "base",
    "keep_vectors": "cache",
    "kept_or_made": "cache",
    "known_vectors": "cache",
    "load_encoder": "choose",
    "micro_batches": "tokens",
    "model_card": "card",
    "model_digest": "base",
    "save_model": "pretrained",
    "tokenise": "tokens",
}

__all__ = [
    "ENCODERS",
    "TokenTable",
    "check_encoder",
    "embed",
    "encode",
    "encoder_folder",
    "eval_mode",
    "keep_vectors",
    "kept_or_made",
    "known_vectors",
    "load_encoder",
    "micro_batches",
    "model_card",
    "model_digest",
    "save_model",
    "tokenise",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
