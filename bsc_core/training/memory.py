"""How much memory there is for activations, and how much was used."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch

MIB = 1024 * 1024
CPU_MIB = 1024
"""For activations on a processor: the usual batch of 30 pairs of passages fits."""
MODEST_SHARE = 0.125
GPU_SHARE = 0.6
OF_OPTIMISER = 3
"""Arrays of the size of the weights that a step adds: the gradient and two moments."""


@dataclass(frozen=True)
class Room:
    """Memory for activations, in bytes.

    most: what a batch that fits may take. modest: what a much larger batch keeps of its activations; it computes nearly
    all of them twice in any case, so more would buy little time.
    """

    most: int
    modest: int

    def of(self, needed: int) -> int:
        """What a batch that needs so much may keep: all where it fits, and less the less that helps."""
        return needed if needed <= self.most else max(2 * self.most - needed, self.modest)


def activation_room(device: torch.device, wanted: int | None, weights: int) -> Room:
    """The room on a device. wanted: in MiB, None for what suits the device. weights: bytes of what is trained."""
    if wanted is not None:
        return Room(wanted * MIB, wanted * MIB)
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0] - OF_OPTIMISER * weights
        most = max(0, int(GPU_SHARE * free))
        return Room(most, most)
    return Room(CPU_MIB * MIB, int(MODEST_SHARE * CPU_MIB * MIB))


def release_memory() -> None:
    """Give free memory back to the system, where the C library can.

    Micro-batches of ever other sizes leave holes that the next one does not fit into; without this a process grows with
    their number. The pages that are used again have to be fetched anew, which costs a seventh of the time of one.
    """
    _trim()(0)


@cache
def _trim() -> Callable[[int], object]:
    if sys.platform == "linux":
        found: Callable[[int], object] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if found is not None:
            return found
    return bool


def peak_memory_bytes(device: torch.device | None = None) -> int:
    """The most memory held so far: on a GPU by its tensors, else by this process."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
