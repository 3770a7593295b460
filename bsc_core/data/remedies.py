"""What an audit's findings can be answered with: functions that drop the rows at fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np
import numpy.typing as npt

from bsc_core.config import Remedy
from bsc_core.data.faulty_rows import BETWEEN, WITHIN, part_pairs
from bsc_core.data.pairs import PairDataset
from bsc_core.data.parts import ExperimentData, share_texts
from bsc_core.errors import DataError

Mended = tuple[ExperimentData, int]


def _drop(data: ExperimentData, remedy: str) -> Mended:
    """The data without the rows that a remedy drops, and how many they were.

    Repeated until nothing is left to drop, so that an audit of the outcome no longer finds what the remedy answers.
    Raises DataError when a part would be left without rows.
    """
    dropped = 0
    while True:
        data, rows = _drop_once(data, remedy)
        dropped += rows
        if not rows or remedy != "drop_near_repeats":  # the other rules find all their rows at once
            return data, dropped


def _drop_once(data: ExperimentData, remedy: str) -> Mended:
    parts = data.parts
    dropped = {name: np.zeros(len(part), dtype=bool) for name, part in parts.items()}
    if remedy in WITHIN:
        for name, part in parts.items():
            dropped[name][WITHIN[remedy](part)] = True
    if remedy in BETWEEN:
        for earlier, later in part_pairs(data):
            dropped[earlier][BETWEEN[remedy](parts[earlier], parts[later])] = True
    kept = {name: _without(part, dropped[name], remedy, name) for name, part in parts.items()}
    rows = sum(int(mask.sum()) for mask in dropped.values())
    if not rows:
        return data, 0
    own = share_texts(list(kept.values()), data.corpus)
    return replace(data, train=own.train, dev=own.dev, test=own.test, corpus=own.corpus), rows


def _without(part: PairDataset, dropped: npt.NDArray[np.bool_], remedy: str, name: str) -> PairDataset:
    if not dropped.any():
        return part
    if dropped.all():
        raise DataError(
            f"data.remedies: {remedy} would drop all {len(part):,} rows of {name} ({part.report.source}); "
            "leave it out, or give other data"
        )
    return part.take(np.flatnonzero(~dropped))


REMEDIES: dict[Remedy, Callable[[ExperimentData], Mended]] = {
    remedy: partial(_drop, remedy=remedy) for remedy in get_args(Remedy)
}
"""Each remedy as a function from the data to the data without the rows at fault and the number of rows dropped.

The given data are unchanged; the texts that only dropped rows had are left out.
"""
