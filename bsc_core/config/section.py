"""What every section of a config is made from."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A frozen section that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)


class LossSection(Section):
    """What the sections of all losses share."""

    needs: ClassVar[frozenset[str]] = frozenset()
    takes_negatives: ClassVar[bool] = False
