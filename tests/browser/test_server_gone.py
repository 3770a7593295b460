"""A run belongs to nobody's browser and to no server: both may go, and the run goes on."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from bsc_core.jobs.identity import find_process, wait_until

MANY_EPOCHS = 5000
PATIENCE_SECONDS = 60.0

pytestmark = pytest.mark.timeout(200)


def test_closing_browser_and_server_touches_no_run_and_a_new_server_can_stop_it(own_server, visitor):
    store = own_server.store
    visit = visitor(own_server)
    visit.open("train", encoder="static")
    visit.choose("Start from", "Fast lesson")
    visit.page.get_by_text(re.compile("^Training: 5 epochs")).click()
    epochs = visit.page.get_by_role("spinbutton", name="Epochs")
    epochs.fill(str(MANY_EPOCHS))
    epochs.press("Enter")
    expect(visit.page.get_by_text(re.compile(f"^Training: {MANY_EPOCHS:,} epochs"))).to_be_visible()
    visit.press("Launch")
    visit.whole("What are the runs doing")
    (run,) = store.list()
    visit.done()
    visit.page.context.close()

    own_server.end()
    assert wait_until(lambda: run.status().step > 0, PATIENCE_SECONDS), run.log_tail()
    worker = find_process(run.status())
    step = run.status().step
    assert worker is not None
    assert wait_until(lambda: run.status().step > step, PATIENCE_SECONDS)
    assert run.status().state == "running"

    own_server.start()
    again = visitor(own_server)
    again.open("runs", run=run.id)
    page = again.page
    expect(page.get_by_text(re.compile(rf"step [\d,]+ of {run.status().steps:,} · epoch \d+ of "))).to_be_visible()
    expect(page.get_by_test_id("stSidebar").get_by_role("link", name=re.compile(r"\d+% · "))).to_be_visible()
    again.press("Stop")
    expect(page.locator(".stMarkdownBadge").first).to_contain_text("stopped", timeout=1000 * PATIENCE_SECONDS)
    again.whole("What are the runs doing")
    status = run.status()
    assert (status.state, status.exit_code) == ("stopped", 1)
    assert 0 < step < status.step < status.steps
    assert wait_until(lambda: find_process(status) is None, PATIENCE_SECONDS)
    assert list(run.checkpoints_folder.rglob("*.safetensors"))
    assert list(run.model_folder.rglob("*.safetensors"))
    before, after = run.read_json("evaluation/before")["dev"], run.read_json("evaluation/after")["dev"]
    told = [f"{metrics['mrr']:.3f}" for metrics in (before, after)]
    lines = again.rows("Metrics before and after training", holding="mrr")
    assert [[cell.split(" [")[0] for cell in line[2:4]] for line in lines if line[:2] == ["dev", "mrr"]] == [told]
    expect(page.get_by_test_id("stMain").get_by_role("button", name="Stop", exact=True)).to_have_count(0)
