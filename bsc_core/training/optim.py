"""AdamW over encoder and loss, with or without bias correction, and the linear schedule with warm-up."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import nn

from bsc_core.config import TrainingConfig
from bsc_core.config.training import Schedule
from bsc_core.errors import ConfigError

TEMPERATURES = ("log_temperature", "inverse_temperature")
LAYER = re.compile(r"(?:^|\.)(?:layer|layers|block|blocks|h)\.(\d+)\.")
EPS, EPS_UNCORRECTED = 1e-8, 1e-6  # torch's, and that of the BSC paper's code
LATE = 2.0**20  # 0.999 ** LATE is 0 in double precision
RESTARTED_WARMUP = 10_000

Named = tuple[str, nn.Parameter]


class Trained(Protocol):
    """What has named parameters: a module, or what trains a part of one."""

    def named_parameters(self) -> Iterator[Named]: ...


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim > 1 and "norm" not in name.lower()


def _is_temperature(name: str) -> bool:
    return name.rpartition(".")[2] in TEMPERATURES


def make_optimizer(model: Trained, loss: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW in groups: weights of the encoder and of a head with decay, biases and norms without, and the temperature.

    A head takes `head_learning_rate`, by default the encoder's; the temperature has its own rate and no decay. With
    `layer_decay` the encoder has such groups for each layer; see `layer_rates`. A step t changes a weight w with
    gradient g by

        m <- 0.9 m + 0.1 g;  v <- 0.999 v + 0.001 g^2;  w <- (1 - rate * decay) w - rate * m' / (sqrt(v') + eps)

    where m' = m / (1 - 0.9^t), v' = v / (1 - 0.999^t) and eps = 1e-8 (Loshchilov and Hutter 2019), or with
    `bias_correction = False` m' = m, v' = v and eps = 1e-6, as in the BSC paper's code: its first steps are larger.
    Raises ConfigError where `layer_decay` finds no layers.
    """
    of_loss = [(name, parameter) for name, parameter in loss.named_parameters() if parameter.requires_grad]
    head = [(name, parameter) for name, parameter in of_loss if not _is_temperature(name)]
    temperature = [parameter for name, parameter in of_loss if _is_temperature(name)]
    head_rate = config.learning_rate if config.head_learning_rate is None else config.head_learning_rate
    groups = [
        *_encoder_groups(model, config),
        *_with_and_without_decay(head, config.weight_decay, head_rate),
        {"params": temperature, "weight_decay": 0.0, "lr": config.temperature_learning_rate},
    ]
    used = [group for group in groups if group["params"]]
    eps = EPS if config.bias_correction else EPS_UNCORRECTED
    optimizer = torch.optim.AdamW(used, lr=config.learning_rate, eps=eps, fused=True)
    if not config.bias_correction:
        _begin_late(optimizer)
    return optimizer


def layer_rates(names: Iterable[str], config: TrainingConfig) -> dict[str, float]:
    """The learning rate of each of an encoder's parameters.

    The topmost layer and what comes after it take `learning_rate`, each layer below `layer_decay` times the rate of
    the one above, and the embeddings that again of the first layer's. Raises ConfigError where there are no layers.
    """
    layers = {name: int(found[1]) for name in names if (found := LAYER.search(name))}
    if not layers and config.layer_decay < 1:
        raise ConfigError(
            f"training.layer_decay is {config.layer_decay:g}, and this encoder has no layers to tell apart; set it to 1"
        )
    top = max(layers.values(), default=-1)
    below = {name: top - layers.get(name, -1 if "embed" in name.lower() else top) for name in names}
    return {name: config.learning_rate * config.layer_decay**steps for name, steps in below.items()}


def _encoder_groups(model: Trained, config: TrainingConfig) -> list[dict[str, Any]]:
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    rates = layer_rates([name for name, _ in trained], config)
    by_rate: dict[float, list[Named]] = defaultdict(list)
    for name, parameter in trained:
        by_rate[rates[name]].append((name, parameter))
    groups = []
    for rate in sorted(by_rate, reverse=True):
        groups += _with_and_without_decay(by_rate[rate], config.weight_decay, rate)
    return groups


def _with_and_without_decay(named: list[Named], weight_decay: float, rate: float) -> list[dict[str, Any]]:
    return [
        {"params": [p for n, p in named if _decays(n, p)], "weight_decay": weight_decay, "lr": rate},
        {"params": [p for n, p in named if not _decays(n, p)], "weight_decay": 0.0, "lr": rate},
    ]


def _begin_late(optimizer: torch.optim.AdamW) -> None:
    """Let every parameter count its steps from one so late that both corrections, 1 - beta^t, are 1.

    So the fused kernel computes the uncorrected update, to the bit.
    """
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.tensor(LATE, dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


def make_schedule(
    optimizer: torch.optim.Optimizer, *, steps: int, warmup: float, kind: Schedule = "linear", in_epoch: int = 1
) -> torch.optim.lr_scheduler.LambdaLR:
    """Rise linearly over the first `warmup` share of `steps`, then fall linearly towards 0.

    steps: optimiser steps of the whole run, >= 1. The first step already has a rate above 0, and so has the last.
    kind: for lessons two mistakes. `ends_early` of the SBERT article: 0 is reached as many steps too early as the rate
    rose. `restarts` of the code of the paper on margins (Jørgensen and Breitung 2024): in each epoch, of `in_epoch`
    steps, the rate rises anew from 0 over the same 10,000 steps, which few epochs have; see `forget_moments`.
    """
    rising = round(steps * warmup)
    factors = {"linear": _whole(steps, rising), "ends_early": _early(steps, rising), "restarts": _anew(in_epoch)}
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factors[kind])


def forget_moments(optimizer: torch.optim.AdamW, config: TrainingConfig) -> None:
    """Begin with the moments of a new optimiser, as `restarts` does in each epoch."""
    optimizer.state.clear()
    if not config.bias_correction:
        _begin_late(optimizer)


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


def _anew(in_epoch: int) -> Callable[[int], float]:
    def factor(step: int) -> float:
        place = step % in_epoch
        if place < RESTARTED_WARMUP:
            return place / RESTARTED_WARMUP
        return (in_epoch - place) / (in_epoch - RESTARTED_WARMUP)

    return factor


def clip_gradients(model: Trained, largest: float, loss: nn.Module | None = None) -> float:
    """Scale the gradients of encoder and head to at most this norm and return the norm before.

    The temperature is not counted, so that one step of it cannot shrink the encoder's.
    """
    trained = [p for _, p in model.named_parameters() if p.requires_grad]
    if loss is not None:
        trained += [p for n, p in loss.named_parameters() if p.requires_grad and not _is_temperature(n)]
    return float(nn.utils.clip_grad_norm_(trained, largest))
