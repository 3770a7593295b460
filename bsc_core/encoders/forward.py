"""How training computes vectors: a micro-batch of texts in, its vectors out, with what backward needs to know of it.

The trainer sees only `Forward`. `PlainForward` asks the model itself, whatever its architecture; `make_forward` takes
what is faster where it knows the architecture. Both give the same vectors and gradients.
"""

# U texts in the token table, n of them in a micro-batch, W tokens of the longest, D dimensions

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from bsc_core.encoders import unpadded
from bsc_core.encoders.layout import cut
from bsc_core.encoders.packed import PackedForward, is_packable
from bsc_core.encoders.tokens import Ids, TokenTable, token_budget

Precision = Literal["fp32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PROBES = ((2, 8), (6, 8), (2, 32))
"""Texts and tokens of the micro-batches whose activations are counted."""


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """The context an encoder computes in; below float32 it casts each weight once and keeps the copy until it ends."""
    return torch.autocast(device.type, dtype=DTYPES[precision], enabled=precision != "fp32")


class Forward(Protocol):
    """What training asks of an encoder."""

    @property
    def device(self) -> torch.device:
        """Where the vectors are."""

    @property
    def width(self) -> int:
        """D, numbers of a vector."""

    @property
    def tokens(self) -> TokenTable:
        """The texts that ids name."""

    def use_tokens(self, tokens: TokenTable) -> None:
        """From now on ids name the texts of another table."""

    def micro_batches(self, ids: Ids, wanted: int | None = None) -> list[NDArray[np.int64]]:
        """Positions in `ids` (E,), cut for `embed`, longest texts first.

        Together they hold 0 ... E - 1 once each. wanted: tokens at once, None for what suits device and encoder.
        """

    def one_pass(self) -> AbstractContextManager[object]:
        """A context for several `embed` in which weights are cast once. One holds gradients throughout or nowhere."""

    def embed(self, ids: Ids) -> Tensor:
        """Vectors of one micro-batch of texts, (n, D) float32 on the device; repeats are allowed.

        With a graph where gradients are enabled, in the precision of the run, dropout as the model's mode has it. Draws
        come from torch's generators only, so that the same state gives the same vectors.
        """

    def activation_bytes(self, lengths: Ids) -> int:
        """What a graph of `embed` keeps for backward, about, for texts of these lengths (n,) in tokens.

        Weights and their casts, which the micro-batches of a pass share, are not counted.
        """

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What the optimiser trains, by the model's names for it."""

    def weights_changed(self) -> None:
        """The optimiser has changed the parameters; copies of them are old."""

    def write_back(self) -> None:
        """Let the model hold what was trained, as before evaluating or saving it; without effect when it does."""


class PlainForward:
    """The forward pass of the model itself.

    flat: the texts of a micro-batch follow one another, see `bsc_core.encoders.unpadded`; else they are padded to the
    longest of them.
    """

    def __init__(
        self, model: SentenceTransformer, tokens: TokenTable, precision: Precision, *, flat: bool = False
    ) -> None:
        self.model, self.precision, self.flat = model, precision, flat
        self._tokens = tokens
        self._first_position = unpadded.first_position(model)
        self._cost: _Cost | None = None

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @property
    def width(self) -> int:
        return int(self.model.get_embedding_dimension() or 0)

    @property
    def tokens(self) -> TokenTable:
        return self._tokens

    def use_tokens(self, tokens: TokenTable) -> None:
        self._tokens = tokens

    def micro_batches(self, ids: Ids, wanted: int | None = None) -> list[NDArray[np.int64]]:
        budget = token_budget(self.device, wanted)
        return (
            cut(self._tokens.lengths[np.asarray(ids)], budget) if self.flat else self._tokens.micro_batches(ids, budget)
        )

    def one_pass(self) -> AbstractContextManager[object]:
        return autocast(self.precision, self.device)

    def embed(self, ids: Ids) -> Tensor:
        return self._vectors(self._tokens, ids, self.flat)

    def activation_bytes(self, lengths: Ids) -> int:
        if self._cost is None:
            self._cost = self._measured()
        return self._cost.of(self._area(np.asarray(lengths, dtype=np.int64)))

    def why_padded(self) -> str:
        """Why the texts have to be padded on this device, as the end of a sentence; empty where they need not be."""
        if self.device.type != "cuda":
            return "only a GPU has fused kernels for texts of unequal lengths"
        reason = unpadded.unfit(self.model, self._tokens, half=self.precision != "fp32")
        return reason or unpadded.disagreement(
            self.model, self._tokens, lambda flat, ids: self._vectors(self._tokens, ids, flat)
        )

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad)

    def weights_changed(self) -> None:
        """Nothing to do: casts end with their pass."""

    def write_back(self) -> None:
        """Nothing to do: the model's own weights are trained."""

    def _vectors(self, tokens: TokenTable, ids: Ids, flat: bool) -> Tensor:
        found = unpadded.flat_features(tokens, ids, self._first_position) if flat else tokens.features(ids)
        features = {name: value.to(self.device) if torch.is_tensor(value) else value for name, value in found.items()}
        attention = unpadded.attention_within_texts(self.model) if flat else nullcontext()
        with autocast(self.precision, self.device), attention:
            vectors: Tensor = self.model(features)["sentence_embedding"]
        return vectors.float()

    def _area(self, lengths: NDArray[np.int64]) -> tuple[int, int]:
        """What activations grow with, texts of these lengths (n,) in one micro-batch: tokens, and pairs of tokens."""
        if self.flat:
            return int(lengths.sum()), 0  # fused attention keeps no pairs
        width = int(lengths.max(initial=0))
        return len(lengths) * width, len(lengths) * width**2

    def _measured(self) -> _Cost:
        """The cost as three small micro-batches show it. The random generators stay as they are."""
        longest = max(2, int(self._tokens.lengths.max(initial=2)))
        areas, kept = [], []
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.enable_grad():
            for texts, width in PROBES:
                probe = _of_shape(self._tokens, texts, min(width, longest))
                with counted_activations(self.model.parameters()) as count:
                    self._vectors(probe, np.arange(texts), self.flat)
                kept.append(count.bytes)
                areas.append(self._area(probe.lengths))
        return _Cost.fitted(areas, kept)


def make_forward(
    model: SentenceTransformer, tokens: TokenTable, precision: Precision, *, fixed_tokens: bool = True
) -> Forward:
    """The fastest way to compute the model's vectors that there is for its architecture.

    fixed_tokens: the token table stays the same, so that word pieces that no text holds need not be trained.
    """
    worded = bool((tokens.lengths > 0).all())  # a tokeniser that adds no special tokens may leave nothing of a text
    if precision != "fp16" and worded and is_packable(model):
        return PackedForward(model, tokens, DTYPES[precision], fixed_tokens=fixed_tokens)
    forward = PlainForward(model, tokens, precision)
    if forward.device.type == "cuda":
        reason = forward.why_padded()
        forward.flat = not reason
        if reason:
            print(f"Texts are padded: {reason}", file=sys.stderr, flush=True)  # noqa: T201  (the run's log)
    return forward


@dataclass(frozen=True)
class _Cost:
    """Bytes that a graph keeps for its texts, for each token and for each pair of tokens."""

    linear: float
    square: float

    def of(self, area: tuple[int, int]) -> int:
        return int(self.linear * area[0] + self.square * area[1])

    @classmethod
    def fitted(cls, areas: list[tuple[int, int]], kept: list[int]) -> _Cost:
        """The cost that, with a share for the weights' casts, explains what micro-batches of these areas keep."""
        terms = np.array([[1.0, *area] for area in areas])
        solved = np.linalg.lstsq(terms, np.array(kept, dtype=float), rcond=None)[0]
        return cls(max(0.0, float(solved[1])), max(0.0, float(solved[2])))


class counted_activations:  # noqa: N801  (a context, named as one)
    """Counts the bytes of distinct storages that graphs made inside keep for backward, weights left out."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        self._seen = {weight.untyped_storage().data_ptr() for weight in weights}
        self._kept: list[Tensor] = []  # so that no address is used twice
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor)
        self.bytes = 0

    def __enter__(self) -> counted_activations:
        self._hooks.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._hooks.__exit__(*exception)
        self._kept.clear()

    def _keep(self, tensor: Tensor) -> Tensor:
        if tensor.layout == torch.jagged:  # which wraps what holds its numbers
            self._keep(tensor.values())
            return tensor
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self._kept.append(tensor.detach())
            self.bytes += storage.nbytes()
        return tensor


def _of_shape(tokens: TokenTable, texts: int, width: int) -> TokenTable:
    """A table of `texts` texts of `width` tokens, the last one shorter by one, made of the tokens of another."""
    pieces = tokens.tokens if len(tokens.tokens) else np.zeros(1, dtype=np.int32)
    offsets = np.arange(texts + 1, dtype=np.int64) * width
    offsets[-1] -= 1  # without any padding a model may leave its mask out
    return TokenTable(
        np.resize(pieces, int(offsets[-1])),
        offsets,
        padding=tokens.padding,
        bag=tokens.bag,
        token_types=tokens.token_types,
    )
