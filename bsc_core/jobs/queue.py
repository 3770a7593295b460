"""The queue of runs: one SQLite table beside the run folders. What state a run is in stands in its folder, not here.

Each call opens a connection of its own and closes it, so that no connection is shared between threads or processes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from bsc_core.errors import JobError

_BUSY_SECONDS = 5.0
_TABLE = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'claimed', 'finished'))
)
"""


class Queue:
    """Runs that wait for a worker, in order of arrival; each is claimed by one process only."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / "queue.sqlite"

    def add(self, run_id: str) -> None:
        """Put a run at the end; a run that was ever added is not added again."""
        with self._connection() as connection:
            connection.execute("INSERT OR IGNORE INTO jobs (run) VALUES (?)", (run_id,))

    def claim(self) -> str | None:
        """Take the first waiting run, and only for this caller; None when nothing waits."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute("SELECT run FROM jobs WHERE state = 'waiting' ORDER BY number LIMIT 1").fetchone()
            if row:
                connection.execute("UPDATE jobs SET state = 'claimed' WHERE run = ?", row)
            connection.execute("COMMIT")
        return row[0] if row else None

    def finish(self, run_id: str) -> None:
        """Say that a run needs no worker any more."""
        self._set_state(run_id, "finished")

    def release(self, run_id: str) -> None:
        """Put a claimed run back to where it stood."""
        self._set_state(run_id, "waiting")

    def waiting(self) -> list[str]:
        """Runs that no one has claimed, first come first."""
        return self._runs("waiting")

    def claimed(self) -> list[str]:
        """Runs that were claimed and have not been said to be finished."""
        return self._runs("claimed")

    def holds(self, run_id: str) -> bool:
        """True when the run was ever added."""
        with self._connection() as connection:
            return connection.execute("SELECT 1 FROM jobs WHERE run = ?", (run_id,)).fetchone() is not None

    def _set_state(self, run_id: str, state: str) -> None:
        with self._connection() as connection:
            connection.execute("UPDATE jobs SET state = ? WHERE run = ?", (state, run_id))

    def _runs(self, state: str) -> list[str]:
        with self._connection() as connection:
            rows = connection.execute("SELECT run FROM jobs WHERE state = ? ORDER BY number", (state,)).fetchall()
        return [row[0] for row in rows]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            if not self.path.exists():
                self._make()
            with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
                yield connection
        except (sqlite3.Error, OSError, Timeout) as error:
            raise JobError(f"{self.path}: the queue cannot be used ({error})") from error

    def _make(self) -> None:
        """Make the file under another name and rename it, so that no one ever opens a queue without its table."""
        self.root.mkdir(parents=True, exist_ok=True)
        with FileLock(self.root / ".queue.lock", timeout=_BUSY_SECONDS):
            if self.path.exists():
                return
            draft = self.root / ".queue.sqlite.new"
            draft.unlink(missing_ok=True)
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(_TABLE)
            draft.rename(self.path)


def supervisor_lock(root: Path) -> FileLock:
    """The lock that a supervisor holds while it serves the queue of a runs folder."""
    return FileLock(root / ".supervisor.lock", timeout=0)
