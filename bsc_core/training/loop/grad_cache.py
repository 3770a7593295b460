"""Gradient caching: the gradient of the loss for the vectors, then of the vectors for the encoder, by micro-batches.

As in GradCache (Gao et al., 2021): the loss sees the vectors as a leaf, and their gradient is backpropagated one
micro-batch at a time. The graphs of as many micro-batches as fit into memory are stored in the first pass; the others
are recomputed with the same random state. The choice changes time and memory, never the result.
"""

# E texts of a step, D dimensions

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bsc_core.config import TrainingConfig
from bsc_core.encoders.forward import Forward
from bsc_core.encoders.tokens import TextIds
from bsc_core.training.loop.device import ActivationMemory, release_memory
from bsc_core.training.loop.distributed import Distributed

HIGHEST_SEED = 2**31
RELEASE_EVERY = 8
"""Recomputed micro-batches between two releases of free memory; more frequent releases would cost time."""


class CachedEncoder:
    """Encodes the texts of a step and backpropagates their gradient within the configured memory."""

    def __init__(
        self,
        forward: Forward,
        config: TrainingConfig,
        memory: ActivationMemory,
        distributed: Distributed | None = None,
    ) -> None:
        self.forward, self.config, self.memory = forward, config, memory
        self.distributed = distributed or Distributed()

    def encode(self, ids: TextIds) -> Encoding:
        """Encode texts. ids: (E,); a repeated text is encoded each time, with different dropout."""
        pieces = self.forward.micro_batches(ids, self.config.micro_tokens)
        if self.config.micro_tokens is None:
            pieces = self.distributed.split(pieces)
        lengths = self.forward.tokens.lengths[ids]
        assigned = self.distributed.assign(pieces, lengths)
        local = assigned[self.distributed.rank]
        encoding = Encoding(self.forward, ids, pieces, local, torch.randint(HIGHEST_SEED, (len(pieces),)).tolist())
        encoding.first_stored = self._first_stored([lengths[pieces[number]] for number in local])
        parts = encoding.first_pass()
        sizes = [sum(len(pieces[number]) for number in numbers) for numbers in assigned]
        gathered = torch.cat(self.distributed.gather(parts, sizes))
        order = np.concatenate([pieces[number] for numbers in assigned for number in numbers])
        vectors = torch.empty_like(gathered)
        vectors[torch.from_numpy(order).to(vectors.device)] = gathered
        encoding.vectors = vectors.requires_grad_()
        return encoding

    def _first_stored(self, lengths: list[NDArray[np.int64]]) -> int:
        """Return the first local micro-batch whose graph is stored; the last ones are backpropagated first."""
        mode = self.config.gradient_cache
        if mode != "auto":
            return 0 if mode == "never" else len(lengths)
        costs = [self.forward.activation_bytes(of_texts) for of_texts in lengths]
        budget = self.memory.budget(sum(costs))
        first = len(costs)
        while first and costs[first - 1] <= budget:
            first -= 1
            budget -= costs[first]
        return first


@dataclass(eq=False)
class Encoding:
    """The vectors of a step's texts, and the state to backpropagate their gradient."""

    forward: Forward
    ids: TextIds  # (E,) ids of the texts
    pieces: list[NDArray[np.int64]]  # positions of the texts in each micro-batch
    local: list[int]  # numbers of the micro-batches that this process encodes
    seeds: list[int]  # dropout seed of each micro-batch
    first_stored: int = 0  # graphs are stored from `local[first_stored]` on
    vectors: Tensor = field(default_factory=lambda: torch.empty(0))  # (E, D) float32, a leaf, equal in every process
    _graphs: list[Tensor] = field(default_factory=list)

    def first_pass(self) -> Tensor:
        """Return the vectors of the local micro-batches, concatenated, without gradient."""
        parts = []
        once, stored = self.local[: self.first_stored], self.local[self.first_stored :]
        with _random_state(self.forward.device), torch.no_grad(), self.forward.one_pass():
            parts += [self._embed(number) for number in once]
        with _random_state(self.forward.device), self.forward.one_pass():
            self._graphs = [self._embed(number) for number in stored]
        parts += [graph.detach() for graph in self._graphs]
        return torch.cat(parts) if parts else torch.empty((0, self.forward.width), device=self.forward.device)

    def backward(self) -> None:
        """Backpropagate the gradient of the vectors through the encoder into its parameters."""
        gradient = self.vectors.grad
        if gradient is None:
            return
        with _random_state(self.forward.device), self.forward.one_pass():
            for index in reversed(range(len(self.local))):
                number = self.local[index]
                part = self._graphs.pop() if index >= self.first_stored else self._embed(number)
                rows = torch.from_numpy(self.pieces[number]).to(gradient.device)
                torch.autograd.backward([part], [gradient[rows]])

    def recomputed(self) -> float:
        """Return the share of the local tokens that are encoded twice."""
        lengths = [int(self.forward.tokens.lengths[self.ids[self.pieces[number]]].sum()) for number in self.local]
        return sum(lengths[: self.first_stored]) / max(1, sum(lengths))

    def _embed(self, number: int) -> Tensor:
        if self.first_stored and number % RELEASE_EVERY == RELEASE_EVERY - 1:
            release_memory()
        _seed(self.forward.device, self.seeds[number])
        return self.forward.embed(self.ids[self.pieces[number]])


@contextmanager
def _random_state(device: torch.device) -> Iterator[None]:
    """Restore the random generators at the end of the block."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


def _seed(device: torch.device, seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
