"""Device settings of a run: number precision, memory for activations, threads and random seeds."""

import ctypes
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch

from bsc_core.encoders.forward import Precision
from bsc_core.errors import ConfigError
from bsc_core.neighbors import has_bf16_instructions

MIB = 1024 * 1024
CPU_MIB = 1024
"""MiB for activations on a CPU: the usual batch of 30 pairs of passages fits."""
RECOMPUTED_SHARE = 0.125
"""Share of the CPU's activation memory that a batch far larger than it uses."""
GPU_SHARE = 0.6
OPTIMIZER_ARRAYS = 3
"""Arrays of the size of the weights that a step adds: the gradient and two moments."""
INITIAL_THREADS = torch.get_num_threads()


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch, and select deterministic kernels where torch has them."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)


def set_threads(threads: int | None) -> None:
    """Set the number of CPU threads; None restores the number at the start of the process."""
    torch.set_num_threads(threads or INITIAL_THREADS)


def gains_from_bf16(device: torch.device) -> bool:
    """Return whether the device has instructions for bfloat16 matrix products."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and has_bf16_instructions()


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, such as `NVIDIA H100 80GB HBM3`, or the type of another device, such as `cpu`."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def resolve_precision(wanted: Literal["auto", "fp32", "bf16", "fp16"], device: torch.device) -> Precision:
    """Return the precision that `auto` selects on this device.

    Raises:
        ConfigError: fp16 is requested on a CPU.
    """
    if wanted == "fp16" and device.type == "cpu":
        raise ConfigError("training.precision is fp16, which needs a GPU, and this run is on a CPU; use auto")
    if wanted != "auto":
        return wanted
    return "bf16" if gains_from_bf16(device) else "fp32"


@dataclass(frozen=True)
class ActivationMemory:
    """Bytes for activations.

    A batch far larger than `limit` stores only `minimum`: it recomputes nearly all of its activations anyway, so more
    memory would save little time.
    """

    limit: int  # what a batch that fits may use
    minimum: int

    def budget(self, needed: int) -> int:
        """Return the bytes that a batch may store: all if it fits, and fewer the larger the batch is."""
        return needed if needed <= self.limit else max(2 * self.limit - needed, self.minimum)


def activation_memory(device: torch.device, wanted: int | None, weights: int) -> ActivationMemory:
    """Return the memory for activations: `wanted` MiB, or a default for the device and so many bytes of weights."""
    if wanted is not None:
        return ActivationMemory(wanted * MIB, wanted * MIB)
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0] - OPTIMIZER_ARRAYS * weights
        limit = max(0, int(GPU_SHARE * free))
        return ActivationMemory(limit, limit)
    return ActivationMemory(CPU_MIB * MIB, int(RECOMPUTED_SHARE * CPU_MIB * MIB))


def release_memory() -> None:
    """Return free memory to the system where the C library can.

    Micro-batches of varying sizes fragment the heap, so the process would grow with their number. Pages that are used
    again have to be fetched again, which costs about a seventh of a micro-batch's time.
    """
    _malloc_trim()(0)


@cache
def _malloc_trim() -> Callable[[int], object]:
    if sys.platform == "linux":
        trim: Callable[[int], object] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            return trim
    return bool


def peak_memory_bytes(device: torch.device | None = None) -> int:
    """Return the peak memory so far: of the tensors on a GPU, else of this process."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
