"""BERT inside sentence-transformers on real tokens only: no padding in matrix products, weights cast once a step.

Only word pieces that the token table holds are trained. No other row of the model's table could get a gradient; here
they get no weight decay either and stay as they are. The model itself holds what was trained after `write_back`.
"""

# n texts of a micro-batch, R rows of its real tokens and a few that fill up, D dimensions (BERT's hidden numbers)

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Transformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertModel

from bsc_core.encoders.layout import WIDTH, Layout, cut
from bsc_core.encoders.packed_layer import Attention, Dropout, Kept, LayerNorm, Linear, PackedLayer
from bsc_core.encoders.packed_weights import Weights
from bsc_core.encoders.tokens import Ids, TokenTable

TOKENS_AT_ONCE = 2048
MANY_TOKENS = 32_768
"""Above this, texts are cut half as large: graphs are hardly kept, and what one takes is then most of the memory."""
WORDS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"


class PackedForward:
    """How training computes vectors of a model that `is_packable`; see `bsc_core.encoders.forward.Forward`.

    dtype: of matrix products, float32 or bfloat16. fixed_tokens: the token table stays the same; else all word pieces
    are trained.
    """

    def __init__(
        self, model: SentenceTransformer, tokens: TokenTable, dtype: torch.dtype, *, fixed_tokens: bool = True
    ) -> None:
        self.model, self.dtype, self._tokens, self._fixed = model, dtype, tokens, fixed_tokens
        self._bert: Any = _bert(model)  # a BertModel, whose parts have no types
        self._prefix = next(name for name, module in model.named_modules() if module is self._bert)
        size = self._bert.config.vocab_size
        pieces = np.unique(tokens.tokens).astype(np.int64) if fixed_tokens else np.arange(size)
        self._pieces = torch.from_numpy(pieces)
        self._row = torch.zeros(size, dtype=torch.int64).scatter_(0, self._pieces, torch.arange(len(pieces)))
        self._weights = Weights(_sources(self._bert, self._pieces), dtype)
        self._embedding = _Embedding(self._bert, self._weights, self._row)
        self._layers = [_layer(self._bert, self._weights, number) for number in range(len(self._bert.encoder.layer))]
        self._ahead = False

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @property
    def tokens(self) -> TokenTable:
        return self._tokens

    @property
    def width(self) -> int:
        return int(self._bert.config.hidden_size)

    def use_tokens(self, tokens: TokenTable) -> None:
        if self._fixed:
            raise ValueError(
                "this forward pass trains the word pieces of one token table; make one without fixed_tokens"
            )
        self._tokens = tokens

    def micro_batches(self, ids: Ids, wanted: int | None = None) -> list[NDArray[np.int64]]:
        lengths = self._tokens.lengths[np.asarray(ids)]
        suitable = TOKENS_AT_ONCE if lengths.sum() <= MANY_TOKENS else TOKENS_AT_ONCE // 2
        return cut(lengths, wanted or suitable)

    def one_pass(self) -> AbstractContextManager[object]:
        return nullcontext()

    def embed(self, ids: Ids) -> Tensor:
        layout = Layout.of(self._tokens, ids, self._bert.config.num_attention_heads)
        self._weights.refresh()
        with torch.autocast(self.device.type, enabled=False):
            if torch.is_grad_enabled():
                states: Tensor = _Encoded.apply(self._weights.parameters[WORDS], self, layout)  # type: ignore[no-untyped-call]
            else:
                states = self.encode(layout, None)
            return self._pooled(states, layout)

    def activation_bytes(self, lengths: Ids) -> int:
        config, size = self._bert.config, self.dtype.itemsize
        real, padded = np.asarray(lengths, dtype=np.int64), -(-np.asarray(lengths, dtype=np.int64) // WIDTH) * WIDTH
        layer = int(real.sum()) * (config.hidden_size * (3 * size + 8) + config.intermediate_size * 2 * size)
        layer += int(padded.sum()) * 3 * config.hidden_size * size
        layer += int((padded**2).sum()) * config.num_attention_heads * size
        if self.model.training and config.hidden_dropout_prob + config.attention_probs_dropout_prob:
            layer += int(real.sum()) * 4 * config.hidden_size
            layer += int((padded**2).sum()) * config.num_attention_heads * (size + 2)
        return int(config.num_hidden_layers * layer + int(real.sum()) * config.hidden_size * 8)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name, parameter in self._weights.parameters.items():
            yield f"{self._prefix}.{name}", parameter

    def weights_changed(self) -> None:
        self._weights.changed()
        self._ahead = True

    def write_back(self) -> None:
        if not self._ahead:
            return
        with torch.no_grad():
            for name, parameter in self._weights.parameters.items():
                held = self._bert.get_parameter(name)
                if name == WORDS:
                    held[self._pieces] = parameter
                else:
                    held.copy_(parameter)
        self._ahead = False

    def encode(self, layout: Layout, kept: list[Kept] | None) -> Tensor:
        """The last hidden states, (R, D) float32; `kept` takes what backward needs."""
        stream, of_layer = self._embedding.forward(layout)
        for layer in (None, *self._layers):
            if layer is not None:
                stream, of_layer = layer.forward(stream, layout)
            if kept is not None:
                kept.append(of_layer)
        return stream

    def backward(self, layout: Layout, kept: list[Kept], gradient: Tensor) -> None:
        """Add the gradients of all weights. gradient: (R, D), of the last hidden states."""
        self._weights.collect()
        for layer in reversed(self._layers):
            gradient = layer.backward(layout, kept.pop(), gradient)
        self._embedding.backward(layout, kept.pop(), gradient)

    def _pooled(self, states: Tensor, layout: Layout) -> Tensor:
        if self.model[1].pooling_mode == "cls":
            vectors = states[layout.first]
        else:
            summed = states.new_zeros(len(layout.lengths), states.shape[1])
            vectors = summed.index_add(0, layout.text, states[: layout.real]) / layout.lengths[:, None]
        return functional.normalize(vectors, dim=1) if len(self.model) > 2 else vectors


class _Encoded(torch.autograd.Function):
    """The encoder as one node of the graph; backward leaves the gradients with the parameters themselves."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, encoder: PackedForward, layout: Layout) -> Tensor:
        ctx.encoder, ctx.layout, ctx.kept = encoder, layout, []
        return encoder.encode(layout, ctx.kept)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None, None]:
        if not ctx.kept:
            raise RuntimeError("a second backward pass through a graph whose activations were freed by the first")
        ctx.encoder.backward(ctx.layout, ctx.kept, gradients[0])
        return None, None, None


class _Embedding:
    """Word, position and type of each token, summed and normalised."""

    def __init__(self, bert: Any, weights: Weights, row: Tensor) -> None:
        tables = (WORDS, POSITIONS, TYPES)
        self._words, self._positions, self._types = (weights.part(weights.values, name) for name in tables)
        self._of_words, self._of_positions, self._of_types = (weights.part(weights.gradients, name) for name in tables)
        self._row, self._padding = row, bert.embeddings.word_embeddings.padding_idx
        self._norm = _layer_norm(bert, weights, "embeddings.LayerNorm")
        self._dropout = Dropout(bert.embeddings.dropout)

    def forward(self, layout: Layout) -> tuple[Tensor, Kept]:
        rows = self._row[layout.pieces]
        summed = self._words[rows] + self._types[0] + self._positions[layout.positions]
        normed, of_norm = self._norm.forward(summed)
        stream, mask = self._dropout.forward(normed)
        return stream, (rows, of_norm, mask)

    def backward(self, layout: Layout, kept: Kept, gradient: Tensor) -> None:
        rows, of_norm, mask = kept
        gradient = self._norm.backward(of_norm, self._dropout.backward(mask, gradient))
        self._of_positions.index_add_(0, layout.positions, gradient)
        self._of_types[0].add_(gradient.sum(0))
        trained = layout.pieces != self._padding  # a text may spell the piece that fills rows; it is never trained
        self._of_words.index_add_(0, rows, gradient * trained[:, None])


def is_packable(model: SentenceTransformer) -> bool:
    """Whether `PackedForward` computes what the model itself does: BERT on a CPU, mean or first-token pooling, perhaps
    normalised, all weights float32 and trained, no module replaced, hooked or compiled."""
    kinds = [type(module) for module in model.children()]
    if kinds not in ([Transformer, Pooling], [Transformer, Pooling, Normalize]) or model.device.type != "cpu":
        return False
    bert, pooling = _bert(model), model[1]
    if type(bert) is not BertModel or pooling.pooling_mode not in ("mean", "cls") or not pooling.include_prompt:
        return False
    config = bert.config
    usual = config.hidden_act == "gelu" and not config.is_decoder and not config.chunk_size_feed_forward
    whole = all(p.requires_grad and p.dtype == torch.float32 for p in bert.parameters())
    return usual and whole and not any(map(_is_changed, model.modules()))


def _bert(model: SentenceTransformer) -> Any:
    transformer: Any = model[0]
    return transformer.auto_model


def _is_changed(module: nn.Module) -> bool:
    """Whether a module is no longer what its library made it: an adapter, a hook, a compiled call."""
    ours = type(module).__module__.split(".")[0] in ("sentence_transformers", "transformers", "torch")
    hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    return not ours or bool(hooked or module._compiled_call_impl) or "forward" in vars(module)


def _sources(bert: Any, pieces: Tensor) -> dict[str, Tensor]:
    """BERT's weights by name, without the pooler; those of queries, keys and values follow one another."""
    named = {name: weight for name, weight in bert.named_parameters() if not name.startswith("pooler.")}
    named[WORDS] = named[WORDS][pieces]
    order = {"query": 0, "key": 1, "value": 2}

    def place(name: str) -> tuple[str, int]:
        before, self_attention, after = name.partition(".self.")
        if not self_attention:
            return name, 0
        projection, kind = after.split(".")
        return f"{before}.self.{kind}", order[projection]

    return {name: named[name] for name in sorted(named, key=place)}


def _layer(bert: Any, weights: Weights, number: int) -> PackedLayer:
    start, own = f"encoder.layer.{number}", bert.encoder.layer[number]
    attention = own.attention.self
    return PackedLayer(
        project=_linear(weights, *(f"{start}.attention.self.{part}" for part in ("query", "key", "value"))),
        attention=Attention(
            attention.num_attention_heads, attention.attention_head_size, attention.scaling, Dropout(attention.dropout)
        ),
        output=_linear(weights, f"{start}.attention.output.dense"),
        output_dropout=Dropout(own.attention.output.dropout),
        output_norm=_layer_norm(bert, weights, f"{start}.attention.output.LayerNorm"),
        widen=_linear(weights, f"{start}.intermediate.dense"),
        narrow=_linear(weights, f"{start}.output.dense"),
        narrow_dropout=Dropout(own.output.dropout),
        narrow_norm=_layer_norm(bert, weights, f"{start}.output.LayerNorm"),
    )


def _linear(weights: Weights, *names: str) -> Linear:
    """One product for the linear layers of these names."""
    weight, bias = [f"{name}.weight" for name in names], [f"{name}.bias" for name in names]
    return Linear(
        weights.part(weights.casts, *weight),
        weights.part(weights.casts, *bias),
        weights.part(weights.gradients, *weight),
        weights.part(weights.gradients, *bias),
    )


def _layer_norm(bert: Any, weights: Weights, name: str) -> LayerNorm:
    weight, bias = f"{name}.weight", f"{name}.bias"
    return LayerNorm(
        weights.part(weights.values, weight),
        weights.part(weights.values, bias),
        weights.part(weights.gradients, weight),
        weights.part(weights.gradients, bias),
        bert.get_submodule(name).eps,
    )
