"""A false negative is marked in a batch; the next plan and the loss of the next run respect it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from bsc_core.batching import BatchPlan, KnownPairs
from bsc_core.config import DataConfig
from bsc_core.data import load_data
from bsc_core.data.marks import read_marks
from bsc_core.jobs.identity import wait_until
from bsc_core.recipes.sample import sample_config
from bsc_core.training.rows import training_rows
from bsc_core.training.step import excluded_places

MINUTE = 60.0
BATCH = {"encoder": "static", "batches.strategies": "examples"}

pytestmark = pytest.mark.timeout(280)


def test_a_marked_pair_is_left_out_of_the_loss_and_kept_apart(own_server, visitor):
    visit = visitor(own_server)
    visit.open("batches", **BATCH)
    before = collisions(visit)
    pin_a_plain_pair(visit)
    query, document = mark_the_pinned_pair(visit)
    marks = own_server.store.root / "marks" / "sample.tsv"
    assert read_marks(marks) == [(query, document)]
    assert collisions(visit) <= before
    meets(rows_of(marks), query, document)

    visit.page.reload()
    visit.whole("Which pairs meet in a batch")
    expect(visit.page.get_by_text(re.compile(r"^Marked as false negatives: 1 pair,"))).to_be_visible()
    run = launch(visit)
    assert run.config().data.false_negatives == str(marks)
    assert wait_until(lambda: (run.plans_folder / "epoch-001.npz").is_file(), MINUTE), run.log_tail()
    left_out_of_the_loss(run, query, document)

    visit.open("batches", **BATCH)
    visit.page.get_by_role("button", name="More").click()
    visit.page.get_by_text("No collisions in a batch", exact=True).click()
    expect(line(visit, "collisions")).to_have_text("0")
    visit.page.keyboard.press("Escape")
    visit.page.get_by_role("tab", name="Marked by hand").click()
    assert [row[-2:] for row in visit.rows("Marked false negatives")] == [[query, document]]
    expect(visit.page.get_by_text(re.compile(r"^Pinned pair"))).to_be_visible()
    expect(visit.page.get_by_role("button", name="Take the mark back")).to_have_count(0)


def line(visit, name: str):
    """The cell of the comparison that says this of the only strategy."""
    row = visit.page.get_by_test_id("stTable").first.locator("tr").filter(has_text=name)
    return row.locator("td").last


def collisions(visit) -> int:
    expect(line(visit, "collisions")).to_have_text(re.compile(r"^\d"))
    return int(line(visit, "collisions").inner_text().split(" ")[0])


def pin_a_plain_pair(visit) -> None:
    """Click a cell whose rows do not collide, either way round."""
    cells = visit.keyed("batches.matrix").locator("[aria-roledescription='rect mark'][aria-label*='own document: ']")
    expect(cells).to_have_count(30 * 30)
    told = cells.evaluate_all("all => all.map(cell => cell.ariaLabel)")
    plain = np.array(["kind: in-batch negative" in label for label in told]).reshape(30, 30)
    row, column = np.argwhere(plain & plain.T)[0].tolist()
    cells.nth(30 * row + column).click(force=True)
    expect(visit.page.get_by_text("Pinned pair · in-batch negative")).to_be_visible()
    visit.whole()


def mark_the_pinned_pair(visit) -> tuple[str, str]:
    """Mark the pair that is pinned; its texts as they are shown."""
    pin = visit.page.get_by_test_id("stVerticalBlock").filter(has_text="Click a cell to pin it").last
    texts = pin.get_by_test_id("stText").all_inner_texts()
    visit.press("Mark as false negative")
    expect(visit.page.get_by_text(re.compile(r"^Marked as false negatives: 1 pair,"))).to_be_visible()
    visit.whole()
    return texts[0], texts[1]


def rows_of(marks: Path):
    config = DataConfig.model_validate({**sample_config().model_dump(), "false_negatives": str(marks)})
    return load_data(config, seed=0).train


def meets(train, query: str, document: str) -> None:
    """The rows of a marked pair collide, as the loss and the count of collisions see them."""
    asks = [row for row in range(len(train)) if train.texts[int(train.query[row])] == query]
    answers = [row for row in range(len(train)) if train.texts[int(train.document[row])] == document]
    known = KnownPairs(train)
    assert all(known.collisions(np.array([ask, answer]))[0, 1] for ask in asks for answer in answers)


def launch(visit):
    visit.press("Train with this plan")
    visit.whole("What should the encoder learn")
    expect(visit.page.get_by_text("Start from static token vectors")).to_be_visible()
    visit.press("Launch")
    visit.whole("What are the runs doing")
    (run,) = visit.server.store.list()
    return run


def left_out_of_the_loss(run, query: str, document: str) -> None:
    """The rows of the marked pair meet in no batch of the first epoch; the loss would know the cell if they did."""
    train = training_rows(run.config(), load_data(run.config().data, seed=0).train)
    plan = BatchPlan.load(run.plans_folder / "epoch-001.npz")
    everyone = np.arange(len(train), dtype=np.int32)
    asks = [train.texts[int(one)] == query for one in train.query]
    answers = [train.texts[int(one)] == document for one in train.document]
    for rows in plan.batches(run.config().training.batch_size):
        assert not (any(asks[row] for row in rows) and any(answers[row] for row in rows))
    told = excluded_places(train, train.query[everyone], train.document[everyone])
    assert {tuple(cell) for cell in told.tolist()} == {
        (i, j) for i, ask in enumerate(asks) for j, answer in enumerate(answers) if ask and answer
    }
    assert len(told)


def test_a_large_batch_is_drawn_at_once_zoomed_and_pinned_with_keys(visitor, server):
    visit = visitor(server)
    visit.open("batches", **{**BATCH, "batches.batch_size": "500"})
    page = visit.page
    canvas = page.get_by_role("img", name=re.compile(r"^500 pairs, \d+ of them positive"))
    expect(canvas).to_be_visible()
    pin = page.get_by_test_id("stVerticalBlock").filter(has_text="Click a cell to pin it").last
    before = pin.inner_text()
    page.get_by_role("button", name="Zoom in on the pinned pair").click()
    expect(page.get_by_text(re.compile(r"^pairs \d+ to \d+ of 500$")).first).to_be_visible()
    visit.whole()
    expect(canvas).to_have_count(1)
    canvas.focus()
    canvas.press("ArrowUp")
    canvas.press("ArrowUp")
    canvas.press("Enter")
    expect(pin).not_to_have_text(before)
    visit.whole()
    page.get_by_role("button", name="Show the whole batch").click()
    expect(page.get_by_text("500 pairs", exact=True).first).to_be_visible()
    visit.whole()
    expect(canvas).to_have_count(1)  # the one drawn before stands beside it for a moment
    box = canvas.bounding_box()
    assert box["width"] == pytest.approx(box["height"], abs=1)
    after = pin.inner_text()
    canvas.click(position={"x": box["width"] * 0.25, "y": box["height"] * 0.75})
    expect(pin).not_to_have_text(after)
