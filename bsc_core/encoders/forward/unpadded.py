"""Inputs and attention for concatenated instead of padded texts (`encoder.unpadded`; its speed on a GPU is unknown).

A micro-batch is one row of T tokens with the bounds of its texts, the layout that sentence-transformers uses for
FlashAttention; its pooling reads the bounds. Attention is torch's: on a GPU, fused kernels for texts of different
lengths, in half precision; on a CPU, text by text, slower with the same result.
"""

# n texts, T tokens of all of them, h heads, d size of a head

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

from bsc_core.encoders.compiled import is_compiled
from bsc_core.encoders.encoding import eval_mode
from bsc_core.encoders.tokens import TextIds, TokenTable

varlen_attn: Callable[..., Any] | None
try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # before torch 2.10
    varlen_attn = None

ATTENTION = "bsc_unpadded"
FUSED = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]
ALWAYS_NESTED = ContextVar("ALWAYS_NESTED", default=False)
BOUNDS = {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx", "position_ids", "token_type_ids"}
SUPPORTED_OPTIONS = {*BOUNDS, "is_causal", "deterministic"}
"""Options of attention that are supported or have no effect; any other option that is set is refused."""
TOLERANCE = 0.05
"""Largest relative difference that half precision may make to a text's vector or to the gradient of all weights."""


def flat_features(tokens: TokenTable, ids: TextIds, first_position: int) -> dict[str, Any]:
    """Return the model's input for concatenated texts.

    Args:
        tokens: The tokenized texts.
        ids: Text ids, shape (n,); repeats are allowed, texts without tokens are not.
        first_position: Position of a text's first token, see the function `first_position`.

    Returns:
        Tensors on the CPU: input_ids, position_ids and seq_idx (index of the text) of shape (1, T); cu_seq_lens_q and
        cu_seq_lens_k, the bounds of the texts, of shape (n + 1,); and the numbers max_length_q and max_length_k.
    """
    rows = np.asarray(ids, dtype=np.int64)
    lengths = tokens.lengths[rows]
    pieces, positions, bounds = tokens.concatenate(rows)
    cumulative = torch.from_numpy(bounds.astype(np.int32))
    longest = int(lengths.max())
    features: dict[str, Any] = {
        "input_ids": torch.from_numpy(pieces)[None],
        "position_ids": torch.from_numpy(positions + first_position)[None],
        "seq_idx": torch.from_numpy(np.repeat(np.arange(len(rows), dtype=np.int32), lengths))[None],
        "cu_seq_lens_q": cumulative,
        "cu_seq_lens_k": cumulative,
        "max_length_q": longest,
        "max_length_k": longest,
    }
    if tokens.token_types:
        features["token_type_ids"] = torch.zeros_like(features["input_ids"])
    return features


def first_position(model: SentenceTransformer) -> int:
    """Return the position of a text's first token: 0, or the padding token's id + 1 in RoBERTa."""
    for module in model.modules():
        padding = getattr(module, "padding_idx", None)
        if isinstance(padding, int) and isinstance(getattr(module, "position_embeddings", None), nn.Embedding):
            return padding + 1
    return 0


def unsupported(model: SentenceTransformer, tokens: TokenTable, *, half_precision: bool) -> str:
    """Return why texts have to be padded, as the end of a sentence; empty if there is no obvious reason."""
    modules = list(model.children())
    transformer: Any = model.transformers_model
    if not half_precision:
        return "the fused kernels for texts of different lengths compute in half precision only"
    if tokens.bag or not modules or type(modules[0]) is not Transformer or transformer is None:
        return "the encoder is not a single transformer"
    if not all(type(module) in (Pooling, Dense, Normalize) for module in modules[1:]):
        return "a module after the transformer may need padded texts"
    if not bool((tokens.lengths > 0).all()):
        return "a text has no tokens"
    if is_compiled(model):
        return "the encoder is compiled for padded texts"
    if any(getattr(module, "gradient_checkpointing", False) for module in transformer.modules()):
        return "the encoder uses gradient checkpointing"
    if modules[0].model_forward_params is not None or not transformer.is_backend_compatible():
        return "the encoder's architecture has a custom attention"
    return ""


def trial_failure(
    model: SentenceTransformer,
    tokens: TokenTable,
    vectors: Callable[[bool, TextIds], Tensor],
    tolerance: float = TOLERANCE,
) -> str:
    """Return why texts have to be padded, as `unsupported` does, after a trial on three texts.

    Without dropout, vectors and gradients must equal those of padded texts with both kernels. Random generators and
    gradients are not changed.

    Args:
        model: The encoder.
        tokens: Tokens of the texts from which the three are chosen.
        vectors: Called with `flat` and text ids; returns the vectors (n, D) with a graph.
        tolerance: Largest relative difference of vectors and gradients that counts as equal.
    """
    order = np.argsort(tokens.lengths, kind="stable")
    ids = order[[0, len(order) // 2, len(order) - 1]]  # the shortest, the median and the longest
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    try:
        with eval_mode(model), torch.enable_grad():
            padded = _with_gradient(vectors(False, ids), weights)
            for nested in (False, True):
                with _always_nested(nested):
                    flat = _with_gradient(vectors(True, ids), weights)
                if not all(_is_close(*both, tolerance) for both in zip(flat, padded, strict=True)):
                    return "its vectors differ without padding"
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, AssertionError) as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return ""


@contextmanager
def _always_nested(always: bool) -> Iterator[None]:
    token = ALWAYS_NESTED.set(always)
    try:
        yield
    finally:
        ALWAYS_NESTED.reset(token)


def _with_gradient(vectors: Tensor, weights: list[nn.Parameter]) -> tuple[Tensor, Tensor]:
    """Return the vectors, (n, D), and the gradient of a weighted sum of them, (1, all weights)."""
    coefficients = torch.linspace(-1, 1, vectors.numel(), device=vectors.device).view_as(vectors)
    gradients = torch.autograd.grad((vectors * coefficients).sum(), weights, allow_unused=True)
    flat = torch.cat([gradient.float().reshape(-1) for gradient in gradients if gradient is not None])
    return vectors.detach().float(), flat[None]


def _is_close(actual: Tensor, expected: Tensor, tolerance: float) -> bool:
    """Return whether the error of each row is at most `tolerance` times the row's length."""
    if actual.shape != expected.shape:
        return False
    return bool(((actual - expected).norm(dim=1) <= tolerance * expected.norm(dim=1)).all())


@contextmanager
def attention_within_texts(model: SentenceTransformer) -> Iterator[None]:
    """Make the model accept `flat_features` inside the block."""
    transformer: Any = model.transformers_model
    previous = transformer.config._attn_implementation
    transformer.set_attn_implementation(ATTENTION)
    try:
        yield
    finally:
        transformer.set_attn_implementation(previous)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention within each text; called by the models of transformers.

    Args:
        module: The attention layer.
        query: (1, h, T, d) queries of h heads for the T tokens of all texts.
        key: (1, h, T, d) keys.
        value: (1, h, T, d) values.
        attention_mask: Not supported, so it must be None.
        dropout: Probability of dropping an attention weight.
        scaling: Factor of the scores; None for 1 / sqrt(d).
        **options: Bounds of the texts, and other options of the model.

    Returns:
        (1, T, h, d), and None for the weights.

    Raises:
        ValueError: The model needs an attention that is not supported.
    """
    needed = sorted(
        name for name in options.keys() - SUPPORTED_OPTIONS if options[name] is not None and options[name] is not False
    )
    causal = options.get("is_causal")
    if getattr(module, "is_causal", True) if causal is None else causal:
        needed.append("causal attention")
    if attention_mask is not None:
        needed.append("a custom mask")
    if key.shape != query.shape:
        needed.append("grouped heads")
    if needed:
        raise ValueError(f"its attention needs {', '.join(needed)}")
    q, k, v = (tensor[0].transpose(0, 1).to(value.dtype) for tensor in (query, key, value))  # (T, h, d)
    result = _attention(q, k, v, options["cu_seq_lens_q"], int(options["max_length_q"]), dropout, scaling)
    return result[None], None


def _attention(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, dropout: float, scale: float | None
) -> Tensor:
    """Compute attention, (T, h, d), of texts with these bounds, (n + 1,), from tensors of shape (T, h, d)."""
    if query.device.type == "cpu":
        return by_text(query, key, value, bounds, dropout, scale)
    if dropout or varlen_attn is None or ALWAYS_NESTED.get():  # varlen_attn has no dropout
        with sdpa_kernel(FUSED):
            return by_nesting(query, key, value, bounds, longest, dropout, scale)
    q, k, v = (tensor.contiguous() for tensor in (query, key, value))
    result: Tensor = varlen_attn(q, k, v, bounds, bounds, longest, longest, scale=scale)
    return result


def by_text(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, dropout: float, scale: float | None) -> Tensor:
    """Compute attention one text at a time; shapes as in `_attention`."""
    parts = []
    for start, stop in pairwise(bounds.tolist()):
        q, k, v = (tensor[start:stop].transpose(0, 1) for tensor in (query, key, value))  # (h, tokens, d)
        parts.append(scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scale).transpose(0, 1))
    return torch.cat(parts)


def by_nesting(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, dropout: float, scale: float | None
) -> Tensor:
    """Compute attention of all texts at once with nested tensors; shapes as in `_attention`."""
    offsets = bounds.long()

    def nested(tensor: Tensor) -> Tensor:
        texts: Tensor = torch.nested.nested_tensor_from_jagged(tensor, offsets, min_seqlen=1, max_seqlen=longest)
        return texts.transpose(1, 2)

    result = scaled_dot_product_attention(nested(query), nested(key), nested(value), dropout_p=dropout, scale=scale)
    return result.transpose(1, 2).values()


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """Return no mask; the bounds separate the texts."""


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, _no_mask)
