"""Controls that store their value in the URL."""

from __future__ import annotations

from pathlib import Path

from streamlit.testing.v1 import AppTest

from bsc_core.runs import Run, RunStore
from pages.ui.retrieval.custom_queries import MAX_IN_URL
from pages.ui.retrieval.search import LINES
from tests.helpers.pages import open_page, page_text
from tests.pages.mapped_runs import map_data


def script() -> None:
    import streamlit as st

    from pages.ui.components import url

    url.setup(("batches.seed",), arrived="opened" not in st.session_state)
    st.session_state["opened"] = True
    st.number_input("Seed", 0, 9, 3, **url.bound("batches.seed", limits=(0, 9)))


def test_the_first_change_after_an_invalid_number_of_a_link_is_in_the_url() -> None:
    app = AppTest.from_function(script)
    app.query_params["batches.seed"] = "1e400"
    app.run()
    assert "batches.seed is '1e400'; it must be a number from 0 to 9." in page_text(app)
    assert "batches.seed" not in app.query_params
    app.number_input(key="batches.seed").set_value(8).run()
    assert app.number_input(key="batches.seed").value == 8
    assert app.query_params["batches.seed"] == "8"


def test_the_range_of_many_numbers_is_named() -> None:
    app = open_page("lessons", lesson="temperature", at="0.3")
    assert "at is '0.3'; it must be one of " in page_text(app)
    assert " numbers from 0.01 to " in page_text(app)


def test_a_link_restores_the_settings_of_the_form_that_generates_rows(runs: RunStore) -> None:
    settings = {"generate.cap": "3", "generate.kind": "pairs", "generate.neighbors": "many", "generate.color": "red"}
    app = open_page("data", **{"data.try": "true"}, **settings)
    key = "data.make.sample-sentences.data.examples"
    assert app.number_input(key=f"{key}.cap").value == 3
    assert app.selectbox(key=f"{key}.kind").value == "pairs"
    assert "neighbors is 'many'" in page_text(app)
    assert "color is not a setting of this form" in page_text(app)
    app.number_input(key=f"{key}.cap").set_value(5).run()
    written = {name: value for name, value in app.query_params.items() if name.startswith("generate.")}
    assert written == {"generate.cap": "5", "generate.kind": "pairs"}


def test_a_link_restores_the_number_of_sampled_runs_and_the_open_sections(runs: RunStore) -> None:
    lists = {"sweep.loss.temperature": "[0.02, 0.05, 0.1]", "sweep.training.seed": "[1, 2, 3]"}
    app = open_page("train", sweep_runs="4", **{"train.more.training": "true"}, **lists)
    assert app.session_state["train.sweep.sampled"] == 4
    assert "4 sampled at random" in page_text(app)
    assert app.toggle(key="train.more.training").value is True
    assert app.query_params["sweep_runs"] == "4"
    app.number_input(key="train.sweep.sampled").set_value(5).run()
    assert app.query_params["sweep_runs"] == "5"
    app = open_page("train", sweep_runs="0", **lists)
    assert "sweep_runs is '0'; it must be a number from 1 to 10000." in page_text(app)
    assert app.session_state["train.sweep.sampled"] is None


def test_pasted_queries_and_the_tab_of_a_batch_are_in_the_url(finished: Run, tiny_encoder: Path) -> None:
    app = open_page("retrieval", run=finished.id, **{"retrieval.part": "Your queries", LINES: "soup\nbread"})
    assert app.text_area(key=LINES).value == "soup\nbread"
    app.text_area(key=LINES).set_value("salt").run()
    assert app.query_params[LINES] == "salt"
    app.text_area(key=LINES).set_value("long " * MAX_IN_URL).run()
    assert LINES not in app.query_params
    assert "too long for the link" in page_text(app)
    app = open_page("batches", run=finished.id, **{"batches.tab": "Decisions"})
    assert app.session_state["batches.tab"] == "Decisions"


def test_a_link_selects_the_text_whose_neighbors_are_listed(mapped: Run) -> None:
    digest = map_data(mapped).dataset.texts.digest[:6]
    app = open_page("embeddings", run=mapped.id, **{"embeddings.text": f"{digest}-999999"})
    assert "The text that was selected is not in the table." in page_text(app)
