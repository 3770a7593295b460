"""A run continues after the browser and the server are closed, and a restarted server can stop it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from bsc_core.jobs.local.processes import find_process
from tests.helpers.waiting import wait_until

MANY_EPOCHS = 5000


def test_a_run_continues_without_browser_and_server_and_can_be_stopped_later(private_server, visitor):
    store = private_server.store
    visit = visitor(private_server)
    visit.open("train", encoder="static")
    visit.select_option("Start from", "Fast lesson")
    visit.page.get_by_text(re.compile("^Training: 5 epochs")).click()
    epochs = visit.page.get_by_role("spinbutton", name="Epochs")
    epochs.fill(str(MANY_EPOCHS))
    epochs.press("Enter")
    expect(visit.page.get_by_text(re.compile(f"^Training: {MANY_EPOCHS:,} epochs"))).to_be_visible()
    visit.click_button("Launch run")
    visit.wait("How is training going")
    (run,) = store.list()
    visit.check_no_faults()
    visit.page.context.close()

    private_server.stop()
    wait_until(lambda: run.status().step > 0, lambda: "\n".join(run.log_tail()))
    worker = find_process(run.status())
    step = run.status().step
    assert worker is not None
    wait_until(lambda: run.status().step > step, "the run takes no further step")
    assert run.status().state == "running"

    private_server.start()
    again = visitor(private_server)
    again.open("runs", run=run.id)
    page = again.page
    expect(page.get_by_text(re.compile(rf"step [\d,]+ of {run.status().steps:,} · epoch \d+ of "))).to_be_visible()
    expect(page.get_by_test_id("stSidebar").get_by_role("link", name=re.compile(r"\d+% · "))).to_be_visible()
    stop = page.get_by_test_id("stMain").get_by_role("button", name="Stop", exact=True)
    again.click_until(stop, page.locator(".stMarkdownBadge", has_text=re.compile("stopping|stopped")).first)
    expect(page.locator(".stMarkdownBadge").first).to_contain_text("stopped")
    again.wait("How is training going")
    status = run.status()
    assert (status.state, status.exit_code) == ("stopped", 1)
    assert 0 < step < status.step < status.steps
    wait_until(lambda: find_process(status) is None, "the process of the run does not end")
    assert list(run.checkpoints_folder.rglob("*.safetensors"))
    assert list(run.model_folder.rglob("*.safetensors"))
    before, after = run.read_json("evaluation/before")["dev"], run.read_json("evaluation/after")["dev"]
    reported = [f"{metrics['mrr']:.3f}" for metrics in (before, after)]
    lines = again.rows("Metrics before and after training", containing="MRR")
    assert [[cell.split(" [")[0] for cell in line[2:4]] for line in lines if line[:2] == ["dev", "MRR"]] == [reported]
    expect(page.get_by_test_id("stMain").get_by_role("button", name="Stop", exact=True)).to_have_count(0)
