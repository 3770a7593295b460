"""The lessons around their figures: selection, claim, question with a guess and its answer, and navigation."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from bsc_core.lab.lessons import LESSONS, LabLesson, Lesson
from pages.ui.components import display, glossary, page_layout, url
from pages.ui.components.browser.mount import lesson_progress
from pages.ui.lessons.figures import PARAMETERS as FIGURE_PARAMETERS
from pages.ui.lessons.figures import ROW, VALUE

PAGE = "lessons"
STATE = ("lesson", "done", "missed", "guess")
PARAMETERS = (*STATE, "answer")  # `answer` is of an earlier version
FIRST = next(iter(LESSONS))
STORED = f"{PAGE}.stored"  # session key
CORRECT = "\N{CHECK MARK}"  # mark of a lesson that was correct on the first attempt
MISSED = "\N{BULLET}"  # completed, but incorrect on the first attempt; a cross would look like a button
# The list has two rows, also with the marks; the figure remains visible while a longer text is scrolled.
STYLE = """<style>
.st-key-lessons-cards button { padding-inline: 0.5rem; }
@media (min-width: 900px) {
  .st-key-lessons-body [data-testid=stColumn]:last-child { position: sticky; top: 4rem; align-self: flex-start; }
}
</style>"""
VALUES_OF_LAB = {"temperature": "temperature", "mask-margin": "mask_margin"}  # what the slider of a lesson changes
NAMES = {  # explained in the claims that lessons cite
    "SCL": "the supervised contrastive loss",
    "PFCC-S": "tweets and the checked claims that they repeat",
    "CQA-A": "questions and comments of a forum",
    "STSb": "pairs of sentences with grades of similarity",
}


RESULTS = {
    "supported": "**supports** this",
    "smaller than claimed": "found a **smaller difference** than the paper",
    "contradicted": "**contradicts** this",
    "ruled out": "does **not support** this: in at least one comparison, the models are practically equal",
    "inconclusive": "is **inconclusive**: the difference is not clear",
    "not run yet": "has **not run yet**",
}
"""What a verdict means, after `Our test on real data`."""


def key(lesson: Lesson, name: str) -> str:
    """Return the session key of a lesson's widget."""
    return f"{PAGE}.{lesson.slug}.{name}"


def _state() -> dict[str, Any]:
    """Return the open lesson, the finished ones, and those of them whose first guess was wrong."""
    state: dict[str, Any] = st.session_state.setdefault(f"{PAGE}.state", {"lesson": FIRST, "done": [], "missed": []})
    return state


def _read_link() -> None:
    """Apply the URL parameters of a link; an unknown lesson is reported and the first one opened."""
    linked = {name: st.query_params[name] for name in STATE if name in st.query_params}
    if st.query_params.get("answer") == "1":  # a link of an earlier version, with the answer shown
        linked["guess"] = str(LESSONS[linked["lesson"]].correct + 1) if linked.get("lesson") in LESSONS else ""
    if (not linked and not url.is_history_navigation()) or linked == st.session_state.get(f"{PAGE}.written"):
        return
    state = _state()
    slug = linked.get("lesson", FIRST)
    if slug not in LESSONS:
        url.check("lesson", LESSONS)
        slug = FIRST
    state["lesson"] = slug
    _add_progress(linked.get("done", "").split(","), linked.get("missed", "").split(","))
    guess = linked.get("guess", "")
    numbers = [str(number + 1) for number in range(len(LESSONS[slug].options))]
    url.check("guess", numbers)
    st.session_state[key(LESSONS[slug], "guess")] = int(guess) - 1 if guess in numbers else None


def _use_stored_progress() -> None:
    """Continue with the progress that the browser has stored; what is not the name of a lesson is ignored."""
    stored = st.session_state[STORED].get("stored")
    names = [stored.get(name) for name in ("done", "missed")] if isinstance(stored, dict) else []
    if names and all(isinstance(one, list) for one in names):
        _add_progress(*names)


def _add_progress(done: Sequence[str], missed: Sequence[str]) -> None:
    """Add finished lessons, those of them whose first guess was wrong, to the others; an old link removes none."""
    state = _state()
    new = [slug for slug in LESSONS if slug in done and slug not in state["done"]]
    state["done"] = [*state["done"], *new]
    state["missed"] = [*state["missed"], *(slug for slug in new if slug in missed)]


def select() -> Lesson:
    """Draw the list of lessons and return the selected one."""
    _read_link()
    state = _state()
    forget = state.pop("forget", False)
    lesson_progress(state["done"], state["missed"], forget=forget, key=STORED, on_stored=_use_stored_progress)
    slugs, done, missed = list(LESSONS), state["done"], state["missed"]
    marks = {slug: MISSED if slug in missed else CORRECT for slug in done}
    right = f", {len(done) - len(missed)} correct on the first attempt" if done else ""
    st.session_state[f"{PAGE}.cards"] = state["lesson"]
    st.html(STYLE)
    selected = st.pills(
        f"Lessons: {len(done)} of {len(slugs)} completed{right}",
        slugs,
        format_func=lambda slug: f"{slugs.index(slug) + 1} {LESSONS[slug].title} {marks.get(slug, '')}".strip(),
        key=f"{PAGE}.cards",
        required=True,
        help=f"{CORRECT} correct on the first attempt, {MISSED} completed, but incorrect on the first attempt. Your "
        "progress is stored in this browser and in the address of this page.",
        on_change=lambda: _open(st.session_state[f"{PAGE}.cards"]),
    )
    return LESSONS[selected]


def _open(slug: str) -> None:
    """Open a lesson; the values of the controls of the one before leave the URL."""
    _state()["lesson"] = slug
    display.write_url({}, FIGURE_PARAMETERS)


def heading(lesson: Lesson) -> None:
    """Draw the title and the claim with its numbers."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header(f"{list(LESSONS).index(lesson.slug) + 1}. {lesson.title}", anchor=False, width="content")
        glossary.popover(*lesson.terms)
    st.markdown(_escaped(_texts(lesson.slug)["claim"]))


def is_known(lesson: Lesson) -> bool:
    """Whether the figure can be used without a guess: the lesson was done, or a link has a value of its control."""
    opened, controls = key(lesson, "opened"), lesson.controls if isinstance(lesson, LabLesson) else (VALUE, ROW)
    if page_layout.arrived() and any(name in st.query_params for name in controls):
        st.session_state[opened] = True
    return st.session_state.get(opened, False) or lesson.slug in _state()["done"]


def task(lesson: Lesson, *, is_open: bool) -> None:
    """Draw what to change in the figure, or what it shows before the guess."""
    texts = _texts(lesson.slug)
    if is_open:
        st.caption(f":material/touch_app: {_escaped(texts['move'])}")
    elif texts["before"]:
        st.caption(_escaped(texts["before"]))


def question(lesson: Lesson) -> bool:
    """Draw the question and its options; after a guess the answer, and the lesson counts as done.

    Returns:
        Whether there is a guess.
    """
    texts = _texts(lesson.slug)
    with st.container(border=True):
        guess = st.radio(
            _escaped(texts["question"]),
            range(len(lesson.options)),
            index=None,
            format_func=lambda number: _escaped(texts[f"option {number}"]),
            key=key(lesson, "guess"),
            persist_state="session",
        )
        if guess is None:
            follows = " and the figure" if lesson.figure_after_guess else " and to unlock the controls of the figure"
            st.caption(f"Choose an answer to see the explanation{'' if is_known(lesson) else follows}.")
            return False
        is_right = guess == lesson.correct
        if not is_right:
            st.markdown(f":material/cancel: Not correct. {_escaped(texts[f'reply {guess}'])}")
        st.markdown(f"{':material/check_circle: Correct. ' if is_right else ''}{_escaped(texts['answer'])}")
        if lesson.table:
            st.markdown(_markdown_table(lesson, texts))
        st.markdown(f"**In a run:** {_escaped(texts['practice'])}")
        _draw_findings(lesson)
        if lesson.slug not in _state()["done"]:
            _state()["done"].append(lesson.slug)
            if not is_right:
                _state()["missed"].append(lesson.slug)
            write_link()
            st.rerun()  # updates the count above
    return True


def _markdown_table(lesson: Lesson, texts: dict[str, str]) -> str:
    """Return the table of a lesson in Markdown; the columns after the first one are numbers."""
    rows = [
        [_escaped(texts[f"cell {row} {column}"]) for column in range(len(cells))]
        for row, cells in enumerate(lesson.table)
    ]
    rows.insert(1, [":--", *["--:"] * (len(rows[0]) - 1)])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


def frame_of_figure() -> None:
    """Draw the place of a figure that appears after the guess."""
    with st.container(border=True, height=380, horizontal_alignment="center", vertical_alignment="center"):
        st.caption(":material/insert_chart: The figure appears here after your answer.", width="content")


def _draw_findings(lesson: Lesson) -> None:
    """Draw the claims about the subject of the lesson, and the result of their test on real data."""
    for name, sentence in _finding_sentences(lesson.findings).items():
        url_of_claim = f"findings?{urlencode({'findings.claim': name})}"
        st.caption(f":material/fact_check: {_escaped(sentence)} [Open the finding]({url_of_claim})")


@st.cache_data(show_spinner=False)
def _finding_sentences(findings: tuple[str, ...]) -> dict[str, str]:
    """Return a sentence with claim, or statements, and result by the name of the claim; all sessions share it."""
    if not findings:
        return {}
    from bsc_core.reproduction.catalog import CLAIMS  # takes a second, and only a guess needs it
    from bsc_core.reproduction.findings import read_findings

    results, sentences = read_findings(), {}
    for entry in findings:
        name, *statement = entry.split(": ", 2)
        claim, verdict = CLAIMS[name].claim, results[name]["verdict"]
        source = "From the papers"
        if statement:
            arms, claim = statement
            source = "From a claim on the Findings page"
            statements = [one for one in results[name]["statements"] if arms.split() == [one["better"], one["worse"]]]
            (verdict,) = {one["verdict"] for one in statements}
        for short, about in NAMES.items():
            claim = claim.replace(short, f"{short} ({about})", 1)
        sentences[name] = f"{source}: “{claim}” Our test on real data {RESULTS[verdict]}."
    return sentences


def recap() -> None:
    """Draw the correct answers of all lessons and the next pages, below the lesson that was finished last."""
    state = _state()
    if len(state["done"]) < len(LESSONS) or state["lesson"] not in (state["done"][-1], list(LESSONS)[-1]):
        return
    right = len(LESSONS) - len(state["missed"])
    with st.container(border=True):
        st.subheader(f"All lessons completed, {right} of {len(LESSONS)} correct on the first attempt", anchor=False)
        st.markdown("Train an encoder on your data, or look for false negatives in batches of your data:")
        with st.container(horizontal=True):
            page_layout.next_step_button("New run", "train", key=f"{PAGE}.train", primary=False)
            page_layout.next_step_button("Batches", "batches", key=f"{PAGE}.batches", primary=False)
            st.button("Start over", key=f"{PAGE}.restart", icon=":material/restart_alt:", on_click=_start_over)
        with st.expander("Questions and correct answers"):
            for number, (slug, lesson) in enumerate(LESSONS.items(), 1):
                texts = _texts(slug)
                mark = "" if slug in state["missed"] else " :material/check_circle:"
                st.markdown(
                    f"**{number}. {lesson.title}**{mark}  \n{_escaped(texts['question'])}  \n"
                    f"*{_escaped(texts[f'option {lesson.correct}'])}*"
                )


def _start_over() -> None:
    for lesson in LESSONS.values():
        st.session_state[key(lesson, "guess")] = None
        st.session_state.pop(key(lesson, "opened"), None)
    _state().update(lesson=FIRST, done=[], missed=[], forget=True)


def navigation(lesson: Lesson) -> None:
    """Draw the buttons for the previous and next lesson, and for the lesson's settings in the loss lab."""
    slugs = list(LESSONS)
    index = slugs.index(lesson.slug)
    bar = page_layout.action_bar()

    def open_button(label: str, target: int, **options: Any) -> None:
        target_slug = slugs[target] if 0 <= target < len(slugs) else None
        options |= {"on_click": _open, "args": (target_slug,), "disabled": target_slug is None}
        bar.button(label, key=key(lesson, label), **options)

    open_button("Previous", index - 1, icon=":material/arrow_back:")
    is_last = index + 1 == len(slugs)
    if not is_last:
        open_button("Next lesson", index + 1, type="primary")
    kind: Any = "primary" if is_last else "secondary"
    if lesson.link and bar.button("Open in the loss lab", key=key(lesson, "own"), icon=":material/science:", type=kind):
        page_layout.switch_page("learn", **lesson.link | _chosen(lesson))


def _chosen(lesson: Lesson) -> dict[str, str]:
    """Return the values of the lesson's controls, which the URL has, as settings of the loss lab."""
    names = {VALUE: VALUES_OF_LAB.get(lesson.slug)}
    if isinstance(lesson, LabLesson):
        names |= dict(zip(lesson.controls, lesson.controls, strict=True))
    return {setting: st.query_params[name] for name, setting in names.items() if setting and name in st.query_params}


def write_link() -> None:
    """Write the open lesson, the finished ones and the guess into the URL."""
    slug = _state()["lesson"]
    values = {"lesson": slug}
    values |= {name: ",".join(_state()[name]) for name in ("done", "missed") if _state()[name]}
    guess = st.session_state.get(key(LESSONS[slug], "guess"))
    values |= {} if guess is None else {"guess": str(guess + 1)}
    display.write_url(values, PARAMETERS)
    st.session_state[f"{PAGE}.written"] = values


@st.cache_data(show_spinner="Computing the numbers of this lesson …")
def _texts(slug: str) -> dict[str, str]:
    return LESSONS[slug].sentences()


def _escaped(text: str) -> str:
    """Escape the bars, and the underscores outside of code."""
    code = text.replace("|", "\\|").split("`")
    return "`".join(part if number % 2 else part.replace("_", "\\_") for number, part in enumerate(code))
