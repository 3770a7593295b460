"""Forward pass of BERT on a CPU without padding in matrix products, and with weights cast once per pass.

Matrix products run in the data type of the run. Sums, layer norms and softmax are computed in float32, as under
autocast. Only word pieces in the token table are trained. Other rows of the embedding table could not get a gradient
anyway; here they get no weight decay either.
"""

# n texts of a micro-batch, R rows of which the first T are tokens, D dimensions, H hidden size, m texts of a block
# padded to L tokens, h attention heads, d size of a head (H = h d)

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertModel

from bsc_core.encoders.forward.packed_layout import ROWS, WIDTH, Block, Layout, unpadded_micro_batches
from bsc_core.encoders.forward.plain import DTYPES, Forward, Precision
from bsc_core.encoders.tokens import TextIds, TokenTable
from bsc_core.types import Indices

TOKENS_AT_ONCE = 2048
MANY_TOKENS = 32_768
"""Above this, micro-batches are half as large: graphs are short-lived, and one graph takes most of the memory."""
WORDS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"
RANDOM_LEVELS = 2**16  # values of the 16 random bits for each element
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16}


class PackedForward(Forward):
    """Forward pass of a model that `is_packable`, with copies of its weights that `write_back` copies into it.

    Args:
        model: The encoder.
        tokens: The texts that ids refer to.
        precision: Precision of matrix products, fp32 or bf16.
        fixed_tokens: Whether the token table stays the same; otherwise all word pieces are trained.
    """

    def __init__(
        self, model: SentenceTransformer, tokens: TokenTable, precision: Precision, *, fixed_tokens: bool = True
    ) -> None:
        super().__init__(model, tokens, precision)
        self._dtype, self._fixed = DTYPES[precision], fixed_tokens
        self._bert: Any = _bert(model)  # a BertModel, whose modules are untyped
        self._prefix = next(name for name, module in model.named_modules() if module is self._bert)
        size = self._bert.config.vocab_size
        pieces = np.unique(tokens.tokens).astype(np.int64) if fixed_tokens else np.arange(size)
        self._pieces = torch.from_numpy(pieces)
        self._row = torch.zeros(size, dtype=torch.int64).scatter_(0, self._pieces, torch.arange(len(pieces)))
        padding = self._bert.embeddings.word_embeddings.padding_idx  # never trained
        is_used = padding is not None and bool((self._pieces == padding).any())
        self._row_of_padding = int(self._row[padding]) if is_used else None
        sources = _sources(self._bert, self._pieces)
        is_trained = {name: self._bert.get_parameter(name).requires_grad for name in sources}
        self._weights = {
            name: nn.Parameter(source.detach().float().clone(), requires_grad=is_trained[name])
            for name, source in sources.items()
        }
        lowest = min(_layer_number(name) for name, trained in is_trained.items() if trained)
        self._layers_in_graph = self._bert.config.num_hidden_layers - lowest
        self._casts: dict[tuple[str, ...], Tensor] | None = None
        self._is_model_outdated = False

    def use_tokens(self, tokens: TokenTable) -> None:
        """Replace the token table.

        Raises:
            ValueError: The forward pass has `fixed_tokens`.
        """
        if self._fixed:
            raise ValueError("this forward pass trains the word pieces of one token table; use fixed_tokens=False")
        super().use_tokens(tokens)

    def micro_batches(self, ids: TextIds, budget: int | None = None) -> list[Indices]:
        """Split positions in `ids` into micro-batches with about equal numbers of tokens."""
        lengths = self.tokens.lengths[np.asarray(ids)]
        default = TOKENS_AT_ONCE if lengths.sum() <= MANY_TOKENS else TOKENS_AT_ONCE // 2
        return unpadded_micro_batches(lengths, budget or default)

    @contextmanager
    def one_pass(self) -> Iterator[None]:
        """Store the casts of the weights until the context ends; the weights must not change in it."""
        self._casts = {}
        try:
            yield
        finally:
            self._casts = None

    def embed(self, ids: TextIds) -> Tensor:
        """Encode one micro-batch of texts, (n, D) float32."""
        layout = Layout.build(self.tokens, ids, self._bert.config.num_attention_heads)
        with torch.autocast(self.device.type, enabled=False):
            states = self._embedding(layout)
            for number in range(len(self._bert.encoder.layer)):
                states = self._layer(states, number, layout)
            return self._pooled(states, layout)

    def activation_bytes(self, lengths: TextIds) -> int:
        """Compute the bytes that the graph of `embed` stores."""
        config, size = self._bert.config, self._dtype.itemsize
        padded = -(-np.asarray(lengths, dtype=np.int64) // WIDTH) * WIDTH
        rows, positions, pairs = -(-int(np.sum(lengths)) // ROWS) * ROWS, int(padded.sum()), int((padded**2).sum())
        drops = self.model.training and config.hidden_dropout_prob + config.attention_probs_dropout_prob > 0
        mask = 2 if drops else 0
        share = 4 + (size if size < 4 or drops else 0) + mask  # the softmax, what multiplies the values, and the mask
        layer = rows * (config.hidden_size * (3 * size + 8 + 2 * mask) + config.intermediate_size * 2 * size)
        layer += positions * config.hidden_size * (8 + size)  # queries and keys in float32
        layer += pairs * config.num_attention_heads * share
        return int(self._layers_in_graph * layer + rows * config.hidden_size * (8 + mask))

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the trained parameters with their names in the model."""
        trained = ((name, parameter) for name, parameter in self._weights.items() if parameter.requires_grad)
        return ((f"{self._prefix}.{name}", parameter) for name, parameter in trained)

    def weights_changed(self) -> None:
        """Mark the model's weights as outdated."""
        self._is_model_outdated = True

    def write_back(self) -> None:
        """Copy the trained parameters into the model."""
        if not self._is_model_outdated:
            return
        with torch.no_grad():
            for name, parameter in self._weights.items():
                target = self._bert.get_parameter(name)
                if not parameter.requires_grad:
                    continue
                if name == WORDS:
                    target[self._pieces] = parameter
                else:
                    target.copy_(parameter)
        self._is_model_outdated = False

    def _embedding(self, layout: Layout) -> Tensor:
        """Return word, position and type of each token, summed and normalized: (R, H) float32."""
        words = functional.embedding(self._row[layout.pieces], self._weights[WORDS], padding_idx=self._row_of_padding)
        summed = words + self._weights[TYPES][0] + functional.embedding(layout.positions, self._weights[POSITIONS])
        return self._drop(self._norm(summed, "embeddings.LayerNorm"), self._bert.embeddings.dropout)

    def _layer(self, states: Tensor, number: int, layout: Layout) -> Tensor:
        """Compute the next hidden states, (R, H) float32: attention and feed-forward, each with residual and norm."""
        prefix, layer = f"encoder.layer.{number}", self._bert.encoder.layer[number]
        projections = (f"{prefix}.attention.self.{name}" for name in ("query", "key", "value"))
        projected = self._linear(states.to(self._dtype), *projections)  # (R, 3H)
        blocks = [self._attend(projected, block, layer.attention.self) for block in layout.blocks]
        padding = projected.new_zeros(len(projected) - len(layout.text), states.shape[1])
        output = self._linear(torch.cat([*blocks, padding]), f"{prefix}.attention.output.dense")
        residual = states + self._drop(output, layer.attention.output.dropout)
        middle = self._norm(residual, f"{prefix}.attention.output.LayerNorm")
        wide = functional.gelu(self._linear(middle.to(self._dtype), f"{prefix}.intermediate.dense"))
        fed = self._drop(self._linear(wide, f"{prefix}.output.dense"), layer.output.dropout)
        return self._norm(middle + fed, f"{prefix}.output.LayerNorm")

    def _attend(self, projected: Tensor, block: Block, attention: Any) -> Tensor:
        """Compute attention within the texts of one block, from concatenated queries, keys and values: (T', H)."""
        heads, width = attention.num_attention_heads, attention.attention_head_size
        padded = projected.index_select(0, block.source)  # (m L, 3H)
        separated = padded.view(block.texts, block.length, 3, heads, width).permute(2, 0, 3, 1, 4)
        queries, keys, values = (part.reshape(-1, block.length, width) for part in separated)  # (m h, L, d) each
        scores = torch.baddbmm(block.mask, queries.float(), keys.float().transpose(1, 2), alpha=attention.scaling)
        shares = self._drop(torch.softmax(scores, -1).to(projected.dtype), attention.dropout)  # (m h, L, L)
        mixed = (shares @ values).view(block.texts, heads, block.length, width).transpose(1, 2)
        tokens: Tensor = mixed.reshape(block.texts * block.length, -1).index_select(0, block.padded_position)
        return tokens

    def _pooled(self, states: Tensor, layout: Layout) -> Tensor:
        if self.model[1].pooling_mode == "cls":
            vectors = states[layout.first]
        else:
            summed = states.new_zeros(len(layout.lengths), states.shape[1])
            vectors = summed.index_add(0, layout.text, states[: len(layout.text)]) / layout.lengths[:, None]
        return functional.normalize(vectors, dim=1) if len(self.model) > 2 else vectors

    def _linear(self, x: Tensor, *names: str) -> Tensor:
        """Apply linear modules that read the same input as one matrix product; their outputs are concatenated."""
        weight, bias = (self._cast(*(f"{name}.{kind}" for name in names)) for kind in ("weight", "bias"))
        return functional.linear(x, weight, bias)

    def _cast(self, *names: str) -> Tensor:
        """Return the weights of these names in the data type of matrix products, joined along the first dimension."""
        if self._casts is not None and names in self._casts:
            return self._casts[names]
        parts = [self._weights[name].to(self._dtype) for name in names]
        cast = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self._casts is not None:
            self._casts[names] = cast
        return cast

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return functional.layer_norm(x, x.shape[-1:], weight, bias, self._bert.get_submodule(name).eps)

    def _drop(self, x: Tensor, module: nn.Dropout) -> Tensor:
        return dropout(x, module)


def dropout(x: Tensor, module: nn.Dropout) -> Tensor:
    """Apply dropout as the module would in its current mode, but faster on a CPU.

    The probability is rounded to a multiple of 1 / 65,536, since each element uses 16 bits of torch's random
    generator. A mask of 0 and 1 multiplies the bits of the input.
    """
    dropped = round(module.p * RANDOM_LEVELS) if module.training else 0
    if not dropped:
        return x
    random = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    largest = dropped - RANDOM_LEVELS // 2 - 1  # largest random number that drops an element
    mask = random[: x.numel()].clamp_(largest, largest + 1).sub_(largest).view(x.shape)  # 0 or 1
    result: Tensor = _Masked.apply(x, mask, RANDOM_LEVELS / (RANDOM_LEVELS - dropped))  # type: ignore[no-untyped-call]
    return result


class _Masked(torch.autograd.Function):
    """x * mask * scale, for a mask of 0 and 1 with as many bits per element as an int16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return (x.view(BITS[x.dtype]) * mask).view(x.dtype).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (mask,), (gradient,) = ctx.saved_tensors, gradients
        return (gradient.view(BITS[gradient.dtype]) * mask).view(gradient.dtype).mul_(ctx.scale), None, None


def is_packable(model: SentenceTransformer) -> bool:
    """Return whether `PackedForward` supports the model.

    It supports BERT on a CPU with mean or first-token pooling and optional normalization, if all weights are float32,
    some are trained, and no module is replaced, hooked or compiled.
    """
    kinds = [type(module) for module in model.children()]
    if kinds not in ([Transformer, Pooling], [Transformer, Pooling, Normalize]) or model.device.type != "cpu":
        return False
    bert, pooling = _bert(model), model[1]
    if type(bert) is not BertModel or pooling.pooling_mode not in ("mean", "cls") or not pooling.include_prompt:
        return False
    config = bert.config
    is_standard = config.hidden_act == "gelu" and not config.is_decoder and not config.chunk_size_feed_forward
    weights = [weight for name, weight in bert.named_parameters() if not name.startswith("pooler.")]
    is_trained = any(p.requires_grad for p in weights) and all(p.dtype == torch.float32 for p in bert.parameters())
    return is_standard and is_trained and not any(map(_is_changed, model.modules()))


def _bert(model: SentenceTransformer) -> Any:
    transformer: Any = model[0]
    return transformer.auto_model


def _is_changed(module: nn.Module) -> bool:
    """Return whether a module is custom, hooked or compiled."""
    is_known = type(module).__module__.split(".")[0] in ("sentence_transformers", "transformers", "torch")
    hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    return not is_known or bool(hooked or module._compiled_call_impl) or "forward" in vars(module)


def _layer_number(name: str) -> int:
    """Return the layer of a weight, from 0; also 0 for the embeddings."""
    return int(name.split(".")[2]) if name.startswith("encoder.layer.") else 0


def _sources(bert: Any, pieces: Tensor) -> dict[str, Tensor]:
    """Return BERT's weights by name, without the pooler, and with queries, keys and values in this order.

    The optimizer states of checkpoints are stored in this order.
    """
    named = {name: weight for name, weight in bert.named_parameters() if not name.startswith("pooler.")}
    named[WORDS] = named[WORDS][pieces]
    order = {"query": 0, "key": 1, "value": 2}

    def position(name: str) -> tuple[str, int]:
        before, self_attention, after = name.partition(".self.")
        if not self_attention:
            return name, 0
        projection, kind = after.split(".")
        return f"{before}.self.{kind}", order[projection]

    return {name: named[name] for name in sorted(named, key=position)}
