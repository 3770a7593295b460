"""Buttons of one run: stop, resume, duplicate and delete; and functions that start another run from it."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from bsc_core import formatting, jobs
from bsc_core.config import DataConfig, RunConfig
from bsc_core.errors import BscError
from bsc_core.runs import Run, RunStatus
from bsc_core.runs.ids import short_id
from bsc_core.users.access import run_access, share_run
from pages.ui.components import data_cache, display, page_layout, users
from pages.ui.data import uploads
from pages.ui.runs import queue, table, trash

NO_CHECKPOINT = "It saved no checkpoint, so it cannot be resumed; duplicate it to train from the start."
AGAIN = "Queues the run again, as a new run with the same settings and in the same group."
STOP_ERROR, STOPPED, RESUMED = "runs.stop.error", "runs.stop.done", "runs.resume.done"  # session keys
SECTIONS = ("encoder", "batching", "loss", "training", "evaluation")


def draw(run: Run, status: RunStatus, row: DeltaGenerator, *, may_resume: bool = True) -> None:
    """Draw the buttons that apply to the state of the run into `row`, and the error of the last one below it.

    may_resume: whether no other run continues this one.
    """
    if not users.current_user().may_launch:
        return
    _draw_outcome()
    may_change = users.may_change(run)
    with row.container(horizontal=True, width="content"):
        hanging = is_hanging(run, status)
        if not may_change:
            pass
        elif hanging or status.state in ("queued", "starting", "running"):
            about = "Stops the run and saves the best model so far."
            st.button(
                "Stop", key=f"runs.stop.{run.id}", icon=":material/stop:", help=about, on_click=_stop, args=(run,)
            )
        elif status.state == "stopping":  # the other buttons stay where they are
            st.button("Stop", key=f"runs.stop.{run.id}", icon=":material/stop:", disabled=True)
        elif may_resume and jobs.can_resume(run):
            about = AGAIN if jobs.never_started(run) else "Starts a new run that continues from the last checkpoint."
            _button("Resume", run, _resume, icon=":material/play_arrow:", about=about)
        elif may_resume and status.state == "stopped":
            icon = ":material/play_arrow:"
            st.button("Resume", key=f"runs.resume.{run.id}", icon=icon, help=NO_CHECKPOINT, disabled=True)
        about = "Opens the New run page with the settings of this run."
        icon = ":material/content_copy:"
        _button("Duplicate", run, lambda one: start_from_config(one.config(), one), icon=icon, about=about)
        if status.state == "stopping" and not hanging and may_change:  # a double click on Stop does not hit it
            about = "Ends the process now. Resume continues from the last checkpoint."
            icon = ":material/stop:"
            key = f"runs.stop.now.{run.id}"
            st.button("Stop without evaluation", key=key, icon=icon, help=about, on_click=_stop, args=(run, 0.0))
        if status.is_finished and not hanging and may_change:
            about = f"Moves the run to the trash. You can restore it for {trash.RETENTION}."
            _button("Delete", run, trash.delete, icon=":material/delete:", about=about)
        if may_change:
            users.draw_share_button(run.id, run_access(run), lambda names: share_run(run, names))


def draw_stop_all(runs: Sequence[Run], *, key: str) -> None:
    """Draw a button that stops the runs that have not ended, after a confirmation; nothing unless there are several.

    Only runs that the user may change count.
    """
    _draw_outcome()
    active = [run for run in runs if run.status().state in ("queued", "starting", "running") and users.may_change(run)]
    if len(active) < 2 or not users.current_user().may_launch:
        return
    label = f"Stop {formatting.plural(len(active), 'run')}"
    with st.popover(label, icon=":material/stop:", key=f"{key}.confirm"):
        st.write("Waiting runs leave the queue. Active runs save their best model so far.")
        st.button(f"{label} now", key=key, on_click=_stop_all, args=(active,))


def _stop_all(runs: Sequence[Run]) -> None:
    users.current_user()  # a callback runs before the page, which ends for a removed user
    for run in reversed(runs):  # the waiting ones, which are newer, first, so that none of them starts
        _stop(run)
    if STOP_ERROR not in st.session_state:
        st.session_state[STOPPED] = (
            f"Stopping {formatting.plural(len(runs), 'run')}. An active run ends after its current step."
        )


def _draw_outcome() -> None:
    """Draw the error or the message of the last action."""
    if (error := st.session_state.pop(STOP_ERROR, None)) is not None:
        display.error_box(error)
    if (message := st.session_state.pop(STOPPED, None)) is not None:
        st.toast(message, icon=":material/stop:")
    if (message := st.session_state.pop(RESUMED, None)) is not None:
        st.toast(message, icon=":material/play_arrow:")


def is_hanging(run: Run, status: RunStatus) -> bool:
    """Whether the run is lost but its process still exists, so that it has to be stopped first."""
    try:
        return status.state == "lost" and jobs.has_live_process(run)
    except BscError:  # an unknown backend; the action itself reports it
        return False


def _button(label: str, run: Run, action: Callable[[Run], None], *, icon: str, about: str) -> None:
    if st.button(label, key=f"runs.{label.lower()}.{run.id}", icon=icon, help=about):
        with display.show_errors(stop=False):
            users.record(label.lower(), run.id)
            action(run)


def _stop(run: Run, grace_seconds: float = jobs.GRACE_SECONDS) -> None:
    """Stop a run before the page is drawn again, which then shows it as stopping; an error is shown there."""
    try:
        users.record("stop", run.id)
        state = jobs.stop(run, grace_seconds=grace_seconds).state
    except BscError as error:
        st.session_state[STOP_ERROR] = error
    else:
        text = "was stopped" if state == "stopped" else "stops after this step" if grace_seconds else "ends now"
        st.session_state[STOPPED] = f"Run {short_id(run.id)} {text}."


def _resume(run: Run) -> None:
    uploads.check_config(run.config())  # what the run reads may no longer be shared
    with users.admit_launch(run.id, 1, run.config().training.threads):
        resumed = jobs.resume(data_cache.run_store(), run)
    position = f" {queue.waiting_sentence(resumed)}." if resumed.status().state == "queued" else ""
    st.session_state[RESUMED] = display.escaped(f"Resumed as {short_id(resumed.id)}.{position}")
    page_layout.switch_page("runs", run=resumed.id, **table.group_in_url(st.query_params.get(table.GROUP)))


def start_from_config(config: RunConfig, run: Run | None = None) -> None:
    """Open the New run page with all settings of a config, on its dataset.

    Args:
        config: The config.
        run: The run with this config, whose copy of decisions is used if the user has no dataset with these settings.
    """
    values: dict[str, Any] = config.model_dump()
    page_layout.send_settings({section: values[section] for section in SECTIONS})
    page_layout.switch_page("train", dataset=saved_dataset_key(config.data, run))


def train_from_model(run: Run) -> None:
    """Open the New run page with the model of this run as the encoder, none of whose layers is re-initialized."""
    config = run.config()
    encoder = config.encoder.model_copy(update={"name": f"run:{run.id}", "reinit_layers": 0})
    page_layout.send_settings({"encoder": encoder.model_dump()})
    page_layout.switch_page("train", dataset=saved_dataset_key(config.data, run))


def saved_dataset_key(data: DataConfig, run: Run | None = None) -> str:
    """Return the key of the dataset with this config; a config without a dataset is saved as a new one.

    Args:
        data: The config.
        run: The run of the config, whose copy of decisions the new dataset gets.
    """
    key = data_cache.dataset_key(data)
    if key is not None:
        return key
    data = data if run is None else run.data_config(data)
    folder = uploads.folder_for(data.train, data.model_dump_json())
    return uploads.register(folder, data.train.rstrip("/").rpartition("/")[2], data)
