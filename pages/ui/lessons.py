"""The lessons' page around the pictures: the cards, the claim, the question with its answer, and the way on."""

from __future__ import annotations

from typing import Any

import streamlit as st

from bsc_core.errors import InputError
from bsc_core.lab.lessons import LESSONS, Lesson
from pages.ui import frame, show

PAGE = "lessons"
OWN = ("lesson", "done", "answer")


def key(lesson: Lesson, name: str) -> str:
    """The session key of a lesson's widget."""
    return f"{PAGE}.{lesson.slug}.{name}"


def _state() -> dict[str, object]:
    """Which lesson is open, which are done, and whether the answer is shown."""
    kept: dict[str, object] = st.session_state.setdefault(f"{PAGE}.state", {"lesson": next(iter(LESSONS)), "done": []})
    return kept


def _arrive() -> None:
    """Take over a link that was followed; a lesson it does not know is said, and the first one opened."""
    told = {name: st.query_params[name] for name in OWN if name in st.query_params}
    if not told or told == st.session_state.get(f"{PAGE}.written"):
        return
    state = _state()
    wanted = told.get("lesson", next(iter(LESSONS)))
    if wanted not in LESSONS:
        show.error(InputError(f"lesson is {wanted[:40]!r} in the link; it must be one of {', '.join(LESSONS)}"))
        wanted = next(iter(LESSONS))
    state["lesson"] = wanted
    state["done"] = [slug for slug in LESSONS if slug in told.get("done", "").split(",")]
    st.session_state[key(LESSONS[wanted], "answer")] = told.get("answer") == "1"


def choose() -> Lesson:
    """Ten cards in order; the one in view."""
    _arrive()
    state = _state()
    slugs, done = list(LESSONS), _done()
    st.session_state[f"{PAGE}.cards"] = state["lesson"]
    chosen = st.pills(
        f"Lessons, {len(done)} of {len(slugs)} done",
        slugs,
        format_func=lambda slug: (
            f"{':material/check: ' if slug in done else ''}{slugs.index(slug) + 1}. {LESSONS[slug].title}"
        ),
        key=f"{PAGE}.cards",
        required=True,
    )
    state["lesson"] = chosen
    return LESSONS[chosen]


def _card(slug: str, done: bool) -> str:
    mark = ":material/check: " if done else ""
    return f"{mark}{list(LESSONS).index(slug) + 1}. {LESSONS[slug].title}"


def _done() -> list[str]:
    done = _state()["done"]
    return list(done) if isinstance(done, list) else []


def heading(lesson: Lesson) -> None:
    """The claim with its numbers, and what to move."""
    said = _said(lesson.slug)
    st.subheader(f"{list(LESSONS).index(lesson.slug) + 1}. {lesson.title}", anchor=False)
    st.markdown(f"**{_plain(said['claim'])}**")
    st.caption(f":material/touch_app: {_plain(said['move'])}")


def question(lesson: Lesson) -> None:
    """The question, and its answer when it is asked for; then the lesson is done."""
    said = _said(lesson.slug)
    with st.container(border=True):
        st.markdown(f":material/help: {_plain(said['question'])}")
        if st.toggle("Show the answer", key=key(lesson, "answer")):
            st.markdown(_plain(said["answer"]))
            if lesson.slug not in _done():
                _state()["done"] = [*_done(), lesson.slug]
                write_link()
                st.rerun()  # the cards above count it


def onward(lesson: Lesson) -> None:
    """Previous, next, and the same on one's own batch."""
    slugs = list(LESSONS)
    place = slugs.index(lesson.slug)
    back, on, own = st.columns([1, 1, 2])
    with back:
        _step("Previous", lesson, place - 1, icon=":material/arrow_back:", disabled=place == 0)
    with on:
        _step("Next lesson", lesson, place + 1, type="primary", disabled=place == len(slugs) - 1)
    with own:
        if st.button("Now on your own batch", key=key(lesson, "own"), icon=":material/science:", width="stretch"):
            frame.go("learn", **lesson.link)


def _step(label: str, lesson: Lesson, place: int, **look: Any) -> None:
    st.button(label, key=key(lesson, label), on_click=_open, args=(place,), width="stretch", **look)


def _open(place: int) -> None:
    _state()["lesson"] = list(LESSONS)[place]


def write_link() -> None:
    """Put the open lesson, the done ones and a shown answer into the URL."""
    state = _state()
    shown = st.session_state.get(key(LESSONS[str(state["lesson"])], "answer"))
    wanted = {"lesson": str(state["lesson"])}
    wanted |= {"done": ",".join(_done())} if _done() else {}
    wanted |= {"answer": "1"} if shown else {}
    for name in OWN:
        if name in wanted and st.query_params.get(name) != wanted[name]:
            st.query_params[name] = wanted[name]
        elif name not in wanted and name in st.query_params:
            del st.query_params[name]
    st.session_state[f"{PAGE}.written"] = wanted


@st.cache_data(show_spinner="Computing the numbers of this lesson …")
def _said(slug: str) -> dict[str, str]:
    return LESSONS[slug].said()


def _plain(text: str) -> str:
    """A sentence as Markdown that means nothing else."""
    return text.replace("|", "\\|").replace("_", "\\_")
