"""The temperature tau of a softmax: a fixed number, or a parameter learned as log tau or as 1 / tau.

The released code learns 1 / tau directly, which one large step can push to 0 or below, and does not save it. Here log
tau is the usual parameter, tau stays within [0.01, 100] in either form, and the value is part of the loss's state.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from bsc_core.config.losses import HIGHEST_TEMPERATURE as HIGHEST
from bsc_core.config.losses import LARGEST_TEMPERATURE as LARGEST
from bsc_core.config.losses import LOWEST_TEMPERATURE as LOWEST
from bsc_core.config.losses import SMALLEST_TEMPERATURE as SMALLEST
from bsc_core.config.losses import SoftmaxOverBatch
from bsc_core.errors import ConfigError


class FixedTemperature(nn.Module):
    """A temperature that training leaves alone."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        if not SMALLEST <= temperature <= LARGEST:
            raise ConfigError(
                f"temperature is {temperature:g}; it must be > 0, from {SMALLEST:g} to {LARGEST:g} "
                "(0.05 to 0.1 is usual with l2)"
            )
        self.value = float(temperature)

    def forward(self) -> float:
        """tau, at full precision."""
        return self.value


class _Learned(nn.Module):
    """What both forms share: the start is checked, and a step beyond the bounds is undone.

    Clamping the value alone would leave the parameter outside, where its gradient is 0, for good.
    """

    def _start(self, temperature: float) -> None:
        if not LOWEST <= temperature <= HIGHEST:
            raise ConfigError(
                f"temperature is {temperature:g}; a learned temperature starts between {LOWEST:g} and {HIGHEST:g}"
            )


class LearnedTemperature(_Learned):
    """A temperature trained with the encoder; `log_temperature` is the parameter.

    Raises ConfigError when the start is outside [0.01, 100].
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self._start(temperature)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature)))

    @property
    def value(self) -> float:
        """tau as a number, for reports."""
        return math.exp(float(self.log_temperature.detach().clamp(math.log(LOWEST), math.log(HIGHEST))))

    def forward(self) -> Tensor:
        """tau as a scalar tensor with gradient."""
        with torch.no_grad():
            self.log_temperature.clamp_(math.log(LOWEST), math.log(HIGHEST))
        return self.log_temperature.exp()


class LinearTemperature(_Learned):
    """A temperature trained as `inverse_temperature` = 1 / tau, the released BSC code's alpha.

    Raises ConfigError when the start is outside [0.01, 100].
    """

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self._start(temperature)
        self.inverse_temperature = nn.Parameter(torch.tensor(1 / temperature))

    @property
    def value(self) -> float:
        """tau as a number, for reports."""
        return 1 / float(self.inverse_temperature.detach().clamp(1 / HIGHEST, 1 / LOWEST))

    def forward(self) -> Tensor:
        """tau as a scalar tensor with gradient."""
        with torch.no_grad():
            self.inverse_temperature.clamp_(1 / HIGHEST, 1 / LOWEST)
        inverse: Tensor = self.inverse_temperature
        return 1 / inverse


Temperature = FixedTemperature | LearnedTemperature | LinearTemperature


def make_temperature(config: SoftmaxOverBatch) -> Temperature:
    """The temperature module of a loss. Raises ConfigError when the value cannot work."""
    if not config.learn_temperature:
        return FixedTemperature(config.temperature)
    learned = LearnedTemperature if config.temperature_parameter == "log" else LinearTemperature
    return learned(config.temperature)
