"""Retrieval page: results of two models, metric cards, errors, figures, and user-supplied queries."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core import formatting
from bsc_core.config import RunConfig
from bsc_core.data.decisions import read_decisions
from bsc_core.data.queries import parse_queries
from bsc_core.encoders import registry
from bsc_core.errors import ModelError
from bsc_core.evaluation import compare
from bsc_core.evaluation.retrieval.failures import Cause
from bsc_core.figures.evaluation import ranks
from bsc_core.run_results import compare_runs
from bsc_core.runs import Run, RunStore
from pages.ui.batches import decide
from pages.ui.batches import source as batches_source
from pages.ui.components import data_cache, display, glossary, run_data
from pages.ui.retrieval import calibration, custom_queries, errors, metric_cards
from pages.ui.retrieval import search as search_ui
from pages.ui.runs import table
from tests.helpers.pages import open_page, page_text, prepare_page, table_with


@pytest.fixture
def search(finished: Run) -> search_ui.Search:
    before, after = run_data.models(finished)
    return search_ui.search_split(run_data.load_splits(finished), (before, after), "dev")


def test_without_a_run_one_or_two_encoders_are_searched(runs: RunStore, tiny_encoder: Path) -> None:
    errors_tab = {"retrieval.part": "Errors"}
    app = open_page("retrieval", encoder=str(tiny_encoder), **errors_tab)
    assert "The model does not rank a relevant document first for" in page_text(app)
    app = open_page("retrieval", encoder=str(tiny_encoder))
    assert app.button(key="retrieval.none").label == "Train a run on this dataset"
    assert not app.get("plotly_chart")
    documents = table_with(app, "Relevant")
    assert (documents["Document"].nunique(), documents["Cosine"].is_monotonic_decreasing) == (len(documents), True)
    metrics = run_data.EncoderModel("sample", str(tiny_encoder), "tiny").metrics()
    cards = {card.label: (card.value, card.delta) for card in app.metric}
    assert cards["MRR"] == (formatting.metric(metrics["mrr"]), "")

    app = open_page(
        "retrieval", encoder=str(tiny_encoder), second=str(shutil.copytree(tiny_encoder, runs.root / "copy"))
    )
    assert {card.delta for card in app.metric} == {"unchanged"}
    assert "No query changed its rank on the right." in page_text(app)


def test_a_selected_row_of_the_queries_with_another_rank_searches_for_its_query(
    finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other_ranks(search: search_ui.Search) -> list[np.ndarray]:
        count = len(search.task.query)
        return [np.full(count, 2), np.arange(1, count + 1)]

    monkeypatch.setattr(search_ui, "_ranks", other_ranks)
    app = open_page("retrieval", run=finished.id)
    [table] = [frame for frame in app.dataframe if "Query" in frame.value and "Rank, Before training" in frame.value]
    states = app._tree.get_widget_states()
    value = json.dumps({"selection": {"rows": [1], "columns": [], "cells": []}})
    states.widgets.add(id=table.proto.id, string_value=value)
    app._run(states)
    assert not app.exception
    assert app.text_input(key="retrieval.query").value == table.value["Query"][1]
    assert app.session_state["retrieval.part"] == search_ui.RESULTS


def test_the_query_of_an_earlier_visit_is_kept(finished: Run) -> None:
    app = open_page("retrieval", run=finished.id, **{"retrieval.query": "soup and bread"})
    del app.query_params["retrieval.query"]
    app.session_state["context_page"] = "Batches"
    app.run()
    assert app.text_input(key="retrieval.query").value == "soup and bread"


@pytest.mark.parametrize("page", ["retrieval", "embeddings"])
def test_a_page_that_waits_for_embeddings_is_drawn_again_when_they_exist(
    runs: RunStore, finished: Run, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[Callable[[], None]] = []

    def fragment(check: Callable[[], None], *, run_every: str | None = None) -> Callable[..., None]:
        if "rerun_with_embeddings" in check.__qualname__:
            assert run_every == run_data.CHECK_INTERVAL
            checks.append(check)
        return check

    monkeypatch.setattr(run_data.turns, "fragment", fragment)
    run = runs.create(finished.config(), "fresh")
    app = open_page(page, run="fresh")
    assert app.button(key=f"{page}.wait")
    for name in ("texts.json", "embeddings_before.npy"):
        shutil.copy(finished.folder / name, run.folder / name)
    monkeypatch.setattr(run_data.st, "rerun", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        checks[-1]()
    run_data.st.rerun.assert_called_once_with(scope="app")


def test_a_run_without_embeddings_links_to_the_run(runs: RunStore, trained: Run) -> None:
    runs.create(trained.config(), "fresh")
    app = open_page("retrieval", run="fresh")
    assert not app.exception
    assert app.button(key="retrieval.wait").label == "Open the run"
    assert "Search results appear here" in page_text(app)
    runs.get("fresh").update_status(state="stopped")
    for page in ("retrieval", "embeddings"):
        assert "This run ended before its texts were encoded" in page_text(open_page(page, run="fresh"))


def test_a_search_has_the_vectors_of_its_results_although_a_run_in_training_replaces_them(finished: Run) -> None:
    finished.update_status(state="running")
    (models,) = (run_data.models(finished),)
    assert [model.when for model in models] == ["before training", "best epoch so far"]
    search = search_ui.search_split(run_data.load_splits(finished), (models[0], models[1]), "dev")
    key, old = search.cache_key, np.array(search.vectors[1])
    finished.write_embeddings("after", -old)
    assert search.cache_key == key
    np.testing.assert_array_equal(search.vectors[1], old)
    results = search_ui.answer(search, search.text(search.task.query[0]), 0)
    assert results.first_ranks[1] == search.results[1].first_rank[0]
    again = search_ui.search_split(search.data, search.models, "dev")
    assert again.cache_key != key
    np.testing.assert_array_equal(again.vectors[1], -old)
    assert "those of its best epoch so far" in page_text(open_page("retrieval", run=finished.id))


@pytest.mark.parametrize("part", ["Errors", "Scores and labels"])
def test_the_metrics_of_a_run_in_training_are_not_shown(finished: Run, part: str) -> None:
    finished.change_status(lambda status: replace(status, state="running"))
    (finished.folder / "evaluation" / "after.json").unlink()
    app = open_tab(finished, part)
    assert not app.exception
    assert not app.metric
    assert "The metrics of a run appear here when it is done." in page_text(app)
    assert "Error" not in page_text(app)


def test_the_cards_agree_with_the_run(visit: Callable[..., AppTest], finished: Run) -> None:
    app = visit("retrieval", run=finished.id)
    assert not app.exception
    metrics = finished.read_json("evaluation/after")["dev"]
    cards = {card.label: card.value for card in app.metric}
    names = {name: label for name, label in metric_cards.RANKED.items() if name != "map"}  # equal to MRR in these data
    assert cards == {f"{label}, candidates": formatting.metric(metrics[name]) for name, label in names.items()}
    app = visit("retrieval", run=finished.id, **{"retrieval.part": "Errors"})
    assert "The model on the right does not rank a relevant document first for" in page_text(app)


def test_the_page_opens_with_a_win_and_a_loss_and_all_their_results(
    finished: Run, search: search_ui.Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = {"Largest win": 0, "Largest loss": 1}
    monkeypatch.setattr(search_ui, "example_queries", lambda search: examples)
    app = open_page("retrieval", run=finished.id)
    assert not app.exception
    for title, position in examples.items():
        change = " → ".join(str(one.first_rank[position]) for one in search.results)
        assert f"**{title}**: rank {change}" in page_text(app)
    query = search.text(search.task.query[1])
    app = open_tab(finished, "Results")
    app.button(key="retrieval.example.Largest loss").click().run()
    assert app.text_input(key="retrieval.query").value == query
    assert app.session_state["retrieval.part"] == "Results"
    [chart] = app.get("plotly_chart")
    names = [note["text"] for note in json.loads(chart.proto.spec)["layout"]["annotations"]]
    assert names == ["<b>Before training</b>", "<b>After training</b>"]

    changes = np.ones((2, len(search.task.query)))
    changes[:, :3] = [[2, 3, 1], [1, 1, 5]]
    monkeypatch.setattr(search_ui, "_ranks", lambda search: changes)
    app = open_page("retrieval", run=finished.id)
    assert not app.exception
    assert len(app.get("plotly_chart")) == 2
    assert "The first 4 documents." in page_text(app)
    assert "2 queries with a better rank, 1 with a worse one" in page_text(app)
    table = app.dataframe[-1].value
    assert table["Query"].tolist() == [search.text(search.task.query[position]) for position in (1, 0, 2)]
    assert table["Rank, After training"][0] == str(search.results[1].first_rank[1])


def test_a_document_of_the_results_is_marked_as_relevant_for_the_dataset(runs: RunStore, tiny_encoder: Path) -> None:
    data = data_cache.dataset_splits("sample")
    query = data.texts[int(data.dev.query[data.dev.positive][0])]
    app = open_page("retrieval", encoder=str(tiny_encoder), **{"retrieval.query": f" {query.upper()} "})
    documents = app.selectbox(key="retrieval.judged")
    document = next(one for one in table_with(app, "Relevant").query("Relevant == ''")["Document"] if "…" not in one)
    assert "retrieval.decide" not in app.session_state
    assert len(set(documents.options)) == len(documents.options)
    assert [option.partition(".")[0] for option in documents.options] == [
        str(number) for number in range(1, len(documents.options) + 1)
    ]
    documents.set_value(document).run()
    app.segmented_control(key="retrieval.decide").set_value("positive").run()
    assert not app.exception
    path = data_cache.false_negatives_file("sample")
    assert [(one.pair, one.decision) for one in read_decisions(path)] == [((query, document), "positive")]
    assert [toast.value for toast in app.toast] == ["Decision saved: positive. New runs of this dataset use it."]
    marked = table_with(app, "Relevant").query("Relevant == '★'")["Document"].tolist()
    assert document in marked, "the search of the dataset does not use the decision"
    app.segmented_control(key="retrieval.decide").set_value("true_negative").run()
    marked = table_with(app, "Relevant").query("Relevant == '✗'")["Document"].tolist()
    assert document in marked
    assert "✗: labeled as not relevant." in page_text(app)
    app.segmented_control(key="retrieval.decide").set_value(None).run()
    assert read_decisions(path) == []
    app.text_input(key="retrieval.query").set_value("a query that is not in the data").run()
    assert "retrieval.judged" not in {box.key for box in app.selectbox}


def test_a_decision_about_a_result_of_a_run_says_that_the_run_keeps_its_results(
    finished: Run, search: search_ui.Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "run_file", lambda run, key: tmp_path / "decisions.tsv")
    query = search.text(search.task.query[0])
    app = open_page("retrieval", run=finished.id, **{"retrieval.query": query})
    documents = app.selectbox(key="retrieval.judged")
    documents.set_value(documents.options[0]).run()
    assert "without this decision" not in page_text(app)
    app.segmented_control(key="retrieval.decide").set_value("positive").run()
    assert not app.exception
    assert "without this decision" in page_text(app)


def test_metrics_of_candidates_are_named_so_and_those_of_a_search_are_not(
    finished: Run, search: search_ui.Search, tiny_encoder: Path
) -> None:
    app = open_page("retrieval", run=finished.id)
    assert f"errors below rank all {len(search.task.corpus)} documents." in page_text(app)
    assert {card.label.partition(", ")[2] for card in app.metric} == {"candidates"}

    app = open_page("retrieval", encoder=str(tiny_encoder))  # sample data have a corpus
    assert "candidates" not in page_text(app) + "".join(card.label for card in app.metric)
    assert len(app.metric)


def test_a_query_of_the_data_needs_no_model(finished: Run, search: search_ui.Search) -> None:
    query = search.text(search.task.query[0])
    app = open_page("retrieval", run=finished.id)
    app.text_input(key="retrieval.query").set_value(query.upper()).run()
    assert not app.exception
    assert "★ relevant" in page_text(app)


def test_a_typed_query_is_encoded_with_both_models(finished: Run) -> None:
    app = open_page("retrieval", run=finished.id)
    app.text_input(key="retrieval.query").set_value("my dog eats soup").run()
    assert not app.exception
    assert "its relevant documents are unknown" in page_text(app)
    assert re.search(r"not among the \d+ dev queries of the dataset", page_text(app))
    assert "; the metrics are those of the dev queries only." in page_text(app)
    shares = r"on average: [0-9.]+% in the left list, [0-9.]+% in the right list"
    assert re.search(shares, page_text(app))


def test_the_vector_of_a_typed_text_is_the_one_the_run_stored(finished: Run) -> None:
    data = run_data.load_splits(finished)
    for model in run_data.models(finished):
        stored = np.asarray(model.vectors()[0])
        typed = run_data.encode_queries(model, [data.texts[0]])[0]
        cosine = float(stored @ typed / np.linalg.norm(stored) / np.linalg.norm(typed))
        assert cosine == pytest.approx(1.0, abs=1e-4)


def test_fewer_words_of_the_query_after_training_are_explained_by_the_negatives(
    search: search_ui.Search, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_ui, "_training_word_shares", lambda train: (0.1, 0.3))
    hits = [ranks.Hit(0, text, 0.5, False, 1) for text in ("bake bread", "eat soup")]
    results = search_ui.Results([hits[0]], [hits[1]], frozenset(), 0)
    note = search_ui.words_note(search, "bake rolls", results)
    assert "of the query's words a document contains, on average: 50% in the left list, 0% in the right list" in note
    assert "negatives contain more words of their query (30%) than positives (10%)" in note
    unchanged = search_ui.Results([hits[0]], [hits[0]], frozenset(), 0)
    assert "negatives" not in search_ui.words_note(search, "bake rolls", unchanged)
    assert search_ui.words_note(search, "…", results) == ""


@pytest.mark.parametrize("causes", [[Cause.LABELED], [Cause.ABSENT, Cause.NEAR_GOLD], list(Cause)])
def test_each_cause_of_an_error_says_what_to_do_and_where(
    finished: Run, causes: list[Cause], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = dict.fromkeys((*errors.WIDTHS, "Cosine relevant", "Cosine top"), "text")
    monkeypatch.setattr(errors, "error_rows", lambda search: [row | {"Cause": cause.value} for cause in causes])
    app = open_tab(finished, "Errors")
    strategy, text = finished.config().batching.strategy, page_text(app)
    assert all(f"{cause.value}: {errors.advice(cause, strategy)}" in text for cause in causes)
    shown = {button.key for button in app.button if str(button.key).startswith("retrieval.failures.open")}
    assert ("retrieval.failures.open.data" in shown) == (Cause.ABSENT in causes)
    assert ("retrieval.failures.open.batches" in shown) == (Cause.NEAR_GOLD in causes)
    assert ("retrieval.failures.open.train" in shown) == (Cause.LABELED in causes)


def test_the_advice_on_labeled_negatives_knows_the_strategy_of_the_run(finished: Run) -> None:
    before, after = run_data.models(finished)
    assert errors._strategy(before) is None
    assert errors._strategy(after) == finished.config().batching.strategy
    assert "Train a run with hard negatives" in errors.advice(Cause.LABELED, None)
    assert "used the strategy random; try nearest" in errors.advice(Cause.LABELED, "random")
    assert "try larger groups, or mined hard negatives" in errors.advice(Cause.LABELED, "nearest")


def test_errors_are_the_queries_whose_relevant_document_is_not_first(search: search_ui.Search) -> None:
    lines = errors.error_rows(search)
    ranks = search.results[1].first_rank
    assert len(lines) == int((ranks != 1).sum())
    assert [line["Rank right"] for line in lines] == [
        str(rank) for rank in sorted(ranks[ranks != 1].tolist(), reverse=True)
    ]
    for line in lines:
        assert float(line["Cosine relevant"]) <= float(line["Cosine top"]) + 1e-3


def test_each_result_has_its_rank_in_the_other_list(search: search_ui.Search) -> None:
    result = search_ui.answer(search, search.text(search.task.query[0]))
    right_ranks = {hit.document: rank for rank, hit in enumerate(result.right, 1)}
    for hit in result.left:
        assert hit.other_rank is not None
        if hit.document in right_ranks:
            assert hit.other_rank == right_ranks[hit.document]
        else:
            assert hit.other_rank > len(result.right)


def test_the_examples_are_the_largest_win_and_the_largest_loss(search: search_ui.Search) -> None:
    before = np.full(len(search.task.query), 2, dtype=np.int32)
    after = before.copy()
    after[0], after[1], after[2] = 1, 6, 0  # halved, tripled, and not in the corpus
    results = [replace(one, first_rank=ranks) for one, ranks in zip(search.results, (before, after), strict=True)]
    examples = search_ui.example_queries(replace(search, results=(results[0], results[1])))
    assert examples == {"Largest win": 0, "Largest loss": 2}
    assert search_ui.example_queries(replace(search, results=(results[0], results[0]))).popitem()[1] == 0
    worst = search_ui.example_queries(replace(search, models=search.models[:1] * 2, results=(results[1], results[1])))
    assert list(worst.values()) == [2]


def test_a_run_on_the_same_texts_can_be_selected(finished: Run, runs: RunStore) -> None:
    shutil.copytree(finished.folder, runs.root / "other-run")
    app = open_page("retrieval", run=finished.id)
    right = app.selectbox(key=f"retrieval.right.{finished.id}")
    assert right.options == ["Before training", "After training", "After training · other-run"]
    right.set_value("other-run:after").run()
    assert not app.exception


def test_texts_that_look_like_markup_stay_text(finished: Run) -> None:
    app = open_page("retrieval", run=finished.id)
    app.text_input(key="retrieval.query").set_value("<b>bread</b> **bake**").run()
    assert not app.exception
    [chart] = app.get("plotly_chart")
    assert "<b>bread" not in json.loads(json.dumps(chart.proto.spec))
    assert not any("<b>bread" in element.value for kind in ("markdown", "caption") for element in app.get(kind))


def test_the_same_model_on_both_sides_is_shown_once(finished: Run) -> None:
    app = open_page("retrieval", run=finished.id)
    app.selectbox(key=f"retrieval.right.{finished.id}").set_value(f"{finished.id}:before").run()
    assert {card.delta for card in app.metric} == {""}
    assert "Rank" in table_with(app, "Document")
    assert formatting.metric(None) not in {card.value for card in app.metric}


def test_cards_have_intervals_and_significance(finished: Run) -> None:
    before, after = run_data.models(finished)
    cards = metric_cards.model_cards((before, after), "dev", metric_cards.RANKED)
    assert [card.metric for card in cards] == list(metric_cards.RANKED)
    for card in cards:
        expected = compare_runs([finished], [finished], card.metric, first_when="before")
        assert card.comparison == expected
        assert card.right.low <= card.right.value <= card.right.high
        assert metric_cards.verdict(card.comparison).startswith(("Better", "Worse", "Inconclusive", "No query"))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([0.1] * 30, [0.9] * 30, "Better on the right"),
        ([0.9] * 30, [0.1] * 30, "Worse on the right"),
        ([0.1, 0.9], [0.9, 0.1], "Inconclusive"),
        ([0.5] * 3, [0.5] * 3, "No query differs"),
        ([0.5], [0.7], "Not tested: one query"),
    ],
)
def test_the_verdict_follows_the_comparison(left: list[float], right: list[float], expected: str) -> None:
    assert metric_cards.verdict(compare(left, right, seed=0)).startswith(expected)


def test_runs_evaluated_on_other_rows_are_not_compared() -> None:
    assert metric_cards.verdict(None) == "Not compared: evaluated on other rows"


def test_every_metric_of_a_run_has_help(finished: Run) -> None:
    metrics = finished.read_json("evaluation/after")["dev"]
    counts = {*table.NOT_METRICS, "positives", "pairs", "f1_threshold", "accuracy_threshold"}
    without = [name for name in metrics if name not in counts and not glossary.metric_help(name)]
    assert without == []
    names = [*metric_cards.RANKED, *metric_cards.SCORED, "ndcg@10", "ndcg_exponential@5", "recall@3", "precision@1"]
    assert all(glossary.metric_help(name) for name in names)
    assert glossary.metric_help("precision") != glossary.metric_help("precision@1")
    assert glossary.metric_help("pairs") == ""


def test_no_setting_has_the_name_of_a_metric_term() -> None:
    sections = RunConfig.model_json_schema()["$defs"].values()
    assert not {name for section in sections for name in section.get("properties", {})} & set(glossary.METRIC_TERMS)


def open_tab(run: Run, part: str) -> AppTest:
    """Open the page with one of its tabs."""
    app = prepare_page("retrieval", run=run.id)
    app.session_state["retrieval.part"] = part
    return app.run()


def test_pasted_queries_are_answered_by_both_models(finished: Run, search: search_ui.Search) -> None:
    known = int(search.task.query[0])
    gold = search.text(search.task.corpus[search.task.relevant(0)[0]])
    app = open_tab(finished, "Your queries")
    app.text_area(key="retrieval.own.lines").set_value(f"{search.text(known)}\t{gold}\nsoup of the day\n").run()
    assert not app.exception
    assert "2 queries; 1 query has a relevant document." in page_text(app)
    [lines] = [frame.value for frame in app.dataframe if "Shared" in frame.value]
    for side, result in zip(("left", "right"), search.results, strict=True):
        assert lines[f"Rank {side}"].tolist() == [str(result.first_rank[0]), ""]
        assert lines[f"Top document, {side}"][0] == search.text(result.top_ids[0, 0])


def test_queries_without_relevant_documents_have_no_metrics(search: search_ui.Search) -> None:
    result = custom_queries.answer_queries(search, parse_queries("soup\nbread"))
    assert result.cards == []
    assert result.first.shape == (2, 2)
    assert ((result.shared >= 0) & (result.shared <= 1)).all()


@pytest.mark.parametrize("bad", ["\ta right document alone", "\n".join(f"query {number}" for number in range(2001))])
def test_invalid_lines_are_reported(finished: Run, bad: str) -> None:
    app = open_tab(finished, "Your queries")
    app.text_area(key="retrieval.own.lines").set_value(bad).run()
    assert not app.exception
    assert "pasted lines: " in "".join(element.value for element in app.text)


@pytest.mark.parametrize("part", ["Scores and labels", "HasPositive@k by k", "Similarity of ten sentences"])
def test_every_tab_has_its_figure(finished: Run, part: str) -> None:
    app = open_tab(finished, part)
    assert not app.exception
    assert len(app.get("vega_lite_chart")) == (2 if part == "Similarity of ten sentences" else 1)


def test_the_calibration_includes_every_pair_of_both_models(search: search_ui.Search) -> None:
    for side in (0, 1):
        bins = calibration._bins(search, side)
        assert sum(one.pairs for one in bins) == len(search.dataset)
        positives = sum(one.pairs * one.share for one in bins)
        assert positives == pytest.approx(search.dataset.positive.sum())


def test_another_untrained_encoder_of_the_same_texts_is_offered(finished: Run, runs: RunStore) -> None:
    shutil.copytree(finished.folder, runs.root / "other-run")
    path = runs.root / "other-run" / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["encoder"]["max_seq_length"] = 8
    path.write_text(json.dumps(config), encoding="utf-8")
    assert [model.key for model in search_ui.available_models(finished)][2:] == ["other-run:before", "other-run:after"]


def test_a_run_without_stored_results_has_the_same_cards(finished: Run) -> None:
    models = run_data.models(finished)
    known = metric_cards.model_cards((models[0], models[1]), "dev", metric_cards.RANKED)
    for path in (finished.folder / "evaluation").glob("*"):
        if path.stem not in ("before", "after"):
            path.unlink()
    metric_cards._model_cards.clear()
    again = metric_cards.model_cards((models[0], models[1]), "dev", metric_cards.RANKED)
    assert [(card.metric, str(card.left), str(card.right)) for card in again] == [
        (card.metric, str(card.left), str(card.right)) for card in known
    ]
    assert [card.comparison for card in again] == [card.comparison for card in known]


def test_a_link_restores_query_model_and_tab(finished: Run) -> None:
    requested = {"retrieval.query": "my dog eats soup", f"retrieval.left.{finished.id}": "After training"}
    app = open_page("retrieval", run=finished.id, **requested, **{"retrieval.part": "HasPositive@k by k"})
    assert not app.exception
    assert app.text_input(key="retrieval.query").value == "my dog eats soup"
    assert app.selectbox(key=f"retrieval.left.{finished.id}").value == f"{finished.id}:after"
    assert app.session_state["retrieval.part"] == "HasPositive@k by k"


def test_results_of_the_same_data_have_the_models_of_each_user(
    runs: RunStore, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, vectors = data_cache.dataset_splits("sample"), data_cache.vectors("sample", str(tiny_encoder))
    monkeypatch.setattr(run_data.EncoderModel, "stamp", "vectors of the sample")
    monkeypatch.setattr(run_data.EncoderModel, "vectors", lambda self: vectors)
    for key in ("of-another-user", "sample"):
        model = run_data.EncoderModel(key, str(tiny_encoder), "tiny")
        assert search_ui.search_split(data, (model, model), "dev").models == (model, model)


def test_a_model_of_the_hub_is_downloaded_after_a_confirmation(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = []

    def fetch(name: str) -> Path:
        requested.append(name)
        raise ModelError(f"{name}: no such model")

    monkeypatch.setattr(registry, "fetch", fetch)
    monkeypatch.setattr(batches_source, "MAX_TEXTS_INLINE", 0)
    app = open_page("batches", encoder="owner/model")
    assert not app.exception
    assert "The encoder owner/model is not on this machine" in app.warning[0].value
    app = open_page("retrieval", encoder="owner/model")
    assert not app.exception
    assert requested == []
    assert "The encoder owner/model is not on this machine" in app.warning[0].value
    app.button(key="download.owner/model").click().run()
    assert requested == ["owner/model"]
    assert "no such model" in page_text(app)


def test_a_cell_shows_whole_lines_of_a_long_text_and_all_of_a_short_one() -> None:
    assert display.fitted("a short text", 196) == "a short text"
    cut = display.fitted("every word has some letters " * 50, 196)
    assert cut.endswith("…")
    assert len(textwrap.wrap(cut, (196 - display.CELL_PADDING) // display.CHARACTER)) == display.TEXT_LINES
    rows = display.fitted_rows([{"Query": "word " * 100, "Rank": 3, "Note": "word " * 100}], {"Query": 196})
    assert rows[0]["Query"].endswith("…")
    assert (rows[0]["Rank"], rows[0]["Note"]) == (3, "word " * 100)
