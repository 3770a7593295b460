"""The trash: deleting a run, undoing it, restoring deleted runs, and emptying the trash."""

import time

import streamlit as st

from bsc_core import formatting, jobs
from bsc_core.runs import Run
from pages.ui.components import data_cache, display, page_layout, users

LAST_DELETED = "runs.deleted"
RETENTION = "7 days"


def delete(run: Run) -> None:
    """Move a run to the trash.

    Raises:
        InputError: The run is active.
    """
    jobs.trash(data_cache.run_store(), run)
    st.session_state[LAST_DELETED] = run.id
    page_layout.switch_page("runs", run=page_layout.NO_RUN)


def draw_undo_bar() -> None:
    """Draw the run that this session deleted last, with an undo button."""
    run_id = st.session_state.get(LAST_DELETED)
    if run_id is None:
        return
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.markdown(":material/delete:")
        st.text(f"Run {run_id} was deleted.")
        if st.button("Undo", key="runs.undo", type="primary"):
            _restore(run_id)
        if st.button("", key="runs.undo.close", icon=":material/close:", type="tertiary", help="Close"):
            del st.session_state[LAST_DELETED]
            st.rerun()


def _restore(run_id: str) -> None:
    """Move a run out of the trash and open it."""
    users.record("restore", run_id)
    if st.session_state.get(LAST_DELETED) == run_id:
        del st.session_state[LAST_DELETED]
    with display.show_errors(stop=False):
        page_layout.switch_page("runs", run=jobs.restore(data_cache.run_store(), run_id).id)


def draw_trash() -> None:
    """Draw the deleted runs with restore buttons; nothing if the trash is empty."""
    deleted = [run for run in jobs.list_trash(data_cache.run_store()) if users.may_change(run.run)]
    if not deleted:
        return
    with st.popover(f"Trash ({len(deleted)})", icon=":material/delete:", type="tertiary", key="runs.trash"):
        st.caption(f"Deleted runs stay here for at least {RETENTION}.")
        for run in deleted:
            with st.container(horizontal=True, vertical_alignment="center"):
                st.text(f"{run.id}, deleted {formatting.duration(max(0.0, time.time() - run.deleted_at))} ago")
                if st.button("Restore", key=f"runs.restore.{run.id}"):
                    _restore(run.id)
        icon, about = ":material/delete_forever:", "This cannot be undone."
        if users.current_user().is_owner and st.button(
            "Empty the trash", key="runs.trash.empty", icon=icon, help=about
        ):
            with display.show_errors(stop=False):
                users.record("empty trash")
                jobs.empty_trash(data_cache.run_store())
                st.session_state.pop(LAST_DELETED, None)
                st.rerun()
