"""Preflight panel of the New run page: a few training steps in a background task, and the measured cost."""

import hashlib
import json
import time
from pathlib import Path

import streamlit as st

from bsc_core import background_task, formatting
from bsc_core.config import RunConfig, flatten, setting_name
from bsc_core.errors import BscError, InputError, RunNotFoundError
from bsc_core.jobs.local.processes import worker_environment
from bsc_core.paths import cache_folder
from bsc_core.preflight import STEPS, Preflight
from pages.ui.components import config_form, data_cache, display, turns, users
from pages.ui.data import uploads
from pages.ui.new_run.config_summary import format_bytes

POLL_INTERVAL = "1s"
MAX_FOLDERS = 40
STATE = "train.preflight"  # folder of the preflight that this session runs
SAME_COST = (  # keys that change neither time, memory nor disk space
    *("name", "evaluation.metric", "loss.temperature", "loss.bsc.temperature", "training.seed", "training.seeds"),
    *("training.report_to", "training.learning_rate", "training.warmup_ratio", "training.schedule"),
    *("training.weight_decay", "training.max_grad_norm", "training.temperature_learning_rate"),
    "training.head_learning_rate",
)


def preflight_folder(config: RunConfig) -> Path:
    """Return the folder of a preflight; it depends on what the cost does: settings, data files, runs folder, user."""
    settings = {key: value for key, value in flatten(config).items() if key not in SAME_COST}
    stamps = data_cache.data_stamps(config.data), data_cache.file_stamps(config.encoder.name)
    key = json.dumps([settings, *stamps, str(data_cache.run_store().root), users.current_user().name])
    return cache_folder() / "preflight" / hashlib.sha256(key.encode()).hexdigest()[:20]


def load_preflight(config: RunConfig) -> Preflight | None:
    """Return the preflight of a config of the same cost; None if there is none."""
    report = background_task.read_result(preflight_folder(config))
    try:
        return None if report is None else Preflight.from_report(report)
    except (TypeError, KeyError):  # written by a version with other fields
        return None


def draw(config: RunConfig, runs: int, time_factor: float) -> None:
    """Draw the result of the preflight, its progress, or the button that starts it.

    Args:
        config: Config of the first run.
        runs: Number of runs to launch.
        time_factor: How many times as long all runs take as the first.
    """
    folder = preflight_folder(config)
    is_running = st.session_state.get(STATE) == str(folder)
    result = load_preflight(config)
    if (problem := _problem(config)) is not None:
        display.error_box(problem, "No preflight with this setting")
    elif result is not None:
        if is_running:
            del st.session_state[STATE]
        _draw_result(result, config, runs, time_factor)
    elif is_running and (error := background_task.read_progress(folder).error):
        with display.error_box(error, "The preflight failed"):
            _restart_button("Try again", config)
    elif is_running:
        turns.fragment(_draw_progress, run_every=POLL_INTERVAL)(folder)
    elif st.button(
        f"Run a preflight of {STEPS} steps",
        key="train.preflight.begin",
        icon=":material/speed:",
        width="stretch",
        help="Reads the data, loads the encoder, trains a few steps and writes one checkpoint in a separate "
        "process. Only the measurements are stored.",
    ):
        _start(config)


def _problem(config: RunConfig) -> BscError | None:
    try:
        users.check_threads(config.training.threads)
        uploads.check_config(config)
    except (InputError, RunNotFoundError) as error:
        return error
    return None


def _start(config: RunConfig) -> None:
    """Start the preflight of this config and rerun the page; cancel one that this session already runs."""
    folder = preflight_folder(config)
    cancel()
    background_task.remove_oldest(folder.parent, f"*/{background_task.REQUEST}", MAX_FOLDERS - 1)
    background_task.reset_failed(folder)
    request = {"config": config.model_dump(mode="json"), "runs": str(data_cache.run_store().root)}
    variables = worker_environment(config.training.threads)
    background_task.start(folder, "bsc_core.preflight.task", request, variables, user=users.task_user())
    st.session_state[STATE] = str(folder)
    st.rerun()


def cancel() -> None:
    """Cancel the preflight that this session runs, if any."""
    folder = st.session_state.pop(STATE, None)
    if folder is not None:
        background_task.cancel(Path(folder))


def _draw_progress(folder: Path) -> None:
    """Draw the progress; rerun the page when the preflight has ended or was canceled."""
    progress = background_task.read_progress(folder)
    if progress.error or background_task.read_result(folder) is not None or st.session_state.get(STATE) != str(folder):
        st.rerun(scope="app")
    elapsed = background_task.elapsed_seconds(folder)
    doing = display.escaped(f"Preflight: {progress.doing} · {formatting.duration(elapsed)}")
    st.progress(progress.fraction, text=doing)
    icon = ":material/stop:"
    st.button("Cancel the preflight", key="train.preflight.end", icon=icon, type="tertiary", on_click=cancel)


def _restart_button(label: str, config: RunConfig) -> None:
    icon = ":material/refresh:"
    if st.button(label, key="train.preflight.again", type="tertiary", icon=icon):
        _start(config)


def _draw_result(result: Preflight, config: RunConfig, runs: int, time_factor: float) -> None:
    """Draw rows, steps, time, memory and disk, and the warnings."""
    of_all = ", all runs" if runs > 1 else ""
    step = result.step_seconds
    values = {
        "Rows": formatting.count(result.rows),
        "Steps": formatting.count(result.steps),
        f"Time{of_all}": f"about {formatting.duration(result.total_seconds * time_factor)}",
        "Memory, at least": format_bytes(result.memory_bytes),
        f"Disk{of_all}": format_bytes(result.disk_bytes * runs),
        "Time per step": f"{1000 * step:.0f} ms" if step < 1 else formatting.duration(step),
    }
    display.labeled_values(values, min_width=130)
    age = time.time() - (preflight_folder(config) / background_task.RESULT_FILE).stat().st_mtime
    when = "just now" if age < 60 else f"{formatting.duration(age)} ago"
    with st.container(horizontal=True, vertical_alignment="center"):
        sentences = [f"{time_sentence(result)} Measured {when} on {result.device} in {result.precision}."]
        if others := other_settings(config):
            sentences.append(f"It was measured with {display.escaped(others)}, which does not change the cost.")
        st.caption(" ".join(sentences))
        _restart_button("Run again", config)
    warnings = list(result.warnings)
    if runs > 1 and result.disk_bytes * runs > 0.9 * result.disk_free_bytes:
        free = format_bytes(result.disk_free_bytes)
        warnings.append(f"These runs may fill the disk ({free} free). Save one checkpoint per run, or delete runs.")
    for warning in warnings:
        st.markdown(f":orange[:material/info:] {display.escaped(warning)}")


def other_settings(config: RunConfig) -> str:
    """Return the settings of the preflight that differ from those of the config: `Temperature = 0.1, Seed = 0`."""
    try:
        request = json.loads((preflight_folder(config) / background_task.REQUEST).read_text(encoding="utf-8"))
        measured = flatten(RunConfig.model_validate(request["config"]))
    except (OSError, ValueError, KeyError, TypeError):  # of an earlier version, or damaged
        return ""
    settings, keys = flatten(config), [key for key in SAME_COST if key not in ("name", "training.seeds")]
    different = [key for key in keys if measured.get(key) != settings.get(key)]
    return ", ".join(f"{setting_name(key)} = {config_form.format_setting(measured.get(key))}" for key in different)


def time_sentence(result: Preflight) -> str:
    """Return the three largest shares of the time."""
    names = {
        "start": "startup",
        "encode": "evaluation",
        "plan": "batch plans",
        "train": "training",
        "checkpoint": "checkpoints",
    }
    parts = sorted(result.seconds.items(), key=lambda part: -part[1])
    shares = [f"{names[name]} {seconds / result.total_seconds:.0%}" for name, seconds in parts]
    return f"Largest shares of the total time: {', '.join(shares[:3])}."
