"""Retrieval: two models' answers beside each other, gold marked; cards and failures that agree with the evaluation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.figures import theme
from bsc_core.runs import Run, RunStore
from pages.ui import failing, run_data, searching


def shown(app: AppTest) -> str:
    return "\n".join(
        str(element.value) for kind in ("markdown", "text", "caption", "subheader") for element in app.get(kind)
    )


@pytest.fixture
def search(finished: Run) -> searching.Search:
    before, after = run_data.models(finished)
    return searching.searched(run_data.rows_of(finished), (before, after), "dev")


def test_without_a_run_the_page_says_what_would_be_here(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("retrieval")
    assert not app.exception
    assert app.button(key="retrieval.none").label == "Train on this dataset"


def test_a_run_that_measured_nothing_yet_sends_to_watch_it(pages: type, runs: RunStore, trained: Run) -> None:
    runs.create(trained.config(), "fresh")
    app = pages.alone("retrieval", run="fresh")
    assert not app.exception
    assert app.button(key="retrieval.wait").label == "Watch the run"


def test_both_models_answer_and_the_cards_agree_with_the_run(visit: Callable[..., AppTest], finished: Run) -> None:
    app = visit("retrieval", run=finished.id)
    assert not app.exception
    measured = finished.read_json("evaluation/after")["dev"]
    cards = {card.label: card.value for card in app.metric}
    task_mrr = cards["MRR"]
    assert task_mrr.replace(".", "").isdigit()
    assert "mrr" in measured
    [chart] = app.get("plotly_chart")
    names = [note["text"] for note in json.loads(chart.proto.spec)["layout"]["annotations"]]
    assert names == ["<b>Before training</b>", "<b>After training</b>"]
    assert "Where the right model fails" in shown(app)


def test_a_query_of_the_data_needs_no_model(pages: type, finished: Run, search: searching.Search) -> None:
    query = search.text(search.task.query[0])
    app = pages.alone("retrieval", run=finished.id)
    app.text_input(key="retrieval.query").set_value(query.upper()).run()
    assert not app.exception
    assert "★ gold" in shown(app)


def test_a_typed_query_is_encoded_with_both_models(pages: type, finished: Run) -> None:
    app = pages.alone("retrieval", run=finished.id)
    app.text_input(key="retrieval.query").set_value("my dog eats soup").run()
    assert not app.exception
    assert "no gold is known" in shown(app)


def test_the_vector_of_a_typed_text_is_the_one_the_run_stored(finished: Run) -> None:
    data = run_data.rows_of(finished)
    for model in run_data.models(finished):
        stored = np.asarray(model.vectors()[0])
        typed = run_data.encode_text(model, data.texts[0])
        cosine = float(stored @ typed / np.linalg.norm(stored) / np.linalg.norm(typed))
        assert cosine == pytest.approx(1.0, abs=1e-4)


def test_failures_are_the_queries_whose_gold_is_not_first(search: searching.Search) -> None:
    lines = failing.failures(search)
    ranks = search.results[1].first_rank
    assert len(lines) == int((ranks != 1).sum())
    assert [line["Rank right"] for line in lines] == [
        str(rank) for rank in sorted(ranks[ranks != 1].tolist(), reverse=True)
    ]
    for line in lines:
        assert float(line["Cosine of gold"]) <= float(line["Cosine of first"]) + 1e-3


def test_the_lists_know_each_others_ranks(search: searching.Search) -> None:
    vectors = [np.asarray(model.vectors()[search.task.query[0]]) for model in search.models]
    left, right = searching._hits(search, vectors, set())
    places = {hit.document: rank for rank, hit in enumerate(right, 1)}
    for hit in left:
        assert hit.other_rank is not None
        if hit.document in places:
            assert hit.other_rank == places[hit.document]
        else:
            assert hit.other_rank > len(right)


def test_the_example_is_the_query_whose_gold_moved_most(search: searching.Search) -> None:
    first, last = (result.first_rank.astype(float) for result in search.results)
    moves = np.abs(np.log(first) - np.log(last))
    place = [search.text(query) for query in search.task.query].index(searching.typical(search))
    assert moves[place] == pytest.approx(moves.max())


def test_a_run_on_the_same_texts_can_stand_beside(pages: type, finished: Run, runs: RunStore) -> None:
    shutil.copytree(finished.folder, runs.root / "other-run")
    app = pages.alone("retrieval", run=finished.id)
    right = app.selectbox(key=f"retrieval.right.{finished.id}")
    assert right.options == ["Before training", "After training", "After training · other-run"]
    right.set_value("other-run:after").run()
    assert not app.exception


def test_texts_that_look_like_markup_stay_text(pages: type, finished: Run) -> None:
    app = pages.alone("retrieval", run=finished.id)
    app.text_input(key="retrieval.query").set_value("<b>bread</b> **bake**").run()
    assert not app.exception
    [chart] = app.get("plotly_chart")
    assert "<b>bread" not in json.loads(json.dumps(chart.proto.spec))
    assert not any("<b>bread" in element.value for kind in ("markdown", "caption") for element in app.get(kind))


def test_an_unchanged_metric_shows_no_arrow(pages: type, finished: Run) -> None:
    app = pages.alone("retrieval", run=finished.id)
    app.selectbox(key=f"retrieval.right.{finished.id}").set_value(f"{finished.id}:before").run()
    assert {card.delta for card in app.metric} == {"unchanged"}
    assert theme.metric(None) not in {card.value for card in app.metric}
