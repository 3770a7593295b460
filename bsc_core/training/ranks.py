"""The processes of one run, one for each device: who encodes what, and how they put it together.

Each process reads the same plan and computes the whole loss; the encoder's work is dealt out. So the gradients are
those of one process with the whole batch, for any loss.
"""

# E texts of a step, D dimensions

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

T = TypeVar("T")
PIECES_EACH = 2
"""Micro-batches that each process has at least, where there are texts enough."""


@dataclass(frozen=True)
class Ranks:
    """This process, counted from 0, among `count`. All of them have to make the same calls in the same order."""

    rank: int = 0
    count: int = 1
    device: torch.device | None = None

    @classmethod
    def of(cls, accelerator: Accelerator) -> Ranks:
        """As the launcher (`accelerate launch`, torchrun) has set them up."""
        return cls(accelerator.process_index, accelerator.num_processes, accelerator.device)

    @property
    def is_main(self) -> bool:
        """Whether this process writes, measures and decides."""
        return self.rank == 0

    def deal(self, pieces: list[NDArray[np.int64]], tokens: NDArray[np.int64]) -> list[list[int]]:
        """Which micro-batches each process encodes, with nearly the same number of tokens.

        pieces: positions; tokens: (E,) of each text. Returns numbers of pieces, ascending, a list for each process.
        """
        cost = np.array([int(tokens[piece].sum()) for piece in pieces])
        load = [0] * self.count
        dealt: list[list[int]] = [[] for _ in load]
        for number in np.argsort(-cost, kind="stable").tolist():
            least = load.index(min(load))
            load[least] += int(cost[number])
            dealt[least].append(number)
        return [sorted(numbers) for numbers in dealt]

    def cut(self, pieces: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """The micro-batches, cut further where there are too few to keep every process busy."""
        wanted = PIECES_EACH * self.count
        if self.count == 1 or len(pieces) >= wanted:
            return pieces
        each = -(-wanted // len(pieces))
        return [part for piece in pieces for part in np.array_split(piece, min(each, len(piece)))]

    def gather(self, own: Tensor, sizes: list[int]) -> list[Tensor]:
        """The rows of every process. own: (sizes[rank], D). Returns (size, D) for each, without gradient."""
        if self.count == 1:
            return [own.detach()]
        padded = own.new_zeros((max(sizes), own.shape[1]))
        padded[: len(own)] = own.detach()
        gathered = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(gathered, padded)
        return [rows[:size] for rows, size in zip(gathered, sizes, strict=True)]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Add up the gradients of every process, in one exchange."""
        if self.count == 1:
            return
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        flat = torch.cat(
            [(torch.zeros_like(one) if one.grad is None else one.grad).reshape(-1).float() for one in trained]
        )
        distributed.all_reduce(flat)
        parts = torch.split(flat, [one.numel() for one in trained])
        for parameter, summed in zip(trained, parts, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(summed.view_as(parameter))

    def share(self, value: T) -> T:
        """The main process's value, in every process."""
        if self.count == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def share_random_state(self) -> None:
        """Let every process draw on from where the main one's generator stands."""
        if self.count > 1:
            state = torch.get_rng_state().to(self.device)
            distributed.broadcast(state, src=0)
            torch.set_rng_state(state.cpu())

    def wait(self) -> None:
        """Go on when every process is here."""
        if self.count > 1:
            distributed.barrier()


def leave_ranks() -> None:
    """End this process's part in the group: its threads must not be alive when the interpreter ends."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


def start_ranks() -> Ranks:
    """The processes that a launcher started for this run; without one, this process alone.

    The others wait for the main one as long as it measures and plans.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Ranks()
    patience = InitProcessGroupKwargs(timeout=timedelta(days=1))
    return Ranks.of(Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[patience]))
