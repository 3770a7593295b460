"""Loss lab: every source of a batch, the link, and the way to a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.runs import RunStore


@pytest.fixture
def lab(runs: RunStore, pages: type) -> Callable[..., AppTest]:
    return lambda **query: pages.alone("learn", **query)


def told(app: AppTest) -> str:
    return "\n".join(str(element.value) for kind in ("caption", "markdown", "text") for element in app.get(kind))


def test_the_lab_opens_on_a_shipped_batch(lab: Callable[..., AppTest]) -> None:
    app = lab()
    assert not app.exception
    assert "would choose a right document" in told(app)


@pytest.mark.parametrize("source", ["preset", "circle", "dataset", "typed"])
def test_every_source_gives_a_batch(lab: Callable[..., AppTest], source: str, tiny_encoder: Path) -> None:
    app = lab(source=source, encoder=str(tiny_encoder))
    assert not app.exception
    assert "would choose a right document" in told(app)


def test_the_numbers_are_those_of_the_core(lab: Callable[..., AppTest]) -> None:
    from bsc_core.lab.lessons.lesson import seen
    from bsc_core.lab.presets import preset_batch

    found = seen(preset_batch("near_misses"), temperature=0.3)
    app = lab(preset="near_misses", temperature="0.3")
    assert f"weigh like {found.effective_negatives:.1f} equal negatives" in told(app)
    assert "At temperature 0.3" in told(app)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"temperature": "0"}, "temperature is 0"),
        ({"preset": "nope"}, "preset is 'nope'"),
        ({"source": "circle", "pairs": "99"}, "pairs is '99'"),
        ({"pin": "x"}, "pin is 'x'"),
        ({"compare": "1", "b_temperature": "nan"}, "b_temperature"),
    ],
)
def test_what_a_link_gets_wrong_is_said_and_the_lab_opens(lab, query: dict[str, str], words: str) -> None:
    app = lab(**query)
    assert not app.exception
    assert words in told(app)
    assert "would choose a right document" in told(app)


def test_the_state_stands_in_the_url(lab: Callable[..., AppTest]) -> None:
    app = lab(source="circle", pairs="5", temperature="0.5")
    app.number_input(key="learn.1.seed").set_value(7).run()
    assert app.query_params["seed"] in ("7", ["7"])
    assert app.query_params["pairs"] in ("5", ["5"])
    assert app.query_params["temperature"] in ("0.5", ["0.5"])


def test_watching_trains_and_stands_in_the_url(lab: Callable[..., AppTest]) -> None:
    app = lab(source="circle")
    app.button(key="learn.1.watch").click().run()
    assert not app.exception
    assert app.query_params["watch"] in ("bsc", ["bsc"])


def test_a_batch_without_positives_is_said_to_have_none(lab: Callable[..., AppTest]) -> None:
    assert "nothing to learn from it" in told(lab(threshold="1"))


def test_the_settings_go_into_a_run(runs: RunStore, pages: type) -> None:
    app = pages.in_app("learn", temperature="0.25", normalization="l2_columns")
    app.button(key="learn.run").click().run()
    app.switch_page("pages/train.py").run()
    assert not app.exception
    chosen = app.session_state["plan"]["loss"]
    assert (chosen["name"], chosen["temperature"], chosen["normalization"]) == ("bsc", 0.25, "l2_columns")
