"""Merging the model of a run with its start: the curve along alpha, computed in a background task, and saving."""

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

import streamlit as st

from bsc_core import background_task, formatting
from bsc_core.figures.runs import curves
from bsc_core.jobs.local.processes import worker_environment
from bsc_core.paths import cache_folder
from bsc_core.runs import GENERAL_SCORE, Run
from pages.ui.components import display, users

POLL_INTERVAL = "1s"
MAX_FOLDERS = 40
MODULE = "bsc_core.jobs.actions.merging"
ABOUT = (
    "(1 - alpha) · start + alpha · trained: a lower alpha keeps more of what the encoder could do before training and "
    "less of what it learned (WiSE-FT)."
)


def draw(run: Run) -> None:
    """Draw the curve of a run with the slider for alpha, its progress, or the button that computes it."""
    st.markdown("**Merge with the start**")
    st.caption(ABOUT)
    if run.config().encoder.reinit_layers:
        st.caption("This run started from re-initialized layers, so its model cannot be merged with its start.")
        return
    folder = task_folder(run)
    curve = background_task.read_result(folder)
    if curve is None:
        about = "Evaluates alpha = 0, 0.1, ..., 1 on dev, test and the general suite."
        _draw_task(run, folder, {}, "Evaluate merged models", about)
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
    scores = {"dev": f"{curve['metric']} on dev", "test": "on test", GENERAL_SCORE: "general score"}
    parts = [
        f"{name} {formatting.metric(points[alpha][key])} "
        f"({formatting.metric(points[0][key])} → {formatting.metric(points[1][key])})"
        for key, name in scores.items()
        if points[alpha].get(key) is not None
    ]
    return f"alpha = {alpha:g}: {'; '.join(parts)}. In brackets: start → trained."


def _weights(run: Run) -> list[Path]:
    return sorted(run.model_folder.rglob("*.safetensors"))


def _draw_curve(run: Run, curve: dict[str, Any]) -> None:
    alphas = [point["alpha"] for point in curve["points"]]
    key = f"runs.alpha.{run.id}"
    st.session_state.setdefault(key, curve["suggested"])
    alpha = st.select_slider(
        "Share of the trained weights (alpha)", alphas, key=key, format_func=lambda value: f"{value:g}"
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
            _draw_task(run, folder, {"alpha": alpha}, "Save the merged model", "Writes it into the folder of the run.")
            return
        st.caption(f"Saved: {saved['model']}")
        st.code(f"bsc evaluate {shlex.quote(saved['model'])} --data pairs.tsv", language="bash")


def _draw_task(run: Run, folder: Path, more: dict[str, Any], label: str, about: str) -> None:
    """Draw the button that starts a task, or its progress."""
    if (folder / background_task.REQUEST).is_file() and background_task.read_result(folder) is None:
        _start_task(run, folder, more)  # again if the app was restarted meanwhile
        st.fragment(_draw_progress, run_every=POLL_INTERVAL)(folder, label)
        return
    st.button(
        label,
        key=f"runs.merge.{folder.name}",
        icon=":material/merge:",
        help=about,
        on_click=_start,
        args=(run, folder, more),
    )


def _start(run: Run, folder: Path, more: dict[str, Any]) -> None:
    users.record("merge", run.id, **more)
    background_task.remove_oldest(folder.parent, f"*/{background_task.REQUEST}", MAX_FOLDERS - 1)
    background_task.reset(folder)
    _start_task(run, folder, more)


def _start_task(run: Run, folder: Path, more: dict[str, Any]) -> None:
    request = {"run": str(run.folder), **more}
    background_task.start(folder, MODULE, request, worker_environment(run.config().training.threads))


def _draw_progress(folder: Path, label: str) -> None:
    """Draw the progress; rerun the page when the task has ended."""
    if background_task.read_result(folder) is not None or not (folder / background_task.REQUEST).is_file():
        st.rerun(scope="app")
    display.task_progress(folder, label, failed="Merging failed", key=f"runs.merge.again.{folder.name}")
