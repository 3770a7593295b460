"""Lessons: ten of them, each with its claim, its control, its question and its answer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.lab.lessons import LESSONS
from bsc_core.runs import RunStore


@pytest.fixture
def lessons(runs: RunStore, pages: type) -> Callable[..., AppTest]:
    return lambda **query: pages.alone("lessons", **query)


def told(app: AppTest) -> str:
    kinds = ("caption", "markdown", "text", "subheader")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind)).replace("\\", "")


@pytest.mark.parametrize("slug", LESSONS)
def test_a_lesson_opens_by_its_link_and_reveals_its_answer(lessons: Callable[..., AppTest], slug: str) -> None:
    app = lessons(lesson=slug)
    said = LESSONS[slug].said()
    assert not app.exception
    assert said["claim"] in told(app)
    assert said["question"] in told(app)
    assert said["answer"] not in told(app)
    app.toggle(key=f"lessons.{slug}.answer").set_value(True).run()
    assert not app.exception
    assert said["answer"] in told(app)
    assert app.query_params["done"] in (slug, [slug])


def test_next_and_previous_go_through_the_ten(lessons: Callable[..., AppTest]) -> None:
    app = lessons()
    slugs = list(LESSONS)
    for slug, following in pairwise(slugs):
        app.button(key=f"lessons.{slug}.Next lesson").click().run()
        assert not app.exception
        assert app.query_params["lesson"] in (following, [following])
    assert app.button(key=f"lessons.{slugs[-1]}.Next lesson").disabled
    app.button(key=f"lessons.{slugs[-1]}.Previous").click().run()
    assert LESSONS[slugs[-2]].title in told(app)


def test_progress_is_in_the_link(lessons: Callable[..., AppTest]) -> None:
    app = lessons(lesson="margins", done="temperature,duplicates,nonsense", at="1")
    assert "2 of 10 done" in app.get("button_group")[0].proto.label
    assert "At a margin of 1:" in told(app)


def test_a_lesson_that_is_not_there_is_said(lessons: Callable[..., AppTest]) -> None:
    app = lessons(lesson="nope")
    assert not app.exception
    assert "lesson is 'nope'" in told(app)
    assert next(iter(LESSONS.values())).said()["claim"] in told(app)


@pytest.mark.parametrize(("slug", "key"), [("combined-loss", "picture"), ("supervised-contrastive", "picture")])
def test_a_control_changes_what_is_shown(lessons: Callable[..., AppTest], slug: str, key: str) -> None:
    app = lessons(lesson=slug)
    before = told(app)
    app.select_slider(key=f"lessons.{slug}.{key}").set_value(0.5).run()
    assert not app.exception
    assert told(app) != before
    assert app.query_params["at"] in ("0.5", ["0.5"])
