"""What a plan is made of, and how plans move from epoch to epoch."""

# M rows of a plan

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bsc_core.figures import theme
from bsc_core.figures.hardness import STRATEGY_COLOURS

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

HEIGHT = 250
LARGEST_SHOWN = 12
OTHERS = (theme.DOCUMENT, theme.POSITIVE)  # for what is no strategy, such as a run's own plans


def group_size_table(sizes: Mapping[str, Mapping[int, int]]) -> pd.DataFrame:
    """Shares of the rows by the size of their group. sizes: strategy -> rows in a group -> number of such groups.

    Columns: strategy, size (past LARGEST_SHOWN as one), groups, share (of the strategy's rows; sums to 1).
    """
    import pandas as pd

    lines = []
    for strategy, groups in sizes.items():
        rows = max(1, sum(size * count for size, count in groups.items()))
        for size, count in sorted(groups.items()):
            name = str(size) if size <= LARGEST_SHOWN else f"> {LARGEST_SHOWN}"
            lines.append({"strategy": strategy, "size": name, "groups": count, "share": size * count / rows})
    table = pd.DataFrame(lines, columns=["strategy", "size", "groups", "share"])
    return table.groupby(["strategy", "size"], sort=False, as_index=False).sum()


def group_size_figure(table: pd.DataFrame) -> alt.Chart:
    """Bars of `group_size_table`, those of the strategies side by side."""
    import altair as alt

    names = list(dict.fromkeys(table["strategy"]))
    order = [str(size) for size in range(1, LARGEST_SHOWN + 1)] + [f"> {LARGEST_SHOWN}"]
    return (
        alt.Chart(table)
        .mark_bar()
        .encode(
            x=alt.X("size:O", title="rows in the group", sort=order, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("strategy:N", sort=names),
            y=alt.Y("share:Q", title="share of the rows", axis=alt.Axis(format="%", tickCount=4)),
            color=_colours("strategy", names),
            tooltip=["strategy:N", "size:O", alt.Tooltip("groups:Q", format=","), alt.Tooltip("share:Q", format=".1%")],
        )
        .properties(height=HEIGHT)
    )


def epoch_figure(table: pd.DataFrame, *, value: str, percent: bool) -> alt.Chart:
    """A line for each series over the epochs. table: series, epoch (from 1), value, nan where it is not defined.

    value: the axis' title. percent: written as a percentage.
    """
    import altair as alt

    names = list(dict.fromkeys(table["series"]))
    dashes = [list(theme.DASHES[number % len(theme.DASHES)]) for number in range(len(names))]
    axis = alt.Axis(format="%" if percent else "~g", tickCount=5)
    return (
        alt.Chart(table[table["value"].notna()])
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=45, filled=True))
        .encode(
            x=alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1, format=",d", grid=False)),
            y=alt.Y("value:Q", title=value, axis=axis, scale=alt.Scale(zero=False, nice=True)),
            color=_colours("series", names),
            strokeDash=alt.StrokeDash("series:N", scale=alt.Scale(domain=names, range=dashes), legend=_legend()),
            tooltip=["series:N", "epoch:Q", alt.Tooltip("value:Q", title=value, format=".1%" if percent else ",.4~g")],
        )
        .properties(height=HEIGHT)
    )


def _colours(field: str, names: Sequence[str]) -> alt.Color:
    import altair as alt

    strange = [name for name in names if name not in STRATEGY_COLOURS]
    others = {name: OTHERS[place % len(OTHERS)] for place, name in enumerate(strange)}
    colours = [STRATEGY_COLOURS.get(name) or others[name] for name in names]
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=list(names), range=colours), legend=_legend())


def _legend() -> alt.Legend:
    import altair as alt

    return alt.Legend(orient="top", title=None, labelLimit=260, columns=5)
