"""Texts one after the other instead of padded: what a transformers model is told, and its attention within each text.

A micro-batch is one row of T tokens with the bounds of its texts, as sentence-transformers lays it out for
FlashAttention; its pooling reads the bounds. Attention is torch's own: on a GPU the fused kernels for texts of unequal
lengths, which compute in half precision; elsewhere text by text, which is slow and the same.
"""

# n texts, T tokens of all of them, h heads, d numbers of a head

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from bsc_core.encoders.base import eval_mode
from bsc_core.encoders.compiled import is_compiled
from bsc_core.encoders.tokens import Ids, TokenTable

varlen_attn: Callable[..., Any] | None
try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # before torch 2.10
    varlen_attn = None

ATTENTION = "bsc_unpadded"
FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
ALWAYS_NESTED = ContextVar("ALWAYS_NESTED", default=False)
BOUNDS = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx", "position_ids", "token_type_ids"}
SILENT = {*BOUNDS, "is_causal", "deterministic"}
"""What attention may be told beside queries, keys and values; what else is set asks for what it cannot do."""
AS_NEAR = 0.05
"""Largest relative difference that half precision may make to a text's vector, or to the gradient of all weights."""


def flat_features(tokens: TokenTable, ids: Ids, first_position: int) -> dict[str, Any]:
    """What the model takes for the texts `ids` (n,), in their order; repeats are allowed, texts without tokens are not.

    input_ids, position_ids and seq_idx: (1, T), the last one the place in `ids`. cu_seq_lens_q and cu_seq_lens_k:
    (n + 1,) int32, the bounds of the texts; max_length_q, max_length_k: tokens of the longest. Tensors are on the CPU.
    """
    rows = np.asarray(ids, dtype=np.int64)
    lengths = tokens.lengths[rows]
    bounds = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(int(bounds[-1])) - np.repeat(bounds[:-1], lengths)  # (T,), in their texts
    pieces = tokens.tokens[np.repeat(tokens.offsets[rows], lengths) + places].astype(np.int64)
    cumulated = torch.from_numpy(bounds.astype(np.int32))
    longest = int(lengths.max())
    found: dict[str, Any] = {
        "input_ids": torch.from_numpy(pieces)[None],
        "position_ids": torch.from_numpy(places + first_position)[None],
        "seq_idx": torch.from_numpy(np.repeat(np.arange(len(rows), dtype=np.int32), lengths))[None],
        "cu_seq_lens_q": cumulated,
        "cu_seq_lens_k": cumulated,
        "max_length_q": longest,
        "max_length_k": longest,
    }
    if tokens.token_types:
        found["token_type_ids"] = torch.zeros_like(found["input_ids"])
    return found


def first_position(model: SentenceTransformer) -> int:
    """The position of a text's first token: 0, but in RoBERTa and its kin the one after the padding token's id."""
    for module in model.modules():
        padding = getattr(module, "padding_idx", None)
        if isinstance(padding, int) and isinstance(getattr(module, "position_embeddings", None), nn.Embedding):
            return padding + 1
    return 0


def unfit(model: SentenceTransformer, tokens: TokenTable, *, half: bool) -> str:
    """Why texts have to be padded, as the end of a sentence; empty where nothing is seen to speak against leaving it.

    half: the encoder computes in half precision.
    """
    parts = list(model.children())
    inner: Any = model.transformers_model
    if not half:
        return "the fused kernels for texts of unequal lengths compute in half precision only"
    if tokens.bag or not parts or type(parts[0]) is not Transformer or inner is None:
        return "the encoder is no transformer alone"
    if not all(type(part) in (Pooling, Dense, Normalize) for part in parts[1:]):
        return "a module after the transformer reads padded texts"
    if not bool((tokens.lengths > 0).all()):
        return "a text has no tokens"
    if is_compiled(model):
        return "the encoder is compiled for padded texts"
    if any(getattr(module, "gradient_checkpointing", False) for module in inner.modules()):
        return "the encoder computes its layers anew in backward"
    if parts[0].model_forward_params is not None or not inner.is_backend_compatible():
        return "the encoder's architecture has an attention of its own"
    return ""


def disagreement(
    model: SentenceTransformer, tokens: TokenTable, vectors: Callable[[bool, Ids], Tensor], tolerance: float = AS_NEAR
) -> str:
    """As `unfit`, tried on three texts: with dropout off, vectors and gradients must be those of padded texts.

    vectors(flat, ids): of the texts, (n, D), with a graph. tolerance: relative. Both kernels are tried. Random
    generators and gradients stay as they are.
    """
    order = np.argsort(tokens.lengths, kind="stable")
    ids = order[[0, len(order) // 2, len(order) - 1]]  # the shortest, one between and the longest
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    try:
        with eval_mode(model), torch.enable_grad():
            padded = _found(vectors(False, ids), weights)
            for nested in (False, True):
                with _nesting(nested):
                    flat = _found(vectors(True, ids), weights)
                if not all(_near(one, other, tolerance) for one, other in zip(flat, padded, strict=True)):
                    return "without padding its vectors differ"
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError) as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return ""


@contextmanager
def _nesting(always: bool) -> Iterator[None]:
    before = ALWAYS_NESTED.set(always)
    try:
        yield
    finally:
        ALWAYS_NESTED.reset(before)


def _found(vectors: Tensor, weights: list[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """The vectors, (n, D), and the gradient of a weighted sum of theirs, (1, all weights)."""
    shares = torch.linspace(-1, 1, vectors.numel(), device=vectors.device).view_as(vectors)
    gradients = torch.autograd.grad((vectors * shares).sum(), weights, allow_unused=True)
    whole = torch.cat([gradient.float().reshape(-1) for gradient in gradients if gradient is not None])
    return vectors.detach().float(), whole[None]


def _near(one: Tensor, other: Tensor, tolerance: float) -> bool:
    """Whether each row differs by a share of its length that is no larger than that."""
    return one.shape == other.shape and bool(((one - other).norm(dim=1) <= tolerance * other.norm(dim=1)).all())


@contextmanager
def attention_within_texts(model: SentenceTransformer) -> Iterator[None]:
    """Inside, the model takes `flat_features`; afterwards it attends as before."""
    inner: Any = model.transformers_model
    before = inner.config._attn_implementation
    inner.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        inner.set_attn_implementation(before)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **told: Any,
) -> tuple[Tensor, None]:
    """Attention of each token with those of its own text, as transformers' models call it.

    query, key, value: (1, h, T, d). Returns (1, T, h, d). Raises ValueError where a model asks for another attention.
    """
    asked = sorted(name for name in told.keys() - SILENT if told[name] is not None and told[name] is not False)
    causal = told.get("is_causal")
    if getattr(module, "is_causal", True) if causal is None else causal:
        asked.append("causal attention")
    if attention_mask is not None:
        asked.append("a mask of its own")
    if key.shape != query.shape:
        asked.append("grouped heads")
    if asked:
        raise ValueError(f"its attention asks for {', '.join(asked)}")
    one, other, third = (part[0].transpose(0, 1).to(value.dtype) for part in (query, key, value))  # (T, h, d)
    mixed = _mixed(one, other, third, told["cu_seq_lens_q"], int(told["max_length_q"]), dropout, scaling)
    return mixed[None], None


def _mixed(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, dropout: float, scale: float | None
) -> Tensor:
    """The attention of texts with these bounds, (n + 1,); all others are (T, h, d)."""
    if query.device.type == "cpu":
        return by_text(query, key, value, bounds, dropout, scale)
    if dropout or varlen_attn is None or ALWAYS_NESTED.get():  # varlen_attn knows no dropout
        with sdpa_kernel(FUSED):
            return by_nesting(query, key, value, bounds, longest, dropout, scale)
    one, other, third = (part.contiguous() for part in (query, key, value))
    mixed: Tensor = varlen_attn(one, other, third, bounds, bounds, longest, longest, scale=scale)
    return mixed


def by_text(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, dropout: float, scale: float | None) -> Tensor:
    """One text after the other. Sizes as for `_mixed`."""
    parts = []
    for start, stop in pairwise(bounds.tolist()):
        one, other, third = (part[start:stop].transpose(0, 1) for part in (query, key, value))  # (h, tokens, d)
        parts.append(scaled_dot_product_attention(one, other, third, dropout_p=dropout, scale=scale).transpose(0, 1))
    return torch.cat(parts)


def by_nesting(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, dropout: float, scale: float | None
) -> Tensor:
    """All texts at once, as a nested tensor. Sizes as for `_mixed`."""
    offsets = bounds.long()

    def nested(part: Tensor) -> Tensor:
        texts: Tensor = torch.nested.nested_tensor_from_jagged(part, offsets, min_seqlen=1, max_seqlen=longest)
        return texts.transpose(1, 2)

    mixed = scaled_dot_product_attention(nested(query), nested(key), nested(value), dropout_p=dropout, scale=scale)
    return mixed.transpose(1, 2).values()


def _no_mask(*told: Any, **more: Any) -> None:
    """The bounds of the texts say it all."""


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, _no_mask)
