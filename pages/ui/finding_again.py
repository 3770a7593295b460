"""Putting a claim to the test again from its card: a process that outlives the page, watched while it goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st

from bsc_core.data.places import check_path
from bsc_core.figures import theme
from pages.ui import show, store

if TYPE_CHECKING:
    from bsc_core.jobs.reproductions import Reproduction
    from bsc_core.recipes.claims import FormName, Recipe

CHECK = "2s"
DATA = "findings.data"
OPEN = "findings.open"  # the recipe that is about to be run again
FOLDER = "BSC_DATA"  # names the folder of data sets before one is typed
FORMS: dict[str, str] = {"full": "In full", "small": "Small form"}


def folder() -> Path:
    """Where this runs folder keeps its findings."""
    from bsc_core.recipes.progress import KEPT

    return store.run_store().root / KEPT


def offer(recipe: Recipe, finding: dict[str, Any] | None) -> None:
    """`Run this again` with the time it takes; how far it is while one goes on; why it ended if it failed."""
    for form in ("full", "small"):
        state = _state(recipe.name, form)
        if state is not None and state.going:
            st.fragment(_watch, run_every=CHECK)(recipe.name, form)
            return
        if state is not None and state.error:
            st.markdown(f":material/error: **{FORMS[form]}: it did not come to an end**")
            st.text(state.error)
        if state is not None and form == "small" and not state.error:
            _small_result(recipe)
    label = "Run this again" if finding else "Run this"
    if st.session_state.get(OPEN) == recipe.name:
        with st.container(border=True):
            _choose(recipe, finding)
    else:
        key = f"findings.again.{recipe.name}"
        st.button(label, icon=":material/replay:", key=key, on_click=_open, args=(recipe.name,))


def _open(name: str | None) -> None:
    st.session_state[OPEN] = name


def _state(name: str, form: FormName) -> Reproduction | None:
    from bsc_core.jobs.reproductions import reproduction

    return reproduction(store.run_store(), name, form)


def _choose(recipe: Recipe, finding: dict[str, Any] | None) -> None:
    """The two forms, what each takes, and the button."""
    form: Literal["full", "small"] = st.segmented_control(
        "Form",
        list(FORMS),
        format_func=FORMS.__getitem__,
        default="full",
        key=f"findings.form.{recipe.name}",
        required=True,
    )
    given = ""
    if form == "full":
        took = f"about {theme.duration(finding['seconds'])}" if finding else "some minutes"
        st.caption(
            f"Trains {_runs(recipe)} and takes {took} of one processor core. Arms shared with other claims count once."
        )
        folders = ", ".join(sorted({subset.folder for subset in recipe.subsets.values()}))
        given = st.text_input(
            "Folder of the data sets",
            key=DATA,
            value=os.environ.get(FOLDER, ""),
            placeholder=f"the folder that holds {folders}",
            persist_state="session",
        )
    else:
        st.caption("Takes seconds on the sample data. It shows the way, and says nothing about the claim.")
    with st.container(horizontal=True):
        missing = form == "full" and not given.strip()
        wanted = st.button("Run", key=f"findings.run.{recipe.name}", type="primary", disabled=missing)
        st.button("Not now", key=f"findings.close.{recipe.name}", type="tertiary", on_click=_open, args=(None,))
    if wanted:
        with show.calm_errors(stop=False):
            _start(recipe, form, given)


def _runs(recipe: Recipe) -> str:
    return theme.many(len(recipe.arms) * len(recipe.seeds), "run")


def _start(recipe: Recipe, form: FormName, given: str) -> None:
    from bsc_core.jobs.reproductions import start_reproduction
    from bsc_core.recipes.subsets import check_there

    data = check_path(given.strip()) if form == "full" else None
    if data is not None:
        check_there([*recipe.subsets.values(), *recipe.beside.values()], data)
    start_reproduction(store.run_store(), recipe.name, form, data)
    st.session_state[OPEN] = None
    st.rerun()


def _watch(name: str, form: FormName) -> None:
    """How far it is; the page is drawn again when it has ended."""
    state = _state(name, form)
    if state is None or not state.going:
        st.rerun(scope="app")
    else:
        share = state.done / state.of if state.of else 0.0
        counted = f"{state.done} of {state.of} runs" if state.of else "starting"
        st.progress(min(1.0, share), text=f"{FORMS[form]}: {state.doing} · {counted}")


def _small_result(recipe: Recipe) -> None:
    """What the small form said, for a reader who ran it."""
    from bsc_core.recipes.findings import read_findings

    found = read_findings(folder())
    small = found.get(f"{recipe.name}-small")
    if small is not None:
        warning = "These few steps on sample data say nothing about the claim."
        st.caption(f"Small form, {small['date']}: {small['reason']} {warning}")
