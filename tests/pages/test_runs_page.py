"""Runs: what is shown of a run in each state, and of several beside each other."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.runs import Run, RunStore
from pages.ui import run_list


def shown(app: AppTest) -> str:
    """Every word on the page outside tables."""
    kinds = ("title", "subheader", "markdown", "text", "caption", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def test_without_a_run_the_page_offers_the_first(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("runs")
    assert not app.exception
    assert "No run yet" in shown(app)
    assert app.button(key="runs.first").label == "Launch one on the sample data"


def test_a_finished_run_shows_its_metrics_log_and_config(visit: Callable[..., AppTest], finished: Run) -> None:
    app = visit("runs", run=finished.id)
    assert not app.exception
    tables = [table.value for table in app.dataframe]
    assert tables[0]["State"].tolist() == ["✓ done"]
    metrics = next(table for table in tables if "Before" in table.columns)
    assert metrics["Metric"].tolist()[0] == "mrr"
    assert all("nan" not in str(value).lower() for column in metrics.columns for value in metrics[column])
    assert "best on dev" in shown(app)
    assert not any(button.label == "Stop" for button in app.button)


def test_without_a_choice_only_the_table_is_shown(pages: type, finished: Run) -> None:
    app = pages.alone("runs")
    assert not app.exception
    assert len(app.dataframe) == 1
    assert "Choose a run" in shown(app)


@pytest.mark.parametrize("state", sorted(run_list.STATES))
def test_every_state_has_its_look_and_an_error_its_box(pages: type, runs: RunStore, trained: Run, state: str) -> None:
    run = runs.create(trained.config(), f"run-{state}")
    words = "step 3 went wrong" if state in ("failed", "lost") else None
    now = run.status().updated
    run.update_status(state=state, step=3, steps=10, epoch=1, epochs=2, error=words, eta_seconds=42.0, finished=now)
    if state in ("starting", "running", "stopping"):  # a process that lives: this one
        import os

        import psutil

        run.update_status(pid=os.getpid(), process_created=psutil.Process().create_time())
    app = pages.alone("runs", run=run.id)
    assert not app.exception
    assert f"{run_list.STATES[state].mark} {state}" in app.dataframe[0].value["State"].tolist()
    assert "step 3 of 10" in shown(app)
    assert ("step 3 went wrong" in shown(app)) == (words is not None)
    assert any(button.label == "Stop" for button in app.button) == (state in ("queued", "starting", "running"))
    assert ("42 s left" in shown(app)) == (state in ("queued", "starting", "running", "stopping"))


def test_a_run_whose_process_is_gone_is_shown_as_lost_with_its_last_line(
    pages: type, runs: RunStore, trained: Run
) -> None:
    run = runs.create(trained.config(), "gone")
    run.log_file.write_text("reading\nthe very last line\n", encoding="utf-8")
    run.update_status(state="running", pid=2**22 + 1, process_created=1.0)
    app = pages.alone("runs", run="gone")
    assert app.dataframe[0].value["State"].tolist() == ["? lost"]
    assert "the very last line" in shown(app)


def test_stop_asks_the_run_to_stop(pages: type, runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "waiting")
    app = pages.alone("runs", run="waiting")
    app.button(key="runs.stop.waiting").click().run()
    assert not app.exception
    assert run.status().state == "stopped"


@pytest.mark.parametrize(
    ("part", "words"), [("Config", "[training]"), ("Log", "The last 200 lines"), ("Model", "SentenceTransformer(")]
)
def test_a_part_of_a_run_is_made_when_its_tab_is_open(pages: type, finished: Run, part: str, words: str) -> None:
    app = pages.alone("runs", run=finished.id)
    assert words not in shown(app)
    app.session_state[f"runs.part.{finished.id}.Overview"] = part
    app.run()
    assert not app.exception
    assert words in shown(app)


def test_two_runs_show_only_what_differs(pages: type, finished: Run, runs: RunStore) -> None:
    shutil.copytree(finished.folder, runs.root / "other-run")
    other = runs.get("other-run")
    config = finished.config()
    warmer = config.model_copy(update={"loss": config.loss.model_copy(update={"temperature": 0.5})})
    other.write_json("config", warmer.model_dump(mode="json"))
    app = pages.alone("runs", run=finished.id, compare="other-run")
    assert not app.exception
    different = next(table.value for table in app.dataframe if "Setting" in table.value.columns)
    assert different["Setting"].tolist() == ["loss.temperature"]
    assert different.iloc[0].tolist()[1:] == ["0.1", "0.5"]
    assert len(app.get("vega_lite_chart")) == 3


def test_a_run_in_the_url_that_is_not_there_chooses_nothing(pages: type, finished: Run) -> None:
    app = pages.alone("runs", run="no-such-run")
    assert not app.exception
    assert "Choose a run" in shown(app)


def test_a_damaged_config_does_not_take_the_page_down(pages: type, finished: Run) -> None:
    (finished.folder / "status.json").write_text("{", encoding="utf-8")
    app = pages.alone("runs", run=finished.id)
    assert not app.exception
    assert "cannot be read" in shown(app)


def test_only_new_bytes_of_the_metrics_are_read(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import streamlit as st

    monkeypatch.setattr(st, "session_state", {})
    first = run_list.metric_rows(finished)
    finished.append_metrics({"kind": "step", "step": 99, "loss": 1.0})
    assert run_list.metric_rows(finished) == [*first, {"kind": "step", "step": 99, "loss": 1.0}]


def test_resume_goes_on_as_a_new_run(
    pages: type, runs: RunStore, trained: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bsc_core.jobs import launching

    monkeypatch.setattr(launching, "ensure_supervisor", lambda store, *, start: None)
    run = Run(runs.root / "ended-early")
    shutil.copytree(trained.folder, run.folder)
    run.update_status(state="stopped")
    app = pages.alone("runs", run=run.id)
    app.button(key=f"runs.resume.{run.id}").click().run()
    assert not app.exception
    following = [one for one in runs.list() if one.status().resumed_from == run.id]
    assert [one.status().state for one in following] == ["queued"]
    shutil.rmtree(run.checkpoints_folder)
    assert not any(button.label == "Resume" for button in pages.alone("runs", run=run.id).button)


def test_a_late_click_of_a_table_that_is_gone_changes_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    clicked = {"selection": {"rows": [0]}}
    state = {run_list.DRAWN: "table.new", "table.old": clicked, "table.new": clicked, "run": "resumed"}
    monkeypatch.setattr(run_list.st, "session_state", state)
    run_list._keep("table.old", ["stopped"])
    assert state["run"] == "resumed"
    run_list._keep("table.new", ["stopped"])
    assert state["run"] == "stopped"
