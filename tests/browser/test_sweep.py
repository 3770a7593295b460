"""Runs page: a sweep of four runs; one is stopped and resumed, and the app is restarted."""

from __future__ import annotations

import json
import re
import signal

from playwright.sync_api import WebSocket, expect

from bsc_core import formatting
from bsc_core.jobs import group_summary
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import short_id
from tests.helpers.waiting import held, wait_until

EPOCHS = 3
FAST_FORWARD_MS = 60_000  # of the browser's clock
RUNS = "Runs with state, metric on dev, settings that differ, progress, group and age"
QUESTION = "How is training going"


def test_journey_from_a_sweep_of_temperatures_to_a_comparison_with_intervals(private_server, visitor):
    """One of the runs is stopped and resumed, and the app is restarted."""
    store: RunStore = private_server.store
    visit = visitor(private_server)
    group = launch_sweep(visit, store)
    runs = sorted((run for run in store.list()), key=lambda run: run.id)
    stopped_run = runs[0]
    stop_before_its_end(visit, group, stopped_run)
    wait_until(lambda: bool(running_runs(store)), "no other run has started")
    with held(running_runs(store)[-1]):  # so that a run is active until the page is checked
        resumed_run = resume(visit, store, group, stopped_run)
        visit.check_no_faults()
        visit.page.context.close()
        private_server.stop(signal.SIGKILL)

        known = {run.id for run in store.list()}
        private_server.start()
        again = visitor(private_server)
        again.page.clock.install()
        sent = record_messages(again.page)
        again.open("runs", group=group)
        check_page_updates_while_active(again, sent)
    check_all_runs(again, store, group, [*runs[1:], resumed_run], stopped_run)
    assert {run.id for run in store.list()} == known
    check_page_stops_updating(again, sent)
    check_best_setting(again, group, [*runs[1:], resumed_run])
    compare(again)
    delete_and_undo(again, stopped_run)


def launch_sweep(visit, store: RunStore) -> str:
    """Launch two temperatures with two batch sizes from the form; return the id of the group."""
    visit.open("train", encoder="static")
    visit.select_option("Start from", "Fast lesson")
    page = visit.page
    expect(page.get_by_text(re.compile("^Preset: Trains in seconds"))).to_be_visible()
    visit.wait()
    visit.by_key("train.sweep.on").locator("label").click()
    expect(page.get_by_text("One run, until a setting of the sweep has several values.")).to_be_visible()
    expand_section(visit, "training")
    epochs = page.get_by_role("spinbutton", name="Epochs")
    epochs.fill(str(EPOCHS))
    epochs.press("Enter")
    expect(page.get_by_text(re.compile(f"^Training: {EPOCHS} epochs"))).to_be_visible()
    add_list_value(visit, "Loss: Temperature", "train.loss.bsc.temperature", "0.05")
    add_list_value(visit, "Training: Batch size", "train.training.batch_size", "16")
    expect(page.get_by_text(re.compile("2 values of .* × 2 values of .*: 4 runs"))).to_be_visible()
    visit.click_button("Launch 4 runs")
    visit.wait(QUESTION)
    runs = store.list()
    (group,) = {run.status().group for run in runs}
    cells = {(run.config().loss.temperature, run.config().training.batch_size) for run in runs}
    assert cells == {(first, second) for first in (0.1, 0.05) for second in (32, 16)}
    expect(page.get_by_role("combobox", name="Sweep or group", exact=True)).to_have_value(short_id(group))
    assert {row[1] for row in visit.rows(RUNS)} == {short_id(run.id) for run in runs}
    return group


def expand_section(visit, section: str) -> None:
    visit.by_key(f"train.open.{section}").locator("summary").first.click()
    visit.wait()


def add_list_value(visit, name: str, key: str, value: str) -> None:
    """Choose a setting of the sweep and add a value to its list."""
    settings = visit.by_key("train.sweep.chosen").get_by_role("combobox")
    settings.click()
    settings.press_sequentially(name)
    visit.page.get_by_role("option", name=name, exact=True).click()
    settings.press("Escape")
    visit.wait()
    values, box = visit.by_key(f"{key}.list"), visit.by_key(f"{key}.list").get_by_role("combobox")
    box.click()
    box.press_sequentially(value)
    visit.page.get_by_role("option", name=re.compile(f"{value}$")).click()
    box.press("Escape")  # closes the list, since an open one hides the page from the accessibility tree
    expect(values).to_contain_text(value)
    visit.wait()


def stop_before_its_end(visit, group: str, run: Run) -> None:
    """Stop a run, which is held until the page shows that it stops."""
    wait_until(lambda: any(run.checkpoints_folder.glob("step-*")), lambda: "\n".join(run.log_tail()))
    with held(run):
        visit.open("runs", group=group, run=run.id)
        visit.click_button("Stop")
        expect(badge(visit)).to_contain_text("stopping")
    expect(badge(visit)).to_contain_text("stopped")
    assert run.status().step < (run.status().steps or 0)


def resume(visit, store: RunStore, group: str, run: Run) -> Run:
    """Resume a stopped run, and return the new run."""
    page = visit.page
    known = {one.id for one in store.list()}
    visit.click_button("Resume")
    expect(page.get_by_text(f"resumed from {short_id(run.id)}")).to_be_visible()
    visit.wait(QUESTION)
    (resumed_run,) = [one for one in store.list() if one.id not in known]
    expect(page.get_by_role("combobox", name="Sweep or group", exact=True)).to_have_value(short_id(group))
    expect(page.get_by_role("combobox", name="Run", exact=True)).to_have_value(short_id(resumed_run.id))
    check_link_of_sidebar(visit, resumed_run)
    return resumed_run


def running_runs(store: RunStore) -> list[Run]:
    """Return the runs that are running, in the order of their launch."""
    return sorted((run for run in store.list() if run.status().state == "running"), key=lambda run: run.id)


def check_link_of_sidebar(visit, shown: Run) -> None:
    """Open another run that waits by its link in the sidebar."""
    page = visit.page
    box = page.get_by_role("combobox", name="Run", exact=True)
    link = page.get_by_test_id("stSidebar").locator(f"a[href*='run=']:not([href*='{shown.id}'])").last
    run_id = link.get_attribute("href").partition("run=")[2]
    link.evaluate("link => link.click()")  # also if the sidebar is collapsed
    page.wait_for_url(re.compile(f"run={run_id}"))
    expect(box).to_have_value(short_id(run_id))


def badge(visit):
    return visit.page.locator(".stMarkdownBadge").first


def record_messages(page) -> list[bytes | str]:
    """Return a list that collects the messages that the page sends to the server from now on."""
    sent: list[bytes | str] = []

    def collect(socket: WebSocket) -> None:
        socket.on("framesent", lambda message: sent.append(message))

    page.on("websocket", collect)
    return sent


def check_page_updates_while_active(visit, sent: list[bytes | str]) -> None:
    before = len(sent)
    visit.page.clock.fast_forward(FAST_FORWARD_MS)
    visit.wait()
    assert len(sent) > before


def check_all_runs(visit, store: RunStore, group: str, done: list[Run], stopped: Run) -> None:
    """Check that every run ended as expected, was started once, and is shown with its state."""
    page = visit.page
    expect(page.get_by_test_id("stSidebar").get_by_text("No run is active.")).to_be_visible()
    for run in done:
        status = run.status()
        assert (status.state, status.step, status.exit_code) == ("done", status.steps, 0), (status, run.log_tail())
        assert [row["step"] for row in run.metrics()[0] if row["kind"] == "step"] == list(range(1, status.step + 1))
        assert "\n".join(run.log_tail(1000)).count("Reading the data") == 1
        assert list(run.model_folder.rglob("*.safetensors"))
    expect(page.get_by_text(re.compile(": . of 4 runs done"))).to_have_text(re.compile(": 4 of 4 runs done$"))
    expect(visit.table(RUNS)).not_to_contain_text("running")
    visit.wait(QUESTION)
    shown = {row[1]: row[3] for row in visit.rows(RUNS)}
    assert shown == {short_id(run.id): "✓ done" for run in done} | {short_id(stopped.id): "■ stopped, resumed"}
    expect(page.get_by_text("Queue: no run waiting")).to_be_visible()


def check_page_stops_updating(visit, sent: list[bytes | str]) -> None:
    before = len(sent)
    visit.page.clock.fast_forward(FAST_FORWARD_MS)
    visit.wait()
    assert len(sent) == before


def check_best_setting(visit, group: str, done: list[Run]) -> None:
    """Check the figure, the table of settings and the config against the summary of the runs."""
    page, summary = visit.page, group_summary(done)
    best = summary["settings"][0]
    headline = f"Highest of 4 runs: {formatting.metric_name(summary['metric'])} {best['best']:.3f}"
    expect(page.locator("[class*=st-key-figure-]").first).to_contain_text(headline)
    page.get_by_role("tab", name="Settings").click()
    rows = visit.rows("Settings of the sweep, the best mean first", containing=f"{best['mean']:.3f}")
    assert len(rows) == 4
    assert [float(row[0]) for row in rows] == [one["setting"][summary["keys"][0]] for one in summary["settings"]]
    page.get_by_role("tab", name="Best setting").click()
    code = page.get_by_test_id("stCode").first
    expect(code).to_contain_text(f"temperature = {best['setting']['loss.temperature']}")


def compare(visit) -> None:
    """Compare the settings of the group: each of them has its interval of a metric."""
    visit.page.get_by_role("button", name=re.compile(r"^Compare \d runs$")).click()
    rows = [
        row
        for row in visit.rows("Metrics of the settings, and whether they differ", containing="MRR")
        if row[0] == "MRR"
    ]
    intervals = [value for row in rows for value in row if re.fullmatch(r"\N{MINUS SIGN}?\d\.\d{3} \[.*\]", value)]
    assert len(intervals) >= 2
    visit.wait(QUESTION)


def delete_and_undo(visit, run: Run) -> None:
    """Delete the stopped run and undo it; its config is unchanged."""
    before = json.dumps(run.config().model_dump(mode="json"))
    visit.open("runs", run=run.id)
    visit.click_button("Delete")
    expect(visit.page.get_by_text(f"Run {run.id} was deleted.")).to_be_visible()
    assert not run.folder.exists()
    visit.click_button("Undo")
    expect(badge(visit)).to_contain_text("stopped")
    visit.wait(QUESTION)
    assert json.dumps(run.config().model_dump(mode="json")) == before
