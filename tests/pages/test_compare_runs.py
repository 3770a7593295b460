"""Runs beside each other: seeds as one setting, intervals and verdicts, wins and losses, what cannot be compared."""

from __future__ import annotations

import shutil
from urllib.parse import parse_qs

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.comparison import keep_measured
from bsc_core.data import SPLIT_SEED
from bsc_core.measuring import measure
from bsc_core.preparation.prepare import load_experiment
from bsc_core.runs import Run, RunStore
from pages.ui import compare_table, compared, run_list
from pages.ui.compare_view import View
from pages.ui.comparing import differences

COMPARED = "A difference?"


def shown(app: AppTest) -> str:
    kinds = ("title", "subheader", "markdown", "text", "caption", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def tables(app: AppTest, column: str) -> list:
    return [table.value for table in app.dataframe if column in table.value.columns]


@pytest.fixture
def another(finished: Run, runs: RunStore):
    """Makes a run like the finished one with other settings and vectors that are moved by noise."""
    data = load_experiment(finished.config().data, seed=SPLIT_SEED)

    def make(name: str, *, noise: float = 0.0, keeps: bool = True, **training: object) -> Run:
        shutil.copytree(finished.folder, runs.root / name)
        run = runs.get(name)
        config = run.config()
        config = config.model_copy(update={"training": config.training.model_copy(update=training)})
        run.write_json("config", config.model_dump(mode="json"))
        vectors = np.array(run.array("embeddings_after"))
        moved = vectors + noise * np.random.default_rng(len(name)).standard_normal(vectors.shape).astype(np.float32)
        run.write_array("embeddings_after", moved)
        run.write_json("evaluation/after", measure(config, data, moved))
        if keeps:
            keep_measured(run, data)
        else:
            for path in run.folder.glob("evaluation/*"):
                if path.name not in ("before.json", "after.json"):
                    path.unlink()
        return run

    return make


def test_two_runs_have_intervals_a_verdict_and_the_queries_that_were_won_and_lost(pages, finished, another) -> None:
    another("noisy", noise=0.4, learning_rate=0.5)
    app = pages.alone("runs", run=finished.id, compare="noisy")
    assert not app.exception
    (compared_table,) = tables(app, COMPARED)
    assert compared_table["Metric"].tolist()[0] == "mrr"
    values = compared_table.iloc[0].tolist()
    assert all("[" in value for value in values[1:4])
    assert values[4].startswith(("yes, ", "cannot be told from chance: "))
    by_query = dict(zip(compared_table["Metric"], compared_table["Better / worse / equal"], strict=True))
    assert " / " in by_query["mrr"]
    assert by_query["spearman"] == "not by query"
    (won,) = tables(app, "Right document")
    assert won["Query"].str.startswith("how do i").all()
    assert won.columns[-2:].tolist() == ["First by learning_rate 0.001", "First by learning_rate 0.5"]
    assert (won["Change"].str[0] == "−").any()
    assert "Of 4 queries learning_rate 0.5 is better on" in shown(app)
    assert "nan" not in shown(app).lower()


def test_seeds_count_as_one_setting_unless_they_are_taken_apart(pages, finished, another) -> None:
    for seed in (1, 2):
        another(f"seed-{seed}", noise=0.2, seed=seed)
    another("warm", noise=0.3, learning_rate=0.5)
    chosen = {"run": finished.id, "compare": ["seed-1", "seed-2", "warm"]}
    app = pages.alone("runs", **chosen)
    assert not app.exception
    (lines,) = tables(app, COMPARED)
    assert lines.columns[1:4].tolist() == ["Untrained", "learning_rate 0.001 · 3 seeds", "learning_rate 0.5"]
    app.selectbox(key="seeds").set_value("apart").run()
    assert not app.exception
    assert len(tables(app, "Best")[0]) == 4


def test_seeds_of_one_setting_alone_are_held_against_the_untrained_encoder(pages, finished, another) -> None:
    another("seed-1", noise=0.2, seed=1)
    app = pages.alone("runs", run=finished.id, compare="seed-1")
    assert not app.exception
    assert app.selectbox(key="against").options == ["Untrained"]
    assert "differ in their seed alone" in shown(app)
    assert tables(app, COMPARED)


def test_the_address_holds_metric_base_and_order(pages, finished, another) -> None:
    another("noisy", noise=0.4, learning_rate=0.5)
    chosen = {"run": finished.id, "compare": "noisy"}
    app = pages.alone("runs", **chosen)
    app.selectbox(key="metric").set_value("spearman").run()
    app.selectbox(key="against").set_value("untrained").run()
    assert not app.exception
    (link,) = [code.value for code in app.code if code.value.startswith("http") or code.value.startswith("?")]
    asked = parse_qs(link.partition("?")[2])
    assert (asked["run"], asked["compare"]) == ([finished.id], ["noisy"])
    assert (asked["metric"], asked["against"], asked["split"]) == (["spearman"], ["Untrained"], ["dev"])
    again = pages.alone("runs", **asked)
    assert again.selectbox(key="metric").value == "spearman"
    assert again.selectbox(key="against").value == "untrained"
    assert tables(again, "Label"), "a metric of all pairs is told pair by pair"


@pytest.mark.parametrize("asked", [{"metric": "no-such"}, {"against": "gone"}, {"split": "test"}, {"seeds": "x"}])
def test_an_address_that_asks_for_what_is_not_there_shows_the_usual_view(pages, finished, another, asked) -> None:
    another("noisy", noise=0.4, learning_rate=0.5)
    app = pages.alone("runs", run=finished.id, compare="noisy", **asked)
    assert not app.exception
    assert app.selectbox(key="metric").value == "mrr"
    assert tables(app, COMPARED)


def test_an_older_run_is_compared_from_its_vectors(pages, finished, another) -> None:
    another("old", noise=0.4, keeps=False, learning_rate=0.5)
    app = pages.alone("runs", run=finished.id, compare="old")
    assert not app.exception
    assert all("[" in value for value in tables(app, COMPARED)[0].iloc[0].tolist()[1:4])


def test_without_its_data_a_run_is_compared_and_only_the_texts_are_missing(pages, finished, another) -> None:
    gone = "/nowhere/pairs.jsonl"
    for run in (finished, another("noisy", noise=0.4, learning_rate=0.5)):
        config = run.config()
        run.write_json("config", config.model_dump(mode="json") | {"data": {**config.data.model_dump(), "train": gone}})
    app = pages.alone("runs", run=finished.id, compare="noisy")
    assert not app.exception
    assert "The texts cannot be shown" in shown(app)
    assert tables(app, COMPARED)[0]["Metric"].tolist()[0] == "mrr"
    assert "Row" in tables(app, "Change")[0].columns


def test_runs_on_other_rows_have_numbers_and_no_verdict(pages, finished, another) -> None:
    other = another("other", learning_rate=0.5)
    about = other.read_json("evaluation/measured")
    about["after"]["dev"]["digest"] = "of other rows"
    other.write_json("evaluation/measured", about)
    app = pages.alone("runs", run=finished.id, compare="other")
    assert not app.exception
    assert set(tables(app, COMPARED)[0][COMPARED].str.split(":").str[0]) == {"not compared"}
    assert "measured on other dev data" in shown(app)
    assert "No wins and losses" in shown(app)


def test_a_run_that_waits_leaves_the_rest_as_it_is(pages, finished, runs) -> None:
    config = finished.config()
    warm = config.model_copy(update={"training": config.training.model_copy(update={"learning_rate": 0.5})})
    runs.create(warm, "waiting")
    app = pages.alone("runs", run=finished.id, compare="waiting")
    assert not app.exception
    assert "stand here, with their intervals, when" in shown(app)
    assert "when the first run is done" not in shown(app)
    assert tables(app, "Setting")


def test_the_runs_of_a_group_are_compared_by_one_button(pages, finished, another) -> None:
    for run in (finished, another("seed-1", noise=0.2, seed=1), another("warm", noise=0.3, learning_rate=0.5)):
        run.update_status(group="20260101-000000-group")
    app = pages.alone("runs", group="20260101-000000-group")
    assert not app.exception
    app.button(key="runs.compare.group").click().run()
    assert not app.exception
    assert tables(app, COMPARED)


def test_the_overview_says_whether_training_changed_a_metric(pages, finished) -> None:
    app = pages.alone("runs", run=finished.id)
    lines = tables(app, "Before")[0]
    assert lines["Metric"].tolist()[:2] == ["mrr", "map"]
    assert lines["After"].str.contains(r"\[").all()
    assert lines["Is this a difference?"].str.len().min() > 0
    app.toggle(key=f"runs.metrics.all.{finished.id}").set_value(True).run()
    assert len(tables(app, "Before")[0]) > len(lines)


def test_the_best_metric_has_its_interval_once_the_run_has_ended(finished) -> None:
    status = finished.status()
    assert run_list.best(status).startswith(f"mrr {status.metric_best:.3f} [")
    running = finished.update_status(state="running")
    assert run_list.best(running) == f"mrr {status.metric_best:.3f}"


def test_settings_are_named_by_what_differs_where_that_is_short(finished, another) -> None:
    one, two = another("a-1", epochs=3), another("b-2", epochs=5)
    assert [setting.name for setting in compared.settings_of([one, two])] == ["epochs 3", "epochs 5"]
    three = another("20260101-000000-third-0003", epochs=5, batch_size=4, learning_rate=0.5)
    assert [setting.name for setting in compared.settings_of([finished, three])] == ["tiny-0001", "third-0003"]


def test_flattened_settings_have_dotted_names() -> None:
    assert compared.flatten({"a": {"b": {"c": 1}}, "d": [2]}) == {"a.b.c": 1, "d": [2]}


def test_names_of_runs_are_no_difference() -> None:
    assert differences({"x": {"name": "x", "a": 1}, "y": {"name": "y", "a": 1}}) == []


def test_an_answer_says_what_is_known() -> None:
    from bsc_core.evaluation import Comparison, Interval

    clear = Comparison(Interval(0.04, 0.01, 0.07), 0.003, 100, "")
    assert compare_table.answer(clear) == "yes, better: +0.040 [+0.010, +0.070] (p = 0.003)"
    assert compare_table.answer(clear, p=0.2, corrected=True).startswith("cannot be told from chance")
    worse = Comparison(Interval(-0.04, -0.07, -0.01), 0.0001, 100, "")
    assert compare_table.answer(worse) == "yes, worse: −0.040 [−0.070, −0.010] (p < 0.001)"
    assert compare_table.answer(Comparison(Interval(0.5, None, None), None, 1, "")).startswith("one query")
    assert compare_table.answer(Comparison(Interval(0.0, 0.0, 0.0), None, 9, "")) == "no difference at all"
    assert compare_table.answer("comparison: other rows") == "not compared: other rows"


def test_a_line_of_the_table_says_what_the_headline_says(finished, another, monkeypatch) -> None:
    from bsc_core.evaluation import Comparison, Interval

    runs = [finished, another("warm", learning_rate=0.5), another("hot", learning_rate=0.7)]
    chances = {"learning_rate 0.5": 0.03, "learning_rate 0.7": 0.4}
    monkeypatch.setattr(
        compared,
        "compared",
        lambda first, second, split, metric: Comparison(Interval(0.04, 0.01, 0.07), chances[second.name], 100, ""),
    )
    settings = compared.settings_of(runs)
    view = View(settings, settings[0], compared.untrained(settings), "dev", "mrr", ["mrr"])
    told = compare_table.verdicts(view, "mrr")
    (line,) = compare_table.table(view, ["mrr"])
    for other in view.others:
        assert line[f"{other.name}: a difference?"] == told[other.key]
    assert line["learning_rate 0.5: a difference?"].startswith("cannot be told from chance")
    assert "(p = 0.06, corrected)" in line["learning_rate 0.5: a difference?"]


def test_the_words_below_the_table_tell_of_the_correction(pages, finished, another) -> None:
    another("warm", noise=0.3, learning_rate=0.5)
    corrected = "corrected for its several settings (Holm)"
    assert corrected not in shown(pages.alone("runs", run=finished.id, compare="warm"))
    another("hot", noise=0.3, learning_rate=0.7)
    assert corrected in shown(pages.alone("runs", run=finished.id, compare=["warm", "hot"]))
