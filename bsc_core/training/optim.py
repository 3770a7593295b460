"""AdamW over encoder and loss, and the linear schedule with warm-up."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from bsc_core.config import TrainingConfig

TEMPERATURES = ("log_temperature", "inverse_temperature")


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim > 1 and "norm" not in name.lower()


def _is_temperature(name: str) -> bool:
    return name.rpartition(".")[2] in TEMPERATURES


def make_optimizer(model: nn.Module, loss: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW in groups: weights of the encoder and of a head with decay, biases and norms without, and the temperature.

    A head takes `head_learning_rate`, by default the encoder's; the temperature has its own rate and no decay.
    """
    encoder = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    of_loss = [(name, parameter) for name, parameter in loss.named_parameters() if parameter.requires_grad]
    head = [(name, parameter) for name, parameter in of_loss if not _is_temperature(name)]
    of_head = {} if config.head_learning_rate is None else {"lr": config.head_learning_rate}
    groups = [
        {"params": [p for n, p in encoder if _decays(n, p)], "weight_decay": config.weight_decay},
        {"params": [p for n, p in encoder if not _decays(n, p)], "weight_decay": 0.0},
        {"params": [p for n, p in head if _decays(n, p)], "weight_decay": config.weight_decay} | of_head,
        {"params": [p for n, p in head if not _decays(n, p)], "weight_decay": 0.0} | of_head,
        {
            "params": [p for n, p in of_loss if _is_temperature(n)],
            "weight_decay": 0.0,
            "lr": config.temperature_learning_rate,
        },
    ]
    used = [group for group in groups if group["params"]]
    return torch.optim.AdamW(used, lr=config.learning_rate, fused=True)


def make_schedule(
    optimizer: torch.optim.Optimizer, *, steps: int, warmup: float, ends_early: bool = False
) -> torch.optim.lr_scheduler.LambdaLR:
    """Rise linearly over the first `warmup` share of `steps`, then fall linearly towards 0.

    steps: optimiser steps of the whole run, >= 1. The first step already has a rate above 0, and so has the last.
    ends_early: the SBERT article's mistake, for lessons: 0 is reached as many steps too early as the rate rose.
    """
    rising = round(steps * warmup)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, (_early if ends_early else _whole)(steps, rising))


def _whole(steps: int, rising: int) -> Callable[[int], float]:
    def factor(step: int) -> float:
        if step < rising:
            return (step + 1) / (rising + 1)
        return max(1, steps - step) / max(1, steps - rising)  # a step beyond the expected ones is not wasted

    return factor


def _early(steps: int, rising: int) -> Callable[[int], float]:
    end = steps - rising

    def factor(step: int) -> float:
        return step / rising if step < rising else max(0.0, (end - step) / max(1, end - rising))

    return factor


def clip_gradients(model: nn.Module, largest: float, loss: nn.Module | None = None) -> float:
    """Scale the gradients of encoder and head to at most this norm and return the norm before.

    The temperature is not counted, so that one step of it cannot shrink the encoder's.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    if loss is not None:
        trained += [p for n, p in loss.named_parameters() if p.requires_grad and not _is_temperature(n)]
    return float(nn.utils.clip_grad_norm_(trained, largest))
