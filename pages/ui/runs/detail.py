"""One run: status line, actions, progress, and tabs with metrics, curves, batch, diagnosis, log, config and model."""

import time
from contextlib import suppress
from functools import partial
from typing import Any

import streamlit as st

from bsc_core import formatting, jobs
from bsc_core.config import to_toml
from bsc_core.errors import RunError
from bsc_core.evaluation.comparison import HIGHEST
from bsc_core.figures.runs import curves
from bsc_core.runs import Run, RunStatus
from bsc_core.runs.documents import FIRST_BATCH, GENERAL, GENERAL_SCORE
from bsc_core.runs.ids import short_id
from pages.ui.comparison import metrics_table, settings
from pages.ui.components import display, page_layout, run_data, url, users
from pages.ui.runs import actions, curve_controls, diagnosis, merge, model_export, queue, table

MAX_EXPORTED_STEPS = 100_000
LOG_LINES = 200
NO_LOG = "The log is empty. A run that is trained in a terminal writes its log there."
SHOWN = "runs.detail.shown"  # session key: the id of the run that was shown last
ALL_METRICS = "runs.metrics.all"
PARTS = ("runs.part.overview", "runs.part.log", "runs.sweep.part")
PARAMETERS = (ALL_METRICS, *curve_controls.PARAMETERS, *PARTS, f"{merge.ALPHA}.*")
FOR_MEMBERS = ("Diagnosis", "Log", "Config", "Model")  # tabs with paths of the server, which students do not see


def draw(run: Run) -> None:
    """Draw the run, live while it is active, and the page again when it ends."""
    table.draw_live(lambda: _draw(run), [run])


def _draw(run: Run) -> None:
    status = run.status()
    _draw_head(run, status)
    tabs = {
        "Overview": _draw_overview,
        "Curves": _draw_curves,
        "First batch": _draw_first_batch,
        "Diagnosis": diagnosis.draw,
        "Log": _draw_log,
        "Config": _draw_config,
        "Model": model_export.draw,
    }
    if not users.current_user().may_launch:
        tabs = {name: draw for name, draw in tabs.items() if name not in FOR_MEMBERS}
    first = "Log" if "Log" in tabs and status.state in ("failed", "lost") else "Overview"
    key = f"runs.part.{first.lower()}"  # a run that fails while you watch it switches to its log
    if page_layout.arrived() and st.session_state.get(SHOWN) != run.id and key not in st.query_params:
        st.session_state.pop(key, None)  # the tab that was open for the run before
    st.session_state[SHOWN] = run.id
    display.tabs(tabs, run, status, default=first, **url.bound(key, tabs))


def _draw_head(run: Run, status: RunStatus) -> None:
    """Draw the status line, the actions, the progress bar and the error."""
    style = table.STATES[status.state]
    title = st.container(horizontal=True, vertical_alignment="center")
    title.header(display.escaped(short_id(run.id)), anchor=False, width="content")
    row = st.container(horizontal=True, vertical_alignment="center")
    row.badge(status.state, icon=style.icon, color=style.color)  # type: ignore[arg-type]
    following = table.continuation(run, status)
    continued = f" · continued as {short_id(following.id)}" if following else ""
    before = None
    with suppress(RunError):  # the metrics below show the error
        before = (run.evaluation("before").get("dev") or {}).get(status.metric_name or "")
    if before is not None and status.is_finished and status.metric_high is not None and status.metric_high < before:
        row.badge("worse than before training", icon=":material/trending_down:", color="orange")
    elif before is not None and not status.is_finished and _no_epoch_reaches(run, status, before):
        row.badge("no epoch as good as before training", icon=":material/trending_down:", color="orange")
    row.text(status_line(status, before=before) + continued)
    actions.draw(run, status, title, may_resume=following is None)
    if before is not None and before >= HIGHEST:
        st.caption(
            f":material/info: Before training, {formatting.metric_name(status.metric_name or '')} on dev is "
            f"{formatting.metric(before)}, so training cannot increase it. Evaluate on more dev queries, or add a "
            "corpus, so that each query searches more documents."
        )
    if not status.is_finished:
        activity = status.message or "Starting …"
        if status.state == "queued":
            activity = queue.waiting_sentence(run)
        done = f"{status.percent}% of the steps · " if status.step else ""
        st.progress(status.percent, text=display.escaped(f"{done}{activity}"))
        if status.state == "stopping":
            st.caption(stopping_note(run, status))
    if status.state == "stopped" and not run.evaluation("after"):
        resume = "Resume continues from its last checkpoint." if jobs.can_resume(run) else actions.NO_CHECKPOINT
        resume = "Resume queues it again." if jobs.never_started(run) else resume
        before = "its model was evaluated" if status.step else "its first training step"
        st.caption(f"The run was stopped before {before}. {resume}")
    if status.error:
        next_step = "resume the run or launch another" if jobs.can_resume(run) else "duplicate the run"
        about = f"The end of the log is below. Fix the cause, then {next_step}."
        display.error_box(users.without_paths(status.error), style.meaning).caption(about)


def _no_epoch_reaches(run: Run, status: RunStatus, before: float) -> bool:
    """Whether epochs were evaluated, and all of them are below the metric on dev before training."""
    points = curves.evaluations(table.metric_rows(run), status.metric_name or "")
    epochs = [point["value"] for point in points if point["epoch"] > 0]
    return bool(epochs) and max(epochs) < before


def stopping_note(run: Run, status: RunStatus) -> str:
    """Return what a run that was asked to stop still does."""
    limit = f"Its process is ended if it makes no progress for {formatting.duration(jobs.GRACE_SECONDS)}."
    if any(row.get("kind") == "evaluation" and row["epoch"] for row in table.metric_rows(run)):
        return f"The run stops after this step. Its model is that of the best epoch so far. {limit}"
    if not status.step:
        return f"The run stops at its first step. Without a finished step, no model is saved. {limit}"
    return f"The run stops after this step and the evaluation of its model. {limit}"


def status_line(status: RunStatus, *, before: float | None = None) -> str:
    """Return the progress in one line: `step 63 of 126 · epoch 2 of 3 · 48 s left`; `before`: metric at the start."""
    parts = []
    if status.steps:
        parts.append(f"step {formatting.count(status.step)} of {formatting.count(status.steps)}")
    if status.epochs:
        parts.append(f"epoch {status.epoch} of {status.epochs}")
    if status.eta_seconds and status.state == "running":
        parts.append(f"{formatting.duration(status.eta_seconds)} left")
    if status.finished and status.started:
        parts.append(f"took {formatting.duration(status.finished - status.started)}")
    if status.metric_name:
        start = "" if before is None else f", before training {formatting.metric(before)}"
        parts.append(f"best on dev: {table.best_metric(status)}{start}")
    if status.resumed_from:
        parts.append(f"resumed from {short_id(status.resumed_from)}")
    message = status.message if status.is_finished else ""
    return " · ".join(parts) or message or table.STATES[status.state].meaning


def _draw_overview(run: Run, status: RunStatus) -> None:
    rows, name = evaluated_rows(run, status), status.metric_name
    is_evaluated = bool(name and curves.evaluations(rows, name))
    cells = iter(display.columns(1 + is_evaluated, of_figures=True))  # until then, the loss has the full width
    with next(cells):
        if not _draw_curve(run, rows, "loss"):
            _draw_no_steps(status)
    if name and is_evaluated:
        with next(cells):
            _draw_metric(run, status, rows, name)
    if applied := (run.read_json("result") or {}).get("decisions"):
        st.caption(f"{display.escaped(str(applied))}.")
    _draw_metrics(run)


def _draw_metric(
    run: Run, status: RunStatus, rows: list[dict[str, Any]], name: str, view: curves.CurveView = curves.DEFAULT_VIEW
) -> None:
    """Draw a metric on dev by epoch, with the interval of the best model."""
    verdict, colors = _verdict(run, name), run_data.run_colors([run.id])
    low, high = status.metric_low, status.metric_high
    interval = None if not status.is_finished or low is None or high is None else (low, high)
    figure = curves.metric_curve({run.id: [rows]}, name, view, colors=colors, verdict=verdict, interval=interval)
    display.figure(figure, alt=f"{formatting.metric_name(name)} by epoch", name=f"dev.{run.id}")


def evaluated_rows(run: Run, status: RunStatus) -> list[dict[str, Any]]:
    """Return the rows of a run's metrics, with the evaluation of a model that was stopped in its first epoch."""
    rows, after = table.metric_rows(run), run.evaluation("after")
    epochs = [row["epoch"] for row in rows if row.get("kind") == "evaluation"]
    if epochs != [0] or not (after and status.step and status.steps and status.epochs):
        return rows
    epoch = status.step * status.epochs / status.steps
    return [*rows, {"kind": "evaluation", "step": status.step, "epoch": epoch, **after}]


def _verdict(run: Run, metric: str) -> str:
    """Return whether the saved model differs on dev from the start; empty before both are evaluated."""
    if not run.evaluation("after"):
        return ""
    comparison = settings.compare_settings(*settings.untrained_and_trained(run), "dev", metric)
    if isinstance(comparison, str) or comparison.p is None:
        return ""
    return "significant" if comparison.significant else "not significant"


def _draw_metrics(run: Run) -> None:
    rows = before_after_rows(run, all_metrics=bool(st.session_state.get(ALL_METRICS)))
    if not rows:
        status = run.status()
        if not status.is_finished:
            st.caption("Metrics before and after training appear here after the first evaluation.")
        elif status.step:
            st.caption("The run ended before its first evaluation, so it has no metrics.")
        return
    st.dataframe(rows, hide_index=True, key=f"runs.metrics.{run.id}", alt="Metrics before and after training")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.toggle("All metrics", **url.flag(ALL_METRICS))
        if not run.evaluation("after"):
            if not run.status().is_finished:
                st.caption(
                    "The metrics of the saved model appear here when training ends. Until then, the curve shows the "
                    "metric after each epoch."
                )
        else:
            st.caption(
                "Brackets: 95% bootstrap intervals over queries. p: p-value of a paired permutation test over queries."
            )


def before_after_rows(run: Run, *, all_metrics: bool = False) -> list[dict[str, str]]:
    """Return a table row per split and metric, before and after training; empty before the first evaluation.

    Args:
        run: The run.
        all_metrics: Include every cutoff, not only the main metrics; the first of them, up to the limit of a table.
    """
    before, after, general = run.evaluation("before"), run.evaluation("after"), run.evaluation(GENERAL)
    main = (*metrics_table.MAIN_METRICS, run.status().metric_name)
    selected = [
        (split, name)
        for split, metrics in before.items()
        for name in sorted(metrics, key=table.metric_order)
        if name not in table.NOT_METRICS and (all_metrics or name in main)
    ]
    rows = [
        _metric_row(run, split, name, before[split][name], (after.get(split) or {}).get(name), is_trained=bool(after))
        for split, name in selected[: metrics_table.MAX_METRICS]
    ]
    trained, missing = general.get("after") or {}, "not evaluated" if run.status().is_finished else "not yet"
    rows += [
        {
            "Split": GENERAL,
            "Metric": formatting.metric_name(name),
            "Before": formatting.metric(value),
            "After": formatting.metric(trained[name]) if name in trained else missing,
        }
        for name, value in (general.get("before") or {}).items()
        if all_metrics or name == GENERAL_SCORE
    ]
    return rows


def _metric_row(
    run: Run, split: str, name: str, before: float | None, after: float | None, *, is_trained: bool
) -> dict[str, str]:
    if not is_trained:
        return {
            "Split": split,
            "Metric": formatting.metric_name(name),
            "Before": formatting.metric(before),
            "After": "not evaluated" if run.status().is_finished else "not yet",
        }
    sides = settings.untrained_and_trained(run)
    intervals = [metrics_table.interval_or_none(side, split, name) for side in sides]
    values = [
        formatting.metric(value) if interval is None else metrics_table.format_interval(interval)
        for value, interval in zip((before, after), intervals, strict=True)
    ]
    row = {"Split": split, "Metric": formatting.metric_name(name), "Before": values[0], "After": values[1]}
    if all(intervals):
        row["Significant?"] = metrics_table.significance(settings.compare_settings(*sides, split, name))
    return row


def _draw_curves(run: Run, status: RunStatus) -> None:
    rows, name = evaluated_rows(run, status), status.metric_name
    fields = curves.logged_fields(rows)
    if not fields:
        _draw_no_steps(status)
        return
    view = curve_controls.select_view()
    is_evaluated = bool(name and curves.evaluations(rows, name))
    cells = iter(display.columns(len(fields) + is_evaluated, min_width=440, of_figures=True))
    if name and is_evaluated:
        with next(cells):
            _draw_metric(run, status, rows, name, view)
    for field in fields:
        with next(cells):
            _draw_curve(run, rows, field, view)


def _draw_curve(run: Run, rows: list[dict[str, Any]], field: str, view: curves.CurveView = curves.DEFAULT_VIEW) -> bool:
    """Draw one logged number by step; False if no step has logged it."""
    if field not in curves.logged_fields(rows):
        return False
    alt = f"{curves.STEP_FIELDS[field].noun} by step"
    figure = curves.step_curve({run.id: [rows]}, field, view, colors=run_data.run_colors([run.id]))
    display.figure(figure, alt=alt, name=f"{field}.{run.id}", data=partial(_steps, run))
    return True


def _steps(run: Run) -> list[dict[str, Any]]:
    """Return all logged numbers by step."""
    rows = run.metrics(max_steps=MAX_EXPORTED_STEPS)[0]
    return [{name: row[name] for name in row if name != "kind"} for row in rows if row.get("kind") == "step"]


def _draw_no_steps(status: RunStatus) -> None:
    if status.is_finished:
        st.caption("The run ended before its first training step.")
    else:
        st.caption("The curves appear here after the first training step.")
        st.skeleton(height=200)


def _first_rows(batch: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "Query": pair["query"],
            "Document": pair["document"],
            "Label": pair["label"],
            "Query tokens": pair["query_tokens"],
            "Document tokens": pair["document_tokens"],
            "Truncated": " and ".join(side for side in ("query", "document") if pair[f"{side}_cut"]),
        }
        for pair in batch["pairs"]
    ]


def _draw_first_batch(run: Run, status: RunStatus) -> None:
    """Draw the pairs of the first batch as the model read them: tokenized and truncated."""
    batch = run.read_json(FIRST_BATCH)
    if not batch:
        no_batch = "This run saved no first batch."
        st.caption(no_batch if status.is_finished else "The first batch appears here as soon as training begins.")
        return
    try:
        sentence, rows = batch_sentence(batch), _first_rows(batch)
        names = list(rows[0])
    except (LookupError, TypeError, ValueError, AttributeError):
        raise RunError(f"run {run.id}: {FIRST_BATCH}.json is damaged; launch the run again") from None
    st.text(sentence)
    has_labels = any(row["Label"] is not None for row in rows)
    st.dataframe(
        rows,
        hide_index=True,
        key=f"runs.batch.{run.id}",
        alt="The pairs of the first batch as the model read them",
        height=min(420, 38 + 36 * len(rows)),
        column_order=[name for name in names if name != "Label" or has_labels],
        column_config={
            "Query": st.column_config.TextColumn(width=280),
            "Document": st.column_config.TextColumn(width=340),
            "Label": st.column_config.NumberColumn(format="%.2f"),
        },
    )


def batch_sentence(batch: dict[str, Any]) -> str:
    """Describe how many pairs of the batch are shown, and how many of their texts were truncated."""
    pairs = batch["pairs"]
    cut = sum(bool(pair[f"{side}_cut"]) for pair in pairs for side in ("query", "document"))
    shown = "" if len(pairs) == batch["size"] else f", the first {len(pairs)} are shown"
    truncated = f"{formatting.plural(cut, 'text was', 'texts were')} truncated" if cut else "no text was truncated"
    return f"Epoch {batch['epoch']} starts with {formatting.plural(batch['size'], 'pair')}{shown}; {truncated}."


def _draw_log(run: Run, status: RunStatus) -> None:
    with st.container(height=320, border=False, autoscroll=True):
        st.code(
            "\n".join(run.log_tail(LOG_LINES)) or (NO_LOG if status.is_finished else "The log is empty so far."),
            language=None,
            wrap_lines=True,
        )
    st.caption(display.escaped(f"The last {LOG_LINES} lines of {run.log_file}"))


def _draw_config(run: Run, status: RunStatus) -> None:
    """Draw the config, the run's folder and its checkpoints."""
    text = to_toml(run.config())
    st.code(text, language=None, height=320)
    display.config_download(text, key=f"runs.toml.{run.id}")
    ended = f" · ended {_local_time(status.finished)}" if status.finished else ""
    names = sorted(path.name for path in run.checkpoints_folder.glob("step-*"))
    checkpoints = f" · checkpoints {', '.join(names)}" if names else " · no checkpoint yet"
    st.caption(display.escaped(f"{run.folder} · created {_local_time(status.created)}{ended}{checkpoints}"))


def _local_time(timestamp: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(timestamp))
