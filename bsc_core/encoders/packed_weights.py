"""Trained weights side by side in one buffer: one cast a step, gradients that need no new memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn


class Weights:
    """Copies of a model's weights, by name, as parameters for an optimiser.

    Their values lie in one float32 buffer in the order of `sources`, gradients in a second, and a copy in the precision
    of matrix products in a third.
    """

    def __init__(self, sources: dict[str, Tensor], dtype: torch.dtype) -> None:
        ends = np.cumsum([0, *(source.numel() for source in sources.values())]).tolist()
        self._places = dict(zip(sources, pairwise(ends), strict=True))
        self._shapes = {name: source.shape for name, source in sources.items()}
        self.values = torch.cat([source.detach().reshape(-1) for source in sources.values()]).float()
        self.gradients = torch.zeros_like(self.values)
        self.casts = self.values if dtype == torch.float32 else self.values.to(dtype)
        self.parameters = {name: nn.Parameter(self.part(self.values, name)) for name in sources}
        self._gradients = {name: self.part(self.gradients, name) for name in sources}
        self._stale = False

    def part(self, buffer: Tensor, *names: str) -> Tensor:
        """What a buffer holds for these names, which follow one another: their rows, one below the other."""
        start, stop = self._places[names[0]][0], self._places[names[-1]][1]
        return buffer[start:stop].view(-1, *self._shapes[names[0]][1:])

    def changed(self) -> None:
        """The values are others now; the next `refresh` casts them."""
        self._stale = True

    def refresh(self) -> None:
        """Bring the copy up to date."""
        if self._stale and self.casts is not self.values:
            self.casts.copy_(self.values)
        self._stale = False

    def collect(self) -> None:
        """Let the parameters' gradients be those of the buffer; 0 where the optimiser has let go of them."""
        for name, parameter in self.parameters.items():
            gradient = self._gradients[name]
            if parameter.grad is gradient:
                continue
            if parameter.grad is None:
                gradient.zero_()
            else:
                gradient.copy_(parameter.grad)
            parameter.grad = gradient
