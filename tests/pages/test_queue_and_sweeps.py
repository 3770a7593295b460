"""Runs page: the queue panel, and a group of runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core import formatting, jobs
from bsc_core.evaluation import compare
from bsc_core.jobs import Queue, launch, launch_group
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import RESUMED
from bsc_core.runs.ids import short_id
from pages.ui.runs import queue, table
from pages.ui.runs import sweep as sweep_view
from tests.helpers.pages import click, expander_labels, figure_titles, open_page, page_text, prepare_page

GROUP = "20260101-000000-sweep-0001"
TEMPERATURES = (0.05, 0.5)
BEST = {(0.05, 0): 0.6, (0.05, 1): 0.7, (0.5, 0): 0.8, (0.5, 1): None}


@pytest.fixture
def waiting(runs: RunStore, trained: Run) -> list[str]:
    """Three runs in the queue, in this order."""
    return [launch(runs, trained.config(), f"run-{name}").id for name in "abc"]


@pytest.fixture
def sweep(runs: RunStore, trained: Run) -> list[Run]:
    """Two temperatures with two seeds each; all are done but the last, which failed."""
    config = trained.config()
    configs = [
        config.model_copy(
            update={
                "loss": config.loss.model_copy(update={"temperature": temperature}),
                "training": config.training.model_copy(update={"seed": seed}),
            }
        )
        for temperature, seed in BEST
    ]
    launched = launch_group(runs, configs, GROUP, over=["loss.temperature"])
    for run, best in zip(launched, BEST.values(), strict=True):
        shutil.copy(trained.metrics_file, run.metrics_file)
        name = "mrr" if best is not None else None
        run.update_status(state="done" if best else "failed", metric_name=name, metric_best=best, finished=1.0)
        Queue(runs.root).finish(run.id)
    return launched


def test_waiting_runs_are_listed_in_order_and_can_be_moved(runs: RunStore, waiting: list[str]) -> None:
    a, b, c = waiting
    app = open_page("runs")
    assert "Queue: 3 runs waiting, 1 at a time" in expander_labels(app)
    assert [f"{position}.  {run_id}" in page_text(app) for position, run_id in enumerate(waiting, 1)] == [True] * 3
    click(app, f"runs.queue.up.{b}")
    assert Queue(runs.root).waiting() == [b, a, c]
    click(app, f"runs.queue.first.{c}")
    assert Queue(runs.root).waiting() == [c, b, a]
    click(app, f"runs.queue.down.{c}")
    assert Queue(runs.root).waiting() == [b, c, a]
    assert f"1.  {b}" in page_text(app)
    assert app.button(key=f"runs.queue.up.{b}").disabled
    assert app.button(key=f"runs.queue.down.{a}").disabled


def test_a_run_taken_out_of_the_queue_is_stopped(runs: RunStore, waiting: list[str]) -> None:
    click(open_page("runs"), f"runs.queue.take-out.{waiting[1]}")
    assert runs.get(waiting[1]).status().state == "stopped"


def test_the_queue_can_be_paused_and_continued(runs: RunStore, waiting: list[str]) -> None:
    app = click(open_page("runs"), "runs.queue.pause")
    assert Queue(runs.root).snapshot().paused
    assert "Queue: 3 runs waiting, 1 at a time · paused" in expander_labels(app)
    click(app, "runs.queue.pause")
    assert not Queue(runs.root).snapshot().paused


def test_the_number_of_slots_is_stored_with_the_queue(runs: RunStore, waiting: list[str]) -> None:
    app = open_page("runs")
    app.number_input(key="runs.slots.1").set_value(3).run()
    assert not app.exception
    assert Queue(runs.root).snapshot().slots == 3
    assert "Queue: 3 runs waiting, 3 at a time" in expander_labels(app)


def test_an_unreadable_queue_is_reported(runs: RunStore, waiting: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from bsc_core.errors import JobError

    def locked(queue: Queue) -> None:
        raise JobError(f"{queue.path}: another process has locked the queue")

    monkeypatch.setattr(Queue, "snapshot", locked)
    app = open_page("runs", run=waiting[0])
    assert not app.exception
    assert "another process has locked the queue" in page_text(app)
    assert app.dataframe[0].value["State"].tolist() == ["○ queued"] * 3


def test_a_deleted_run_folder_leaves_the_panel_working(runs: RunStore, waiting: list[str]) -> None:
    shutil.rmtree(runs.get(waiting[0]).folder)
    app = open_page("runs")
    assert not app.exception
    assert len(app.dataframe[0].value) == 2


def test_a_chained_run_shows_which_run_it_waits_for(runs: RunStore, trained: Run) -> None:
    config = trained.config()
    launch(runs, config, "first")
    chained = config.model_copy(update={"encoder": config.encoder.model_copy(update={"name": "run:first"})})
    launch(runs, chained, "second")
    app = open_page("runs", run="second")
    assert "Waits for run first, whose model it starts from" in page_text(app)


def test_an_unreachable_cluster_is_shown_in_the_queue_and_in_the_run(runs: RunStore, waiting: list[str]) -> None:
    message = "the Ray cluster at http://127.0.0.1:9 does not respond; the request is repeated"
    runs.get(waiting[1]).update_status(backend="ray", message=message)
    assert f"{waiting[1]} · {message}" in page_text(open_page("runs"))
    app = open_page("runs", run=waiting[1])
    assert f"{message} · place 2 of 3 in the queue" in [bar.proto.text for bar in app.get("progress")]


def test_a_waiting_run_shows_its_place_in_the_queue(runs: RunStore, waiting: list[str]) -> None:
    bars = open_page("runs", run=waiting[1]).get("progress")
    assert [bar.proto.text for bar in bars] == ["Waits for its turn: place 2 of 3 in the queue"]


def test_the_title_counts_waiting_runs() -> None:
    assert queue.title([], 2, paused=False) == "Queue: no run waiting, 2 at a time"
    assert queue.title(["a"], 1, paused=False) == "Queue: 1 run waiting, 1 at a time"


def test_a_group_shows_its_runs_with_axes_and_summary(finished: Run, sweep: list[Run]) -> None:
    app = open_page("runs", group=GROUP)
    assert not app.exception
    assert app.dataframe[0].value["Run"].tolist() == [short_id(run.id) for run in sweep]
    assert "sweep-0001: 3 of 4 runs done, 1 failed" in page_text(app)
    assert "Highest of the 3 runs that are done: MRR 0.800 with temperature 0.5" in figure_titles(app)
    assert len(open_page("runs").dataframe[0].value) == 5


def open_tab(name: str) -> AppTest:
    """Open a tab of the group."""
    app = open_page("runs", group=GROUP)
    app.session_state["runs.sweep.part"] = name
    app.run()
    assert not app.exception
    return app


def test_all_runs_of_a_sweep_are_stopped_together(runs: RunStore, trained: Run) -> None:
    launched = launch_group(runs, [trained.config()] * 3, GROUP, over=[])
    app = open_page("runs", group=GROUP)
    assert app.button(key=f"runs.sweep.stop.{GROUP}").label == "Stop 3 runs now"
    click(app, f"runs.sweep.stop.{GROUP}")
    assert [runs.get(run.id).status().state for run in launched] == ["stopped"] * 3
    assert [toast.value for toast in app.toast] == ["Stopping 3 runs. An active run ends after its current step."]
    assert f"runs.sweep.stop.{GROUP}" not in {button.key for button in app.button}


def test_a_group_of_seeds_has_their_mean_and_deviation(sweep: list[Run]) -> None:
    sentence = sweep_view.best_against_next(jobs.group_summary(sweep[:2]), sweep[:2])
    assert sentence == "Mean MRR: 0.650 over 2 seeds, standard deviation 0.071."


def test_the_curves_of_a_sweep_are_smoothed(sweep: list[Run]) -> None:
    def losses(**view: str) -> list[float]:
        app = open_page("runs", group=GROUP, **{"runs.sweep.part": "Curves"}, **view)
        assert not app.exception
        chart = app.get("vega_lite_chart")[0].proto
        table = pyarrow.ipc.open_stream(chart.data.data).read_all().to_pylist()
        return [point["value"] for point in table]

    plain, smooth = losses(), losses(smoothing="0.9")
    assert len(plain) == len(smooth) > 2
    assert np.std(smooth) < np.std(plain)


def test_settings_have_mean_and_deviation_over_seeds(sweep: list[Run]) -> None:
    table = open_tab("Settings").dataframe[-1].value.to_dict("records")
    reported = [(row["Temperature"], row["MRR, mean"], row["Std. dev."], row["Best"]) for row in table]
    assert reported == [("0.5", "0.800", "one run", "0.800"), ("0.05", "0.650", "0.071", "0.700")]
    assert [(row["Runs"], row["Seeds"]) for row in table] == [(2, "0, 1"), (2, "0, 1")]


def test_curves_show_a_resumed_run_once(sweep: list[Run]) -> None:
    sweep[0].update_status(state="stopped")
    sweep[1].update_status(resumed_from=sweep[0].id)
    sweep[1].write_signed(RESUMED, {"from": sweep[0].id})
    assert figure_titles(open_tab("Curves"))


def test_runs_with_different_main_metrics_are_compared_by_one_of_them(sweep: list[Run], trained: Run) -> None:
    assert "main metrics" not in page_text(open_page("runs", group=GROUP))
    dev = trained.evaluation("after")["dev"]
    for run, name in zip(sweep, ("spearman", "mrr", "mrr"), strict=False):
        shutil.copytree(trained.folder / "evaluation", run.folder / "evaluation")
        run.update_status(metric_name=name, metric_best=dev[name])
    app = open_tab("Settings")
    assert "The main metrics of the runs differ" in page_text(app)
    table, name = app.dataframe[-1].value, formatting.metric_name(jobs.group_summary(sweep)["metric"])
    assert set(table[f"{name}, mean"]) == {formatting.metric(dev[{"MRR": "mrr", "Spearman": "spearman"}[name]])}


def test_the_best_setting_is_a_config_to_train_with(sweep: list[Run]) -> None:
    app = open_tab("Best setting")
    assert "temperature = 0.5" in page_text(app)
    assert "Temperature 0.5: MRR 0.800 over 1 of 2 seeds" in page_text(app)
    click(app, f"runs.best.train.{GROUP}")
    assert app.session_state["sent_settings"]["loss"]["temperature"] == 0.5


def add_results(run: Run, trained: Run, loss_of_mrr: float, *, other_data: bool = False) -> None:
    """Copy the results of the trained run, with the MRR of the first query reduced."""
    shutil.copytree(trained.folder / "evaluation", run.folder / "evaluation")
    queries = np.array(run.array("evaluation/after-dev-queries"))
    queries["mrr"][0] -= loss_of_mrr
    run.write_array("evaluation/after-dev-queries", queries)
    if other_data:
        about = run.read_json("evaluation/results") or {}
        about["after"]["dev"]["digest"] = "other"
        run.write_json("evaluation/results", about)
    (run.folder / "evaluation" / "intervals.json").unlink()
    run.update_status(metric_best=float(queries["mrr"].mean()))


NO_CLEAR_BEST = "No setting is clearly best. Temperature 0.5 has the highest mean MRR, "
NEXT = "Temperature 0.05, the next best"


@pytest.mark.parametrize(
    ("other_data", "sentence"),
    [
        (
            False,
            f"The difference from {NEXT}, is +0.100 [+0.000, +0.300], p = 1.",
        ),
        (
            True,
            f"It is not compared with {NEXT}: the runs were evaluated on different dev",
        ),
    ],
)
def test_the_best_setting_is_compared_with_the_next_one(
    sweep: list[Run], trained: Run, other_data: bool, sentence: str
) -> None:
    for run, loss_of_mrr in zip(sweep, (0.4, 0.4, 0.0), strict=False):
        add_results(run, trained, loss_of_mrr, other_data=other_data and loss_of_mrr > 0)
    for name in ("Settings", "Best setting"):
        text = page_text(open_tab(name))
        assert f"{NO_CLEAR_BEST}1.000" in text
        assert sentence in text
    assert "These settings have 1 and 2 finished runs." in page_text(open_tab("Settings"))
    assert "Temperature 0.5: MRR 1.000 [1.000, 1.000] over 1 of 2 seeds" in page_text(open_tab("Best setting"))
    rows = open_tab("Settings").dataframe[-1].value.to_dict("records")
    for row in rows:
        low, high = (float(end) for end in row["95% interval"].strip("[]").split(", "))
        assert low <= float(row["MRR, mean"]) <= high


def test_settings_without_stored_results_have_no_interval(sweep: list[Run]) -> None:
    app = open_tab("Settings")
    assert app.dataframe[-1].value["95% interval"].tolist() == ["no interval"] * 2
    assert NO_CLEAR_BEST in page_text(app)
    assert f"It is not compared with {NEXT}: run " in page_text(app)


def test_the_best_setting_is_better_only_if_that_is_significant() -> None:
    gains = np.linspace(0.01, 0.03, 40)
    above = sweep_view.best_sentence(compare(np.zeros(40), gains, seed=0), "cold", "warm", "MRR", 0.02, 0.01)
    values = "It has the highest mean MRR, 0.020 (0.010 before training)."
    assert above.startswith(
        f"cold is the best setting. {values} The difference from warm, the next best, is +0.020 [+0.0"
    )
    assert above.endswith(", p < 0.001.")
    unclear = (
        "No setting is clearly best. cold has the highest mean MRR, 0.300. The difference from warm, the next best"
    )
    one = sweep_view.best_sentence(compare([0.1], [0.3], seed=0), "cold", "warm", "MRR", 0.3)
    assert one == f"{unclear}, is not tested: there is only one query."
    same = sweep_view.best_sentence(compare(gains, gains, seed=0), "cold", "warm", "MRR", 0.3)
    assert same == f"{unclear}, is not tested: no query differs."


def test_the_curves_of_all_runs_share_one_figure(sweep: list[Run]) -> None:
    titles = figure_titles(open_tab("Curves"))
    assert titles[-2:] == [f"{name}; best run sweep-0001 003 temperature-0.5-seed-0" for name in ("Loss", "MRR on dev")]


def test_a_group_without_a_finished_run_is_reported(runs: RunStore, trained: Run) -> None:
    launch_group(runs, [trained.config(), _warmer(trained)], GROUP)
    app = open_page("runs", group=GROUP)
    assert not app.exception
    assert "sweep-0001: 0 of 2 runs done, 2 queued" in page_text(app)
    assert "when the first run is done" in page_text(open_tab("Best setting"))


def _warmer(run: Run) -> Any:
    config = run.config()
    return config.model_copy(update={"loss": config.loss.model_copy(update={"temperature": 0.9})})


def test_runs_of_one_setting_differ_by_seed_on_the_axes() -> None:
    cell = {"setting": {}, "runs": ["a", "b"], "seeds": [0, 1], "values": [0.5, None]}
    chosen, results = sweep_view.run_values({"settings": [cell]})
    assert chosen == {"a": {"training.seed": 0}, "b": {"training.seed": 1}}
    assert results == {"a": 0.5, "b": None}


def test_the_link_of_a_comparison_has_its_group(sweep: list[Run], trained: Run) -> None:
    for run in sweep:
        add_results(run, trained, 0.1)
    app = open_page("runs", group=GROUP, run=sweep[0].id, compare=sweep[2].id)
    assert not app.exception
    (link,) = [code.value for code in app.code if "compare=" in code.value]
    assert f"group={GROUP}" in link


def test_a_selected_run_of_a_group_is_shown(sweep: list[Run]) -> None:
    app = open_page("runs", group=GROUP, run=sweep[2].id)
    assert not app.exception
    assert "best on dev: MRR 0.800" in page_text(app)
    assert f"runs.duplicate.{sweep[2].id}" in [button.key for button in app.button]


def test_a_run_outside_the_group_is_shown_among_all_runs(finished: Run, sweep: list[Run]) -> None:
    app = open_page("runs", group=GROUP, run=finished.id)
    assert not app.exception
    assert app.selectbox(key=table.GROUP).value == table.ALL_RUNS
    assert f"runs.duplicate.{finished.id}" in [button.key for button in app.button]
    app.selectbox(key=table.GROUP).set_value(GROUP).run()
    assert "3 of 4 runs done" in page_text(app)
    assert app.selectbox(key="run").value == "none"


def test_a_link_to_a_group_leaves_the_run_of_the_previous_page(finished: Run, sweep: list[Run]) -> None:
    app = prepare_page("runs", group=GROUP)
    app.session_state["context"] = {"run": finished.id}
    app.run()
    assert "3 of 4 runs done" in page_text(app)
    assert app.selectbox(key="run").value == "none"


def test_without_groups_there_is_no_group_box(finished: Run, tmp_path: Path) -> None:
    app = open_page("runs")
    assert not any(box.key == table.GROUP for box in app.selectbox)
