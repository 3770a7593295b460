"""Figure of each lesson with its control. The value of the control is in the URL."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core import formatting
from bsc_core.config import BSCLossConfig
from bsc_core.data.schema.classes import NLI
from bsc_core.figures import lessons as figures
from bsc_core.figures.batches import plans as plan_figures
from bsc_core.lab.batch import LabBatch
from bsc_core.lab.lessons import LabLesson, Lesson
from bsc_core.lab.lessons.batches import LOW as LOW_TEMPERATURE
from bsc_core.lab.lessons.batches import (
    SIZES,
    USUAL,
    losses_by_size,
    negative_shares,
    ordered_batch,
    training_batch,
)
from bsc_core.lab.lessons.facts import (
    HARD_LEVEL,
    PRIOR_PAIR,
    SMALL_BATCH,
    STRENGTH,
    SUM,
    WIDE,
    closer_share,
    decimal,
    gradient_mass,
    hard_share,
    spread_query,
    typical_query,
)
from bsc_core.lab.lessons.margins import (
    DISTANCES,
    FARTHEST,
    GRID,
    LENGTH,
    MARGINS,
    active_share,
    margin_batch,
    negative_rows,
    triplet_distances,
    triplet_loss,
)
from bsc_core.lab.lessons.negatives import (
    MASK_MARGINS,
    PRIORS,
    RANKS,
    STRENGTHS,
    cosine_gaps,
    equal_temperature,
    kinds_of_negatives,
    probabilities,
    pulls,
    removed_counts,
    removed_gradient,
    shares_by_rank,
    weighted,
)
from bsc_core.lab.lessons.training import (
    DIMENSIONS,
    MIXES,
    MUS,
    SEEDS,
    TIE,
    class_results,
    graded_results,
    paraphrase_results,
    question_results,
)
from bsc_core.lab.presets import preset_batch, sample_rows, thumbnails
from bsc_core.lab.settings import LabSettings, explain_batch
from pages.ui.components import display, page_layout, url
from pages.ui.components.browser.mount import mount
from pages.ui.loss_lab.browser import lab_component, player
from pages.ui.loss_lab.view import cells

_triplets = mount("bsc_lesson_triplets", "triplets", Path(__file__).with_name("triplets.js"))
VALUE, ROW = "at", "row"
MINUS = "\N{MINUS SIGN}"
BEFORE = "before training"  # the pretrained encoder, in legends
LOCKED = "lessons.locked"  # session key: whether the controls are disabled
PARAMETERS = (VALUE, ROW, *LabSettings.__dataclass_fields__)
"""The URL parameters of a lesson's control, and of the row that it displays."""
LEAST_PROBABILITY = 0.01
LARGE_MARGIN = min(margin for margin in MARGINS if margin > FARTHEST)
TEMPERATURES = tuple(np.round(np.geomspace(0.01, 10, 31), 3).tolist())
LOW, ABOVE = 270, 230  # height in pixels of each of two figures, and of figures above a slider with matrices
VERY_LOW = 190  # height in pixels of a figure above a slider with circles
BARS = 130  # height in pixels of figures with two bars
ORDERS = {"both": "both", "random": "random", "nearest": "nearest"}
TREATMENTS = {"negative": "counts as a negative", "excluded": "is excluded"}


def draw(lesson: Lesson, key: str, *, locked: bool) -> None:
    """Draw the figure and the control of a lesson.

    Args:
        lesson: The lesson.
        key: Start of the session keys.
        locked: Whether the control cannot be used, since it would show the answer before a guess.
    """
    st.session_state[LOCKED] = locked
    key = f"{key}.locked" if locked else key  # after the guess, the controls start at the values of the answer
    if isinstance(lesson, LabLesson):
        _loss_lab(lesson, key)
    else:
        FIGURES[lesson.slug](key)


def _loss_lab(lesson: LabLesson, key: str) -> None:
    """Draw the loss lab with the lesson's controls, unless they are locked, and write changes into the URL."""
    linked = {name: st.query_params[name] for name in lesson.controls if name in st.query_params}
    start = lesson.settings if st.session_state[LOCKED] else lesson.shown
    if linked and (st.session_state.get("lessons.drawn") != lesson.slug or url.is_history_navigation()):
        with display.show_errors(stop=False):
            start = LabSettings(**{**_values(lesson.settings), **_values(LabSettings.from_query(linked), linked)})
    st.session_state["lessons.drawn"] = lesson.slug
    key = f"{key}.{url.revision()}"
    batch = lesson.batch()
    with display.figure_frame(
        "Matrices of this batch",
        name=f"lesson.{lesson.slug}",
        data=lambda: cells(batch, explain_batch(batch, state.settings)),
        key=f"{key}.figure",
    ):
        controls = () if st.session_state[LOCKED] else lesson.controls
        state = lab_component(batch, start, key=key, controls=controls, panels=lesson.panels)
    if st.session_state[LOCKED]:
        return
    changed = {name: text for name, text in state.settings.to_query().items() if name in lesson.controls}
    display.write_url(changed, LabSettings.__dataclass_fields__)


def _values(settings: LabSettings, names: Iterable[str] | None = None) -> dict[str, object]:
    return {name: getattr(settings, name) for name in (names or LabSettings.__dataclass_fields__)}


def _slider(label: str, options: Sequence[float], key: str, start: float) -> float:
    """Draw a slider over the options whose value is in the URL."""
    if key not in st.session_state or url.is_history_navigation():
        known = {f"{option:g}": option for option in options}
        st.session_state[key] = known.get(_linked(VALUE, known), start)
    locked = st.session_state[LOCKED]
    value = float(st.select_slider(label, options, format_func=lambda option: f"{option:g}", key=key, disabled=locked))
    if not locked:
        st.query_params[VALUE] = f"{value:g}"
    return value


def _lab(
    key: str,
    batch: LabBatch,
    settings: LabSettings,
    *,
    panels: Sequence[str],
    name: str = "",
    values: Sequence[float] = (),
    sizes: Sequence[int] = (),
    start: float = 0.0,
    by_logits: bool = False,
) -> float:
    """Draw the loss lab with one slider that its matrices follow in the browser, and return the last value.

    Args:
        key: The widget key.
        batch: The batch.
        settings: The settings; the slider changes one of them.
        panels: The matrices.
        name: The setting that the slider changes; empty for the number of pairs.
        values: The values of the setting, evenly spaced.
        sizes: The numbers of pairs.
        start: Value at first. The value is in the URL.
        by_logits: Whether the gradient is that of the loss of each query with respect to its logits.
    """
    options = values or tuple(map(float, sizes))
    if f"{key}.start" not in st.session_state or url.is_history_navigation():
        known = {f"{option:g}": option for option in options}
        st.session_state[f"{key}.start"] = known.get(_linked(VALUE, known), start)
    start, locked = st.session_state[f"{key}.start"], st.session_state[LOCKED]
    key = f"{key}.{url.revision()}"
    state = lab_component(
        batch,
        replace(settings, **{name: start}) if name else settings,
        key=key,
        controls=(name,) if name and not locked else (),
        panels=panels,
        sliders={name: values} if name else None,
        sizes=(int(start), *((int(start),) if locked else sizes)) if sizes else None,
        by_logits=by_logits,
    )
    if locked:
        return start
    chosen = getattr(state.settings, name) if name else (st.session_state.get(key) or {}).get("pairs", start)
    value = min(options, key=lambda option: abs(option - chosen)) if isinstance(chosen, int | float) else start
    st.query_params[VALUE] = f"{value:g}"
    return value


def _choice(
    label: str, options: Mapping[str, str], key: str, parameter: str = VALUE, *, start: str | None = None
) -> str:
    """Draw buttons with these options whose value is in the URL; at first, `start` or the first one is selected."""
    if key not in st.session_state or url.is_history_navigation():
        st.session_state[key] = _linked(parameter, options) or start or next(iter(options))
    locked = st.session_state[LOCKED]
    value = st.segmented_control(label, list(options), format_func=options.get, key=key, required=True, disabled=locked)
    if not locked:
        st.query_params[parameter] = value
    return value


def _linked(parameter: str, options: Iterable[str]) -> str:
    """Return the option in the URL that a link or Back opened; empty if there is none or another lesson wrote it."""
    is_opened = page_layout.arrived() or url.is_history_navigation()
    return next(iter(url.check(parameter, options)), "") if is_opened else ""


@dataclass(frozen=True)
class Picture:
    """A figure as a Vega-Lite spec, with its alternative text and its data."""

    name: str
    spec: dict[str, Any]
    alt: str
    data: pd.DataFrame | None = None


def _picture(name: str, chart: Any, alt: str, data: pd.DataFrame | None = None) -> Picture:
    return Picture(f"lesson.{name}", display.vega_lite_spec(chart), alt, data)


def _show(pictures: Sequence[Picture], caption: str = "", height: int = LOW) -> None:
    """Draw one figure or several, two in a row, and the caption; of three figures, the first takes the first row.

    height: of one of several figures, in pixels.
    """
    first = [st.container()] if len(pictures) % 2 else []
    cells = [*first, *(display.columns(2, min_width=270) if len(pictures) > 1 else [])]
    low = {"height": height} if len(pictures) > 1 else {}
    for cell, picture in zip(cells, pictures, strict=True):
        with cell:
            display.figure({**picture.spec, **low}, name=picture.name, alt=picture.alt, data=picture.data)
    if caption:
        st.caption(caption)


computed_once = st.cache_data(max_entries=256, show_spinner=False)
"""Decorator: all sessions share the figures and the caption of a setting; building a figure takes about 0.1 s."""


def _batch_size(key: str) -> None:
    batch = ordered_batch()
    one_direction = LabSettings(symmetric=False)
    figure = st.container()  # above the matrix, so that both are visible with the slider
    size = _lab(key, batch, one_direction, panels=("softmax",), sizes=SIZES, start=float(SMALL_BATCH))
    pictures, caption = _losses_by_size(int(size))
    with figure:
        _show(pictures)
    st.caption(caption)


@computed_once
def _losses_by_size(size: int) -> tuple[list[Picture], str]:
    losses = losses_by_size()
    table = figures.metric_table(list(SIZES), {"mean loss": [losses[one].tolist() for one in SIZES]})
    equal = "all cosines equal: ln B"
    title = "Loss of one encoder by batch size"
    baseline = (equal, [float(np.log(one)) for one in SIZES])
    figure = figures.metrics_figure(
        table, size, title=title, axis="batch size B", value="loss", baseline=baseline, height=ABOVE
    )
    batches = f"{len(losses[size])} random batches"
    sample = (
        f" The curve is the mean loss of {batches} of this size; the band is their range. The matrix shows one batch. "
        "Its loss is printed above it."
    )
    same = f" There are only {size} pairs, so all batches of {size} are the same, and the band has no width."
    sample = same if size == SIZES[-1] else sample
    alt = f"Loss by batch size, from {SIZES[0]} to {SIZES[-1]} pairs, below the logarithm of the batch size."
    mean, equal_loss = formatting.metric(float(losses[size].mean())), formatting.metric(float(np.log(size)))
    return [_picture("size", figure, alt, table)], (
        f"At batch size {size}: {formatting.plural(size - 1, 'negative')} for each query, {size * (size - 1)} negative "
        f"pairs; mean loss {mean}, and {equal_loss} if all cosines were equal.{sample}"
    )


def _temperature(key: str) -> None:
    queries = {str(row + 1): str(row + 1) for row in range(len(preset_batch("confusable")))}
    locked = st.session_state[LOCKED]
    first = typical_query() if locked else spread_query()
    of_query, of_temperature = display.columns(2, min_width=270)  # one row, so that the figures are visible with it
    with of_query:
        row = int(_choice("Query", queries, f"{key}.row", ROW, start=str(first + 1))) - 1
    start = min(TEMPERATURES, key=lambda value: abs(value - (USUAL if locked else LOW_TEMPERATURE)))
    with of_temperature:
        temperature = _slider("Temperature", TEMPERATURES, key, start)
    pictures, caption = _shares_of_negatives(row, temperature)
    if locked:
        _show(pictures, caption)
        return
    shares, training = display.columns(2, min_width=270)
    with shares:
        _show(pictures, caption)
    with training:
        player(training_batch(), [BSCLossConfig(temperature=temperature)], None, key=f"{key}.circle", only_points=True)


@computed_once
def _shares_of_negatives(row: int, temperature: float) -> tuple[list[Picture], str]:
    batch = preset_batch("confusable")
    explained = explain_batch(batch, temperature=temperature, symmetric=False)
    order = [column for column in np.argsort(-explained.similarity[row]).tolist() if column != row]
    names = [formatting.shorten(f"{column + 1}  {batch.document_texts[column]}", 22) for column in order]
    shares = negative_shares(temperature)[row, order]
    title = f"Gradient on the negatives of query {row + 1}"
    figure = figures.shares_figure(names, shares, title=title, axis="share of each negative")
    texts = [f"document {column + 1} {formatting.percent(share)}" for column, share in zip(order, shares, strict=True)]
    present = shares[shares > 0]
    effective = float(np.exp(-(present * np.log(present)).sum()))
    return [_picture("temperature", figure, f"{title}: {', '.join(texts)}.")], (
        f"Query {row + 1}: “{batch.query_texts[row]}” At temperature {temperature:g}, the hardest negative gets "
        f"{formatting.percent(shares[0])} of the gradient on the negatives; the effective number of negatives is "
        f"{effective:.1f}. The loss of the entire batch is {explained.total:.3f}."
    )


def _batch_order(key: str) -> None:
    pictures, caption = _hardness(_choice("Batch order", ORDERS, f"{key}.order"))
    _show(pictures, caption)
    if not st.session_state[LOCKED]:
        _show([_gradients(), _closer_negatives()], height=BARS)


@computed_once
def _gradients() -> Picture:
    batches = {"six easily confused": "confusable", "six different topics": "easy"}
    sums = [gradient_mass(preset_batch(name)) for name in batches.values()]
    title = "Batches of the question"
    figure = figures.sums_figure(list(batches), sums, title=title, axis="sum of the absolute gradients")
    texts = [f"{name} {one:.2f}" for name, one in zip(batches, sums, strict=True)]
    return _picture("order.gradients", figure, f"{title}, sum of the absolute gradients: {', '.join(texts)}.")


@computed_once
def _closer_negatives() -> Picture:
    orders = list(ORDERS)[1:]
    title, axis = "Possible false negatives", "queries with a closer negative"
    shares = np.array([closer_share(order) for order in orders])
    figure = figures.shares_figure(orders, shares, title=title, axis=axis, colors=plan_figures.STRATEGY_COLORS)
    texts = [f"{order} {formatting.percent(share)}" for order, share in zip(orders, shares, strict=True)]
    return _picture("order.closer", figure, f"{title}: {axis}, {', '.join(texts)}.")


@computed_once
def _hardness(selected: str) -> tuple[list[Picture], str]:
    hardness = thumbnails()["hardness"]
    level = float(hardness["edges"][HARD_LEVEL])
    shown = list(ORDERS)[1:] if selected == "both" else [selected]
    table = plan_figures.histogram_table(hardness["edges"], hardness["shares"])
    batches = {"random": "random batches", "nearest": "batches of nearest neighbors"}
    shares = ", ".join(f"{formatting.percent(hard_share(name))} with {batches[name]}" for name in shown)
    sentences = f"Queries whose hardest negative has a cosine of at least {level:g} (the vertical line): {shares}."
    width = hardness["edges"][1] - hardness["edges"][0]
    value = f"share of queries ({width:g} each)"
    figure = plan_figures.hardness_figure(table, shown=shown, height=230, threshold=level, value=value)
    figure = figure.properties(title="Hardest negative of each query")
    alt = f"Histogram of the cosine to the hardest negative in a batch. {sentences}"
    return [_picture("order", figure, alt, table)], sentences


def _false_negatives(key: str) -> None:
    _show(*_paraphrases(_choice("The false negative", TREATMENTS, key)))


@computed_once
def _paraphrases(treatment: str) -> tuple[list[Picture], str]:
    result = paraphrase_results(excluded=treatment == "excluded")
    steps = list(range(result.own.shape[1]))
    lines = {"positive": result.own.T.tolist(), "false negative": result.other.T.tolist()}
    table = figures.metric_table(steps, lines)
    rises = result.other[:, -1].mean() > result.other[:, 0].mean()
    title = f"The false negative {'gets closer' if rises else 'is pushed away'}"
    other = paraphrase_results(excluded=treatment != "excluded").other.mean(axis=0).tolist()
    baseline = (
        "false negative, if not excluded" if treatment == "excluded" else "false negative, if excluded",
        other,
    )
    figure = figures.metrics_figure(
        table, None, title=title, axis="step", value="cosine", lowest=-1.0, baseline=baseline
    )
    alt = f"Cosine of a query to its positive and to the false negative, by step. {title}."
    means = [[decimal(values[:, step].mean(), 2) for step in (0, -1)] for values in (result.own, result.other)]
    ends = [" to ".join(values) for values in means]
    dataset = sample_rows("paraphrases")[0]
    query, other = (dataset.texts.texts[text] for text in dataset.query[:2])
    return [_picture("false_negatives", figure, alt, table)], (
        f"Example: “{query}” and “{other}” have the same answer. The false negative (the document of the other pair) "
        f"{TREATMENTS[treatment]}. The mean cosine of a query and "
        f"its positive goes from {ends[0]}. That of the query and the false negative goes from {ends[1]}. The bands "
        f"are the range over {len(result.own)} batches."
    )


def _combined_loss(key: str) -> None:
    _show(*_sums(_slider("Weight of BSC (mu): 0 is MSE alone, 1 is BSC alone", MUS, key, 0.0)))


@computed_once
def _sums(mu: float) -> tuple[list[Picture], str]:
    grades, cosines = np.asarray(sample_rows("graded")[0].label), graded_results(mu)[0].cosines
    trained = ~np.isnan(cosines)  # on these pairs
    table = figures.metric_table(
        list(MUS), {"MRR": [[one.mrr for one in graded_results(value, held_out=True)] for value in MUS]}
    )
    title, before = "Ranking of held-out queries", (BEFORE, [graded_results(None, held_out=True)[0].mrr] * len(MUS))
    figure = figures.metrics_figure(
        table, mu, title=title, axis="weight of BSC (mu)", value="MRR", baseline=before, narrow=True
    )
    pictures = [_picture("mu.mrr", figure, f"{title} by mu.", table)]
    title, alt = "Grades of training pairs, one subset", "Cosine of each training pair after training, over its grade."
    pictures.append(_picture("mu.grades", figures.grades_figure(grades[trained], cosines[trained], title=title), alt))
    captions = []
    for metric, name in (("mrr", "MRR"), ("error", "mean squared error of the grades")):
        train, held = (formatting.metric(_mean(graded_results(mu, held_out=one), metric)) for one in (False, True))
        captions.append(f"{name} {train} on the training and {held} on the held-out queries")
    return pictures, (
        f"At mu {mu:g}: {'; '.join(captions)}. Means over {SEEDS} subsets of the training queries; band: their "
        "range. Dashed: the encoder before training in the first figure, cosine = grade in the second."
    )


def _mean(results: Sequence[object], metric: str) -> float:
    """Return the mean of a metric over seeds."""
    return float(np.mean([getattr(one, metric) for one in results]))


def _margins(key: str) -> None:
    figure = st.container()  # above the slider, so that it is visible with the circles
    pictures, caption = _active_triplets(_circles(key, min(GRID, key=lambda value: abs(value - LARGE_MARGIN))))
    with figure:
        _show(pictures)
    st.caption(caption)


def _circles(key: str, start: float) -> float:
    """Draw the triplets of each distance on a circle with a slider, and return the margin."""
    known = {f"{margin:g}": margin for margin in GRID}
    value: float = st.session_state.get(key, {}).get("margin", st.session_state.get(f"{key}.start", start))
    if f"{key}.start" not in st.session_state or url.is_history_navigation():
        value = known.get(_linked(VALUE, known), start)
    value = value if value in GRID else start
    st.session_state[f"{key}.start"] = value
    batch = margin_batch()
    names = {"cosine": "Cosine distance", "euclidean": f"Euclidean distance, vectors of length {LENGTH:g}"}
    distances = {distance: triplet_distances(batch, distance) for distance in DISTANCES}
    data = {
        "id": f"{url.revision()} {st.session_state[LOCKED]}",
        "margins": list(GRID),
        "value": value,
        "locked": st.session_state[LOCKED],
        "points": {
            "queries": batch.queries.tolist(),
            "documents": batch.documents.tolist(),
            "negatives": negative_rows(batch).tolist(),
        },
        "distances": [
            {"name": names[distance], "near": near.tolist(), "far": far.tolist()}
            for distance, (near, far) in distances.items()
        ],
    }
    _triplets(key=key, data=data, on_margin_change=lambda: None)
    if not st.session_state[LOCKED]:
        st.query_params[VALUE] = f"{value:g}"
    return value


@computed_once
def _active_triplets(margin: float) -> tuple[list[Picture], str]:
    batch = margin_batch()
    names = {"cosine": "cosine", "euclidean": f"Euclidean, length {LENGTH:g}"}
    shares = {names[distance]: [active_share(batch, value, distance) for value in GRID] for distance in DISTANCES}
    table = figures.metric_table(list(GRID), shares)
    title, value = "Triplets that violate the margin", "share of the triplets"
    figure = figures.metrics_figure(
        table, margin, title=title, axis="margin", value=value, value_format="%", logarithmic=True, height=VERY_LOW
    )
    active = [formatting.percent(active_share(batch, margin, distance)) for distance in DISTANCES]
    return [_picture("margins", figure, "Share of active triplets by margin and distance.", table)], (
        f"At a margin of {margin:g}: {active[0]} of the triplets violate it with the cosine distance and {active[1]} "
        "with the Euclidean. The mean triplet loss with the cosine distance is "
        f"{formatting.metric(triplet_loss(batch, margin))}."
    )


def _supervised_contrastive(key: str) -> None:
    _show(*_cosines_by_class(_slider("Weight of SCL", MIXES, key, SUM)))


@computed_once
def _cosines_by_class(mix: float) -> tuple[list[Picture], str]:
    lines, untrained, shares = {}, {}, {}
    for name in ("training", "held-out"):
        seeds = class_results(mix, held_out=name == "held-out")
        lines[name] = [[one.nearest for one in class_results(value, held_out=name == "held-out")] for value in MIXES]
        untrained[name] = _mean(class_results(None, held_out=name == "held-out"), "nearest")
        means = [_mean(seeds, "nearest"), untrained[name], _mean(seeds, "accuracy")]
        shares[name] = [formatting.percent(mean) for mean in means]
    table = figures.metric_table(list(MIXES), lines)
    figure = figures.metrics_figure(
        table,
        mix,
        title="Entailed hypothesis is nearest",
        axis="weight of SCL",
        value="share of the premises",
        value_format="%",
        baseline=("held-out, before", [untrained["held-out"]] * len(MIXES)),
        narrow=True,
    )
    picture = _picture("classes.nearest", figure, "Share of premises by the weight of SCL.", table)
    first = class_results(mix, held_out=False)[0]
    title, means_before = "Cosines of training pairs", class_results(None, held_out=False)[0].means
    figure = figures.classes_figure(first.cosines, first.classes, NLI, title=title, before=list(means_before))
    classes = _picture("classes.training", figure, "Cosine of premise and hypothesis by class, with the means.")
    (nearest, before, accuracy), (held_nearest, held_before, held_accuracy) = shares.values()
    return [picture, classes], (
        f"At {mix:g}, the entailed hypothesis is nearest for {nearest} of the training premises and {held_nearest} of "
        f"the held-out premises. Before training, it is nearest for {before} and {held_before}. The classifier "
        f"predicts the class of {accuracy} of the training and {held_accuracy} of the held-out pairs. Means over "
        f"{SEEDS} training subsets; bands: their range; dashed: held-out premises before training. The cosines are "
        "those of the first subset; bar: mean of the class, diamond: its mean before training."
    )


def _mask_margin(key: str) -> None:
    _show(*_removed_negatives(_slider("Mask margin", MASK_MARGINS, key, WIDE)))


@computed_once
def _removed_negatives(margin: float) -> tuple[list[Picture], str]:
    removed, gaps = removed_counts(margin), cosine_gaps()
    names = {kind: f"{kind}: {removed[kind]} of {cells.sum()} excluded" for kind, cells in kinds_of_negatives().items()}
    values = {names[kind]: -gaps[cells] for kind, cells in kinds_of_negatives().items()}
    counts = [f"{removed[kind]} of {cells.sum()} {kind}" for kind, cells in kinds_of_negatives().items()]
    excluded = f"{', '.join(counts[:-1])} and {counts[-1]}" if any(removed.values()) else "no negative"
    why = "" if any(removed.values()) else " No cosine of a negative exceeds that of the positive by that much."
    gradient = formatting.percent(removed_gradient(margin))
    lost = f" Without the mask, these irrelevant documents have {gradient} of the gradient on all irrelevant ones."
    title = f"Negatives of {len(gaps)} queries (shaded: excluded by the mask)"
    figure = figures.limit_figure(values, margin, title=title, axis="cosine of the positive minus that of the negative")
    return [_picture("mask", figure, f"{title}. {'; '.join(names.values())}.")], (
        f"At a margin of {f'{margin:g}'.replace('-', MINUS)}, the mask excludes {excluded}.{why or lost}"
    )


def _hardness_weights(key: str) -> None:
    settings = LabSettings(hardness="in_batch_negatives", symmetric=False)
    batch, panels = preset_batch("confusable"), ("softmax", "gradient")
    above = st.container()
    start = 0.0 if st.session_state[LOCKED] else STRENGTH
    strength = _lab(key, batch, settings, panels=panels, name="hardness_strength", values=STRENGTHS, start=start)
    pictures, caption, compared = _shares_by_strength(strength)
    locked = st.session_state[LOCKED]
    with above:
        _show(pictures[:1] if locked else pictures, height=ABOVE)
    st.caption(caption if locked else f"{caption} {compared}")


@computed_once
def _shares_by_strength(strength: float) -> tuple[list[Picture], str, str]:
    shares = np.stack([shares_by_rank(value) for value in STRENGTHS])  # (strengths, 3, B)
    table = figures.metric_table(STRENGTHS, _by_query(shares[:, 0], "confusable"))
    title, axis = "Share of the hardest negative", "hardness strength"
    figure = figures.metrics_figure(
        table,
        strength,
        title=title,
        axis=axis,
        value="share of the gradient",
        value_format="%",
        height=ABOVE,
        together="each query",
        narrow=True,
    )
    means = shares[STRENGTHS.index(strength)].mean(axis=1)
    texts = [f"{name} {formatting.percent(share)}" for name, share in zip(RANKS, means, strict=True)]
    own = probabilities(**weighted(strength))[0]
    shares_picture = _picture("hardness", figure, f"{title}, of each query by strength.", table)
    of_temperature = [probabilities(temperature=equal_temperature(one), symmetric=False)[0] for one in STRENGTHS]
    means_by_kind = {
        "weights": [float(probabilities(**weighted(one))[0].mean()) for one in STRENGTHS],
        "lower temperature": [float(one.mean()) for one in of_temperature],
    }
    table = figures.metric_table(STRENGTHS, means_by_kind)
    title = "Probability of the positive"
    figure = figures.metrics_figure(table, strength, title=title, axis=axis, value="probability", narrow=True)
    probability = f"{own.mean():.2f}" if own.mean() >= LEAST_PROBABILITY else f"below {LEAST_PROBABILITY:g}"
    compared = (
        "Lower temperature: without weights, at the temperature that gives the negatives the same shares, here "
        f"{equal_temperature(strength):.3f}."
    )
    return (
        [shares_picture, _picture("hardness.positive", figure, f"{title} by strength.", table)],
        (
            f"At a hardness strength of {strength:g}: {', '.join(texts)} of the gradient on the negatives; mean "
            f"probability of the positive {probability} (means of {len(own)} easily confused queries at temperature "
            f"{USUAL:g})."
        ),
        compared,
    )


def _by_query(values: np.ndarray, preset: str) -> dict[str, list[float]]:
    """Return the values of each query of a preset batch, a column of (N, B), by its number and text."""
    texts = preset_batch(preset).query_texts
    names = [f"query {row}: {formatting.shorten(text, 60)}" for row, text in enumerate(texts, 1)]
    return {name: column.tolist() for name, column in zip(names, values.T, strict=True)}


def _matryoshka(key: str) -> None:
    options = [float(number) for number in DIMENSIONS]
    dimensions = int(_slider("Dimensions", options, key, options[-1]))
    _show(*_cut_vectors(dimensions))
    _show([_gaps(dimensions)])


@computed_once
def _cut_vectors(dimensions: int) -> tuple[list[Picture], str]:
    kinds = {"with Matryoshka": True, "without": False, BEFORE: None}
    pictures, captions = [], []
    for held_out in (True, False):
        mrr = {
            name: np.stack([one.mrr for one in question_results(matryoshka=kind, held_out=held_out)], axis=1)
            for name, kind in kinds.items()
        }  # (dimensions, seeds) each
        side = "held-out" if held_out else "training"
        table = figures.metric_table(DIMENSIONS, {name: mrr[name].tolist() for name in list(kinds)[:2]})
        figure = figures.metrics_figure(
            table,
            dimensions,
            title=f"MRR of {side} queries",
            axis="dimensions",
            value="MRR",
            baseline=(BEFORE, mrr[BEFORE].mean(axis=1).tolist()),
            logarithmic=True,
            narrow=True,
        )
        pictures.append(_picture(f"dimensions.{side}", figure, f"MRR by dimensions, {side}.", table))
        row = DIMENSIONS.index(dimensions)
        means = [f"{formatting.metric(float(values[row].mean()))} {name}" for name, values in mrr.items()]
        captions.append(f"{side} queries: {', '.join(means)}")
    return pictures, (
        f"MRR with the first {dimensions} of {DIMENSIONS[-1]} dimensions, {'; '.join(captions)}. "
        f"Means over {SEEDS} subsets of the training queries; bands: their range."
    )


@computed_once
def _gaps(dimensions: int) -> Picture:
    """Plot by how much the positive of each held-out query is closer than the nearest other document."""
    row, values, limits = DIMENSIONS.index(dimensions), {}, []
    for name, kind in (("with Matryoshka", True), ("without", False)):
        gaps = np.concatenate([one.gaps for one in question_results(matryoshka=kind, held_out=True)], axis=1)
        first = int((gaps[row] > -TIE).sum())
        values[f"{name}: {first} of {gaps.shape[1]} rank first"] = gaps[row].clip(-1)
        limits.append(float(gaps.max()))
    title = "Gap of each held-out query (shaded: another document ranks first)"
    figure = figures.limit_figure(
        values,
        0.0,
        title=title,
        axis="gap: cosine of the positive minus that of the nearest other document",
        domain=(-1.0, max(limits)),
        colors=figures.METRIC_COLORS,
    )
    return _picture("dimensions.gaps", figure, f"{title}. {'; '.join(values)}.")


def _debiased(key: str) -> None:
    batch, settings = preset_batch("easy"), LabSettings(symmetric=False)
    above = st.container()
    prior = _lab(
        *(key, batch, settings),
        panels=("gradient",),
        name="debiased_prior",
        values=PRIORS,
        start=PRIOR_PAIR[0],
        by_logits=True,
    )
    pictures, caption = _pulls_by_prior(prior)
    with above:
        _show(pictures, height=ABOVE)
    st.caption(caption)


@computed_once
def _pulls_by_prior(prior: float) -> tuple[list[Picture], str]:
    negatives = np.stack([pulls(value)[1] for value in PRIORS])  # (priors, B)
    decoupled = [float(pulls(0.0, decoupled=True)[0].mean())] * len(PRIORS)
    by_query = _by_query(negatives, "easy")
    table, names = figures.metric_table(PRIORS, by_query), list(by_query)
    title = "Gradient on the negatives of a query"
    hardest = int(negatives[0].argmax())
    figure = figures.metrics_figure(
        table,
        prior,
        title=title,
        axis="debiased prior",
        value="gradient",
        baseline=("decoupled, no prior", decoupled),
        together="other queries",
        single=(names[hardest], f"query {hardest + 1}"),
    )
    pictures = [_picture("debiased.negatives", figure, f"{title} by prior.", table)]
    remaining = negatives[PRIORS.index(prior)] > 0
    return pictures, (
        f"At a prior of {prior:g}: {remaining.sum()} of {len(remaining)} queries have a gradient on their negatives. "
        "Each curve is the sum of the gradients on the negatives of a query. Without a prior, it is one minus the "
        "probability of the positive. The absolute gradient on the positive is equally large before the bound. The "
        "matrix and the figure show the gradient of the loss of each query with respect to the logits."
    )


FIGURES: dict[str, Callable[[str], None]] = {
    "in-batch-negatives": _batch_size,
    "temperature": _temperature,
    "duplicates": _false_negatives,
    "batch-order": _batch_order,
    "combined-loss": _combined_loss,
    "margins": _margins,
    "supervised-contrastive": _supervised_contrastive,
    "mask-margin": _mask_margin,
    "hardness-weights": _hardness_weights,
    "matryoshka": _matryoshka,
    "debiased": _debiased,
}
