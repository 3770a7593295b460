"""Figures with alternative text and data, tables as CSV, tabs, error boxes, and progress of background tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core import background_task, formatting
from bsc_core.errors import BscError, InputError
from pages.ui.components import users

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    Table = pd.DataFrame | Sequence[Mapping[str, Any]]

BUILDING = "display.building"  # session key: a lock that is held while a file is built
_students_build = Lock()
MAX_CELL = 2_000  # characters of a text in a table
MARKDOWN = re.compile(r"[\\`*_\[\]!<>~$#|]")


def figure(
    fig: Any,
    *,
    alt: str,
    name: str,
    data: Table | Callable[[], Table] | None = None,
    select: bool | Callable[[], None] = False,
    key: str | None = None,
) -> Any:
    """Draw an Altair, Vega-Lite or Plotly figure with its alternative text and, below, a button for its data as CSV.

    The image is saved from the figure's toolbar (Altair: PNG, Plotly: SVG).

    Args:
        fig: The figure, or the output of `vega_lite_spec`.
        alt: Alternative text for screen readers.
        name: File name of the downloads, and the widget key unless `key` is given.
        data: The table behind the button.
        select: True to return what the user clicks, or a callback to run before the page is rerun.
        key: The widget key.
    """
    key = key or f"figure.{name}"
    on_select = select if callable(select) else "rerun" if select else "ignore"
    if type(fig).__module__.startswith("plotly"):
        config = {"displaylogo": False, "toImageButtonOptions": {"format": "svg", "filename": name}}
        event = st.plotly_chart(fig, key=key, on_select=on_select, config=config, alt=alt)
    else:
        draw = st.vega_lite_chart if isinstance(fig, dict) else st.altair_chart
        event = draw(fig, key=key, on_select=on_select, alt=alt)
    if data is not None:
        csv_button(data, name=name, key=f"{key}.data")
    return event


def vega_lite_spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return the Vega-Lite spec of an Altair chart, to be cached: Altair needs about 0.1 s to build and check one."""
    spec: dict[str, Any] = chart.to_dict()
    spec.pop("config", None)  # sizes of Altair's default theme; Streamlit has its own
    return spec


def columns(number: int, *, min_width: int = 360, border: bool = False) -> list[Any]:
    """Return cells side by side; a row with too little room stacks them instead of making one narrower (in pixels)."""
    grid = st.grid(number, min_column_width=min_width, border=border)
    return [grid.container(height="stretch") for _ in range(number)]


def csv_button(data: Table | Callable[[], Table], *, name: str, key: str) -> None:
    """Draw a small button that saves a table as CSV. The file, and a table given as a call, is built on click."""

    def csv() -> bytes:
        import pandas as pd

        return pd.DataFrame(data() if callable(data) else data).to_csv(index=False, lineterminator="\r\n").encode()

    download("Data (CSV)", csv, file_name=f"{name}.csv", mime="text/csv", key=key)


def cell(text: str) -> str:
    """Return a text for a cell of a table, at most MAX_CELL characters: many rows can have the same long text."""
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"


def config_download(toml: str, *, key: str) -> None:
    """Draw a small button that saves a config as `config.toml`."""
    download("Save config.toml", toml, file_name="config.toml", mime="application/toml", key=key)


def download(label: str, data: str | Callable[[], bytes], *, type: str = "tertiary", **options: str) -> None:
    """Draw a download button; clicking it does not rerun the page. Content given as a call is built on click."""
    if callable(data):
        student = users.task_user() == background_task.STUDENTS  # of whom one at a time has a file built
        building = _students_build if student else st.session_state.setdefault(BUILDING, Lock())
        data = partial(_build, data, building)
    st.download_button(label, data, icon=":material/download:", type=type, on_click="ignore", **options)  # type: ignore[arg-type, call-overload]


def _build(content: Callable[[], bytes], building: Lock) -> bytes:
    """Build the content of a download; a client may request it any number of times, and one at a time is built."""
    if not building.acquire(blocking=False):
        raise InputError("another file is being built; try again when it is saved")
    try:
        return content()
    finally:
        building.release()


def tabs(parts: Mapping[str, Callable[..., None]], *arguments: Any, **options: Any) -> None:
    """Draw tabs, of which only the open one is computed; an error in it is shown there.

    Args:
        parts: Title of each tab to the function that draws it.
        arguments: Arguments of these functions.
        options: Options of `st.tabs`.
    """
    for tab, draw in zip(st.tabs(list(parts), on_change="rerun", **options), parts.values(), strict=True):
        if tab.open:
            with tab, show_errors(stop=False):
                draw(*arguments)


def write_url(values: Mapping[str, str], names: Iterable[str]) -> None:
    """Set these URL parameters where they changed, and remove the others of `names`."""
    for name in set(names) - set(values):
        st.query_params.pop(name, None)
    if changed := {name: value for name, value in values.items() if st.query_params.get(name) != value}:
        st.query_params.update(changed)  # one entry of the browser's history


def error_box(error: BscError | str, title: str = "Error") -> DeltaGenerator:
    """Draw the message of an error in a box and return the box."""
    box = st.container(border=True)
    box.markdown(f":material/error: **{title}**")
    box.text(cell(str(error)))  # a message may quote a long text of a file
    return box


def task_progress(
    folder: Path, label: str, *, failed: str, key: str, expected_seconds: float | None = None, note: str = ""
) -> None:
    """Draw the progress of a background task or, if it failed, its error with a button that starts it again.

    Args:
        folder: Folder of the task.
        label: What the task does.
        failed: Title of the error.
        key: Key of the button.
        expected_seconds: Estimated time, for tasks whose own progress is coarse.
        note: Sentence after the times.
    """
    progress = background_task.read_progress(folder)
    if progress.error:
        again = background_task.reset_failed
        error_box(progress.error, failed).button("Try again", key=key, on_click=again, args=(folder,))
        return
    elapsed, fraction = background_task.elapsed_seconds(folder), progress.fraction
    times = formatting.duration(elapsed)
    if expected_seconds is not None:
        fraction = max(fraction, min(0.95, elapsed / expected_seconds))
        longer = elapsed > expected_seconds
        times += f"{', longer than the expected' if longer else ' of about'} {formatting.duration(expected_seconds)}"
    st.progress(fraction, text=f"{label}: {escaped(progress.doing)} · {times}{note}")


@contextmanager
def show_errors(*, stop: bool = True) -> Iterator[None]:
    """Show a BscError as an error box and, with `stop`, end the page; other exceptions pass through."""
    try:
        yield
    except BscError as error:
        error_box(error)
        if stop:
            st.stop()


def escaped(text: str) -> str:
    """Return a text on one line with Markdown's characters escaped, for an element that renders Markdown.

    Names of runs and datasets, parameters of links and messages about files contain what their authors wrote. An image
    in one would be requested from its server.
    """
    return MARKDOWN.sub(r"\\\g<0>", formatting.printable(" ".join(text.split())))


def plain_text(label: str, value: str) -> None:
    """Draw a text of the dataset under a small label, character by character, never as HTML or Markdown."""
    st.caption(label)
    st.text(value)


def labeled_values(values: Mapping[str, str], *, min_width: int) -> None:
    """Draw short values side by side, each under its label."""
    for cell, (label, value) in zip(columns(len(values), min_width=min_width), values.items(), strict=True):
        with cell:
            plain_text(label, value)
