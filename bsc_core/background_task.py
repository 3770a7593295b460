"""Background tasks: one child process per request, with progress, a log, and cancellation.

A task has a folder with request.json, progress.json, log.txt and, if its result is a document, result.json. The parent
calls `start`, `read_progress`, `read_result`, `cancel` and `reset`; the child's module calls `run_task`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from filelock import Timeout

from bsc_core.errors import BscError, InputError, RunError
from bsc_core.files import as_json, atomic_write, error_reason, file_lock, is_locked
from bsc_core.formatting import plural

STUDENTS = "all students"  # the user of their tasks
NICENESS = 5  # of tasks and training on POSIX: the app, at 0, gets three times their share of a busy processor
MAX_WAITING = 20  # tasks of a user that wait for a place; the oldest of more is forgotten
UNREAD_SECONDS = 70  # after which a replaceable task that no page shows may be ended; hidden tabs poll once a minute
TERMINATION_SECONDS = 5.0  # after which a canceled task is killed
MAX_TASKS = "BSC_MAX_TASKS"  # environment variable: tasks that may run at the same time
REQUEST = "request.json"
LOCK = ".lock"  # held by the process of a task, which other apps with the same cache do not start again or remove
PROGRESS = "progress.json"
LOG = "log.txt"
RESULT_FILE = "result.json"
OnProgress = Callable[[float, float, str], object]
"""Called with the units done, the units in total, and the current activity, like `write_progress`."""
_children: dict[Path, "_Child"] = {}  # by the folder of the task
_waiting: dict[Path, "_Waiting"] = {}  # likewise
_children_lock = threading.Lock()


@dataclass
class _Child:
    """The process of a task, the user who started it, and when its progress was read."""

    process: subprocess.Popen[bytes]
    user: str | None
    replaceable: bool
    read_at: float

    @property
    def unread(self) -> bool:
        return self.replaceable and time.monotonic() - self.read_at > UNREAD_SECONDS

    @property
    def running(self) -> bool:
        return self.process.poll() is None


@dataclass(frozen=True)
class _Waiting:
    """How a task is started that waits for a place; its folder has the request."""

    module: str
    environment: Mapping[str, str] | None
    user: str | None
    replaceable: bool


@dataclass(frozen=True)
class TaskProgress:
    """Progress of a task: `done` of `total` units, the current activity, and the reason if it failed."""

    done: float = 0
    total: float = 1
    doing: str = "starting"
    error: str | None = None

    @property
    def fraction(self) -> float:
        """Completed fraction, in [0, 1]."""
        return min(1.0, self.done / max(1, self.total))


def no_progress(done: float, total: float, doing: str) -> None:
    """Report nothing."""


def start(
    folder: Path,
    module: str,
    request: Any,
    environment: Mapping[str, str] | None = None,
    *,
    user: str | None = None,
    replaceable: bool = False,
) -> None:
    """Start `python -m MODULE FOLDER`, unless this process has started it before.

    If the maximum number of tasks is running, or half of it for the same user, the task waits: `read_progress` starts
    it once there is a place. Tasks of students count separately, so that others need not wait.

    Args:
        folder: Folder of the task, created if missing.
        module: Name of a module whose main function calls `run_task`.
        request: JSON-serializable request, which `run_task` reads.
        environment: Variables added to those of this process.
        user: Name of a user of a shared app, or STUDENTS; None: without a limit by user.
        replaceable: Another task of the user ends this one if it needs its place and nobody reads its progress, as when
            a page was left; the next `start` begins again.

    Raises:
        RunError: Its folder cannot be written.
    """
    with _children_lock:
        child, is_stored = _children.get(folder), (folder / REQUEST).is_file()  # its folder may have been removed
        if child is not None and (child.running or is_stored):
            return
        if not (is_stored and folder in _waiting):
            try:
                atomic_write(folder / REQUEST, as_json(request))
            except OSError as error:
                reason = error_reason(error)
                raise RunError(f"{folder}: the task cannot be started ({reason}); free disk space") from None
        _start_or_wait(folder, _Waiting(module, environment, user, replaceable))


def _start_or_wait(folder: Path, task: _Waiting) -> None:
    """Start a task whose request is stored, or let it wait for a place; the lock is held."""
    in_pool = [child for child in _children.values() if (child.user == STUDENTS) == (task.user == STUDENTS)]
    running = [child.user for child in in_pool if child.running]
    own = 0 if task.user is None else running.count(task.user)
    is_full = len(running) >= max_tasks()
    if (is_full or own >= max(1, max_tasks() // 2)) and not _end_unread(task.user):
        scope = "this server" if is_full else STUDENTS if task.user == STUDENTS else "one user"
        number = len(running) if is_full else own
        tasks, verb = plural(number, "background task"), "is" if number == 1 else "are"
        os.utime(folder / REQUEST, (0, 0))  # older than those of tasks that were started, for `remove_oldest`
        _waiting[folder] = task
        of_user = [one for one, waiting in list(_waiting.items()) if waiting.user == task.user]
        for oldest in of_user[:-MAX_WAITING]:
            _waiting.pop(oldest, None)
        return write_progress(folder, 0, 1, f"waiting, since {tasks} {verb} running, the maximum of {scope}")
    _waiting.pop(folder, None)
    os.utime(folder / REQUEST)
    (folder / PROGRESS).unlink(missing_ok=True)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(task.environment or {})}
    command = [sys.executable, "-P", "-m", task.module, str(folder)]
    with (folder / LOG).open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables)
    priority = NICENESS
    if sys.platform == "win32":
        priority = psutil.BELOW_NORMAL_PRIORITY_CLASS
    with suppress(psutil.Error):  # it has ended already
        psutil.Process(process.pid).nice(priority)
    _children[folder] = _Child(process, task.user, task.replaceable, time.monotonic())
    reap(process)


def max_tasks() -> int:
    """Return how many tasks may run at the same time: BSC_MAX_TASKS, else one for each processor core."""
    return int(os.environ.get(MAX_TASKS) or os.cpu_count() or 1)


def read_progress(folder: Path) -> TaskProgress:
    """Return the progress of a task, which is started if it was waiting for a place.

    `error` is also set if its process ended early.
    """
    if folder in _waiting:
        with _children_lock:
            if (waiting := _waiting.get(folder)) is not None:
                if (folder / REQUEST).is_file():
                    _start_or_wait(folder, waiting)
                else:  # the folder was removed
                    _waiting.pop(folder, None)
    try:
        stored = json.loads((folder / PROGRESS).read_text(encoding="utf-8"))
        progress = TaskProgress(**{name: stored[name] for name in ("done", "total", "doing", "error")})
    except (OSError, ValueError, KeyError, TypeError):  # not written yet, or by another version
        progress = TaskProgress()
    child = _children.get(folder)
    if child is not None:
        child.read_at = time.monotonic()
    exit_code = child.process.poll() if child is not None else None
    if exit_code and not progress.error:
        error = f"the process ended early (exit status {exit_code}), possibly out of memory; see {folder / LOG}"
        return replace(progress, error=error)
    return progress


def elapsed_seconds(folder: Path) -> float:
    """Return the seconds since the task was started; 0 while it waits, or if it was reset."""
    try:
        started = (folder / REQUEST).stat().st_mtime
    except FileNotFoundError:
        return 0.0
    return time.time() - started if started else 0.0


def cancel(folder: Path) -> None:
    """End the process of a task and wait for it, or end its waiting; does nothing if it has ended."""
    _waiting.pop(folder, None)
    child = _children.get(folder)
    if child is not None and child.running:
        child.process.terminate()
        try:
            child.process.wait(TERMINATION_SECONDS)
        except subprocess.TimeoutExpired:  # compiled code can delay or lose the signal
            child.process.kill()
            child.process.wait()


def reset(folder: Path) -> None:
    """Cancel a task and remove its request, progress and result, so that `start` starts it again."""
    cancel(folder)
    with _children_lock:
        _remove(folder)


def _end_unread(user: str | None) -> bool:
    """End the replaceable task of a user that was not read for longest; return whether there is one."""
    unread = [folder for folder, child in _children.items() if child.user == user and child.unread and child.running]
    if not unread:
        return False
    folder = min(unread, key=lambda one: _children[one].read_at)
    process = _children[folder].process
    process.kill()  # at once, since the lock is held
    process.wait()
    _remove(folder)
    return True


def _remove(folder: Path) -> None:
    _children.pop(folder, None)
    for name in (PROGRESS, REQUEST, RESULT_FILE):
        (folder / name).unlink(missing_ok=True)


def reset_failed(folder: Path) -> None:
    """Reset a task that failed or was not started; do nothing if it runs, since another user may have started it."""
    child = _children.get(folder)
    if child is None or not child.running:
        reset(folder)


def write_progress(folder: Path, done: float, total: float, doing: str, error: str | None = None) -> None:
    """Replace the progress file of a task."""
    draft = folder / f"progress.{os.getpid()}.json"  # not synced to disk: it is short-lived and written often
    draft.write_text(json.dumps(asdict(TaskProgress(done, total, doing, error))), encoding="utf-8")
    draft.replace(folder / PROGRESS)


def write_result(folder: Path, result: Mapping[str, Any]) -> None:
    """Write the result of a task, which is finished with it."""
    atomic_write(folder / RESULT_FILE, as_json(result))


def read_result(folder: Path) -> dict[str, Any] | None:
    """Return the result of a finished task; None if it is not finished."""
    try:
        result: dict[str, Any] = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result


def run_task(perform: Callable[[Path, Any], object], arguments: Sequence[str]) -> int:
    """Perform the request of a task; the main function of its process.

    Args:
        perform: Called with the folder and the request.
        arguments: Command-line arguments: the folder.

    Returns:
        The exit status: 0 done, or performed by another process, 1 failed or canceled, 2 invalid input; the reason is
        in the progress file.
    """
    folder = Path(arguments[0])
    lock = file_lock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return 0
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that temporary files are removed
    try:
        perform(folder, json.loads((folder / REQUEST).read_text(encoding="utf-8")))
    except BscError as error:
        write_progress(folder, 0, 1, "refused", error=str(error))
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 1
    except Exception as error:  # the traceback goes to the log
        write_progress(folder, 0, 1, "failed", error=f"{type(error).__name__}: {error}")
        raise
    finally:
        lock.release()
    return 0


def remove_oldest(base: Path, pattern: str, keep: int) -> None:
    """Remove all but the `keep` newest folders under `base`, by the modification time of their file `pattern`.

    Folders of tasks that run, or wait for a place, are kept, too.
    """
    kept = [one for one, child in list(_children.items()) if child.running] + list(_waiting)
    newest_first = sorted(base.glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest_first[keep:]:
        if not any(one.is_relative_to(path.parent) for one in kept) and not _is_locked(path.parent):
            shutil.rmtree(path.parent, ignore_errors=True)


def _is_locked(folder: Path) -> bool:
    """Whether the process of a task in the folder is running."""
    try:
        return is_locked(folder / LOCK)
    except OSError:  # the folder was removed
        return False


def reap(child: subprocess.Popen[bytes]) -> None:
    """Collect the exit status of a child when it ends, so that it does not remain as a zombie."""
    threading.Thread(target=child.wait, name=f"reap {child.pid}", daemon=True).start()
