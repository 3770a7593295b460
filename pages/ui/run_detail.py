"""The parts of one run, a tab each: what came of it, all curves, the first batch, log, config, and the model."""

from __future__ import annotations

import time
from typing import Any

import streamlit as st

from bsc_core.config import to_toml
from bsc_core.figures import curves, theme
from bsc_core.runs import Run, RunStatus
from pages.ui import compare_table, compared, model_use, run_list, show

LOG_LINES = 200


def draw(run: Run, status: RunStatus) -> None:
    """The tabs; only the open one is made. A run that failed opens on its log."""
    parts = {
        "Overview": overview,
        "Curves": all_curves,
        "First batch": first_batch,
        "Log": log,
        "Config": config,
        "Model": model_use.draw,
    }
    first = "Log" if status.state in ("failed", "lost") else "Overview"
    key = f"runs.part.{run.id}.{first}"  # a run that fails while it is watched turns to its log
    for tab, part in zip(st.tabs(list(parts), default=first, on_change="rerun", key=key), parts.values(), strict=True):
        if tab.open:
            with tab, show.calm_errors(stop=False):
                part(run, status)


def overview(run: Run, status: RunStatus) -> None:
    """The loss, the metric on dev by epoch, and every metric before and after training."""
    rows = run_list.metric_rows(run)
    left, right = show.columns(2)
    with left:
        if not _drawn(run, rows, "loss"):
            _waiting(status)
    with right:
        name = status.metric_name
        if name and len(curves.evaluations(rows, name)) > 1:
            show.figure(curves.metric_curve({run.id: rows}, name), alt=f"{name} by epoch", name=f"dev.{run.id}")
    _measured(run)


def _measured(run: Run) -> None:
    key = f"runs.metrics.all.{run.id}"
    lines = before_after(run, every=bool(st.session_state.get(key)))
    if not lines:
        st.caption("Metrics before and after training will stand here; the encoder has not been measured yet.")
        return
    st.dataframe(lines, hide_index=True, key=f"runs.metrics.{run.id}", alt="Metrics before and after training")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.toggle("All metrics", key=key)
        if run.read_json("evaluation/after"):
            st.caption("Brackets: 95% intervals over queries drawn again; p: a paired test query by query.")


def all_curves(run: Run, status: RunStatus) -> None:
    """Every number that the steps noted."""
    rows = run_list.metric_rows(run)
    noted = curves.noted(rows)
    if not noted:
        _waiting(status)
        return
    for place, field in zip(show.columns(len(noted), least=440), noted, strict=True):
        with place:
            _drawn(run, rows, field)
    show.table_download(lambda: table(rows), name=f"steps.{run.id}", key=f"runs.steps.{run.id}")


def _drawn(run: Run, rows: list[dict[str, Any]], field: str) -> bool:
    """Draw one number by step; False where no step has noted it."""
    if field not in curves.noted(rows):
        return False
    alt = f"{curves.STEP_FIELDS[field].noun} by step"
    show.figure(curves.step_curve({run.id: rows}, field), alt=alt, name=f"{field}.{run.id}")
    return True


def _waiting(status: RunStatus) -> None:
    if status.is_finished:
        st.caption("It ended before its first training step.")
    else:
        st.caption("The curves appear here with the first training step.")
        st.skeleton(height=200)


def table(rows: list[dict[str, Any]]) -> Any:
    """The training steps as a table for download."""
    import pandas as pd

    return pd.DataFrame([row for row in rows if row.get("kind") == "step"]).drop(columns="kind", errors="ignore")


def before_after(run: Run, *, every: bool = False) -> list[dict[str, str]]:
    """Metrics of every split before and after training, as text; empty while nothing is measured.

    every: those at each cut-off too, not only what runs are compared by.
    """
    before, after = run.read_json("evaluation/before") or {}, run.read_json("evaluation/after") or {}
    chief = (*compare_table.CHIEF, run.status().metric_name)
    return [
        _metric_line(run, split, name, metrics[name], (after.get(split) or {}).get(name))
        for split, metrics in before.items()
        for name in sorted(metrics, key=run_list.metric_place)
        if name not in run_list.COUNTS and (every or name in chief)
    ]


def _metric_line(run: Run, split: str, name: str, first: float | None, last: float | None) -> dict[str, str]:
    if not run.read_json("evaluation/after"):
        return {"Split": split, "Metric": name, "Before": theme.metric(first), "After": "not yet"}
    sides = compared.untrained_and_trained(run)
    spans = [compare_table.interval(side, split, name) for side in sides]
    told = {"Is this a difference?": compare_table.answer(compared.compared(*sides, split, name))} if all(spans) else {}
    values = [
        theme.metric(value) if span is None else compare_table.span(span)
        for value, span in zip((first, last), spans, strict=True)
    ]
    return {"Split": split, "Metric": name, "Before": values[0], "After": values[1], **told}


def first_batch(run: Run, status: RunStatus) -> None:
    """The pairs of the first batch as the model saw them: after tokenising and cutting."""
    batch = run.read_json("first_batch")
    if not batch:
        ended = "This run kept no first batch."
        st.caption(ended if status.is_finished else "The first batch stands here as soon as training begins.")
        return
    st.text(batch_sentence(batch))
    lines = [batch_line(pair) for pair in batch["pairs"]]
    st.dataframe(
        lines,
        hide_index=True,
        key=f"runs.batch.{run.id}",
        alt="The pairs of the first batch as the model saw them",
        height=min(420, 38 + 36 * len(lines)),
        column_order=[name for name in lines[0] if name != "Label" or any(line["Label"] is not None for line in lines)],
        column_config={
            "Query": st.column_config.TextColumn(width=280),
            "Document": st.column_config.TextColumn(width=340),
            "Label": st.column_config.NumberColumn(format="%.2f"),
        },
    )


def batch_sentence(batch: dict[str, Any]) -> str:
    """How much of the batch is shown, and how many of its texts were cut."""
    pairs = batch["pairs"]
    cut = sum(bool(pair[f"{side}_cut"]) for pair in pairs for side in ("query", "document"))
    shown = "" if len(pairs) == batch["size"] else f", the first {len(pairs)} of them below"
    told = f"{theme.many(cut, 'text')} longer than the encoder reads: the end is not seen" if cut else "no text was cut"
    return f"Epoch {batch['epoch']} begins with {theme.many(batch['size'], 'pair')}{shown}; {told}."


def batch_line(pair: dict[str, Any]) -> dict[str, Any]:
    """One pair as a row; `Cut` names the sides that were too long."""
    return {
        "Query": pair["query"],
        "Document": pair["document"],
        "Label": pair["label"],
        "Query tokens": pair["query_tokens"],
        "Document tokens": pair["document_tokens"],
        "Cut": " and ".join(side for side in ("query", "document") if pair[f"{side}_cut"]),
    }


def log(run: Run, _status: RunStatus) -> None:
    """The end of the run's output."""
    with st.container(height=320, border=False, autoscroll=True):
        st.code("\n".join(run.log_tail(LOG_LINES)) or "Nothing written yet.", language=None, wrap_lines=True)
    st.caption(f"The last {LOG_LINES} lines of {run.log_file}")


def config(run: Run, status: RunStatus) -> None:
    """The whole config, where the run's folder is, and its checkpoints."""
    text = to_toml(run.config())
    st.code(text, language="toml", height=320)
    st.download_button(
        "Save config.toml",
        text,
        file_name="config.toml",
        mime="application/toml",
        key=f"runs.toml.{run.id}",
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
    )
    ended = f" · ended {when(status.finished)}" if status.finished else ""
    kept = sorted(path.name for path in run.checkpoints_folder.glob("step-*"))
    checkpoints = f" · checkpoints {', '.join(kept)}" if kept else " · no checkpoint yet"
    st.caption(f"{run.folder} · made {when(status.created)}{ended}{checkpoints}")


def when(moment: float) -> str:
    """A moment in the local time of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
