"""AdamW over encoder and loss, with or without bias correction, and the linear schedule with warm-up."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import nn

from bsc_core.config import TrainingConfig
from bsc_core.config.training import Schedule
from bsc_core.errors import ConfigError

TEMPERATURES = ("log_temperature", "inverse_temperature")
LAYER = re.compile(r"(?:^|\.)(?:layer|layers|block|blocks|h)\.(\d+)\.")
EPS, EPS_UNCORRECTED = 1e-8, 1e-6  # torch's, and that of the BSC paper's code
LATE_STEP = 2.0**20  # 0.999 ** LATE_STEP is 0 in double precision
RESTARTED_WARMUP = 10_000

Named = tuple[str, nn.Parameter]


class HasParameters(Protocol):
    """A module, or a forward pass with copies of its parameters."""

    def named_parameters(self) -> Iterator[Named]:
        """Yield the trained parameters with their names in the model."""


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim > 1 and "norm" not in name.lower()


def _is_temperature(name: str) -> bool:
    return name.rpartition(".")[2] in TEMPERATURES


def make_optimizer(model: HasParameters, loss: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """Return AdamW with groups for weights (with decay), for biases and norms (without), and for the temperature.

    A head has the rate `head_learning_rate`, by default the encoder's; the temperature has a separate rate and no
    decay. With `layer_decay` the encoder has groups for each layer; see `layer_rates`. Step t changes a weight w with
    gradient g by

        m <- 0.9 m + 0.1 g;  v <- 0.999 v + 0.001 g^2;  w <- (1 - rate * decay) w - rate * m' / (sqrt(v') + eps)

    where m' = m / (1 - 0.9^t), v' = v / (1 - 0.999^t) and eps = 1e-8 (Loshchilov and Hutter 2019), or with
    `bias_correction = False` m' = m, v' = v and eps = 1e-6, as in the BSC paper's code: its first steps are larger.

    Raises:
        ConfigError: `layer_decay` is below 1 and the encoder has no layers.
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
        _disable_bias_correction(optimizer)
    return optimizer


def layer_rates(names: Iterable[str], config: TrainingConfig) -> dict[str, float]:
    """Return the learning rate of each of an encoder's parameters.

    The top layer and the modules after it have `learning_rate`, each layer below has `layer_decay` times the rate of
    the layer above, and the embeddings `layer_decay` times that of the first layer.

    Raises:
        ConfigError: The encoder has no layers.
    """
    layers = {name: int(result[1]) for name in names if (result := LAYER.search(name))}
    if not layers and config.layer_decay < 1:
        raise ConfigError(
            f"training.layer_decay is {config.layer_decay:g}, and this encoder has no numbered layers; set it to 1"
        )
    top = max(layers.values(), default=-1)
    below = {name: top - layers.get(name, -1 if "embed" in name.lower() else top) for name in names}
    return {name: config.learning_rate * config.layer_decay**steps for name, steps in below.items()}


def _encoder_groups(model: HasParameters, config: TrainingConfig) -> list[dict[str, Any]]:
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


def _disable_bias_correction(optimizer: torch.optim.AdamW) -> None:
    """Set the step count so high that both corrections, 1 - beta^t, are exactly 1 in the fused kernel."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = {
                "step": torch.tensor(LATE_STEP, dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


def make_schedule(
    optimizer: torch.optim.Optimizer, *, steps: int, warmup: float, kind: Schedule = "linear", steps_per_epoch: int = 1
) -> torch.optim.lr_scheduler.LambdaLR:
    """Return a schedule that rises linearly over the first `warmup` share of `steps` and then falls linearly toward 0.

    The rate is above 0 in the first and in the last step. Two other kinds repeat mistakes for lessons. `ends_early`, of
    the SBERT article, reaches 0 too early, by the number of warmup steps. `restarts`, of the code of the margins
    paper (Jørgensen and Breitung 2024), rises from 0 over 10,000 steps in each epoch of `steps_per_epoch` steps,
    although few epochs are that long; see `reset_moments`.
    """
    rising = round(steps * warmup)

    def linear(step: int) -> float:
        if step < rising:
            return (step + 1) / (rising + 1)
        return max(1, steps - step) / max(1, steps - rising)  # above 0 also in a step beyond the expected ones

    def ends_early(step: int) -> float:
        end = steps - rising
        return step / rising if step < rising else max(0.0, (end - step) / max(1, end - rising))

    def restarts(step: int) -> float:
        of_epoch = step % steps_per_epoch
        if of_epoch < RESTARTED_WARMUP:
            return of_epoch / RESTARTED_WARMUP
        return (steps_per_epoch - of_epoch) / (steps_per_epoch - RESTARTED_WARMUP)

    factors = {"linear": linear, "ends_early": ends_early, "restarts": restarts}
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factors[kind])


def reset_moments(optimizer: torch.optim.AdamW, config: TrainingConfig) -> None:
    """Reset the moments to those of a new optimizer, as `restarts` does in each epoch."""
    optimizer.state.clear()
    if not config.bias_correction:
        _disable_bias_correction(optimizer)


def clip_gradients(model: HasParameters, largest: float, loss: nn.Module | None = None) -> float:
    """Scale the gradients of encoder and head to at most this norm and return the norm before.

    The temperature is excluded, so that a large gradient of it cannot shrink the encoder's.
    """
    trained = [p for _, p in model.named_parameters() if p.requires_grad]
    if loss is not None:
        trained += [p for n, p in loss.named_parameters() if p.requires_grad and not _is_temperature(n)]
    return float(nn.utils.clip_grad_norm_(trained, largest))
