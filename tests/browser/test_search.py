"""Retrieval page: exact results of two models, errors, and user-supplied queries."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from answers import nearest_documents, result_lists, submit_query
from playwright.sync_api import expect

from bsc_core.data import load_data
from bsc_core.evaluation import rank, retrieval_task
from tests.helpers.waiting import wait_until

ERRORS = "Queries whose relevant document is not first, with the top document and a probable cause"
YOUR_QUERIES = "Your queries with the top documents of both models"


def test_journey_of_a_search_without_and_with_a_run_with_back_and_reload(visit, sample_run, tmp_path):
    run = sample_run
    data = load_data(run.config().data, seed=0)
    task = retrieval_task(data.dev, data.corpus)
    vectors = {part: np.asarray(run.array(f"embeddings_{part}")) for part in ("before", "after")}
    search_without_a_run(visit)
    visit.open("retrieval", run=run.id)
    expect(visit.page.get_by_text(re.compile("^★ Relevant: ")).first).to_be_visible()
    visit.page.get_by_role("tab", name="Errors", exact=True).click()
    causes = visit.page.get_by_role("toolbar", name="Cause")
    expect(causes).to_be_visible()
    box = causes.bounding_box()
    assert box["y"] + box["height"] < 830  # on the first screen, above the main action
    search_a_query_of_the_data(visit, data, task, vectors)
    leave_and_come_back(visit, data.texts[int(task.query[3])].upper())
    check_the_cards(visit, run)
    search_the_same_model_twice(visit)
    select_an_error(visit, data, task, vectors["after"])
    upload_queries(visit, data, task, tmp_path)
    check_the_ten_sentences(visit)


def search_without_a_run(visit):
    visit.open("retrieval", encoder="static")
    submit_query(visit, "my sourdough loaf is flat")
    expect(visit.page.get_by_text("of the dataset, so its relevant documents are unknown.")).to_be_visible()
    visit.wait()
    assert len(visit.rows("Documents of Static (fast)")) > 5


def search_a_query_of_the_data(visit, data, task, vectors):
    query = int(task.query[3])
    submit_query(visit, data.texts[query].upper())
    expect(visit.page.get_by_text(re.compile("^(Largest (win|loss)|Example)"))).to_have_count(0)
    visit.wait()
    expect(visit.page.get_by_text(re.compile("^★ relevant document: "))).to_be_visible()
    nearest = [nearest_documents(vectors[part], query, task.corpus) for part in ("before", "after")]
    wait_until(lambda: result_lists(visit) == nearest, "the documents of the query are not shown")


def leave_and_come_back(visit, query: str):
    visit.page.get_by_test_id("stSidebarNav").get_by_role("link", name="Runs", exact=True).click()
    visit.wait("How is training going")
    visit.go_back_to("retrieval")
    visit.wait("Which documents does a model find")
    box = visit.page.get_by_role("textbox", name="Search", exact=True).or_(visit.page.get_by_role("searchbox")).first
    expect(box).to_have_value(query)
    expect(visit.page.get_by_text(re.compile("^★ relevant document: "))).to_be_visible()
    visit.page.reload()
    expect(box).to_have_value(query)
    expect(visit.page.get_by_text(re.compile("^★ relevant document: "))).to_be_visible()
    visit.wait()


def check_the_cards(visit, run):
    before, after = (run.read_json(f"evaluation/{part}")["dev"] for part in ("before", "after"))
    card = (
        visit.page.get_by_test_id("stVerticalBlock")
        .filter(has=visit.page.get_by_test_id("stMetric"))
        .filter(has_text="MRR")
    )
    expect(card.last).to_contain_text(f"{after['mrr']:.3f}")
    expect(card.last).to_contain_text(re.compile(rf"right {after['mrr']:.3f} \[0\.\d{{3}}, 0\.\d{{3}}\]"))
    expect(card.last).to_contain_text(re.compile(rf"left {before['mrr']:.3f} \[0\.\d{{3}}, 0\.\d{{3}}\]"))
    expect(card.last).to_contain_text(re.compile("on the right|Inconclusive"))


def select_an_error(visit, data, task, vectors):
    ranks = rank(vectors[task.query], vectors[task.corpus], task).first_rank
    missed = f"{(ranks != 1).sum()} of {len(ranks)} queries"
    visit.page.get_by_role("tab", name="Errors", exact=True).click()
    sentence = f"The model on the right does not rank a relevant document first for {missed}"
    expect(visit.page.get_by_text(sentence, exact=False)).to_be_visible()
    rows = visit.rows(ERRORS)
    worst = data.texts[int(task.query[ranks.argmax()])]
    assert worst in rows[0]
    visit.select_row(ERRORS, 0)
    box = visit.page.get_by_role("textbox", name="Search", exact=True).or_(visit.page.get_by_role("searchbox")).first
    expect(box).to_have_value(worst)
    visit.wait()
    nearest = nearest_documents(vectors, int(task.query[ranks.argmax()]), task.corpus)
    wait_until(lambda: result_lists(visit)[1] == nearest, "the documents of the selected query are not shown")
    results = visit.page.get_by_role("tab", name="Results", exact=True)
    expect(results).to_have_attribute("aria-selected", "true")
    documents = visit.page.get_by_role("combobox", name="Correct the relevance of a document", exact=True)
    option = visit.page.get_by_role("option").nth(1)
    visit.click_until(documents, option)
    option.click()
    expect(visit.page.get_by_text("Does this document answer the query?")).to_be_visible()
    visit.wait()
    expect(results).to_have_attribute("aria-selected", "true")  # not the tab that was clicked last


def search_the_same_model_twice(visit):
    visit.select_option("Left model", "After training")
    visit.wait()
    expect(visit.table("Documents of After training")).to_be_attached()
    expect(visit.page.locator(".js-plotly-plot")).to_have_count(0)
    expect(visit.page.get_by_test_id("stMetricDelta")).to_have_count(0)
    visit.select_option("Left model", "Before training")
    visit.wait()


def upload_queries(visit, data, task, folder: Path):
    page = visit.page
    page.get_by_role("tab", name="Your queries").click()
    visit.wait()
    gold = data.texts[int(task.corpus[task.relevant(0)[0]])]
    good, bad = folder / "queries.tsv", folder / "bad.csv"
    good.write_text(f"query\tdocument\nmy sourdough loaf is flat\t\n{data.texts[int(task.query[0])]}\t{gold}\n")
    bad.write_text("first,second\na,b\n")
    page.locator("input[type=file]").set_input_files(bad)
    expect(page.get_by_text("no column looks like the query", exact=False)).to_be_visible()
    visit.wait()
    page.locator("input[type=file]").set_input_files(good)
    expect(page.get_by_text(re.compile("^2 queries; 1 query has a relevant document"))).to_be_visible()
    visit.wait()
    rows = visit.rows(YOUR_QUERIES, containing="my sourdough loaf is flat")
    for query, row in zip(["my sourdough loaf is flat", data.texts[int(task.query[0])]], rows, strict=True):
        assert query in row


def check_the_ten_sentences(visit):
    visit.page.get_by_role("tab", name="Similarity of ten sentences").click()
    visit.wait()
    maps = visit.page.get_by_role("tabpanel").get_by_test_id("stVegaLiteChart")
    expect(maps).to_have_count(2)
    expect(visit.page.get_by_text(re.compile(r"^margin [+−]0\.\d{3} · AUC [01]\.\d{3}")).first).to_be_visible()
