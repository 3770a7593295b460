"""Runs as folders: their files, their ids and the status of each run."""

from bsc_core.runs.documents import FINISHED, STATES, RunStatus, State
from bsc_core.runs.store import Run, RunStore

__all__ = ["FINISHED", "STATES", "Run", "RunStatus", "RunStore", "State"]
