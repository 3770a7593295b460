"""Computations of pages that run one at a time, and scripts of students; one user delays the others little."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import RerunData
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner

from pages.ui.components import users

SCRIPTS_OF_STUDENT = 2  # that draw pages of one student, or of a class that shares a link, at the same time
WAIT_SECONDS = 0.2  # after which a waiting page checks whether it is drawn again
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Turns:
    """Order of computations: of the users who wait, the one whose last turn was longest ago is next."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[list[str], object]] = []  # users and page, in order of arrival
        self._owner: int | None = None  # the thread that computes
        self._numbers = itertools.count()
        self._last_turn: dict[str, int] = {}  # by user

    def take(self, users: list[str], while_waiting: Callable[[], object] = lambda: None) -> None:
        """Wait for a turn, which ends with `release`.

        Args:
            users: Users who wait for the result; it may change meanwhile. The turn is that of the one who is next.
            while_waiting: Called every WAIT_SECONDS; may raise.
        """
        self.check_not_taken()
        entry = (users, object())
        with self._changed:
            self._waiting.append(entry)
        try:
            while not self._try(entry):
                while_waiting()
        finally:
            with self._changed:
                self._waiting.remove(entry)
                self._changed.notify_all()

    def release(self) -> None:
        """End a turn."""
        with self._changed:
            self._owner = None
            self._changed.notify_all()

    def check_not_taken(self) -> None:
        """Raise RuntimeError in the thread that has the turn: it would wait for a thread that waits for it."""
        if self._owner == threading.get_ident():
            raise RuntimeError("a computation in a turn needs the result of another one; compute that before")

    def _try(self, entry: tuple[list[str], object]) -> bool:
        """Wait for WAIT_SECONDS; return whether the turn was taken."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._owner is None and self._next() is entry, WAIT_SECONDS):
                return False
            self._owner = threading.get_ident()
            self._last_turn[min(entry[0], key=self._last_turn_of)] = next(self._numbers)
            return True

    def _next(self) -> tuple[list[str], object]:
        return min(self._waiting, key=lambda entry: min(map(self._last_turn_of, entry[0])))

    def _last_turn_of(self, user: str) -> int:
        return self._last_turn.get(user, -1)


class StudentScripts:
    """Limits how many scripts draw pages of a student at the same time; each takes processor time from all others.

    A script that waits for a turn or computes in it does not count.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()  # by student
        self._student = threading.local()  # `name` in a thread whose script counts

    @property
    def counts_this_thread(self) -> bool:
        """Whether the script of this thread counts now."""
        return getattr(self._student, "name", None) is not None

    @contextmanager
    def script(self, student: str) -> Iterator[None]:
        """Wait until fewer than SCRIPTS_OF_STUDENT scripts of the student run, and count this one."""
        with self._changed:
            self._changed.wait_for(lambda: self._running[student] < SCRIPTS_OF_STUDENT)
            self._running[student] += 1
        self._student.name = student
        try:
            yield
        finally:
            self._student.name = None
            self._count(student, -1)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the script of this thread. It then continues at once, since others may wait for its result."""
        student = getattr(self._student, "name", None)
        if student is None:
            yield
            return
        self._student.name = None
        self._count(student, -1)
        try:
            yield
        finally:
            self._student.name = student
            self._count(student, 1)

    def _count(self, student: str, change: int) -> None:
        with self._changed:
            self._running[student] += change
            self._changed.notify_all()


_turns, _encodings, _scripts = Turns(), Turns(), StudentScripts()
_waiting: dict[Hashable, list[str]] = {}  # users who wait for vectors
_waiting_guard = threading.Lock()


@contextmanager
def script() -> Iterator[None]:
    """Draw a page of the user, for a student when few of their other pages are drawn."""
    user = users.current_user()
    if user.may_launch or _scripts.counts_this_thread:
        yield
        return
    with _scripts.script(user.name):
        yield


def count_preparation() -> None:
    """Count the script of a student from the moment at which Streamlit reads its parameters and controls."""
    run_script = ScriptRunner._run_script

    def run_counted(runner: ScriptRunner, request: RerunData) -> None:
        user = users.user_of_connection()
        with nullcontext() if user is None or user.may_launch else _scripts.script(user.name):
            run_script(runner, request)

    ScriptRunner._run_script = run_counted  # type: ignore[method-assign]


def fragment(draw: Callable[Arguments, Result], run_every: float | None = None) -> Callable[Arguments, Result]:
    """Return a function that draws a part of a page as `st.fragment` does; its reruns count as scripts."""

    @wraps(draw)
    def counted(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with script():
            return draw(*args, **kwargs)

    return st.fragment(counted, run_every=run_every)


@contextmanager
def turn(*, draw: bool = True) -> Iterator[None]:
    """Let one page at a time compute; with `draw`, a waiting page says so, and stops if it is drawn again."""
    notes = []

    def show() -> None:
        if draw:
            notes[:] = notes or [st.empty()]
            notes[0].caption("Waiting for the computations of other pages …")  # Streamlit ends the script here

    with _scripts.paused():
        _turns.take([users.current_user().name], show)
        try:
            for note in notes:
                note.empty()
            yield
        finally:
            _turns.release()


@contextmanager
def users_waiting_for(key: Hashable) -> Iterator[list[str]]:
    """Yield the names of the users whose pages wait for the vectors of this key, one name for each page."""
    user = users.current_user().name
    with _waiting_guard:
        names = _waiting.setdefault(key, [])
        names.append(user)
    try:
        yield names
    finally:
        with _waiting_guard:
            names.remove(user)
            if not names:
                del _waiting[key]


@contextmanager
def encoding(names: list[str], while_waiting: Callable[[], object]) -> Iterator[Callable[[], None]]:
    """Let one page at a time encode texts; yield what to call after each part, so that another user is next.

    It can take minutes, so it may not be part of a computation in a `turn`.

    Args:
        names: The users of `users_waiting_for`: the page has the turns of each of them.
        while_waiting: Called every WAIT_SECONDS; may raise.
    """
    _turns.check_not_taken()

    def hand_over() -> None:
        _encodings.release()
        _encodings.take(names)

    with _scripts.paused():
        _encodings.take(names, while_waiting)
        try:
            yield hand_over
        finally:
            _encodings.release()


def cached(**options: Any) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Cache the results of a computation as `st.cache_resource` does; each is computed in a turn.

    The cache lets other pages wait for a result that is being computed. Therefore no computation may use another one.
    """

    def decorate(compute: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @wraps(compute)
        def compute_in_turn(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            with turn(draw=False):
                return compute(*arguments, **named)

        cached_result = st.cache_resource(**options)(compute_in_turn)

        @wraps(compute)
        def result(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
            _turns.check_not_taken()
            return cached_result(*arguments, **named)

        result.clear = cached_result.clear  # type: ignore[attr-defined]
        return result

    return decorate
