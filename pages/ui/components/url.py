"""Parameters of the URL: widgets that store their value there, and a report of what a page cannot use of a link."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.errors import StreamlitAPIException
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state import get_session_state
from streamlit.runtime.state.query_params import QueryParams

from bsc_core import formatting

TITLE = "Not everything in this link can be used"
REPORT = "url.report"  # session key of the `Report` of the page
MAX_LISTED = 12  # options or parameters in a sentence
MAX_LENGTH = 40  # of a value in a sentence
REVISION = "url.revision"  # session key
_known: ContextVar[tuple[str, ...]] = ContextVar("_known", default=("*",))  # patterns of the page
_cell: ContextVar[DeltaGenerator | None] = ContextVar("_cell", default=None)


@dataclass
class Report:
    """Sentences about the parameters of a link that are not used, and the link."""

    sentences: dict[str, str] = field(default_factory=dict)  # by parameter
    values: dict[str, str | None] = field(default_factory=dict)  # of these parameters
    others: dict[str, str] = field(default_factory=dict)  # the other parameters

    def is_of(self, url: Mapping[str, str]) -> bool:
        """Whether the URL still has these values, or lacks those that are not used."""
        others = {name: value for name, value in url.items() if name not in self.values}
        return others == self.others and all(url.get(name) in (None, value) for name, value in self.values.items())


def setup(known: Iterable[str], *, arrived: bool) -> None:
    """Reserve the place of the report and report the parameters that the page does not know.

    A report stays until another value of the URL changes, since Streamlit removes invalid ones from it.

    Args:
        known: Names of the parameters of the page; `*` stands for any characters.
        arrived: Whether this is the first run of the page since it was opened.
    """
    if is_history_navigation():
        st.session_state[REVISION] = revision() + 1
    _cell.set(st.empty())
    _known.set(tuple(known))
    stored: Report | None = st.session_state.get(REPORT)
    if arrived or stored is None or not stored.is_of(st.query_params.to_dict()):
        stored = st.session_state[REPORT] = Report()
    _draw(stored)
    unknown = [name for name in st.query_params if not _is_known(name)]
    if unknown:
        report("", f"This page has no setting {_listed(unknown)}.")


def is_history_navigation() -> bool:
    """Whether Back or Forward led to this run, so that the URL decides, also by parameters that it lacks."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def revision() -> int:
    """Return a number for the key of an element that cannot be bound: Back and Forward draw it again from the URL."""
    return int(st.session_state.get(REVISION, 0))


def report(name: str, sentence: str) -> None:
    """Show a sentence about a parameter of the link that is not used, above the page."""
    stored: Report = st.session_state.setdefault(REPORT, Report())
    if len(stored.sentences) >= MAX_LISTED and name not in stored.sentences:
        return
    url = st.query_params.to_dict()
    stored.sentences[name] = sentence
    stored.values.setdefault(name, url.get(name))
    stored.others = {other: value for other, value in url.items() if other not in stored.values}
    _draw(stored)


def _draw(stored: Report) -> None:
    cell = _cell.get()
    if cell is not None and stored.sentences:  # a rerun of a fragment draws nothing outside it
        with cell.container(border=True):
            st.markdown(f":material/link_off: **{TITLE}**")
            st.text(" ".join(stored.sentences.values()))


def bound(
    key: str, options: Iterable[object] | None = None, *, limits: tuple[float, float] | None = None
) -> dict[str, Any]:
    """Return the arguments of a widget that stores its value in the URL; report a value there that it cannot have.

    Args:
        key: Key of the widget, which is the name of the parameter.
        options: The options as the URL has them, which is as the widget shows them; None for free text.
        limits: Smallest and largest value of a number.
    """
    if not _is_known(key):
        raise KeyError(f"{key} is not among the parameters of the page")
    valid = check(key, options, limits=limits)
    if limits is not None and len(valid) < len(st.query_params.get_all(key)):
        with suppress(StreamlitAPIException):  # of a control that has been bound, such as after going back
            del st.query_params[key]
        # Not bound in this run: Streamlit would convert the value to an integer, also infinity.
        return {"key": key, "on_change": lambda: st.query_params.update({key: f"{st.session_state[key]:.15g}"})}
    return {"key": key, "bind": "query-params"}


def check(
    name: str, options: Iterable[object] | None = None, *, limits: tuple[float, float] | None = None
) -> list[str]:
    """Return the values of a parameter that are valid, and report the others."""
    values, valid = [value for value in st.query_params.get_all(name) if value], []
    if not values:
        return []
    allowed = None if options is None else [str(option) for option in options]
    for value in values:
        if (allowed is None or value in allowed or value.lower() in allowed) and (
            limits is None or _is_within(value, *limits)
        ):
            valid.append(value)
            continue
        text = repr(shorten(value))
        if limits is not None:
            report(name, f"{name} is {text}; it must be a number from {limits[0]:g} to {limits[1]:g}.")
        else:
            report(name, f"{name} is {text}; it must be {_listed(allowed or [])}.")
    return valid


def tabs(key: str, titles: Iterable[str]) -> dict[str, Any]:
    """Return the options of `st.tabs` that store the open tab in the URL, for tabs that `open_tab` opens."""
    first = next(iter(titles))
    # Without it, the browser would send the tab that the user clicked last, and so open it again.
    is_other_widget = st.session_state.get(_times_opened(key), 0) % 2
    return {**bound(key, titles), "default": first if is_other_widget else None}


def open_tab(key: str, title: str) -> None:
    """Open a tab in a callback."""
    if st.session_state.get(key) != title:
        st.session_state[_times_opened(key)] = st.session_state.get(_times_opened(key), 0) + 1
        with _changed_parameters() as parameters:
            parameters.set_corrected_value(key, title, "string_value")
    st.session_state[key] = title


def remove(names: Iterable[str]) -> None:
    """Remove parameters of the URL, also those of widgets, which `st.query_params` refuses."""
    with _changed_parameters() as parameters:
        for name in names:
            parameters.remove_param(name)


@contextmanager
def _changed_parameters() -> Iterator[QueryParams]:
    """Yield the parameters, to change also those of widgets; new widgets of this run get the changed values."""
    with get_session_state().query_params() as parameters:
        yield parameters
        parameters.set_initial_query_params_from_current()


def _times_opened(key: str) -> str:
    return f"{key}.times_opened"


def _is_known(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _known.get())


def flag(key: str) -> dict[str, Any]:
    """Return the arguments of a toggle that stores its value in the URL."""
    return bound(key, ("true", "false"))


def shorten(value: str) -> str:
    """Return a name or value of the URL short enough for a sentence."""
    return formatting.shorten(value, MAX_LENGTH)


def _is_within(text: str, low: float, high: float) -> bool:
    try:
        return low <= float(text) <= high
    except ValueError:
        return False


def _listed(names: list[str]) -> str:
    """Return `a, b or c`, shortened; of many numbers their range."""
    short = [shorten(name) for name in names[:MAX_LISTED]]
    if len(names) > MAX_LISTED:
        with suppress(ValueError):
            low, high = min(map(float, names)), max(map(float, names))
            return f"one of {formatting.count(len(names))} numbers from {low:g} to {high:g}"
        return f"{', '.join(short)} and {formatting.count(len(names) - MAX_LISTED)} others"
    return " or ".join(filter(None, (", ".join(short[:-1]), short[-1]))) if short else "empty"
