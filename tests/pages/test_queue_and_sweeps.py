"""The queue on the Runs page, and a group of runs as a whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.evaluation import compare
from bsc_core.jobs import Queue, launch, launch_group
from bsc_core.runs import Run, RunStore
from pages.ui import queue_panel, run_list, sweep_sure, sweep_view

GROUP = "20260101-000000-sweep-0001"
TEMPERATURES = (0.05, 0.5)
BEST = {(0.05, 0): 0.6, (0.05, 1): 0.7, (0.5, 0): 0.8, (0.5, 1): None}


def shown(app: AppTest) -> str:
    """Every word on the page outside tables."""
    kinds = ("title", "subheader", "markdown", "text", "caption", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def titles(app: AppTest) -> list[str]:
    return [one.label for one in app.expander]


def pressed(app: AppTest, key: str) -> AppTest:
    app.button(key=key).click().run()
    assert not app.exception
    return app


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
    made = launch_group(runs, configs, GROUP, over=["loss.temperature"])
    for run, best in zip(made, BEST.values(), strict=True):
        shutil.copy(trained.metrics_file, run.metrics_file)
        name = "mrr" if best is not None else None
        run.update_status(state="done" if best else "failed", metric_name=name, metric_best=best, finished=1.0)
        Queue(runs.root).finish(run.id)
    return made


def test_runs_that_wait_stand_in_their_order_and_can_be_moved(pages: type, runs: RunStore, waiting: list[str]) -> None:
    a, b, c = waiting
    app = pages.alone("runs")
    assert "Queue: 3 runs wait, 1 at a time" in titles(app)
    assert [f"{place}.  {run_id}" in shown(app) for place, run_id in enumerate(waiting, 1)] == [True] * 3
    pressed(app, f"runs.queue.up.{b}")
    assert Queue(runs.root).waiting() == [b, a, c]
    pressed(app, f"runs.queue.first.{c}")
    assert Queue(runs.root).waiting() == [c, b, a]
    pressed(app, f"runs.queue.down.{c}")
    assert Queue(runs.root).waiting() == [b, c, a]
    assert f"1.  {b}" in shown(app)
    assert app.button(key=f"runs.queue.up.{b}").disabled
    assert app.button(key=f"runs.queue.down.{a}").disabled


def test_a_run_taken_out_of_the_queue_is_stopped(pages: type, runs: RunStore, waiting: list[str]) -> None:
    pressed(pages.alone("runs"), f"runs.queue.take-out.{waiting[1]}")
    assert runs.get(waiting[1]).status().state == "stopped"


def test_pausing_says_so_and_going_on_starts_again(pages: type, runs: RunStore, waiting: list[str]) -> None:
    app = pressed(pages.alone("runs"), "runs.queue.pause")
    assert Queue(runs.root).paused
    assert "Queue: 3 runs wait, 1 at a time · paused: no run is started" in titles(app)
    pressed(app, "runs.queue.pause")
    assert not Queue(runs.root).paused


def test_the_number_of_slots_is_kept_with_the_queue(pages: type, runs: RunStore, waiting: list[str]) -> None:
    app = pages.alone("runs")
    app.number_input(key="runs.slots.1").set_value(3).run()
    assert not app.exception
    assert Queue(runs.root).slots == 3
    assert "Queue: 3 runs wait, 3 at a time" in titles(app)


def test_a_queue_that_cannot_be_read_is_one_calm_sentence(
    pages: type, runs: RunStore, waiting: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bsc_core.errors import JobError

    def locked(queue: Queue) -> None:
        raise JobError(f"{queue.path}: another process holds the queue")

    monkeypatch.setattr(Queue, "look", locked)
    app = pages.alone("runs", run=waiting[0])
    assert not app.exception
    assert "another process holds the queue" in shown(app)
    assert app.dataframe[0].value["State"].tolist() == ["○ queued"] * 3


def test_a_run_whose_folder_is_gone_keeps_the_panel_whole(pages: type, runs: RunStore, waiting: list[str]) -> None:
    shutil.rmtree(runs.get(waiting[0]).folder)
    app = pages.alone("runs")
    assert not app.exception
    assert len(app.dataframe[0].value) == 2


def test_a_run_that_starts_from_another_says_what_it_waits_for(pages: type, runs: RunStore, trained: Run) -> None:
    config = trained.config()
    launch(runs, config, "first")
    chained = config.model_copy(update={"encoder": config.encoder.model_copy(update={"name": "run:first"})})
    launch(runs, chained, "second")
    app = pages.alone("runs", run="second")
    assert "Waits for run first, whose model it starts from" in shown(app)


def test_a_run_whose_cluster_is_away_says_so_in_the_queue_and_in_its_detail(
    pages: type, runs: RunStore, waiting: list[str]
) -> None:
    away = "the Ray cluster at http://127.0.0.1:9 does not answer; it is asked again"
    runs.get(waiting[1]).update_status(backend="ray", message=away)
    queue = shown(pages.alone("runs"))
    assert f"{waiting[1]} · {away}" in queue
    app = pages.alone("runs", run=waiting[1])
    assert away in [bar.proto.text for bar in app.get("progress")]


def test_a_title_counts_what_waits() -> None:
    assert queue_panel.sentence([], 2, paused=False) == "Queue: nothing waits, 2 at a time"
    assert queue_panel.sentence(["a"], 1, paused=False) == "Queue: 1 run waits, 1 at a time"


def test_a_group_shows_its_runs_only_with_its_axes_and_its_summary(
    pages: type, finished: Run, sweep: list[Run]
) -> None:
    app = pages.alone("runs", group=GROUP)
    assert not app.exception
    assert app.dataframe[0].value["Run"].tolist() == [run.id for run in sweep]
    assert "sweep-0001: 3 of 4 runs done, 1 failed" in shown(app)
    figure = json.loads(app.get("vega_lite_chart")[0].proto.spec)
    assert figure["title"] == ["The best of 4 runs reaches mrr 0.800", "with temperature 0.5"]
    assert len(pages.alone("runs").dataframe[0].value) == 5


def part(pages: type, name: str) -> AppTest:
    app = pages.alone("runs", group=GROUP)
    app.session_state[f"runs.sweep.{GROUP}"] = name
    app.run()
    assert not app.exception
    return app


def test_the_settings_have_mean_and_deviation_over_their_seeds(pages: type, sweep: list[Run]) -> None:
    table = part(pages, "Settings").dataframe[-1].value.to_dict("records")
    told = [(row["loss.temperature"], row["mrr, mean"], row["Deviation"], row["Best"]) for row in table]
    assert told == [("0.5", "0.800", "one value", "0.800"), ("0.05", "0.650", "0.071", "0.700")]
    assert [(row["Runs"], row["Seeds"]) for row in table] == [(2, "0, 1"), (2, "0, 1")]


def test_the_best_setting_is_a_config_to_train_with(pages: type, sweep: list[Run]) -> None:
    app = part(pages, "Best setting")
    assert "temperature = 0.5" in shown(app)
    assert "loss.temperature 0.5: mrr 0.800 over 2 seeds" in shown(app)
    pressed(app, f"runs.best.train.{GROUP}")
    assert app.session_state["plan"]["loss"]["temperature"] == 0.5


def measured(run: Run, trained: Run, lost: float, *, other_data: bool = False) -> None:
    """The run is measured as the trained one, less so much of the MRR of its first query."""
    shutil.copytree(trained.folder / "evaluation", run.folder / "evaluation")
    queries = np.array(run.array("evaluation/after-dev-queries"))
    queries["mrr"][0] -= lost
    run.write_array("evaluation/after-dev-queries", queries)
    if other_data:
        about = run.read_json("evaluation/measured") or {}
        about["after"]["dev"]["digest"] = "other"
        run.write_json("evaluation/measured", about)
    (run.folder / "evaluation" / "intervals.json").unlink()
    run.update_status(metric_best=float(queries["mrr"].mean()))


@pytest.mark.parametrize(
    ("other_data", "told"),
    [
        (
            False,
            "The best cannot be told apart from the next one (loss.temperature 0.05): +0.100 [+0.000, +0.300], p = 1.",
        ),
        (
            True,
            "The best is not held against the next one (loss.temperature 0.05): the runs were measured on other dev",
        ),
    ],
)
def test_the_best_setting_is_held_against_the_next_one(
    pages: type, sweep: list[Run], trained: Run, other_data: bool, told: str
) -> None:
    for run, lost in zip(sweep, (0.4, 0.4, 0.0), strict=False):
        measured(run, trained, lost, other_data=other_data and lost > 0)
    for name in ("Settings", "Best setting"):
        assert told in shown(part(pages, name))
    assert "loss.temperature 0.5: mrr 1.000 [1.000, 1.000] over 2 seeds" in shown(part(pages, "Best setting"))
    rows = part(pages, "Settings").dataframe[-1].value.to_dict("records")
    for row in rows:
        low, high = (float(end) for end in row["95% interval"].strip("[]").split(", "))
        assert low <= float(row["mrr, mean"]) <= high


def test_settings_whose_runs_keep_no_values_have_no_interval(pages: type, sweep: list[Run]) -> None:
    app = part(pages, "Settings")
    assert app.dataframe[-1].value["95% interval"].tolist() == ["no interval"] * 2
    assert "The best is not held against the next one (loss.temperature 0.05): run " in shown(app)


def test_a_setting_above_the_next_one_is_called_so_where_that_is_more_than_chance() -> None:
    gained = np.linspace(0.01, 0.03, 40)
    above = sweep_sure.sentence(compare(np.zeros(40), gained, seed=0), "temperature 0.1")
    assert above.startswith("The best is above the next one (temperature 0.1) by +0.020 [+0.0")
    assert above.endswith("p < 0.001.")
    one = sweep_sure.sentence(compare([0.1], [0.3], seed=0), "temperature 0.1")
    assert one == "The best cannot be told apart from the next one (temperature 0.1): there is one query."
    same = sweep_sure.sentence(compare(gained, gained, seed=0), "temperature 0.1")
    assert same == "The best cannot be told apart from the next one (temperature 0.1): no query differs."


def test_the_curves_of_all_runs_lie_in_one_picture(pages: type, sweep: list[Run]) -> None:
    charts = [json.loads(chart.proto.spec) for chart in part(pages, "Curves").get("vega_lite_chart")]
    assert [chart["title"] for chart in charts] == [
        "The loss; the best is sweep-0001-003",
        "mrr on dev; the best is sweep-0001-003",
    ]


def test_a_group_of_which_nothing_is_done_says_so(pages: type, runs: RunStore, trained: Run) -> None:
    launch_group(runs, [trained.config(), _warmer(trained)], GROUP)
    app = pages.alone("runs", group=GROUP)
    assert not app.exception
    assert "sweep-0001: 0 of 2 runs done, 2 queued" in shown(app)
    assert "when the first run is done" in shown(part(pages, "Best setting"))


def _warmer(run: Run) -> Any:
    config = run.config()
    return config.model_copy(update={"loss": config.loss.model_copy(update={"temperature": 0.9})})


def test_runs_of_one_setting_lie_on_the_axis_of_their_seeds() -> None:
    cell = {"setting": {}, "runs": ["a", "b"], "seeds": [0, 1], "values": [0.5, None]}
    chosen, results = sweep_view.of_runs({"settings": [cell]})
    assert chosen == {"a": {"training.seed": 0}, "b": {"training.seed": 1}}
    assert results == {"a": 0.5, "b": None}


def test_a_run_of_a_group_is_shown_when_it_is_chosen(pages: type, sweep: list[Run]) -> None:
    app = pages.alone("runs", group=GROUP, run=sweep[2].id)
    assert not app.exception
    assert "best on dev: mrr 0.800" in shown(app)
    assert f"runs.duplicate.{sweep[2].id}" in [button.key for button in app.button]


def test_a_run_outside_the_group_is_not_chosen_in_it(pages: type, finished: Run, sweep: list[Run]) -> None:
    app = pages.alone("runs", group=GROUP, run=finished.id)
    assert not app.exception
    assert "3 of 4 runs done" in shown(app)


def test_without_groups_the_table_has_no_such_column(pages: type, finished: Run, tmp_path: Path) -> None:
    app = pages.alone("runs")
    assert not any(box.key == run_list.GROUP for box in app.selectbox)
