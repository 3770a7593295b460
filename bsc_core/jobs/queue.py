"""The queue of runs: one SQLite file beside the run folders. What state a run is in stands in its folder, not here.

Each call holds a file lock, opens a connection and closes it, so that no two processes are ever inside the database. A
file that is missing or damaged is made again from the run folders; the damaged one is kept under another name.
"""

from __future__ import annotations

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
from bsc_core.runs import RunStore

LAUNCHED = "launch"
"""What is written into a run's folder before it is queued, so that a queue can be made again from the folders."""
_BUSY_SECONDS = 5.0
_OF_THE_SYSTEM = (
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
_EARLIER = {"number", "run", "state"}
_COLUMNS = {"jobs": {*_EARLIER, "place"}, "settings": {"name", "value"}}
_MOST_SLOTS = 10_000
_ORDER = "ORDER BY place IS NULL, place, number"
_LAST = "(SELECT COALESCE(MAX(place), 0) + 1 FROM jobs)"


@dataclass(frozen=True)
class Standing:
    """What a queue holds at one moment: runs that wait, next first, and runs that were claimed and have not ended.

    slots: runs at the same time; None where it was never set.
    """

    waiting: tuple[str, ...]
    claimed: tuple[str, ...]
    paused: bool
    slots: int | None


class Queue:
    """Runs that wait for a worker, in an order that can be changed; each is claimed by one process only."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "queue.sqlite"

    def add(self, run_id: str) -> None:
        """Put a run at the end; a run that was ever added is not added again."""
        with self._connection() as connection:
            connection.execute(f"INSERT OR IGNORE INTO jobs (run, place) VALUES (?, {_LAST})", (run_id,))

    def add_again(self, run_id: str) -> None:
        """Put a run at the end that needs a worker after all, whatever was said of it."""
        with self._connection() as connection:
            connection.execute("DELETE FROM jobs WHERE run = ?", (run_id,))
            connection.execute(f"INSERT INTO jobs (run, place) VALUES (?, {_LAST})", (run_id,))

    def claim(self, run_id: str | None = None) -> str | None:
        """Take this run, or the first that waits, only for this caller; None when it does not wait or all is paused."""
        with self._connection() as connection:
            waiting = _runs(connection, "waiting")
            if _setting(connection, "paused") or not waiting or (run_id or waiting[0]) not in waiting:
                return None
            claimed = run_id or waiting[0]
            _set_state(connection, claimed, "claimed")
            return claimed

    def finish(self, run_id: str) -> None:
        """Say that a run needs no worker any more."""
        with self._connection() as connection:
            _set_state(connection, run_id, "finished")

    def release(self, run_id: str) -> None:
        """Put a claimed run back to where it stood."""
        with self._connection() as connection:
            _set_state(connection, run_id, "waiting")

    def look(self) -> Standing:
        """All that the queue holds, as of one moment."""
        with self._connection() as connection:
            return Standing(
                waiting=_runs(connection, "waiting"),
                claimed=_runs(connection, "claimed"),
                paused=bool(_setting(connection, "paused")),
                slots=_setting(connection, "slots"),
            )

    def waiting(self) -> list[str]:
        """Runs that no one has claimed, the next one first."""
        return list(self.look().waiting)

    def claimed(self) -> list[str]:
        """Runs that were claimed and have not been said to be finished."""
        return list(self.look().claimed)

    def serves(self, run_id: str) -> bool:
        """True when the run waits or was claimed."""
        standing = self.look()
        return run_id in standing.waiting or run_id in standing.claimed

    def move(self, run_id: str, place: int) -> bool:
        """Put a waiting run at a place, 0 being the next; the others keep their order. False: it waits no more."""
        with self._connection() as connection:
            waiting = [run for run in _runs(connection, "waiting") if run != run_id]
            if len(waiting) == len(_runs(connection, "waiting")):
                return False
            waiting.insert(min(max(0, place), len(waiting)), run_id)
            connection.executemany("UPDATE jobs SET place = ? WHERE run = ?", list(enumerate(waiting)))
            return True

    def raise_(self, run_id: str) -> bool:
        """Put a waiting run one place nearer to its start. False when it waits no more."""
        return self._shift(run_id, -1)

    def lower(self, run_id: str) -> bool:
        """Let a waiting run's next go first. False when it waits no more."""
        return self._shift(run_id, 1)

    def pause(self) -> None:
        """Start no further run until `unpause`; those that go on are not touched."""
        self._set("paused", 1)

    def unpause(self) -> None:
        """Start waiting runs again."""
        self._set("paused", 0)

    @property
    def paused(self) -> bool:
        """True while no further run is started."""
        return self.look().paused

    @property
    def slots(self) -> int | None:
        """Runs at the same time as set for this queue; None: one, or one for each GPU."""
        return self.look().slots

    def set_slots(self, slots: int | None) -> None:
        """Set how many runs go on at the same time; None: one, or one for each GPU. Raises InputError below 1."""
        if slots is not None and not 1 <= slots <= _MOST_SLOTS:
            raise InputError(
                f"slots is {slots}; it must be >= 1 and <= {_MOST_SLOTS}, and `pause` starts no run at all"
            )
        self._set("slots", slots)

    def _shift(self, run_id: str, by: int) -> bool:
        waiting = self.waiting()
        return run_id in waiting and self.move(run_id, waiting.index(run_id) + by)

    def _set(self, name: str, value: int | None) -> None:
        with self._connection() as connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (name, value))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one transaction, which holds all of it or, after an error, nothing."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with FileLock(self.root / ".queue.lock", timeout=_BUSY_SECONDS, poll_interval=0.005):
                self._mend()
                try:
                    with closing(_connect(self.path)) as connection:
                        connection.execute("BEGIN IMMEDIATE")
                        yield connection
                        connection.execute("COMMIT")
                except (sqlite3.DatabaseError, UnicodeError) as error:
                    if _is_damage(error, self.path):  # such as no check of the file as a whole finds
                        self._set_aside()
                    raise
        except (sqlite3.Error, OSError, Timeout, UnicodeError) as error:
            raise JobError(_sentence(self.path, error)) from error

    def _mend(self) -> None:
        """See to it that there is a sound file of this version."""
        if self.path.exists():
            try:
                with closing(_connect(self.path)) as connection:
                    return _check(connection)
            except (sqlite3.DatabaseError, UnicodeError) as error:
                if not _is_damage(error, self.path):
                    raise
                self._set_aside()
        self._make()

    def _set_aside(self) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        kept = self.root / f"queue.damaged-{stamp}-{time.time_ns() % 1_000_000_000:09d}.sqlite"
        self.path.rename(kept)
        for ending in ("-wal", "-shm", "-journal"):
            with suppress(FileNotFoundError):
                self.path.with_name(self.path.name + ending).rename(kept.with_name(kept.name + ending))

    def _make(self) -> None:
        """Make the file from the run folders under another name and rename it: no one opens half a queue."""
        draft = self.root / ".queue.sqlite.new"
        for ending in ("", "-journal"):
            draft.with_name(draft.name + ending).unlink(missing_ok=True)
        with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            connection.execute(_JOBS)
            connection.execute(_SETTINGS)
            for number, (run_id, state) in enumerate(_launched(self.root)):
                connection.execute("INSERT INTO jobs (run, state, place) VALUES (?, ?, ?)", (run_id, state, number))
            connection.execute("COMMIT")
        draft.rename(self.path)


def supervisor_lock(root: Path) -> FileLock:
    """The lock that a supervisor holds while it serves the queue of a runs folder."""
    return FileLock(root / ".supervisor.lock", timeout=0)


def _connect(path: Path) -> sqlite3.Connection:
    """A connection to a file that is there; it is not made, so that one deleted meanwhile is noticed."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # a damaged name is an unknown run's
    return connection


def _check(connection: sqlite3.Connection) -> None:
    """Raise DatabaseError for a file that is damaged, or is not this queue; bring one of an earlier version up to date.

    In an earlier version runs waited in order of arrival, and nothing could be paused.
    """
    columns = _columns(connection)
    if columns["jobs"] != _EARLIER and columns != _COLUMNS:
        raise sqlite3.DatabaseError("it has no table of runs")
    if (found := connection.execute("PRAGMA integrity_check(1)").fetchone()[0]) != "ok":
        raise sqlite3.DatabaseError(f"malformed: {found}")
    if columns["jobs"] == _EARLIER:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ALTER TABLE jobs ADD COLUMN place INTEGER")
        connection.execute("UPDATE jobs SET place = number")
        connection.execute(_SETTINGS)
        connection.execute("COMMIT")


def _columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """The names of each table's columns; none for a table that is not there."""
    return {table: {row[1] for row in connection.execute(f"PRAGMA table_info({table})")} for table in _COLUMNS}


def _is_damage(error: Exception, path: Path) -> bool:
    """True for what only a damaged file can be the cause of; one that is locked, or has no room, is none."""
    kind = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if kind == sqlite3.SQLITE_READONLY:  # by the header, or by the system
        return os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return kind not in _OF_THE_SYSTEM


def _sentence(path: Path, error: Exception) -> str:
    words = str(error)
    if isinstance(error, sqlite3.Error | UnicodeError) and not path.exists():
        return f"{path}: the file was damaged ({words}); it was set aside, and is made again when you try again"
    if isinstance(error, Timeout) or "locked" in words:
        return f"{path}: another process holds the queue for {_BUSY_SECONDS:.0f} s; try again, or end that process"
    if "full" in words or "No space" in words:
        return f"{path}: the disk took no more of the queue ({words}); free some space and try again"
    return f"{path}: the queue cannot be used ({words})"


def _launched(root: Path) -> Iterator[tuple[str, str]]:
    """The runs of a folder that were launched, oldest first, with the state that each would have in the queue."""
    for run in reversed(RunStore(root).list()):
        if (run.folder / f"{LAUNCHED}.json").is_file():
            status = run.status()
            yield run.id, "finished" if status.is_finished else "waiting" if status.state == "queued" else "claimed"


def _runs(connection: sqlite3.Connection, state: str) -> tuple[str, ...]:
    rows = connection.execute(f"SELECT run FROM jobs WHERE state = ? {_ORDER}", (state,)).fetchall()
    return tuple(row[0] for row in rows)


def _set_state(connection: sqlite3.Connection, run_id: str, state: str) -> None:
    connection.execute("UPDATE jobs SET state = ? WHERE run = ?", (state, run_id))


def _setting(connection: sqlite3.Connection, name: str) -> int | None:
    row = connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
    return row[0] if row is not None and isinstance(row[0], int) else None
