"""Lessons page: every lesson opens by a link, computes its numbers and shows its answer after a guess."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.lab.lessons import LESSONS, LabLesson
from bsc_core.lab.settings import LabSettings
from bsc_core.reproduction.findings import read_findings
from bsc_core.runs import RunStore
from pages.ui.lessons import view as lessons_ui
from tests.helpers.pages import click, open_page, page_text


@pytest.fixture
def open_lessons(runs: RunStore) -> Callable[..., AppTest]:
    return lambda **query: open_page("lessons", **query)


def lesson_text(app: AppTest) -> str:
    """Return the text of the page without the escapes of Markdown."""
    return page_text(app).replace("\\", "")


@pytest.mark.parametrize("slug", LESSONS)
def test_a_lesson_opens_by_its_link_and_shows_its_answer_after_a_guess(
    open_lessons: Callable[..., AppTest], slug: str
) -> None:
    app = open_lessons(lesson=slug)
    assert not app.exception
    texts, correct = LESSONS[slug].sentences(), LESSONS[slug].correct
    guess = app.radio(key=f"lessons.{slug}.guess")
    assert texts["claim"] in lesson_text(app)
    assert guess.label.replace("\\", "") == texts["question"]
    assert texts["answer"] not in lesson_text(app)
    wrong = (correct + 1) % len(LESSONS[slug].options)
    guess.set_value(wrong).run()
    assert texts["answer"] in lesson_text(app)
    assert f"Not correct. {texts[f'reply {wrong}']}" in lesson_text(app)
    assert all(f"| {texts[name]} |" in lesson_text(app) for name in texts if name.startswith("cell "))
    assert all(app.query_params[name] in (slug, [slug]) for name in ("done", "missed"))
    assert app.query_params["guess"] in (str(wrong + 1), [str(wrong + 1)])
    app.radio(key=f"lessons.{slug}.guess").set_value(correct).run()
    assert ": Correct." in lesson_text(app)
    assert "0 correct on the first attempt" in app.get("button_group")[0].proto.label


def test_a_link_with_a_guess_or_of_an_earlier_version_shows_the_answer(open_lessons: Callable[..., AppTest]) -> None:
    answer = LESSONS["margins"].sentences()["answer"]
    assert answer in lesson_text(open_lessons(lesson="margins", guess="1"))
    assert answer in lesson_text(open_lessons(lesson="margins", answer="1"))
    assert answer not in lesson_text(open_lessons(lesson="margins", guess="9"))


@pytest.mark.parametrize(
    ("slug", "query", "words"),
    [
        ("in-batch-negatives", {"at": "16"}, "At batch size 16: 15 negatives for each query, 240 negative pairs"),
        ("temperature", {"at": "0.01", "row": "3"}, "At temperature 0.01, the hardest negative gets"),
        ("duplicates", {"at": "excluded"}, "The false negative (the document of the other pair) is excluded"),
        ("batch-order", {"at": "nearest"}, "(the vertical line): 82% with batches of nearest neighbors"),
        ("margins", {"at": "1"}, "with the Euclidean. The mean triplet loss with the cosine distance is "),
        (
            "supervised-contrastive",
            {"at": "0.5"},
            "Before training, it is nearest for 48% and 65%. The classifier",
        ),
        ("mask-margin", {"at": "0.15"}, "At a margin of 0.15, the mask excludes 9 of 10 false negatives"),
        (
            "mask-margin",
            {"at": "0.15"},
            f"these irrelevant documents have {LESSONS['mask-margin'].facts()['wide_gradient']} of the gradient",
        ),
        ("mask-margin", {"at": "-0.1"}, "At a margin of \N{MINUS SIGN}0.1, the mask excludes no negative."),
        ("hardness-weights", {"at": "10"}, "At a hardness strength of 10: hardest negative 77%"),
        ("hardness-weights", {"at": "20"}, "mean probability of the positive below 0.01"),
        ("matryoshka", {"at": "16"}, "MRR with the first 16 of 384 dimensions"),
        ("debiased", {"at": "0.05"}, "At a prior of 0.05: 4 of 6 queries have a gradient on their negatives"),
    ],
)
def test_the_control_of_a_figure_is_in_the_link(
    open_lessons: Callable[..., AppTest], slug: str, query: dict[str, str], words: str
) -> None:
    app = open_lessons(lesson=slug, **query)
    assert not app.exception
    assert words in lesson_text(app)


@pytest.mark.parametrize("slug", [slug for slug, lesson in LESSONS.items() if lesson.figure_after_guess])
def test_a_figure_that_shows_the_answer_appears_after_the_guess(
    open_lessons: Callable[..., AppTest], slug: str
) -> None:
    def has_figure(app: AppTest) -> bool:
        names = [one.proto.component_name for one in app.get("bidi_component")]
        return bool(app.select_slider) or any(name.endswith(("loss_lab", "lesson_triplets")) for name in names)

    app = open_lessons(lesson=slug)
    assert not has_figure(app)
    app.radio(key=f"lessons.{slug}.guess").set_value(0).run()
    assert has_figure(app)
    assert has_figure(open_lessons(lesson=slug, done=slug))


@pytest.mark.parametrize("slug", [slug for slug, one in LESSONS.items() if not one.figure_after_guess])
def test_the_control_of_a_figure_is_locked_until_a_guess(open_lessons: Callable[..., AppTest], slug: str) -> None:
    def is_usable(app: AppTest) -> bool:
        labs = [one.proto for one in app.get("bidi_component") if one.proto.component_name.endswith("loss_lab")]
        disabled = [one.proto.disabled for one in (*app.select_slider, *app.get("button_group")[1:])]
        assert labs or disabled
        return not any(disabled) and all(json.loads(one.json)["controls"] for one in labs)

    app = open_lessons(lesson=slug)
    assert not is_usable(app)
    assert "at" not in app.query_params
    app.radio(key=f"lessons.{slug}.guess").set_value(0).run()
    assert is_usable(app)
    assert is_usable(open_lessons(lesson=slug, done=slug))


@pytest.mark.parametrize("slug", [slug for slug, lesson in LESSONS.items() if isinstance(lesson, LabLesson)])
def test_the_state_of_the_matrices_is_named_before_the_guess(open_lessons: Callable[..., AppTest], slug: str) -> None:
    before = LESSONS[slug].sentences()["before"]
    assert before
    assert before in lesson_text(open_lessons(lesson=slug))
    assert before not in lesson_text(open_lessons(lesson=slug, guess="1"))


@pytest.mark.parametrize("slug", LESSONS)
def test_the_findings_of_a_lesson_are_linked_after_the_guess(open_lessons: Callable[..., AppTest], slug: str) -> None:
    app = open_lessons(lesson=slug, guess="1")
    captions = [caption.value for caption in app.caption]
    for finding in LESSONS[slug].findings:
        name, arms, *_ = [*finding.split(": ", 2), ""]
        result = read_findings()[name]
        tested = [one for one in result["statements"] if [one["better"], one["worse"]] == arms.split()]
        verdicts = {one["verdict"] for one in tested} if arms else {result["verdict"]}
        (caption,) = [caption for caption in captions if f"findings.claim={name}" in caption]
        (verdict,) = verdicts
        assert f"Our test on real data {lessons_ui.RESULTS[verdict]}." in caption


def test_another_lesson_does_not_take_the_value_of_a_control(open_lessons: Callable[..., AppTest]) -> None:
    app = open_lessons(lesson="in-batch-negatives", at="4")
    click(app, "lessons.in-batch-negatives.Next lesson")
    assert "at" not in app.query_params
    assert app.select_slider[0].disabled


@pytest.mark.parametrize(
    ("slug", "at", "sent"),
    [
        ("in-batch-negatives", "16", lambda data: data["sizes"] == {"start": 16, "min": 2, "max": 16}),
        ("hardness-weights", "10", lambda data: data["settings"]["hardness_strength"] == 10),
        ("debiased", "0.05", lambda data: data["settings"]["debiased_prior"] == 0.05 and data["by_logits"]),
        ("margins", "1", lambda data: data["value"] == 1 and len(data["distances"]) == 2),
    ],
)
def test_the_browser_gets_the_value_of_the_link_and_keeps_it(
    open_lessons: Callable[..., AppTest], slug: str, at: str, sent: Callable[[dict[str, Any]], bool]
) -> None:
    app = open_lessons(lesson=slug, done=slug, at=at)
    for _ in range(2):
        names = ("loss_lab", "lesson_triplets")
        (component,) = [one for one in app.get("bidi_component") if one.proto.component_name.endswith(names)]
        assert sent(json.loads(component.proto.json))
        assert app.query_params["at"] in (at, [at])
        app.run()


def test_the_list_of_lessons_shows_their_titles(open_lessons: Callable[..., AppTest]) -> None:
    options = [option.content for option in open_lessons().get("button_group")[0].proto.options]
    assert options == [f"{number} {lesson.title}" for number, lesson in enumerate(LESSONS.values(), 1)]


def test_next_and_previous_go_through_all_lessons(open_lessons: Callable[..., AppTest]) -> None:
    app = open_lessons()
    slugs = list(LESSONS)
    for slug, following in pairwise(slugs):
        click(app, f"lessons.{slug}.Next lesson")
        assert app.query_params["lesson"] in (following, [following])
    assert f"lessons.{slugs[-1]}.Next lesson" not in [button.key for button in app.button]
    click(app, f"lessons.{slugs[-1]}.Previous")
    assert LESSONS[slugs[-2]].title in lesson_text(app)


def test_progress_is_in_the_link(open_lessons: Callable[..., AppTest]) -> None:
    app = open_lessons(lesson="margins", done="temperature,duplicates,nonsense", missed="duplicates,margins", at="1")
    assert f"2 of {len(LESSONS)} completed, 1 correct on the first attempt" in app.get("button_group")[0].proto.label
    options = [option.content for option in app.get("button_group")[0].proto.options]
    assert [options[1], options[5]] == ["2 Temperature \N{CHECK MARK}", "6 False negatives \N{BULLET}"]
    assert "\N{BULLET} completed, but incorrect on the first attempt" in app.get("button_group")[0].proto.help
    assert options[8] == "9 Margins"
    assert "At a margin of 1:" in lesson_text(app)
    assert "All lessons completed" not in lesson_text(app)


def test_all_lessons_end_with_their_correct_answers(open_lessons: Callable[..., AppTest]) -> None:
    text = lesson_text(open_lessons(lesson="debiased", done=",".join(LESSONS), missed="margins,nonsense"))
    assert f"All lessons completed, {len(LESSONS) - 1} of {len(LESSONS)} correct on the first attempt" in text
    assert all(lesson.sentences()[f"option {lesson.correct}"] in text for lesson in LESSONS.values())


def test_an_unknown_lesson_is_an_error_and_the_first_one_opens(open_lessons: Callable[..., AppTest]) -> None:
    app = open_lessons(lesson="nope")
    assert "lesson is 'nope'" in lesson_text(app)
    assert next(iter(LESSONS.values())).sentences()["claim"] in lesson_text(app)


@pytest.mark.parametrize(("slug", "value"), [("combined-loss", 0.5), ("supervised-contrastive", 0.0)])
def test_a_control_changes_the_text(open_lessons: Callable[..., AppTest], slug: str, value: float) -> None:
    app = open_lessons(lesson=slug, guess="1")
    before = lesson_text(app)
    app.select_slider(key=f"lessons.{slug}.picture").set_value(value).run()
    assert lesson_text(app) != before
    assert app.query_params["at"] in (f"{value:g}", [f"{value:g}"])


def test_after_a_guess_the_controls_have_the_values_of_the_answer(open_lessons: Callable[..., AppTest]) -> None:
    app = open_lessons(lesson="temperature")
    assert "At temperature 0.1," in lesson_text(app)
    app.radio(key="lessons.temperature.guess").set_value(0).run()
    query, facts = LESSONS["temperature"].facts()["spread_row"], LESSONS["temperature"].facts()
    text = lesson_text(app)
    assert f"Query {query}:" in text
    assert f"At temperature {facts['low']}, the hardest negative gets {facts['least_share']} of the gradient" in text


def test_the_line_of_the_answer_is_explained_after_the_guess(open_lessons: Callable[..., AppTest]) -> None:
    app = open_lessons(lesson="hardness-weights")
    assert "Lower temperature:" not in lesson_text(app)
    app.radio(key="lessons.hardness-weights.guess").set_value(0).run()
    equal = float(LESSONS["hardness-weights"].facts()["equal"])
    assert f"at the temperature that gives the negatives the same shares, here {equal:.3f}." in lesson_text(app)


def test_a_click_in_the_list_opens_that_lesson() -> None:
    app = open_page("lessons")
    app.pills(key="lessons.cards").set_value("matryoshka").run()
    assert any(header.value.endswith("Matryoshka") for header in app.header)
    assert app.query_params["lesson"] == "matryoshka"
    app.pills(key="lessons.cards").set_value("debiased").run()
    assert app.query_params["lesson"] == "debiased"


@pytest.mark.parametrize(
    ("slug", "chosen", "expected"),
    [
        ("temperature", {"at": "0.05"}, {"temperature": "0.05"}),
        ("mask-margin", {"at": "0.2"}, {"mask_margin": "0.2"}),
        ("normalization", {"normalization": "none"}, {"normalization": "none"}),
        ("margins", {"at": "0.5"}, {}),
    ],
)
def test_the_loss_lab_opens_with_the_values_of_the_lesson(
    monkeypatch: pytest.MonkeyPatch, slug: str, chosen: dict[str, str], expected: dict[str, str]
) -> None:
    monkeypatch.setattr(lessons_ui.st, "query_params", chosen)
    assert lessons_ui._chosen(LESSONS[slug]) == expected
    LabSettings.from_query({name: str(value) for name, value in (LESSONS[slug].link | expected).items()})


def test_underscores_are_escaped_outside_of_code() -> None:
    assert lessons_ui._escaped("`l2_columns` and a_b") == "`l2_columns` and a\\_b"
