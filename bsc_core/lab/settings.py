"""The settings of the loss lab, as they stand in a link and as the config they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from pydantic import ValidationError

from bsc_core.config import BSCLossConfig, explain
from bsc_core.errors import ConfigError

LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.01, 10.0
"""The ends of the lab's slider, and what a link may ask for."""

Normalization = Literal["l2", "l2_columns", "range_columns", "minmax_columns", "none"]


@dataclass(frozen=True)
class LabSettings:
    """The knobs that act in the browser; each is a field of BSCLossConfig."""

    temperature: float = 0.1
    symmetric: bool = True
    normalization: Normalization = "l2"
    labelled_negatives: bool = True
    duplicates: Literal["keep", "merge", "multi_positive"] = "keep"
    reduction: Literal["mean", "sum"] = "mean"
    average: Literal["batch", "positives"] = "batch"
    threshold: float = 0.5

    def config(self) -> BSCLossConfig:
        """The loss config these settings mean. Raises ConfigError when they cannot work."""
        if not (math.isfinite(self.temperature) and LOWEST_TEMPERATURE <= self.temperature <= HIGHEST_TEMPERATURE):
            raise ConfigError(
                f"temperature is {self.temperature:g}; "
                f"the lab goes from {LOWEST_TEMPERATURE:g} to {HIGHEST_TEMPERATURE:g}"
            )
        try:
            return BSCLossConfig(**asdict(self))
        except ValidationError as error:
            raise ConfigError(explain(error)) from None

    def to_query(self, prefix: str = "") -> dict[str, str]:
        """What differs from the defaults, as URL parameters."""
        plain = LabSettings()
        changed = {
            f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != getattr(plain, f.name)
        }
        return {prefix + name: _shown(value) for name, value in changed.items()}

    @classmethod
    def from_query(cls, query: Mapping[str, str], prefix: str = "") -> LabSettings:
        """The settings that URL parameters ask for. Raises ConfigError naming the one that cannot be used."""
        given: dict[str, Any] = {}
        for field in fields(cls):
            text = query.get(prefix + field.name)
            if text is not None:
                given[field.name] = _read(prefix + field.name, text, getattr(cls, field.name))
        settings = cls(**given)
        settings.config()
        return settings


def _shown(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _read(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text not in ("0", "1"):
            raise ConfigError(f"{name} is {text!r} in the link; it must be 0 or 1")
        return text == "1"
    if isinstance(default, float):
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{name} is {text!r} in the link; it must be a number") from None
    return text
