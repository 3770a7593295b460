"""The frame of every page: title, the question it answers, the context bar bound to the URL, and the way onward."""

from __future__ import annotations

import runpy
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import streamlit as st
from streamlit.errors import StreamlitAPIException, StreamlitPageNotFoundError
from streamlit.runtime.pages_manager import PagesManager

from bsc_core.errors import BscError
from pages.ui import footer, show, store

ENCODERS = {"bundled": "Bundled (all-MiniLM-L6-v2)", "static": "Static (fast)"}
NO_RUN = "none"
OPEN = footer.OPEN
CONTEXT = ("dataset", "encoder", "run")
RUNS_OFFERED = 500
HELD_SECONDS = 4.0
SIDEBAR = 236  # pixels
ICON = str(Path(__file__).with_name("icon.svg"))


@dataclass(frozen=True)
class Context:
    """What the bar says: the dataset's key, the encoder's name, the run's id or None."""

    dataset_key: str
    encoder: str
    run_id: str | None


def page(title: str, question: str, *, bar: bool = True) -> Context:
    """Draw the frame and return the context. Call it first on every page; `bar=False` leaves the context bar out."""
    _through_app()
    st.set_page_config(page_title=f"{title} · BSC Lab", page_icon=ICON, layout="wide", initial_sidebar_state=SIDEBAR)
    footer.draw()
    st.title(question, anchor=False)
    arrived = st.session_state.get("context_page") != title
    st.session_state["context_page"], st.session_state["context_bar"] = title, bar
    return _bar(arrived) if bar else kept()


def _through_app() -> None:
    """Go through app.py when a deep link on a fresh server reached the page without it, by its place in `pages/`."""
    if PagesManager.uses_pages_directory:
        runpy.run_path(str(Path(__file__).parents[2] / "app.py"))
        st.stop()


def kept() -> Context:
    """The context as last chosen in this session."""
    values = st.session_state.get("context", {})
    run = values.get("run", NO_RUN)
    return Context(
        values.get("dataset", store.SAMPLE), values.get("encoder", "bundled"), None if run == NO_RUN else run
    )


def _bar(arrived: bool) -> Context:
    runs = [NO_RUN, *(run.id for run in store.run_store().list()[:RUNS_OFFERED])]
    if OPEN in st.query_params:  # a link says which run to open; `run` itself is bound and may not be set by a link
        st.session_state.setdefault("context_next", {})["run"] = st.query_params[OPEN]
        del st.query_params[OPEN]
    columns = show.columns(3, least=160)
    with columns[0]:
        choices = store.datasets()
        dataset = _choice("dataset", "Dataset", list(choices), arrived)
        if dataset not in store.SAMPLES:
            st.caption(choices[dataset].label)
    with columns[1]:
        encoder = _choice("encoder", "Encoder", list(ENCODERS), arrived, open_ended=True)
    with columns[2]:
        run = _choice("run", "Run", runs, arrived)
    st.session_state["context"] = {"dataset": dataset, "encoder": encoder, "run": run}
    return kept()


def _choice(key: str, label: str, options: list[str], arrived: bool, *, open_ended: bool = False) -> str:
    """A select box in the URL that takes its value from there, else from what was chosen on the page before.

    The options are shown as they stand in the URL: the binding writes what is shown.
    """
    last = st.session_state.get("context", {}).get(key)
    sent = st.session_state.get("context_next", {}).pop(key, None)
    asked = st.query_params.get(key)
    if sent and (open_ended or sent in options):
        _jump(key, sent)
    elif arrived and not asked and last and (open_ended or last in options):
        st.session_state[key] = last
        if last != options[0]:
            with suppress(StreamlitAPIException):  # bound still by the page before, whose widget has written it
                st.query_params[key] = last
    _hold(key, options)
    if open_ended:
        options = list(dict.fromkeys([*options, *(name for name in (sent, asked, last) if name)]))
    value = st.selectbox(label, options, key=key, accept_new_options=open_ended, bind="query-params")
    return value if value and (open_ended or value in options) else options[0]


def _jump(key: str, value: str) -> None:
    """Set a widget of the bar, and remember what it showed before."""
    held = st.session_state.setdefault("context_held", {})
    held[key] = (st.session_state.get(key), value, time.monotonic())
    st.session_state[key] = value


def _hold(key: str, options: list[str]) -> None:
    """For a moment after a jump a message that was under way may still bear the old value: it does not count."""
    before, value, since = st.session_state.get("context_held", {}).get(key, (None, None, -HELD_SECONDS))
    recent = time.monotonic() - since < HELD_SECONDS
    if recent and value in options and st.session_state.get(key) == before:
        st.session_state[key] = value


def run_label(run_id: str) -> str:
    """A run's name, or its id when it has none."""
    try:
        name = store.run_store().get(run_id).config().name
    except BscError:  # written by a version with other fields: its id is still its name
        return run_id
    return f"{name} · {run_id}" if name else run_id


def go(name: str, **params: str) -> None:
    """Switch to pages/<name>.py; `dataset`, `encoder` and `run` change the context bar, others go into the URL."""
    changed = {key: params.pop(key) for key in CONTEXT if key in params}
    if st.session_state["context_bar"]:  # its widgets stand already: they change when they are drawn next
        st.session_state["context_next"] = changed
    else:
        params |= changed
    try:
        st.switch_page(f"pages/{name}.py", query_params=params)
    except StreamlitPageNotFoundError:
        st.info(f"This page runs alone; open the whole app to go on to {name}.", icon=":material/info:")


def next_step(label: str, name: str, *, key: str, icon: str = ":material/arrow_forward:", **params: str) -> None:
    """The one button at the foot of a page that carries the state to the next page."""
    if st.button(label, key=key, type="primary", icon=icon, icon_position="right"):
        go(name, **params)
