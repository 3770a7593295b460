"""Merging the model of a run with its start: the curve along alpha, computed in a background task, and saving."""

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

import streamlit as st

from bsc_core import background_task, formatting
from bsc_core.errors import InputError, RunNotFoundError
from bsc_core.figures.runs import curves
from bsc_core.files import folder_bytes
from bsc_core.paths import cache_folder
from bsc_core.runs import Run
from bsc_core.runs.documents import GENERAL_SCORE
from bsc_core.users.quotas import check_run_disk
from pages.ui.components import display, url, users
from pages.ui.runs.run_task import RunTask

TASK = RunTask("bsc_core.jobs.actions.merging", "runs.merge", "merge", ":material/merge:", "Merging failed")
ALPHA = "runs.alpha"
ABOUT = (
    "(1 - alpha) · start + alpha · trained: a lower alpha keeps more of what the encoder could do before training and "
    "less of what it learned (WiSE-FT)."
)


def draw(run: Run) -> None:
    """Draw the curve of a run with the slider for alpha, its progress, or the button that computes it."""
    st.markdown("**Merge with the initial weights**")
    st.caption(ABOUT)
    if run.config().encoder.reinit_layers:
        st.caption("This run started from re-initialized layers, so its model cannot be merged with its start.")
        return
    folder = task_folder(run)
    curve = background_task.read_result(folder)
    try:
        users.check_encoders(run.config())  # the start, which may be the model of a run that was shared
    except (InputError, RunNotFoundError) as error:
        display.error_box(error, "The model cannot be merged with its start")
        return
    if curve is None:
        about = "Evaluates alpha = 0, 0.1, ..., 1 and a value above the best one on dev, test and the general suite."
        TASK.draw(run, folder, "Evaluate merged models", about=about)
        return
    _draw_curve(run, curve)


def task_folder(run: Run, alpha: float | None = None) -> Path:
    """Return the folder of the task that computes the curve of the run's model, or saves its model of one alpha."""
    stamps = [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in _weights(run)]
    key = hashlib.sha256(json.dumps([str(run.folder), stamps, alpha]).encode()).hexdigest()[:20]
    return cache_folder() / "merge" / key


def point_sentence(curve: dict[str, Any], alpha: float) -> str:
    """Describe target and general score at an alpha, next to those of the start and of the trained model."""
    points = {point["alpha"]: point for point in curve["points"]}
    scores = {
        "dev": f"{formatting.metric_name(curve['metric'])} on dev",
        "test": "on test",
        GENERAL_SCORE: "general score",
    }
    parts = [
        f"{name} {formatting.metric(points[alpha][key])} "
        f"({formatting.metric(points[0][key])} → {formatting.metric(points[1][key])})"
        for key, name in scores.items()
        if points[alpha].get(key) is not None
    ]
    return f"alpha = {alpha:g}: {'; '.join(parts)}. In brackets: start → trained."


def _weights(run: Run) -> list[Path]:
    return sorted(path for path in run.model_folder.rglob("*.safetensors") if path.is_file())


def _draw_curve(run: Run, curve: dict[str, Any]) -> None:
    alphas = [point["alpha"] for point in curve["points"]]
    alpha = st.select_slider(
        "Share of the trained weights (alpha)",
        alphas,
        curve["suggested"],
        format_func=lambda value: f"{value:g}",
        **url.bound(f"{ALPHA}.{run.id}", [f"{one:g}" for one in alphas]),
    )
    display.figure(
        curves.merge_curve(curve["points"], curve["metric"], alpha),
        alt=f"{curve['metric']} on dev and general score by alpha",
        name=f"merge.{run.id}",
    )
    st.text(point_sentence(curve, alpha))
    st.caption(
        f"Suggested: alpha = {curve['suggested']:g}, the best dev metric with a general score at most "
        f"{curve['tolerance']:g} below the start. It is chosen on dev, so its dev metric is slightly optimistic."
    )
    if curve["merge_with_start"] is not None and curve["merge_with_start"] < 1:
        st.caption(f"The run's model is itself merged with its start, at alpha = {curve['merge_with_start']:g}.")
    if 0 < alpha < 1 and users.may_change(run):
        folder = task_folder(run, alpha)
        saved = background_task.read_result(folder)
        if saved is None or not Path(saved["model"]).is_dir():
            try:
                check_run_disk(run, folder_bytes(run.model_folder))
            except InputError as error:
                display.error_box(error, "The merged model cannot be saved")
                return
            about = "Writes it into the folder of the run."
            TASK.draw(run, folder, "Save the merged model", about=about, alpha=alpha)
            return
        st.caption(f"Saved: {display.escaped(saved['model'])}")
        st.code(f"bsc evaluate {shlex.quote(saved['model'])} --data pairs.tsv", language=None)
