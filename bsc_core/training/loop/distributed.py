"""Processes of a distributed run: division of the encoder's work, and exchange of vectors, gradients and decisions.

Each process reads the same plan and computes the loss of the full batch; only the encoder's work is divided. The
gradients are therefore those of one process, for any loss.
"""

# E texts of a step, D dimensions

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

T = TypeVar("T")
MICRO_BATCHES_EACH = 2
"""Smallest number of micro-batches per process, where there are enough texts."""


@dataclass(frozen=True)
class Distributed:
    """This process, numbered `rank` from 0, among `count`. All processes make the same calls in the same order."""

    rank: int = 0
    count: int = 1
    device: torch.device | None = None

    @classmethod
    def from_environment(cls) -> Distributed:
        """Join the processes that a launcher (`accelerate launch`, torchrun) started; alone without a launcher.

        The other processes wait for the main one for up to a day while it evaluates and plans.
        """
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return cls()
        timeout = InitProcessGroupKwargs(timeout=timedelta(days=1))
        return cls.from_accelerator(Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[timeout]))

    @classmethod
    def from_accelerator(cls, accelerator: Accelerator) -> Distributed:
        """Return the process group of an accelerator."""
        return cls(accelerator.process_index, accelerator.num_processes, accelerator.device)

    @property
    def is_main(self) -> bool:
        """Whether this process evaluates, writes and decides."""
        return self.rank == 0

    def on_main(self, compute: Callable[[], T]) -> T:
        """Run a function on the main process and return its result in every process."""
        return self.broadcast(cast("T", compute() if self.is_main else None))

    def assign(self, pieces: list[NDArray[np.int64]], tokens: NDArray[np.int64]) -> list[list[int]]:
        """Divide micro-batches among the processes, with nearly equal numbers of tokens.

        Args:
            pieces: Positions of the texts in each micro-batch.
            tokens: (E,) number of tokens of each text.

        Returns:
            For each process, the ascending numbers of its micro-batches.
        """
        cost = np.array([int(tokens[piece].sum()) for piece in pieces])
        load = [0] * self.count
        assigned: list[list[int]] = [[] for _ in load]
        for number in np.argsort(-cost, kind="stable").tolist():
            process = load.index(min(load))
            load[process] += int(cost[number])
            assigned[process].append(number)
        return [sorted(numbers) for numbers in assigned]

    def split(self, pieces: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
        """Return the micro-batches, split further where there are too few to keep every process busy."""
        wanted = MICRO_BATCHES_EACH * self.count
        if self.count == 1 or len(pieces) >= wanted:
            return pieces
        each = -(-wanted // len(pieces))
        return [part for piece in pieces for part in np.array_split(piece, min(each, len(piece)))]

    def gather(self, local: Tensor, sizes: list[int]) -> list[Tensor]:
        """Return the rows of every process, (size, D) each, without gradient.

        Args:
            local: (sizes[rank], D) rows of this process.
            sizes: Number of rows of each process.
        """
        if self.count == 1:
            return [local.detach()]
        padded = local.new_zeros((max(sizes), local.shape[1]))
        padded[: len(local)] = local.detach()
        gathered = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(gathered, padded)
        return [rows[:size] for rows, size in zip(gathered, sizes, strict=True)]

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum the gradients of all processes in one all-reduce."""
        if self.count == 1:
            return
        gradients = []
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                gradients.append(parameter.grad)
        flat = torch.cat([gradient.reshape(-1).float() for gradient in gradients])
        distributed.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, summed in zip(gradients, parts, strict=True):
            gradient.copy_(summed.view_as(gradient))

    def broadcast(self, value: T) -> T:
        """Return the main process's value in every process."""
        if self.count == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values, src=0, device=self.device)
        return values[0]

    def broadcast_random_state(self) -> None:
        """Copy the state of the main process's random generator to all processes."""
        if self.count > 1:
            state = torch.get_rng_state().to(self.device)
            distributed.broadcast(state, src=0)
            torch.set_rng_state(state.cpu())

    def wait(self) -> None:
        """Wait until every process has reached this call."""
        if self.count > 1:
            distributed.barrier()


def leave_process_group() -> None:
    """Leave the process group, whose threads must not be alive when the interpreter exits."""
    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
