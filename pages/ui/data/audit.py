"""Audit of a dataset: findings in its rows as read, each with the filter that fixes it."""

from collections import Counter
from collections.abc import Mapping

import streamlit as st

from bsc_core import formatting
from bsc_core.config import FilterName, SentenceColumns
from bsc_core.data import AuditFinding, DatasetSplits, audit
from bsc_core.data.quality.filters import FILTERS
from bsc_core.errors import BscError
from pages.ui.components import data_cache, display, page_layout, url, users
from pages.ui.data import overview, uploads

COUNTED_ROWS = 100_000  # with more rows, what a filter would drop is counted only when it is switched on
LINKED = "data.filters"  # parameter of the URL: the dataset and the names of its filters
SETTINGS = {  # code of a finding without a filter -> its button, and the tab of the page or the page with the setting
    "rejected_rows": ("Show the rejected rows", "Source"),
    "unused_split": ("Change the columns", "Columns"),
    "unused_splits": ("Change the columns", "Columns"),
    "shared_query_ids": ("Change the columns", "Columns"),
    "positives_not_in_corpus": ("Change the columns", "Columns"),
    "no_positives": ("Change the columns", "Columns"),
    "label_balance": ("Change the columns", "Columns"),
    "repeated_documents": ("Change this setting of a run", "train"),
    "many_words": ("Open the settings of a run", "train"),
    "long_texts": ("Open the settings of a run", "train"),
}
TAB = "data.tab"
REQUESTED = "train.finding"  # session key: code of the finding whose setting the New run page will open
PAIR_FINDINGS = (  # codes of findings that do not apply to sentences, each of which is read as a pair with itself
    "self_pairs",
    "queries_without_positive",
    "no_labeled_negatives",
    "shared_documents",
    "texts_across_sides",
)


def audit_dataset(key: str, encoder: str) -> list[AuditFinding]:
    """Return the findings in the rows of a dataset as read, before filters and generation."""
    findings = _audit(data_cache.source_splits(key), data_cache.encoder_config(encoder).max_seq_length)
    if data_cache.data_config(key).negatives is None:
        return findings
    return [finding for finding in findings if finding.code != "no_labeled_negatives"]  # they are generated


def _rows_key(rows: DatasetSplits) -> tuple[str, ...]:
    reports = [str((report.source, len(report.rejected))) for report in rows.reports]
    return (*(part.digest for part in rows.splits.values()), *reports)


CACHE_KEY = {DatasetSplits: _rows_key}


@st.cache_resource(max_entries=16, show_spinner="Auditing the rows …", hash_funcs=CACHE_KEY)
def _audit(rows: DatasetSplits, max_seq_length: int) -> list[AuditFinding]:
    findings = audit(rows, max_seq_length=max_seq_length)
    if not isinstance(rows.train.report.columns, SentenceColumns):
        return findings
    return [finding for finding in findings if finding.code not in PAIR_FINDINGS]


@st.cache_resource(max_entries=64, show_spinner="Counting the rows that each filter would drop …", hash_funcs=CACHE_KEY)
def _dropped(rows: DatasetSplits, name: FilterName) -> int | str:
    """Return how many rows a filter would drop, or why it cannot be used."""
    try:
        return FILTERS[name](rows)[1]
    except BscError as error:
        return str(error)


def draw(key: str, data: DatasetSplits, findings: list[AuditFinding]) -> None:
    """Draw the findings, most severe first, each with its rows and the switch of its filter."""
    if not findings:
        st.caption("No problems found.")
    rows = data_cache.source_splits(key)
    if data.funnel:
        st.caption("The findings are about the rows of the files, from which the rows of this dataset are generated.")
    if data.filtered:
        dropped = ", ".join(
            f"{formatting.plural(rows, 'row')} by {name.replace('_', ' ')}" for name, rows in data.filtered
        )
        st.markdown(f":green[:material/filter_alt:] **Filters, in this order:** {dropped}")
        st.caption("The findings count the rows as read, before these filters.")
    for of_kind in overview.by_kind(findings):
        code, name = of_kind[0].code, of_kind[0].filter
        with st.container(border=True):
            text, *switch = display.columns(2 if name else 1, min_width=300)
            with text:
                overview.finding_text(*of_kind, filtered=overview.is_filtered(data, of_kind[0]))
            if name:
                with switch[0]:
                    _switch(key, data, name, code)
            _settings_button(of_kind[0])
            for number, finding in enumerate(of_kind):
                overview.finding_rows(rows, finding, f"{code}.{number}")


def unfixed_counts(key: str, data: DatasetSplits, max_seq_length: int, handled: Mapping[str, str]) -> tuple[str, bool]:
    """Return the number of errors and warnings that no filter fixes, and whether the settings of a run handle them all.

    The text is such as `1 error, 2 warnings; 1 of them is handled by Duplicates of the loss`, names a single finding,
    and is empty without any.

    Args:
        key: Key of the dataset.
        data: The dataset.
        max_seq_length: That of the encoder of the run.
        handled: Code of a finding -> how the settings of the run handle it.
    """
    kinds = [of_kind[0] for of_kind in overview.by_kind(_audit(data_cache.source_splits(key), max_seq_length))]
    open_kinds = [one for one in kinds if one.severity != "info" and not overview.is_filtered(data, one)]
    counts = Counter(one.severity for one in open_kinds)
    text = ", ".join(formatting.plural(counts[name], name) for name in ("error", "warning") if counts[name])
    if len(open_kinds) == 1:
        text += f": {open_kinds[0].title}"
    how = [handled[one.code] for one in open_kinds if one.code in handled]
    for one in how:
        text += f", {one}" if len(open_kinds) == 1 else f"; 1 of them is {one}"
    return text, len(how) == len(open_kinds)


def _settings_button(finding: AuditFinding) -> None:
    """Draw the button that leads to the setting that a finding is about, if there is one."""
    label, target = SETTINGS.get(finding.code, ("", ""))
    if not label or finding.suggestion == "Nothing to do." or (target == "train" and not users.may_open(target)):
        return
    key = f"data.audit.{finding.code}.{finding.split}"
    if target != "train":
        st.button(label, key=key, icon=overview.ARROW, on_click=url.open_tab, args=(TAB, target))
    elif st.button(label, key=key, icon=overview.ARROW):
        st.session_state[REQUESTED] = finding.code
        page_layout.switch_page(target)


def _switch(key: str, data: DatasetSplits, name: FilterName, code: str) -> None:
    """Draw the switch of the filter for findings with a code; all pages and later runs use it."""
    widget, is_on = f"data.filter.{key}.{code}.{name}", name in data_cache.data_config(key).filters
    st.session_state[widget] = is_on
    effect, usable = _effect(key, data, name, is_on)
    may_change = data_cache.datasets()[key].may_change
    st.toggle(
        name.replace("_", " ").capitalize(),
        key=widget,
        disabled=not may_change or (not usable and not is_on),
        on_change=_set_filter,
        args=(key, name, not is_on),
        help=f"Adds `{name}` to `data.filters` of this dataset. Batches, later runs and exports leave these rows out. "
        "The file is not changed.",
    )
    st.caption(display.escaped(effect))


def _effect(key: str, data: DatasetSplits, name: FilterName, is_on: bool) -> tuple[str, bool]:
    """Return what a filter dropped or would drop, in words, and whether it can be used."""
    of_all = f" of {' and '.join(data.splits)}"
    if is_on:
        names = [filter_name for filter_name, _ in data.filtered]
        before = sum(rows for _, rows in data.filtered[: names.index(name)]) if name in names else 0
        earlier = f"; the filters before it had dropped {formatting.plural(before, 'row')}" if before else ""
        return f"dropped {formatting.plural(dict(data.filtered).get(name, 0), 'row')}{of_all}{earlier}", True
    filtered = data_cache.source_splits(key, filtered=True)
    if sum(len(part) for part in filtered.splits.values()) > COUNTED_ROWS:
        return "switch it on to count the rows that it drops", True
    dropped = _dropped(filtered, name)
    if isinstance(dropped, str):
        return users.without_paths(dropped), False
    if not dropped:
        return "would drop no further rows: another filter already drops them", True
    rows = formatting.plural(dropped, "more row" if data.filtered else "row")
    return f"would drop {rows}{of_all}", True


def _set_filter(key: str, name: FilterName, on: bool) -> None:
    others = tuple(other for other in data_cache.data_config(key).filters if other != name)
    _set_filters(key, (*others, name) if on else others)


def _set_filters(key: str, names: tuple[str, ...]) -> None:
    uploads.save_filters(key, names)
    _write_filters(key, names)


def _write_filters(key: str, names: tuple[str, ...]) -> None:
    display.write_url({LINKED: f"{key}:{','.join(names)}"} if names else {}, (LINKED,))


def draw_filters_of_link(key: str) -> None:
    """Report filters of a link that differ from those of the dataset, with a button that uses them.

    A link alone does not change the filters, since later runs on the dataset use them.
    """
    dataset, _, text = st.query_params.get(LINKED, "").partition(":")
    linked, current = tuple(filter(None, text.split(","))), data_cache.data_config(key).filters
    if dataset != key or set(linked) == set(current):
        _write_filters(key, current)
        return
    if not set(linked) <= set(FILTERS):
        url.check(LINKED, [f"{key}:{name}" for name in FILTERS])
        return
    of_link, used = (", ".join(names).replace("_", " ") or "none" for names in (linked, current))
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.text(f"Filters of this link: {of_link}. Filters of the dataset now: {used}.", width="stretch")
        if data_cache.datasets()[key].may_change:
            st.button("Use the filters of the link", key=f"{LINKED}.use", on_click=_set_filters, args=(key, linked))
