"""Background task of a run, whose result is in a folder of the cache: the button that starts it, and its progress."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from bsc_core import background_task
from bsc_core.jobs.local.processes import worker_environment
from bsc_core.runs import Run
from pages.ui.components import display, turns, users

POLL_INTERVAL = "1s"
MAX_FOLDERS = 40


@dataclass(frozen=True)
class RunTask:
    """A kind of task.

    Attributes:
        module: Module of its process; the request has the folder of the run.
        key: Prefix of the widget keys.
        action: Its name in the audit log.
        icon: Icon of the button.
        failed: Title of an error.
    """

    module: str
    key: str
    action: str
    icon: str
    failed: str

    def draw(self, run: Run, folder: Path, label: str, *, about: str | None = None, **more: Any) -> None:
        """Draw the button that starts a task, or its progress.

        Args:
            run: The run.
            folder: Folder of the task.
            label: Label of the button and of the progress.
            about: Help of the button.
            more: Further values of the request.
        """
        if is_running(folder):
            self._start(run, folder, more)  # again if the app was restarted meanwhile
            turns.fragment(self._draw_progress, run_every=POLL_INTERVAL)(folder, label)
            return
        # No callback, which would start the task also if the run is no longer shared with the user.
        if st.button(label, key=f"{self.key}.{folder.name}", icon=self.icon, help=about):
            users.record(self.action, run.id, **more)
            background_task.remove_oldest(folder.parent, f"*/{background_task.REQUEST}", MAX_FOLDERS - 1)
            background_task.reset(folder)
            self._start(run, folder, more)
            st.rerun()

    def _start(self, run: Run, folder: Path, more: dict[str, Any]) -> None:
        request = {"run": str(run.folder), **more}
        variables = worker_environment(run.config().training.threads)
        background_task.start(folder, self.module, request, variables, user=users.task_user())

    def _draw_progress(self, folder: Path, label: str) -> None:
        """Draw the progress; rerun the page when the task has ended."""
        if not is_running(folder):
            st.rerun(scope="app")
        display.task_progress(folder, label, failed=self.failed, key=f"{self.key}.again.{folder.name}")


def is_running(folder: Path) -> bool:
    """Whether a task was started and has no result yet; it may have failed."""
    return (folder / background_task.REQUEST).is_file() and background_task.read_result(folder) is None
