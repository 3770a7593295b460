"""The queue: order, one claim for each run, and no second row for an id."""

import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest
from filelock import FileLock

from bsc_core.config import RunConfig
from bsc_core.errors import InputError, JobError
from bsc_core.jobs import launch, reconcile
from bsc_core.jobs.queue import Queue, Standing
from bsc_core.jobs.states import advance
from bsc_core.runs import RunStore


def test_runs_are_claimed_in_the_order_they_came(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    for name in ("c", "a", "b"):
        queue.add(name)
    assert queue.waiting() == ["c", "a", "b"]
    assert [queue.claim() for _ in range(4)] == ["c", "a", "b", None]
    assert (queue.waiting(), queue.claimed()) == ([], ["c", "a", "b"])


def test_a_run_is_queued_once_even_after_it_has_finished(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.add("a")
    queue.add("a")
    assert queue.claim() == "a"
    queue.add("a")
    queue.finish("a")
    queue.add("a")
    assert (queue.waiting(), queue.claimed(), queue.serves("a"), queue.serves("b")) == ([], [], False, False)
    queue.add_again("a")
    assert queue.waiting() == ["a"]


def test_a_released_run_keeps_its_place(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    for name in ("a", "b"):
        queue.add(name)
    queue.claim()
    queue.release("a")
    assert queue.waiting() == ["a", "b"]


def test_many_claimers_never_get_the_same_run(tmp_path: Path) -> None:
    names = [f"run-{number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: Queue(tmp_path).add(name), names))
        claims = list(pool.map(lambda _: Queue(tmp_path).claim(), range(60)))
    assert sorted(claim for claim in claims if claim) == sorted(names)


def test_a_run_can_be_moved_to_any_place_and_the_others_keep_their_order(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    for name in "abcd":
        queue.add(name)
    assert queue.move("c", 0)
    assert queue.waiting() == ["c", "a", "b", "d"]
    assert queue.move("c", 2)
    assert queue.waiting() == ["a", "b", "c", "d"]
    assert queue.move("a", 99)
    assert queue.waiting() == ["b", "c", "d", "a"]
    assert queue.raise_("d")
    assert queue.lower("b")
    assert queue.waiting() == ["d", "b", "c", "a"]
    queue.add("e")
    assert queue.waiting()[-1] == "e"


def test_a_first_run_that_is_raised_and_a_last_that_is_lowered_stay(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    for name in "ab":
        queue.add(name)
    assert queue.raise_("a")
    assert queue.lower("b")
    assert queue.waiting() == ["a", "b"]


def test_a_run_that_waits_no_more_is_not_moved(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    for name in "ab":
        queue.add(name)
    queue.claim("a")
    assert not queue.move("a", 1)
    assert not queue.raise_("unknown")
    assert queue.waiting() == ["b"]


def test_a_paused_queue_gives_nothing_out_and_keeps_its_order(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    for name in "ab":
        queue.add(name)
    queue.pause()
    assert queue.paused
    assert queue.claim() is None
    queue.unpause()
    assert queue.claim() == "a"


def test_slots_are_kept_with_the_queue(tmp_path: Path) -> None:
    assert Queue(tmp_path).slots is None
    Queue(tmp_path).set_slots(3)
    assert Queue(tmp_path).slots == 3
    Queue(tmp_path).set_slots(None)
    assert Queue(tmp_path).slots is None
    with pytest.raises(InputError, match="slots is 0; it must be >= 1"):
        Queue(tmp_path).set_slots(0)


def test_a_file_of_an_earlier_version_is_brought_up_to_date(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "queue.sqlite", isolation_level=None)) as old:
        old.execute("PRAGMA journal_mode = WAL")
        old.execute(
            "CREATE TABLE jobs (number INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL UNIQUE, state TEXT)"
        )
        old.executemany("INSERT INTO jobs (run, state) VALUES (?, ?)", [("b", "waiting"), ("c", "claimed")])
        old.execute("INSERT INTO jobs (run, state) VALUES ('a', 'waiting')")
    queue = Queue(tmp_path)
    assert queue.look() == Standing(waiting=("b", "a"), claimed=("c",), paused=False, slots=None)
    assert queue.move("a", 0)
    assert queue.waiting() == ["a", "b"]


def damaged(path: Path, how: str) -> None:
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
    else:
        path.write_bytes({"empty": b"", "text": b"this is no database " * 500}[how])


@pytest.mark.parametrize("how", ["empty", "text", "torn pages", "random bytes", "another database"])
def test_a_damaged_file_is_kept_by_name_and_made_again_from_the_run_folders(
    store: RunStore, config: RunConfig, how: str
) -> None:
    for name in ("first", "second", "third", "over"):
        launch(store, config, name, start=lambda store: None)
    advance(store.get("over"), "stopped")
    advance(store.get("second"), "starting")
    store.create(config, "in-the-foreground")
    queue = Queue(store.root)
    damaged(queue.path, how)
    assert queue.waiting() == ["first", "third"]
    assert queue.claimed() == ["second"]
    assert [path.name[:13] for path in store.root.glob("queue.*.sqlite")] == ["queue.damaged"]


def test_whatever_byte_is_damaged_the_queue_is_whole_again_after_at_most_one_refusal(
    store: RunStore, config: RunConfig
) -> None:
    for name in ("one", "two"):
        launch(store, config, name, start=lambda store: None)
    queue = Queue(store.root)
    whole = queue.path.read_bytes()
    words = [place for place in range(3600, 4096, 9) if whole[place]]  # what SQLite knows of the tables
    for place, flipped in [(18, 0x20), (19, 0x20), *((place, 0xFF if place % 2 else 0x20) for place in words)]:
        content = bytearray(whole)
        content[place] ^= flipped
        queue.path.write_bytes(content)
        with suppress(JobError):
            queue.pause()
        queue.unpause()
        assert set(queue.look().waiting) <= {"one", "two"}, place


@pytest.mark.parametrize("word", ["name TEXT", "value INTEGER", "place INTEGER"])
def test_a_file_with_other_names_in_it_is_damaged(store: RunStore, config: RunConfig, word: str) -> None:
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


def test_a_rule_of_the_table_that_makes_no_sense_is_damage(store: RunStore, config: RunConfig) -> None:
    launch(store, config, "one", start=lambda store: None)
    queue = Queue(store.root)
    queue.path.write_bytes(queue.path.read_bytes().replace(b"state IN (", b"stateQIN ("))
    with suppress(JobError):
        queue.set_slots(2)
    assert queue.claim() == "one"
    assert len(list(store.root.glob("queue.damaged-*"))) == 1


def test_a_deleted_file_is_made_again_from_the_run_folders(store: RunStore, config: RunConfig) -> None:
    launch(store, config, "one", start=lambda store: None)
    queue = Queue(store.root)
    queue.path.unlink()
    assert queue.waiting() == ["one"]


def test_a_run_whose_name_in_the_file_was_damaged_is_queued_again(store: RunStore, config: RunConfig) -> None:
    run = RunStore(store.root, clock=lambda: 1000.0)
    launch(run, config, "one", start=lambda store: None)
    with closing(sqlite3.connect(store.root / "queue.sqlite", isolation_level=None)) as connection:
        connection.execute("UPDATE jobs SET run = CAST(X'FFFE' AS TEXT)")
    reconcile(store, start=lambda store: None)
    assert "one" in Queue(store.root).waiting()


def test_a_locked_file_is_waited_for_and_then_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(tmp_path)
    queue.add("a")
    monkeypatch.setattr("bsc_core.jobs.queue._BUSY_SECONDS", 0.1)
    with closing(sqlite3.connect(queue.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(JobError, match=r"queue\.sqlite: another process holds the queue"):
            queue.waiting()
    assert queue.waiting() == ["a"]
    with (
        FileLock(tmp_path / ".queue.lock"),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(JobError, match="another process holds the queue"),
    ):
        pool.submit(queue.waiting).result()


def test_a_queue_that_cannot_be_written_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "queue.sqlite").mkdir()
    with pytest.raises(JobError, match=r"queue\.sqlite: the queue cannot be used"):
        Queue(tmp_path).add("a")
