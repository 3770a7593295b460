"""New run page: the form, its presets and errors, the plan, and a single launch."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core import formatting
from bsc_core.config import LOSS_CONFIGS, DataConfig, RunConfig, make_config
from bsc_core.config.batching import StrategyName
from bsc_core.data import load_data
from bsc_core.data.sample_data import sample_config
from bsc_core.jobs.queue import Queue
from bsc_core.presets.catalog import FAMILIES, RECOMMENDED, preset_config
from bsc_core.runs import RunStore
from pages.ui.components import config_form
from pages.ui.data import uploads
from pages.ui.new_run import config_summary, form, loss_form, preset_picker
from tests.helpers.pages import (
    SUMMARY,
    click,
    config_file,
    expander_labels,
    open_page,
    open_page_in_app,
    open_with_settings,
    page_text,
    prepare_page,
    select_preset,
)

GAIN = "On stsb (dev, 3 seeds) spearman went from 0.800 untrained to 0.820: +0.020, interval +0.010 to +0.030."


def plan(**changes: dict[str, object]) -> RunConfig:
    return make_config({"data": {"train": "pairs.tsv"}, **changes})


def test_the_page_opens_on_the_recommended_plan(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("train")
    assert app.selectbox(key="train.preset").value == "recommended"
    sections = [label.partition(":")[0] for label in expander_labels(app)[:5]]
    assert sections == ["Data", "Encoder", "Batches", "Loss", "Training"]
    assert not app.button(key="train.launch").disabled
    assert "A preflight or a first run measures the time on this one." in page_text(app)


def test_the_config_file_on_the_page_is_the_preset(runs: RunStore) -> None:
    app = open_page("train")
    assert make_config(config_file(app)) == preset_config("recommended", sample_config())


def test_a_recommended_preset_is_offered_with_its_measured_gain(
    runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preset_picker, "measured_gain", {"best_stsb": GAIN}.get)
    app = open_page("train")
    assert app.selectbox(key="train.family").options[0] == next(iter(FAMILIES)) == "Recommended by dataset"
    assert not any("untrained to" in caption.value for caption in app.caption)
    select_preset(app, "best_stsb")
    assert f"Preset: {RECOMMENDED['best_stsb'].when} {GAIN}" in [caption.value for caption in app.caption]
    assert app.selectbox(key="train.loss.name").value == "pearson"


@pytest.mark.parametrize("preset", ["recommended", "task_graded", "task_nli", "lesson", "paper_cqa_b", "paper_triplet"])
def test_choosing_a_preset_fills_the_form(runs: RunStore, preset: str) -> None:
    app = open_page("train")
    select_preset(app, preset)
    wanted = preset_config(preset, sample_config())
    assert app.selectbox(key="train.loss.name").value == wanted.loss.name
    assert app.number_input(key="train.training.epochs").value == wanted.training.epochs
    assert app.selectbox(key="train.encoder.name").value == wanted.encoder.name


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("train.loss.bsc.temperature", 0.0, "temperature is 0; it must be > 0"),
        ("train.training.batch_size", 1, "batch_size is 1; it must be >= 2"),
        ("train.training.epochs", None, "training.epochs is None"),
        ("train.training.learning_rate", -1.0, "training.learning_rate is -1.0"),
        ("train.data.dev_size", 2.0, "data.dev_size is 2.0"),
    ],
)
def test_an_invalid_value_is_reported_and_cannot_be_launched(
    runs: RunStore, field: str, value: float | None, message: str
) -> None:
    app = open_page("train")
    app.number_input(key=field).set_value(value).run()
    assert message in page_text(app)
    assert app.button(key="train.launch").disabled


def test_a_launch_queues_one_run_with_the_settings_of_the_form(runs: RunStore) -> None:
    app = open_page("train")
    app.number_input(key="train.loss.bsc.temperature").set_value(0.07).run()
    app.text_input(key="train.name").set_value("Warm").run()
    click(app, "train.launch")
    [run] = runs.list()
    assert run.config().loss.temperature == 0.07
    assert run.config().name == "Warm"
    assert Queue(runs.root).waiting() == [run.id]


def test_a_second_click_of_the_same_launch_creates_no_second_run(runs: RunStore) -> None:
    app = open_page("train")  # without app.py the page stays open, so the button can be clicked again
    click(app, "train.launch")
    click(app, "train.launch")
    assert len(runs.list()) == 1


def test_returning_to_the_page_makes_the_next_launch_a_new_run(runs: RunStore) -> None:
    app = open_page("train")
    click(app, "train.launch")
    app.run()
    click(app, "train.launch")
    assert len(runs.list()) == 2


def test_a_field_keeps_its_value_while_the_preset_stays(runs: RunStore) -> None:
    app = open_page("train")
    app.number_input(key="train.training.epochs").set_value(7).run()
    app.toggle(key="train.more.training").set_value(True).run()
    assert app.number_input(key="train.training.epochs").value == 7
    assert "7 epochs" in expander_labels(app)[4]


def test_a_field_that_is_hidden_again_keeps_its_value(runs: RunStore) -> None:
    app = open_page("train")
    app.toggle(key="train.more.training").set_value(True).run()
    app.number_input(key="train.training.weight_decay").set_value(0.25).run()
    app.toggle(key="train.more.training").set_value(False).run()
    app.run()
    assert "weight_decay = 0.25" in page_text(app)


def test_the_changed_settings_stay_while_a_setting_is_invalid(runs: RunStore) -> None:
    app = open_page("train")
    app.number_input(key="train.training.epochs").set_value(7).run()
    app.number_input(key="train.training.batch_size").set_value(0).run()
    assert app.button(key="train.launch").disabled
    assert [one.value for one in app.caption if one.value.startswith("Changed from the preset: ")] == [
        "Changed from the preset: Epochs = 7"
    ]


def test_the_form_is_as_it_was_after_a_visit_to_another_page(runs: RunStore) -> None:
    app = open_page_in_app("train")
    app.number_input(key="train.training.epochs").set_value(7).run()
    app.switch_page("pages/runs.py").run()
    app.switch_page("pages/train.py").run()
    assert app.number_input(key="train.training.epochs").value == 7


def test_settings_sent_by_the_batches_page_fill_the_form(runs: RunStore) -> None:
    app = open_with_settings({"batching": {"strategy": "random"}, "training": {"batch_size": 12, "seed": 5}})
    assert app.selectbox(key="train.batching.strategy").value == "random"
    assert app.number_input(key="train.training.batch_size").value == 12
    assert app.number_input(key="train.training.seed").value == 5


def test_settings_of_several_files_are_shown_for_mixed_data_only(runs: RunStore, small_pairs: Path) -> None:
    folder = runs.uploads_folder / "mixed"
    folder.mkdir(parents=True)
    other = shutil.copy(small_pairs, folder / f"other{small_pairs.suffix}")
    data = {"train": str(small_pairs), "mix": [str(other)], "dev_size": 0.3}
    (folder / "dataset.json").write_text(json.dumps({"label": "Mixed", "data": data}), encoding="utf-8")
    app = prepare_page("train")
    app.session_state["train.more.batching"] = True
    app.run()
    assert "train.batching.keep_groups" in {toggle.key for toggle in app.toggle}
    assert "train.batching.single_source" not in {toggle.key for toggle in app.toggle}
    app.selectbox(key="dataset").set_value("mixed").run()
    app.toggle(key="train.batching.single_source").set_value(True).run()
    assert not app.exception
    assert "one dataset per batch" in " ".join(expander.label for expander in app.expander)


def test_the_plan_counts_the_rows_of_the_selected_dev_size(runs: RunStore, small_pairs: Path) -> None:
    data = DataConfig(train=str(small_pairs), dev_size=0.2)
    dataset = uploads.register(uploads.folder_for(small_pairs), "Small", data)
    app = open_page("train", dataset=dataset)
    for size in (0.2, 0.5):
        app.number_input(key="train.data.dev_size").set_value(size).run()
        rows = load_data(data.model_copy(update={"dev_size": size}), seed=0)
        assert f"Data: {len(rows.train)} labeled pairs to train, {len(rows.dev)} for dev" in expander_labels(app)
        assert f"{len(rows.train)} training pairs" in page_text(app)


def test_a_broken_dataset_is_reported(runs: RunStore) -> None:
    folder = runs.uploads_folder / "mine"
    folder.mkdir(parents=True)
    (folder / "pairs.tsv").write_text("", encoding="utf-8")
    described = {"label": "Mine", "data": {"train": str(folder / "pairs.tsv")}}
    (folder / "dataset.json").write_text(json.dumps(described), encoding="utf-8")
    app = open_page("train")
    app.selectbox(key="dataset").set_value("mine").run()
    assert "pairs.tsv" in page_text(app)


def test_every_form_field_is_in_the_schema_once() -> None:
    for section, names in form.FIELDS.items():
        assert set(names) <= set(config_form.model_of(section).model_fields)
        assert len(names) == len(set(names))


def test_every_schema_field_is_in_the_form() -> None:
    for section in ("encoder", "encoder.lora", "batching", "training", "evaluation"):
        without_field = {"stop_words", "lora"}  # only in config files; a toggle
        assert set(form.FIELDS[section]) == set(config_form.model_of(section).model_fields) - without_field


def test_every_loss_field_is_in_the_form() -> None:
    for name, model in LOSS_CONFIGS.items():
        assert {*loss_form.fields(name), *loss_form.NO_WIDGET} >= set(model.model_fields)
        assert len(set(loss_form.fields(name))) == len(loss_form.fields(name))


def test_the_type_and_optionality_of_an_annotation_are_read() -> None:
    assert config_form.kind_of(int | None) == (int, True)
    assert config_form.kind_of(float) == (float, False)
    assert config_form.kind_of(float | None) == (float, True)


def test_an_ordinary_plan_has_no_warning() -> None:
    assert list(config_summary.config_warnings(preset_config("recommended", sample_config()), SUMMARY)) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": {"temperature": 0.005}}, "Temperature 0.005 is low"),
        ({"loss": {"temperature": 5.0}}, "Temperature 5 is high"),
        ({"loss": {"normalization": "none", "temperature": 0.1}}, "0.5 to 20 is usual"),
        ({"training": {"batch_size": 900}}, "larger than the data"),
        ({"training": {"batch_size": 4}}, "Groups of 8 do not fit"),
        ({"training": {"learning_rate": 0.01}}, "high for a transformer"),
        ({"encoder": {"name": "static"}}, "low for static vectors"),
        ({"training": {"max_steps": 5}}, "Only 5 steps"),
        ({"loss": {"labeled_negatives": False}}, "leaves them out"),
        ({"training": {"gradient_accumulation_steps": 4}}, "Gradient accumulation adds no negatives"),
        ({"training": {"early_stopping_patience": 3}}, "has no effect in a run of 3 epochs"),
        ({"training": {"early_stopping_patience": 1}, "evaluation": {"each_epoch": False}}, "otherwise the run fails"),
        ({"encoder": {"lora": {}}}, "low for LoRA"),
    ],
)
def test_unusual_settings_give_a_warning(changes: dict[str, dict[str, object]], message: str) -> None:
    assert any(message in warning.text for warning in config_summary.config_warnings(plan(**changes), SUMMARY))


def test_few_queries_with_many_pairs_give_a_warning() -> None:
    warnings = config_summary.config_warnings(plan(), replace(SUMMARY, dev_queries=1, dev=150))
    assert "Only 1 dev query (150 pairs): the metric is noisy." in [one.text for one in warnings]


@pytest.mark.parametrize(
    ("training", "texts"),
    [
        ({"batch_size": 30}, ["up to 29 in-batch negatives", "60 steps", "rises"]),
        ({"batch_size": 10**12}, ["in batches of 600; in a full batch, each query has up to 599 in-batch negatives"]),
        ({"warmup_ratio": 0.0}, ["with a learning rate that decays linearly from 2e-5 to 0"]),
    ],
)
def test_the_plan_counts_negatives_and_steps(training: dict[str, object], texts: list[str]) -> None:
    sentences = " ".join(config_summary.plan_sentences(plan(training=training), SUMMARY))
    assert all(text in sentences for text in texts)


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"batching": {"no_duplicates": True}}, "at least 60 steps"),
        ({"data": {"train": "pairs.tsv", "false_negatives": "decisions.tsv"}}, "at least 60 steps"),
        ({"batching": {"no_duplicates": True}, "training": {"batch_size": 30, "max_steps": 7}}, "for 7 steps"),
    ],
)
def test_the_plan_says_that_rows_with_conflicts_can_need_more_steps(
    changes: dict[str, dict[str, object]], steps: str
) -> None:
    config = plan(**{"training": {"batch_size": 30}, **changes})
    assert steps in " ".join(config_summary.plan_sentences(config, SUMMARY))


@pytest.mark.parametrize(("batch_size", "wanted"), [(30, 60), (599, 3), (300, 6), (500, 6), (601, 3)])
def test_a_last_batch_of_one_pair_joins_the_batch_before(batch_size: int, wanted: int) -> None:
    assert config_summary.count_steps(plan(training={"batch_size": batch_size, "epochs": 3}), SUMMARY) == wanted


def test_accumulation_takes_fewer_steps_for_the_same_pairs() -> None:
    alone, four = plan(training={"batch_size": 30}), plan(training={"batch_size": 30, "gradient_accumulation_steps": 4})
    assert (config_summary.count_steps(alone, SUMMARY), config_summary.count_steps(four, SUMMARY)) == (60, 15)
    assert config_summary.count_pairs(alone, SUMMARY) == config_summary.count_pairs(four, SUMMARY) == 1800


def test_without_labeled_negatives_only_positive_pairs_are_counted() -> None:
    assert (
        config_summary.count_steps(plan(loss={"labeled_negatives": False}, training={"batch_size": 20}), SUMMARY) == 30
    )


def test_rates_and_sizes_are_formatted() -> None:
    assert [formatting.number(value) for value in (3e-5, 0.001, 2.0)] == ["3e-5", "0.001", "2"]
    assert [config_summary.format_bytes(value) for value in (None, 1, 91_000_000, 1_440_000_000)] == [
        "unknown",
        "1 MB",
        "91 MB",
        "1.4 GB",
    ]


@pytest.fixture
def refused(runs: RunStore, locked_queue: AbstractContextManager[object]) -> AppTest:
    """The page after a launch that created a run while another process held the queue."""
    app = open_page("train")
    with locked_queue:
        click(app, "train.launch")
    return app


def test_the_next_click_after_a_busy_queue_launches_the_same_run(refused: AppTest, runs: RunStore) -> None:
    [run] = runs.list()
    assert f"run {run.id} was created but not queued yet" in page_text(refused)
    refused.run()
    click(refused, "train.launch")
    assert "not queued yet" not in page_text(refused)
    assert [result.id for result in runs.list()] == Queue(runs.root).waiting() == [run.id]


def test_a_form_edited_after_a_busy_queue_launches_another_run(refused: AppTest, runs: RunStore) -> None:
    refused.text_input(key="train.name").set_value("Other").run()
    click(refused, "train.launch")
    assert sorted(run.config().name or "" for run in runs.list()) == ["", "Other"]


def test_a_run_that_finished_after_a_busy_queue_is_not_launched_again(refused: AppTest, runs: RunStore) -> None:
    runs.list()[0].update_status(state="done")
    click(refused, "train.launch")
    assert len(runs.list()) == 2


def test_the_settings_of_a_link_are_used(runs: RunStore) -> None:
    link = {"loss.name": "mnrl", "loss.temperature": "0.02", "training.epochs": "7", "batching.strategy": "random"}
    config = make_config(config_file(open_page("train", **link)))
    assert (config.loss.name, config.loss.temperature) == ("mnrl", 0.02)
    assert (config.training.epochs, config.batching.strategy) == (7, "random")


def test_an_invalid_setting_of_a_link_is_reported_and_the_others_are_used(runs: RunStore) -> None:
    link = {"loss.temperature": "0", "training.epoch": "3", "training.batch_size": "16", "other.key": "1"}
    app = open_page("train", **link, **{"batching.group_size": "9" * 4000})
    assert not app.exception
    text = page_text(app)
    assert "the number has 4000 digits; give at most 9,007,199,254,740,991" in text
    assert "temperature is 0; it must be > 0" in text
    assert "The setting loss.temperature of this link is not used." in text
    assert "The setting training.epoch of this link is not used." in text
    assert "The setting other.key of this link is not used." in text
    config = make_config(config_file(app))
    assert config.loss.temperature == 0.05
    assert config.training.batch_size == 16


def test_changes_of_the_form_are_in_the_url_and_restored_by_it(runs: RunStore) -> None:
    app = open_page("train")
    start = config_file(app)
    assert not any("." in name for name in app.query_params)
    app.number_input(key="train.training.epochs").set_value(7).run()
    app.selectbox(key="train.loss.name").set_value("mnrl").run()
    app.number_input(key="train.loss.mnrl.temperature").set_value(0.02).run()
    app.text_input(key="train.name").set_value("cold").run()
    written = dict(app.query_params)
    assert written == {"training.epochs": "7", "loss.name": "mnrl", "loss.temperature": "0.02", "name": "cold"}
    assert config_file(open_page("train", **written)) == config_file(app)
    app.number_input(key="train.training.epochs").set_value(start["training"]["epochs"]).run()
    assert "training.epochs" not in app.query_params


def test_back_restores_the_form_before_a_change(runs: RunStore) -> None:
    app = open_page("train")
    start = config_file(app)
    app.number_input(key="train.training.epochs").set_value(7).run()
    changed = config_file(app)
    del app.query_params["training.epochs"]  # as the browser's Back button does
    assert config_file(app.run()) == start
    app.query_params["training.epochs"] = "7"
    assert config_file(app.run()) == changed


def test_the_url_has_the_preset_the_lists_of_a_sweep_and_lora(runs: RunStore) -> None:
    lists = {"sweep.loss.temperature": "[0.05, 0.1]", "encoder.lora.rank": "4", "encoder.query_prompt": "how: "}
    app = open_page("train", preset="task_texts", **lists)
    assert not app.exception
    values = config_file(app)
    assert values.pop("sweep")["over"] == {"loss.temperature": [0.05, 0.1]}
    config = make_config(values)
    assert config.loss.name == "simcse"
    assert config.encoder.lora.rank == 4
    assert config.encoder.query_prompt == "how: "
    assert {name: app.query_params.get(name) for name in ("preset", *lists)} == {"preset": "task_texts"} | lists
    assert "2 values of Temperature" in page_text(app)


def test_an_unknown_preset_of_a_link_is_reported(runs: RunStore) -> None:
    app = open_page("train", preset="unknown")
    assert "The preset unknown does not exist" in page_text(app)


def test_a_warning_about_the_learning_rate_offers_the_usual_one(runs: RunStore) -> None:
    app = open_page("train", **{"encoder.name": "static", "training.learning_rate": "3e-05"})
    assert "Learning rate 3e-5 is low for static vectors" in page_text(app)
    app.button(key="train.training.learning_rate.usual").click().run()
    assert make_config(config_file(app)).training.learning_rate == 1e-3
    assert "is low for static vectors" not in page_text(app)


def test_the_time_of_the_preset_is_shown_until_more_than_loss_batches_and_epochs_differ(runs: RunStore) -> None:
    def estimate() -> str:
        return next(caption.value for caption in app.caption if ":material/timer:" in caption.value)

    app = open_page("train")
    first = estimate()
    assert "estimated from another computer (two CPU cores). " in first
    app.selectbox(key="train.loss.name").set_value("mnrl").run()
    assert "another computer (two CPU cores), and from the recommended loss and batches. " in estimate()
    app.number_input(key="train.training.epochs").set_value(30).run()
    assert estimate().split(", estimated")[0] != first.split(", estimated")[0]
    app.number_input(key="train.training.batch_size").set_value(8).run()
    assert "No estimate yet" in estimate()


@pytest.mark.parametrize("strategy", get_args(StrategyName))
def test_the_selected_strategy_is_described(runs: RunStore, strategy: str) -> None:
    app = open_with_settings({"batching": {"strategy": strategy}})
    described = config_form.describe_value("batching", "strategy", strategy)
    assert len(described) > len("No groups.")
    assert described in [one.value for one in app.caption]


def test_a_run_with_few_steps_offers_more_epochs(runs: RunStore) -> None:
    app = open_page("train", **{"training.epochs": "1", "training.batch_size": "64"})
    steps = int(re.search(r"Only (\d+) steps in total: too few", page_text(app)).group(1))
    app.button(key="train.training.epochs.usual").click().run()
    assert "too few to learn" not in page_text(app)
    assert make_config(config_file(app)).training.epochs == math.ceil(60 / steps)


def test_another_dataset_of_the_same_shape_keeps_the_settings(runs: RunStore) -> None:
    folder = runs.uploads_folder / "copy"
    folder.mkdir(parents=True)
    file = shutil.copy(sample_config().train, folder / "copy.tsv")
    data = sample_config().model_dump(mode="json") | {"train": str(file)}
    (folder / "dataset.json").write_text(json.dumps({"label": "Copy", "data": data}), encoding="utf-8")
    app = open_page("train")
    app.number_input(key="train.training.epochs").set_value(7).run()
    app.selectbox(key="dataset").set_value("copy").run()
    assert not app.exception
    config = make_config(config_file(app))
    assert (config.data.train, config.training.epochs) == (str(file), 7)
    app.selectbox(key="dataset").set_value("sample-nli").run()
    assert make_config(config_file(app)).training.epochs != 7
    assert "The form now starts from the preset" in " ".join(toast.value for toast in app.toast)


def test_a_last_batch_of_a_few_pairs_is_announced(runs: RunStore) -> None:
    rows = len(load_data(sample_config()).train)
    size = next(size for size in range(24, 64) if 1 < rows % size <= size // 8)
    text = f"The last batch of each epoch has only {rows % size} pairs"
    assert text in page_text(open_page("train", **{"training.batch_size": str(size)}))
    assert "The last batch of each epoch" not in page_text(open_page("train", **{"training.batch_size": str(rows)}))
