"""Figures of the lessons: metrics over a setting, shares of a gradient, and cosine similarities by class or kind."""

# N rows, S repetitions of a measurement, such as training seeds

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bsc_core.figures import theme

METRIC_COLORS = theme.WITHOUT_MEANING
"""Colors of metrics and queries that are not in PAIR_COLORS."""
PAIR_COLORS = {"positive": theme.POSITIVE, "false negative": theme.FALSE_NEGATIVE}
NEGATIVE_COLORS = (theme.FALSE_NEGATIVE, theme.HARD_NEGATIVE, theme.REFERENCE)
CLASS_COLORS = {"entailment": theme.POSITIVE, "neutral": theme.REFERENCE, "contradiction": theme.HARD_NEGATIVE}
MAX_MARKED = 30  # points up to which lines have markers
SYMBOL = 5  # width in characters of a symbol of a legend
LEGEND, NARROW_LEGEND = 42, 31  # width in characters of a row of a legend; narrow: of a figure next to another
MAX_COLUMNS = 3  # of a legend
MANY = 400  # values above which marks are thin, so that they do not cover each other
MAX_TICKS = 10  # values of a logarithmic setting up to which each has a tick


def metric_table(setting: Sequence[float], metrics: Mapping[str, Sequence[float | Sequence[float]]]) -> pd.DataFrame:
    """Return one row per metric and value of a setting, with columns setting, metric, value, low and high.

    Args:
        setting: Values of the setting.
        metrics: Metric name to its values. For each value of the setting one number, or the numbers of S repetitions;
            `value` is their mean, `low` and `high` their smallest and largest.
    """
    rows = [
        {"setting": one, "metric": name, "value": np.mean(value), "low": np.min(value), "high": np.max(value)}
        for name, values in metrics.items()
        for one, value in zip(setting, values, strict=True)
    ]
    return pd.DataFrame(rows)


def metrics_figure(
    table: pd.DataFrame,
    selected: float | None,
    *,
    title: str,
    axis: str,
    value: str,
    value_format: str = "~g",
    lowest: float = 0.0,
    baseline: tuple[str, Sequence[float]] | None = None,
    logarithmic: bool = False,
    height: int = 280,
    together: str | None = None,
    single: tuple[str, str] | None = None,
    narrow: bool = False,
) -> alt.LayerChart:
    """Plot metrics (output of `metric_table`) over a setting, with a vertical rule at its selected value.

    Args:
        table: Output of `metric_table`.
        selected: Value of the setting at which the rule is drawn; None: no rule.
        title: Title of the figure.
        axis: Title of the x-axis, the setting.
        value: Title of the y-axis.
        value_format: Number format of the y-axis, such as "%".
        lowest: Value that the y-axis contains; infinity for none.
        baseline: Name in the legend of a dashed gray line, and its value for each value of the setting.
        logarithmic: Whether the x-axis is logarithmic.
        height: Height in pixels.
        together: Name in the legend of all metrics, drawn in one color; None gives each its own name and color.
        single: Metric that is not drawn together with the others, and its name in the legend.
        narrow: Whether the figure is next to another, so that the rows of its legend are shorter.
    """
    scale = alt.Scale(type="log" if logarithmic else "linear", nice=False)
    settings = list(dict.fromkeys(table["setting"]))
    table = table.assign(series=table["metric"] if together is None else together)
    if single is not None:
        table.loc[table["metric"] == single[0], "series"] = single[1]
    ticks = {}
    if logarithmic and len(settings) <= MAX_TICKS:
        ticks = {"axis": alt.Axis(values=settings, format="~g")}
    elif logarithmic:
        decades = [step * 10.0**power for power in range(-4, 5) for step in (1, 2, 5)]
        ticks = {"axis": alt.Axis(values=[one for one in decades if settings[0] <= one <= settings[-1]], format="~g")}
    elif all(float(one).is_integer() for one in settings):
        ticks = {"axis": alt.Axis(tickMinStep=1)}
    x = alt.X("setting:Q", title=axis, scale=scale, **ticks)
    least = float(min(table["low"].min(), *(baseline[1] if baseline else []), lowest))
    most = {"domainMax": 1.0} if value_format == "%" else {}
    y_axis = alt.Axis(format=value_format, tickCount=3 if narrow else 5)  # a legend with more rows is higher
    base = alt.Chart(table).encode(
        x=x,
        y=alt.Y("value:Q", title=value, axis=y_axis, scale=alt.Scale(domainMin=least, **most)),
        tooltip=[alt.Tooltip("metric:N"), alt.Tooltip("setting:Q", title=axis), alt.Tooltip("value:Q", format=".3f")],
    )
    names = list(dict.fromkeys(table["metric"])) if together is None else [together]
    if single is not None:
        names = [single[1], *names]
    colors = [
        PAIR_COLORS.get(name, color) for name, color in zip(names, theme.cycle(METRIC_COLORS, len(names)), strict=True)
    ]
    if baseline is not None:
        names, colors = [*names, baseline[0]], [*colors, theme.REFERENCE]
    columns = legend_columns(names, NARROW_LEGEND if narrow else LEGEND)
    legend = alt.Legend(
        orient="top", title=None, symbolType="stroke", symbolOpacity=1, symbolSize=500, labelLimit=0, columns=columns
    )
    channels = theme.series("series", names, colors, legend)
    layers: list[alt.Chart] = []
    if (table["low"] < table["high"]).any():
        band = alt.Chart(table).mark_area(opacity=0.2).encode(x=x, y=alt.Y("low:Q", title=value), y2=alt.Y2("high:Q"))
        layers.append(band.encode(color=channels["color"]))
    layers.append(base.mark_line(strokeWidth=2.5).encode(**channels, detail=alt.Detail("metric:N")))
    if selected is not None:
        at = base.transform_filter(alt.datum.setting == selected)
        layers.append(at.mark_point(filled=True, size=140, opacity=1).encode(color=channels["color"]))
    if len(settings) <= MAX_MARKED:
        layers.append(base.mark_point(filled=True, size=45).encode(color=channels["color"]))
    if baseline is not None:
        name, values = baseline
        points = pd.DataFrame({"setting": settings, "value": values, "metric": name, "series": name})
        line = alt.Chart(points).encode(
            x=x,
            y=alt.Y("value:Q", title=value),
            tooltip=[alt.Tooltip("metric:N"), alt.Tooltip("value:Q", format=".3f")],
        )
        layers.append(line.mark_line(strokeWidth=2).encode(**channels))
    if selected is not None:
        rule = alt.Chart(pd.DataFrame({"setting": [selected]})).mark_rule(strokeWidth=2, color=theme.REFERENCE)
        layers.append(rule.encode(x=alt.X("setting:Q", scale=scale)))
    return alt.layer(*layers).properties(title=title, height=height)


def legend_columns(names: Sequence[str], width: int) -> int:
    """Return the number of columns of a legend whose rows are at most `width` characters wide.

    Names fill the rows from left to right; a column is as wide as its longest name.
    """

    def row(columns: int) -> int:
        return sum(SYMBOL + max(map(len, names[start::columns])) for start in range(columns))

    return next((one for one in range(min(MAX_COLUMNS, len(names)), 1, -1) if row(one) <= width), 1)


def shares_figure(
    names: Sequence[str],
    shares: NDArray[np.floating],
    *,
    title: str,
    axis: str,
    height: int = 280,
    colors: Mapping[str, str] | None = None,
) -> alt.Chart:
    """Plot shares (N,) in [0, 1] as bars in the given order, each with its percentage.

    colors: color of each name; None for bars in the color of hard negatives.
    """
    x = alt.X("share:Q", title=axis, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    texts, of_name = [f"{share:.0%}" for share in shares], colors or {}
    return _bars(names, shares, texts, x, title, height, [of_name.get(name, theme.HARD_NEGATIVE) for name in names])


def sums_figure(names: Sequence[str], sums: Sequence[float], *, title: str, axis: str, height: int = 120) -> alt.Chart:
    """Plot sums (N,) as bars in the given order, each with its value."""
    x = alt.X("share:Q", title=axis)
    return _bars(names, sums, [f"{one:.2f}" for one in sums], x, title, height, [theme.SKY] * len(names))


def _bars(
    names: Sequence[str],
    values: Sequence[float] | NDArray[np.floating],
    texts: list[str],
    x: alt.X,
    title: str,
    height: int,
    colors: list[str],
) -> alt.Chart:
    table = pd.DataFrame({"name": list(names), "share": values, "text": texts})
    base = alt.Chart(table).encode(y=alt.Y("name:N", title=None, sort=list(names), axis=alt.Axis(labelLimit=420)), x=x)
    scale = alt.Scale(domain=list(names), range=colors)
    bars = base.mark_bar().encode(color=alt.Color("name:N", scale=scale, legend=None))
    labels = base.mark_text(align="left", dx=4, color=theme.REFERENCE).encode(text=alt.Text("text:N"))
    return alt.layer(bars, labels).properties(title=title, height=height)


def classes_figure(
    cosines: NDArray[np.floating],
    classes: NDArray[np.integer],
    names: Sequence[str],
    *,
    title: str,
    before: Sequence[float] = (),
    height: int = 280,
) -> alt.LayerChart:
    """Plot the cosine (N,) of premise and hypothesis by class (N,), an index into `names`, with each class mean.

    before: mean of each class before training, as a diamond.
    """
    table = pd.DataFrame({"cosine": cosines, "class": [names[number] for number in classes]})
    colors = alt.Scale(domain=list(names), range=[CLASS_COLORS.get(name, theme.QUERY) for name in names])
    base = alt.Chart(table).encode(
        y=alt.Y("class:N", title=None, sort=list(names)), color=alt.Color("class:N", scale=colors, legend=None)
    )
    axis = "cosine of premise and hypothesis"
    cosine = alt.X("cosine:Q", title=axis, scale=alt.Scale(domain=[-1, 1]))
    points = base.mark_point(size=70, opacity=0.9).encode(x=cosine, tooltip=[alt.Tooltip("cosine:Q", format=".3f")])
    means = base.mark_tick(thickness=4, size=44).encode(x=alt.X("mean(cosine):Q", title=axis))
    layers = [points, means]
    if before:
        earlier = base.properties(data=pd.DataFrame({"cosine": before, "class": list(names)}))
        layers.append(
            earlier.mark_point(shape="diamond", filled=True, size=170, opacity=1).encode(
                x=cosine, tooltip=[alt.Tooltip("cosine:Q", title="mean before training", format=".3f")]
            )
        )
    return alt.layer(*layers).properties(title=title, height=height)


def grades_figure(
    grades: NDArray[np.floating], cosines: NDArray[np.floating], *, title: str, height: int = 280
) -> alt.LayerChart:
    """Plot the cosine (N,) of each pair over its grade (N,), and the line on which both are equal."""
    x = alt.X("grade:Q", title="grade of the pair", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("cosine:Q", title="cosine", scale=alt.Scale(domain=[-1, 1]))
    points = alt.Chart(pd.DataFrame({"grade": grades, "cosine": cosines})).mark_point(size=60, opacity=0.9)
    points = points.encode(x=x, y=y, color=alt.value(theme.QUERY), tooltip=[alt.Tooltip("cosine:Q", format=".3f")])
    equal = alt.Chart(pd.DataFrame({"grade": [0.0, 1.0], "cosine": [0.0, 1.0]}))
    line = equal.mark_line(color=theme.REFERENCE, strokeDash=[5, 4]).encode(x=x, y=y)
    return alt.layer(line, points).properties(title=title, height=height)


def limit_figure(
    gaps: Mapping[str, NDArray[np.floating]],
    limit: float,
    *,
    title: str,
    axis: str,
    height: int = 240,
    domain: tuple[float, float] | None = None,
    colors: Sequence[str] = NEGATIVE_COLORS,
) -> alt.LayerChart:
    """Plot the values of up to three kinds as ticks, with the range below the limit shaded.

    domain: range of the x-axis; None for that of the values.
    """
    rows = [{"kind": kind, "gap": float(gap)} for kind, values in gaps.items() for gap in values]
    table, names = pd.DataFrame(rows), list(gaps)
    least, most = domain or (float(table["gap"].min()) - 0.1, float(table["gap"].max()) + 0.05)
    x = alt.X("gap:Q", title=axis, scale=alt.Scale(domain=[least, most], nice=False))
    scale = alt.Scale(domain=names, range=list(colors[: len(names)]))
    edges = pd.DataFrame({"gap": [min(limit, most)], "start": [least]})
    removed = alt.Chart(edges).mark_rect(color=theme.REFERENCE, opacity=0.15).encode(x=x, x2=alt.X2("start:Q"))
    rule = alt.Chart(edges).mark_rule(color=theme.REFERENCE, strokeWidth=2).encode(x=x)
    ticks = (
        alt.Chart(table)
        .mark_tick(
            size=34, **({"thickness": 2.5, "opacity": 1} if len(table) <= MANY else {"thickness": 1, "opacity": 0.4})
        )
        .encode(
            x=x,
            y=alt.Y("kind:N", title=None, sort=names, axis=alt.Axis(labelLimit=320)),
            color=alt.Color("kind:N", scale=scale, legend=None),
            tooltip=[alt.Tooltip("kind:N"), alt.Tooltip("gap:Q", title=axis, format=".3f")],
        )
    )
    return alt.layer(removed, ticks, rule).properties(title=title, height=height)
