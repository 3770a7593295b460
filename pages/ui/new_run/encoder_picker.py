"""The encoder of a run: built in, a folder, a Hub id, or the model of another run."""

import streamlit as st

from bsc_core import formatting
from bsc_core.config import RunConfig
from bsc_core.runs.ids import parent_run_id, short_id
from pages.ui.components import config_form, data_cache, users
from pages.ui.new_run.config_summary import ENCODER_NAMES

MAX_RUNS = 50


def draw(page: str, section: str, field: str) -> None:
    """Draw a select box of encoders that also accepts a typed folder or Hub id."""
    widget_key = config_form.key(page, section, field)
    names = ENCODER_NAMES | _run_labels()
    st.selectbox(
        str(config_form.info_of(section, field).title),
        list(dict.fromkeys([*names, *filter(None, [st.session_state.get(widget_key)])])),
        format_func=lambda name: names.get(name, name),
        key=widget_key,
        accept_new_options=True,
        persist_state="session",
        help=config_form.help_of(section, field),
    )


def _run_labels() -> dict[str, str]:
    """Return the labels of the runs that have a model or may still save one, newest first."""
    labels = {}
    for run in data_cache.run_store().list()[:MAX_RUNS]:
        status = run.status()
        if not status.is_finished or (status.state in ("done", "stopped") and run.model_folder.is_dir()):
            name, value = formatting.metric_name(status.metric_name or ""), status.metric_best
            best = "" if value is None else f" · {name} {value:.3f}"
            labels[f"run:{run.id}"] = f"Model of run {short_id(run.id)} · {status.state}{best}"
    return data_cache.unique_labels(labels)


def check(config: RunConfig) -> None:
    """Raise the error that the run would fail with: an unknown run, a run without a model, or no model folder."""
    users.check_encoders(config)
    if parent_run_id(config.encoder.name) is not None:
        data_cache.run_store().awaited_run(config.encoder)
    elif config.encoder.name not in ENCODER_NAMES:
        from bsc_core.encoders import check_encoder

        check_encoder(config.encoder.name)


def waiting_sentence(config: RunConfig) -> str | None:
    """Describe the run that this one waits for; None if it waits for none."""
    run_id = parent_run_id(config.encoder.name)
    status = data_cache.run_store().get(run_id).status() if run_id is not None else None
    if status is None or status.is_finished:
        return None
    left = f", about {formatting.duration(status.eta_seconds)} left" if status.eta_seconds else ""
    return f"This run waits in the queue until run {run_id} has ended ({status.state}{left})."
