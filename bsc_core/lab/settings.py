"""Settings of the loss lab, as URL parameters and as a loss config."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from pydantic import ValidationError

from bsc_core.config import BSCLossConfig, DirectionName, validation_message
from bsc_core.errors import ConfigError
from bsc_core.lab.batch import LabBatch
from bsc_core.lab.presets import GUIDE
from bsc_core.losses.explain import Explanation, explain

LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.01, 10.0
"""The range of the lab's slider and of links."""

Normalization = Literal["l2", "l2_columns", "range_columns", "minmax_columns", "none"]


@dataclass(frozen=True)
class LabSettings:
    """Settings that act in the browser; each is a field of BSCLossConfig."""

    temperature: float = 0.1
    symmetric: bool = True
    partition: Literal["joint", "per_direction"] = "per_direction"
    directions: tuple[DirectionName, ...] = ()
    normalization: Normalization = "l2"
    labeled_negatives: bool = True
    duplicates: Literal["keep", "merge", "multi_positive"] = "keep"
    reduction: Literal["mean", "sum"] = "mean"
    average: Literal["batch", "positives"] = "batch"
    threshold: float = 0.5
    mask: Literal["none", "self", "guide"] = "none"
    mask_margin: float = 0.0
    mask_margin_kind: Literal["absolute", "relative"] = "absolute"
    hardness: Literal["none", "in_batch_negatives"] = "none"
    hardness_strength: float = 5.0
    decoupled: bool = False
    debiased_prior: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "directions", tuple(self.directions))  # the browser sends a list

    def config(self) -> BSCLossConfig:
        """Return the loss config of these settings.

        Raises:
            ConfigError: A setting is invalid.
        """
        if not (math.isfinite(self.temperature) and LOWEST_TEMPERATURE <= self.temperature <= HIGHEST_TEMPERATURE):
            raise ConfigError(
                f"temperature is {self.temperature:g}; the lab takes {LOWEST_TEMPERATURE:g} to {HIGHEST_TEMPERATURE:g}"
            )
        if self.hardness in ("hard_negatives", "all_negatives"):
            raise ConfigError(
                f"hardness is {self.hardness}; a batch of the lab has no column of negatives, so it takes none or "
                "in_batch_negatives"
            )
        try:
            return BSCLossConfig(**self.loss_values())
        except ValidationError as error:
            raise ConfigError(validation_message(error)) from None

    def loss_values(self) -> dict[str, Any]:
        """Return the settings as values of fields of BSCLossConfig."""
        return asdict(self) | ({"mask_guide": GUIDE} if self.mask == "guide" else {})

    def for_batch(self, batch: LabBatch) -> LabSettings:
        """Return the settings without the mask `guide` if the batch has no vectors of a guide."""
        return replace(self, mask="none") if self.mask == "guide" and batch.guide is None else self

    def to_query(self, prefix: str = "") -> dict[str, str]:
        """Return the settings that differ from the defaults, as URL parameters."""
        default = asdict(LabSettings())
        changed = {name: value for name, value in asdict(self).items() if value != default[name]}
        return {prefix + name: _format(value) for name, value in changed.items()}

    @classmethod
    def from_query(cls, query: Mapping[str, str], prefix: str = "") -> LabSettings:
        """Read the settings from URL parameters.

        Raises:
            ConfigError: A setting is invalid.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            text = query.get(prefix + field.name)
            if text is not None:
                values[field.name] = _read(prefix + field.name, text, getattr(cls, field.name))
        settings = cls(**values)
        settings.config()
        return settings


def explain_batch(batch: LabBatch, settings: LabSettings | None = None, **changes: Any) -> Explanation:
    """Explain the loss on a batch under settings of the lab, by default its initial ones, and changes to them."""
    return explain(
        batch.queries,
        batch.documents,
        batch.labels,
        config=replace(settings or LabSettings(), **changes).config(),
        query_ids=batch.query_ids,
        document_ids=batch.document_ids,
        guide=batch.guide,
    )


def _format(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(int(value)) if isinstance(value, bool) else f"{value:.4g}" if isinstance(value, float) else str(value)


def _read(name: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text not in ("0", "1"):
            raise ConfigError(f"{name} is {text[:40]!r} in the link; it must be 0 or 1")
        return text == "1"
    if isinstance(default, float):
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{name} is {text[:40]!r} in the link; it must be a number") from None
    return tuple(text.split(",")) if isinstance(default, tuple) else text
