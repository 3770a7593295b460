"""Runs page: columns of the settings that differ, the filter by them, and links to runs that do not exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import DataConfig, NegativesConfig, RunConfig, make_config
from bsc_core.data.sample_data import sample_config, sample_nli_config
from bsc_core.runs import Run, RunStore
from pages.ui.data import uploads
from pages.ui.runs import run_settings
from tests.helpers.pages import open_page, page_text
from tests.helpers.waiting import PATIENCE_SECONDS

BSC, SOFTMAX = "Batch-softmax contrastive (BSC)", "Classifier (softmax)"


def config(number: int) -> RunConfig:
    data = sample_nli_config() if number == 2 else sample_config()
    loss = {"name": "softmax"} if number == 2 else {"name": "bsc", "temperature": (0.1, 0.05)[number]}
    encoder = {"name": "static"}
    return make_config({"data": data.model_dump(), "loss": loss, "encoder": encoder, "training": {"seed": number}})


@pytest.fixture
def three(runs: RunStore) -> list[Run]:
    """Two runs on the sample data with different temperatures, and one on the NLI sample."""
    created = []
    for number in range(3):
        run = runs.create(config(number), f"20260101-00000{number}-run-{number:03}")
        run.update_status(state="failed" if number == 1 else "done", started=1.0, finished=2.0)
        created.append(run)
    return created


def test_settings_that_differ_are_columns_and_equal_ones_a_sentence(three: list[Run]) -> None:
    app = open_page("runs")
    assert not app.exception
    rows = app.dataframe[0].value.set_index("Run")
    assert rows["Dataset"].to_dict() == {"run-000": "sample", "run-001": "sample", "run-002": "sample-nli"}
    assert rows["Temperature"].to_dict() == {"run-000": "0.1", "run-001": "0.05", "run-002": ""}
    assert rows["Loss"].to_dict() == {"run-000": BSC, "run-001": BSC, "run-002": SOFTMAX}
    assert "Encoder" not in rows
    assert "Seed" in rows
    assert "Equal in all 3 runs: Encoder Static (fast) · Strategy nearest" in page_text(app)


def test_the_filter_is_in_the_url_and_keeps_the_runs_that_match_every_setting(three: list[Run]) -> None:
    app = open_page("runs", filter=["Dataset: sample", "State: done"])
    assert not app.exception
    assert app.dataframe[0].value["Run"].tolist() == ["run-000"]
    app.multiselect(key="filter").set_value(["Dataset: sample"]).run()
    assert sorted(app.dataframe[0].value["Run"]) == ["run-000", "run-001"]
    app.multiselect(key="filter").set_value([f"Loss: {SOFTMAX}", "Temperature: 0.1"]).run()
    assert "No run matches the filter." in page_text(app)
    assert not app.dataframe


def test_grouped_runs_are_summarized_by_the_value_of_a_column(three: list[Run]) -> None:
    for run, best in zip(three, (0.5, 0.7, 0.9), strict=True):
        run.update_status(metric_name="mrr", metric_best=best)
    app = open_page("runs", group_by="Loss")
    rows = {row.pop("Loss"): row for row in app.dataframe[0].value.to_dict("records")}
    assert [row.pop("Dataset") for row in rows.values()] == ["sample", "sample-nli"]
    assert rows[SOFTMAX] == {"Runs": 1, "Metric": "MRR", "Mean": "0.900", "Lowest": "0.900", "Highest": "0.900"}
    assert rows[BSC] == {"Runs": 2, "Metric": "MRR", "Mean": "0.600", "Lowest": "0.500", "Highest": "0.700"}
    assert list(rows) == [BSC, SOFTMAX]  # by dataset, then the highest mean first
    assert len(app.dataframe[1].value) == len(three)
    app = open_page("runs", group_by="Loss", filter=["Dataset: sample"])
    assert app.dataframe[0].value.columns.tolist() == ["Loss", "Runs", "Metric", "Mean", "Lowest", "Highest"]


def test_datasets_whose_paths_end_alike_are_told_apart(runs: RunStore, tmp_path: Path) -> None:
    for number in range(2):
        path = tmp_path / str(number) / "v1" / "train.tsv"
        path.parent.mkdir(parents=True)
        path.write_text("query\tdocument\na\tb\n", encoding="utf-8")
        given = {"data": {"train": str(path)}, "encoder": {"name": "static"}}
        runs.create(make_config(given), f"20260101-00000{number}-run-{number}")
    names = set(open_page("runs").dataframe[0].value["Dataset"])
    assert len(names) == 2
    assert all(name.startswith("v1/train.tsv (") for name in names)


def test_an_imported_dataset_is_shown_by_its_name(runs: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("query\tdocument\na\tb\n", encoding="utf-8")
    data = DataConfig(train=str(path))
    uploads.register(uploads.folder_for(path), "My pairs", data)
    for number, size in enumerate((data.dev_size, 0.3)):  # the second run was launched with other settings of the data
        changed = config(0).model_copy(update={"data": data.model_copy(update={"dev_size": size})})
        runs.create(changed, f"20260101-00000{number}-run-{number}")
    mined = data.model_copy(update={"negatives": NegativesConfig()})  # newer, and closer in no other setting
    uploads.register(uploads.folder_for(path, "mined"), "Mined", mined)
    names = set(open_page("runs").dataframe[0].value["Dataset"])
    assert names == {"My pairs", "My pairs (with other data settings, such as filters)"}


def test_the_seed_is_a_column_where_nothing_else_differs(runs: RunStore) -> None:
    for seed in range(2):
        changed = config(0).training.model_copy(update={"seed": seed})
        runs.create(config(0).model_copy(update={"training": changed}), f"20260101-00000{seed}-seed-{seed}")
    assert sorted(open_page("runs").dataframe[0].value["Seed"]) == ["0", "1"]


def test_a_run_with_a_damaged_config_stays_in_the_table(three: list[Run]) -> None:
    (three[0].folder / "config.json").write_text("{", encoding="utf-8")
    rows = open_page("runs").dataframe[0].value.set_index("Run")
    assert rows["Dataset"].to_dict() == {"run-000": "", "run-001": "sample", "run-002": "sample-nli"}


@pytest.fixture
def four(runs: RunStore) -> list[Run]:
    """Runs with four learning rates and results."""
    created = []
    for number in range(4):
        training = {"seed": 0, "learning_rate": 10.0 ** (number - 5)}
        given = {"data": sample_config().model_dump(), "encoder": {"name": "static"}, "training": training}
        run = runs.create(make_config(given), f"20260101-00000{number}-run-{number:03}")
        run.update_status(state="done", started=1.0, finished=11.0, metric_name="mrr", metric_best=0.5 + number / 10)
        created.append(run)
    return created


def histograms(app: AppTest) -> list[dict[str, Any]]:
    drawn = [one for one in app.get("bidi_component") if one.proto.component_name.endswith("histograms")]
    return [column for one in drawn for column in json.loads(one.proto.json)["columns"]]


def test_histograms_make_room_for_a_selected_run_unless_they_filter(four: list[Run]) -> None:
    assert len(histograms(open_page("runs"))) == 2
    assert not histograms(open_page("runs", run=four[1].id))
    assert len(histograms(open_page("runs", run=four[1].id, ranges="Best mrr:0.5:0.7"))) == 2  # of an earlier version


def test_a_range_of_the_link_filters_the_runs(four: list[Run]) -> None:
    app = open_page("runs", ranges="training.learning_rate:1e-4:1e-2,Best MRR:0.5:0.7")
    assert not app.exception
    assert sorted(app.dataframe[0].value["Run"]) == ["run-001", "run-002"]
    assert "2 of 4 runs are in the selected ranges." in page_text(app)
    columns = histograms(app)
    assert [column["name"] for column in columns] == ["Best MRR", "Learning rate"]  # the time is equal
    assert [sum(column["shown"]) for column in columns] == [2, 2]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"name": "rate", "first": 0, "last": 7}, "score:0.1:0.2,rate:1e-05:0.0001"),
        ({"name": "score", "first": 0, "last": 13}, None),
        ({"name": "score", "first": 0}, "score:0.1:0.2"),
        ({"name": "other", "first": 0, "last": 7}, "score:0.1:0.2"),
        ([1], "score:0.1:0.2"),
    ],
)
def test_a_selected_range_is_stored_next_to_those_of_other_columns(selection: object, expected: str | None) -> None:
    def page(selection: object) -> None:
        from bsc_core.figures.runs.histograms import histogram
        from pages.ui.runs import run_settings

        score = histogram("score", {"a": 0.1, "b": 0.2, "c": 0.3}, (0.1, 0.2))
        rate = histogram("rate", {"a": 1e-5, "b": 1e-4, "c": 1e-3})
        run_settings._store_range(selection, [score, rate])

    app = AppTest.from_function(page, args=(selection,), default_timeout=PATIENCE_SECONDS)
    app.query_params["ranges"] = "score:0.1:0.2"
    app.run()
    assert not app.exception
    assert app.query_params.get("ranges") == expected


@pytest.mark.parametrize(
    ("ranges", "report"),
    [
        ("Temperature:0:1", "The listed runs have no different values of Temperature."),
        ("Time (s):0:1", "The listed runs have no different values of Time (s)."),
        ("x", "ranges is not a list of"),
    ],
)
def test_ranges_that_cannot_be_used_are_reported(four: list[Run], ranges: str, report: str) -> None:
    app = open_page("runs", ranges=ranges)
    assert report in page_text(app)
    assert len(app.dataframe[0].value) == 4


def test_a_setting_of_one_strategy_is_a_column_only_if_its_runs_differ() -> None:
    def columns(*batching: dict[str, Any]) -> list[str]:
        settings = {}
        for number, values in enumerate(batching):
            one = config(0).model_dump() | {"batching": values}
            settings[str(number)] = run_settings._config(Mock(config=lambda one=one: make_config(one)))[1]
        return run_settings.differing_columns(settings)

    clusters = {"strategy": "clusters", "clusters": 20}
    assert columns({"strategy": "nearest"}, clusters) == ["Strategy"]
    assert columns({"strategy": "random", "group_size": 4}, {"strategy": "random"}) == []
    assert columns({"strategy": "nearest"}, clusters, {**clusters, "clusters": 30}) == ["Strategy", "Clusters"]
