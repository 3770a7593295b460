"""Turns of pages: one computation at a time, in the order of arrival and by user."""

from __future__ import annotations

import threading
from collections.abc import Callable
from unittest.mock import Mock

import pytest
import streamlit as st

from bsc_core.users.accounts import User
from pages.ui.components import turns
from pages.ui.components.turns import StudentScripts, Turns
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until


def arrive(order: Turns, user: str, done: list[str], end: Callable[[], None]) -> threading.Thread:
    """Start a page of a user that waits for its turn, and return when it waits."""

    def compute() -> None:
        order.take([user])
        done.append(user)
        end()
        order.release()

    count = len(order._waiting)
    page = threading.Thread(target=compute)
    page.start()
    wait_until(lambda: len(order._waiting) > count or user in done, "the page does not wait")
    return page


def test_many_pages_of_one_user_delay_another_user_by_one_turn() -> None:
    order, done = Turns(), []
    order.take(["ben"])
    pages = [arrive(order, user, done, lambda: None) for user in ("eva", "eva", "eva", "ada", "eva", "ben")]
    order.release()
    for page in pages:
        page.join(PATIENCE_SECONDS)
    assert done == ["eva", "ada", "ben", "eva", "eva", "eva"]


def test_a_page_that_stops_waiting_gives_its_turn_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "WAIT_SECONDS", 0.01)
    order, done, ended = Turns(), [], threading.Event()
    page = arrive(order, "ada", done, lambda: ended.wait(PATIENCE_SECONDS))
    wait_until(lambda: done == ["ada"], "the first page does not compute")
    with pytest.raises(RuntimeError, match="drawn again"):
        order.take(["eva"], Mock(side_effect=RuntimeError("drawn again")))
    assert order._waiting == []
    ended.set()
    order.take(["ben"])
    page.join(PATIENCE_SECONDS)


def test_few_scripts_of_a_student_run_at_the_same_time_and_those_in_a_turn_do_not_count() -> None:
    scripts, running, events = StudentScripts(), [], {name: threading.Event() for name in ("turn", "end")}

    def draw(number: int, student: str, waits_for_turn: bool) -> None:
        with scripts.script(student):
            running.append(number)
            if waits_for_turn:
                with scripts.paused():
                    events["turn"].wait(PATIENCE_SECONDS)
            events["end"].wait(PATIENCE_SECONDS)

    pages = [
        threading.Thread(target=draw, args=page) for page in ((0, "stu", True), (1, "stu", False), (2, "stu", False))
    ]
    for number, page in enumerate(pages):
        page.start()
        wait_until(lambda count=number: len(running) > count, "the page is not drawn")
    waiting = threading.Thread(target=draw, args=(3, "stu", False))
    waiting.start()
    other = threading.Thread(target=draw, args=(4, "class", False))
    other.start()
    wait_until(lambda: 4 in running, "the page of another student waits")
    assert 3 not in running
    events["turn"].set()
    wait_until(lambda: scripts._running["stu"] == 3, "the page with a turn does not continue")
    assert 3 not in running
    events["end"].set()
    for page in (*pages, waiting, other):
        page.join(PATIENCE_SECONDS)
    assert 3 in running
    assert scripts._running == {"stu": 0, "class": 0}


def test_a_rerun_of_a_fragment_of_a_student_counts_as_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_scripts", StudentScripts())
    monkeypatch.setattr(turns.users, "current_user", lambda: User(name="stu", role="student"))
    monkeypatch.setattr(turns.st, "fragment", lambda draw, run_every: draw)  # without a browser, it draws nothing
    counts: list[int] = []
    draw = turns.fragment(lambda: counts.append(turns._scripts._running["stu"]))
    draw()
    assert counts == [1]
    with turns.script():
        draw()  # as part of a page
        assert counts == [1, 1]
    assert turns._scripts._running["stu"] == 0


@pytest.mark.parametrize(("role", "counted"), [("student", [1]), ("member", [0])])
def test_the_preparation_of_a_script_of_a_student_counts(
    monkeypatch: pytest.MonkeyPatch, role: str, counted: list[int]
) -> None:
    counts: list[int] = []
    monkeypatch.setattr(turns, "_scripts", StudentScripts())
    monkeypatch.setattr(turns.users, "user_of_connection", lambda: User(name="stu", role=role))
    monkeypatch.setattr(turns.ScriptRunner, "_run_script", lambda *_: counts.append(turns._scripts._running["stu"]))
    turns.count_preparation()
    turns.ScriptRunner._run_script(Mock(), Mock())
    assert counts == counted
    assert turns._scripts._running["stu"] == 0


def test_a_computation_inside_another_one_is_an_error() -> None:
    @turns.cached(show_spinner=False)
    def double(number: int) -> int:
        return 2 * number

    assert double(2) == 4
    with turns.turn(), pytest.raises(RuntimeError, match="compute that before"):
        double(2)
    with turns.turn(), pytest.raises(RuntimeError, match="compute that before"), turns.turn():
        pass
    assert double(3) == 6


def test_a_cached_computation_takes_a_turn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    monkeypatch.setattr(turns._turns, "take", lambda users, show: taken.append(users))
    monkeypatch.setattr(turns._turns, "release", lambda: None)

    @turns.cached(show_spinner=False)
    def double(number: int, _other: object) -> int:
        return 2 * number

    assert [double(2, object()) for _ in range(3)] == [4, 4, 4]
    assert taken == [["owner"]]


def test_a_page_that_waits_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    place, done = Mock(), []
    monkeypatch.setattr(st, "empty", lambda: place)
    started, waited = threading.Event(), threading.Event()
    place.caption.side_effect = lambda text: waited.set()

    def compute_elsewhere() -> None:
        with turns.turn():
            started.set()
            waited.wait(PATIENCE_SECONDS)
            done.append("elsewhere")

    other = threading.Thread(target=compute_elsewhere)
    other.start()
    started.wait(PATIENCE_SECONDS)
    with turns.turn():
        done.append("here")
    other.join()
    assert done == ["elsewhere", "here"]
    assert place.empty.called


def test_an_encoding_is_handed_over_after_each_part() -> None:
    done: list[str] = []
    with turns.encoding(["ben"], lambda: None) as hand_over:
        page = arrive(turns._encodings, "eva", done, lambda: None)
        assert done == []
        hand_over()
        assert done == ["eva"]
    page.join(PATIENCE_SECONDS)


def test_the_page_that_encodes_has_the_turns_of_all_users_who_wait_for_the_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order, done = Turns(), []
    order.take(["stu"])
    pages = [arrive(order, "stu", done, lambda: None) for _ in range(3)]
    monkeypatch.setattr(turns.users, "current_user", lambda: User(name="stu", role="student"))
    with turns.users_waiting_for("vectors") as names:
        last = threading.Thread(target=lambda: (order.take(names), done.append("vectors"), order.release()))
        last.start()
        wait_until(lambda: len(order._waiting) == 4, "the page does not wait")
        monkeypatch.setattr(turns.users, "current_user", lambda: User(name="eva", role="member"))
        with turns.users_waiting_for("vectors") as same:
            assert same == names == ["stu", "eva"]
            order.release()
            for page in (*pages, last):
                page.join(PATIENCE_SECONDS)
    assert done == ["vectors", "stu", "stu", "stu"]
    assert turns._waiting == {}


def test_texts_are_not_encoded_in_a_turn() -> None:
    with turns.turn(), pytest.raises(RuntimeError, match="compute that before"), turns.encoding([], lambda: None):
        pass
