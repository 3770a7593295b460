"""Runs in processes of their own: launch one, stop one, find those whose process has gone.

A job is a detached child process and the run folder is the only meeting point: closing the app touches no run. The
modules `worker`, `supervisor` and `ladder` are what those processes run.
"""

from bsc_core.jobs.launching import launch
from bsc_core.jobs.reconciling import reconcile
from bsc_core.jobs.resuming import can_resume, resume
from bsc_core.jobs.states import TRANSITIONS
from bsc_core.jobs.stopping import stop

__all__ = ["TRANSITIONS", "can_resume", "launch", "reconcile", "resume", "stop"]
