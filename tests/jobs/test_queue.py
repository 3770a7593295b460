"""The queue: order, claims, settings, and recovery of its file."""

import random
import sqlite3
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from filelock import FileLock

from bsc_core.errors import InputError, JobError
from bsc_core.jobs import launch, reconcile
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.states import advance
from bsc_core.runs import RunStore


def queue_of(folder: Path, names: Iterable[str]) -> Queue:
    queue = Queue(folder)
    for name in names:
        queue.add(name)
    return queue


def test_runs_are_claimed_in_order(tmp_path):
    queue = queue_of(tmp_path, "cab")
    assert queue.waiting() == ["c", "a", "b"]
    assert [queue.claim() for _ in range(4)] == ["c", "a", "b", None]
    assert (queue.waiting(), queue.snapshot().claimed) == ([], ("c", "a", "b"))


def test_a_run_is_queued_once_even_after_it_has_finished(tmp_path):
    queue = Queue(tmp_path)
    queue.add("a")
    queue.add("a")
    assert queue.claim() == "a"
    queue.add("a")
    queue.finish("a")
    queue.add("a")
    assert queue.snapshot().waiting == queue.snapshot().claimed == ()
    assert (queue.contains("a"), queue.contains("b")) == (False, False)
    queue.requeue("a")
    assert queue.waiting() == ["a"]


def test_a_released_run_keeps_its_position(tmp_path):
    queue = queue_of(tmp_path, "ab")
    queue.claim()
    queue.release("a")
    assert queue.waiting() == ["a", "b"]


def test_many_claimers_never_get_the_same_run(tmp_path):
    names = [f"run-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: Queue(tmp_path).add(name), names))
        claims = list(pool.map(lambda _: Queue(tmp_path).claim(), range(60)))
    assert sorted(claim for claim in claims if claim) == sorted(names)


def test_a_run_can_be_moved_and_the_others_keep_their_order(tmp_path):
    queue = queue_of(tmp_path, "abcd")
    assert queue.move("c", 0)
    assert queue.waiting() == ["c", "a", "b", "d"]
    assert queue.move("c", 2)
    assert queue.waiting() == ["a", "b", "c", "d"]
    assert queue.move("a", 99)
    assert queue.waiting() == ["b", "c", "d", "a"]
    assert queue.shift("d", -1)
    assert queue.shift("b", 1)
    assert queue.waiting() == ["d", "b", "c", "a"]
    queue.add("e")
    assert queue.waiting()[-1] == "e"


def test_the_first_run_moved_up_and_the_last_moved_down_do_not_move(tmp_path):
    queue = queue_of(tmp_path, "ab")
    assert queue.shift("a", -1)
    assert queue.shift("b", 1)
    assert queue.waiting() == ["a", "b"]


def test_a_run_that_does_not_wait_is_not_moved(tmp_path):
    queue = queue_of(tmp_path, "ab")
    queue.claim("a")
    assert not queue.move("a", 1)
    assert not queue.shift("unknown", -1)
    assert queue.waiting() == ["b"]


def test_a_paused_queue_starts_nothing_and_keeps_its_order(tmp_path):
    queue = queue_of(tmp_path, "ab")
    queue.pause()
    assert queue.snapshot().paused
    assert queue.claim() is None
    queue.unpause()
    assert queue.claim() == "a"


def test_slots_are_stored_in_the_queue(tmp_path):
    assert Queue(tmp_path).snapshot().slots is None
    Queue(tmp_path).set_slots(3)
    assert Queue(tmp_path).snapshot().slots == 3
    Queue(tmp_path).set_slots(None)
    assert Queue(tmp_path).snapshot().slots is None
    with pytest.raises(InputError, match="slots is 0; it must be >= 1"):
        Queue(tmp_path).set_slots(0)


FORGED = {
    "an id of bytes": "INSERT INTO jobs (run, state) VALUES (x'fffe', 'waiting')",
    "negative slots": "INSERT INTO settings (name, value) VALUES ('slots', -5)",
    "too many runs": (
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n <= 100000) "
        "INSERT INTO jobs (run, state) SELECT 'forged-' || n, 'claimed' FROM numbers"
    ),
}


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "torn pages":
        path.write_bytes(content[: len(content) // 2])
    elif how == "random bytes":
        generator = random.Random(0)
        for _ in range(300):
            content[generator.randrange(len(content))] = generator.randrange(256)
        path.write_bytes(content)
    elif how == "another database":
        path.unlink()
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE cats (name TEXT)")
    elif how == "an earlier version":
        path.unlink()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA journal_mode = WAL")
            other.execute("CREATE TABLE jobs (number INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT UNIQUE, state TEXT)")
            other.execute("INSERT INTO jobs (run, state) VALUES ('third', 'waiting')")
    elif how in FORGED:
        with closing(sqlite3.connect(path)) as queue:
            queue.execute(FORGED[how])
            queue.commit()
    else:
        path.write_bytes({"empty": b"", "text": b"this is no database " * 500}[how])


@pytest.mark.parametrize(
    "how", ["empty", "text", "torn pages", "random bytes", "another database", "an earlier version", *FORGED]
)
def test_a_damaged_file_is_set_aside_and_rebuilt_from_the_run_folders(store, config, how):
    for name in ("first", "second", "third", "over"):
        launch(store, config, name, start=lambda store: None)
    advance(store.get("over"), "stopped")
    advance(store.get("second"), "starting")
    store.create(config, "in-the-foreground")
    queue = Queue(store.root)
    damage(queue.path, how)
    assert queue.waiting() == ["first", "third"]
    assert queue.snapshot().claimed == ("second",)
    assert [path.name[:13] for path in store.root.glob("queue.*.sqlite")] == ["queue.damaged"]


def test_the_queue_recovers_from_any_damaged_byte_after_at_most_one_error(store, config):
    for name in ("one", "two"):
        launch(store, config, name, start=lambda store: None)
    queue = Queue(store.root)
    content = queue.path.read_bytes()
    used = [position for position in range(3600, 4096, 9) if content[position]]  # what SQLite knows of the tables
    flips = [(18, 0x20), (19, 0x20), *((position, 0xFF if position % 2 else 0x20) for position in used)]
    for position, flipped in flips:
        damaged = bytearray(content)
        damaged[position] ^= flipped
        queue.path.write_bytes(damaged)
        with suppress(JobError):
            queue.pause()
        queue.unpause()
        assert set(queue.snapshot().waiting) <= {"one", "two"}, position


@pytest.mark.parametrize("word", ["name TEXT", "value INTEGER", "place INTEGER"])
def test_a_file_with_other_column_names_is_damaged(store, config, word):
    launch(store, config, "one", start=lambda store: None)
    queue = Queue(store.root)
    content = queue.path.read_bytes()
    assert word.encode() in content
    queue.path.write_bytes(content.replace(word.encode(), word.upper().replace("A", "E").encode()))
    for _ in range(2):
        with suppress(JobError):
            queue.pause()
    assert queue.waiting() == ["one"]
    assert len(list(store.root.glob("queue.damaged-*"))) == 1


def test_an_invalid_table_definition_is_damage(store, config):
    launch(store, config, "one", start=lambda store: None)
    queue = Queue(store.root)
    queue.path.write_bytes(queue.path.read_bytes().replace(b"state IN (", b"stateQIN ("))
    with suppress(JobError):
        queue.set_slots(2)
    assert queue.claim() == "one"
    assert len(list(store.root.glob("queue.damaged-*"))) == 1


def test_a_deleted_file_is_rebuilt_from_the_run_folders(store, config):
    launch(store, config, "one", start=lambda store: None)
    queue = Queue(store.root)
    queue.path.unlink()
    assert queue.waiting() == ["one"]


def test_a_run_with_a_damaged_id_in_the_file_is_queued_again(store, config):
    run = RunStore(store.root, clock=lambda: 1000.0)
    launch(run, config, "one", start=lambda store: None)
    with closing(sqlite3.connect(store.root / "queue.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE jobs SET run = CAST(X'FFFE' AS TEXT)")
    reconcile(store, start=lambda store: None)
    assert "one" in Queue(store.root).waiting()


def test_a_locked_file_is_an_error_after_a_wait(tmp_path, monkeypatch):
    queue = Queue(tmp_path)
    queue.add("a")
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(queue.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(JobError, match=r"queue\.sqlite: another process has locked the queue"):
            queue.waiting()
    assert queue.waiting() == ["a"]
    with (
        FileLock(tmp_path / ".queue.lock"),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(JobError, match="another process has locked the queue"),
    ):
        pool.submit(queue.waiting).result()


def test_a_queue_that_cannot_be_written_is_an_error_with_the_reason(tmp_path):
    (tmp_path / "queue.sqlite").mkdir()
    with pytest.raises(JobError, match=r"queue\.sqlite: the queue cannot be used"):
        Queue(tmp_path).add("a")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW jobs AS SELECT 1 AS number, 'a' AS run, 'waiting' AS state, 1 AS place",
        "CREATE TABLE jobs (number INTEGER, run TEXT, state TEXT, place INTEGER AS (number * 2))",
    ],
    ids=["view", "generated"],
)
def test_a_file_with_other_tables_is_set_aside(tmp_path, statement):
    queue = queue_of(tmp_path, "ab")
    with closing(sqlite3.connect(queue.path)) as connection:
        connection.execute("DROP TABLE jobs")
        connection.execute(statement)
    assert queue.waiting() == []
    assert list(tmp_path.glob("queue.damaged-*.sqlite"))


def test_a_trigger_is_not_executed(tmp_path):
    queue = queue_of(tmp_path, "ab")
    with closing(sqlite3.connect(queue.path)) as connection:
        connection.execute("CREATE TRIGGER other AFTER INSERT ON jobs BEGIN DELETE FROM settings; END")
    assert queue.waiting() == []


def test_a_full_disk_is_reported_and_the_queue_is_kept(tmp_path):
    queue = queue_of(tmp_path, "ab")
    full = pytest.raises(JobError, match=r"the disk is full .*; free some space")
    with full, queue._connection() as connection:
        connection.execute("PRAGMA max_page_count = 1")  # no larger than it is
        connection.execute("CREATE TABLE more AS SELECT hex(zeroblob(100000))")
    assert queue.waiting() == ["a", "b"]
