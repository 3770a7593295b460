"""Runs in processes of their own: launch one or a group, order them, stop one, find those whose process has gone.

A job is a detached child process and the run folder is the only meeting point: closing the app touches no run. The
modules `worker`, `supervisor` and `ladder` are what those processes run.
"""

from bsc_core.jobs.chains import waits_for
from bsc_core.jobs.controls import pause, set_slots, slots, unpause
from bsc_core.jobs.groups import group_runs, group_summary, launch_group
from bsc_core.jobs.launching import launch
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.reconciling import reconcile
from bsc_core.jobs.resuming import can_resume, resume
from bsc_core.jobs.states import TRANSITIONS
from bsc_core.jobs.stopping import hangs_on, stop
from bsc_core.jobs.trash import Trashed, empty_trash, restore, trash, trashed

__all__ = [
    "TRANSITIONS",
    "Queue",
    "Trashed",
    "can_resume",
    "empty_trash",
    "group_runs",
    "group_summary",
    "hangs_on",
    "launch",
    "launch_group",
    "pause",
    "reconcile",
    "restore",
    "resume",
    "set_slots",
    "slots",
    "stop",
    "trash",
    "trashed",
    "unpause",
    "waits_for",
]
