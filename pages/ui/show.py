"""Showing things the same way everywhere: figures with text and data beside them, errors, empty states, numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import streamlit as st

from bsc_core.errors import BscError
from bsc_core.figures import theme

if TYPE_CHECKING:
    import pandas as pd


def figure(
    fig: Any,
    *,
    alt: str,
    name: str,
    data: pd.DataFrame | None = None,
    select: bool | Callable[[], None] = False,
    key: str | None = None,
) -> Any:
    """Draw an Altair or Plotly figure with its text alternative, and its data as CSV below.

    The picture itself is saved from the toolbar at the figure's corner (Altair: PNG, Plotly: SVG).
    name: file name of the downloads, and the widget key unless `key` is given. select: return what is clicked; or
    what is called before the page is drawn again with it.
    """
    key = key or f"figure.{name}"
    on_select = select if callable(select) else "rerun" if select else "ignore"
    if type(fig).__module__.startswith("plotly"):
        config = {"displaylogo": False, "toImageButtonOptions": {"format": "svg", "filename": name}}
        event = st.plotly_chart(fig, key=key, on_select=on_select, config=config, alt=alt)
    else:
        event = st.altair_chart(fig, key=key, on_select=on_select, alt=alt)
    if data is not None:
        table_download(data, name=name, key=f"{key}.data")
    return event


def columns(number: int, *, least: int = 360, border: bool = False) -> list[Any]:
    """Cells side by side that stack, rather than shrink, where one would be narrower than `least` pixels."""
    grid = st.grid(number, min_column_width=least, border=border)
    return [grid.container(height="stretch") for _ in range(number)]


def table_download(data: pd.DataFrame | Callable[[], pd.DataFrame], *, name: str, key: str) -> None:
    """A small button that saves the table as CSV; the file, and a table given as a call, is made when asked for."""
    st.download_button(
        "Data (CSV)",
        data=lambda: (data() if callable(data) else data).to_csv(index=False).encode(),
        file_name=f"{name}.csv",
        mime="text/csv",
        key=key,
        icon=":material/download:",
        type="tertiary",
        on_click="ignore",
    )


def error(fault: BscError) -> None:
    """A calm box: what happened, where, and what to do."""
    with st.container(border=True):
        st.markdown(":material/error: **This cannot be used as it is**")
        st.text(str(fault))


@contextmanager
def calm_errors(*, stop: bool = True) -> Iterator[None]:
    """Show an error raised on purpose as a calm box and, with `stop`, end the page; other faults pass through."""
    try:
        yield
    except BscError as fault:
        error(fault)
        if stop:
            st.stop()


def empty(what: str, *, step: str | None = None, key: str | None = None, do: Callable[[], None] | None = None) -> None:
    """An empty state: what would be here and, with `step`, `key` and `do`, the button that brings it."""
    with st.container(border=True):
        st.markdown(f":material/hourglass_empty: {what}")
        if step and do and st.button(step, key=key, type="primary"):
            do()


def text(label: str, value: str) -> None:
    """A text of the dataset under a small label, letter by letter as it is: never HTML or Markdown."""
    st.caption(label)
    st.text(value)


metric = theme.metric
count = theme.count
duration = theme.duration
share = theme.share
