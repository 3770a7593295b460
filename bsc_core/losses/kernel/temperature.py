"""Temperature tau of a softmax: fixed, scheduled, or learned as log tau or as 1 / tau.

The released code learns 1 / tau, which one large step can push to 0 or below, and does not save it. Here the default
parameter is log tau, a learned tau stays within [0.01, 100], and it is part of the loss's state dict.
"""

import math

import torch
from torch import Tensor, nn

from bsc_core.config.losses import HIGHEST_TEMPERATURE as HIGHEST
from bsc_core.config.losses import LOWEST_TEMPERATURE as LOWEST
from bsc_core.config.losses import SoftmaxOverBatch


class FixedTemperature(nn.Module):
    """A temperature that is not trained: constant, or changing from `first` to `last` over the steps of training."""

    def __init__(self, first: float, last: float | None = None, schedule: str = "constant") -> None:
        super().__init__()
        self.first, self.last, self.schedule = float(first), float(first if last is None else last), schedule
        self.value = self.first

    def set_progress(self, share: float) -> None:
        """Set tau for a share of training in [0, 1]: 0 at the first step, 1 at the last.

        With "linear" tau = first + share (last - first); with "cosine" tau = last + (first - last) (1 + cos(pi share))
        / 2, the first half of the wave of Kukleva et al., 2023 (2303.13664).
        """
        remaining = (1 + math.cos(math.pi * share)) / 2 if self.schedule == "cosine" else 1 - share
        self.value = self.first if self.schedule == "constant" else self.last + (self.first - self.last) * remaining

    def forward(self) -> float:
        """Return tau."""
        return self.value


class LearnedTemperature(nn.Module):
    """A learned temperature with the parameter `log_temperature`.

    The parameter itself is clamped: clamping only the value would leave it outside the bounds, where its gradient is 0.
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))

    @property
    def value(self) -> float:
        """Current tau."""
        return math.exp(float(self.log_temperature.detach().clamp(math.log(LOWEST), math.log(HIGHEST))))

    def forward(self) -> Tensor:
        """Return tau as a scalar tensor with gradient."""
        with torch.no_grad():
            self.log_temperature.clamp_(math.log(LOWEST), math.log(HIGHEST))
        return self.log_temperature.exp()


class LinearTemperature(nn.Module):
    """A learned temperature with the parameter `inverse_temperature` = 1 / tau, the alpha of the released BSC code."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.inverse_temperature = nn.Parameter(torch.tensor(1 / temperature))

    @property
    def value(self) -> float:
        """Current tau."""
        return 1 / float(self.inverse_temperature.detach().clamp(1 / HIGHEST, 1 / LOWEST))

    def forward(self) -> Tensor:
        """Return tau as a scalar tensor with gradient."""
        with torch.no_grad():
            self.inverse_temperature.clamp_(1 / HIGHEST, 1 / LOWEST)
        inverse: Tensor = self.inverse_temperature
        return 1 / inverse


Temperature = FixedTemperature | LearnedTemperature | LinearTemperature


def set_progress(loss: nn.Module, share: float) -> None:
    """Set the scheduled temperatures of a loss for a share of training, from 0 at the first step to 1 at the last."""
    for module in loss.modules():
        if isinstance(module, FixedTemperature):
            module.set_progress(share)


def make_temperature(config: SoftmaxOverBatch) -> Temperature:
    """Return the temperature module of a loss; its config has checked the range."""
    if not config.learn_temperature:
        return FixedTemperature(config.temperature, config.temperature_end, config.temperature_schedule)
    learned = LearnedTemperature if config.temperature_parameter == "log" else LinearTemperature
    return learned(config.temperature)
