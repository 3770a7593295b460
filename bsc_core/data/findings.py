"""One thing that an audit found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from bsc_core.config import Remedy
from bsc_core.data.texts import Ids

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing found.

    rows: int32 row numbers of the part named by `part` ("train", "dev" or "test"); empty when it concerns them all.
    remedy: what to do about it, as a sentence; remedy_flag: the entry of `data.remedies` that does it, if one does.
    """

    severity: Severity
    title: str
    detail: str
    rows: Ids
    remedy: str
    part: str = "train"
    remedy_flag: Remedy | None = None


def row_numbers(rows: npt.ArrayLike) -> Ids:
    """Row numbers as a finding holds them."""
    return np.asarray(rows, dtype=np.int32)


def count(number: int, one: str) -> str:
    """A number of things, such as `1 row` or `1,204 rows`."""
    return f"{number:,} {one if number == 1 else one + 's'}"
