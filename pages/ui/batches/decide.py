"""Decisions about single pairs, on the Batches and Retrieval pages: their file, and the control that takes one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import streamlit as st

from bsc_core.data.decisions import Decision, DecisionKind, TextPair, read_decisions, undo_decisions
from bsc_core.errors import BscError
from bsc_core.runs import Run
from pages.ui.components import data_cache, display, users

LABELS: dict[DecisionKind, str] = {"positive": "Positive", "true_negative": "True negative", "drop": "Drop"}
MEANING = (
    "**Positive**: yes; in training, the pair becomes a row; in dev and test, the document is relevant. "
    "**True negative**: no; masks keep it as a negative. **Drop**: unclear; the loss ignores the pair. New plans never "
    "put the rows of a positive or dropped pair in the same batch."
)
HOW_TO_DECIDE = "Select above the run's dataset, or one whose decisions you may change."


def dataset_file(dataset_key: str) -> Path | None:
    """Return the file for the decisions of the user about a dataset; None if they belong to another user."""
    path = data_cache.false_negatives_file(dataset_key)
    return path if data_cache.data_config(dataset_key).false_negatives in (None, str(path)) else None


def run_file(run: Run, dataset_key: str) -> Path | None:
    """Return the file for the decisions about a run: that of its config, else of the dataset with the same config.

    The file of another user, or of a run of another user, is not returned, since this user may not change it. A file
    that does not exist is returned only if it is that of a dataset: the config may have been copied from elsewhere.
    """
    data, choices = run.config().data, data_cache.datasets()
    if data.false_negatives and not (users.may_change(run) and data_cache.may_change_decisions(data.false_negatives)):
        return None
    if data.false_negatives:
        path = Path(data.false_negatives)
        known = [*map(data_cache.false_negatives_file, choices)]
        return path if path.is_file() or path in known else None
    for key in (dataset_key, *choices):
        if key in choices and choices[key].data == data:
            return data_cache.false_negatives_file(key)
    return None


def saved_decisions(path: Path | None) -> list[Decision]:
    """Return the decisions of a file; none if it does not exist."""
    return read_decisions(path) if path is not None and path.is_file() else []


def draw_control(
    path: Path | None, pair: TextPair, saved: DecisionKind | None, *, key: str, on_save: Callable[[str], object]
) -> None:
    """Draw the decisions about a pair to choose from; the chosen one is saved, and removed when it is deselected.

    Args:
        path: The file of decisions; None if there is none that the user may change.
        pair: The texts of the query and of the document.
        saved: The present decision.
        key: Session key of the control.
        on_save: Called in the callback with a sentence about what was saved.
    """
    st.session_state[key] = saved
    st.segmented_control(
        "Does this document answer the query?",
        list(LABELS),
        format_func=lambda kind: LABELS[kind],
        key=key,
        help=MEANING if path is not None else HOW_TO_DECIDE,
        disabled=path is None,
        on_change=lambda: path and save(path, pair, st.session_state[key], on_save),
    )


def save(path: Path, pair: TextPair, kind: DecisionKind | None, on_save: Callable[[str], object]) -> None:
    """Save the decision about a pair, or remove it (None), in a callback; a message says why that was not possible."""
    if not users.current_user().may_launch:  # a callback runs before the page, which ends for a removed user
        return
    try:
        if kind is None:
            undo_decisions(path, [pair])
        else:
            data_cache.save_decisions(path, [Decision(*pair, kind)])
    except (BscError, OSError) as error:
        st.toast(f"The decision was not saved: {display.escaped(str(error))}", icon=":material/error:")
    else:
        on_save("Decision removed." if kind is None else f"Decision saved: {LABELS[kind].lower()}.")
