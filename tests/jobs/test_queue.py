"""The queue: order, one claim for each run, and no second row for an id."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bsc_core.errors import JobError
from bsc_core.jobs.queue import Queue


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
    assert (queue.waiting(), queue.claimed(), queue.holds("a"), queue.holds("b")) == ([], [], True, False)


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


def test_a_queue_that_is_no_database_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "queue.sqlite").write_text("this is not a database, but long enough to be taken for a header " * 10)
    with pytest.raises(JobError, match=r"queue\.sqlite"):
        Queue(tmp_path).waiting()
