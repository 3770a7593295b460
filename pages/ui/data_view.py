"""The four steps of the Data page: what was read, what the columns mean, what is odd, and what shape results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pandas as pd
import streamlit as st

from bsc_core.data import ExperimentData, Finding, PairDataset
from bsc_core.data.columns import as_names
from bsc_core.figures import shape as shape_figures
from bsc_core.figures import theme
from bsc_core.losses.catalogue import CATALOGUE
from bsc_core.recipes.fitting import fitting_losses, shape_of
from pages.ui import show, words

ICONS = {"error": ":red[:material/error:]", "warning": ":orange[:material/warning:]", "info": ":blue[:material/info:]"}
SEVERITIES = {"error": "error", "warning": "warning", "info": "note"}
ROWS_SHOWN = 200


def summaries(data: ExperimentData, findings: list[Finding]) -> None:
    """Four cards in the order of the work, each with its outcome."""
    rejected = sum(len(report.rejected) for report in data.reports)
    counts = Counter(finding.severity for finding in findings)
    worst = next((name for name in SEVERITIES if counts[name]), "info")
    cards = (
        (
            "1 · Source",
            theme.many(sum(report.rows_read for report in data.reports), "row"),
            f"{theme.count(rejected)} rejected",
        ),
        ("2 · Columns", _roles(data), "guessed from the header" if data.train.report.guessed else "named, not guessed"),
        ("3 · Audit", theme.many(counts[worst], SEVERITIES[worst]), _other_findings(counts, worst)),
        ("4 · Shape", theme.many(len(data.train), "training pair"), _other_parts(data)),
    )
    for column, (title, value, detail) in zip(show.columns(4, least=200, border=True), cards, strict=True):
        with column:
            st.caption(title)
            st.markdown(f"**{value}**")
            st.caption(detail)


def _roles(data: ExperimentData) -> str:
    roles = data.train.report.columns.model_dump(exclude_none=True)
    return ", ".join(role.replace("_", " ") for role in roles)


def _other_findings(counts: Counter[str], worst: str) -> str:
    others = [theme.many(counts[name], word) for name, word in SEVERITIES.items() if name != worst and counts[name]]
    return ", ".join(others) or "nothing else found"


def _other_parts(data: ExperimentData) -> str:
    parts = [f"{theme.count(len(part))} {name}" for name, part in data.parts.items() if name != "train"]
    return ", ".join([*parts, *([f"{theme.count(len(data.corpus))} in the corpus"] if data.corpus else [])])


def source(data: ExperimentData) -> None:
    """Each file with its rows read and kept, and the rejected rows with line, field and reason."""
    files = [
        {
            "file": Path(report.source).name,
            "rows read": report.rows_read,
            "kept": report.rows_kept,
            "rejected": len(report.rejected),
        }
        for report in data.reports
    ]
    st.dataframe(files, hide_index=True, key="data.files", alt="Files with rows read, kept and rejected")
    rejected = [
        {
            "file": Path(report.source).name,
            report.unit: one.line,
            "field": one.field or "whole row",
            "reason": one.reason,
        }
        for report in data.reports
        for one in report.rejected
    ]
    if rejected:
        st.markdown(f"**{theme.many(len(rejected), 'row')} could not be used**; every other row was kept.")
        st.dataframe(rejected, hide_index=True, key="data.rejected", alt="Rejected rows with line, field and reason")
    st.markdown("**The first training pairs**")
    pairs_table(data.train, range(min(ROWS_SHOWN, len(data.train))), key="data.first")


def pairs_table(dataset: PairDataset, rows: range | list[int], *, key: str) -> None:
    """Rows of a dataset as a table; texts are shown letter by letter."""
    frame = pd.DataFrame(
        {
            "line": dataset.line[list(rows)],
            "query": dataset.texts.take(dataset.query[list(rows)]),
            "document": dataset.texts.take(dataset.document[list(rows)]),
        }
    )
    if dataset.label is not None:
        frame["label"] = dataset.label[list(rows)]
    if dataset.negative is not None:
        frame["negative"] = dataset.texts.take(dataset.negative[list(rows)])
    if dataset.classes is not None:
        names = dataset.class_names
        frame["class"] = [names[number] if names else str(number) for number in dataset.classes[list(rows)]]
    number = st.column_config.NumberColumn(format="%.2f", width="small")
    st.dataframe(frame, hide_index=True, height=280, key=key, column_config={"label": number}, alt="Pairs of texts")


def findings(data: ExperimentData, found: list[Finding]) -> None:
    """What is odd, worst first: what, why it matters, what to do, and the rows."""
    if not found:
        st.caption("Nothing odd was found.")
    for number, finding in enumerate(found):
        with st.container(border=True):
            st.markdown(ICONS[finding.severity] + f" **{SEVERITIES[finding.severity].capitalize()}**")
            st.text(finding.title)
            st.text(f"{finding.detail} {finding.remedy}")
            if len(finding.rows):
                with st.expander(
                    f"{theme.many(len(finding.rows), 'row')} of {finding.part}", key=f"data.finding.{number}"
                ):
                    rows = finding.rows[:ROWS_SHOWN].tolist()
                    pairs_table(data.parts[finding.part], rows, key=f"data.finding.{number}.rows")


def shape(data: ExperimentData) -> None:
    """How many of what, and the losses that fit."""
    train = data.train
    measures = {
        "Distinct texts": theme.count(len(data.texts)),
        "Distinct queries": theme.count(len(train.distinct_queries)),
        "Positive pairs": theme.share(float(train.positive.mean())),
        "Held out (dev)": theme.count(len(data.dev)),
        "Corpus": theme.count(len(data.corpus)) if data.corpus else "none",
    }
    for column, (name, value) in zip(show.columns(len(measures), least=150), measures.items(), strict=True):
        column.metric(name, value, help=words.help_text("threshold") if name == "Positive pairs" else None)
    losses(train)


def pictures(data: ExperimentData) -> None:
    """How long the texts are and how the labels lie."""
    train = data.train
    left, right = show.columns(2, least=300)
    lengths = shape_figures.length_table(data.texts.take(train.query), data.texts.take(train.document))
    with left:
        show.figure(
            shape_figures.length_figure(lengths), name="lengths", alt="Words in the queries and documents", data=lengths
        )
    with right:
        if train.label is None:
            st.caption("There are no labels: every pair counts as positive.")
        else:
            table = shape_figures.label_table(train.label, train.threshold)
            show.figure(
                shape_figures.label_figure(table, train.threshold), name="labels", alt="Labels of the pairs", data=table
            )


def losses(train: PairDataset) -> None:
    """The losses that these pairs can feed, each with what it is for."""
    st.markdown("**Losses that fit this shape**", help=words.help_text("loss"))
    lines = [
        {"loss": name, "title": card.title, "when to choose it": card.when}
        for name in fitting_losses(shape_of(train))
        for card in [CATALOGUE[name]]
    ]
    st.dataframe(lines, hide_index=True, key="data.losses", alt="Losses that fit these data")


def column_names(value: str | tuple[str, ...] | None) -> str:
    """The columns of a role as one text."""
    return " + ".join(as_names(value)) if value else "—"
