"""A sweep of four, from the form to what it brought, while one run is stopped and resumed and the app is killed."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest
from playwright.sync_api import WebSocket, expect

from bsc_core.jobs import group_summary
from bsc_core.jobs.identity import find_process, wait_until
from bsc_core.runs import Run, RunStore

EPOCHS = 3
PATIENCE_SECONDS = 240.0
PATIENCE_MS = 1000 * PATIENCE_SECONDS
A_WHILE_MS = 60_000  # of the browser's clock
RUNS = "Runs with state, progress, step, time left, metric on dev, group and age"
QUESTION = "What are the runs doing"

pytestmark = pytest.mark.timeout(600)


def test_a_sweep_of_four_lives_through_a_stop_a_resume_and_the_end_of_the_app(own_server, visitor):
    store: RunStore = own_server.store
    visit = visitor(own_server)
    group = launch_four(visit, store)
    runs = sorted((run for run in store.list()), key=lambda run: run.id)
    begun = runs[0]
    following = stop_and_resume(visit, store, group, begun)
    visit.done()
    visit.page.context.close()
    own_server.end(signal.SIGKILL)

    known = {run.id for run in store.list()}
    own_server.start()
    again = visitor(own_server)
    again.page.clock.install()
    sent = messages_of(again.page)
    again.open("runs", group=group)
    looks_again_while_it_goes_on(again, sent, [*runs, following])
    everything_is_as_it_should_be(again, store, group, [*runs[1:], following], begun)
    assert {run.id for run in store.list()} == known
    looks_no_more(again, sent)
    the_best_is_shown(again, group, [*runs[1:], following])
    delete_and_undo(again, begun)


def launch_four(visit, store: RunStore) -> str:
    """Two temperatures by two batch sizes, launched from the form; the group's id."""
    visit.open("train", encoder="static")
    visit.choose("Start from", "Fast lesson")
    page = visit.page
    expect(page.get_by_text(re.compile("^To see curves move in seconds"))).to_be_visible()
    visit.whole()
    visit.keyed("train.sweep.on").locator("label").click()
    expect(page.get_by_text(re.compile("^One run so far"))).to_be_visible()
    unfold(visit, "training")
    epochs = page.get_by_role("spinbutton", name="Epochs")
    epochs.fill(str(EPOCHS))
    epochs.press("Enter")
    expect(page.get_by_text(re.compile(f"^Training: {EPOCHS} epochs"))).to_be_visible()
    several(visit, "train.training.batch_size", "16")
    unfold(visit, "loss")
    several(visit, "train.loss.bsc.temperature", "0.05")
    expect(page.get_by_text(re.compile("2 × .*2 × .*: 4 runs"))).to_be_visible()
    visit.press("Launch 4 runs")
    visit.whole(QUESTION)
    runs = store.list()
    (group,) = {run.status().group for run in runs}
    cells = {(run.config().loss.temperature, run.config().training.batch_size) for run in runs}
    assert cells == {(first, second) for first in (0.1, 0.05) for second in (32, 16)}
    expect(page.get_by_role("combobox", name="Group", exact=True)).to_have_value(group)
    assert {row[0] for row in visit.rows(RUNS)} == {run.id for run in runs}
    return group


def unfold(visit, section: str) -> None:
    visit.keyed(f"train.open.{section}").locator("summary").first.click()
    visit.whole()


def several(visit, key: str, value: str) -> None:
    """Turn a field into a list and add a value to the one it has."""
    visit.keyed(f"{key}.turn").get_by_role("button").first.click()
    values, box = visit.keyed(f"{key}.list"), visit.keyed(f"{key}.list").get_by_role("combobox")
    expect(values.get_by_role("group", name="Selected values")).to_be_visible()
    visit.whole()
    box.click()
    box.press_sequentially(value)
    visit.page.get_by_role("option", name=re.compile(f"{value}$")).click()
    box.press("Escape")  # closes the list, which hides the page from a screen reader
    expect(values).to_contain_text(value)
    visit.whole()


def stop_and_resume(visit, store: RunStore, group: str, run: Run) -> Run:
    """Stop the first run in the middle, held there by a signal so that it cannot end before; the run that goes on."""
    page = visit.page
    assert wait_until(lambda: any(run.checkpoints_folder.glob("step-*")), PATIENCE_SECONDS), run.log_tail()
    process = find_process(run.status())
    assert process is not None
    run.change_status(lambda status: os.kill(process.pid, signal.SIGSTOP) or status)  # not while it holds its status
    visit.open("runs", group=group, run=run.id)
    visit.press("Stop")
    expect(badge(visit)).to_contain_text("stopping")
    os.kill(process.pid, signal.SIGCONT)
    expect(badge(visit)).to_contain_text("stopped", timeout=PATIENCE_MS)
    assert run.status().step < (run.status().steps or 0)
    known = {one.id for one in store.list()}
    visit.press("Resume")
    expect(page.get_by_text(f"goes on from {run.id}")).to_be_visible()
    visit.whole(QUESTION)
    (following,) = [one for one in store.list() if one.id not in known]
    expect(page.get_by_role("combobox", name="Group", exact=True)).to_have_value(group)
    expect(page.get_by_role("combobox", name="Run", exact=True)).to_have_value(following.id)
    return following


def badge(visit):
    return visit.page.locator(".stMarkdownBadge").first


def messages_of(page) -> list[bytes | str]:
    """What the page sends to the server from now on."""
    sent: list[bytes | str] = []

    def heard(socket: WebSocket) -> None:
        socket.on("framesent", lambda message: sent.append(message))

    page.on("websocket", heard)
    return sent


def looks_again_while_it_goes_on(visit, sent: list[bytes | str], runs: list[Run]) -> None:
    assert any(not run.status().is_finished for run in runs), "all runs ended early: give them more epochs"
    before = len(sent)
    visit.page.clock.fast_forward(A_WHILE_MS)
    visit.whole()
    assert len(sent) > before


def everything_is_as_it_should_be(visit, store: RunStore, group: str, done: list[Run], stopped: Run) -> None:
    """Every run has ended, once, and the page says of each what its folder holds."""
    page = visit.page
    expect(page.get_by_test_id("stSidebar").get_by_text("No run is active.")).to_be_visible(timeout=PATIENCE_MS)
    for run in done:
        status = run.status()
        assert (status.state, status.step, status.exit_code) == ("done", status.steps, 0), (status, run.log_tail())
        assert [row["step"] for row in run.metrics()[0] if row["kind"] == "step"] == list(range(1, status.step + 1))
        assert "\n".join(run.log_tail(1000)).count("Reading the data") == 1
        assert list(run.model_folder.rglob("*.safetensors"))
    expect(page.get_by_text(re.compile(": . of 4 runs done"))).to_have_text(re.compile(": 4 of 4 runs done$"))
    expect(visit.table(RUNS)).not_to_contain_text("running")
    visit.whole(QUESTION)
    shown = {row[0]: row[1] for row in visit.rows(RUNS)}
    assert shown == {run.id: "✓ done" for run in done} | {stopped.id: "■ stopped"}
    expect(page.get_by_text("Queue: nothing waits")).to_be_visible()


def looks_no_more(visit, sent: list[bytes | str]) -> None:
    before = len(sent)
    visit.page.clock.fast_forward(A_WHILE_MS)
    visit.whole()
    assert len(sent) == before


def the_best_is_shown(visit, group: str, done: list[Run]) -> None:
    """The picture, the table of settings and the config, each as the runs' folders have it."""
    page, summary = visit.page, group_summary(done)
    best = summary["settings"][0]
    told = f"The best of 4 runs reaches {summary['metric']} {best['best']:.3f}"
    chart = page.get_by_test_id("stVegaLiteChart").first
    expect(chart).to_contain_text(told)
    page.get_by_role("tab", name="Settings").click()
    rows = visit.rows("Settings of the sweep, the best mean first", holding=f"{best['mean']:.3f}")
    assert len(rows) == 4
    assert [float(row[0]) for row in rows] == [one["setting"][summary["keys"][0]] for one in summary["settings"]]
    page.get_by_role("tab", name="Best setting").click()
    code = page.get_by_test_id("stCode").first
    expect(code).to_contain_text(f"temperature = {best['setting']['loss.temperature']}")


def delete_and_undo(visit, run: Run) -> None:
    """The stopped run is deleted from the page and brought back whole."""
    held = json.dumps(run.config().model_dump(mode="json"))
    visit.open("runs", run=run.id)
    visit.press("Delete")
    expect(visit.page.get_by_text(f"Run {run.id} was deleted.")).to_be_visible()
    assert not run.folder.exists()
    visit.press("Undo")
    expect(badge(visit)).to_contain_text("stopped")
    visit.whole(QUESTION)
    assert json.dumps(run.config().model_dump(mode="json")) == held
