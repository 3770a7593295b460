"""Why a run got worse: the findings of its diagnosis, computed in a background task, each with a changed setting."""

import hashlib
from pathlib import Path
from typing import Any

import streamlit as st

from bsc_core import background_task
from bsc_core.config import RunConfig, make_config, setting_name
from bsc_core.config.reading import put
from bsc_core.errors import BscError
from bsc_core.figures.runs.parallel import format_value
from bsc_core.paths import cache_folder
from bsc_core.runs import Run, RunStatus
from pages.ui.components import data_cache, display, users
from pages.ui.data import overview
from pages.ui.runs import actions
from pages.ui.runs.run_task import RunTask, is_running

TASK = RunTask(
    "bsc_core.diagnosis.task", "runs.diagnosis", "diagnose", ":material/troubleshoot:", "The diagnosis failed"
)
QUESTIONS = {
    "worse": "Why did my run get worse?",
    "better": "What can be improved in this run?",
    "noise": "Why did my run not get better?",
}
"""Heading by the state of the diagnosis."""
NO_FINDING = "No check found a cause. The settings and data of this run look usual."
INPUTS = ("config.json", "metrics.jsonl", "status.json", "evaluation/after.json", "evaluation/general.json")


def draw(run: Run, status: RunStatus) -> None:
    """Draw the diagnosis of a run, its progress, or the button that starts it."""
    report = background_task.read_result(task_folder(run)) if status.is_finished else None
    st.markdown(f"**{QUESTIONS.get(report['state'] if report else '', 'What limits the quality of this run?')}**")
    if not status.is_finished:
        st.caption("The diagnosis appears here when the run has ended.")
        return
    folder = task_folder(run)
    if report is not None:
        _draw_report(run, report)
        return
    if not is_running(folder):
        st.caption("Checks data, labels, loss, batches and training of this run, each with its evidence.")
    TASK.draw(run, folder, "Find the causes")


def task_folder(run: Run) -> Path:
    """Return the folder of the task that diagnoses the run as it is now."""
    stamps = data_cache.file_stamps(*(run.folder / name for name in INPUTS))
    return cache_folder() / "diagnosis" / hashlib.sha256(repr((run.folder, stamps)).encode()).hexdigest()[:20]


def changed_config(config: RunConfig, change: dict[str, Any]) -> RunConfig | None:
    """Return the config with the change of a finding; None if there is none or it does not fit the config."""
    values = config.model_dump()
    if "loss.name" in change:  # the other settings of the previous loss do not apply
        values["loss"] = {}
    try:
        for key, value in change.items():
            put(values, key, value, "diagnosis")
        return make_config(values, source="diagnosis") if change else None
    except BscError:
        return None


def _draw_report(run: Run, report: dict[str, Any]) -> None:
    st.text(report["verdict"])
    if not report["findings"]:
        st.caption(NO_FINDING if report["state"] != "unknown" else "The checks of data and settings found nothing.")
    for number, finding in enumerate(report["findings"]):
        _draw_finding(run, finding, number)
    if report["skipped"]:
        with st.expander(f"Checks that were not possible ({len(report['skipped'])})"):
            for name, reason in report["skipped"].items():
                st.text(f"{name}: {reason}")


def _draw_finding(run: Run, finding: dict[str, Any], number: int) -> None:
    with st.container(border=True):
        st.markdown(f"{overview.ICONS[finding['severity']]} **{display.escaped(finding['title'])}**")
        rows = [
            {"Evidence": one["name"], "This run": f"{one['value']:.3g}", "Expected": one["compared_with"]}
            for one in finding["evidence"]
        ]
        alt = f"Evidence of the finding {finding['code']}"
        st.dataframe(rows, hide_index=True, key=f"runs.evidence.{run.id}.{number}", alt=alt)
        st.text(finding["suggestion"])
        config = changed_config(run.config(), finding["change"])
        if config is not None and users.current_user().may_launch:
            changes = ", ".join(
                f"{setting_name(name)} {format_value(value)}" for name, value in finding["change"].items()
            )
            about = "Opens the New run page with the settings of this run and this change."
            key = f"runs.diagnosis.use.{run.id}.{number}"
            label = display.escaped(f"New run with {changes}")
            if st.button(label, key=key, icon=":material/content_copy:", help=about):
                actions.start_from_config(config)
