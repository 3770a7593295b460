"""The strategies side by side: how hard, how grouped, and how both move over the epochs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core.batching import MeasuredPlan, plan_notes
from bsc_core.data import PairDataset
from bsc_core.figures import hardness as hardness_figures
from bsc_core.figures import plans as plan_figures
from bsc_core.figures import theme
from pages.ui import plans, show
from pages.ui.batch_source import Source
from pages.ui.plans import Wanted

Looks = dict[str, MeasuredPlan]
EPOCHS = 5
SIDE_BY_SIDE = 3  # strategies whose table fits beside the picture
ROWS_OF_EPOCHS = 60_000
"""Rows, summed over all epochs and strategies, that are measured while the page waits."""
ACROSS: dict[str, tuple[Callable[[MeasuredPlan], float | None], bool]] = {
    "nearer than the own document": (lambda look: look.hardness.closer_share, True),
    "median nearest cosine": (lambda look: _median(look.hardness.hardest), False),
    "collisions": (lambda look: float(look.hardness.collisions), False),
    "groups intact": (lambda look: look.hardness.intact, True),
}


def draw(source: Source, pairs: PairDataset, wanted: dict[str, Wanted], looks: Looks) -> None:
    """Pictures on the left, the same in numbers on the right."""
    st.subheader("How hard are the wrong documents of each strategy?", anchor=False)
    left, right = show.columns(2) if len(looks) <= SIDE_BY_SIDE else (st.container(), st.container())
    with left:
        pictures = ("Hardness", "Group sizes", "Over epochs")
        which = st.segmented_control(
            "Picture", pictures, default=pictures[0], required=True, key="batches.picture", label_visibility="collapsed"
        )
        if which == "Group sizes":
            _group_sizes(looks)
        elif which == "Over epochs":
            _over_epochs(source, pairs, wanted)
        else:
            _hardness(looks, pairs)
    with right:
        st.table(comparison(looks), border="horizontal", hide_index=True, alt=sentence(looks))
        st.caption(sentence(looks))
        for name, asked in wanted.items():
            for note in plan_notes(asked.config, pairs):
                st.caption(f"{name}: {note}.")
        if marks := len(pairs.marked_pairs):
            st.caption(f"Marked as false negatives: {theme.many(marks, 'pair')}, which the loss leaves out.")


def comparison(looks: Looks) -> pd.DataFrame:
    """The strategies side by side: one line a measure, one column a strategy, numbers as they are read."""
    lines: dict[str, Callable[[MeasuredPlan], str]] = {
        "nearer than the own document": lambda look: theme.share(look.hardness.closer_share),
        "median nearest cosine": lambda look: theme.metric(_median(look.hardness.hardest)),
        "collisions": _collisions,
        "groups of two and more": _groups,
        "groups intact": lambda look: theme.share(look.hardness.intact, why="no groups"),
        "batches": lambda look: theme.count(len(look.places)),
    }
    values = {name: [line(look) for line in lines.values()] for name, look in looks.items()}
    found = pd.DataFrame({"": list(lines), **values})
    facts = list(dict.fromkeys(fact for look in looks.values() for fact in look.plan.facts))
    told = {name: [_fact(fact, look.plan.facts.get(fact)) for fact in facts] for name, look in looks.items()}
    return pd.concat([found, pd.DataFrame({"": [fact.replace("_", " ") for fact in facts], **told})], ignore_index=True)


def _collisions(look: MeasuredPlan) -> str:
    number, pairs = look.hardness.collisions, look.crossed_pairs()
    return f"{theme.count(number)} ({theme.share(number / pairs)})" if number and pairs else theme.count(number)


def _groups(look: MeasuredPlan) -> str:
    sizes = {size: count for size, count in look.group_sizes().items() if size >= 2}
    if not sizes:
        return "none"
    rows, groups = sum(size * count for size, count in sizes.items()), sum(sizes.values())
    return f"{theme.count(groups)}, of {rows / groups:.1f} rows"


def _fact(name: str, value: float | str | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if "recall" in name or "share" in name:
        return theme.share(value)
    return theme.count(int(value)) if float(value).is_integer() else f"{value:,.4g}"


def _median(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


def sentence(looks: Looks) -> str:
    """What the comparison shows, in one sentence with its numbers."""
    shares = {name: look.hardness.closer_share for name, look in looks.items()}
    parts = [f"{theme.share(share)} under {name}" for name, share in shares.items() if share is not None]
    if not parts:
        return "No positive query of these batches meets a wrong document, so there is nothing to compare."
    return f"A wrong document lies nearer to the query than its own for {', '.join(parts)}."


def _hardness(looks: Looks, pairs: PairDataset) -> None:
    """The distributions of the strategies laid over each other, with that of the own documents."""
    positive = {name: pairs.positive[look.plan.order] for name, look in looks.items()}
    hardest = {name: look.hardness.hardest[positive[name]] for name, look in looks.items()}
    first = next(iter(looks))
    table = hardness_figures.hardness_table(hardest, looks[first].hardness.own[positive[first]])
    show.figure(hardness_figures.hardness_figure(table), name="hardness", alt=sentence(looks), data=table)


def _group_sizes(looks: Looks) -> None:
    table = plan_figures.group_size_table({name: look.group_sizes() for name, look in looks.items()})
    told = ", ".join(f"{name}: {_groups(look)}" for name, look in looks.items())
    show.figure(plan_figures.group_size_figure(table), name="group-sizes", alt=f"Groups of {told}", data=table)


def _over_epochs(source: Source, pairs: PairDataset, wanted: dict[str, Wanted]) -> None:
    """A line for each strategy over the epochs; a run's saved plans as the encoder before and after training sees them.

    Past ROWS_OF_EPOCHS rows the plans are built when a button asks for them.
    """
    measure = st.selectbox("Measure", list(ACROSS), key="batches.measure", label_visibility="collapsed")
    number = len(source.saved_plans()) or EPOCHS
    rows = number * len(pairs) * len(wanted)
    if rows > ROWS_OF_EPOCHS and not st.session_state.get("batches.epochs_asked"):
        st.caption(f"{theme.many(number, 'epoch')} of {theme.many(len(wanted), 'plan')} are to be built.")
        st.button("Build them", key="batches.build_epochs", on_click=_ask)
        return
    found = _measured_epochs(source, pairs, wanted, number)
    if not found:
        return
    value, percent = ACROSS[measure]
    lines = [
        {"series": name, "epoch": epoch, "value": value(look)}
        for name, course in found.items()
        for epoch, look in course.items()
    ]
    table = pd.DataFrame(lines).astype({"value": float})
    ends = ", ".join(f"{name} {part['value'].iloc[-1]:.3g}" for name, part in table.groupby("series", sort=False))
    figure = plan_figures.epoch_figure(table, value=measure, percent=percent)
    show.figure(figure, name="epochs", alt=f"{measure} by epoch; at the end: {ends}", data=table)
    if source.run is None:
        st.caption(
            "The encoder is the same in every epoch here. Choose a run to see how its plans moved as it learned."
        )
    else:
        st.caption("The run's own plans, as its encoder saw them before and sees them after training.")


def _ask() -> None:
    st.session_state["batches.epochs_asked"] = True


def _measured_epochs(
    source: Source, pairs: PairDataset, wanted: dict[str, Wanted], number: int
) -> dict[str, dict[int, MeasuredPlan]]:
    """Series -> epoch from 1 -> plan; empty while a child process is at them."""
    series: dict[str, tuple[Source, list[Wanted]]] = {}
    for name, plan in wanted.items():
        if name == plans.OWN:
            saved = [replace(plan, saved=path, epoch=epoch) for epoch, path in enumerate(source.saved_plans())]
            series |= {f"{name}, {view}": (source.seen_by(view), saved) for view in source.views}
        else:
            series[name] = (source, [replace(plan, epoch=epoch) for epoch in range(number)])
    found = {}
    for name, (seen, course) in series.items():
        built = plans.looks(seen, pairs, {f"{name} {one.epoch + 1}": one for one in course})
        if not built:
            return {}
        found[name] = {one.epoch + 1: built[key] for one in course if (key := f"{name} {one.epoch + 1}") in built}
    return {name: course for name, course in found.items() if course}
