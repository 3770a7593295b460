"""Batches page: a marked false negative, and large batches."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from matrix import cells_of, click_cell, matrix_of
from playwright.sync_api import expect

from bsc_core.batching import BatchPlan, KnownPairs
from bsc_core.config import DataConfig
from bsc_core.data import load_data
from bsc_core.data.decisions import read_decisions
from bsc_core.data.sample_data import sample_config
from bsc_core.training.data import select_training_rows
from bsc_core.training.loop.step import cells_of_pairs
from tests.helpers.waiting import wait_until

BATCH = {"encoder": "static", "batches.strategies": "nearest"}
APPLIED = re.compile(r"^1 decision applied: 1 dropped \(ignored by the loss\); 0 training rows removed")


def test_journey_from_a_marked_false_negative_of_a_batch_to_training_with_this_plan(private_server, visitor):
    visit = visitor(private_server)
    visit.open("batches", **BATCH)
    before = collisions(visit)
    pin_a_negative(visit)
    query, document = mark_the_pinned_pair(visit)
    marks = private_server.store.root / "false_negatives" / "sample.tsv"
    assert [one.pair for one in read_decisions(marks)] == [(query, document)]
    assert collisions(visit) <= before
    check_collides(rows_of(marks), query, document)

    visit.page.reload()
    visit.wait("Which negatives does a batch contain")
    open_tab(visit, "Hardness")
    expect(visit.page.get_by_test_id("stMain").get_by_text(APPLIED)).to_be_visible()
    run = launch(visit)
    assert run.config().data.false_negatives == str(marks)
    wait_until(lambda: (run.plans_folder / "epoch-001.npz").is_file(), lambda: str(run.log_tail()))
    check_excluded(run, query, document)

    visit.open("batches", **BATCH)
    visit.page.get_by_role("button", name="More").click()
    visit.page.get_by_text("No duplicates in a batch", exact=True).click()
    expect(table_cell(visit, "collisions")).to_have_text("0")
    visit.page.keyboard.press("Escape")
    open_tab(visit, "One batch")
    visit.page.get_by_role("tab", name="Decisions").click()
    assert [row[:3] for row in visit.rows("Decisions")] == [["drop", query, document]]
    expect(visit.page.get_by_text(re.compile(r"^Pinned pair"))).to_be_visible()
    expect(visit.page.get_by_role("button", name="Undo", exact=True)).to_have_count(0)


def test_the_controls_show_the_plan_of_another_dataset_after_that_of_a_run(sample_run, visit):
    visit.open("batches", run=sample_run.id)
    expect(visit.page.get_by_role("button", name="this run", exact=True)).to_have_attribute("aria-pressed", "true")
    visit.select_option("Dataset", "sample-nli")
    expect(visit.page.get_by_text("Batch order: premises, as selected in One batch")).to_be_visible()
    for name in ("premises", "random"):
        expect(visit.page.get_by_role("button", name=name, exact=True)).to_have_attribute("aria-pressed", "true")
    expect(visit.page.get_by_role("spinbutton", name="Batch size")).to_have_value("32")


def table_cell(visit, name: str):
    """Return the last cell of a row of the comparison table."""
    row = visit.page.get_by_test_id("stTable").first.locator("tr").filter(has_text=name)
    return row.locator("td").last


def open_tab(visit, name: str) -> None:
    visit.page.get_by_role("tab", name=name, exact=True).click()
    visit.wait()


def collisions(visit) -> int:
    open_tab(visit, "Hardness")
    expect(table_cell(visit, "collisions")).to_have_text(re.compile(r"^\d"))
    return int(table_cell(visit, "collisions").inner_text().split(" ")[0])


def pin_a_negative(visit) -> None:
    """Pin a pair whose rows do not collide in either direction."""
    open_tab(visit, "One batch")
    canvas = matrix_of(visit)
    is_unlabeled = np.array([one["kind"] == "in-batch negative" for one in cells_of(canvas)]).reshape(32, 32)
    row, column = np.argwhere(is_unlabeled & is_unlabeled.T)[0].tolist()
    click_cell(canvas, row, column)
    expect(visit.page.get_by_text("Pinned pair · in-batch negative")).to_be_visible()
    visit.wait()


def mark_the_pinned_pair(visit) -> tuple[str, str]:
    """Mark the pinned pair; return its texts."""
    pin = visit.page.get_by_test_id("stVerticalBlock").filter(has_text="Click a cell to pin it").last
    texts = pin.get_by_test_id("stText").all_inner_texts()
    pin.get_by_role("radio", name="Drop").click()
    open_tab(visit, "Hardness")
    expect(visit.page.get_by_test_id("stMain").get_by_text(APPLIED)).to_be_visible()
    visit.wait()
    return texts[0], texts[1]


def rows_of(marks: Path):
    config = DataConfig.model_validate({**sample_config().model_dump(), "false_negatives": str(marks)})
    return load_data(config, seed=0).train


def check_collides(train, query: str, document: str) -> None:
    """Check that the rows of a marked pair collide."""
    queries = [row for row in range(len(train)) if train.texts[int(train.query[row])] == query]
    documents = [row for row in range(len(train)) if train.texts[int(train.document[row])] == document]
    known = KnownPairs(train)
    assert all(known.collisions(np.array([first, second]))[0, 1] for first in queries for second in documents)


def launch(visit):
    visit.click_button("Train with this plan")
    visit.wait("What will this run do")
    expect(visit.page.get_by_text("Start from static token vectors")).to_be_visible()
    visit.click_button("Launch run")
    visit.wait("How is training going")
    (run,) = visit.server.store.list()
    return run


def check_excluded(run, query: str, document: str) -> None:
    """Check that the marked rows share no batch of the first epoch, and that the loss excludes their cell."""
    train = select_training_rows(run.config(), load_data(run.config().data, seed=0).train)
    plan = BatchPlan.load(run.plans_folder / "epoch-001.npz")
    all_rows = np.arange(len(train), dtype=np.int32)
    is_query = [train.texts[int(one)] == query for one in train.query]
    is_document = [train.texts[int(one)] == document for one in train.document]
    for rows in plan.batches(run.config().training.batch_size):
        assert not (any(is_query[row] for row in rows) and any(is_document[row] for row in rows))
    excluded = cells_of_pairs(train.marked_pairs, train.query[all_rows], train.document[all_rows])
    assert {tuple(cell) for cell in excluded.tolist()} == {
        (i, j) for i, first in enumerate(is_query) for j, second in enumerate(is_document) if first and second
    }
    assert len(excluded)


def test_a_large_batch_is_drawn_zoomed_and_pinned_with_keys(visitor, server):
    visit = visitor(server)
    visit.open(
        "batches", **{**BATCH, "batches.batch_size": "500", "batches.batch": "1", "batches.section": "One batch"}
    )
    page = visit.page
    canvas = matrix_of(visit)
    pin = page.get_by_test_id("stVerticalBlock").filter(has_text="Click a cell to pin it").last
    before = pin.text_content()
    page.get_by_role("button", name="Zoom in on the pinned pair").click()
    expect(page.get_by_text(re.compile(r"^pairs \d+ to \d+ of 500$")).first).to_be_visible()
    visit.wait()
    canvas = matrix_of(visit)
    canvas.focus()
    canvas.press("ArrowUp")
    canvas.press("ArrowUp")
    canvas.press("Enter")
    expect(pin).not_to_have_text(before)
    visit.wait()
    after = pin.text_content()
    matrix_of(visit)
    page.keyboard.press("ArrowUp")  # the new canvas has the focus
    page.keyboard.press("Enter")
    expect(pin).not_to_have_text(after)
    visit.wait()
    expect(page.get_by_text(re.compile(r"^pairs \d+ to \d+ of 500$")).first).to_be_visible()
    page.get_by_role("button", name="Show the whole batch").click()
    expect(page.get_by_text("500 pairs", exact=True).first).to_be_visible()
    visit.wait()
    after = pin.text_content()
    click_cell(matrix_of(visit), 375, 125)
    expect(pin).not_to_have_text(after)
    visit.wait()
    pinned = pin.text_content()
    page.reload()
    expect(pin).to_have_text(pinned)
