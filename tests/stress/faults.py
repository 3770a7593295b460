"""Faults of `chaos.py`, and the user's actions meanwhile: launch, reconcile, stop, reorder."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from filelock import FileLock
from machine import NO_FILTER, Disk, set_clock, without_locks

from bsc_core.config import DataConfig, EncoderConfig, RunConfig
from bsc_core.errors import BscError
from bsc_core.jobs import Queue, launch, reconcile, restore, stop, trash
from bsc_core.jobs.local.processes import find_process, signal_group, start_detached, wait_until
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import ENDED, LAUNCHED
from tests.helpers.waiting import PATIENCE_SECONDS
from tests.jobs.stub_worker import command, start_supervising

STALE_SECONDS = PATIENCE_SECONDS / 25
READ_ONLY_SECONDS = 2.0
SLOTS = 2
WAITING = 5
start_supervisor = partial(start_supervising, behavior="steps", slots=SLOTS)


def config(encoder: str = "bundled") -> RunConfig:
    return RunConfig(data=DataConfig(train="pairs.tsv"), encoder=EncoderConfig(name=encoder))


class Chaos:
    """A runs folder, the faults, and what each run has suffered."""

    def __init__(self, root: Path, seed: int, disk: Disk | None = None) -> None:
        """Start with an empty runs folder, which is on `disk` if that is given."""
        self.disk = disk
        self.store = RunStore(root)
        self.queue = Queue(root)
        self.random = random.Random(seed)
        self.launched: list[str] = []
        self.harmed: dict[str, set[str]] = {}
        self.refused: Counter[str] = Counter()
        self.has_missed = False  # whether the last fault found nothing to act on, or this system did not allow it
        self.failures: list[tuple[str, str]] = []
        self.reported_done: set[str] = set()  # runs that were done when the power was cut
        self.finished: list[str] = []  # runs that had finished before

    def _new_id(self, kind: str = "run") -> str:
        self.launched.append(f"{kind}-{len(self.launched):04d}")
        return self.launched[-1]

    def launch(self, kind: str = "run", encoder: str = "bundled") -> None:
        run_id = self._new_id(kind)
        self._retry(lambda: launch(self.store, config(encoder), run_id, start=start_supervisor))

    def add_finished(self, number: int) -> None:
        """Add runs that have finished."""
        self.finished = [f"finished-{index:04d}" for index in range(number)]
        first = self.store.create(config(), "finished-0000")
        first.write_signed(LAUNCHED, {})
        first.write_json(ENDED, {"state": "done", "exit_code": 0})
        first.append_metrics({"kind": "step", "step": 1})
        first.update_status(state="done", exit_code=0)
        for run_id in self.finished[1:]:
            shutil.copytree(first.folder, self.store.root / run_id)
        os.sync()

    def runs(self) -> list[Run]:
        """Return the runs of this program that exist."""
        return [run for run_id in self.launched if (run := Run(self.store.root / run_id)).exists]

    def top_up(self) -> None:
        """Keep some runs waiting, some of which start from another run's model."""
        open_runs = [run for run in self.runs() if not run.status().is_finished]
        for _ in range(WAITING + SLOTS - len(open_runs)):
            parents = [run.id for run in open_runs if run.id not in self.harmed and run.id.startswith("run")]
            chained = parents and self.random.random() < 0.2
            self.launch("chain" if chained else "run", f"run:{self.random.choice(parents)}" if chained else "bundled")

    def reconcile(self) -> None:
        """Reconcile as a page does every other second."""
        self._retry(lambda: reconcile(self.store, stale_seconds=STALE_SECONDS, start=start_supervisor))

    def _retry(self, act: Callable[[], object]) -> None:
        """Repeat an action that fails with a BscError."""

        def succeeds() -> bool:
            try:
                act()
            except BscError as error:
                self.refused[str(error).partition(":")[2][:60].strip()] += 1
                return False
            return True

        if not wait_until(succeeds, PATIENCE_SECONDS):
            raise SystemExit(f"still failing: {self.refused}")

    def kill_worker(self) -> None:
        self._harm(self._random_live_run(), "killed", lambda run: signal_group(run.status(), signal.SIGKILL))

    def kill_supervisor(self) -> None:
        self._signal_all("supervise", signal.SIGKILL)

    def terminate_supervisor(self) -> None:
        self._signal_all("supervise", signal.SIGTERM)

    def stop_and_kill_escalation(self) -> None:
        def act(run: Run) -> None:
            stop(run, grace_seconds=2, terminate_seconds=2)
            self._signal_all("bsc_core.jobs.actions.escalation", signal.SIGKILL)

        self._harm(self._random_active_run(), "stopped", act)

    def stop_run(self) -> None:
        self._harm(self._random_active_run(), "stopped", lambda run: stop(run, grace_seconds=2, terminate_seconds=2))

    def suspend_worker(self) -> None:
        run = self._random_live_run()
        process = find_process(run.status()) if run else None
        self.has_missed = process is None
        if process is not None:
            seconds = self.random.choice([0.5, 1.0, STALE_SECONDS + 2])
            if run is not None and seconds > STALE_SECONDS:  # it is lost for a while, and a run waiting for it fails
                self.harmed.setdefault(run.id, set()).add("suspended")
            self._suspend(process.pid, seconds)

    def suspend_supervisor(self) -> None:
        processes = self.processes("supervise")
        self.has_missed = not processes
        for pid in processes:
            self._suspend(pid, 1.0)

    def damage_queue(self) -> None:
        self.has_missed = not self.queue.path.exists()
        with suppress(FileNotFoundError, IndexError):  # missing or empty
            content = bytearray(self.queue.path.read_bytes())
            used = [position for position, byte in enumerate(content) if byte]  # most of the file is empty
            for _ in range(self.random.choice([1, 10, 1000])):
                content[self.random.choice(used)] = self.random.randrange(256)
            self.queue.path.write_bytes(content)

    def truncate_queue(self) -> None:
        self.has_missed = not self.queue.path.exists()
        with suppress(OSError):
            os.truncate(self.queue.path, self.random.choice([0, 100, 5000]))

    def delete_queue(self) -> None:
        self.has_missed = not self.queue.path.exists()
        self.queue.path.unlink(missing_ok=True)

    def lock_queue(self) -> None:
        with suppress(sqlite3.Error):
            connection = sqlite3.connect(self.queue.path, isolation_level=None, check_same_thread=False)
            connection.execute("BEGIN EXCLUSIVE")
            threading.Timer(1.5, connection.close).start()

    def hold_queue_lock(self) -> None:
        lock = FileLock(self.store.root / ".queue.lock", thread_local=False)
        with suppress(Exception):
            lock.acquire(timeout=1)
            threading.Timer(1.0, lock.release).start()

    def delete_run(self) -> None:
        runs = self.runs()
        self._harm(self.random.choice(runs) if runs else None, "deleted", lambda run: shutil.rmtree(run.folder, True))

    def truncate_status(self) -> None:
        runs = self.runs()
        with suppress(OSError):
            os.truncate(self.random.choice(runs).folder / "status.json", self.random.choice([0, 20]))

    def launch_twice(self) -> None:
        """Launch the same run from two tabs at the same time, each with a supervisor."""
        run_id = self._new_id()
        tabs = [subprocess.Popen(command("launch", "steps", run_id, str(self.store.root))) for _ in range(2)]
        for tab in tabs:
            tab.wait(PATIENCE_SECONDS)

    def kill_launcher(self) -> None:
        tab = subprocess.Popen(command("launch", "steps", self._new_id("interrupted"), str(self.store.root)))
        time.sleep(self.random.uniform(0.2, 1.5))
        tab.kill()
        tab.wait()

    def run_two_apps(self) -> None:
        """Two further apps show the Runs page and recover runs at the same time."""
        words = ("reconcile", "steps", str(STALE_SECONDS), str(self.store.root))
        apps = [subprocess.Popen(command(*words)) for _ in range(2)]
        self.reconcile()
        for app in apps:
            if app.wait(PATIENCE_SECONDS):
                raise SystemExit("an app ended with an error")

    def make_read_only(self) -> None:
        """Mount the runs folder read-only over itself for two seconds; open files can still be written."""
        root = str(self.store.root)
        if not self._mount_read_only(root):
            self.has_missed = True
            return
        try:
            end = time.monotonic() + READ_ONLY_SECONDS
            while time.monotonic() < end:
                with suppress(BscError):
                    launch(self.store, config(), self._new_id("interrupted"), start=start_supervisor)
                with suppress(BscError):
                    reconcile(self.store, stale_seconds=STALE_SECONDS, start=start_supervisor)
                time.sleep(0.5)
        finally:
            for run in self.runs():
                if not run.status().is_finished:
                    self.harmed.setdefault(run.id, set()).add("read-only")
            subprocess.run(["umount", "--lazy", root], check=True)

    def _mount_read_only(self, root: str) -> bool:
        """Return whether the folder is read-only now; a process that opens a file meanwhile prevents it."""
        for _ in range(20):
            if subprocess.run(["mount", "--bind", root, root], capture_output=True, check=False).returncode:
                return False  # needs the right to mount
            if not subprocess.run(
                ["mount", "-o", "remount,ro,bind", root], capture_output=True, check=False
            ).returncode:
                return True
            subprocess.run(["umount", "--lazy", root], check=True)
        return False

    def start_supervisors(self) -> None:
        supervisor = command("supervise", "steps", str(SLOTS), str(self.store.root))
        for _ in range(2):
            start_detached(supervisor, self.store.root / "supervisor.log", {})

    def jump_clock(self) -> None:
        """Set the clock of all processes, until the next jump."""
        set_clock(self.random.choice([-86400.0, -3600.0, 0.0, 3600.0, 86400.0]))
        self.reconcile()

    def cut_power(self) -> None:
        """Stop all processes at once, discard what is not on the disk, and start again from there."""
        if self.disk is None:
            self.has_missed = True
            return
        for timer in threading.enumerate():  # they use the disk
            if isinstance(timer, threading.Timer):
                timer.join()
        processes = self._suspend_all()
        for run in self.runs():
            if run.status().state == "done":
                self.reported_done.add(run.id)
            elif not (run.status().is_finished and run.status().is_readable):
                self.harmed.setdefault(run.id, set()).add("power")
        for harm in self.harmed.values():  # a deleted run may be back
            harm |= {"power"} if "deleted" in harm else set()
        self.disk.cut_power()
        for pid in processes:
            self._signal(pid, signal.SIGKILL)
        self.disk.restart()
        self.reconcile()

    def _suspend_all(self) -> set[int]:
        """Suspend all processes of the runs folder and return them; none is started meanwhile."""
        suspended: set[int] = set()

        def none_is_left() -> bool:
            found = self._with_word(None)
            for pid in found - suspended:
                self._signal(pid, signal.SIGSTOP)
            is_complete = found <= suspended
            suspended.update(found)
            return is_complete

        wait_until(none_is_left, PATIENCE_SECONDS)
        return suspended

    def launch_without_locks(self) -> None:
        """Launch a run in a process that can lock no file, as on a file system without locks: it is refused."""
        run_id = self._new_id("unlocked")
        number = self.random.choice([errno.ENOSYS, errno.ENOLCK])
        launching = without_locks(number, command("launch", "steps", run_id, str(self.store.root)))
        tab = subprocess.run(launching, capture_output=True, text=True, check=False)
        if tab.returncode == NO_FILTER:
            self.has_missed = True
        elif "has no file locks" not in tab.stderr:
            self.failures.append(("wrong state", f"{run_id} was not refused: {tab.stderr[-500:]}"))

    def write_many_metrics(self) -> None:
        self.launch("long")

    def reuse_pid(self) -> None:
        def act(run: Run) -> None:
            signal_group(run.status(), signal.SIGKILL)
            run.update_status(pid=os.getpid())

        self._harm(self._random_live_run(), "killed", act)

    def fill_disk(self) -> None:
        self.launch("disk")

    def fill_memory(self) -> None:
        self.launch("memory")

    def pause_and_move(self) -> None:
        def act() -> None:
            self.queue.pause()
            for run_id in self.queue.waiting()[-2:]:
                self.queue.move(run_id, 0)
            self.queue.unpause()

        self._retry(act)

    def trash_and_restore(self) -> None:
        ended = [run for run in self.runs() if run.status().is_finished and run.status().is_readable]
        with suppress(BscError, IndexError):
            run = self.random.choice(ended)
            trash(self.store, run)
            restore(self.store, run.id)

    def _harm(self, run: Run | None, how: str, act: Callable[[Run], object]) -> None:
        self.has_missed = run is None
        if run is None:
            return
        self.harmed.setdefault(run.id, set()).add(how)
        with suppress(BscError):
            act(run)

    def _random_active_run(self) -> Run | None:
        runs = [run for run in self.runs() if not run.status().is_finished]
        return self.random.choice(runs) if runs else None

    def _random_live_run(self) -> Run | None:
        runs = [run for run in self.runs() if find_process(run.status()) is not None]
        return self.random.choice(runs) if runs else None

    def processes(self, word: str) -> list[int]:
        """Return the processes of this runs folder whose command line has the word, now and a moment later.

        A child that is being forked has the command line of its parent.
        """
        first = self._with_word(word)
        time.sleep(0.05)
        return sorted(first & self._with_word(word)) if first else []

    def _with_word(self, word: str | None) -> set[int]:
        result = set()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                line = path.read_bytes().decode(errors="replace").split("\0")
                if (word is None or word in line) and any(str(self.store.root) in part for part in line):
                    result.add(int(path.parent.name))
        return result

    def _suspend(self, pid: int, seconds: float) -> None:
        self._signal(pid, signal.SIGSTOP)
        threading.Timer(seconds, self._signal, (pid, signal.SIGCONT)).start()

    def _signal_all(self, word: str, number: signal.Signals) -> None:
        processes = self.processes(word)
        self.has_missed = not processes
        for pid in processes:
            self._signal(pid, number)

    def _signal(self, pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


FAULTS: dict[str, Callable[[Chaos], None]] = {
    "kill -9 of a worker": Chaos.kill_worker,
    "kill -9 of the supervisor": Chaos.kill_supervisor,
    "SIGTERM to the supervisor": Chaos.terminate_supervisor,
    "two more supervisors at once": Chaos.start_supervisors,
    "two more apps at once": Chaos.run_two_apps,
    "file system read-only for 2 s": Chaos.make_read_only,
    "file system without locks": Chaos.launch_without_locks,
    "power cut": Chaos.cut_power,
    "a million lines of metrics": Chaos.write_many_metrics,
    "worker suspended for 0.5 to 8 s": Chaos.suspend_worker,
    "supervisor suspended for 1 s": Chaos.suspend_supervisor,
    "stop": Chaos.stop_run,
    "stop, and kill -9 of its escalation": Chaos.stop_and_kill_escalation,
    "PID reused by another process": Chaos.reuse_pid,
    "clock set an hour or a day off": Chaos.jump_clock,
    "bytes of the queue file changed": Chaos.damage_queue,
    "queue file truncated": Chaos.truncate_queue,
    "queue file deleted": Chaos.delete_queue,
    "queue database locked for 1.5 s": Chaos.lock_queue,
    "queue lock held for 1 s": Chaos.hold_queue_lock,
    "queue paused, reordered, unpaused": Chaos.pause_and_move,
    "run folder deleted by hand": Chaos.delete_run,
    "status.json truncated": Chaos.truncate_status,
    "run deleted and restored": Chaos.trash_and_restore,
    "two tabs launch one run at once": Chaos.launch_twice,
    "kill -9 of a launching tab": Chaos.kill_launcher,
    "disk full": Chaos.fill_disk,
    "out of memory": Chaos.fill_memory,
}
