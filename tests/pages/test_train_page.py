"""New run: the form comes from the schema, the core judges it, and a launch happens once."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import LOSS_CONFIGS, RunConfig, make_config
from bsc_core.jobs.queue import Queue
from bsc_core.recipes.fitting import DataShape
from bsc_core.recipes.presets import family_of, preset_config
from bsc_core.recipes.sample import sample_config
from bsc_core.runs import RunStore
from pages.ui import forms, loss_form, plan_words, train_fields

LABELLED = DataShape(positives=200, negatives=400, labelled=True, graded=True, classes=0, triplets=400)
FACTS = plan_words.Facts(train=600, dev=150, test=0, corpus=800, train_queries=200, shape=LABELLED)


def shown(app: AppTest) -> str:
    kinds = ("markdown", "text", "caption", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def start_from(app: AppTest, preset: str) -> None:
    app.selectbox(key="train.family").set_value(family_of(preset)).run()
    app.selectbox(key="train.preset").set_value(preset).run()


def labels(app: AppTest) -> list[str]:
    return [expander.label for expander in app.expander]


def plan(**changes: dict[str, object]) -> RunConfig:
    values = {"data": {"train": "pairs.tsv"}, **changes}
    return make_config(values)


def test_the_page_opens_on_the_recommended_plan(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("train")
    assert not app.exception
    assert app.selectbox(key="train.preset").value == "recommended"
    assert [label.partition(":")[0] for label in labels(app)[:5]] == ["Data", "Encoder", "Batches", "Loss", "Training"]
    assert not app.button(key="train.launch").disabled
    assert "not measured yet" in shown(app)


def test_the_config_file_on_the_page_is_the_preset(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    text = next(code.value for code in app.code if "[training]" in code.value)
    assert make_config(tomllib.loads(text)) == preset_config("recommended", sample_config())


@pytest.mark.parametrize("preset", ["recommended", "task_graded", "task_nli", "lesson", "paper_cqa_b", "paper_triplet"])
def test_choosing_a_preset_fills_the_form(pages: type, runs: RunStore, preset: str) -> None:
    app = pages.alone("train")
    start_from(app, preset)
    assert not app.exception
    wanted = preset_config(preset, sample_config())
    assert app.selectbox(key="train.loss.name").value == wanted.loss.name
    assert app.number_input(key="train.training.epochs").value == wanted.training.epochs
    assert app.selectbox(key="train.encoder.name").value == wanted.encoder.name


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("train.loss.bsc.temperature", 0.0, "temperature is 0; it must be > 0"),
        ("train.training.batch_size", 1, "batch_size is 1; it must be >= 2"),
        ("train.training.epochs", None, "training.epochs is None"),
        ("train.training.learning_rate", -1.0, "training.learning_rate is -1.0"),
        ("train.data.dev_share", 2.0, "data.dev_share is 2.0"),
    ],
)
def test_what_cannot_work_is_said_calmly_and_cannot_be_launched(
    pages: type, runs: RunStore, field: str, value: float | None, words: str
) -> None:
    app = pages.alone("train")
    app.number_input(key=field).set_value(value).run()
    assert not app.exception
    assert words in shown(app)
    assert app.button(key="train.launch").disabled


def test_a_launch_queues_one_run_with_the_settings_of_the_form(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    app.number_input(key="train.loss.bsc.temperature").set_value(0.07).run()
    app.text_input(key="train.name").set_value("Warm").run()
    app.button(key="train.launch").click().run()
    assert not app.exception
    [run] = runs.list()
    assert run.config().loss.temperature == 0.07
    assert run.config().name == "Warm"
    assert Queue(runs.root).waiting() == [run.id]


def test_a_second_click_of_the_same_launch_makes_no_second_run(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")  # alone it cannot leave for the runs page, so the button can be clicked again
    app.button(key="train.launch").click().run()
    app.button(key="train.launch").click().run()
    assert len(runs.list()) == 1


def test_coming_back_to_the_page_makes_the_next_launch_a_new_run(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    app.button(key="train.launch").click().run()
    app.run()
    app.button(key="train.launch").click().run()
    assert len(runs.list()) == 2


def test_a_field_keeps_its_value_when_the_preset_stays(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    app.number_input(key="train.training.epochs").set_value(7).run()
    app.toggle(key="train.more.training").set_value(True).run()
    assert app.number_input(key="train.training.epochs").value == 7
    assert "7 epochs" in labels(app)[4]


def test_a_field_that_is_hidden_again_keeps_its_value(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    app.toggle(key="train.more.training").set_value(True).run()
    app.number_input(key="train.training.weight_decay").set_value(0.25).run()
    app.toggle(key="train.more.training").set_value(False).run()
    app.run()
    assert not app.exception
    assert "weight_decay = 0.25" in shown(app)


def test_the_form_is_as_it_was_after_a_visit_to_another_page(pages: type, runs: RunStore) -> None:
    app = pages.in_app("train")
    app.number_input(key="train.training.epochs").set_value(7).run()
    app.switch_page("pages/runs.py").run()
    app.switch_page("pages/train.py").run()
    assert not app.exception
    assert app.number_input(key="train.training.epochs").value == 7


def test_settings_sent_by_the_batches_page_fill_the_form(pages: type, runs: RunStore) -> None:
    app = pages.closed("train")
    app.session_state["plan"] = {"batching": {"strategy": "random"}, "training": {"batch_size": 12, "seed": 5}}
    app.run()
    assert not app.exception
    assert app.selectbox(key="train.batching.strategy").value == "random"
    assert app.number_input(key="train.training.batch_size").value == 12
    assert app.number_input(key="train.training.seed").value == 5


def test_a_dataset_that_is_broken_is_said_calmly(pages: type, runs: RunStore) -> None:
    folder = runs.uploads_folder / "mine"
    folder.mkdir(parents=True)
    (folder / "pairs.tsv").write_text("", encoding="utf-8")
    described = {"label": "Mine", "data": {"train": str(folder / "pairs.tsv")}}
    (folder / "dataset.json").write_text(json.dumps(described), encoding="utf-8")
    app = pages.alone("train")
    app.selectbox(key="dataset").set_value("mine").run()
    assert not app.exception
    assert "pairs.tsv" in shown(app)


def test_every_field_of_the_form_is_a_field_of_the_schema_once() -> None:
    for section, names in train_fields.FIELDS.items():
        assert set(names) <= set(forms.model_of(section).model_fields)
        assert len(names) == len(set(names))


def test_every_field_of_the_sections_is_in_the_form() -> None:
    for section in ("encoder", "encoder.lora", "batching", "training", "evaluation"):
        elsewhere = {"stop_words", "lora"}  # in files alone; a switch of its own
        assert set(train_fields.FIELDS[section]) == set(forms.model_of(section).model_fields) - elsewhere


def test_every_field_of_every_loss_is_in_the_form() -> None:
    for name, model in LOSS_CONFIGS.items():
        assert {*loss_form.fields(name), *loss_form.APART} >= set(model.model_fields)
        assert len(set(loss_form.fields(name))) == len(loss_form.fields(name))


def test_a_type_and_its_none_are_told_apart() -> None:
    assert forms.kind_of(int | None) == (int, True)
    assert forms.kind_of(float) == (float, False)
    assert forms.kind_of(float | None) == (float, True)


def test_an_ordinary_plan_has_nothing_odd() -> None:
    assert plan_words.oddities(preset_config("recommended", sample_config()), FACTS) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss": {"temperature": 0.005}}, "Temperature 0.005 is low"),
        ({"loss": {"temperature": 5.0}}, "Temperature 5 is high"),
        ({"loss": {"normalization": "none", "temperature": 0.1}}, "0.5 to 20 is usual"),
        ({"training": {"batch_size": 900}}, "larger than the data"),
        ({"training": {"batch_size": 4}}, "Groups of 8 do not fit"),
        ({"training": {"learning_rate": 0.01}}, "high for a transformer"),
        ({"encoder": {"name": "static"}}, "low for static vectors"),
        ({"training": {"steps": 5}}, "Only 5 steps"),
        ({"loss": {"labelled_negatives": False}}, "leaves them out"),
        ({"training": {"accumulation": 4}}, "Accumulation averages 4 batches"),
        ({"training": {"early_stopping": 3}}, "cannot act in 3"),
        ({"training": {"early_stopping": 1}, "evaluation": {"each_epoch": False}}, "it will be refused"),
        ({"encoder": {"lora": {}}}, "low for LoRA"),
    ],
)
def test_what_is_odd_is_said(changes: dict[str, dict[str, object]], words: str) -> None:
    assert any(words in oddity for oddity in plan_words.oddities(plan(**changes), FACTS))


def test_the_plan_says_how_many_negatives_each_pair_has() -> None:
    said = " ".join(plan_words.plan_sentences(plan(training={"batch_size": 30}), FACTS))
    assert "29 negatives" in said
    assert "60 steps" in said


def test_a_batch_larger_than_the_data_has_the_negatives_that_there_are() -> None:
    said = " ".join(plan_words.plan_sentences(plan(training={"batch_size": 10**12}), FACTS))
    assert "in batches of 600, so each has 599 negatives" in said


def test_without_warm_up_the_learning_rate_does_not_rise() -> None:
    said = " ".join(plan_words.plan_sentences(plan(training={"warmup": 0.0}), FACTS))
    assert "that falls from 2e-5 to 0" in said
    assert "rises" not in said


@pytest.mark.parametrize(("batch_size", "wanted"), [(30, 60), (599, 3), (300, 6), (500, 6), (601, 3)])
def test_a_last_batch_of_one_pair_is_no_step_of_its_own(batch_size: int, wanted: int) -> None:
    assert plan_words.steps(plan(training={"batch_size": batch_size, "epochs": 3}), FACTS) == wanted


def test_accumulated_batches_make_fewer_steps_of_as_many_pairs() -> None:
    alone, four = plan(training={"batch_size": 30}), plan(training={"batch_size": 30, "accumulation": 4})
    assert (plan_words.steps(alone, FACTS), plan_words.steps(four, FACTS)) == (60, 15)
    assert plan_words.pairs(alone, FACTS) == plan_words.pairs(four, FACTS) == 1800


def test_without_labelled_negatives_only_positive_pairs_are_counted() -> None:
    assert plan_words.steps(plan(loss={"labelled_negatives": False}, training={"batch_size": 20}), FACTS) == 30


def test_rates_and_sizes_are_written_as_one_writes_them() -> None:
    assert [plan_words.small(value) for value in (3e-5, 0.001, 2.0)] == ["3e-5", "0.001", "2"]
    assert [plan_words.size(value) for value in (None, 1, 91_000_000, 1_440_000_000)] == [
        "unknown",
        "1 MB",
        "91 MB",
        "1.4 GB",
    ]


def test_a_launch_that_the_queue_refused_is_the_same_run_at_the_next_click(
    pages: type, runs: RunStore, queue_held: AbstractContextManager[object]
) -> None:
    app = pages.alone("train")
    with queue_held:
        app.button(key="train.launch").click().run()
    [run] = runs.list()
    assert f"run {run.id} is kept but not queued yet" in shown(app)
    app.run()
    app.button(key="train.launch").click().run()
    assert "not queued yet" not in shown(app)
    assert [found.id for found in runs.list()] == Queue(runs.root).waiting() == [run.id]


def test_a_form_that_is_edited_after_a_refusal_launches_another_run(
    pages: type, runs: RunStore, queue_held: AbstractContextManager[object]
) -> None:
    app = pages.alone("train")
    with queue_held:
        app.button(key="train.launch").click().run()
    app.text_input(key="train.name").set_value("Other").run()
    app.button(key="train.launch").click().run()
    assert sorted(run.config().name or "" for run in runs.list()) == ["", "Other"]


def test_a_refused_run_that_was_performed_since_is_not_launched_by_a_later_click(
    pages: type, runs: RunStore, queue_held: AbstractContextManager[object]
) -> None:
    app = pages.alone("train")
    with queue_held:
        app.button(key="train.launch").click().run()
    runs.list()[0].update_status(state="done")
    app.button(key="train.launch").click().run()
    assert len(runs.list()) == 2
