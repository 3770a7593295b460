"""Generation of training rows, step by step: how many rows are left, and three examples of each step."""

import streamlit as st

from bsc_core import formatting
from bsc_core.data import DatasetSplits
from bsc_core.data.dataset import Stage
from bsc_core.figures.batches import dataset
from pages.ui.components import display, url

NEIGHBOR = ("anchor", "neighbor", "cosine", "class of the neighbor")
LABELS = {
    "sentences": ("sentence", "class"),
    **dict.fromkeys(("neighbors", "above the threshold", "distinct"), NEIGHBOR),
}
COLORS = {
    **dict.fromkeys(("sentence", "anchor", "query", "premise"), "blue"),
    **dict.fromkeys(("positive", "neighbor", "document", "hypothesis"), "green"),
    "negative": "orange",
}


def draw(data: DatasetSplits, *, name: str) -> None:
    """Draw the rows left after each step, notes on the steps, and the examples of the selected step."""
    stages = data.funnel
    table = dataset.funnel_table(stages)
    kind = "triplet" if data.train.negative is not None else "pair"
    title = f"{stages[0].count:,} {stages[0].name} became {formatting.plural(len(data.train), f'training {kind}')}"
    figure, alt = dataset.funnel_figure(table, title), "; ".join(stage.sentence() for stage in stages)
    display.figure(figure, name="funnel", key=f"{name}.funnel", alt=alt, data=table)
    notes = [f"- {display.escaped(f'{stage.name}: {stage.note}')}" for stage in stages if stage.note]
    st.caption("\n".join(notes))
    with_examples = {stage.name: stage for stage in stages if stage.examples}
    titles = {step: f"{step} · {formatting.count(stage.count)}" for step, stage in with_examples.items()}
    step = st.pills(
        "Examples of a step",
        list(titles),
        default=list(titles)[-1],
        required=True,
        format_func=lambda step: titles.get(step, step),
        **url.bound(f"{name}.step", titles.values()),
    )
    if step in with_examples:
        _examples(with_examples[step], data)


def _examples(stage: Stage, data: DatasetSplits) -> None:
    labels = row_labels(stage, data)
    cells = display.columns(len(stage.examples), min_width=260, border=True)
    for cell, texts in zip(cells, stage.examples, strict=True):
        with cell:
            for label, text in zip(labels, texts, strict=True):
                display.plain_text(f":{COLORS[label]}[{label}]" if label in COLORS else label, text)


def row_labels(stage: Stage, data: DatasetSplits) -> tuple[str, ...]:
    """Return the label of each text in a step's examples, which depends on the first step."""
    if stage.name in LABELS:
        return LABELS[stage.name]
    triplets = data.train.negative is not None
    match data.funnel[0].name:
        case "sentences":
            labels: tuple[str, ...] = (
                ("anchor", "positive", "negative") if triplets else ("anchor", "neighbor", "label")
            )
        case "positive pairs":
            with_negative = stage.name == "negatives" or (triplets and stage.name == "training rows")
            labels = ("query", "document", *(("negative",) if with_negative else ()), "label")
        case _:
            labels = ("premise", "hypothesis", "class")
    return labels[: len(stage.examples[0])]
