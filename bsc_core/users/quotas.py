"""Quotas of members: runs, processor time, disk space and datasets."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from filelock import FileLock

from bsc_core.errors import BscError, InputError
from bsc_core.files import file_lock, folder_bytes
from bsc_core.runs import Run, RunStore
from bsc_core.users.access import ACCESS, dataset_access, run_access
from bsc_core.users.accounts import SHARED, User, read_users

WEEK = 7 * 24 * 3600.0  # seconds
_QUOTA_LOCK = ".quota.lock"


def check_quota(store: RunStore, user: User, number: int, *, threads: int) -> None:
    """Check the quota of a member before runs are launched.

    Args:
        store: All runs.
        user: The user who launches.
        number: How many runs.
        threads: Number of threads of a run whose config does not set it.

    Raises:
        InputError: The user may not launch runs, or a limit is exceeded; the message names it.
    """
    if not user.may_launch:
        raise InputError("students cannot launch runs; ask the owner of this app for the role of a member")
    if user.is_owner:
        return
    quota, runs = user.quota, [run for run in store.list() if run_access(run).owner == user.name]
    active = sum(not run.status().is_finished for run in runs)
    if active + number > quota.active_runs:
        raise InputError(
            f"you have {active} active runs and may have {quota.active_runs}; wait, stop a run, or launch fewer"
        )
    deleted = _deleted_runs(store, user)
    if len(runs) + len(deleted) + number > quota.runs:
        raise InputError(
            f"you have {len(runs)} runs and {len(deleted)} deleted runs, and may have {quota.runs}; delete runs, which "
            "the trash removes after a week, launch fewer, or ask the owner of this app"
        )
    used = processor_hours([*runs, *deleted], threads=threads)
    if used >= quota.processor_hours:
        raise InputError(
            f"your runs of the last seven days used {used:.1f} of {quota.processor_hours:g} processor hours; "
            "wait, or ask the owner of this app"
        )
    check_disk(store, user)


def check_disk(store: RunStore, user: User, additional_bytes: int = 0) -> None:
    """Check the disk quota of a member before a file is written.

    Raises:
        InputError: A limit is exceeded; the message names it.
    """
    if user.is_owner:
        return
    used = (disk_bytes(store, user) + additional_bytes) / 1e9
    if used > user.quota.disk_gb:
        raise InputError(
            f"your runs and files would use {used:.2f} of {user.quota.disk_gb:g} GB; "
            "delete runs, which the trash removes after a week, or ask the owner of this app"
        )


def check_run_disk(run: Run, additional_bytes: int) -> None:
    """Check the disk quota of the owner of a run, in a shared app, before its folder grows.

    Raises:
        InputError: The limit is exceeded.
    """
    if (root := os.environ.get(SHARED)) is not None:
        owner = read_users(Path(root)).get(run_access(run).owner or "")
        if owner is not None:
            check_disk(run.store, owner, additional_bytes)


@contextmanager
def admit_run_files(run: Run, additional_bytes: int) -> Iterator[None]:
    """Check the disk quota as `check_run_disk`; write the files in the block, before another check of a quota."""
    root = os.environ.get(SHARED)
    with nullcontext() if root is None else quota_lock_of(Path(root)):
        check_run_disk(run, additional_bytes)
        yield


def quota_lock_of(root: Path) -> FileLock:
    """Return the lock of a shared app from the check of a quota until the runs or files that it admits exist.

    It excludes the threads of this server, and other servers of the same runs folder. It is reentrant.
    """
    return file_lock(root / _QUOTA_LOCK, is_singleton=True)


def check_dataset_number(store: RunStore, user: User) -> None:
    """Check how many datasets a member has before another one is added.

    Raises:
        InputError: The limit is reached.
    """
    if not user.is_owner and len(_datasets(store, user)) >= user.quota.datasets:
        raise InputError(
            f"you have {user.quota.datasets} datasets, the most that you may have; ask the owner of this app to "
            "remove one"
        )


def processor_hours(runs: Iterable[Run], *, threads: int) -> float:
    """Return the processor hours of the runs that were active in the last seven days: their time, times threads."""
    now, total = time.time(), 0.0
    for run in runs:
        status = run.status()
        end = status.finished or (status.updated if status.is_finished else now)
        if status.started is None or end < now - WEEK:
            continue
        try:
            run_threads = run.config().training.threads or threads
        except BscError:
            run_threads = threads
        total += max(0.0, end - max(status.started, now - WEEK)) * run_threads
    return total / 3600


def disk_bytes(store: RunStore, user: User) -> int:
    """Return the size of a user's runs, deleted runs, uploaded files and decisions about false negatives."""
    runs = [*(run for run in store.list() if run_access(run).owner == user.name), *_deleted_runs(store, user)]
    datasets = _datasets(store, user)
    decisions = [
        *(store.false_negatives_file(folder.name) for folder in datasets),
        *store.false_negatives_of_user(user.name),
    ]
    folders = [*(run.folder for run in runs), *datasets]
    return sum(map(folder_bytes, folders)) + sum(file.stat().st_size for file in decisions if file.is_file())


def _datasets(store: RunStore, user: User) -> list[Path]:
    paths = store.uploads_folder.glob(f"*/{ACCESS}.json")
    return [path.parent for path in paths if dataset_access(path.parent).owner == user.name]


def _deleted_runs(store: RunStore, user: User) -> list[Run]:
    folders = (store.root / ".trash").glob("*/")
    return [run for folder in folders if run_access(run := Run(folder)).owner == user.name]
