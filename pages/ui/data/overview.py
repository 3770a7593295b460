"""Overview of a dataset: summary cards, rows read, findings, shape, fitting losses and export."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import streamlit as st

from bsc_core import formatting
from bsc_core.config import DataConfig
from bsc_core.data import AuditFinding, DatasetSplits, PairDataset, TextTable
from bsc_core.data.io.export import as_parquet, as_tsv, exported_columns
from bsc_core.data.io.sources import is_hub_id
from bsc_core.data.text_normalization import find_words
from bsc_core.figures.batches import dataset as dataset_figures
from bsc_core.losses.catalog import CATALOG
from bsc_core.presets.suitable_losses import shape_of, suitable_losses
from bsc_core.types import Ids
from bsc_core.users.access import dataset_access, write_dataset_access
from pages.ui.components import data_cache, display, glossary, turns, url, users

ICONS = {"error": ":red[:material/error:]", "warning": ":orange[:material/warning:]", "info": ":blue[:material/info:]"}
SEVERITIES = {"error": "error", "warning": "warning", "info": "note"}
ARROW = ":material/arrow_forward:"
REJECTED_SHOWN = 200
PROBLEMS_SHOWN = 2
ROWS_SHOWN = 200  # per page of a table
CARD_WIDTH = 200  # pixels, at least
# Four cards in a row, or two if there is too little room, never three.
CARDS_STYLE = f"""<style>.st-key-data-cards {{ container-type: inline-size; }}
@container (max-width: {4 * CARD_WIDTH + 3 * 16}px) {{
  .st-key-data-cards :has(> [data-testid="stGridCell"]) {{
    grid-template-columns: repeat(auto-fit, minmax(max({CARD_WIDTH}px, 40%), 1fr)) !important;
  }}
}}</style>"""
FORMATS = {
    "TSV": ("tsv", "text/tab-separated-values", as_tsv),
    "Parquet": ("parquet", "application/octet-stream", as_parquet),
}
EXPORT_PREVIEW = 5
EXPORT = "data.export"
PAGE = "page"  # end of the key of the page of a table
SPLIT, FIND, LABEL = "data.rows.split", "data.rows.find", "data.rows.label"
MAX_FIND = 200  # characters of the words to find
PARAMETERS = (f"{EXPORT}.*", "data.step", f"data.rows*.{PAGE}", SPLIT, FIND, LABEL, f"data.finding.*.{PAGE}")


def summaries(data: DatasetSplits, findings: list[AuditFinding]) -> None:
    """Draw four cards: source, columns, audit and shape.

    Args:
        data: The dataset.
        findings: Audit findings of the rows as read, before the filters.
    """
    rejected = sum(len(report.rejected) for report in data.reports)
    counts = Counter(of_kind[0].severity for of_kind in by_kind(findings) if not is_filtered(data, of_kind[0]))
    counted = [formatting.plural(counts[name], noun) for name, noun in SEVERITIES.items() if counts[name]]
    audit_detail = ", ".join(counted[1:]) or ("no other findings" if counted else "all checks passed")
    if data.filtered:
        dropped = formatting.plural(sum(rows for _, rows in data.filtered), "row")
        audit_detail += f" · filters dropped {dropped}"
    documents = 0 if data.corpus is None else data.corpus.report.rows_read
    read = formatting.plural(sum(report.rows_read for report in data.reports) - documents, "row")
    read += f", {formatting.plural(documents, 'document')}" if documents else ""
    roles = data.train.report.columns.model_dump(exclude_none=True)
    columns = ", ".join(role.replace("_", " ") for role in roles)
    rows = formatting.plural(len(data.train), f"training {'pair' if data.train.negative is None else 'triplet'}")
    others = [f"{formatting.count(len(part))} {name}" for name, part in data.splits.items() if name != "train"]
    others += [f"{formatting.count(len(data.corpus))} in the corpus"] if data.corpus else []
    cards = (
        ("1 · Source", read, f"{formatting.count(rejected)} rejected"),
        ("2 · Columns", columns, "guessed from the header" if data.train.report.guessed else "selected"),
        ("3 · Audit", counted[0] if counted else "no problems", audit_detail),
        ("4 · Shape", rows, ", ".join(others)),
    )
    st.html(CARDS_STYLE)
    with st.container(key="data.cards"):
        cells = display.columns(4, min_width=CARD_WIDTH, border=True)
    for cell, (title, value, detail) in zip(cells, cards, strict=True):
        with cell:
            st.caption(title)
            st.markdown(f"**{value}**")
            st.caption(detail)


def by_kind(findings: list[AuditFinding]) -> list[list[AuditFinding]]:
    """Group the findings as the cards of the audit do: those of all splits together, notes about all rows last."""
    kinds: dict[tuple[bool, str, str | None], list[AuditFinding]] = {}
    for finding in findings:
        is_note = finding.severity == "info" and not len(finding.rows)
        kinds.setdefault((is_note, finding.code, finding.filter), []).append(finding)
    return [kinds[kind] for kind in sorted(kinds, key=lambda kind: kind[0])]


def is_filtered(data: DatasetSplits, finding: AuditFinding) -> bool:
    """Whether the filter of a finding is on."""
    return finding.filter in dict(data.filtered)


def source(data: DatasetSplits) -> None:
    """Draw the pairs and the rows read from each file; above the pairs, the rejected rows with their reasons."""
    of_rows = st.container()
    files = [
        {
            "File": _file_name(report.source),
            "Rows read": formatting.count(report.rows_read),
            "Used": formatting.count(report.rows_valid),
            "Rejected": formatting.count(len(report.rejected)),
        }
        for report in data.reports
    ]
    st.dataframe(files, hide_index=True, key="data.files", alt="Files with rows read, used and rejected")
    for report in data.reports:
        if report.separator:
            st.caption(
                f"{display.escaped(_file_name(report.source))}: the columns are separated by {report.separator}."
            )
    rejected = [
        {
            "file": _file_name(report.source),
            report.unit: row.line,
            "field": row.field or "all fields",
            "reason": row.reason,
        }
        for report in data.reports
        for row in report.rejected
    ]
    if rejected:
        shown = f" The first {REJECTED_SHOWN} are shown." if len(rejected) > REJECTED_SHOWN else ""
        number = formatting.plural(len(rejected), "row")
        st.markdown(f"**{number} could not be used**; all other rows are used.{shown}")
        st.dataframe(
            rejected[:REJECTED_SHOWN],
            hide_index=True,
            key="data.rejected",
            alt="Rejected rows with line, field and reason",
        )
        of_rows = st.container()
    with of_rows:
        _draw_rows(data)


def _draw_rows(data: DatasetSplits) -> None:
    """Draw the rows of a split, all of them or those with words and labels that can be selected."""
    splits = list(data.splits)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        split = st.segmented_control("Rows of", splits, default=splits[0], required=True, **url.bound(SPLIT, splits))
        split = split if split in splits else splits[0]
        dataset = data.splits[split]
        words = st.text_input(
            "Find words",
            max_chars=MAX_FIND,
            placeholder="words in one of the texts of a row",
            width=300,
            help="Rows with a text that has all of these words. If there are none, parts of longer words match.",
            **url.bound(FIND),
        )
        kinds = ["positive", "negative"] if 0 < dataset.positive.mean() < 1 else []
        kind = st.segmented_control("Label", kinds, **url.bound(LABEL, ["positive", "negative"])) if kinds else None
    rows = np.flatnonzero(dataset.positive == (kind == "positive")) if kind else np.arange(len(dataset))
    if words.strip():
        columns = [column[rows] for column in dataset.text_columns]
        rows = rows[np.isin(columns, _texts_with(dataset.texts, words)).any(axis=0)]
    if not kind and not words.strip():
        pairs_table(dataset, rows, key="data.rows" if split == splits[0] else f"data.rows.{split}")  # each has pages
        return
    number = f"{formatting.count(len(rows))} of {formatting.plural(len(dataset), 'row')}"
    st.caption(number + (f", the first {ROWS_SHOWN} are shown." if len(rows) > ROWS_SHOWN else "."))
    if len(rows):
        pairs_table(dataset, rows[:ROWS_SHOWN], key="data.rows.found")


@turns.cached(max_entries=16, show_spinner=False, hash_funcs={TextTable: lambda texts: texts.digest})
def _texts_with(texts: TextTable, words: str) -> Ids:
    return np.flatnonzero(find_words(texts, words)).astype(np.int32)


def sharing(key: str) -> None:
    """Draw the button that shares an uploaded dataset with other users of the app."""
    if key not in data_cache.SAMPLES and data_cache.datasets()[key].may_change:
        folder = data_cache.run_store().uploads_folder / key
        access = dataset_access(folder)

        def share(names: list[str]) -> None:
            write_dataset_access(folder, access.model_copy(update={"shared_with": tuple(names)}))

        users.draw_share_button(key, access, share)


def _file_name(source: str) -> str:
    return source if is_hub_id(source) else Path(source).name


def pairs_table(dataset: PairDataset, rows: range | Ids, *, key: str) -> None:
    """Draw rows of a dataset as a table, in pages of ROWS_SHOWN rows; texts are shown character by character."""
    pages, page, of_table = -(-len(rows) // ROWS_SHOWN), 1, st.container()
    if pages > 1:
        page = st.pagination(pages, **url.bound(f"{key}.{PAGE}", range(1, pages + 1)))
    ids = list(rows[(page - 1) * ROWS_SHOWN : page * ROWS_SHOWN])
    texts, names = dataset.texts, dataset.class_names

    def cells(column: Ids) -> list[str]:
        return [display.cell(text) for text in texts.take(column[ids])]

    table: dict[str, Any] = {"line": dataset.line[ids]}
    if dataset.label is not None:
        table["label"] = dataset.label[ids]
    if dataset.classes is not None:
        table["class"] = [names[number] if names else str(number) for number in dataset.classes[ids]]
    if dataset.label is None and dataset.classes is not None and np.array_equal(dataset.query, dataset.document):
        table["sentence"] = cells(dataset.query)
    else:
        table |= {"query": cells(dataset.query), "document": cells(dataset.document)}
    if dataset.negative is not None:
        table["negative"] = cells(dataset.negative)
    label = st.column_config.NumberColumn(format="%.2f", width="small")
    of_table.dataframe(
        table, hide_index=True, height=280, key=key, column_config={"label": label}, alt="Pairs of texts"
    )


def finding_text(*findings: AuditFinding, filtered: bool = False) -> None:
    """Draw what is wrong, why it matters, and what to do, for findings of one kind, the most severe first."""
    icon = ":green[:material/check_circle:] **Fixed:**" if filtered else ICONS[findings[0].severity]
    st.markdown("  \n".join(f"{icon} **{display.escaped(finding.title)}**" for finding in findings))
    details = [(f"{finding.detail.rstrip('.')}. {finding.suggestion}", finding.split) for finding in findings]
    several = len({detail for detail, _ in details}) > 1
    lines = [f"{split.capitalize()}: {detail}" if several else detail for detail, split in details]
    st.text("\n".join(dict.fromkeys(lines)))


def finding_rows(rows: DatasetSplits, finding: AuditFinding, name: str) -> None:
    """Draw the rows of a finding in an expander.

    Args:
        rows: The rows as read, which the finding's row numbers refer to.
        finding: The finding; without rows, nothing is drawn.
        name: Name of the finding on the page, for the session keys.
    """
    if not len(finding.rows):
        return
    label = f"{formatting.plural(len(finding.rows), 'row')} of {finding.split}"
    with st.expander(label, key=f"data.finding.{name}"):
        pairs_table(rows.splits[finding.split], finding.rows, key=f"data.finding.{name}.rows")


def shape(data: DatasetSplits) -> None:
    """Draw the counts of a dataset, the distributions of lengths and labels, and the losses that fit it."""
    train = data.train
    texts, positive = len(np.unique(np.concatenate(train.text_columns))), "Positive pairs of train"
    counts = {
        "Distinct texts of train": formatting.count(texts),
        "Distinct queries of train": formatting.count(len(train.distinct_queries)),
        positive: formatting.percent(float(train.positive.mean())),
        "Pairs of dev": formatting.count(len(data.dev)),
        "Documents of the corpus": formatting.count(len(data.corpus)) if data.corpus else "none",
    }
    for cell, (name, value) in zip(display.columns(len(counts), min_width=190), counts.items(), strict=True):
        cell.metric(name, value, help=glossary.help_text("threshold") if name == positive else None)
    figures(data)
    st.markdown("**Losses that fit this dataset**", help=glossary.help_text("loss"))
    lines = [
        {"Loss": name, "Title": CATALOG[name].title, "When to choose it": CATALOG[name].when.replace("`", "")}
        for name in suitable_losses(shape_of(train))
    ]
    st.dataframe(lines, hide_index=True, key="data.losses", alt="Losses that fit these data")


def problems(data: DatasetSplits, findings: list[AuditFinding], show: Callable[[], None]) -> None:
    """Draw the most severe errors and warnings in a line each, and the button that shows all findings.

    Args:
        data: The dataset.
        findings: Audit findings of the rows as read; those that a filter fixes are left out.
        show: Shows the findings.
    """
    kinds = by_kind(findings)
    present = [one for one, *_ in kinds if not is_filtered(data, one)]
    found = [one for one in present if one.severity != "info"]
    lines = [f"{ICONS[one.severity]} {display.escaped(one.title)}" for one in found[:PROBLEMS_SHOWN]]
    others = len(found) - PROBLEMS_SHOWN
    lines += [f"and {formatting.plural(others, 'other problem')}"] if others > 0 else []
    with st.container(horizontal=True, vertical_alignment="center", key="data.problems"):
        st.markdown("  \n".join(lines) or ":green[:material/check_circle:] No errors or warnings.", width="content")
        number = formatting.plural(len(present), "finding" if found else "note")
        fixed = len(kinds) - len(present)
        more = f" ({formatting.count(fixed)} more {'is' if fixed == 1 else 'are'} fixed)" if fixed else ""
        st.button(f"Show {number} of the audit{more}", key="data.findings", type="tertiary", icon=ARROW, on_click=show)


def figures(data: DatasetSplits) -> None:
    """Draw the distributions of lengths and, where they differ, of labels."""
    train = data.train
    labels = None if train.label is None else dataset_figures.label_table(train.label, train.threshold)
    has_labels = labels is not None and len(labels) > 1
    left, right = display.columns(2, min_width=300) if has_labels else (st.container(), st.container())
    words = dataset_figures.word_counts(data.texts.take(train.query), data.texts.take(train.document))
    lengths = dataset_figures.length_table(words)
    with left:
        title = dataset_figures.length_title(words)
        figure = dataset_figures.length_figure(lengths, title)
        display.figure(figure, name="lengths", alt=f"Words per text. {title}.", data=lengths)
        last = lengths["low"].max()
        st.caption(f"Training rows by words per text; the last bar has the texts of {last:,} and more words.")
    with right:
        if train.label is None:
            st.caption("This dataset has no labels: every pair is positive.")
        elif not has_labels:
            low, high = float(train.label.min()), float(train.label.max())
            st.caption(
                f"All training pairs have the label {low:g}." if low == high else f"All labels: {low:g} to {high:g}."
            )
        else:
            figure = dataset_figures.label_figure(labels, train.threshold)
            display.figure(figure, name="labels", alt="Labels of the pairs", data=labels)
            st.caption("Training pairs by their label; the dashed line is the threshold of positive pairs.")


def export(data: DatasetSplits, name: str) -> None:
    """Draw the splits and formats to select, the first rows, and the button; the file is built on the click."""
    left, right = st.columns(2, vertical_alignment="bottom")
    names = list(data.splits)
    parts = (
        left.pills("Splits", names, selection_mode="multi", default=names, **url.bound(f"{EXPORT}.parts", names))
        or names
    )
    kind = right.segmented_control(
        "Format", list(FORMATS), default="TSV", required=True, **url.bound(f"{EXPORT}.format", FORMATS)
    )
    suffix, mime, encode = FORMATS[kind or "TSV"]
    rows = sum(len(data.splits[part]) for part in parts)
    preview = exported_columns(data, parts, rows=EXPORT_PREVIEW)
    left_out = {name for part in parts for name in exported_columns(data, [part], rows=1)} - set(preview)
    threshold = data.train.threshold
    rescaled = data.train.label is not None and threshold != DataConfig.model_fields["threshold"].default
    note = f" Set `data.threshold` to {threshold:g} when you read it." if rescaled else ""
    note += f" Left out: {', '.join(sorted(left_out))}, since a split lacks it." if left_out else ""
    st.caption(
        f"{formatting.plural(rows, 'row')} with the columns {', '.join(preview)}; the first rows are below. You can "
        f"import the file here again or train on it with `bsc train`.{note}"
    )
    st.dataframe(preview, hide_index=True, key="data.export.first", alt="The first rows of the file")
    display.download(
        f"Save {formatting.plural(rows, 'row')} as {kind}",
        lambda: encode(exported_columns(data, parts)),
        type="secondary",
        file_name=f"{name}.{suffix}",
        mime=mime,
        key="data.export.save",
    )
