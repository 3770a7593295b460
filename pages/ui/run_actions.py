"""What can be done with a run: stop it, go on with it, use its settings for another, and delete it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from bsc_core.config import DataConfig, RunConfig
from bsc_core.errors import BscError
from bsc_core.runs import Run, RunStatus
from pages.ui import deleted, frame, run_list, show, store, uploads

SECTIONS = ("encoder", "batching", "loss", "training", "evaluation")


def draw(run: Run, status: RunStatus) -> None:
    """One line of buttons; those that make no sense in this state are not there."""
    with st.container(horizontal=True):
        left = hangs_on(run, status)
        if left or status.state in ("queued", "starting", "running"):
            _button("Stop", run, _stop, icon=":material/stop:", words="Keeps the best model so far")
        elif can_go_on(run):
            words = "A new run goes on from the last checkpoint, as if this one had never ended"
            _button("Resume", run, _resume, icon=":material/play_arrow:", words=words)
        words = "Opens New run with the settings of this one"
        _button("Duplicate", run, _duplicate, icon=":material/content_copy:", words=words)
        if status.is_finished and not left:
            words = f"Moves its folder to the trash, where it can be brought back for {deleted.KEPT}"
            _button("Delete", run, deleted.delete, icon=":material/delete:", words=words)


def hangs_on(run: Run, status: RunStatus) -> bool:
    """Whether a run was given up for lost though its process is still there, so that it has to be stopped first."""
    from bsc_core.jobs import hangs_on as process_is_there

    try:
        return status.state == "lost" and process_is_there(run)
    except BscError:  # such as a backend of another version: what is asked for later says so
        return False


def can_go_on(run: Run) -> bool:
    """Whether a run ended early and left a checkpoint to go on from."""
    from bsc_core.jobs import can_resume

    return can_resume(run)


def _button(label: str, run: Run, do: Callable[[Run], None], *, icon: str, words: str) -> None:
    if st.button(label, key=f"runs.{label.lower()}.{run.id}", icon=icon, help=words):
        try:
            do(run)
        except BscError as fault:
            show.error(fault)


def _stop(run: Run) -> None:
    from bsc_core.jobs import stop

    stop(run)
    st.rerun()


def _resume(run: Run) -> None:
    from bsc_core.jobs import resume

    following = resume(store.run_store(), run)
    run_list.stay_in(following.status().group)
    frame.go("runs", run=following.id)


def _duplicate(run: Run) -> None:
    start_from(run.config())


def start_from(config: RunConfig) -> None:
    """Go to New run with all settings of a config, on its dataset."""
    values: dict[str, Any] = config.model_dump()
    store.keep_plan({section: values[section] for section in SECTIONS})
    frame.go("train", dataset=dataset_of(config.data))


def train_on_from(run: Run) -> None:
    """Go to New run with the model that this run left as the encoder to start from."""
    config = run.config()
    encoder = config.encoder.model_copy(update={"name": f"run:{run.id}"})
    store.keep_plan({"encoder": encoder.model_dump()})
    frame.go("train", dataset=dataset_of(config.data))


def dataset_of(data: DataConfig) -> str:
    """The key of the dataset that is read like this; a config that no dataset has is kept as one of its own."""
    plain = _unmarked(data)
    for key, choice in store.datasets().items():
        if _unmarked(choice.data) == plain:
            return key
    folder = uploads.folder_for(data.train, data.model_dump_json())
    return uploads.describe(folder, data.train.rstrip("/").rpartition("/")[2], data)


def _unmarked(data: DataConfig) -> DataConfig:
    """Without the marks of false negatives, which are kept beside a dataset."""
    return data.model_copy(update={"false_negatives": None})
