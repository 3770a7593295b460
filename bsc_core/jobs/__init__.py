"""Background runs: launch, order, stop, resume, and recover them.

A run is executed by a detached process, and processes communicate only through the run folder, so closing the app
affects no run. These processes execute the modules `worker`, `supervisor` and `actions.escalation`.
"""

from bsc_core.jobs.actions.groups import group_summary, launch_group
from bsc_core.jobs.actions.launching import launch, unpause
from bsc_core.jobs.actions.resuming import can_resume, never_started, resume
from bsc_core.jobs.actions.stopping import GRACE_SECONDS, has_live_process, stop
from bsc_core.jobs.actions.trash import TrashedRun, empty_trash, list_trash, restore, trash
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.recovery import reconcile
from bsc_core.jobs.scheduler import slots, waits_for

__all__ = [
    "GRACE_SECONDS",
    "Queue",
    "TrashedRun",
    "can_resume",
    "empty_trash",
    "group_summary",
    "has_live_process",
    "launch",
    "launch_group",
    "list_trash",
    "never_started",
    "reconcile",
    "restore",
    "resume",
    "slots",
    "stop",
    "trash",
    "unpause",
    "waits_for",
]
