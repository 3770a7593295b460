"""Temperature tau of a softmax: fixed, or learned as log tau or as 1 / tau.

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
    """A temperature that is not trained."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.value = float(temperature)

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


def make_temperature(config: SoftmaxOverBatch) -> Temperature:
    """Return the temperature module of a loss; its config has checked the range."""
    if not config.learn_temperature:
        return FixedTemperature(config.temperature)
    learned = LearnedTemperature if config.temperature_parameter == "log" else LinearTemperature
    return learned(config.temperature)
