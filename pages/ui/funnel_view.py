"""How training rows were made: the picture of what is left after each step, and three rows of every step."""

from __future__ import annotations

import streamlit as st

from bsc_core.data import ExperimentData
from bsc_core.data.stages import Stage
from bsc_core.figures import funnel, theme
from pages.ui import show

NEIGHBOUR = ("anchor", "neighbour", "cosine", "the neighbour is of")
HEADS = {
    "sentences": ("sentence", "class"),
    **dict.fromkeys(("neighbours", "above the threshold", "distinct"), NEIGHBOUR),
}
COLOURS = {
    **dict.fromkeys(("sentence", "anchor", "query", "premise"), "blue"),
    **dict.fromkeys(("positive", "neighbour", "document", "hypothesis"), "green"),
    "negative": "orange",
}


def draw(data: ExperimentData, *, name: str) -> None:
    """The funnel of the training rows, one sentence about it, and the rows of the step that is picked."""
    stages = data.funnel
    table = funnel.funnel_table(stages)
    made = "triplet" if data.train.negative is not None else "pair"
    title = f"{stages[0].count:,} {stages[0].name} became {theme.many(len(data.train), f'training {made}')}"
    show.figure(
        funnel.funnel_figure(table, title),
        name="funnel",
        key=f"{name}.funnel",
        alt="; ".join(stage.sentence() for stage in stages),
        data=table,
    )
    notes = [f"{stage.name}: {stage.note}" for stage in stages if stage.note]
    st.caption(" · ".join(notes))
    shown = {stage.name: stage for stage in stages if stage.examples}
    step = st.pills(
        "Three of each step",
        list(shown),
        default=list(shown)[-1],
        required=True,
        key=f"{name}.step",
        format_func=lambda step: f"{step} · {theme.count(shown[step].count)}",
    )
    if step in shown:
        _rows(shown[step], data)


def _rows(stage: Stage, data: ExperimentData) -> None:
    heads = heads_of(stage, data)
    for place, texts in zip(show.columns(len(stage.examples), least=260, border=True), stage.examples, strict=True):
        with place:
            for head, text in zip(heads, texts, strict=True):
                show.text(f":{COLOURS[head]}[{head}]" if head in COLOURS else head, text)


def heads_of(stage: Stage, data: ExperimentData) -> tuple[str, ...]:
    """What the texts of a step's rows are; the funnel's first step tells how they were made."""
    if stage.name in HEADS:
        return HEADS[stage.name]
    triplets = data.train.negative is not None
    match data.funnel[0].name:
        case "sentences":
            heads: tuple[str, ...] = (
                ("anchor", "positive", "negative") if triplets else ("anchor", "neighbour", "label")
            )
        case "positive pairs":
            with_negative = stage.name == "negatives" or (triplets and stage.name == "training rows")
            heads = ("query", "document", *(("negative",) if with_negative else ()), "label")
        case _:
            heads = ("premise", "hypothesis", "class")
    return heads[: len(stage.examples[0])]
