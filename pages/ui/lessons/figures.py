"""Figure of each lesson with its control. The value of the control is in the URL."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.data.schema.classes import NLI
from bsc_core.figures import lessons as figures
from bsc_core.figures.batches import plans as plan_figures
from bsc_core.lab.lessons import LabLesson, Lesson
from bsc_core.lab.lessons.batches import SIZES, USUAL, losses_by_size, negative_shares
from bsc_core.lab.lessons.facts import HARD_LEVEL, MIXES, MUS, hard_share
from bsc_core.lab.lessons.margins import DISTANCES, GRID, LENGTH, MARGINS, active_share, margin_batch, triplet_loss
from bsc_core.lab.lessons.negatives import (
    MASK_MARGINS,
    PRIORS,
    RANKS,
    STRENGTHS,
    cosine_gaps,
    kinds_of_negatives,
    probabilities,
    pulls,
    removed_counts,
    shares_by_rank,
    weighted,
)
from bsc_core.lab.presets import preset_batch, thumbnails
from bsc_core.lab.settings import LabSettings, explain_batch
from pages.ui.components import display
from pages.ui.loss_lab.browser import lab_component

VALUE, ROW = "at", "row"
"""The URL parameters of a lesson's control, and of the row that it displays."""
TEMPERATURES = tuple(np.round(np.geomspace(0.01, 10, 31), 3).tolist())
ORDERS = {"both": "both", "random": "random", "nearest": "nearest"}
TREATMENTS = {"negative": "counts as a negative", "excluded": "is excluded"}


def draw(lesson: Lesson, key: str) -> None:
    """Draw the figure and the control of a lesson."""
    if isinstance(lesson, LabLesson):
        _loss_lab(lesson, key)
    else:
        FIGURES[lesson.slug](key)


def _loss_lab(lesson: LabLesson, key: str) -> None:
    """Draw the loss lab with the lesson's controls and write changes into the URL."""
    linked = {name: st.query_params[name] for name in lesson.controls if name in st.query_params}
    start = lesson.settings
    if linked and st.session_state.get("lessons.drawn") != lesson.slug:
        with display.show_errors(stop=False):
            start = LabSettings(**{**_values(lesson.settings), **_values(LabSettings.from_query(linked), linked)})
    st.session_state["lessons.drawn"] = lesson.slug
    state = lab_component(lesson.batch(), start, key=key, controls=lesson.controls, panels=lesson.panels)
    changed = {name: text for name, text in state.settings.to_query().items() if name in lesson.controls}
    display.write_url(changed, LabSettings.__dataclass_fields__)


def _values(settings: LabSettings, names: Iterable[str] | None = None) -> dict[str, object]:
    return {name: getattr(settings, name) for name in (names or LabSettings.__dataclass_fields__)}


def _slider(label: str, options: Sequence[float], key: str, start: float) -> float:
    """Draw a slider over the options whose value is in the URL."""
    known = {f"{option:g}": option for option in options}
    if key not in st.session_state:
        st.session_state[key] = known.get(st.query_params.get(VALUE, ""), start)
    value = float(st.select_slider(label, options, format_func=lambda option: f"{option:g}", key=key))
    st.query_params[VALUE] = f"{value:g}"
    return value


def _choice(label: str, options: Mapping[str, str], key: str, parameter: str = VALUE) -> str:
    """Draw buttons with these options whose value is in the URL; the first one is selected at first."""
    if key not in st.session_state:
        linked = st.query_params.get(parameter)
        st.session_state[key] = linked if linked in options else next(iter(options))
    value = st.segmented_control(label, list(options), format_func=options.get, key=key, required=True)
    st.query_params[parameter] = value
    return value


def _batch_size(key: str) -> None:
    size = int(_slider("Batch size", SIZES, key, SIZES[0]))
    losses = losses_by_size()
    table = figures.metric_table(list(SIZES), {"loss L0 of this encoder": [losses[one].tolist() for one in SIZES]})
    equal = "all similarities equal: ln B"
    title = "The loss of the same encoder rises with the batch size"
    baseline = (equal, [float(np.log(one)) for one in SIZES])
    figure = figures.metrics_figure(table, size, title=title, axis="batch size B", baseline=baseline, height=320)
    alt = f"Loss by batch size, from {SIZES[0]} to {SIZES[-1]} pairs, below the logarithm of the batch size."
    display.figure(figure, name="lesson.size", alt=alt, data=table)
    st.caption(
        f"At batch size {size}: {formatting.plural(size - 1, 'negative')} for each query, {size * (size - 1)} negative "
        f"pairs; loss {formatting.metric(float(losses[size].mean()))} (mean of {len(losses[size])} random batches; the "
        f"band is their range), and {formatting.metric(float(np.log(size)))} if all similarities were equal."
    )


def _temperature(key: str) -> None:
    batch = preset_batch("confusable")
    queries = {str(row + 1): f"Query {row + 1}" for row in range(len(batch))}
    row = int(_choice("Query", queries, f"{key}.row", ROW)) - 1
    start = min(TEMPERATURES, key=lambda value: abs(value - USUAL))
    temperature = _slider("Temperature", TEMPERATURES, key, start)
    explained = explain_batch(batch, temperature=temperature)
    order = [column for column in np.argsort(-explained.similarity[row]).tolist() if column != row]
    names = [formatting.shorten(f"{column + 1}  {batch.document_texts[column]}", 70) for column in order]
    shares = negative_shares(temperature)[row, order]
    title = f"Share of each negative in the gradient of query {row + 1}"
    figure = figures.shares_figure(names, shares, title=title, axis="share of the gradient on the negatives")
    texts = [f"document {column + 1} {formatting.percent(share)}" for column, share in zip(order, shares, strict=True)]
    display.figure(figure, name="lesson.temperature", alt=f"{title}: {', '.join(texts)}.")
    total = float(np.abs(explained.gradient).sum())
    st.caption(
        f"Query {row + 1}: {batch.query_texts[row]} At temperature {temperature:g}, the hardest negative gets "
        f"{formatting.percent(shares[0])}. Absolute gradients of the batch sum to {total:.1f}."
    )


def _batch_order(key: str) -> None:
    hardness = thumbnails()["hardness"]
    selected = _choice("Batch order", ORDERS, f"{key}.order")
    shown = list(ORDERS)[1:] if selected == "both" else [selected]
    table = plan_figures.histogram_table(hardness["edges"], {name: hardness["shares"][name] for name in shown})
    sentences = " ".join(
        f"Order {name}: the hardest negative of {formatting.percent(hard_share(name))} of the queries has a cosine of "
        f"at least {hardness['edges'][HARD_LEVEL]:g}."
        for name in shown
    )
    alt = f"Histogram of the cosine to the nearest negative in a batch. {sentences}"
    display.figure(plan_figures.hardness_figure(table, height=300), name="lesson.order", alt=alt, data=table)
    st.caption(sentences)


def _false_negatives(key: str) -> None:
    from bsc_core.lab.lessons.training import train_on_paraphrases

    treatment = _choice("The false negative", TREATMENTS, key)
    result = train_on_paraphrases(excluded=treatment == "excluded")
    steps = list(range(result.own.shape[1]))
    lines = {"positive": result.own.T.tolist(), "false negative": result.other.T.tolist()}
    table = figures.metric_table(steps, lines)
    rises = result.other[:, -1].mean() > result.other[:, 0].mean()
    title = f"The false negative is {'pulled closer' if rises else 'pushed away'}"
    figure = figures.metrics_figure(table, steps[-1], title=title, axis="step", height=320)
    alt = f"Cosine of a question to its positive and to the false negative, by step. {title}."
    display.figure(figure, name="lesson.false_negatives", alt=alt, data=table)
    ends = [f"{values[:, 0].mean():.2f} to {values[:, -1].mean():.2f}" for values in (result.own, result.other)]
    st.caption(
        f"The false negative (the right answer of the other pair) {TREATMENTS[treatment]}: mean cosine to the positive "
        f"from {ends[0]}, to the false negative from {ends[1]}. The bands are the range over {len(result.own)} batches."
    )


def _combined_loss(key: str) -> None:
    from bsc_core.lab.lessons.training import SEEDS, train_on_grades

    mu = _slider("Share of BSC (mu): 0 is MSE only, 1 is batch softmax only", MUS, key, 0.0)
    with st.spinner("Training the toy encoder …"):
        held_out, train = (
            {value: train_on_grades(value, held_out=held) for value in (None, *MUS)} for held in (True, False)
        )
    captions = []
    for cell, metric, shown, name, title in zip(
        display.columns(2),
        ("mrr", "spearman"),
        (held_out, train),
        ("MRR, held-out questions", "rank correlation, training grades"),
        ("The sum ranks held-out questions better than MSE alone", "Batch softmax alone ignores the grades"),
        strict=True,
    ):
        with cell:
            values = [[getattr(one, metric) for one in shown[value]] for value in MUS]
            table = figures.metric_table(list(MUS), {name: values})
            untrained = ("untrained", [getattr(shown[None][0], metric)] * len(MUS))
            figure = figures.metrics_figure(table, mu, title=title, axis="mu", baseline=untrained)
            display.figure(figure, name=f"lesson.mu.{metric}", alt=f"{title}: {name} by mu.", data=table)
        means = [formatting.metric(_mean(side[mu], metric)) for side in (train, held_out)]
        captions.append(f"{name.partition(',')[0]} {means[0]} on training and {means[1]} on held-out questions")
    st.caption(
        f"At mu {mu:g}: {'; '.join(captions)}. Means of {SEEDS} subsets of the training questions; bands: their range."
    )


def _mean(results: Sequence[object], metric: str) -> float:
    """Return the mean of a metric over seeds."""
    return float(np.mean([getattr(one, metric) for one in results]))


def _margins(key: str) -> None:
    margin = _slider("Margin", GRID, key, min(GRID, key=lambda value: abs(value - MARGINS[1])))
    batch = margin_batch()
    names = {"cosine": "cosine", "euclidean": f"Euclidean, vectors of length {LENGTH:g}"}
    shares = {names[distance]: [active_share(batch, value, distance) for value in GRID] for distance in DISTANCES}
    table = figures.metric_table(list(GRID), shares)
    title = "Cosine margins saturate, Euclidean margins depend on the length"
    figure = figures.metrics_figure(table, margin, title=title, axis="margin", logarithmic=True)
    display.figure(figure, name="lesson.margins", alt="Share of active triplets by margin and distance.", data=table)
    active = [formatting.percent(active_share(batch, margin, distance)) for distance in DISTANCES]
    st.caption(
        f"At a margin of {margin:g}: {active[0]} of the triplets violate it with the cosine distance and {active[1]} "
        f"with the Euclidean; the cosine loss is {formatting.metric(triplet_loss(batch, margin))}."
    )


def _supervised_contrastive(key: str) -> None:
    from bsc_core.lab.lessons.training import SEEDS, train_on_classes

    mix = _slider("Weight of the contrastive loss", MIXES, key, 0.0)
    with st.spinner("Training the toy encoder …"):
        results = {name: train_on_classes(mix, held_out=name == "held-out") for name in ("training", "held-out")}
        untrained = {name: train_on_classes(None, held_out=name == "held-out")[0].nearest for name in results}
    sentences = []
    for cell, (name, seeds) in zip(display.columns(2), results.items(), strict=True):
        with cell:
            title = f"Cosine of hypotheses to their premise, {name} rows"
            figure = figures.classes_figure(seeds[0].cosines, seeds[0].classes, NLI, title=title)
            alt = "Cosine of premise and hypothesis by class, with the means."
            display.figure(figure, name=f"lesson.classes.{name}", alt=alt)
        accuracy, nearest = (formatting.percent(_mean(seeds, metric)) for metric in ("accuracy", "nearest"))
        sentences.append(
            f"{name} rows: {accuracy} of the classes correct, the entailed hypothesis is the nearest for {nearest} of "
            f"the premises (untrained {formatting.percent(untrained[name])})"
        )
    st.caption(f"At {mix:g}, {'; '.join(sentences)}. Means of {SEEDS} seeds; the figures show the first.")


def _mask_margin(key: str) -> None:
    margin = _slider("Mask margin", MASK_MARGINS, key, 0.0)
    removed, gaps = removed_counts(margin), cosine_gaps()
    names = {kind: f"{kind}: {removed[kind]} of {cells.sum()} removed" for kind, cells in kinds_of_negatives().items()}
    values = {names[kind]: gaps[cells] for kind, cells in kinds_of_negatives().items()}
    title = f"Negatives of {len(gaps)} queries; shaded: removed by the mask"
    figure = figures.limit_figure(values, -margin, title=title, axis="cosine minus that of the query's positive")
    display.figure(figure, name="lesson.mask", alt=f"{title}. {'; '.join(names.values())}.")
    st.caption(
        f"At a margin of {margin:g}: {'; '.join(names.values())}. The judge is the encoder itself. A false negative is "
        "the right answer to the same question in other words; the hard negative is the most similar wrong document."
    )


def _hardness_weights(key: str) -> None:
    strength = _slider("Hardness strength", STRENGTHS, key, 0.0)
    shares = np.stack([shares_by_rank(value) for value in STRENGTHS])  # (strengths, 3, B)
    table = figures.metric_table(STRENGTHS, _by_query(shares[:, 0]))
    title = "Share of the hardest negative in the gradient on the negatives"
    figure = figures.metrics_figure(table, strength, title=title, axis="hardness strength", height=320)
    display.figure(figure, name="lesson.hardness", alt=f"{title}, of each query by strength.", data=table)
    means = shares[STRENGTHS.index(strength)].mean(axis=1)
    texts = [f"{name} {formatting.percent(share)}" for name, share in zip(RANKS, means, strict=True)]
    own = probabilities(**weighted(strength))[0]
    st.caption(
        f"At a strength of {strength:g}: {', '.join(texts)} of the gradient on the negatives; mean probability of the "
        f"positive {own.mean():.2f}. Means of {len(own)} easily confused questions."
    )


def _by_query(values: np.ndarray) -> dict[str, list[float]]:
    """Return the values of each query, a column of (N, B), by its name."""
    return {f"query {row + 1}": column.tolist() for row, column in enumerate(values.T)}


def _matryoshka(key: str) -> None:
    from bsc_core.lab.lessons.training import DIMENSIONS, SEEDS, train_on_questions

    dimensions = int(_slider("Dimensions", [float(number) for number in DIMENSIONS], key, float(DIMENSIONS[-1])))
    kinds = {"with Matryoshka": True, "without": False}
    captions = []
    for cell, held_out in zip(display.columns(2), (True, False), strict=True):
        with st.spinner("Training the toy encoder …"):
            mrr = {
                name: np.stack([one.mrr for one in train_on_questions(matryoshka=kind, held_out=held_out)], axis=1)
                for name, kind in (*kinds.items(), ("untrained", None))
            }  # (dimensions, seeds) each
        with cell:
            side = "held-out" if held_out else "training"
            table = figures.metric_table(DIMENSIONS, {name: mrr[name].tolist() for name in kinds})
            figure = figures.metrics_figure(
                table,
                dimensions,
                title=f"MRR of the first dimensions, {side} questions",
                axis="dimensions",
                baseline=("untrained", mrr["untrained"][:, 0].tolist()),
                logarithmic=True,
                height=320,
            )
            display.figure(figure, name=f"lesson.dimensions.{side}", alt=f"MRR by dimensions, {side}.", data=table)
        row = DIMENSIONS.index(dimensions)
        means = [f"{formatting.metric(float(values[row].mean()))} {name}" for name, values in mrr.items()]
        captions.append(f"{side} questions: {', '.join(means)}")
    st.caption(
        f"MRR with the first {dimensions} of {DIMENSIONS[-1]} dimensions, {'; '.join(captions)}. "
        f"Means of {SEEDS} subsets of the training questions; bands: their range."
    )


def _debiased(key: str) -> None:
    prior = _slider("Prior", PRIORS, key, 0.0)
    negatives = np.stack([pulls(value)[1] for value in PRIORS])  # (priors, B)
    table = figures.metric_table(PRIORS, _by_query(negatives))
    title = "Gradient on the negatives of each query"
    figure = figures.metrics_figure(table, prior, title=title, axis="debiased prior", height=320)
    display.figure(figure, name="lesson.debiased", alt=f"{title} by prior.", data=table)
    remaining = negatives[PRIORS.index(prior)] > 0
    st.caption(
        f"At a prior of {prior:g}: {remaining.sum()} of {len(remaining)} queries have a gradient on their negatives. "
        "Unit: 1 / (pairs × temperature), in which the softmax has one minus the probability of the positive."
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
