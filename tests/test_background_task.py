"""Background tasks: progress, refusals, failures, cancellation, and no zombie processes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from filelock import FileLock

from bsc_core import background_task
from bsc_core.background_task import STUDENTS, TaskProgress, read_progress, run_task, start, write_progress
from bsc_core.errors import ConfigError, RunError
from tests.helpers.waiting import wait_for_task, wait_until

TASK = """
import os
import signal
import sys
import time
from bsc_core.background_task import run_task, write_progress

def perform(folder, request):
    write_progress(folder, 1, 4, "working")
    if request == "sleep":
        time.sleep(600)
    if request == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        write_progress(folder, 2, 4, "deaf")
        time.sleep(600)
    if request == "exit":
        sys.exit(3)
    if request == "niceness":
        request = os.nice(0)
    (folder / "result.txt").write_text(str(request))
    write_progress(folder, 4, 4, "done")

sys.exit(run_task(perform, sys.argv[1:]))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_task.py").write_text(TASK, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return "a_task"


def test_a_task_receives_its_request_and_reports_progress(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    start(folder, module, {"k": 1})
    assert wait_for_task(folder) == 0
    assert (folder / "result.txt").read_text() == "{'k': 1}"
    assert read_progress(folder) == TaskProgress(4, 4, "done")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no niceness")
def test_a_task_has_a_lower_priority_than_the_app(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    start(folder, module, "niceness")
    assert wait_for_task(folder) == 0
    assert int((folder / "result.txt").read_text()) == min(os.nice(0) + background_task.NICENESS, 19)


def test_a_task_is_started_once_until_it_is_reset(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    start(folder, module, 1)
    assert wait_for_task(folder) == 0
    (folder / "result.txt").unlink()
    start(folder, module, 1)
    assert wait_for_task(folder) == 0
    assert not (folder / "result.txt").exists()
    background_task.reset(folder)
    assert not (folder / "progress.json").exists()
    assert background_task.elapsed_seconds(folder) == 0
    start(folder, module, 2)
    assert wait_for_task(folder) == 0
    assert (folder / "result.txt").read_text() == "2"


@pytest.fixture
def two_tasks(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Folders of a task that runs and of one that waits, as one may run at a time."""
    monkeypatch.setattr(background_task, "_children", {})
    monkeypatch.setenv("BSC_MAX_TASKS", "1")
    first, second = tmp_path / "first", tmp_path / "second"
    start(first, module, "sleep")
    start(second, module, 2)
    return first, second


def test_a_task_above_the_limit_waits_and_starts_once_another_has_ended(two_tasks: tuple[Path, Path]) -> None:
    first, second = two_tasks
    waiting = TaskProgress(0, 1, "waiting, since 1 background task is running, the maximum of this server")
    assert read_progress(second) == waiting
    assert background_task.elapsed_seconds(second) == 0
    assert read_progress(first).doing != waiting.doing
    background_task.cancel(first)
    read_progress(second)
    assert wait_for_task(second) == 0
    assert read_progress(second) == TaskProgress(4, 4, "done")
    assert 0 < background_task.elapsed_seconds(second) < 3600


def test_the_request_of_a_waiting_task_is_written_once(
    two_tasks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    first, second = two_tasks
    monkeypatch.setattr(background_task, "atomic_write", None)  # fails if called
    for _ in range(3):
        assert read_progress(second).doing.startswith("waiting")
        start(second, module, 2)
    background_task.cancel(first)
    read_progress(second)
    assert wait_for_task(second) == 0


@pytest.mark.parametrize(("replaceable", "is_read"), [(True, False), (True, True), (False, False)])
def test_a_replaceable_task_that_nobody_reads_makes_place_and_can_be_started_again(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaceable: bool, is_read: bool
) -> None:
    monkeypatch.setattr(background_task, "_children", {})
    monkeypatch.setenv("BSC_MAX_TASKS", "1")
    left, wanted = tmp_path / "left", tmp_path / "wanted"
    start(left, module, "sleep", replaceable=replaceable)
    background_task._children[left].read_at -= 2 * background_task.UNREAD_SECONDS
    if is_read:
        read_progress(left)
    start(wanted, module, 2)
    has_place = replaceable and not is_read
    assert read_progress(wanted).doing.startswith("waiting") != has_place
    if has_place:
        assert left not in background_task._children
        assert wait_for_task(wanted) == 0
        start(left, module, 3)
        assert wait_for_task(left) == 0
        assert (left / "result.txt").read_text() == "3"
    background_task.cancel(left)


@pytest.mark.parametrize("end", [background_task.cancel, background_task.reset, shutil.rmtree])
def test_a_waiting_task_that_was_ended_is_not_started(
    two_tasks: tuple[Path, Path], end: Callable[[Path], None]
) -> None:
    first, second = two_tasks
    end(second)
    background_task.cancel(first)
    read_progress(second)
    assert second not in background_task._children


def test_a_task_is_started_again_after_its_folder_was_removed(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    start(folder, module, 1)
    assert wait_for_task(folder) == 0
    background_task.remove_oldest(tmp_path, "*/request.json", 0)
    assert not folder.exists()
    start(folder, module, 2)
    assert wait_for_task(folder) == 0
    assert (folder / "result.txt").read_text() == "2"


def test_a_waiting_task_is_kept_and_takes_no_place_of_a_finished_one(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_task, "_children", {})
    monkeypatch.setenv("BSC_MAX_TASKS", "1")
    finished, running, waiting = (tmp_path / name for name in ("finished", "running", "waiting"))
    start(finished, module, 1)
    assert wait_for_task(finished) == 0
    start(running, module, "sleep")
    start(waiting, module, 2)
    background_task.remove_oldest(tmp_path, "*/request.json", 2)
    assert [folder.exists() for folder in (finished, running, waiting)] == [True, True, True]
    monkeypatch.setattr(background_task, "MAX_WAITING", 1)
    start(tmp_path / "next", module, 3)  # the first one is forgotten
    background_task.remove_oldest(tmp_path, "*/request.json", 2)
    assert [folder.exists() for folder in (finished, running, waiting)] == [True, True, False]
    background_task.cancel(running)
    assert read_progress(tmp_path / "next").doing == "starting"
    assert wait_for_task(tmp_path / "next") == 0


def test_only_a_task_that_does_not_run_is_tried_again(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    start(folder, module, "sleep")
    background_task.reset_failed(folder)
    assert background_task._children[folder].running
    background_task.cancel(folder)
    background_task.reset_failed(folder)
    assert not (folder / "request.json").exists()


def test_tasks_of_students_take_no_place_of_others(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_task, "_children", {})
    monkeypatch.setenv("BSC_MAX_TASKS", "2")
    users = (STUDENTS, STUDENTS, None, "ada", None)
    folders = [tmp_path / str(number) for number in range(len(users))]
    for folder, user in zip(folders, users, strict=True):
        background_task.start(folder, module, "sleep", user=user)
    doing = [read_progress(folder).doing for folder in folders]
    assert ["waiting" in one for one in doing] == [False, True, False, False, True]
    assert "the maximum of all students" in doing[1]
    for folder in folders:
        background_task.cancel(folder)


def test_a_user_runs_at_most_half_of_the_tasks(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_task, "_children", {})
    monkeypatch.setenv("BSC_MAX_TASKS", "3")
    folders = [tmp_path / str(number) for number in range(3)]
    for folder, user in zip(folders, ("ada", "ada", "ben"), strict=True):
        background_task.start(folder, module, "sleep", user=user)
    doing = [read_progress(folder).doing for folder in folders]
    assert ["waiting" in one for one in doing] == [False, True, False]
    assert doing[1] == "waiting, since 1 background task is running, the maximum of one user"
    background_task.cancel(folders[0])
    assert "waiting" not in read_progress(folders[1]).doing
    for folder in folders:
        background_task.cancel(folder)


def test_the_limit_of_tasks_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BSC_MAX_TASKS", raising=False)
    assert background_task.max_tasks() == (os.cpu_count() or 1)
    monkeypatch.setenv("BSC_MAX_TASKS", "7")
    assert background_task.max_tasks() == 7


def test_a_cancelled_task_has_ended_when_the_call_returns(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    start(folder, module, "sleep")
    child = background_task._children[folder].process
    background_task.cancel(folder)
    assert child.poll() is not None
    assert not psutil.pid_exists(child.pid), "the process is reaped"


def test_a_cancelled_task_that_ignores_the_signal_is_killed(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background_task, "TERMINATION_SECONDS", 0.1)
    folder = tmp_path / "task"
    start(folder, module, "deaf")
    wait_until(lambda: read_progress(folder).doing == "deaf", "the task to ignore the signal")
    background_task.cancel(folder)
    assert background_task._children[folder].process.poll() not in (None, 0)


def test_a_task_that_ends_is_reaped_although_nobody_looks(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    start(folder, module, 1)
    child = background_task._children[folder].process.pid
    wait_until(lambda: not psutil.pid_exists(child), "the process is a zombie")


def test_a_process_that_ends_early_is_reported_with_its_log(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "task"
    start(folder, module, "exit")
    assert wait_for_task(folder) == 3
    error = read_progress(folder).error
    assert error is not None
    assert "exit status 3" in error
    assert str(folder / "log.txt") in error


def test_a_refused_request_has_exit_status_2_and_a_failed_one_raises(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text("{}", encoding="utf-8")

    def refuse(folder: Path, request: Any) -> None:
        raise ConfigError("epochs is 0; it must be >= 1")

    def fail(folder: Path, request: Any) -> None:
        raise OSError("no space")

    assert run_task(refuse, [str(tmp_path)]) == 2
    assert read_progress(tmp_path).error == "epochs is 0; it must be >= 1"
    with pytest.raises(OSError, match="no space"):
        run_task(fail, [str(tmp_path)])
    assert read_progress(tmp_path).error == "OSError: no space"


def test_progress_of_another_version_reads_as_just_started(tmp_path: Path) -> None:
    (tmp_path / "progress.json").write_text('{"done": 3, "of": 6}', encoding="utf-8")
    assert read_progress(tmp_path) == TaskProgress()
    (tmp_path / "progress.json").write_text("[1]", encoding="utf-8")
    assert read_progress(tmp_path) == TaskProgress()
    write_progress(tmp_path, 3, 6, "counting")
    assert read_progress(tmp_path).fraction == 0.5


def test_only_the_newest_folders_are_kept(tmp_path: Path) -> None:
    for age, name in enumerate(["newest", "older", "oldest"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.npz").touch()
        os.utime(tmp_path / name / "rows.npz", (1000 - age, 1000 - age))
    background_task.remove_oldest(tmp_path, "*/rows.npz", 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["newest", "older"]


def test_the_folder_of_a_running_task_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for age, name in enumerate(["newest", "ended", "running"]):
        (tmp_path / name).mkdir()
        (tmp_path / name / "request.json").touch()
        os.utime(tmp_path / name / "request.json", (1000 - age, 1000 - age))
    children = {
        tmp_path / name: SimpleNamespace(running=running) for name, running in [("ended", False), ("running", True)]
    }
    monkeypatch.setattr(background_task, "_children", children)
    background_task.remove_oldest(tmp_path, "*/request.json", 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["newest", "running"]


@pytest.fixture(autouse=True)
def restore_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_task_whose_folder_cannot_be_written_is_refused(module: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="the task cannot be started"):
        start(tmp_path / "file" / "task", module, 1)


def test_a_task_that_runs_in_another_app_is_neither_started_again_nor_removed(module: str, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "task"
    start(folder, module, "first")
    wait_for_task(folder)
    (folder / background_task.REQUEST).write_text('"second"', encoding="utf-8")
    with FileLock(folder / background_task.LOCK):
        assert run_task(lambda *_: pytest.fail("performed twice"), [str(folder)]) == 0
        background_task.remove_oldest(folder.parent, f"*/{background_task.REQUEST}", 0)
        assert folder.is_dir()
    performed: list[Any] = []
    assert run_task(lambda _, request: performed.append(request), [str(folder)]) == 0
    assert performed == ["second"]
    background_task.remove_oldest(folder.parent, f"*/{background_task.REQUEST}", 0)
    assert not folder.exists()
