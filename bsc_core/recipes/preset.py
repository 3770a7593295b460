"""What a starting point of the New run page is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A named set of config sections without `data`. `when` says in one sentence which task it is for.

    sweep: lists of values by key, for a preset that is several runs.
    """

    title: str
    when: str
    values: dict[str, Any]
    sweep: dict[str, tuple[Any, ...]] = field(default_factory=dict)
