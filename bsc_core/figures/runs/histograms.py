"""Small histograms of the numeric columns of a table of runs, of which a range of bins can be selected."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

BINS = 14
LOGARITHMIC_FROM = 20  # ratio of the largest to the smallest value from which bins have equal ratios
TOLERANCE = 1e-5  # relative; a range is rounded in the URL

Range = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Histogram:
    """Values of one column by run, and the bin of each."""

    name: str
    values: Mapping[str, float]  # at least two distinct ones
    bins: Mapping[str, int]  # 0 to BINS - 1
    selected: Range | None = None

    def contains(self, run: str) -> bool:
        """Whether a run is in the selected range; without one, every run is."""
        return self.selected is None or (run in self.values and in_range(self.values[run], self.selected))

    def range_of(self, first: int, last: int) -> Range | None:
        """Return the lowest and the highest value in the bins `first` to `last`; None if those are all values."""
        inside = [value for run, value in self.values.items() if first <= self.bins[run] <= last]
        if not inside or len(inside) == len(self.values):
            return None
        return min(inside), max(inside)

    def canvas_data(self, shown: Sequence[str]) -> dict[str, Any]:
        """Return the data of the browser component: counts of all and of the `shown` runs, ends and selected bins."""
        chosen = [self.bins[run] for run in self.values if self.contains(run)] if self.selected else []
        inside = set(shown)
        return {
            "name": self.name,
            "counts": _counts(self.bins.values()),
            "shown": _counts(number for run, number in self.bins.items() if run in inside),
            "ends": [[f"{value:.4g}" for value in ends] for ends in self._bin_ends()],
            "selected": [min(chosen), max(chosen)] if chosen else None,
            "none": self.selected is not None and not chosen,
        }

    def _bin_ends(self) -> list[Range]:
        """Return the smallest and the largest value of each bin; of an empty bin, those of the bin before."""
        ends: list[Range] = []
        for number in range(BINS):
            inside = [value for run, value in self.values.items() if self.bins[run] == number]
            ends.append((min(inside), max(inside)) if inside else ends[-1])
        return ends


def histogram(
    name: str, values: Mapping[str, float], selected: Range | None = None, *, logarithmic: bool = True
) -> Histogram | None:
    """Return the histogram of the finite values by run; None if they are all equal.

    Args:
        name: Name of the column.
        values: Its value for each run that has one.
        selected: The selected range.
        logarithmic: Whether bins may have equal ratios instead of equal widths.
    """
    finite = {run: value for run, value in values.items() if math.isfinite(value)}
    if len(set(finite.values())) < 2:
        return None
    numbers = np.array(list(finite.values()))
    if logarithmic and numbers.min() > 0 and numbers.max() / numbers.min() >= LOGARITHMIC_FROM:
        numbers = np.log(numbers)
    shares = (numbers - numbers.min()) / (numbers.max() - numbers.min())
    bins = np.minimum((shares * BINS).astype(int), BINS - 1)
    return Histogram(name, finite, dict(zip(finite, bins.tolist(), strict=True)), selected)


def in_range(value: float, ends: Range) -> bool:
    """Whether a value is in a range, with a tolerance."""
    low, high = ends
    return low - TOLERANCE * abs(low) <= value <= high + TOLERANCE * abs(high)


def write_ranges(ranges: Mapping[str, Range]) -> str:
    """Return `temperature:0.02:0.1,mrr:0.5:0.7`."""
    return ",".join(f"{name}:{low:.6g}:{high:.6g}" for name, (low, high) in ranges.items())


def read_ranges(text: str) -> dict[str, Range] | None:
    """Return the ranges of `write_ranges`; None if the text is not one."""
    ranges: dict[str, Range] = {}
    for part in text.split(",") if text else []:
        name, *ends = part.rsplit(":", 2)
        try:
            low, high = map(float, ends)
        except ValueError:
            return None
        if not (name and math.isfinite(low) and math.isfinite(high) and low <= high):
            return None
        ranges[name] = (low, high)
    return ranges


def _counts(bins: Iterable[int]) -> list[int]:
    """Return how often each bin occurs, (BINS,)."""
    counted: list[int] = np.bincount(np.fromiter(bins, dtype=np.int64), minlength=BINS).tolist()
    return counted
