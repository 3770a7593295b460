"""The search box on two models, in a browser: lists by the definition of cosine, failures, and queries of one's own."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from answers import best, lists, search
from playwright.sync_api import expect

from bsc_core.config import make_config
from bsc_core.data import load_data
from bsc_core.evaluation import rank, retrieval_task
from bsc_core.jobs.states import advance
from bsc_core.pipeline import run_experiment
from bsc_core.recipes.sample import sample_config
from bsc_core.runs import Run

FAILURES = "Queries whose gold document is not first, with what came first and why that may be"
OWN = "Your queries with what both models put first"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def run(server) -> Run:
    """A run of the static encoder on the sample data, trained a little."""
    training = {"epochs": 1, "batch_size": 30, "learning_rate": 0.01, "threads": 1, "precision": "fp32"}
    config = make_config(
        {
            "data": sample_config().model_dump(mode="json"),
            "encoder": {"name": "static"},
            "batching": {"strategy": "random"},
            "training": training,
        }
    )
    made = server.store.create(config, "20260101-000000-search-0001")
    advance(made, "running")
    run_experiment(config, made)
    advance(made, "done", exit_code=0)
    return made


def test_one_query_is_searched_with_two_models_and_failures_lead_to_it(visit, run, tmp_path):
    data = load_data(run.config().data, seed=0)
    task = retrieval_task(data.dev, data.corpus)
    vectors = {part: np.asarray(run.array(f"embeddings_{part}")) for part in ("before", "after")}
    visit.open("retrieval", run=run.id)
    search_a_query_of_the_data(visit, data, task, vectors)
    look_at_the_cards(visit, run)
    search_the_same_model_twice(visit)
    choose_a_failure(visit, data, task, vectors["after"])
    ask_own_queries(visit, data, task, tmp_path)
    look_at_the_ten_sentences(visit)


def search_a_query_of_the_data(visit, data, task, vectors):
    query = int(task.query[3])
    search(visit, data.texts[query].upper())
    expect(visit.page.get_by_text("An example, the query whose gold moved most")).to_have_count(0)
    visit.whole()
    expect(visit.page.get_by_text(re.compile("^★ gold: left "))).to_be_visible()
    for part, answers in zip(("before", "after"), lists(visit), strict=True):
        assert answers == best(vectors[part], query, task.corpus)


def look_at_the_cards(visit, run):
    before, after = (run.read_json(f"evaluation/{part}")["dev"] for part in ("before", "after"))
    card = (
        visit.page.get_by_test_id("stVerticalBlock")
        .filter(has=visit.page.get_by_test_id("stMetric"))
        .filter(has_text="MRR")
    )
    expect(card.last).to_contain_text(f"{after['mrr']:.3f}")
    expect(card.last).to_contain_text(re.compile(rf"right {after['mrr']:.3f} \[0\.\d{{3}}, 0\.\d{{3}}\]"))
    expect(card.last).to_contain_text(re.compile(rf"left {before['mrr']:.3f} \[0\.\d{{3}}, 0\.\d{{3}}\]"))
    expect(card.last).to_contain_text(re.compile("on the right|Cannot be told from chance"))


def choose_a_failure(visit, data, task, vectors):
    ranks = rank(vectors[task.query], vectors[task.corpus], task).first_rank
    told = f"Of {len(ranks)} queries, gold is not first on the right for {(ranks != 1).sum()};"
    expect(visit.page.get_by_text(re.compile(f"^{told}"))).to_be_visible()
    rows = visit.rows(FAILURES)
    worst = data.texts[int(task.query[ranks.argmax()])]
    assert worst in rows[0]
    visit.choose_row(FAILURES, 0)
    box = visit.page.get_by_role("textbox", name="Search", exact=True).or_(visit.page.get_by_role("searchbox")).first
    expect(box).to_have_value(worst)
    visit.whole()
    assert lists(visit)[1] == best(vectors, int(task.query[ranks.argmax()]), task.corpus)


def search_the_same_model_twice(visit):
    visit.choose("Left", "After training")
    visit.whole()
    left, right = lists(visit)
    assert left == right
    expect(visit.page.get_by_test_id("stMetricDelta").first).to_contain_text("unchanged")
    visit.choose("Left", "Before training")
    visit.whole()


def ask_own_queries(visit, data, task, folder: Path):
    page = visit.page
    page.get_by_role("tab", name="Your own queries").click()
    visit.whole()
    gold = data.texts[int(task.corpus[task.relevant(0)[0]])]
    good, bad = folder / "own.tsv", folder / "bad.csv"
    good.write_text(f"query\tdocument\nmy sourdough loaf is flat\t\n{data.texts[int(task.query[0])]}\t{gold}\n")
    bad.write_text("first,second\na,b\n")
    page.locator("input[type=file]").set_input_files(bad)
    expect(page.get_by_text("cannot tell which column holds the query", exact=False)).to_be_visible()
    visit.whole()
    page.locator("input[type=file]").set_input_files(good)
    expect(page.get_by_text(re.compile("^2 queries, 1 query has a right document"))).to_be_visible()
    visit.whole()
    rows = visit.rows(OWN, holding="my sourdough loaf is flat")
    for query, row in zip(["my sourdough loaf is flat", data.texts[int(task.query[0])]], rows, strict=True):
        assert query in row


def look_at_the_ten_sentences(visit):
    visit.page.get_by_role("tab", name="Ten sentences").click()
    visit.whole()
    maps = visit.page.get_by_role("tabpanel").get_by_test_id("stVegaLiteChart")
    expect(maps).to_have_count(2)
    expect(visit.page.get_by_text(re.compile(r"^margin [+−]0\.\d{3} · AUC [01]\.\d{3}")).first).to_be_visible()
