"""Launch button logic: the run id is stored until the launch succeeds, so that repeated clicks launch one run."""

from collections.abc import Callable

import streamlit as st

from bsc_core.errors import BscError, InputError
from pages.ui.components import data_cache, display, page_layout


def launch(
    key: str, clicked: bool, new_id: Callable[[], str], plan: str, start: Callable[[str], dict[str, str]]
) -> None:
    """Launch a plan after a click and open it on the Runs page, or show the error.

    A failed or repeated click on the same plan uses the same id. An InputError removes the id, since no run was
    created. Other errors (queue, disk, process) keep it, since the run may exist and be queued later.

    Args:
        key: Session key of the id.
        clicked: Whether the button was clicked; a run of the page without a click forgets a finished launch.
        new_id: Returns a new id of the run, or of the group.
        plan: What is launched, as text; another plan gets another id.
        start: Launches the run with an id and returns the URL parameters that open it.
    """
    stored = st.session_state.get(key)
    if not clicked:
        if stored is not None and not stored["pending"]:
            del st.session_state[key]
        return
    try:
        if stored is None or stored["plan"] != plan or (stored["pending"] and _has_finished(stored["id"])):
            stored = {"plan": plan, "id": new_id()}
        st.session_state[key] = {**stored, "pending": True}
        target = start(stored["id"])
    except BscError as error:
        if isinstance(error, InputError):
            st.session_state.pop(key, None)
        display.error_box(error)
        return
    st.session_state[key] = {**stored, "pending": False}
    page_layout.switch_page("runs", **target)


def acknowledge() -> None:
    """Show that a click on a launch button was received, before the page is drawn again; a callback of the button."""
    st.toast("Launching …", icon=":material/rocket_launch:")


def _has_finished(run_id: str) -> bool:
    """Whether a run whose launch failed at first has finished since."""
    runs = data_cache.run_store()
    if not (runs.root / run_id).exists():
        return False
    status = runs.get(run_id).status()
    return status.is_readable and status.is_finished
