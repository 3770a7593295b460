"""The queue: what waits and in which order, how many run at once, and whether anything is started at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from bsc_core.errors import BscError, RunNotFoundError
from bsc_core.figures import theme
from bsc_core.runs import Run
from pages.ui import run_list, show, store

if TYPE_CHECKING:
    from bsc_core.jobs import Queue

SHOWN = 10  # waiting runs that have a line of their own
FAULT = "runs.queue.fault"


def draw(runs: list[Run], *, opened: bool) -> None:
    """The foldable panel, live while a run goes on or waits. opened: unfold it while something waits."""
    run_list.watched(lambda: _panel(opened), runs)


def _panel(opened: bool) -> None:
    from bsc_core import jobs

    runs = store.run_store()
    with show.calm_errors(stop=False):
        standing, slots = jobs.Queue(runs.root).look(), jobs.slots(runs)
        waiting, paused = standing.waiting, standing.paused
        unfold = opened and (bool(waiting) or paused)
        key = f"runs.queue.{'unfolded' if unfold else 'folded'}"
        with st.expander(sentence(waiting, slots, paused=paused), expanded=unfold, key=key):
            _controls(slots, standing.slots, paused=paused)
            for place, run_id in enumerate(waiting[:SHOWN]):
                _line(run_id, place, len(waiting))
            if len(waiting) > SHOWN:
                st.caption(f"and {theme.count(len(waiting) - SHOWN)} more behind them")
    fault = st.session_state.pop(FAULT, None)
    if fault is not None:
        show.error(fault)


def sentence(waiting: Sequence[str], slots: int, *, paused: bool) -> str:
    """The panel's title: `Queue: 3 runs wait, 1 at a time`."""
    verb = "waits" if len(waiting) == 1 else "wait"
    waits = f"{theme.many(len(waiting), 'run')} {verb}" if waiting else "nothing waits"
    return f"Queue: {waits}, {slots} at a time" + (" · paused: no run is started" if paused else "")


def _controls(slots: int, chosen: int | None, *, paused: bool) -> None:
    left, right = st.columns([1, 3], vertical_alignment="bottom")
    default = "one, or one for each GPU" if chosen is None else "as chosen"
    left.number_input(
        "Runs at a time",
        min_value=1,
        max_value=64,
        value=slots,
        key=f"runs.slots.{slots}",
        on_change=_do(lambda: _set_slots(slots)),
        help=f"Now {slots}: {default}. Runs that go on are not touched.",
    )
    label, icon, change = (
        ("Go on", ":material/play_arrow:", _unpause) if paused else ("Pause the queue", ":material/pause:", _pause)
    )
    words = "A paused queue starts no run; what runs goes on"
    right.button(label, key="runs.queue.pause", icon=icon, on_click=_do(change), help=words)


def _line(run_id: str, place: int, number: int) -> None:
    """One waiting run with buttons that move it."""
    moves: list[tuple[str, str, Callable[[], None], bool]] = [
        ("up", ":material/arrow_upward:", lambda: _queue().raise_(run_id), place == 0),
        ("down", ":material/arrow_downward:", lambda: _queue().lower(run_id), place == number - 1),
        ("first", ":material/vertical_align_top:", lambda: _queue().move(run_id, 0), place == 0),
        ("take out", ":material/close:", lambda: _take_out(run_id), False),
    ]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.text(f"{place + 1}.  {_told(run_id)}", width="stretch")
        for words, icon, do, disabled in moves:
            key = f"runs.queue.{words.replace(' ', '-')}.{run_id}"
            help_text = f"{words.capitalize()}: {run_id}"
            st.button("", key=key, icon=icon, disabled=disabled, on_click=_do(do), type="tertiary", help=help_text)


def _told(run_id: str) -> str:
    """A waiting run's name, and what it waits for besides its turn."""
    try:
        run = store.run_store().get(run_id)
    except RunNotFoundError:  # its folder was deleted by hand; the supervisor will pass it over
        return run_id
    words = waiting_words(run)
    return run_list.name(run) + (f" · {words}" if words else "")


def waiting_words(run: Run) -> str:
    """What a queued run waits for besides its turn: a run, a cluster that is away; or why it will never start."""
    from bsc_core.jobs import waits_for

    try:
        parent = waits_for(store.run_store(), run)
    except BscError as fault:
        return str(fault)
    return f"Waits for run {parent}, whose model it starts from" if parent else run.status().message


def _do(change: Callable[[], None]) -> Callable[[], None]:
    """The change as a callback; an error is kept until the panel is drawn."""

    def changed() -> None:
        try:
            change()
        except BscError as fault:
            st.session_state[FAULT] = fault

    return changed


def _queue() -> Queue:
    from bsc_core import jobs

    return jobs.Queue(store.run_store().root)


def _set_slots(before: int) -> None:
    from bsc_core.jobs import set_slots

    set_slots(store.run_store(), st.session_state[f"runs.slots.{before}"])


def _pause() -> None:
    from bsc_core.jobs import pause

    pause(store.run_store())


def _unpause() -> None:
    from bsc_core.jobs import unpause

    unpause(store.run_store())


def _take_out(run_id: str) -> None:
    from bsc_core.jobs import stop

    stop(store.run_store().get(run_id))
