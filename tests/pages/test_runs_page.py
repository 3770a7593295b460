"""Runs page: the table, run states, tabs, stop and resume."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable

import numpy as np
import psutil
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core import jobs
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import RESUMED
from bsc_core.runs.ids import short_id
from pages.ui.components import display, run_data, url
from pages.ui.runs import actions, sweep, table
from tests.helpers.pages import figure_titles, open_page, page_text


def test_without_a_run_the_page_offers_the_first(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("runs")
    assert not app.exception
    assert "There are no runs yet" in page_text(app)
    assert app.button(key="runs.first").label == "Launch a run on the sample data"


def test_a_finished_run_shows_its_metrics_log_and_config(visit: Callable[..., AppTest], finished: Run) -> None:
    app = visit("runs", run=finished.id)
    assert not app.exception
    tables = [one.value for one in app.dataframe]
    assert tables[0]["State"].tolist() == ["✓ done"]
    metrics = next(one for one in tables if "Before" in one.columns)
    assert metrics["Metric"].tolist()[0] == "MRR"
    assert all("nan" not in str(value).lower() for column in metrics.columns for value in metrics[column])
    assert "best on dev" in page_text(app)
    assert not any(button.label == "Stop" for button in app.button)


def test_without_a_choice_only_the_table_is_shown(finished: Run) -> None:
    app = open_page("runs")
    assert not app.exception
    assert len(app.dataframe) == 1
    assert "Select a run" in page_text(app)


def test_a_resumed_run_has_the_color_of_the_run_that_it_continues(runs: RunStore, trained: Run) -> None:
    ids = [f"2026010{day}-000000-run-000{day}" for day in range(1, 5)]
    for number, run_id in enumerate(ids):
        runs.create(trained.config(), run_id).update_status(created=float(number), state="stopped")
    runs.get(ids[3]).update_status(resumed_from=ids[1])
    colors = run_data.run_colors(ids)
    assert colors[3] == colors[1]
    assert len(set(colors)) == 3


def test_a_run_that_another_one_continues_is_not_resumed_again(runs: RunStore, finished: Run) -> None:
    finished.update_status(state="stopped")
    assert f"runs.resume.{finished.id}" in {button.key for button in open_page("runs", run=finished.id).button}
    following = runs.create(finished.config(), "20991231-000000-other-0001")
    following.update_status(resumed_from=finished.id)
    following.write_signed(RESUMED, {"from": finished.id})
    app = open_page("runs", run=finished.id)
    assert "continued as other-0001" in page_text(app)
    assert f"runs.resume.{finished.id}" not in {button.key for button in app.button}
    following = open_page("runs", run="20991231-000000-other-0001")
    assert f"resumed from {short_id(finished.id)}" in page_text(following)
    assert "Search with this model" not in {button.label for button in following.button}


def test_a_run_that_was_stopped_in_its_first_epoch_shows_its_evaluation(finished: Run) -> None:
    lines = finished.metrics_file.read_text().splitlines(keepends=True)
    finished.metrics_file.write_text(
        "".join(line for line in lines if '"evaluation"' not in line or '"epoch": 0' in line)
    )
    before = float(next(row["dev"]["mrr"] for row in map(json.loads, lines) if row["kind"] == "evaluation"))
    after = finished.evaluation("after")["dev"]["mrr"]
    finished.update_status(state="stopped", step=3, steps=6, epochs=1, metric_best=after)
    app = open_page("runs", run=finished.id)
    change = "stays at" if before == after else "rises from" if after > before else "falls from"
    assert any(title.startswith(f"MRR on dev {change}") for title in figure_titles(app))
    assert [list(values) for values in app.dataframe[0].value["Dev by epoch"]] == [[before, after]]


def test_a_run_is_complete_after_its_evaluation(finished: Run) -> None:
    for state, percent in (("running", 99), ("done", 100)):
        finished.update_status(state=state, step=6, steps=6)
        assert table.table_row(finished)["Progress"] == finished.status().percent == percent


def test_all_places_show_the_same_percentage(runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "20260101-000000-active-0001")
    process = {"pid": os.getpid(), "process_created": psutil.Process().create_time()}
    run.update_status(state="running", step=47, steps=60, epochs=1, **process)
    app = open_page("runs", run=run.id)
    assert app.dataframe[0].value["Progress"].tolist() == [78]
    assert any(one.proto.text.startswith("78% of the steps") for one in app.get("progress"))
    assert any(one.value.startswith("78% · active-0001") for one in app.sidebar.text)


@pytest.mark.parametrize("state", sorted(table.STATES))
def test_every_state_has_a_style_and_an_error_a_box(
    runs: RunStore, trained: Run, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.create(trained.config(), f"run-{state}")
    error = "step 3 went wrong" if state in ("failed", "lost") else None
    now = run.status().updated
    run.update_status(state=state, step=3, steps=10, epoch=1, epochs=2, error=error, eta_seconds=42.0, finished=now)
    if state in ("starting", "running", "stopping"):  # as if this process trained it
        run.update_status(pid=os.getpid(), process_created=psutil.Process().create_time())
    app = open_page("runs", run=run.id)
    assert not app.exception
    assert f"{table.STATES[state].mark} {state}" in app.dataframe[0].value["State"].tolist()
    assert "step 3 of 10" in page_text(app)
    assert ("step 3 went wrong" in page_text(app)) == (error is not None)
    stops = [not button.disabled for button in app.button if button.label == "Stop"]
    assert stops == {"stopping": [False]}.get(state, [True] * (state in ("queued", "starting", "running")))
    assert ("42 s left" in page_text(app)) == (state in ("queued", "starting", "running", "stopping"))
    if state == "running":  # a click on Stop is acknowledged and shown at once
        monkeypatch.setattr("bsc_core.jobs.actions.stopping.start_escalation", lambda *_, **__: None)
        app.button(key=f"runs.stop.{run.id}").click().run()
        assert run.status().state == "stopping"
        assert [toast.value for toast in app.toast] == ["Run run-running stops after this step."]
        assert "◑ stopping" in app.dataframe[0].value["State"].tolist()
        assert "evaluation of its model" in page_text(app)
        assert "no progress for 30 s" in page_text(app)
        limits: list[dict[str, float]] = []
        monkeypatch.setattr(
            "bsc_core.jobs.actions.stopping.start_escalation", lambda _, **seconds: limits.append(seconds)
        )
        app.button(key=f"runs.stop.now.{run.id}").click().run()
        assert [one["grace_seconds"] for one in limits] == [0.0]
        assert [toast.value for toast in app.toast] == ["Run run-running ends now."]


def test_a_run_whose_process_is_gone_is_lost_and_shows_its_log(runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "gone")
    run.log_file.write_text("reading\nthe very last line\n", encoding="utf-8")
    run.update_status(state="running", pid=2**22 + 1, process_created=1.0)
    app = open_page("runs", run="gone")
    assert app.dataframe[0].value["State"].tolist() == ["? lost"]
    assert "the very last line" in page_text(app)


def test_stop_stops_a_queued_run(runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "waiting")
    app = open_page("runs", run="waiting")
    app.button(key="runs.stop.waiting").click().run()
    assert not app.exception
    assert run.status().state == "stopped"


@pytest.mark.parametrize(
    ("part", "words"), [("Config", "[training]"), ("Log", "The last 200 lines"), ("Model", "SentenceTransformer(")]
)
def test_a_tab_is_drawn_when_it_is_open(finished: Run, part: str, words: str) -> None:
    app = open_page("runs", run=finished.id)
    assert words not in page_text(app)
    app.session_state["runs.part.overview"] = part
    app.run()
    assert not app.exception
    assert words in page_text(app)


def test_two_runs_show_only_the_keys_that_differ(finished: Run, runs: RunStore) -> None:
    shutil.copytree(finished.folder, runs.root / "other-run")
    other = runs.get("other-run")
    config = finished.config()
    warmer = config.model_copy(update={"loss": config.loss.model_copy(update={"temperature": 0.5})})
    other.write_json("config", warmer.model_dump(mode="json"))
    link = {"run": finished.id, "compare": "other-run"}
    charts = [
        len(open_page("runs", **link, **{"runs.compare.part": part}).get("vega_lite_chart"))
        for part in ("Metrics", "Curves")
    ]
    assert charts == [1, 2]
    app = open_page("runs", **link, **{"runs.compare.part": "Settings"})
    assert not app.exception
    different = next(one.value for one in app.dataframe if "Key" in one.value.columns)
    assert different["Key"].tolist() == ["loss.temperature"]
    assert different.iloc[0].tolist()[1:] == ["0.1", "0.5"]


def test_an_unknown_run_in_the_url_selects_nothing(finished: Run) -> None:
    app = open_page("runs", run="no-such-run")
    assert not app.exception
    assert "Select a run" in page_text(app)
    assert url.TITLE in page_text(app)
    assert [one.value for one in app.text if "not found" in one.value] == [
        "The run no-such-run was not found; select another one."
    ]
    app.selectbox(key="run").set_value(finished.id).run()
    assert url.TITLE not in page_text(app)


def test_a_damaged_status_is_reported(finished: Run) -> None:
    (finished.folder / "status.json").write_text("{", encoding="utf-8")
    app = open_page("runs", run=finished.id)
    assert not app.exception
    assert "cannot be read" in page_text(app)


def test_only_new_bytes_of_the_metrics_are_read(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = table.metric_rows(finished)
    added = {"kind": "step", "step": 99, "loss": 1.0}
    finished.append_metrics(added)
    assert table.metric_rows(finished) == [*first, added]
    start = finished.metrics_file.stat().st_size
    finished.append_metrics(added)
    starts, read = [], Run.metrics
    monkeypatch.setattr(
        Run, "metrics", lambda run, position, **options: starts.append(position) or read(run, position, **options)
    )
    assert table.metric_rows(finished) == [*first, added, added]
    assert starts == [start]


def test_metrics_that_a_resumed_run_removes_are_not_shown(finished: Run) -> None:
    assert any(row["kind"] == "step" for row in table.metric_rows(finished))
    finished.rewind_metrics(step=0, epoch=0, ends_epoch=True)
    assert not any(row["kind"] == "step" for row in table.metric_rows(finished))


def test_sessions_do_not_keep_metrics(finished: Run) -> None:
    finished.append_metrics({"kind": "step", "step": 99, "loss": 123.456})
    app = open_page("runs", run=finished.id)
    assert "123.456" not in repr(app.session_state._state.filtered_state)


def test_resume_creates_a_new_run(runs: RunStore, trained: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from bsc_core.jobs.actions import launching

    monkeypatch.setattr(launching, "ensure_supervisor", lambda store, *, start: None)
    run = Run(runs.root / "ended-early")
    shutil.copytree(trained.folder, run.folder)
    run.update_status(state="stopped")
    jobs.launch(runs, trained.config(), "20260101-000000-waiting-0001")
    app = open_page("runs", run=run.id)
    app.button(key=f"runs.resume.{run.id}").click().run()
    assert not app.exception
    following = [one for one in runs.list() if one.status().resumed_from == run.id]
    message = f"Resumed as {short_id(following[0].id)}. Resumes after step 6 · place 2 of 2 in the queue."
    assert app.session_state[actions.RESUMED] == message  # the page that opens shows it
    assert [one.status().state for one in following] == ["queued"]
    assert "■ stopped, resumed" in open_page("runs").dataframe[0].value["State"].tolist()
    shutil.rmtree(run.checkpoints_folder)
    assert not any(button.label == "Resume" for button in open_page("runs", run=run.id).button)


def test_the_run_of_a_link_is_among_the_visible_rows_and_a_clicked_row_stays(finished: Run, runs: RunStore) -> None:
    for number in range(6):
        shutil.copytree(finished.folder, runs.root / f"29991231-00000{number}-copy-000{number}")
    app = open_page("runs", run=finished.id)
    by_age = [short_id(run.id) for run in runs.list()]
    assert app.dataframe[0].value["Run"].tolist() == [by_age[-1], *by_age[:-1]]
    app.session_state[table.CLICKED] = finished.id
    assert app.run().dataframe[0].value["Run"].tolist() == by_age


def test_all_compared_runs_of_a_link_are_among_the_visible_rows(finished: Run, runs: RunStore) -> None:
    for number in range(6):
        shutil.copytree(finished.folder, runs.root / f"29991231-00000{number}-copy-000{number}")
    newest, *_, last, oldest = runs.list()
    app = open_page("runs", run=newest.id, compare=[last.id, oldest.id])
    shown = app.dataframe[0].value["Run"].tolist()[:3]
    assert shown == [short_id(run.id) for run in (newest, last, oldest)]


@pytest.mark.parametrize("damage", ["vectors", "time"])
def test_a_damaged_run_does_not_hide_the_others(finished: Run, runs: RunStore, damage: str) -> None:
    run = runs.get(shutil.copytree(finished.folder, runs.root / "20270101-000000-copy-0001").name)
    if damage == "vectors":
        vectors = np.load(run.folder / "embeddings_after.npy")
        vectors[0] = np.nan
        np.save(run.folder / "embeddings_after.npy", vectors)
    else:
        text = run.metrics_file.read_text(encoding="utf-8")
        run.metrics_file.write_text(re.sub(r'"elapsed_seconds": ?[\d.e-]+', '"elapsed_seconds": null', text), "utf-8")
    app = open_page("runs")
    assert not app.exception
    assert any("on dev of 2 runs" in title for title in figure_titles(app))


def test_a_late_click_on_a_replaced_table_changes_no_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    clicked = {"selection": {"rows": [0]}}
    state = {
        table.CURRENT_TABLE: "table.new",
        "table.old": clicked,
        "table.new": clicked,
        "context": {"run": "resumed"},
    }
    monkeypatch.setattr(table.st, "session_state", state)
    table._apply_selection("table.old", ["stopped"])
    assert state["context"] == {"run": "resumed"}
    table._apply_selection("table.new", ["stopped"])
    assert state["context"] == {"run": "stopped"}


@pytest.mark.parametrize("page", ["start", "runs"])
def test_tables_of_runs_show_the_color_of_each_run(runs: RunStore, trained: Run, page: str) -> None:
    for name in ("a", "b"):
        runs.create(trained.config(), f"run-{name}")
    shown = open_page(page).dataframe[0]
    styles = shown.proto.arrow_data.styler.styles
    assert all(f"color: {color}" in styles for color in run_data.run_colors(["run-a", "run-b"]))
    assert shown.value[display.COLOR].nunique() == 1


def test_a_deleted_run_leaves_the_colors_of_the_others(runs: RunStore, trained: Run) -> None:
    created = [runs.create(trained.config(), f"run-{name}") for name in "abc"]
    colors = run_data.run_colors(["run-b", "run-c"])
    created[0].update_status(state="done")
    jobs.trash(runs, created[0])
    assert run_data.run_colors(["run-b", "run-c"]) == colors


def test_without_a_selection_the_curves_of_the_runs_have_the_colors_of_the_table(finished: Run, runs: RunStore) -> None:
    runs.create(finished.config(), "run-without-steps")
    app = open_page("runs")
    figures = app.get("vega_lite_chart")
    assert len(figures) == 2
    assert any("on dev of 1 run; highest: " in title for title in figure_titles(app))  # the other one has no metric
    (color,) = run_data.run_colors([finished.id])
    assert all(color in str(one.proto) for one in figures)
    config = finished.config()
    runs.create(
        config.model_copy(update={"data": config.data.model_copy(update={"train": "other.tsv"})}), "run-on-other"
    )
    titles = figure_titles(open_page("runs"))
    assert any("on dev of 1 run" in title for title in titles)
    assert not any("highest" in title for title in titles), "metrics on different data are not comparable"


def test_a_curve_of_very_many_evaluations_has_a_limited_number_of_points() -> None:
    rows = [{"kind": "evaluation", "epoch": epoch, "dev": {"mrr": 0.5}} for epoch in range(5_000)]
    points = sweep._evaluations({"a": rows, "b": rows[:3]}, "mrr")
    assert len(points["a"]) == sweep.MAX_EPOCHS
    assert points["a"][-1]["epoch"] == 4_999
    assert [point["epoch"] for point in points["b"]] == [0, 1, 2]
