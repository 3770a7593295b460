"""Layout of every page: title, context bar bound to the URL, jobs in the sidebar, and links to other pages."""

import runpy
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.errors import StreamlitAPIException, StreamlitPageNotFoundError

from pages.ui.components import data_cache, display, navigation, sidebar_jobs

ENCODERS = {"bundled": "Bundled (all-MiniLM-L6-v2)", "static": "Static (fast)"}
NO_RUN = "none"
NOT_FOUND = "context_not_found"  # session key: choices of a link that do not exist, by key, as (label, value)
OPEN = sidebar_jobs.OPEN
CONTEXT = ("dataset", "encoder", "run")
DEFAULTS = {"dataset": data_cache.SAMPLE, "encoder": "bundled", "run": NO_RUN}
MAX_RUNS = 500  # that the bar offers
BUTTON_STYLE = (  # Streamlit's text on primary buttons is white, which the dark theme's color is too light for
    "<style>[data-testid='stBaseButton-primary'] { color: light-dark(#FFFFFF, #0B1016); }</style>"
)
ARRIVED = "context_arrived"  # session key
STALE_SECONDS = 4.0  # a widget message sent before a jump may arrive this late
APP = Path(__file__).parents[3] / "app.py"


@dataclass(frozen=True)
class Context:
    """The selection in the context bar: key of the dataset, name of the encoder, id of the run or None."""

    dataset_key: str
    encoder: str
    run_id: str | None


def setup_page(title: str, heading: str, *, bar: Sequence[str] = CONTEXT) -> Context:
    """Draw what all pages share and return the context. Call it first on every page.

    bar: the selections of the context bar, of CONTEXT; the others keep the value of the link or the previous page.
    """
    _run_through_app()
    st.set_page_config(f"{title} · BSC Lab", **navigation.PAGE_CONFIG)
    st.html(BUTTON_STYLE)
    sidebar_jobs.draw()
    st.title(heading, anchor=False)
    arrived = st.session_state.get("context_page") != title
    st.session_state["context_page"], st.session_state["context_bar"] = title, bar
    st.session_state[ARRIVED] = arrived
    return _bar(bar, arrived) if bar else saved_context()


def arrived() -> bool:
    """Whether this is the first run of the page since it was opened."""
    return bool(st.session_state[ARRIVED])


def _run_through_app() -> None:
    """Run app.py first when a link opened the page of a fresh server, which Streamlit finds in `pages/`.

    A page that is itself the main script (`streamlit run pages/data.py`) runs without app.py.
    """
    if st.session_state.pop(navigation.THROUGH_APP, False):
        return
    try:
        st.Page("pages/start.py")  # relative to the main script
    except StreamlitAPIException:
        return
    runpy.run_path(str(APP))
    st.stop()


def saved_context() -> Context:
    """Return the context that was last selected in this session."""
    context = DEFAULTS | st.session_state.get("context", {})
    run = None if context["run"] == NO_RUN else context["run"]
    return Context(context["dataset"], context["encoder"], run)


def _bar(names: Sequence[str], arrived: bool) -> Context:
    runs = [NO_RUN, *(run.id for run in data_cache.run_store().list()[:MAX_RUNS])]
    if OPEN in st.query_params:  # names the run to open; `run` itself is bound to a widget and cannot be set by a link
        st.session_state.setdefault("context_next", {})["run"] = st.query_params[OPEN]
        del st.query_params[OPEN]
    choices = data_cache.datasets()
    options = {"dataset": list(choices), "encoder": list(ENCODERS), "run": runs}
    context = st.session_state.get("context", {}) | {
        name: _hidden_choice(name) for name in CONTEXT if name not in names
    }
    for name, cell in zip(names, display.columns(len(names), min_width=160), strict=True):
        with cell:
            context[name] = _choice(name, name.capitalize(), options[name], arrived, open_ended=name == "encoder")
            if name == "dataset" and context[name] not in data_cache.SAMPLES:
                st.caption(choices[context[name]].label)
    st.session_state["context"] = context
    for label, value in st.session_state.get(NOT_FOUND, {}).values():
        about = f"The {label.lower()} of this link was not found: {value}. Select another one above."
        st.warning(about, icon=":material/link_off:")
    return saved_context()


def _hidden_choice(key: str) -> str:
    """Return the value that another page sent, else that of the URL, else that of the previous page."""
    sent = st.session_state.get("context_next", {}).pop(key, None)
    return str(sent or st.query_params.get(key) or st.session_state.get("context", {}).get(key) or DEFAULTS[key])


def _choice(key: str, label: str, options: list[str], arrived: bool, *, open_ended: bool = False) -> str:
    """Draw a select box bound to the URL; without a value there, it keeps the selection of the previous page.

    Options are shown without formatting, because the binding writes the shown text into the URL.
    """
    not_found = st.session_state.setdefault(NOT_FOUND, {})
    if arrived:
        not_found.pop(key, None)
    last = st.session_state.get("context", {}).get(key)
    sent = st.session_state.get("context_next", {}).pop(key, None)
    linked = st.query_params.get(key)
    if linked and not open_ended and linked not in options:
        not_found[key] = (label, linked)
    if sent and (open_ended or sent in options):
        jumps = st.session_state.setdefault("context_jumps", {})
        jumps[key] = (st.session_state.get(key), sent, time.monotonic())
        st.session_state[key] = sent
    elif arrived and not linked and last and (open_ended or last in options):
        st.session_state[key] = last
        if last != options[0]:
            with suppress(StreamlitAPIException):  # still bound by the previous page, whose widget has written it
                st.query_params[key] = last
    _ignore_stale_value(key, options)
    if open_ended:
        options = list(dict.fromkeys([*options, *(name for name in (sent, linked, last) if name)]))
    value = st.selectbox(label, options, key=key, accept_new_options=open_ended, bind="query-params")
    value = value if value and (open_ended or value in options) else options[0]
    if value != options[0]:
        not_found.pop(key, None)
    return value


def _ignore_stale_value(key: str, options: list[str]) -> None:
    """Undo a browser message with the value from before a jump that arrives shortly after it."""
    before, value, since = st.session_state.get("context_jumps", {}).get(key, (None, None, -STALE_SECONDS))
    recent = time.monotonic() - since < STALE_SECONDS
    if recent and value in options and st.session_state.get(key) == before:
        st.session_state[key] = value


def switch_page(name: str, **params: str) -> None:
    """Switch to pages/<name>.py; `dataset`, `encoder` and `run` change the context bar, others go into the URL."""
    changed = {key: params.pop(key) for key in CONTEXT if key in params}
    drawn = st.session_state["context_bar"]  # these widgets are already drawn: they change in the next run
    st.session_state["context_next"] = {key: value for key, value in changed.items() if key in drawn}
    params |= {key: value for key, value in changed.items() if key not in drawn}
    try:
        st.switch_page(f"pages/{name}.py", query_params=params)
    except StreamlitPageNotFoundError:
        st.info(
            "This page runs without the app. Start the app with `bsc app` to open other pages.",
            icon=":material/info:",
        )


def action_bar() -> DeltaGenerator:
    """Return the container of the page's main actions, at the lower edge of the window however long the page is."""
    return st.bottom.container(horizontal=True, vertical_alignment="center")


def next_step_button(
    label: str,
    name: str,
    *,
    key: str,
    primary: bool = True,
    settings: dict[str, dict[str, Any]] | None = None,
    **params: str,
) -> None:
    """Draw a button that opens the next page, with these settings for the New run page; place it in `action_bar`."""
    kind: Any = "primary" if primary else "secondary"
    if st.button(label, key=key, type=kind, icon=":material/arrow_forward:", icon_position="right"):
        if settings is not None:
            send_settings(settings)
        switch_page(name, **params)


def empty_state(text: str, button: str, name: str, *, key: str, **params: str) -> None:
    """Describe what will be on this page, with a button to the page where it is created."""
    with st.container(border=True):
        st.markdown(f":material/hourglass_empty: {text}")
        if st.button(button, key=key, type="primary"):
            switch_page(name, **params)


def send_settings(values: dict[str, dict[str, object]]) -> None:
    """Store settings (sections of RunConfig, such as `batching` or `loss`) for the New run page; {} removes them."""
    st.session_state["sent_settings"] = values


def sent_settings() -> dict[str, dict[str, object]]:
    """Return the settings that another page sent to the New run page, else {}."""
    return dict(st.session_state.get("sent_settings", {}))
