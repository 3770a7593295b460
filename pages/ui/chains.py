"""The encoder of a run: a built-in one, a folder, a hub id, or the model that another run left or will leave."""

from __future__ import annotations

import streamlit as st

from bsc_core.config import RunConfig
from bsc_core.errors import BscError
from bsc_core.figures import theme
from bsc_core.runs import Run, chain_of
from pages.ui import forms, plan_words, store

RUNS_OFFERED = 50


def picker(page: str, section: str, field: str) -> None:
    """A select box of encoders, in which a folder or a hub id can be typed."""
    widget_key = forms.key(page, section, field)
    names = {name: plan_words.NAMES[name] for name in plan_words.NAMES}
    names |= {f"run:{run.id}": words for run, words in _offered()}
    st.selectbox(
        str(forms.info_of(section, field).title),
        list(dict.fromkeys([*names, *filter(None, [st.session_state.get(widget_key)])])),
        format_func=lambda name: names.get(name, name),
        key=widget_key,
        accept_new_options=True,
        persist_state="session",
        help=forms.help_of(section, field),
    )


def _offered() -> list[tuple[Run, str]]:
    """Runs that have left a model, and those that may leave one, newest first, each with what it is."""
    found = []
    for run in store.run_store().list()[:RUNS_OFFERED]:
        status = run.status()
        if not status.is_finished or (status.state in ("done", "stopped") and run.model_folder.is_dir()):
            best = f" · {status.metric_name} {status.metric_best:.3f}" if status.metric_best is not None else ""
            found.append((run, f"After run {_name(run)} · {status.state}{best}"))
    return found


def _name(run: Run) -> str:
    try:
        return f"{run.config().name} ({run.id})" if run.config().name else run.id
    except BscError:  # written by a version with other fields: its id is still its name
        return run.id


def check(config: RunConfig) -> None:
    """Raise what the run would fail with where it cannot start: an unknown run, one that left no model, or no model."""
    run_id, runs = chain_of(config.encoder.name), store.run_store()
    if run_id is None and config.encoder.name not in plan_words.NAMES:
        from bsc_core.encoders import check_encoder

        check_encoder(config.encoder.name)
    elif run_id is not None and runs.get(run_id).status().is_finished:
        runs.encoder(config.encoder)


def waiting_words(config: RunConfig) -> str | None:
    """That this run waits for another one, with how far that is; None where it need not."""
    run_id = chain_of(config.encoder.name)
    status = store.run_store().get(run_id).status() if run_id is not None else None
    if status is None or status.is_finished:
        return None
    left = f", about {theme.duration(status.eta_seconds)} left" if status.eta_seconds else ""
    return f"It waits in the queue until run {run_id} has ended ({status.state}{left})."
