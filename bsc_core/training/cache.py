"""Gradient caching: the vectors of a batch, their gradient by the loss, then the encoder's, by micro-batches.

As in GradCache (Gao et al., 2021): the loss sees the vectors as a leaf; its gradient for them is sent back through one
micro-batch at a time. The graphs of as many micro-batches as fit into memory are kept from the first pass, the others
are computed again with the random state of their first time. What is kept changes time and memory, never the result.
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
from bsc_core.encoders.tokens import Ids
from bsc_core.training.memory import Room, release_memory
from bsc_core.training.ranks import Ranks

HIGHEST_SEED = 2**31
RELEASE_EVERY = 8
"""Micro-batches of a batch that does not fit, after which free memory is given back; more often would cost time."""


class CachedEncoder:
    """Encodes the texts of a step and sends their gradient back, in the memory that the config allows."""

    def __init__(self, forward: Forward, config: TrainingConfig, room: Room, ranks: Ranks | None = None) -> None:
        self.forward, self.config, self.room = forward, config, room
        self.ranks = ranks or Ranks()

    def encode(self, ids: Ids) -> Encoding:
        """Vectors of texts. ids: (E,); a repeated text is encoded as often, each time with dropout of its own."""
        pieces = self.forward.micro_batches(ids, self.config.micro_tokens)
        if self.config.micro_tokens is None:
            pieces = self.ranks.cut(pieces)
        lengths = self.forward.tokens.lengths[ids]
        dealt = self.ranks.deal(pieces, lengths)
        own = dealt[self.ranks.rank]
        encoding = Encoding(self.forward, ids, pieces, own, torch.randint(HIGHEST_SEED, (len(pieces),)).tolist())
        encoding.first_kept = self._first_kept([lengths[pieces[number]] for number in own])
        parts = encoding.first_pass()
        sizes = [sum(len(pieces[number]) for number in numbers) for numbers in dealt]
        gathered = torch.cat(self.ranks.gather(parts, sizes))
        order = np.concatenate([pieces[number] for numbers in dealt for number in numbers])
        vectors = torch.empty_like(gathered)
        vectors[torch.from_numpy(order).to(vectors.device)] = gathered
        encoding.vectors = vectors.requires_grad_()
        return encoding

    def _first_kept(self, lengths: list[NDArray[np.int64]]) -> int:
        """From which of the own micro-batches on graphs are kept; the last ones, which are sent back first."""
        mode = self.config.gradient_cache
        if mode != "auto":
            return 0 if mode == "never" else len(lengths)
        costs = [self.forward.activation_bytes(one) for one in lengths]
        room = self.room.of(sum(costs))
        first = len(costs)
        while first and costs[first - 1] <= room:
            first -= 1
            room -= costs[first]
        return first


@dataclass(eq=False)
class Encoding:
    """The vectors of a step's texts, and what it takes to send their gradient back.

    vectors: (E, D) float32, a leaf, the same in every process. pieces: positions of the micro-batches; own: the numbers
    of those that this process encodes; seeds: of every micro-batch's dropout. Graphs are kept from own[first_kept] on.
    """

    forward: Forward
    ids: Ids
    pieces: list[NDArray[np.int64]]
    own: list[int]
    seeds: list[int]
    first_kept: int = 0
    vectors: Tensor = field(default_factory=lambda: torch.empty(0))
    _graphs: list[Tensor] = field(default_factory=list)

    def first_pass(self) -> Tensor:
        """Vectors of the own micro-batches, one after the other, without gradient."""
        parts = []
        once, kept = self.own[: self.first_kept], self.own[self.first_kept :]
        with _random_state(self.forward.device), torch.no_grad(), self.forward.one_pass():
            parts += [self._embed(number) for number in once]
        with _random_state(self.forward.device), self.forward.one_pass():
            self._graphs = [self._embed(number) for number in kept]
        parts += [graph.detach() for graph in self._graphs]
        return torch.cat(parts) if parts else torch.empty((0, self.forward.width), device=self.forward.device)

    def backward(self) -> None:
        """Send the gradient that the vectors have by now through the encoder, into the gradients of its parameters."""
        gradient = self.vectors.grad
        if gradient is None:
            return
        with _random_state(self.forward.device), self.forward.one_pass():
            for place in reversed(range(len(self.own))):
                number = self.own[place]
                part = self._graphs.pop() if place >= self.first_kept else self._embed(number)
                rows = torch.from_numpy(self.pieces[number]).to(gradient.device)
                torch.autograd.backward([part], [gradient[rows]])

    def recomputed(self) -> float:
        """Share of the own tokens that are encoded twice."""
        lengths = [int(self.forward.tokens.lengths[self.ids[self.pieces[number]]].sum()) for number in self.own]
        return sum(lengths[: self.first_kept]) / max(1, sum(lengths))

    def _embed(self, number: int) -> Tensor:
        if self.first_kept and number % RELEASE_EVERY == RELEASE_EVERY - 1:
            release_memory()
        _seed(self.forward.device, self.seeds[number])
        return self.forward.embed(self.ids[self.pieces[number]])


@contextmanager
def _random_state(device: torch.device) -> Iterator[None]:
    """Random generators are afterwards as they were before."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


def _seed(device: torch.device, seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
