"""Queue of runs: one SQLite file next to the run folders. The state of a run is in its folder, not here.

Each call holds a file lock while it opens and closes a connection, so two processes never use the database at the same
time. A missing or damaged file is rebuilt from the run folders; a damaged one is kept under another name.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from filelock import FileLock, Timeout

from bsc_core.errors import InputError, JobError
from bsc_core.files import check_regular, file_lock, has_locks
from bsc_core.runs import RunStore
from bsc_core.runs.documents import LAUNCHED

_LOCK = ".queue.lock"
_BUSY_SECONDS = 5.0
_SYSTEM_ERRORS = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_INTERRUPT),
)
_JOBS = """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'claimed', 'finished')),
    place INTEGER
)
"""
_SETTINGS = "CREATE TABLE settings (name TEXT PRIMARY KEY, value INTEGER)"
_MAX_SLOTS = 10_000
_MAX_BYTES = 64 * 2**20
_MAX_RUNS = 100_000  # in one queue, the finished ones included
_ORDER = "ORDER BY place IS NULL, place, number"
_LAST_PLACE = "(SELECT COALESCE(MAX(place), 0) + 1 FROM jobs)"


@dataclass(frozen=True)
class QueueState:
    """Content of a queue at one moment."""

    waiting: tuple[str, ...]  # next first
    claimed: tuple[str, ...]  # started and not finished
    paused: bool
    slots: int | None  # number of parallel runs; None if it was never set


class Queue:
    """Runs that wait for a worker, in an order that can be changed; each is claimed by one process only.

    Every method raises JobError if the queue cannot be read or written.
    """

    def __init__(self, root: Path) -> None:
        """Open the queue of the runs folder `root`."""
        self.root = root
        self.path = root / "queue.sqlite"

    def add(self, run_id: str) -> None:
        """Append a run; a run that was ever added is not added again."""
        with self._connection() as connection:
            connection.execute(f"INSERT OR IGNORE INTO jobs (run, place) VALUES (?, {_LAST_PLACE})", (run_id,))

    def requeue(self, run_id: str) -> None:
        """Append a run again, whatever its state in the queue."""
        with self._connection() as connection:
            connection.execute("DELETE FROM jobs WHERE run = ?", (run_id,))
            connection.execute(f"INSERT INTO jobs (run, place) VALUES (?, {_LAST_PLACE})", (run_id,))

    def claim(self, run_id: str | None = None) -> str | None:
        """Claim this run, or the first waiting one; None if it does not wait or the queue is paused."""
        with self._connection() as connection:
            waiting = _runs(connection, "waiting")
            if _setting(connection, "paused") or not waiting or (run_id or waiting[0]) not in waiting:
                return None
            claimed = run_id or waiting[0]
            _set_state(connection, claimed, "claimed")
            return claimed

    def finish(self, run_id: str) -> None:
        """Mark a run as finished."""
        with self._connection() as connection:
            _set_state(connection, run_id, "finished")

    def release(self, run_id: str) -> None:
        """Return a claimed run to its former position."""
        with self._connection() as connection:
            _set_state(connection, run_id, "waiting")

    def snapshot(self) -> QueueState:
        """Return the content of the queue."""
        with self._connection() as connection:
            return QueueState(
                waiting=_runs(connection, "waiting"),
                claimed=_runs(connection, "claimed"),
                paused=bool(_setting(connection, "paused")),
                slots=_setting(connection, "slots"),
            )

    def waiting(self) -> list[str]:
        """Return the waiting runs, next first."""
        return list(self.snapshot().waiting)

    def contains(self, run_id: str) -> bool:
        """Return whether a run waits or is claimed."""
        queued = self.snapshot()
        return run_id in queued.waiting or run_id in queued.claimed

    def move(self, run_id: str, position: int) -> bool:
        """Move a waiting run to a position, 0 being the next. Returns False if it no longer waits."""
        with self._connection() as connection:
            waiting = [run for run in _runs(connection, "waiting") if run != run_id]
            if len(waiting) == len(_runs(connection, "waiting")):
                return False
            waiting.insert(min(max(0, position), len(waiting)), run_id)
            connection.executemany("UPDATE jobs SET place = ? WHERE run = ?", list(enumerate(waiting)))
            return True

    def shift(self, run_id: str, by: int) -> bool:
        """Move a waiting run `by` positions back, forward if negative. Returns False if it no longer waits."""
        waiting = self.waiting()
        return run_id in waiting and self.move(run_id, waiting.index(run_id) + by)

    def pause(self) -> None:
        """Start no further run until `unpause`; active runs are not affected."""
        self._set("paused", 1)

    def unpause(self) -> None:
        """Start waiting runs again."""
        self._set("paused", 0)

    def set_slots(self, slots: int | None) -> None:
        """Set the number of parallel runs; None: one, or one per GPU.

        Raises:
            InputError: The number is below 1 or too large.
        """
        if slots is not None and not 1 <= slots <= _MAX_SLOTS:
            raise InputError(f"slots is {slots}; it must be >= 1 and <= {_MAX_SLOTS} (pause the queue to start no run)")
        self._set("slots", slots)

    def _set(self, name: str, value: int | None) -> None:
        with self._connection() as connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection inside one transaction, which is rolled back after an error."""
        try:
            check_locks(self.root)
            with file_lock(self.root / _LOCK, _BUSY_SECONDS):
                self._repair()
                try:
                    with closing(_connect(self.path)) as connection:
                        connection.execute("BEGIN IMMEDIATE")
                        yield connection
                        connection.execute("COMMIT")
                except (sqlite3.DatabaseError, UnicodeError) as error:
                    if _is_damage(error, self.path):  # not every damage fails the integrity check
                        self._set_aside()
                    raise
        except (sqlite3.Error, OSError, Timeout, ValueError) as error:
            raise JobError(_message(self.path, error)) from error

    def _repair(self) -> None:
        """Rebuild the file if it is missing or damaged."""
        if self.path.exists():
            check_regular(self.path, limit=_MAX_BYTES)
            try:
                with closing(_connect(self.path)) as connection:
                    return _check(connection)
            except (sqlite3.DatabaseError, UnicodeError) as error:
                if not _is_damage(error, self.path):
                    raise
                self._set_aside()
        self._build()

    def _set_aside(self) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        target = self.root / f"queue.damaged-{stamp}-{time.time_ns() % 1_000_000_000:09d}.sqlite"
        self.path.rename(target)
        for suffix in ("-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).rename(target.with_name(target.name + suffix))

    def _build(self) -> None:
        """Build the file from the run folders under another name and rename it, so it is never seen incomplete."""
        draft = self.root / ".queue.sqlite.new"
        for suffix in ("", "-journal"):
            draft.with_name(draft.name + suffix).unlink(missing_ok=True)
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            connection.execute(_JOBS)
            connection.execute(_SETTINGS)
            launched = [run for run in RunStore(self.root).list() if run.read_signed(LAUNCHED) is not None]
            for number, run in enumerate(reversed(launched)):  # oldest first
                status = run.status()
                state = "finished" if status.is_finished else "waiting" if status.state == "queued" else "claimed"
                connection.execute("INSERT INTO jobs (run, state, place) VALUES (?, ?, ?)", (run.id, state, number))
            connection.execute("COMMIT")
        draft.rename(self.path)


def check_locks(root: Path) -> None:
    """Raise JobError if two processes could start the same run, since the runs folder has no file locks."""
    root.mkdir(parents=True, exist_ok=True)
    if not has_locks(root / _LOCK):
        raise JobError(
            f"{root}: its file system has no file locks, which queued runs need; move the runs folder to another one, "
            "or mount it with locks"
        )


def supervisor_lock(root: Path) -> FileLock:
    """Return the lock that the supervisor of a runs folder holds."""
    return file_lock(root / ".supervisor.lock", timeout=0)


def _connect(path: Path) -> sqlite3.Connection:
    """Connect to an existing file; it is not created, so that a deleted file is noticed."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # a damaged id matches no run
    return connection


def _check(connection: sqlite3.Connection) -> None:
    """Raise DatabaseError if the file is damaged or forged: other values, tables or triggers, or too many rows."""
    schema = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name != 'sqlite_sequence'")
    if {" ".join(sql.split()) for (sql,) in schema} != {" ".join(sql.split()) for sql in (_JOBS, _SETTINGS)}:
        raise sqlite3.DatabaseError("it is not a queue of runs")
    if (result := connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
        raise sqlite3.DatabaseError(f"malformed: {result}")
    if connection.execute("SELECT EXISTS (SELECT 1 FROM jobs WHERE typeof(run) != 'text')").fetchone()[0]:
        raise sqlite3.DatabaseError("an id is not a text")
    if connection.execute("SELECT COUNT(*) FROM jobs").fetchone()[0] > _MAX_RUNS:
        raise sqlite3.DatabaseError(f"more than {_MAX_RUNS:,} runs")
    slots = _setting(connection, "slots")
    if slots is not None and not 1 <= slots <= _MAX_SLOTS:
        raise sqlite3.DatabaseError(f"{slots} slots")


def _is_damage(error: Exception, path: Path) -> bool:
    """Return whether an error can only come from a damaged file, not from a locked file or a full disk."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code == sqlite3.SQLITE_READONLY:  # set in the file's header, or by the system
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return code not in _SYSTEM_ERRORS


def _message(path: Path, error: Exception) -> str:
    reason = str(error)
    if "full" in reason or "No space" in reason:
        return f"{path}: the disk is full ({reason}); free some space and try again"
    if isinstance(error, sqlite3.Error | UnicodeError) and not path.exists():
        return f"{path}: the file was damaged ({reason}) and renamed to queue.damaged-*.sqlite; try again to rebuild it"
    if isinstance(error, Timeout) or "locked" in reason:
        return f"{path}: another process has locked the queue for {_BUSY_SECONDS:.0f} s; try again, or end that process"
    return f"{path}: the queue cannot be used ({reason}); check the file's permissions and try again"


def _runs(connection: sqlite3.Connection, state: str) -> tuple[str, ...]:
    rows = connection.execute(f"SELECT run FROM jobs WHERE state = ? {_ORDER}", (state,)).fetchall()
    return tuple(row[0] for row in rows)


def _set_state(connection: sqlite3.Connection, run_id: str, state: str) -> None:
    connection.execute("UPDATE jobs SET state = ? WHERE run = ?", (state, run_id))


def _setting(connection: sqlite3.Connection, name: str) -> int | None:
    row = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return row[0] if row is not None and isinstance(row[0], int) else None
