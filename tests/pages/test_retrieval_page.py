"""Retrieval: two models' answers beside each other, gold marked; cards, failures and pictures that agree with the
evaluation, and queries of one's own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.comparison import compare_runs
from bsc_core.config import RunConfig
from bsc_core.data.asked import pasted_queries
from bsc_core.evaluation import compare
from bsc_core.figures import theme
from bsc_core.runs import Run, RunStore
from pages.ui import failing, metric_cards, own_queries, run_data, run_list, score_pictures, searching, words
from pages.ui.metric_terms import METRIC_TERMS


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
    assert cards == {
        label: theme.metric(measured[name]) for name, label in metric_cards.RANKED.items() if name in measured
    }
    [chart] = app.get("plotly_chart")
    names = [note["text"] for note in json.loads(chart.proto.spec)["layout"]["annotations"]]
    assert names == ["<b>Before training</b>", "<b>After training</b>"]
    assert "gold is not first on the right for" in shown(app)


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
    found = searching.answers(search, search.text(search.task.query[0]))
    places = {hit.document: rank for rank, hit in enumerate(found.right, 1)}
    for hit in found.left:
        assert hit.other_rank is not None
        if hit.document in places:
            assert hit.other_rank == places[hit.document]
        else:
            assert hit.other_rank > len(found.right)


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


def test_cards_say_intervals_and_whether_the_difference_is_one(finished: Run) -> None:
    before, after = run_data.models(finished)
    cards = metric_cards.of_models((before, after), "dev", metric_cards.RANKED)
    assert [card.metric for card in cards] == list(metric_cards.RANKED)
    for card in cards:
        expected = compare_runs([finished], [finished], card.metric, first_when="before")
        assert card.comparison == expected
        assert card.right.low <= card.right.value <= card.right.high
        assert metric_cards.span(card.right) in (str(card.right), f"{card.right.value:.3f}")
        assert metric_cards.verdict(card.comparison).startswith(("Better", "Worse", "Cannot be told", "No query"))


@pytest.mark.parametrize(
    ("left", "right", "told"),
    [
        ([0.1] * 30, [0.9] * 30, "Better on the right"),
        ([0.9] * 30, [0.1] * 30, "Worse on the right"),
        ([0.1, 0.9], [0.9, 0.1], "Cannot be told from chance"),
        ([0.5] * 3, [0.5] * 3, "No query differs"),
        ([0.5], [0.7], "One query"),
    ],
)
def test_verdicts_are_words(left: list[float], right: list[float], told: str) -> None:
    assert metric_cards.verdict(compare(left, right, seed=0)).startswith(told)


def test_runs_measured_on_other_rows_are_not_compared() -> None:
    assert metric_cards.verdict(None) == "Not compared: measured on other rows"


def test_every_metric_of_a_run_has_a_card_of_words(finished: Run) -> None:
    measured = finished.read_json("evaluation/after")["dev"]
    counts = {*run_list.COUNTS, "positives", "pairs", "f1_threshold", "accuracy_threshold"}
    without = [name for name in measured if name not in counts and not words.metric_help(name)]
    assert without == []
    names = [*metric_cards.RANKED, *metric_cards.SCORED, "ndcg@10", "ndcg_exponential@5", "recall@3", "precision@1"]
    assert all(words.metric_help(name) for name in names)
    assert words.metric_help("precision") != words.metric_help("precision@1")
    assert words.metric_help("pairs") == ""


def test_no_word_of_a_metric_is_shown_for_a_setting_of_that_name() -> None:
    sections = RunConfig.model_json_schema()["$defs"].values()
    assert not {name for section in sections for name in section.get("properties", {})} & set(METRIC_TERMS)


def opened(pages: type, run: Run, part: str) -> AppTest:
    """The page with one of its parts open."""
    app = pages.closed("retrieval", run=run.id)
    app.session_state["retrieval.part"] = part
    return app.run()


def test_pasted_queries_are_asked_of_both_models(pages: type, finished: Run, search: searching.Search) -> None:
    known = int(search.task.query[0])
    gold = search.text(search.task.corpus[search.task.relevant(0)[0]])
    app = opened(pages, finished, "Your own queries")
    app.text_area(key="retrieval.own.lines").set_value(f"{search.text(known)}\t{gold}\nsoup of the day\n").run()
    assert not app.exception
    assert "2 queries, 1 query has a right document." in shown(app)
    [lines] = [frame.value for frame in app.dataframe if "Shared" in frame.value]
    for side, result in zip(("left", "right"), search.results, strict=True):
        assert lines[f"Rank {side}"].tolist() == [str(result.first_rank[0]), ""]
        assert lines[f"First on the {side}"][0] == search.text(result.top_ids[0, 0])


def test_own_queries_without_gold_have_no_metrics(search: searching.Search) -> None:
    found = own_queries.answered(search, pasted_queries("soup\nbread"))
    assert found.cards == []
    assert found.first.shape == (2, 2)
    assert ((found.shared >= 0) & (found.shared <= 1)).all()


@pytest.mark.parametrize("bad", ["\ta right document alone", "\n".join(f"query {number}" for number in range(2001))])
def test_bad_lines_are_a_calm_box(pages: type, finished: Run, bad: str) -> None:
    app = opened(pages, finished, "Your own queries")
    app.text_area(key="retrieval.own.lines").set_value(bad).run()
    assert not app.exception
    assert "pasted lines: " in "".join(element.value for element in app.text)


@pytest.mark.parametrize("part", ["Scores and labels", "Gold by cut-off", "Ten sentences"])
def test_every_part_is_drawn_with_its_picture(pages: type, finished: Run, part: str) -> None:
    app = opened(pages, finished, part)
    assert not app.exception
    assert len(app.get("vega_lite_chart")) == (2 if part == "Ten sentences" else 1)


def test_the_calibration_holds_every_pair_of_both_models(search: searching.Search) -> None:
    for model in search.models:
        bins = score_pictures._bins(model.key, search.dataset.digest, model, search, "dev")
        assert sum(one.pairs for one in bins) == len(search.dataset)
        positives = sum(one.pairs * one.share for one in bins)
        assert positives == pytest.approx(search.dataset.positive.sum())


def test_another_untrained_encoder_of_the_same_texts_is_offered(finished: Run, runs: RunStore) -> None:
    shutil.copytree(finished.folder, runs.root / "other-run")
    path = runs.root / "other-run" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["encoder"]["max_length"] = 8
    path.write_text(json.dumps(config), encoding="utf-8")
    assert [model.key for model in searching.models_of(finished)][2:] == ["other-run:before", "other-run:after"]


def test_a_run_that_keeps_no_values_of_its_queries_has_the_same_cards(finished: Run) -> None:
    models = run_data.models(finished)
    known = metric_cards.of_models((models[0], models[1]), "dev", metric_cards.RANKED)
    for path in (finished.folder / "evaluation").glob("*"):
        if path.stem not in ("before", "after"):
            path.unlink()
    metric_cards._of_models.clear()
    again = metric_cards.of_models((models[0], models[1]), "dev", metric_cards.RANKED)
    assert [(card.metric, str(card.left), str(card.right)) for card in again] == [
        (card.metric, str(card.left), str(card.right)) for card in known
    ]
    assert [card.comparison for card in again] == [card.comparison for card in known]


def test_an_address_restores_the_search_the_models_and_the_part(pages: type, finished: Run) -> None:
    asked = {"retrieval.query": "my dog eats soup", f"retrieval.left.{finished.id}": "After training"}
    app = pages.alone("retrieval", run=finished.id, **asked, **{"retrieval.part": "Gold by cut-off"})
    assert not app.exception
    assert app.text_input(key="retrieval.query").value == "my dog eats soup"
    assert app.selectbox(key=f"retrieval.left.{finished.id}").value == f"{finished.id}:after"
    assert app.session_state["retrieval.part"] == "Gold by cut-off"
