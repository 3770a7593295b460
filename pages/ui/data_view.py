"""The four steps of the Data page: what was read, what the columns mean, what is odd, and what shape results."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core.data import ExperimentData, Finding, PairDataset
from bsc_core.data.hub import is_hub_id
from bsc_core.figures import shape as shape_figures
from bsc_core.figures import theme
from bsc_core.losses.catalogue import CATALOGUE
from bsc_core.recipes.fitting import fitting_losses, shape_of
from pages.ui import funnel_view, show, words

ICONS = {"error": ":red[:material/error:]", "warning": ":orange[:material/warning:]", "info": ":blue[:material/info:]"}
SEVERITIES = {"error": "error", "warning": "warning", "info": "note"}
ROWS_SHOWN = 200


def summaries(data: ExperimentData, findings: list[Finding]) -> None:
    """Four cards in the order of the work, each with its outcome. findings: those of the rows as they were read."""
    rejected = sum(len(report.rejected) for report in data.reports)
    counts = Counter(finding.severity for finding in findings if not is_mended(data, finding))
    worst = next((name for name in SEVERITIES if counts[name]), "info")
    cards = (
        (
            "1 · Source",
            theme.many(sum(report.rows_read for report in data.reports), "row"),
            f"{theme.count(rejected)} rejected",
        ),
        ("2 · Columns", _roles(data), "guessed from the header" if data.train.report.guessed else "named, not guessed"),
        (
            "3 · Audit",
            theme.many(counts[worst], SEVERITIES[worst]) if counts.total() else "nothing odd",
            _audit_detail(data, counts, worst),
        ),
        ("4 · Shape", theme.many(len(data.train), _row_word(data)), _other_parts(data)),
    )
    for column, (title, value, detail) in zip(show.columns(4, least=200, border=True), cards, strict=True):
        with column:
            st.caption(title)
            st.markdown(f"**{value}**")
            st.caption(detail)


def _roles(data: ExperimentData) -> str:
    roles = data.train.report.columns.model_dump(exclude_none=True)
    return ", ".join(role.replace("_", " ") for role in roles)


def _row_word(data: ExperimentData) -> str:
    return "training triplet" if data.train.negative is not None else "training pair"


def is_mended(data: ExperimentData, finding: Finding) -> bool:
    """Whether the remedy of a finding is on."""
    return finding.remedy_flag in dict(data.remedied)


def _audit_detail(data: ExperimentData, counts: Counter[str], worst: str) -> str:
    dropped = sum(rows for _, rows in data.remedied)
    mended = f" · remedies dropped {theme.many(dropped, 'row')}" if data.remedied else ""
    return _other_findings(counts, worst) + mended


def _other_findings(counts: Counter[str], worst: str) -> str:
    others = [theme.many(counts[name], word) for name, word in SEVERITIES.items() if name != worst and counts[name]]
    return ", ".join(others) or ("nothing else found" if counts[worst] else "every check has passed")


def _other_parts(data: ExperimentData) -> str:
    parts = [f"{theme.count(len(part))} {name}" for name, part in data.parts.items() if name != "train"]
    return ", ".join([*parts, *([f"{theme.count(len(data.corpus))} in the corpus"] if data.corpus else [])])


def source(data: ExperimentData) -> None:
    """Each file with its rows read and kept, and the rejected rows with line, field and reason."""
    files = [
        {
            "file": _file_name(report.source),
            "rows read": report.rows_read,
            "kept": report.rows_kept,
            "rejected": len(report.rejected),
        }
        for report in data.reports
    ]
    st.dataframe(files, hide_index=True, key="data.files", alt="Files with rows read, kept and rejected")
    rejected = [
        {
            "file": _file_name(report.source),
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


def _file_name(source: str) -> str:
    return source if is_hub_id(source) else Path(source).name


def pairs_table(dataset: PairDataset, rows: range | list[int], *, key: str) -> None:
    """Rows of a dataset as a table; texts are shown letter by letter."""
    frame = pd.DataFrame(
        {
            "line": dataset.line[list(rows)],
            "query": dataset.texts.take(dataset.query[list(rows)]),
            "document": dataset.texts.take(dataset.document[list(rows)]),
        }
    )
    if dataset.label is None and dataset.classes is not None and np.array_equal(dataset.query, dataset.document):
        frame = frame.drop(columns="document").rename(columns={"query": "sentence"})  # sentences, as they were read
    if dataset.label is not None:
        frame["label"] = dataset.label[list(rows)]
    if dataset.negative is not None:
        frame["negative"] = dataset.texts.take(dataset.negative[list(rows)])
    if dataset.classes is not None:
        names = dataset.class_names
        frame["class"] = [names[number] if names else str(number) for number in dataset.classes[list(rows)]]
    number = st.column_config.NumberColumn(format="%.2f", width="small")
    st.dataframe(frame, hide_index=True, height=280, key=key, column_config={"label": number}, alt="Pairs of texts")


def finding_words(finding: Finding, *, mended: bool = False) -> None:
    """What is odd, why it matters, and what to do."""
    told = f"{ICONS[finding.severity]} **{SEVERITIES[finding.severity].capitalize()}**"
    st.markdown(":green[:material/check_circle:] **Mended**" if mended else told)
    st.text(finding.title)
    with_stop = finding.detail if finding.detail.endswith(".") else f"{finding.detail}."
    st.text(f"{with_stop} {finding.remedy}")


def finding_rows(rows: ExperimentData, finding: Finding, number: int) -> None:
    """The rows of a finding, folded. rows: as they were read, which is what the finding counts in."""
    if not len(finding.rows):
        return
    told = f"{theme.many(len(finding.rows), 'row')} of {finding.part}"
    with st.expander(told, key=f"data.finding.{number}"):
        pairs_table(rows.parts[finding.part], finding.rows[:ROWS_SHOWN].tolist(), key=f"data.finding.{number}.rows")


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
    """How the rows were made, where they were; how long the texts are and how the labels lie."""
    if data.funnel:
        funnel_view.draw(data, name="data")
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
