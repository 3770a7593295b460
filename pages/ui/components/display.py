"""Figures with a title and a menu, tables as CSV, tabs, error boxes, and progress of background tasks."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core import background_task, formatting
from bsc_core.errors import BscError, InputError
from bsc_core.runs import RunStore
from pages.ui.components import users

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    Table = pd.DataFrame | Sequence[Mapping[str, Any]]

COLOR = "Color"  # column of tables of runs
COLOR_COLUMN = {COLOR: st.column_config.TextColumn(width=50, help="The color in figures.", alignment="center")}
BUILDING = "display.building"  # session key: a lock that is held while a file is built
BUILT_SECONDS, MAX_BUILT = 600, 256 * 2**20  # total bytes of the files that are built for a link of students in a time
_students_build: dict[str, Lock] = {}  # by the name of the link
_students_built: dict[str, list[tuple[float, int]]] = {}  # times and sizes
MAX_CELL = 2_000  # characters of a text in a table
MAX_CSV = 50_000_000  # characters of a table that is saved with whole texts: many rows can have the same long text
TEXT_ROW, TEXT_LINES = 86, 4  # pixels and lines of text of a table row
CHARACTER, CELL_PADDING = 7, 16  # pixels: mean width in a table, and space on both sides of a cell
MENU = "figure_menu"  # start of the keys of the menus of figures
MENU_STYLE = f"""<style>
[class*="st-key-{MENU}-"] [data-testid="stPopoverButton"] :is(p, div[aria-hidden]) {{
  position: absolute; right: 0; width: 1px; overflow: hidden; clip-path: inset(50%);
}}
[class*="st-key-{MENU}-"] [data-testid="stPopoverButton"] {{
  position: relative; min-height: 1.6rem; min-width: 1.6rem; padding-block: 0;
}}
[data-testid="stFullScreenFrame"]:has(.stVegaLiteChart)
  [data-testid="stElementToolbar"]:not(:has([aria-label^="Close fullscreen"])) {{ display: none; }}
.stPlotlyChart .modebar:not(:has([data-title="Close fullscreen"])) {{ display: none; }}
</style>"""  # the menu is an icon, and replaces the toolbars that Streamlit and Plotly show over a chart


def figure(
    fig: Any,
    *,
    alt: str,
    name: str,
    title: str | None = None,
    data: Table | Callable[[], Table] | None = None,
    select: bool | Callable[[], None] = False,
    key: str | None = None,
) -> Any:
    """Draw an Altair, Vega-Lite or Plotly figure in a `figure_frame`, with its alternative text.

    Args:
        fig: The figure, or the output of `vega_lite_spec`.
        alt: Alternative text for screen readers.
        name: File name of the downloads, and the widget key unless `key` is given.
        title: The title; by default that of the figure, else `alt`.
        data: The table that the menu saves; by default the largest one of the figure.
        select: True to return what the user clicks, or a callback to run before the page is rerun.
        key: The widget key.
    """
    key = key or f"figure.{name}"
    on_select = select if callable(select) else "rerun" if select else "ignore"
    is_plotly = type(fig).__module__.startswith("plotly")
    fig, lines = (fig, []) if is_plotly else _without_title(fig)
    data = _largest_table(fig) if data is None and not is_plotly else data
    with figure_frame(*([title] if title is not None else lines or [alt]), name=name, data=data, key=key):
        if is_plotly:
            return st.plotly_chart(fig, key=key, on_select=on_select, config={"displaylogo": False}, alt=alt)
        draw = st.vega_lite_chart if isinstance(fig, dict) else st.altair_chart
        return draw(fig, key=key, on_select=on_select, alt=alt)


def with_colors(rows: Sequence[Mapping[str, Any]], colors: Sequence[str]) -> Any:
    """Return table rows with a first column COLOR, a dot in the color that the row has in figures."""
    import pandas as pd

    table = pd.DataFrame([{COLOR: "⬤", **row} for row in rows])
    return table.style.apply(lambda _: [f"color: {color}" for color in colors], subset=[COLOR])


@contextmanager
def figure_frame(
    title: str, *others: str, name: str, data: Table | Callable[[], Table] | None = None, key: str
) -> Iterator[None]:
    """Draw the title of a figure, the menu that saves its data and its picture, and what the block draws below.

    Args:
        title: The title; may be empty.
        others: Lines below the title.
        name: File name of the downloads.
        data: The table that the menu saves as CSV.
        key: Start of the keys of the frame and its menu.
    """
    from pages.ui.components.browser.mount import figure_menu

    frame, title = f"{key}.frame", title.removesuffix(".")
    with st.container(key=frame, gap="xxsmall"):
        with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="top", gap="small"):
            if title:
                small = [f":small[:gray[{escaped(line)}]]" for line in others]
                with st.container(width="stretch"):
                    st.markdown("  \n".join([f"**{escaped(title)}**", *small]))
            menu = st.popover("Figure menu", type="tertiary", icon=":material/more_horiz:", key=f"{MENU}.{key}")
            with menu, st.container(gap=None):
                if data is not None:
                    csv_button(data, name=name, key=f"{key}.data")
                figure_menu(frame, name=name, title=title, key=f"{key}.picture")
        yield


def _without_title(chart: Any) -> tuple[Any, list[str]]:
    """Return an Altair chart or a Vega-Lite spec without its title, and the lines of the title."""
    if isinstance(chart, dict):
        title = chart.get("title", "")
        chart = {name: value for name, value in chart.items() if name != "title"}
    else:
        from altair import Undefined

        title, chart = chart.title, chart.copy(deep=False)
        title = "" if title is Undefined else title if isinstance(title, str | list) else title.to_dict()
        chart.title = Undefined
    parts = (title.get("text", ""), title.get("subtitle", [])) if isinstance(title, dict) else (title, [])
    text, others = ([part] if isinstance(part, str) else part for part in parts)
    return chart, [" ".join(text), *others] if any(text) else []


def _largest_table(chart: Any) -> Table | None:
    """Return the largest table that an Altair chart, or the output of `vega_lite_spec`, contains."""
    if isinstance(chart, dict):
        inline = [one.get("data", {}).get("values") for one in (chart, *chart.get("layer", ()))]
        tables = [*chart.get("datasets", {}).values(), *inline]
    else:
        sources = [one.data for one in (chart, *getattr(chart, "layer", ()))]
        tables = [one if hasattr(one, "columns") else getattr(one, "values", None) for one in sources]
    return max((one for one in tables if hasattr(one, "__len__")), key=len, default=None)


def vega_lite_spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Return the Vega-Lite spec of an Altair chart, to be cached, without the slow check that the tests do."""
    spec: dict[str, Any] = chart.to_dict(validate=False)
    spec.pop("config", None)  # sizes of Altair's default theme; Streamlit has its own
    return spec


def columns(number: int, *, min_width: int = 400, border: bool = False, of_figures: bool = False) -> list[Any]:
    """Return cells side by side; a row with too little room stacks them instead of making one narrower (in pixels).

    With `of_figures`, the figures are aligned at their lower ends, since a title can have more lines than the next one.
    """
    grid = st.grid(number, min_column_width=min_width, border=border)
    alignment: Literal["top", "bottom"] = "bottom" if of_figures else "top"
    return [grid.container(height="stretch", vertical_alignment=alignment) for _ in range(number)]


def csv_button(data: Table | Callable[[], Table], *, name: str, key: str) -> None:
    """Draw a small button that saves a table as CSV. The file, and a table given as a call, is built on click."""

    download(
        "Data (CSV)",
        lambda: table_csv(data() if callable(data) else data),
        file_name=f"{name}.csv",
        mime="text/csv",
        key=key,
    )


def table_csv(table: Table) -> bytes:
    """Return a table as CSV, with whole texts unless these have more than MAX_CSV characters together."""
    import pandas as pd

    is_frame = isinstance(table, pd.DataFrame)
    values = chain.from_iterable((table[name] for name in table) if is_frame else (row.values() for row in table))
    if sum(len(value) for value in values if isinstance(value, str)) > MAX_CSV:
        table = table.map(_cut) if is_frame else [{name: _cut(value) for name, value in row.items()} for row in table]
    return pd.DataFrame(table).to_csv(index=False, lineterminator="\r\n").encode()


def _cut(value: Any) -> Any:
    return cell(value) if isinstance(value, str) else value


def cell(text: str) -> str:
    """Return a text for a cell of a table, at most MAX_CELL characters: many rows can have the same long text."""
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"


def fitted_rows(rows: Sequence[Mapping[str, Any]], widths: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the rows of a table with texts cut to the lines that a cell shows, in the columns of `widths` (pixels)."""
    return [
        {name: fitted(value, widths[name]) if name in widths else value for name, value in row.items()} for row in rows
    ]


def fitted(text: str, width: int) -> str:
    """Return as much of a text as fits in a cell of this width in pixels, on TEXT_LINES lines."""
    characters = (width - CELL_PADDING) // CHARACTER
    line = " ".join(text[: 4 * TEXT_LINES * characters].split())
    return " ".join(textwrap.wrap(line, characters, max_lines=TEXT_LINES, placeholder="…"))


def config_download(toml: str, *, key: str) -> None:
    """Draw a small button that saves a config as `config.toml`."""
    download("Save config.toml", toml, file_name="config.toml", mime="application/toml", key=key)


def download(label: str, data: str | Callable[[], bytes], *, type: str = "tertiary", **options: Any) -> None:
    """Draw a download button; clicking it does not rerun the page. Content given as a call is built on click."""
    if callable(data):
        student = users.task_user() == background_task.STUDENTS  # a link of students has one file built at a time
        locks, key = (_students_build, users.current_user().name) if student else (st.session_state, BUILDING)
        building = locks.setdefault(key, Lock())
        data = partial(_build, data, building, _students_built.setdefault(key, []) if student else None)
    st.download_button(label, data, icon=":material/download:", type=type, on_click="ignore", **options)  # type: ignore[arg-type, call-overload]


def _build(content: Callable[[], bytes], building: Lock, built: list[tuple[float, int]] | None) -> bytes:
    """Build the content of a download; a client may request it any number of times, and one at a time is built.

    built: times and sizes of the files that were built for the link of students, to which this one is added.
    """
    if not building.acquire(blocking=False):
        raise InputError("another file is being built; try again when it is saved")
    try:
        if built is None:
            return content()
        built[:] = [one for one in built if one[0] > time.monotonic() - BUILT_SECONDS]
        if sum(size for _, size in built) > MAX_BUILT:
            raise InputError("many large files were saved; try again in ten minutes")
        file = content()
        built.append((time.monotonic(), len(file)))
        return file
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
    text = users.without_paths(_without_upload_folder(str(error)))
    box.text("\n".join(map(cell, text.splitlines())))  # a message may quote a long text of a file
    return box


def _without_upload_folder(text: str) -> str:
    """Return a message that names an uploaded file as the user did."""
    return re.sub(rf"{re.escape(str(RunStore().uploads_folder))}/[^/]+/", "", text)


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
        if error_box(progress.error, failed).button("Try again", key=key):
            background_task.reset_failed(folder)
            st.rerun(scope="app")  # the page starts the task, not the fragment
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
    """Return a text on one line for an element that renders Markdown, see `formatting.without_markup`.

    Names of runs and datasets, parameters of links and messages about files contain what their authors wrote. An image
    in one would be requested from its server.
    """
    return formatting.without_markup(formatting.printable(text))


def plain_text(label: str, value: str) -> None:
    """Draw a text of the dataset under a small label, character by character, never as HTML or Markdown."""
    st.caption(label)
    st.text(value)


def labeled_values(values: Mapping[str, str], *, min_width: int) -> None:
    """Draw short values side by side, each under its label."""
    for cell, (label, value) in zip(columns(len(values), min_width=min_width), values.items(), strict=True):
        with cell:
            plain_text(label, value)
