"""The forward pass of the model itself, and the memory of its activations."""

# U texts in the token table, n of them in a micro-batch, W tokens of the longest, D dimensions

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from bsc_core.encoders.forward import unpadded
from bsc_core.encoders.forward.packed_layout import unpadded_micro_batches
from bsc_core.encoders.tokens import TextIds, TokenTable, token_budget
from bsc_core.types import Indices

Precision = Literal["fp32", "bf16", "fp16"]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PROBES = ((2, 8), (6, 8), (2, 32))
"""Numbers of texts and tokens of the micro-batches whose activations are counted."""


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """Return the autocast context of a precision; below float32 it casts each weight once and caches the copy."""
    return torch.autocast(device.type, dtype=DTYPES[precision], enabled=precision != "fp32")


class Forward:
    """Forward pass of an encoder in training, by the model itself, for any architecture.

    Attributes:
        model: The encoder.
        tokens: The texts that ids refer to.
        precision: Number format to compute in.
        flat: Whether the texts of a micro-batch are concatenated (`unpadded`) instead of padded.
    """

    def __init__(
        self, model: SentenceTransformer, tokens: TokenTable, precision: Precision, *, flat: bool = False
    ) -> None:
        self.model, self.tokens, self.precision, self.flat = model, tokens, precision, flat
        self._first_position = unpadded.first_position(model)
        self._bytes_per_area: tuple[float, float] | None = None

    @property
    def device(self) -> torch.device:
        """The device of the vectors."""
        return torch.device(self.model.device)

    @property
    def width(self) -> int:
        """The dimension of the vectors, D."""
        return int(self.model.get_embedding_dimension() or 0)

    def use_tokens(self, tokens: TokenTable) -> None:
        """Replace the token table."""
        self.tokens = tokens

    def micro_batches(self, ids: TextIds, budget: int | None = None) -> list[Indices]:
        """Split positions in `ids`, (E,), into micro-batches for `embed`, longest texts first.

        Args:
            ids: Text ids.
            budget: Tokens per micro-batch; by default a number that suits the device and the encoder.

        Returns:
            Arrays of positions, a partition of 0 ... E - 1.
        """
        budget = token_budget(self.device, budget)
        if self.flat:
            return unpadded_micro_batches(self.tokens.lengths[np.asarray(ids)], budget)
        return self.tokens.micro_batches(ids, budget)

    def one_pass(self) -> AbstractContextManager[object]:
        """Return a context for several calls of `embed` that casts weights once.

        Gradients must be either enabled or disabled throughout.
        """
        return autocast(self.precision, self.device)

    def embed(self, ids: TextIds) -> Tensor:
        """Encode one micro-batch of texts, (n, D) float32 on the device; repeated ids are allowed.

        Builds a graph if gradients are enabled, and applies dropout according to the model's mode. Randomness comes
        only from torch's generators, so that the same state gives the same vectors.
        """
        return self._vectors(self.tokens, ids, self.flat)

    def activation_bytes(self, lengths: TextIds) -> int:
        """Estimate the bytes that the graph of `embed` stores for backward, without weights and their casts.

        Args:
            lengths: (n,) number of tokens of each text.
        """
        if self._bytes_per_area is None:
            self._bytes_per_area = self._measure_cost()
        area = self._area(np.asarray(lengths, dtype=np.int64))
        return int(self._bytes_per_area[0] * area[0] + self._bytes_per_area[1] * area[1])

    def padding_reason(self) -> str:
        """Return why texts have to be padded on this device, as the end of a sentence; empty if they need not be."""
        if self.device.type != "cuda":
            return "only a GPU has fused kernels for texts of different lengths"
        reason = unpadded.unsupported(self.model, self.tokens, half_precision=self.precision != "fp32")
        return reason or unpadded.trial_failure(
            self.model, self.tokens, lambda flat, ids: self._vectors(self.tokens, ids, flat)
        )

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the trained parameters with their names in the model."""
        return ((name, parameter) for name, parameter in self.model.named_parameters() if parameter.requires_grad)

    def weights_changed(self) -> None:
        """Mark the model's weights as outdated, after an optimizer step."""

    def write_back(self) -> None:
        """Copy the trained parameters into the model if they changed, before it is evaluated or saved."""

    def _vectors(self, tokens: TokenTable, ids: TextIds, flat: bool) -> Tensor:
        inputs = unpadded.flat_features(tokens, ids, self._first_position) if flat else tokens.features(ids)
        features = {name: value.to(self.device) if torch.is_tensor(value) else value for name, value in inputs.items()}
        attention = unpadded.attention_within_texts(self.model) if flat else nullcontext()
        with autocast(self.precision, self.device), attention:
            vectors: Tensor = self.model(features)["sentence_embedding"]
        return vectors.float()

    def _area(self, lengths: Indices) -> tuple[int, int]:
        """Return the tokens and the pairs of tokens of one micro-batch of texts with these lengths, (n,)."""
        if self.flat:
            return int(lengths.sum()), 0  # fused attention stores no pairs
        width = int(lengths.max(initial=0))
        return len(lengths) * width, len(lengths) * width**2

    def _measure_cost(self) -> tuple[float, float]:
        """Fit the bytes per token and per pair of tokens, with a constant for the casts of weights, to `PROBES`."""
        longest = max(2, int(self.tokens.lengths.max(initial=2)))
        terms, sizes = [], []
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.enable_grad():
            for texts, width in PROBES:
                probe = _probe_table(self.tokens, texts, min(width, longest))
                with counted_activations(self.model.parameters()) as saved:
                    self._vectors(probe, np.arange(texts), self.flat)
                sizes.append(float(sum(saved)))
                terms.append([1.0, *self._area(probe.lengths)])
        _, per_token, per_pair = np.linalg.lstsq(np.array(terms), np.array(sizes), rcond=None)[0]
        return max(0.0, float(per_token)), max(0.0, float(per_pair))


@contextmanager
def counted_activations(weights: Iterable[Tensor]) -> Iterator[list[int]]:
    """Yield a list of the bytes of each distinct storage that is saved for backward in the block, without weights."""
    seen = {weight.untyped_storage().data_ptr() for weight in weights}
    saved, sizes = [], []  # saved tensors are not freed in the block, so that addresses are unique

    def count(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.jagged:  # a wrapper of its values
            count(tensor.values())
            return tensor
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            saved.append(tensor.detach())
            sizes.append(storage.nbytes())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        yield sizes


def _probe_table(tokens: TokenTable, texts: int, width: int) -> TokenTable:
    """Return a table of `texts` texts of `width` tokens, the last one shorter by one, with tokens of another table."""
    pieces = tokens.tokens if len(tokens.tokens) else np.zeros(1, dtype=np.int32)
    offsets = np.arange(texts + 1, dtype=np.int64) * width
    offsets[-1] -= 1  # a model may drop a mask without padding
    return replace(tokens, tokens=np.resize(pieces, int(offsets[-1])), offsets=offsets)
