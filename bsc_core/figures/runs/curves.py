"""Training curves and dev metrics of one or more settings; a setting is a run, or runs with different seeds.

Rows are the metric lines of a run: {"kind": "step", "step", "epoch", "loss", "temperature", ...} and
{"kind": "evaluation", "step", "epoch", "dev": {...}}. Several seeds are shown as their mean, with a band from
minimum to maximum. Each setting has a color and a dash pattern.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from bsc_core import formatting
from bsc_core.figures import axes, theme

MetricRows = Sequence[Mapping[str, Any]]
Points = list[dict[str, Any]]
Settings = Mapping[str, Sequence[MetricRows]]
"""Setting name to the metric rows of each of its runs."""

MAX_POINTS = 512
ROUNDING = 1e-6
HEIGHT = 260
LABEL = "datum.value && abs(datum.value) < 0.001 ? format(datum.value, '.3~e') : format(datum.value, ',.4~r')"


class Field(NamedTuple):
    """A value logged at every step.

    Its noun phrase, axis title, divisor from the logged to the displayed unit, and name of the unit.
    """

    noun: str
    axis: str
    unit: float = 1.0
    unit_name: str = ""


STEP_FIELDS: dict[str, Field] = {
    "loss": Field("The loss", "loss"),
    "temperature": Field("The temperature", "temperature τ"),
    "learning_rate": Field("The learning rate", "learning rate"),
    "grad_norm": Field("The gradient norm", "norm before clipping"),
    "tokens_per_second": Field("The speed", "tokens per second", unit_name=" tokens/s"),
    "hardness": Field("The hardness (hardest negative \N{MINUS SIGN} positive)", "cosine difference"),
    "memory_bytes": Field("The peak memory", "MiB", float(2**20), " MiB"),
}


class CurveView(NamedTuple):
    """How curves are displayed.

    smoothing: weight of the previous values in the exponential moving average, in [0, 1); 0 shows the values.
    log: whether the y-axis is logarithmic; curves with values <= 0 stay linear.
    by_time: whether the x-axis is the training time in seconds, where it was logged, instead of steps or epochs.
    """

    smoothing: float = 0.0
    log: bool = False
    by_time: bool = False


MEAN_STEPS = 20  # steps from which the title of a noisy curve names a trend
NOISY = ("loss", "grad_norm", "tokens_per_second", "hardness")  # fields whose values differ between batches
SECONDS = "seconds"
AXES = {SECONDS: "training time (s)"}
DEFAULT_VIEW = CurveView()


class BestAndLast(NamedTuple):
    """Highest and last value of a metric after training started; epochs count from 1, fractions are within one."""

    best: float
    best_epoch: float
    last: float
    last_epoch: float


def series(rows: MetricRows, field: str, *, max_points: int = MAX_POINTS, unit: float = 1.0) -> Points:
    """Return the values of a field by step, divided by `unit` and averaged over bins beyond `max_points`.

    The bin width is a power of two, so that a growing curve does not flicker. Missing values are omitted.

    Returns:
        Points with keys step, value and, where the training time was logged, seconds.
    """
    result = [row for row in rows if row.get("kind") == "step" and isinstance(row.get(field), int | float)]
    width = 1
    while len(result) > max_points * width:
        width *= 2
    bins = [result[start : start + width] for start in range(0, len(result), width)]
    return [
        {"step": int(part[-1]["step"]), "value": sum(float(row[field]) for row in part) / len(part) / unit}
        | ({} if part[-1].get("elapsed_seconds") is None else {SECONDS: float(part[-1]["elapsed_seconds"])})
        for part in bins
    ]


def evaluations(rows: MetricRows, metric: str, *, split: str = "dev") -> Points:
    """Return a metric after each epoch as points with keys step, epoch, seconds (of training) and value.

    Undefined values are omitted.
    """
    points, seconds = [], 0.0
    for row in rows:
        if row.get("kind") != "evaluation":
            continue
        seconds += row.get("train_seconds") or 0.0  # of the epoch
        values = row.get(split)
        if isinstance(values, Mapping) and values.get(metric) is not None:
            epoch = row.get("epoch", 0)
            point = {"step": row.get("step", epoch), "epoch": epoch, SECONDS: seconds, "value": values[metric]}
            points.append(point)
    return points


def logged_fields(rows: MetricRows) -> list[str]:
    """Return the names of STEP_FIELDS that are present in the rows, in the order of STEP_FIELDS."""
    names = {name for row in rows if row.get("kind") == "step" for name, value in row.items() if value is not None}
    return [name for name in STEP_FIELDS if name in names]


def mean_curve(curves: Sequence[Points], *, across: str) -> Points:
    """Average curves at the values of `across` that all of them share; several curves get keys low and high.

    The training time is averaged too, if all points have one.
    """
    curves = [curve for curve in curves if curve]
    if len(curves) < 2:
        return curves[0] if curves else []
    by_x = [{point[across]: point["value"] for point in curve} for curve in curves]
    values = {x: [curve[x] for curve in by_x] for x in sorted(set(by_x[0]).intersection(*by_x[1:]))}
    mean = [{across: x, "value": float(np.mean(y)), "low": min(y), "high": max(y)} for x, y in values.items()]
    if across != SECONDS and all(SECONDS in point for curve in curves for point in curve):
        seconds = [{point[across]: point[SECONDS] for point in curve} for curve in curves]
        return [{**point, SECONDS: float(np.mean([one[point[across]] for one in seconds]))} for point in mean]
    return mean


def smooth(curve: Points, weight: float) -> Points:
    """Return a curve whose values are exponential moving averages, with the values before as key raw.

    s_t = weight s_(t-1) + (1 - weight) y_t with s_0 = 0, divided by 1 - weight^t to correct the start (as in
    TensorBoard).

    Args:
        curve: points in order.
        weight: in [0, 1); 0 returns the curve unchanged.
    """
    if not weight:
        return curve
    average, result = 0.0, []
    for number, point in enumerate(curve, 1):
        average = weight * average + (1 - weight) * point["value"]
        result.append({**point, "value": average / (1 - weight**number), "raw": point["value"]})
    return result


def best_and_last(curve: Points) -> BestAndLast | None:
    """Return the best and last value of a curve by epoch; None without an epoch after the untrained encoder."""
    trained = [point for point in curve if point["epoch"] > 0]
    if not trained:
        return None
    top, end = max(trained, key=lambda point: (point["value"], -point["epoch"])), trained[-1]
    return BestAndLast(top["value"], top["epoch"], end["value"], end["epoch"])


def step_curve(
    settings: Settings, field: str, view: CurveView = DEFAULT_VIEW, *, colors: Sequence[str] = theme.RUNS
) -> alt.LayerChart:
    """Plot a field of STEP_FIELDS for each setting. The title states how a single curve changes.

    Args:
        settings: Setting name to the metric rows of each of its runs.
        field: A key of STEP_FIELDS, such as the loss.
        view: Smoothing and axes.
        colors: One per setting.
    """
    noun, axis, unit, unit_name = STEP_FIELDS[field]
    curves = {
        name: mean_curve([series(rows, field, unit=unit) for rows in runs], across="step")
        for name, runs in settings.items()
    }
    values = [[point["value"] for point in curve] for curve in curves.values()]
    single = values[0] if len(values) == 1 else []
    if len(single) >= MEAN_STEPS and field in NOISY:
        title = _trend_title(noun, single, unit_name)
    elif len(single) > 1 and field == "loss":
        title = f"{noun} is {_format(float(np.mean(single)))} on average over {len(single)} steps"
    else:
        ends = [one[-max(1, len(one) // 5) :] if field in NOISY else one[-1:] for one in values if one]
        of = " on average over the last fifth" if any(len(end) > 1 for end in ends) else ""
        title = _title(noun, curves, f"ends at {_join([float(np.mean(end)) for end in ends])}{of}", unit_name)
    if field in NOISY:  # the others are exact, and a mean of equal values has rounding errors
        curves = {name: smooth(curve, view.smoothing) for name, curve in curves.items()}
    return lines(curves, title=title, value=axis, across=x_key(curves, view, "step"), log_value=view.log, colors=colors)


def metric_curve(
    settings: Settings,
    metric: str,
    view: CurveView = DEFAULT_VIEW,
    *,
    split: str = "dev",
    colors: Sequence[str] = theme.RUNS,
    verdict: str = "",
    interval: tuple[float, float] | None = None,
) -> alt.LayerChart:
    """Plot a metric after each epoch of each setting; epoch 0 is the untrained encoder. It is not smoothed.

    A dashed line continues the value of the untrained encoder if all runs share it. With a single setting, `interval`
    is the confidence interval of the highest value. `verdict`, whether the best model differs from the untrained
    encoder, ends the title. The x-axis has steps if a run was evaluated within an epoch.
    """
    curves = {
        name: mean_curve([evaluations(rows, metric, split=split) for rows in runs], across="epoch")
        for name, runs in settings.items()
    }
    results = [result for curve in curves.values() if (result := best_and_last(curve)) is not None]
    untrained = _shared_untrained([curve[0] for curve in curves.values() if curve])
    summary = "has no trained epoch yet"
    if results:
        start = "" if untrained is None else f", {_format(untrained)} before training"
        summary = f"is {_join([result.best for result in results])} after the best epoch{start}"
    title = _title(f"{formatting.metric_name(metric)} on {split}", curves, summary)
    if len(curves) == len(results) == 1 and results[0].best > results[0].last:
        title += f"; the best model, after epoch {results[0].best_epoch}, has {_format(results[0].best)}"
    title += f" (against the start: {verdict})" if verdict else ""
    is_within = any(point["epoch"] % 1 for curve in curves.values() for point in curve)
    across = x_key(curves, view, "step" if is_within else "epoch")
    value = f"{formatting.metric_name(metric)} ({split})"
    bar = None
    if interval and len(curves) == len(results) == 1:
        (curve,) = curves.values()
        best = next(point for point in curve if point["epoch"] == results[0].best_epoch)
        bar = (best[across], *interval)
    return lines(
        curves,
        bar=bar,
        title=title,
        value=value,
        across=across,
        points=True,
        baseline=untrained,
        log_value=view.log,
        colors=colors,
    )


def _shared_untrained(first: Points) -> float | None:
    """Return the value of the untrained encoder if the first points of all curves, and all seeds, have it; else None.

    Encoders that are equal can differ by rounding errors.
    """
    values = [float(point[key]) for point in first for key in ("value", "low", "high") if key in point]
    if not first or any(point["epoch"] != 0 for point in first) or max(values) - min(values) > ROUNDING:
        return None
    return values[0]


def x_key(curves: Mapping[str, Points], view: CurveView, default: str) -> str:
    """Return the key of the x-axis: the training time if it is requested and every point has one."""
    known = all(SECONDS in point for curve in curves.values() for point in curve)
    return SECONDS if view.by_time and known else default


def dimension_curve(
    settings: Mapping[str, Sequence[Mapping[int, float]]],
    metric: str,
    *,
    split: str = "dev",
    colors: Sequence[str] = theme.RUNS,
) -> alt.LayerChart:
    """Plot a metric of vectors truncated to d coordinates.

    Args:
        settings: Setting name to the values by d of each of its runs.
        metric: Name of the metric.
        split: Split on which the metric was computed, for the titles.
        colors: One per setting.
    """
    curves = {
        name: mean_curve(
            [[{"dimensions": one, "value": value} for one, value in values.items()] for values in runs],
            across="dimensions",
        )
        for name, runs in settings.items()
    }
    name = formatting.metric_name(metric)
    title, value = f"{name} on {split} of truncated vectors", f"{name} ({split})"
    return lines(curves, title=title, value=value, across="dimensions", points=True, log=True, colors=colors)


def merge_curve(points: Sequence[Mapping[str, Any]], metric: str, alpha: float) -> alt.LayerChart:
    """Plot the dev metric and the general score of models merged with their start, with a rule at `alpha`.

    Args:
        points: One per merged model, with keys alpha, dev and general_score, which may be None.
        metric: Name of the dev metric.
        alpha: Weight of the trained model at which the rule is drawn, in [0, 1].
    """
    names = {f"{formatting.metric_name(metric)} on dev": "dev", "general score": "general_score"}
    series = {
        name: [{"alpha": point["alpha"], "value": point[key]} for point in points if point.get(key) is not None]
        for name, key in names.items()
    }
    return lines(
        {name: line for name, line in series.items() if line},
        title="Target and general score by alpha: 0 is the start, 1 the trained model",
        value="score",
        across="alpha",
        points=True,
        x_format=".1f",
        rule=alpha,
    )


def lines(
    curves: Mapping[str, Points],
    *,
    title: str,
    value: str,
    across: str = "step",
    points: bool = False,
    log: bool = False,
    x_format: str = ",d",
    rule: float | None = None,
    baseline: float | None = None,
    bar: tuple[float, float, float] | None = None,
    log_value: bool = False,
    colors: Sequence[str] = theme.RUNS,
) -> alt.LayerChart:
    """Plot curves, one line per name.

    Args:
        curves: name to points; points with `low` and `high` also get a band, those with `raw` a faint line.
        title: chart title.
        value: y-axis title.
        across: key of the x values.
        points: whether to mark the points.
        log: whether the x-axis is logarithmic.
        x_format: number format of the x-axis; integers by default.
        rule: x value of a vertical rule; None: no rule.
        baseline: y value of a dashed gray line, of the untrained encoder; None: no line.
        bar: x value, lower and upper end of an interval in the color of the first curve; None: no interval.
        log_value: whether the y-axis is logarithmic, if all values are positive.
        colors: one per curve.
    """
    names = list(curves)
    table = [{"run": name, **point} for name, curve in curves.items() for point in curve]
    legend = alt.Legend(
        orient="bottom",
        title=None,
        columns=1,
        labelLimit=320,
        symbolType="stroke",
        symbolSize=400,
        symbolOpacity=1,  # that of the lines, not of the faint values before smoothing
    )
    channels = theme.series("run", names, colors, legend if len(names) > 1 else None)
    positive = all(point.get(key, 1) > 0 for point in table for key in ("value", "low", "raw"))
    shown = [point.get(key) for point in table for key in ("value", "low", "high", "raw")]
    scale = axes.value_scale([*shown, baseline, *(bar[1:] if bar is not None else ())])
    if log_value and positive and scale.domain is alt.Undefined:
        scale = alt.Scale(type="log", nice=False)
    axis = alt.Axis(labelExpr=LABEL, tickCount=5)
    x_scale = alt.Scale(type="log", base=2, nice=False) if log else alt.Undefined
    if bar is not None:
        x_scale = alt.Scale(nice=False, padding=10)  # else the interval lies on the frame
    step = 1 if x_format == ",d" else alt.Undefined
    base = alt.Chart(alt.Data(values=table)).encode(
        x=alt.X(
            f"{across}:Q",
            title=AXES.get(across, across),
            axis=alt.Axis(tickMinStep=step, format=x_format),
            scale=x_scale,
        ),
        y=alt.Y("value:Q", title=value, axis=axis, scale=scale),
        tooltip=[
            alt.Tooltip("run:N"),
            alt.Tooltip(f"{across}:Q", title=AXES.get(across, across), format=x_format),
            alt.Tooltip("value:Q", title=value, format=".5~g"),
        ],
        **channels,
    )
    few = points or len(table) <= 2 * len(names)
    layers = [base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=45, filled=True) if few else False)]
    single = [name for name, curve in curves.items() if len(curve) == 1]
    if single and not few:  # a line with a single point is invisible without a marker
        filtered = base.transform_filter(alt.FieldOneOfPredicate(field="run", oneOf=single))
        layers.append(filtered.mark_point(size=45, filled=True))
    if any("raw" in point for point in table):
        layers.append(base.mark_line(strokeWidth=1, opacity=0.3).encode(y=alt.Y("raw:Q", title=value)))
    if any("low" in point for point in table):
        fill = alt.Fill("run:N", scale=channels["color"]["scale"], legend=None)
        band = alt.Chart(alt.Data(values=table)).transform_filter("isValid(datum.low)").mark_area(opacity=0.16)
        layers.append(band.encode(x=alt.X(f"{across}:Q"), y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), fill=fill))
    if bar is not None:
        ends = alt.Chart(alt.Data(values=[dict(zip((across, "low", "high"), bar, strict=True))]))
        layers.append(
            ends.mark_rule(color=colors[0], strokeWidth=2).encode(
                x=alt.X(f"{across}:Q"), y=alt.Y("low:Q"), y2=alt.Y2("high:Q")
            )
        )
    if rule is not None:
        mark = alt.Chart(alt.Data(values=[{across: rule}])).mark_rule(color=theme.REFERENCE, strokeDash=[4, 4])
        layers.append(mark.encode(x=alt.X(f"{across}:Q")))
    if baseline is not None:
        dashed = alt.Chart(alt.Data(values=[{"value": baseline, "run": "untrained"}])).mark_rule(
            color=theme.REFERENCE, strokeDash=list(theme.BASELINE_DASH)
        )
        layers.append(
            dashed.encode(y=alt.Y("value:Q"), tooltip=[alt.Tooltip("run:N"), alt.Tooltip("value:Q", format=".5~g")])
        )
    return alt.layer(*layers).properties(title=title, height=HEIGHT + (24 * len(names) if len(names) > 1 else 0))


def _title(noun: str, curves: Mapping[str, Points], summary: str, unit: str = "") -> str:
    """Return the title: the first and the last value of a single curve, or `summary` for several curves.

    A curve rises or falls if all its values are between these two.
    """
    if not any(curves.values()):
        return f"{noun}: no value yet"
    if len(curves) > 1:
        return f"{noun} {summary}{unit}"
    (curve,) = curves.values()
    return _change(noun, [point["value"] for point in curve], unit)


def _change(noun: str, values: Sequence[float], unit: str = "") -> str:
    first, last = _format(values[0]), _format(values[-1])
    if len(values) == 1:
        return f"{noun} is {last}{unit}"
    if {min(values), max(values)} != {values[0], values[-1]}:
        return f"{noun} goes from {first} to {last}{unit}"
    if first == last:
        return f"{noun} stays at {last}{unit}"
    return f"{noun} {'rises' if values[-1] > values[0] else 'falls'} from {first} to {last}{unit}"


def _trend_title(noun: str, values: Sequence[float], unit: str = "") -> str:
    """Return how a value changes from the first to the last fifth of the steps, since single batches differ.

    These are means; there is a trend if they differ by more than twice the standard error of their difference. Without
    one, the first step is compared, which a diverging loss leaves at once.
    """
    fifth = len(values) // 5
    parts = [np.asarray(part, dtype=np.float64) for part in (values[:fifth], values[-fifth:])]
    means = [float(part.mean()) for part in parts]
    if abs(means[1] - means[0]) <= 2 * float(np.sqrt(sum(part.var(ddof=1) / fifth for part in parts))):
        if abs(values[0] - means[1]) > 2 * float(parts[1].std(ddof=1)):  # it changed in a few steps
            change = _change(noun, [values[0], means[1]], unit)
            return f"{change} (first step, mean of the last fifth of the steps)"
        return f"{noun} has no clear trend: {_format(means[0])} at first, {_format(means[1])}{unit} at the end"
    return f"{_change(noun, means, unit)} (means of the first and last fifth of the steps)"


def _join(values: Sequence[float]) -> str:
    return " and ".join(", ".join(map(_format, group)) for group in (values[:-1], values[-1:]) if group)


def _format(value: float) -> str:
    """Format a value: `0.812`, `94.6`, `298`, `12,345`, or `2.5e-5` if it is below 0.001."""
    if abs(value) >= 10:
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"
    return f"{value:.1e}".replace("e-0", "e-") if 0 < abs(value) < 0.001 else f"{value:.3f}"
