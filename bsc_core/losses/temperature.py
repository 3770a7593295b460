"""The temperature tau of a softmax: a fixed number, or a parameter learned as log tau.

The released code learns 1 / tau directly, which one large step can push to 0 or below, and does not save it. Here log
tau is the parameter, tau stays within [0.01, 100], and the value is part of the loss's state.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bsc_core.errors import ConfigError

LOWEST = 0.01
HIGHEST = 100.0


class FixedTemperature(nn.Module):
    """A temperature that training leaves alone; any tau > 0."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        if not 0 < temperature < math.inf:
            raise ConfigError(f"temperature is {temperature:g}; it must be > 0 (0.05 to 0.1 is usual with l2)")
        self.value = float(temperature)

    def forward(self) -> float:
        """tau, at full precision."""
        return self.value


class LearnedTemperature(nn.Module):
    """A temperature trained with the encoder; `log_temperature` is the parameter.

    Raises ConfigError when the start is outside [0.01, 100].
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        if not LOWEST <= temperature <= HIGHEST:
            raise ConfigError(
                f"temperature is {temperature:g}; a learned temperature starts between {LOWEST:g} and {HIGHEST:g}"
            )
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))

    @property
    def value(self) -> float:
        """tau as a number, for reports."""
        log_temperature = self.log_temperature.detach().clamp(math.log(LOWEST), math.log(HIGHEST))
        return math.exp(float(log_temperature))

    def forward(self) -> Tensor:
        """tau as a scalar tensor with gradient.

        A step that carried log tau over the edge is undone here. Clamping the value alone would leave the parameter
        outside, where its gradient is 0, for good.
        """
        with torch.no_grad():
            self.log_temperature.clamp_(math.log(LOWEST), math.log(HIGHEST))
        return self.log_temperature.exp()


def make_temperature(temperature: float, *, learn: bool) -> FixedTemperature | LearnedTemperature:
    """The temperature module of a loss. Raises ConfigError when the value cannot work."""
    return LearnedTemperature(temperature) if learn else FixedTemperature(temperature)
