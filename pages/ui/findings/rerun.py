"""Running a claim again from its details: a process that outlives the page, with its progress."""

import os
from pathlib import Path
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core import formatting
from bsc_core.jobs import reproductions
from bsc_core.paths import check_path
from bsc_core.reproduction.claims import Claim, FormName
from bsc_core.reproduction.findings import read_findings
from bsc_core.reproduction.progress import FINDINGS_FOLDER
from bsc_core.reproduction.subsets import check_files
from pages.ui.components import data_cache, display, turns, url, users

POLL_INTERVAL = "2s"
DATA = "findings.data"
OPEN = "findings.run"  # parameter of the URL: the claim whose form is open
PARAMETERS = (OPEN, "findings.form.*")
FOLDER = "BSC_DATA"  # environment variable with the default folder of datasets
FORMS: dict[str, str] = {"full": "Full experiment", "small": "Quick check"}


def folder() -> Path:
    """Return the folder of findings in this runs folder."""
    return data_cache.run_store().root / FINDINGS_FOLDER


def draw(claim: Claim, finding: dict[str, Any] | None, bar: DeltaGenerator, *, primary: bool) -> None:
    """Draw the button that runs the claim in the bar, or the progress of a run, and the error of a failed one."""
    if not users.current_user().is_owner:
        return
    for form in ("full", "small"):
        state = _state(claim.name, form)
        if state is not None and state.is_active:
            turns.fragment(_watch, run_every=POLL_INTERVAL)(claim.name, form)
            return
        if state is not None and state.error:
            display.error_box(state.error, f"{FORMS[form]} failed")
        if state is not None and form == "small" and not state.error:
            small = read_findings(folder()).get(f"{claim.name}-small")
            if small is not None:
                warning = "A few steps on sample data say nothing about the claim."
                st.caption(display.escaped(f"Quick check, {small['date']}: {small['reason']} {warning}"))
    label = "Run again" if finding else "Run"
    if st.query_params.get(OPEN) == claim.name:
        with st.container(border=True):
            _form(claim, finding)
    else:
        key = f"findings.again.{claim.name}"
        kind: Any = "primary" if primary else "secondary"
        bar.button(label, icon=":material/replay:", key=key, type=kind, on_click=_open, args=(claim.name,))


def _open(name: str | None) -> None:
    display.write_url({} if name is None else {OPEN: name}, (OPEN,))


def _state(name: str, form: FormName) -> reproductions.Reproduction | None:
    return reproductions.reproduction(data_cache.run_store(), name, form)


def _form(claim: Claim, finding: dict[str, Any] | None) -> None:
    """Draw the two forms with their cost, and the button that starts one."""
    form: Literal["full", "small"] = st.segmented_control(
        "Scope",
        list(FORMS),
        format_func=FORMS.__getitem__,
        default="full",
        required=True,
        **url.bound(f"findings.form.{claim.name}", FORMS.values()),
    )
    data_folder = ""
    if form == "full":
        cost = f"about {formatting.duration(finding['seconds'])}" if finding else "several minutes"
        runs = formatting.plural(len(claim.arms) * len(claim.seeds), "run")
        st.caption(f"Trains {runs}; takes {cost} on one CPU core. Runs shared with other claims are reused.")
        folders = ", ".join(sorted({subset.folder for subset in claim.subsets.values()}))
        data_folder = st.text_input(
            "Folder of the datasets",
            key=DATA,
            value=os.environ.get(FOLDER, ""),
            placeholder=f"folder that contains {folders}",
            persist_state="session",
        )
    else:
        st.caption(
            "Takes seconds on the sample data. It checks that the experiment runs, not whether the claim is true."
        )
    with st.container(horizontal=True):
        missing = form == "full" and not data_folder.strip()
        started = st.button("Start", key=f"findings.run.{claim.name}", type="primary", disabled=missing)
        st.button("Cancel", key=f"findings.close.{claim.name}", type="tertiary", on_click=_open, args=(None,))
    if started:
        with display.show_errors(stop=False):
            _start(claim, form, data_folder)


def _start(claim: Claim, form: FormName, data_folder: str) -> None:
    data = check_path(data_folder.strip()) if form == "full" else None
    if data is not None:
        check_files([*claim.subsets.values(), *claim.extra_data.values()], data)
    reproductions.start_reproduction(data_cache.run_store(), claim.name, form, data)
    _open(None)
    st.rerun()


def _watch(name: str, form: FormName) -> None:
    """Draw the progress; rerun the page when the process has ended."""
    state = _state(name, form)
    if state is None or not state.is_active:
        st.rerun(scope="app")
    else:
        share = state.done / state.total if state.total else 0.0
        count = f"{state.done} of {state.total} runs" if state.total else "starting"
        st.progress(min(1.0, share), text=f"{FORMS[form]}: {display.escaped(state.activity)} · {count}")
