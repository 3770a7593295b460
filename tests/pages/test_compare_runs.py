"""Runs page, comparison of runs: seeds as one setting, intervals, significance, wins and losses, different data."""

from __future__ import annotations

import json
import os
import shutil
from urllib.parse import parse_qs

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.evaluation import Evaluator
from bsc_core.preparation.experiment import load_experiment
from bsc_core.run_results import save_results
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import RESUMED
from pages.ui.comparison import metrics_table, settings
from pages.ui.comparison.view import differences
from pages.ui.components import run_data
from pages.ui.runs import table
from tests.helpers.pages import figure_titles, open_page, page_text
from tests.pages.test_run_parts import mark_alive

SIGNIFICANT = "Significant?"


def tables(app: AppTest, column: str) -> list:
    return [table.value for table in app.dataframe if column in table.value.columns]


@pytest.fixture
def another(finished: Run, runs: RunStore):
    """Function that copies the finished run with other settings and with noise added to its vectors."""
    data = load_experiment(finished.config().data)

    def create(name: str, *, noise: float = 0.0, with_results: bool = True, **training: object) -> Run:
        shutil.copytree(finished.folder, runs.root / name)
        run = runs.get(name)
        config = run.config()
        config = config.model_copy(update={"training": config.training.model_copy(update=training)})
        run.write_json("config", config.model_dump(mode="json"))
        vectors = np.array(run.array("embeddings_after"))
        moved = vectors + noise * np.random.default_rng(len(name)).standard_normal(vectors.shape).astype(np.float32)
        run.write_array("embeddings_after", moved)
        run.write_json("evaluation/after", Evaluator(data, config.evaluation).evaluate(moved))
        if with_results:
            save_results(run, data)
        else:
            for path in run.folder.glob("evaluation/*"):
                if path.name not in ("before.json", "after.json"):
                    path.unlink()
        return run

    return create


def open_tab(app: AppTest, title: str) -> AppTest:
    """Open a tab of the comparison."""
    app.session_state["runs.compare.part"] = title
    app.run()
    assert not app.exception
    return app


def test_two_runs_have_intervals_significance_and_wins_and_losses(finished, another) -> None:
    another("noisy", noise=0.4, learning_rate=0.5)
    app = open_page("runs", run=finished.id, compare="noisy")
    assert not app.exception
    (compared_table,) = tables(app, SIGNIFICANT)
    assert compared_table["Metric"].tolist()[0] == "MRR"
    values = compared_table.iloc[0].tolist()
    assert all("[" in value for value in values[1:4])
    assert values[4].startswith(("yes, ", "inconclusive: "))
    by_query = dict(zip(compared_table["Metric"], compared_table["Better / worse / equal"], strict=True))
    assert " / " in by_query["MRR"]
    assert by_query["Spearman"] == "—"
    (metrics,) = [one for one in app.dataframe if SIGNIFICANT in one.value.columns]
    assert json.loads(metrics.proto.columns)["Metric"]["pinned"]
    (won,) = tables(open_tab(app, "Queries"), "Relevant document")
    assert won["Query"].str.startswith("how do i").all()
    assert won.columns[-2:].tolist() == ["Top document, learning_rate 0.001", "Top document, learning_rate 0.5"]
    assert (won["Change"].str[0] == "−").any()
    assert "learning_rate 0.5 is better on" in page_text(app)
    assert "nan" not in page_text(app).lower()


def test_seeds_count_as_one_setting_unless_separated(finished, another) -> None:
    for seed in (1, 2):
        another(f"seed-{seed}", noise=0.2, seed=seed)
    another("warm", noise=0.3, learning_rate=0.5)
    chosen = {"run": finished.id, "compare": ["seed-1", "seed-2", "warm"]}
    app = open_page("runs", **chosen)
    assert not app.exception
    (lines,) = tables(app, SIGNIFICANT)
    assert lines.columns[1:4].tolist() == ["Untrained", "learning_rate 0.001 · 3 seeds", "learning_rate 0.5"]
    single = "With one seed, so without differences between seeds: learning_rate 0.5."
    assert single in page_text(app).replace("\\", "")
    app.selectbox(key="seeds").set_value("apart").run()
    assert single not in page_text(app).replace("\\", "")
    assert not app.exception
    assert len(tables(open_tab(app, "Curves"), "Best")[0]) == 4


def test_a_copy_of_a_run_is_no_further_seed(finished, another) -> None:
    copies = [another("copy"), another("seed-1", noise=0.2, seed=1), another("warm", noise=0.3, learning_rate=0.5)]
    (merged, other) = settings.group_by_setting([finished, *copies])
    assert merged.name == "learning_rate 0.001 · 2 seeds"
    assert [run.config().training.seed for run in merged.runs] == [0, 1]
    assert len(settings.group_by_setting([finished, *copies], merge_seeds=False)) == 4
    assert other.runs == (copies[-1],)


def test_a_resumed_run_replaces_the_one_it_resumes(finished, another) -> None:
    resuming = another("resuming", noise=0.1)
    resuming.update_status(resumed_from=finished.id)
    resuming.write_signed(RESUMED, {"from": finished.id})
    (merged,) = settings.group_by_setting([finished, resuming])
    assert merged.runs == (resuming,)
    assert len(settings.group_by_setting([finished, resuming], merge_seeds=False)) == 2


def test_the_copied_evaluation_of_a_run_that_is_active_does_not_count(finished, another) -> None:
    resumed = another("resumed", noise=0.4, learning_rate=0.5)
    mark_alive(resumed, state="running", finished=None)
    app = open_page("runs", run=finished.id, compare="resumed")
    assert "Not finished, so without metrics here: learning_rate 0.5." in page_text(app)
    assert not tables(app, SIGNIFICANT)
    resumed.update_status(state="done")
    assert tables(open_page("runs", run=finished.id, compare="resumed"), SIGNIFICANT)


@pytest.mark.parametrize("name", ["after.json", "results.json", "intervals.json", "after-dev-queries.npy"])
def test_a_comparison_is_computed_again_when_a_file_of_the_evaluation_changes(finished, name) -> None:
    setting = settings.Setting(finished.id, "trained", (finished,))
    before = setting.cache_key
    path = finished.folder / "evaluation" / name
    os.utime(path, (1, 1))
    assert setting.cache_key != before


def test_settings_that_change_the_scale_of_the_loss_are_named(finished, another) -> None:
    another("warm", batch_size=4)
    other = another("other-data", batch_size=4)
    config = other.config()
    other_data = config.data.model_copy(update={"train": "other.tsv"})
    other.write_json("config", config.model_copy(update={"data": other_data}).model_dump(mode="json"))
    another("fast", learning_rate=0.5)
    curves = {"run": finished.id, "runs.compare.part": "Curves"}
    reason = "The losses are not comparable, since the settings differ in: "
    assert f"{reason}Batch size." in page_text(open_page("runs", **curves, compare="warm"))
    assert f"{reason}Dataset, Batch size." in page_text(open_page("runs", **curves, compare="other-data"))
    assert "not comparable" not in page_text(open_page("runs", **curves, compare="fast"))


def test_a_difference_has_the_same_interval_in_both_directions(finished, another) -> None:
    first, second = settings.group_by_setting([finished, another("warm", noise=0.4, learning_rate=0.5)])
    for metric in ("mrr", "spearman"):
        there, back = (settings.compare_settings(*pair, "dev", metric) for pair in ((first, second), (second, first)))
        assert not isinstance(there, str)
        assert not isinstance(back, str)
        assert back.difference == -there.difference
        assert (back.p, back.wins, back.losses) == (there.p, there.losses, there.wins)


def test_seeds_of_one_setting_are_compared_with_the_untrained_encoder(finished, another) -> None:
    another("seed-1", noise=0.2, seed=1)
    app = open_page("runs", run=finished.id, compare="seed-1")
    assert not app.exception
    assert app.selectbox(key="against").options == ["Untrained"]
    assert tables(app, SIGNIFICANT)
    assert "differ only in their seed" in page_text(open_tab(app, "Settings"))


def test_the_link_contains_metric_base_and_split(finished, another) -> None:
    another("noisy", noise=0.4, learning_rate=0.5)
    chosen = {"run": finished.id, "compare": "noisy"}
    app = open_page("runs", **chosen)
    app.selectbox(key="metric").set_value("spearman").run()
    app.selectbox(key="against").set_value("untrained").run()
    open_tab(app, "Queries")
    (link,) = [code.value for code in app.code if code.value.startswith("http") or code.value.startswith("?")]
    parameters = parse_qs(link.partition("?")[2])
    assert (parameters["run"], parameters["compare"]) == ([finished.id], ["noisy"])
    assert (parameters["metric"], parameters["against"], parameters["split"]) == (["Spearman"], ["Untrained"], ["dev"])
    again = open_page("runs", **parameters)
    assert again.selectbox(key="metric").value == "spearman"
    assert again.selectbox(key="against").value == "untrained"
    assert tables(again, "Label"), "a metric of all pairs is shown pair by pair"


@pytest.mark.parametrize("parameters", [{"metric": "no-such"}, {"against": "gone"}, {"split": "test"}, {"seeds": "x"}])
def test_unknown_values_in_the_url_show_the_default_view(finished, another, parameters) -> None:
    another("noisy", noise=0.4, learning_rate=0.5)
    app = open_page("runs", run=finished.id, compare="noisy", **parameters)
    assert not app.exception
    assert app.selectbox(key="metric").value == "mrr"
    assert tables(app, SIGNIFICANT)


def test_a_run_without_stored_results_is_compared_from_its_vectors(finished, another) -> None:
    another("old", noise=0.4, with_results=False, learning_rate=0.5)
    app = open_page("runs", run=finished.id, compare="old")
    assert not app.exception
    assert all("[" in value for value in tables(app, SIGNIFICANT)[0].iloc[0].tolist()[1:4])


def test_a_run_without_its_data_is_compared_without_texts(finished, another) -> None:
    missing = "/nowhere/pairs.jsonl"
    for run in (finished, another("noisy", noise=0.4, learning_rate=0.5)):
        config = run.config()
        run.write_json(
            "config", config.model_dump(mode="json") | {"data": {**config.data.model_dump(), "train": missing}}
        )
    app = open_page("runs", run=finished.id, compare="noisy")
    assert not app.exception
    assert tables(app, SIGNIFICANT)[0]["Metric"].tolist()[0] == "MRR"
    app = open_tab(app, "Queries")
    assert "The texts cannot be shown" in page_text(app)
    assert "Row" in tables(app, "Change")[0].columns


def test_runs_on_other_rows_have_metrics_but_no_significance(finished, another) -> None:
    other = another("other", learning_rate=0.5)
    about = other.read_json("evaluation/results")
    about["after"]["dev"]["digest"] = "of other rows"
    other.write_json("evaluation/results", about)
    app = open_page("runs", run=finished.id, compare="other")
    assert not app.exception
    assert set(tables(app, SIGNIFICANT)[0][SIGNIFICANT].str.split(":").str[0]) == {"not compared"}
    assert "evaluated on different dev data" in page_text(app)
    assert "Wins and losses are not available" in page_text(open_tab(app, "Queries"))


def test_a_waiting_run_does_not_hide_the_rest_of_the_page(finished, runs) -> None:
    config = finished.config()
    warm = config.model_copy(update={"training": config.training.model_copy(update={"learning_rate": 0.5})})
    runs.create(warm, "waiting")
    app = open_page("runs", run=finished.id, compare="waiting")
    assert not app.exception
    assert "Metrics with intervals appear here after the evaluation of" in page_text(app)
    assert "when the first run is done" not in page_text(app)
    assert tables(open_tab(app, "Settings"), "Key")


def test_the_runs_of_a_group_are_compared_by_one_button(finished, another) -> None:
    for run in (finished, another("seed-1", noise=0.2, seed=1), another("warm", noise=0.3, learning_rate=0.5)):
        run.update_status(group="20260101-000000-group")
    app = open_page("runs", group="20260101-000000-group")
    assert not app.exception
    assert app.button(key="runs.compare.group").proto.type == "primary"
    app.button(key="runs.all").click().run()
    assert app.selectbox(key="group").value == "All runs"
    app = open_page("runs", group="20260101-000000-group")
    app.button(key="runs.compare.group").click().run()
    assert not app.exception
    assert tables(app, SIGNIFICANT)
    app.button(key="runs.all").click().run()
    assert not tables(app, SIGNIFICANT)
    assert (app.selectbox(key="group").value, app.selectbox(key="run").value) == ("All runs", "none")


def test_runs_with_and_without_decisions_are_named_so(finished, another, runs, tmp_path) -> None:
    decided = another("decided", noise=0.2)
    config = finished.config()
    data = config.data.model_copy(update={"false_negatives": str(tmp_path / "decisions.tsv")})
    decided.write_json("config", config.model_copy(update={"data": data}).model_dump(mode="json"))
    names = [one.name for one in settings.group_by_setting([finished, decided])]
    assert names == ["without decisions", "with decisions"]


def test_the_overview_shows_whether_training_changed_a_metric(finished) -> None:
    app = open_page("runs", run=finished.id)
    lines = tables(app, "Before")[0]
    assert lines["Metric"].tolist()[:2] == ["MRR", "MAP"]
    assert lines["After"].str.contains(r"\[").all()
    assert lines[SIGNIFICANT].str.len().min() > 0
    app.toggle(key="runs.metrics.all").set_value(True).run()
    assert len(tables(app, "Before")[0]) > len(lines)


def test_the_best_metric_has_its_interval_once_the_run_has_ended(finished) -> None:
    status = finished.status()
    assert table.best_metric(status).startswith(f"MRR {status.metric_best:.3f} [")
    running = finished.update_status(state="running")
    assert table.best_metric(running) == f"MRR {status.metric_best:.3f}"


def test_settings_are_named_by_what_differs_if_that_is_short(finished, another) -> None:
    one, two = another("a-1", epochs=3), another("b-2", epochs=5)
    assert [setting.name for setting in settings.group_by_setting([one, two])] == ["epochs 3", "epochs 5"]
    three = another("20260101-000000-third-0003", epochs=5, batch_size=4, learning_rate=0.5)
    assert [setting.name for setting in settings.group_by_setting([finished, three])] == ["tiny-0001", "third-0003"]


def test_run_names_are_not_a_difference() -> None:
    assert differences({"x": [{"name": "x", "a": 1}], "y": [{"name": "y", "a": 1}]}) == []


def test_values_that_differ_between_the_seeds_of_a_setting_are_shown_for_all_of_them() -> None:
    def seeds(rate: float, *numbers: int) -> list[dict]:
        return [{"training": {"seed": seed, "learning_rate": rate}} for seed in numbers]

    (row,) = differences({"x": seeds(0.1, 0, 1), "y": seeds(0.2, 1, 0)})
    assert row == {"Key": "training.learning_rate", "x": "0.1", "y": "0.2"}
    (row,) = differences({"x": seeds(0.1, 2, 10), "y": seeds(0.1, 0)})
    assert row == {"Key": "training.seed", "x": "2, 10", "y": "0"}


def test_a_setting_of_several_runs_has_a_color_that_no_run_has(finished, another) -> None:
    members = [another("seed-1", noise=0.2, seed=1), another("warm", noise=0.3, learning_rate=0.5)]
    runs, rest = [finished, *members], another("rest", noise=0.4, learning_rate=0.7)
    several = settings.group_by_setting(runs)
    untrained = settings.untrained_and_trained(finished)[0]
    view = settings.ComparisonView(several, several[0], untrained, "dev", "mrr", ["mrr"])
    of_runs = run_data.colors_alone([run.id for run in [*runs, rest]])
    merged, single = view.colors(several)
    assert merged not in of_runs
    assert single == run_data.run_colors([several[0].runs[0].id, "warm"])[1]


def test_sentences_name_the_direction_of_each_difference(finished, another, monkeypatch) -> None:
    from bsc_core.evaluation import Comparison, Interval

    def view_of(*signs: int) -> settings.ComparisonView:
        runs = [finished, *(another(f"rate-{number}", learning_rate=0.5 + number) for number in range(len(signs)))]
        several = settings.group_by_setting(runs)
        by_key = {
            one.key: Comparison(Interval(0.04 * sign, 0.03 * sign, 0.05 * sign), 0.001 if sign else None, 9, "")
            for one, sign in zip(several[1:], signs, strict=True)
        }
        monkeypatch.setattr(settings, "compare_settings", lambda first, second, split, metric: by_key[second.key])
        untrained = settings.untrained_and_trained(finished)[0]
        return settings.ComparisonView(several, several[0], untrained, "dev", "mrr", ["mrr"])

    view = view_of(1, -1, -1)
    base = view.base.name
    headline = metrics_table.headline(view, metrics_table.significances(view, "mrr"))
    assert headline == f"MRR on dev: compared with {base}, 1 of 3 runs is significantly better and 2 are worse"
    assert metrics_table.difference_sentence("new", view, "yes, better: +0.040 (p = 0.01)") == (
        f"**new** is significantly better than {base.replace('_', chr(92) + '_')}: +0.040 (p = 0.01)"
    )
    assert metrics_table.difference_sentence("new", view, "inconclusive: +0.040").count(":") == 1
    assert metrics_table.difference_sentence("new", view, "no difference").startswith("There is no difference")
    none = dict.fromkeys("ab", "inconclusive: +0.001")
    assert metrics_table.headline(view, none) == f"MRR on dev: no run differs significantly from {base}"


@pytest.mark.parametrize(("p", "explained"), [(0.12, True), (0.01, False)])
def test_an_interval_that_disagrees_with_p_is_explained(finished, another, monkeypatch, p, explained) -> None:
    from bsc_core.evaluation import Comparison, Interval

    another("warm", noise=0.4, learning_rate=0.5)
    result = Comparison(Interval(0.083, 0.021, 0.167), p, 9, "")
    monkeypatch.setattr(settings, "compare_settings", lambda first, second, split, metric: result)
    app = open_page("runs", run=finished.id, compare="warm")
    assert (metrics_table.ABOUT_SIGNIFICANCE in [one.value for one in app.caption]) == explained


def test_metrics_that_disagree_with_the_selected_one_are_named(finished, another, monkeypatch) -> None:
    from bsc_core.evaluation import Comparison, Interval

    another("warm", noise=0.4, learning_rate=0.5)
    signs = {"mrr": 1, "spearman": -1, "ndcg@10": 0}
    monkeypatch.setattr(
        settings,
        "compare_settings",
        lambda first, second, split, metric: Comparison(
            Interval(0.05 * (sign := signs.get(metric, 1)), 0.05 * sign - 0.01, 0.05 * sign + 0.01), 0.001, 9, ""
        ),
    )
    app = open_page("runs", run=finished.id, compare="warm")
    assert "Significant by other metrics: Spearman worse." in [one.value for one in app.caption]


def test_a_run_that_is_not_counted_is_named(finished, another) -> None:
    another("copy")
    another("warm", noise=0.3, learning_rate=0.5)
    app = open_page("runs", run=finished.id, compare=["warm", "copy"])
    (caption,) = [one.value for one in app.caption if one.value.startswith("Left out")]
    assert caption.endswith("continued by it: copy.")


def test_the_verdict_follows_p_and_interval() -> None:
    from bsc_core.evaluation import Comparison, Interval

    clear = Comparison(Interval(0.04, 0.01, 0.07), 0.003, 100, "")
    assert metrics_table.significance(clear) == "yes, better: +0.040 [+0.010, +0.070] (p = 0.003)"
    assert metrics_table.significance(clear, p=0.2, corrected=True).startswith("inconclusive")
    worse = Comparison(Interval(-0.04, -0.07, -0.01), 0.0001, 100, "")
    assert metrics_table.significance(worse) == "yes, worse: −0.040 [−0.070, −0.010] (p < 0.001)"
    one_query = Comparison(Interval(0.5, None, None), None, 1, "")
    assert metrics_table.significance(one_query) == "not tested: one query"
    assert metrics_table.significance(Comparison(Interval(0.0, 0.0, 0.0), None, 9, "")) == "no difference"
    assert metrics_table.significance("comparison: other rows") == "not compared: other rows"


def test_a_table_row_agrees_with_the_verdicts(finished, another, monkeypatch) -> None:
    from bsc_core.evaluation import Comparison, Interval

    runs = [finished, another("warm", learning_rate=0.5), another("hot", learning_rate=0.7)]
    chances = {"learning_rate 0.5": 0.03, "learning_rate 0.7": 0.4}
    monkeypatch.setattr(
        settings,
        "compare_settings",
        lambda first, second, split, metric: Comparison(Interval(0.04, 0.01, 0.07), chances[second.name], 100, ""),
    )
    several = settings.group_by_setting(runs)
    view = settings.ComparisonView(
        several, several[0], settings.untrained_and_trained(several[0].runs[0])[0], "dev", "mrr", ["mrr"]
    )
    verdicts = metrics_table.significances(view, "mrr")
    rows = {row.pop("Setting"): row for row in metrics_table.table_rows(view, ["mrr"])}
    assert list(rows) == ["Untrained", "learning_rate 0.001", "learning_rate 0.5", "learning_rate 0.7"]
    assert (rows["learning_rate 0.001"][SIGNIFICANT], rows["Untrained"][SIGNIFICANT]) == ("baseline", "")
    for other in view.others:
        row = rows[other.name]
        text = f"{row[SIGNIFICANT]}: {row['Difference']} (p = {row['p']}, corrected)"
        assert text == verdicts[other.key]
    assert rows["learning_rate 0.5"][SIGNIFICANT] == "inconclusive"
    assert rows["learning_rate 0.5"]["p"] == "0.06"


def test_the_caption_mentions_the_correction(finished, another) -> None:
    another("warm", noise=0.3, learning_rate=0.5)
    corrected = "p-values are corrected for the number of comparisons (Holm)"
    assert corrected not in page_text(open_page("runs", run=finished.id, compare="warm"))
    another("hot", noise=0.3, learning_rate=0.7)
    assert corrected in page_text(open_page("runs", run=finished.id, compare=["warm", "hot"]))


def test_quality_by_dimension_is_that_of_the_truncated_vectors(finished, another) -> None:
    noisy = another("noisy", noise=0.4, learning_rate=0.5)
    app = open_page("runs", run=finished.id, compare="noisy", metric="MRR")
    next(one for one in app.toggle if one.label == "Quality by dimension").set_value(True).run()
    assert not app.exception
    data = load_experiment(finished.config().data)
    width = noisy.array("embeddings_after").shape[1]
    expected = Evaluator(data, finished.config().evaluation).evaluate(noisy.array("embeddings_after")[:, : width // 4])
    (setting,) = [one for one in settings.group_by_setting([finished, noisy]) if noisy in one.runs]
    (values,) = settings.by_dimension(setting, "dev", "mrr")
    assert values[width // 4] == expected["dev"]["mrr"]
    assert max(values) == width
    assert "MRR on dev of truncated vectors" in figure_titles(app)


def test_runs_whose_short_names_are_equal_are_named_by_their_ids(finished, another) -> None:
    ids = ["20260101-000000-same-0001", "20260202-000000-same-0001"]
    runs = [another(ids[0]), another(ids[1], epochs=5, batch_size=4, learning_rate=0.5)]
    assert [setting.name for setting in settings.group_by_setting(runs)] == ids


def test_a_named_run_of_a_group_has_its_number_and_all_seeds_have_that_of_the_group(another) -> None:
    run = another("20260101-000000-warm-f7cc-001-seed-1")
    run.write_json("config", run.config().model_copy(update={"name": "warm"}).model_dump(mode="json"))
    assert settings.short_name(run) == "warm · f7cc-001"
    assert settings.short_name(run, several=True) == "warm · f7cc"
