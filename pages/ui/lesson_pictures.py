"""The picture of each lesson with its one control; the control's value stands in the URL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from bsc_core.data.classes import NLI
from bsc_core.figures import hardness as hardness_figures
from bsc_core.figures import lessons as figures
from bsc_core.lab.lessons import LabLesson, Lesson
from bsc_core.lab.lessons.further import MIXES, MUS
from bsc_core.lab.lessons.margins import GRID, MARGINS, active_share, margin_batch, triplet_loss
from bsc_core.lab.lessons.order import hardness_of
from bsc_core.lab.settings import LabSettings
from pages.ui import show
from pages.ui.lab.component import lab_component

AT = "at"
"""The URL parameter of a lesson's control."""


def draw(lesson: Lesson, key: str) -> None:
    """Draw the lesson's picture."""
    if isinstance(lesson, LabLesson):
        _lab(lesson, key)
    else:
        PICTURES[lesson.slug](key)


def _lab(lesson: LabLesson, key: str) -> None:
    """The loss lab with the lesson's controls; what is changed in it goes into the URL."""
    told = {name: st.query_params[name] for name in lesson.controls if name in st.query_params}
    start = lesson.settings
    if told and st.session_state.get("lessons.drawn") != lesson.slug:
        with show.calm_errors(stop=False):
            start = LabSettings(**{**_values(lesson.settings), **_values(LabSettings.from_query(told), told)})
    st.session_state["lessons.drawn"] = lesson.slug
    state = lab_component(lesson.batch(), start, key=key, controls=lesson.controls, panels=lesson.panels)
    changed = {name: text for name, text in state.settings.to_query().items() if name in lesson.controls}
    for name in LabSettings.__dataclass_fields__:
        if name in changed:
            st.query_params[name] = changed[name]
        elif name in st.query_params:
            del st.query_params[name]


def _values(settings: LabSettings, names: Sequence[str] | None = None) -> dict[str, object]:
    return {name: getattr(settings, name) for name in (names or LabSettings.__dataclass_fields__)}


def _control(label: str, options: Sequence[float], key: str, start: float) -> float:
    """A slider over the options, in the URL."""
    told = st.query_params.get(AT)
    known = {f"{option:g}": option for option in options}
    if key not in st.session_state:
        st.session_state[key] = known.get(told or "", start)
    value = float(st.select_slider(label, options, format_func=lambda option: f"{option:g}", key=key))
    st.query_params[AT] = f"{value:g}"
    return value


def _order(key: str) -> None:
    orders = {"random": hardness_of("random"), "examples": hardness_of("examples")}
    options = ("both", *orders)
    chosen = st.segmented_control("Batch order", options, default=options[0], required=True, key=f"{key}.order")
    shown = {name: found for name, found in orders.items() if chosen in ("both", name)}
    edges = list(next(iter(shown.values())).edges)
    table = hardness_figures.counted_table(edges, {name: list(found.shares) for name, found in shown.items()})
    words = " ".join(
        f"Order {name}: {show.share(found.closer_share)} of the queries have a wrong document nearer than their own."
        for name, found in shown.items()
    )
    alt = f"Histogram of the cosine to the nearest wrong document in a batch. {words}"
    show.figure(hardness_figures.hardness_figure(table, height=300), name="lesson.order", alt=alt, data=table)
    st.caption(words)


def _combined(key: str) -> None:
    from bsc_core.lab.lessons.training import trained_on_grades

    mu = _control("mu: from MSE alone to BSC alone", MUS, key, 0.0)
    with st.spinner("Training the toy encoder …"):
        found = {one: trained_on_grades(one) for one in MUS}
    measures = {
        "MRR": [one.mrr for one in found.values()],
        "rank correlation": [one.spearman for one in found.values()],
    }
    left, right = show.columns(2)
    with left:
        title = "Order and grades trade places, and meet in between"
        table = figures.along(list(MUS), measures)
        alt = f"MRR and rank correlation with the grades for mu {', '.join(f'{one:g}' for one in MUS)}."
        show.figure(figures.measures_figure(table, mu, title=title, axis="mu"), name="lesson.mu", alt=alt, data=table)
    with right:
        chosen = found[mu]
        picture = figures.grades_figure(chosen.cosines, chosen.grades, title="Squared error wants the dashed line")
        show.figure(picture, name="lesson.grades", alt="Cosine of each pair beside its grade.")
    st.caption(
        f"At mu {mu:g}: MRR {show.metric(chosen.mrr)}, rank correlation {show.metric(chosen.spearman)}, "
        f"mean squared error {show.metric(chosen.error)}."
    )


def _margins(key: str) -> None:
    margin = _control("Margin", GRID, key, min(GRID, key=lambda one: abs(one - MARGINS[1])))
    batch = margin_batch()
    shares = {"share of triplets still active": [active_share(batch, one) for one in GRID]}
    table = figures.along(list(GRID), shares)
    title = "The larger the margin, the more triplets still pull, until all of them do"
    picture = figures.measures_figure(table, margin, title=title, axis="margin", logarithmic=True)
    show.figure(picture, name="lesson.margins", alt="Share of active triplets by margin.", data=table)
    share, loss = active_share(batch, margin), triplet_loss(batch, margin)
    st.caption(
        f"At a margin of {margin:g}: {show.share(share)} of the triplets still active, loss {show.metric(loss)}."
    )


def _supervised(key: str) -> None:
    from bsc_core.lab.lessons.training import trained_on_classes

    mix = _control("Share of the contrastive term", MIXES, key, 0.0)
    with st.spinner("Training the toy encoder …"):
        found = trained_on_classes(mix)
    title = "Where the three kinds of hypotheses lie from their premise"
    picture = figures.classes_figure(found.similarity, found.classes, NLI, title=title)
    show.figure(picture, name="lesson.classes", alt="Cosine of premise and hypothesis by class, with the means.")
    st.caption(
        f"Share {mix:g}: {show.share(found.accuracy)} of the classes right; the entailed hypothesis is the nearest for "
        f"{show.share(found.nearest)} of the premises."
    )


PICTURES: dict[str, Callable[[str], None]] = {
    "batch-order": _order,
    "combined-loss": _combined,
    "margins": _margins,
    "supervised-contrastive": _supervised,
}
