"""Scale of the value axis of line charts."""

from collections.abc import Iterable

import altair as alt

ROUNDING = 1e-6  # relative difference up to which values are equal
MARGIN = 0.1  # of the range around equal values, relative to them


def value_scale(values: Iterable[float | None]) -> alt.Scale:
    """Return a linear scale for values. Equal values get a range around them, else the axis would have a single tick.

    The range around values from -1 to 1, such as metrics, remains within -1 and 1. Missing values are ignored.
    """
    known = [float(value) for value in values if value is not None]
    if not known or max(known) - min(known) > ROUNDING * max(map(abs, known)):
        return alt.Scale(zero=False, nice=True)
    value = known[0]
    low, high = (value - MARGIN * abs(value), value + MARGIN * abs(value)) if value else (0.0, 1.0)
    if abs(value) <= 1:
        low, high = max(low, -1.0), min(high, 1.0)
    return alt.Scale(domain=[low, high], zero=False, nice=True)
