"""AdamW over encoder and loss, and the linear schedule with warm-up."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from bsc_core.config import TrainingConfig


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim > 1 and "norm" not in name.lower()


def make_optimizer(model: nn.Module, loss: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW in three groups: encoder weights with decay, biases and norms without, log tau with its own rate."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for n, p in named if _decays(n, p)], "weight_decay": config.weight_decay},
        {"params": [p for n, p in named if not _decays(n, p)], "weight_decay": 0.0},
        {"params": list(loss.parameters()), "weight_decay": 0.0, "lr": config.temperature_learning_rate},
    ]
    used = [group for group in groups if group["params"]]
    return torch.optim.AdamW(used, lr=config.learning_rate, fused=True)


def make_schedule(optimizer: torch.optim.Optimizer, *, steps: int, warmup: float) -> torch.optim.lr_scheduler.LambdaLR:
    """Rise linearly over the first `warmup` share of `steps`, then fall linearly towards 0.

    steps: optimiser steps of the whole run, >= 1. The first step already has a rate above 0, and so has the last.
    """
    rising = round(steps * warmup)

    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / (rising + 1)
        return max(1, steps - step) / max(1, steps - rising)  # a step beyond the expected ones is not wasted

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def clip_gradients(model: nn.Module, largest: float) -> float:
    """Scale the encoder's gradients to at most this norm and return the norm before. The temperature is not counted."""
    trained: Iterator[nn.Parameter] = (p for p in model.parameters() if p.requires_grad)
    return float(nn.utils.clip_grad_norm_(list(trained), largest))
