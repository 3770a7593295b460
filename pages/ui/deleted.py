"""Deleting a run, undoing it, and what lies in the trash."""

from __future__ import annotations

import time

import streamlit as st

from bsc_core.errors import BscError
from bsc_core.figures import theme
from bsc_core.runs import Run
from pages.ui import frame, show, store

LAST = "runs.deleted"
KEPT = "7 days"


def delete(run: Run) -> None:
    """Move a run to the trash and offer to undo it. Raises InputError while the run goes on."""
    from bsc_core.jobs import trash

    trash(store.run_store(), run)
    st.session_state[LAST] = run.id
    frame.go("runs", run=frame.NO_RUN)


def undo_bar() -> None:
    """What was deleted last in this session, with the button that brings it back."""
    run_id = st.session_state.get(LAST)
    if run_id is None:
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.markdown(":material/delete:")
        st.text(f"Run {run_id} was deleted.")
        if st.button("Undo", key="runs.undo", type="primary"):
            bring_back(run_id)
        if st.button("", key="runs.undo.close", icon=":material/close:", type="tertiary", help="Close"):
            del st.session_state[LAST]
            st.rerun()


def bring_back(run_id: str) -> None:
    """Move a run out of the trash and open it."""
    from bsc_core.jobs import restore

    if st.session_state.get(LAST) == run_id:
        del st.session_state[LAST]
    try:
        run = restore(store.run_store(), run_id)
    except BscError as fault:
        show.error(fault)
        return
    frame.go("runs", run=run.id)


def trash_box() -> None:
    """The deleted runs, each with a button that brings it back; nothing while there are none."""
    from bsc_core.jobs import trashed

    there = trashed(store.run_store())
    if not there:
        return
    with st.popover(f"Trash ({len(there)})", icon=":material/delete:", type="tertiary", key="runs.trash"):
        st.caption(f"A deleted run is kept for at least {KEPT}.")
        for one in there:
            with st.container(horizontal=True, vertical_alignment="center"):
                st.text(f"{one.id}, deleted {theme.duration(max(0.0, time.time() - one.when))} ago")
                if st.button("Bring back", key=f"runs.restore.{one.id}"):
                    bring_back(one.id)
        words, icon = "Empty the trash", ":material/delete_forever:"
        if st.button(words, key="runs.trash.empty", icon=icon, help="Cannot be undone"):
            empty()


def empty() -> None:
    """Delete for good what lies in the trash."""
    from bsc_core.jobs import empty_trash

    try:
        empty_trash(store.run_store())
    except BscError as fault:
        show.error(fault)
        return
    st.session_state.pop(LAST, None)
    st.rerun()
