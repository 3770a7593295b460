"""The audit on the Data page: what was found in the rows as they were read, and what each remedy drops."""

from __future__ import annotations

import streamlit as st

from bsc_core.config import Remedy, SentenceColumns
from bsc_core.data import ExperimentData, Finding, audit
from bsc_core.data.remedies import REMEDIES
from bsc_core.errors import BscError
from bsc_core.figures import theme
from pages.ui import data_view, show, store, uploads

COUNTED = 100_000  # rows up to which it is counted at once what each remedy would drop
FOR_PAIRS = ("drop_self_pairs", "drop_queries_without_positive")  # which mean nothing for sentences


def found(key: str, encoder: str) -> list[Finding]:
    """What the audit finds in a dataset's rows as they were read, whatever is mended in them or made of them."""
    rows = store.source_rows(key)
    return _found(rows, _name(rows), store.encoder_config(encoder).max_length)


@st.cache_resource(max_entries=16, show_spinner="Looking at the rows …")
def _found(_rows: ExperimentData, name: tuple[str, ...], max_length: int) -> list[Finding]:
    findings = audit(_rows, max_length=max_length)
    if not isinstance(_rows.train.report.columns, SentenceColumns):
        return findings
    about_pairs = ("labelled negatives", "Documents of", "on the other side of")  # a sentence stands as its own pair
    return [
        finding
        for finding in findings
        if finding.remedy_flag not in FOR_PAIRS and not any(words in finding.title for words in about_pairs)
    ]


def _name(rows: ExperimentData) -> tuple[str, ...]:
    reports = [str((report.source, len(report.rejected))) for report in rows.reports]
    return (*(part.digest for part in rows.parts.values()), *reports)


@st.cache_resource(max_entries=64, show_spinner="Counting what the remedies would drop …")
def _dropped(_rows: ExperimentData, name: tuple[str, ...], remedy: Remedy) -> int | str:
    """How many rows a remedy would drop, or why it cannot be used."""
    try:
        return REMEDIES[remedy](_rows)[1]
    except BscError as fault:
        return str(fault)


def draw(key: str, data: ExperimentData, findings: list[Finding]) -> None:
    """The findings, worst first, each with its rows and the switch of its remedy."""
    if not findings:
        st.caption("Nothing odd was found.")
    rows = store.source_rows(key)
    if data.remedied:
        told = ", ".join(f"{remedy.replace('_', ' ')} {theme.count(dropped)}" for remedy, dropped in data.remedied)
        st.markdown(f":green[:material/healing:] **Remedies dropped, in this order:** {told}")
    told, shown = ([finding for finding in findings if _is_note(finding) == note] for note in (True, False))
    for number, finding in enumerate(shown):
        with st.container(border=True):
            words, switch = show.columns(2, least=300)
            with words:
                data_view.finding_words(finding, mended=data_view.is_mended(data, finding))
            with switch:
                _switch(key, data, finding, number)
            data_view.finding_rows(rows, finding, number)
    if told:
        with st.container(border=True):
            for finding in told:
                data_view.finding_words(finding)


def _is_note(finding: Finding) -> bool:
    """Whether it only tells something: there are no rows to look at and nothing to switch."""
    return finding.severity == "info" and not len(finding.rows)


def _switch(key: str, data: ExperimentData, finding: Finding, number: int) -> None:
    """Switch the remedy of a finding on or off; it is kept with the dataset, for every page and run from now on."""
    remedy = finding.remedy_flag
    if remedy is None:
        return
    remedies = store.data_config(key).remedies
    widget, is_on = f"data.remedy.{key}.{number}", remedy in remedies
    st.session_state[widget] = is_on
    told, usable = _told(key, data, remedy, is_on)
    st.toggle(
        remedy.replace("_", " ").capitalize(),
        key=widget,
        disabled=not usable and not is_on,
        on_change=_turn,
        args=(key, remedy, not is_on),
        help=f"The entry `{remedy}` of `data.remedies`. It is kept with the dataset: batches, runs and exports from "
        "now on leave these rows out. The file stays as it is.",
    )
    st.caption(told)


def _told(key: str, data: ExperimentData, remedy: Remedy, is_on: bool) -> tuple[str, bool]:
    """What a remedy dropped or would drop, as a sentence, and whether it can be used."""
    of_all = f" of {', '.join(data.parts)}"
    if is_on:
        return f"dropped {theme.many(dict(data.remedied).get(remedy, 0), 'row')}{of_all}", True
    mended = store.source_rows(key, mended=True)
    if sum(len(part) for part in mended.parts.values()) > COUNTED:
        return "how many rows it drops is counted when it is switched on", True
    dropped = _dropped(mended, _name(mended), remedy)
    if isinstance(dropped, str):
        return dropped, False
    if not dropped:
        return "would drop no further row: another remedy has answered it", True
    return f"would drop {theme.many(dropped, 'row')}{of_all}", True


def _turn(key: str, remedy: Remedy, on: bool) -> None:
    others = tuple(name for name in store.data_config(key).remedies if name != remedy)
    uploads.keep_remedies(key, (*others, remedy) if on else others)
