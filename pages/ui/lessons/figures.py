"""Figure of each lesson with its control. The value of the control is in the URL."""

from collections.abc import Callable, Iterable, Sequence

import streamlit as st

from bsc_core import formatting
from bsc_core.data.schema.classes import NLI
from bsc_core.figures import lessons as figures
from bsc_core.figures.batches import plans as plan_figures
from bsc_core.lab.lessons import LabLesson, Lesson
from bsc_core.lab.lessons.facts import MIXES, MUS
from bsc_core.lab.lessons.margins import GRID, MARGINS, active_share, margin_batch, triplet_loss
from bsc_core.lab.presets import thumbnails
from bsc_core.lab.settings import LabSettings
from pages.ui.components import display
from pages.ui.loss_lab.browser import lab_component

VALUE = "at"
"""The URL parameter of a lesson's control."""


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


def _batch_order(key: str) -> None:
    hardness = thumbnails()["hardness"]
    options = ("both", "random", "nearest")
    selected = st.segmented_control("Batch order", options, default=options[0], required=True, key=f"{key}.order")
    shown = options[1:] if selected == "both" else [selected]
    table = plan_figures.histogram_table(hardness["edges"], {name: hardness["shares"][name] for name in shown})
    sentences = " ".join(
        f"Order {name}: {formatting.percent(hardness['closer_share'][name])} of the queries are closer to a "
        "negative than to their positive."
        for name in shown
    )
    alt = f"Histogram of the cosine to the nearest negative in a batch. {sentences}"
    display.figure(plan_figures.hardness_figure(table, height=300), name="lesson.order", alt=alt, data=table)
    st.caption(sentences)


def _combined_loss(key: str) -> None:
    from bsc_core.lab.lessons.training import train_on_grades

    mu = _slider("mu: 0 is MSE only, 1 is batch softmax only", MUS, key, 0.0)
    with st.spinner("Training the toy encoder …"):
        results = {value: train_on_grades(value) for value in MUS}
    metrics = {
        "MRR": [result.mrr for result in results.values()],
        "rank correlation": [result.spearman for result in results.values()],
    }
    left, right = display.columns(2)
    with left:
        title = "Ranking and grades are a trade-off"
        table = figures.metric_table(list(MUS), metrics)
        alt = f"MRR and rank correlation with the grades for mu {', '.join(f'{value:g}' for value in MUS)}."
        figure = figures.metrics_figure(table, mu, title=title, axis="mu")
        display.figure(figure, name="lesson.mu", alt=alt, data=table)
    with right:
        result = results[mu]
        figure = figures.grades_figure(result.cosines, result.grades, title="MSE pulls the cosines to the dashed line")
        display.figure(figure, name="lesson.grades", alt="Cosine of each pair against its grade.")
    st.caption(
        f"At mu {mu:g}: MRR {formatting.metric(result.mrr)}, rank correlation {formatting.metric(result.spearman)}, "
        f"mean squared error {formatting.metric(result.error)}."
    )


def _margins(key: str) -> None:
    margin = _slider("Margin", GRID, key, min(GRID, key=lambda value: abs(value - MARGINS[1])))
    batch = margin_batch()
    shares = {"share of active triplets": [active_share(batch, value) for value in GRID]}
    table = figures.metric_table(list(GRID), shares)
    title = "The larger the margin, the more triplets are active"
    figure = figures.metrics_figure(table, margin, title=title, axis="margin", logarithmic=True)
    display.figure(figure, name="lesson.margins", alt="Share of active triplets by margin.", data=table)
    active, loss = formatting.percent(active_share(batch, margin)), formatting.metric(triplet_loss(batch, margin))
    st.caption(f"At a margin of {margin:g}: {active} of the triplets are active, loss {loss}.")


def _supervised_contrastive(key: str) -> None:
    from bsc_core.lab.lessons.training import train_on_classes

    mix = _slider("Weight of the contrastive loss", MIXES, key, 0.0)
    with st.spinner("Training the toy encoder …"):
        result = train_on_classes(mix)
    title = "Cosine of hypotheses to their premise, by class"
    figure = figures.classes_figure(result.similarity, result.classes, NLI, title=title)
    display.figure(figure, name="lesson.classes", alt="Cosine of premise and hypothesis by class, with the means.")
    st.caption(
        f"At {mix:g}: {formatting.percent(result.accuracy)} of the classes are predicted correctly; the entailed "
        f"hypothesis is the nearest for {formatting.percent(result.nearest)} of the premises."
    )


FIGURES: dict[str, Callable[[str], None]] = {
    "batch-order": _batch_order,
    "combined-loss": _combined_loss,
    "margins": _margins,
    "supervised-contrastive": _supervised_contrastive,
}
