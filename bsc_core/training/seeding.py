"""One seed for everything random, and arithmetic that repeats bit for bit on a CPU."""

from __future__ import annotations

import random

import numpy as np
import torch

THREADS_AT_START = torch.get_num_threads()


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch, and ask torch for deterministic kernels where it has them."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)


def set_threads(threads: int | None) -> None:
    """Use this many processor threads; None gives back the number that the process started with."""
    torch.set_num_threads(threads or THREADS_AT_START)
