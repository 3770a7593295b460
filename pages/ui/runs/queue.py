"""The queue panel: waiting runs in order, the number of runs at a time, and a pause button."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import streamlit as st

from bsc_core import formatting, jobs
from bsc_core.errors import BscError, RunNotFoundError
from bsc_core.runs import Run
from bsc_core.runs.ids import short_id
from pages.ui.components import data_cache, display, users
from pages.ui.runs import table

MAX_LINES = 10
ERROR = "runs.queue.error"


def draw(runs: list[Run], *, expanded: bool) -> None:
    """Draw the panel, live while a run is active.

    Args:
        runs: All runs.
        expanded: Expand the panel while a run waits or the queue is paused.
    """
    if users.current_user().may_launch:
        table.draw_live(lambda: _draw(expanded), runs)


def _draw(expanded: bool) -> None:
    runs = data_cache.run_store()
    with display.show_errors(stop=False):
        state, slots = jobs.Queue(runs.root).snapshot(), jobs.slots(runs)
        waiting, paused = state.waiting, state.paused
        expanded = expanded and (bool(waiting) or paused)
        key = f"runs.queue.{'unfolded' if expanded else 'folded'}"
        with st.expander(title(waiting, slots, paused=paused), expanded=expanded, key=key):
            if users.current_user().is_owner:
                _draw_controls(slots, state.slots, paused=paused)
            for position, run_id in enumerate(waiting[:MAX_LINES]):
                _draw_waiting_run(run_id, position, len(waiting))
            if len(waiting) > MAX_LINES:
                st.caption(f"and {formatting.count(len(waiting) - MAX_LINES)} more")
    error = st.session_state.pop(ERROR, None)
    if error is not None:
        display.error_box(error)


def title(waiting: Sequence[str], slots: int, *, paused: bool) -> str:
    """Return the panel's title: `Queue: 3 runs waiting, 1 at a time`."""
    count = f"{formatting.plural(len(waiting), 'run')} waiting" if waiting else "no run waiting"
    return f"Queue: {count}, {slots} at a time" + (" · paused" if paused else "")


def _draw_controls(slots: int, chosen: int | None, *, paused: bool) -> None:
    runs, key = data_cache.run_store(), f"runs.slots.{slots}"
    left, right = st.columns([1, 3], vertical_alignment="bottom")
    default = " By default one, or one per GPU." if chosen is None else ""
    left.number_input(
        "Runs at a time",
        min_value=1,
        max_value=64,
        value=slots,
        key=key,
        on_change=_callback(lambda: jobs.Queue(runs.root).set_slots(st.session_state[key])),
        help=f"How many runs train at the same time.{default} Active runs are not affected.",
    )
    label, icon = "Pause the queue", ":material/pause:"
    if paused:
        label, icon = "Resume the queue", ":material/play_arrow:"
    switch = _callback(lambda: jobs.unpause(runs) if paused else jobs.Queue(runs.root).pause())
    about = "A paused queue starts no run. Active runs continue."
    right.button(label, key="runs.queue.pause", icon=icon, on_click=switch, help=about)


def _draw_waiting_run(run_id: str, position: int, number: int) -> None:
    """Draw one waiting run with buttons that move or remove it."""
    runs, is_first, is_last = data_cache.run_store(), position == 0, position == number - 1
    is_owner, may_stop = users.current_user().is_owner, _may_stop(run_id)
    queue = jobs.Queue(runs.root)
    buttons: list[tuple[str, str, str, Callable[[], object], bool]] = [
        ("up", "Move up", ":material/arrow_upward:", lambda: queue.shift(run_id, -1), is_first),
        ("down", "Move down", ":material/arrow_downward:", lambda: queue.shift(run_id, 1), is_last),
        ("first", "Move to the front", ":material/vertical_align_top:", lambda: queue.move(run_id, 0), is_first),
        ("take-out", "Remove from the queue", ":material/close:", lambda: _remove(runs.get(run_id)), False),
    ]
    buttons = buttons if is_owner else buttons[-1:] if may_stop else []
    with st.container(horizontal=True, vertical_alignment="center"):
        st.text(f"{position + 1}.  {_run_line(run_id)}", width="stretch")
        for name, label, icon, action, disabled in buttons:
            st.button(
                "",
                key=f"runs.queue.{name}.{run_id}",
                icon=icon,
                disabled=disabled,
                on_click=_callback(action, owner_only=name != "take-out"),
                type="tertiary",
                help=f"{label}: {run_id}",
            )


def _remove(run: Run) -> None:
    users.record("stop", run.id)
    jobs.stop(run)


def _run_line(run_id: str) -> str:
    """Return the run's name and what else it waits for."""
    try:
        run = data_cache.run_store().get(run_id)
    except RunNotFoundError:  # deleted by hand, then the scheduler will skip it; or another user's
        return "run of another user" if users.is_shared() else run_id
    reason = waiting_reason(run)
    return short_id(run_id) + (f" · {reason}" if reason else "")


def _may_stop(run_id: str) -> bool:
    try:
        return users.may_change(data_cache.run_store().get(run_id))
    except RunNotFoundError:
        return False


def waiting_sentence(run: Run) -> str:
    """Return what a queued run waits for: its turn, with its place in the queue and its message, or something else."""
    reason, message = waiting_reason(run), run.status().message
    if reason != message:
        return reason
    waiting: Sequence[str] = ()
    with suppress(BscError):  # the panel reports it
        waiting = jobs.Queue(data_cache.run_store().root).snapshot().waiting
    if run.id not in waiting:
        return message or "Waits for its turn"
    place, number = waiting.index(run.id) + 1, len(waiting)
    position = f"place {formatting.count(place)} of {formatting.count(number)} in the queue"
    return f"{message} · {position}" if message else f"Waits for its turn: {position}"


def waiting_reason(run: Run) -> str:
    """Return what a queued run waits for, or why it cannot start; empty if it only waits for its turn."""
    try:
        parent = jobs.waits_for(data_cache.run_store(), run)
    except BscError as error:
        return str(error)
    return f"Waits for run {parent}, whose model it starts from" if parent else run.status().message


def _callback(action: Callable[[], object], *, owner_only: bool = True) -> Callable[[], None]:
    """Wrap an action as a callback; an error is stored until the panel is drawn."""

    def run() -> None:
        user = users.current_user()  # a callback runs before the page, which ends for a removed user
        if owner_only and not user.is_owner:
            return
        try:
            action()
        except BscError as error:
            st.session_state[ERROR] = error

    return run
