"""New run page: choice of a loss, its fields, its summary, and its errors and warnings."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core import formatting
from bsc_core.config import LOSS_CONFIGS, EncoderConfig, LossConfig, RunConfig, TrainingConfig, make_config
from bsc_core.data import load_data
from bsc_core.data.sample_data import sample_config, sample_nli_config
from bsc_core.jobs.queue import Queue
from bsc_core.losses.catalog import measured_masks
from bsc_core.presets.catalog import PRESETS
from bsc_core.presets.suitable_losses import DataShape
from bsc_core.runs import RunStore
from bsc_core.training.data import select_training_rows
from pages.ui.components import data_cache, glossary
from pages.ui.new_run import config_summary, loss_form
from tests.helpers.pages import (
    LABELED,
    SUMMARY,
    click,
    config_file,
    open_page,
    open_with_settings,
    page_text,
    select_preset,
)

POSITIVE = DataShape(positives=600, negatives=0, labeled=False, graded=False, classes=0, triplets=0)
SWITCHED_OFF = {"name": "bsc", "labeled_negatives": False}


def choose(app: AppTest, loss: str) -> AppTest:
    return app.selectbox(key="train.loss.name").set_value(loss).run()


def config_on(app: AppTest) -> RunConfig:
    return make_config(config_file(app))


def plan(loss: dict[str, Any], **changes: Any) -> RunConfig:
    return make_config({"data": {"train": "pairs.tsv"}, "loss": loss, **changes})


def loss(**values: Any) -> LossConfig:
    return plan(values).loss


@pytest.mark.parametrize("name", list(LOSS_CONFIGS))
def test_every_loss_can_be_chosen_and_is_in_the_config_file(runs: RunStore, name: str) -> None:
    app = choose(open_page("train", dataset=data_cache.SAMPLE_NLI), name)
    assert config_on(app).loss.name == name
    assert not app.button(key="train.launch").disabled


@pytest.mark.parametrize("name", list(LOSS_CONFIGS))
def test_more_settings_of_every_loss_can_be_opened(runs: RunStore, name: str) -> None:
    app = choose(open_page("train", dataset=data_cache.SAMPLE_NLI), name)
    before = config_on(app)
    for toggle in [one for one in app.toggle if one.key.startswith("train.more.loss")]:
        toggle.set_value(True)
    app.run()
    assert config_on(app) == before


def test_only_the_chosen_losss_fields_are_drawn(runs: RunStore) -> None:
    app = choose(open_page("train"), "triplet")
    drawn = {one.key for kind in ("number_input", "selectbox", "toggle") for one in app.get(kind) if one.key}
    assert {"train.loss.triplet.margin", "train.loss.triplet.distance"} <= drawn
    assert not any(key.startswith("train.loss.bsc") for key in drawn)


def test_values_survive_another_choice_and_back(runs: RunStore) -> None:
    app = open_page("train")
    app.number_input(key="train.loss.bsc.temperature").set_value(0.07).run()
    choose(app, "triplet")
    app.number_input(key="train.loss.triplet.margin").set_value(0.3).run()
    choose(app, "bsc")
    assert config_on(app).loss.temperature == 0.07
    assert config_on(choose(app, "triplet")).loss.margin == 0.3


def test_the_combined_loss_of_the_paper_and_a_custom_one(runs: RunStore) -> None:
    app = choose(open_page("train"), "combined")
    app.number_input(key="train.loss.combined.mu").set_value(0.9).run()
    app.number_input(key="train.loss.combined.bsc.temperature").set_value(0.2).run()
    loss_config = config_on(app).loss
    assert (loss_config.mu, loss_config.bsc.temperature) == (0.9, 0.2)
    app.selectbox(key="train.loss.combined.preset").set_value("custom").run()
    app.multiselect(key="train.loss.parts").set_value(["mnrl", "mse"]).run()
    app.number_input(key="train.loss.weight.mse").set_value(2.5).run()
    assert [(part.weight, part.loss.name) for part in config_on(app).loss.summands] == [(1.0, "mnrl"), (2.5, "mse")]


def test_the_classifiers_features_are_chosen_from_a_list(runs: RunStore) -> None:
    app = choose(open_page("train", dataset=data_cache.SAMPLE_NLI), "softmax")
    app.multiselect(key="train.loss.softmax.features").set_value(["difference", "product"]).run()
    assert config_on(app).loss.features == ("difference", "product")


@pytest.mark.parametrize(
    ("name", "field", "value", "message"),
    [
        ("bsc", "bsc.temperature", 0.0, "temperature is 0; it must be > 0"),
        ("triplet", "triplet.margin", -1.0, "loss.margin is -1.0; input should be greater than 0"),
        ("supcon", "supcon.mix", 0.0, "loss.mix is 0.0; input should be greater than 0"),
        ("softmax", "softmax.num_classes", 1, "loss.num_classes is 1; input should be greater than or equal to 2"),
        ("combined", "combined.mu", 1.0, "loss.mu is 1.0; input should be less than 1"),
        ("combined", "combined.bsc.temperature", 0.0, "loss.bsc: temperature is 0"),
    ],
)
def test_an_invalid_value_is_reported(runs: RunStore, name: str, field: str, value: float, message: str) -> None:
    app = choose(open_page("train", dataset=data_cache.SAMPLE_NLI), name)
    app.number_input(key=f"train.loss.{field}").set_value(value).run()
    assert message in page_text(app)
    assert app.button(key="train.launch").disabled


def test_empty_features_or_parts_are_reported(runs: RunStore) -> None:
    app = choose(open_page("train", dataset=data_cache.SAMPLE_NLI), "softmax")
    app.multiselect(key="train.loss.softmax.features").set_value([]).run()
    assert "features is []; name at least one" in page_text(app)
    choose(app, "combined")
    app.selectbox(key="train.loss.combined.preset").set_value("custom").run()
    app.multiselect(key="train.loss.parts").set_value([]).run()
    assert "preset is custom and parts is empty" in page_text(app)


def test_a_loss_that_does_not_fit_the_data_is_reported_with_those_that_fit(runs: RunStore) -> None:
    app = choose(open_page("train"), "softmax")
    assert "softmax learns from classes, and these pairs have none" in page_text(app)
    assert "Losses that fit these data: Batch-softmax contrastive (BSC), Combined, Cosine" in page_text(app)
    assert app.button(key="train.launch").disabled
    options = app.selectbox(key="train.loss.name").options
    assert "Classifier (softmax) (not suited to these data)" in options
    assert "Batch-softmax contrastive (BSC)" in options


@pytest.mark.parametrize("name", ["softmax", "supcon"])
def test_a_classifier_can_be_launched_on_the_sample_nli_data(runs: RunStore, name: str) -> None:
    app = choose(open_page("train", dataset=data_cache.SAMPLE_NLI), name)
    click(app, "train.launch")
    [run] = runs.list()
    config = run.config()
    assert config.loss.name == name
    assert config.data == sample_nli_config()
    assert Queue(runs.root).waiting() == [run.id]
    assert len(select_training_rows(config, load_data(config.data, seed=0).train)) > 100


def test_loss_lab_settings_fill_the_form(runs: RunStore) -> None:
    sent = {"name": "bsc", "temperature": 0.3, "normalization": "range_columns"}
    app = open_with_settings({"loss": sent})
    loss_config = config_on(app).loss
    assert (loss_config.name, loss_config.temperature, loss_config.normalization) == ("bsc", 0.3, "range_columns")
    [changed] = [one.value for one in app.caption if one.value.startswith("Changed from the preset: ")]
    assert "Temperature = 0.3" in changed


def test_another_preset_replaces_settings_from_other_pages(runs: RunStore) -> None:
    app = open_with_settings({"loss": {"name": "bsc", "temperature": 0.3}, "batching": {"strategy": "random"}})
    select_preset(app, "paper_triplet")
    assert config_on(app).loss == loss(name="triplet")


def test_batch_settings_of_the_batches_page_stay_with_another_preset_until_they_are_dropped(runs: RunStore) -> None:
    app = open_with_settings({"batching": {"strategy": "words"}, "training": {"batch_size": 44}})
    select_preset(app, "paper_triplet")
    assert (config_on(app).batching.strategy, config_on(app).training.batch_size) == ("words", 44)
    assert "The batch settings are those of the Batches page." in page_text(app)
    app.button(key="train.drop_batches").click().run()
    preset = PRESETS["paper_triplet"].values
    batch_size = preset["training"].get("batch_size", TrainingConfig().batch_size)
    assert config_on(app).training.batch_size == batch_size
    assert config_on(app).batching.strategy == preset["batching"]["strategy"]
    assert "those of the Batches page" not in page_text(app)


@pytest.mark.parametrize(
    ("preset", "sent", "result"),
    [
        ({"name": "bsc", "temperature": 0.05}, {"name": "bsc", "symmetric": False}, {"symmetric": False}),
        ({"name": "bsc"}, {"labeled_negatives": False}, SWITCHED_OFF),
        ({"name": "mse"}, {"labeled_negatives": False}, {"name": "mse"}),
        ({"name": "mse"}, SWITCHED_OFF, SWITCHED_OFF),
    ],
)
def test_sent_settings_override_a_preset_of_the_same_loss(
    preset: dict[str, Any], sent: dict[str, Any], result: dict[str, Any]
) -> None:
    values = loss_form.override(preset, sent)
    assert result.items() <= values.items()
    assert values.get("temperature") == preset.get("temperature")
    make_config({"data": {"train": "x"}, "loss": values})


@pytest.mark.parametrize("name", list(LOSS_CONFIGS))
def test_every_loss_has_a_sentence_a_name_and_a_glossary_entry(name: str) -> None:
    assert config_summary.loss_sentence(loss(name=name)).startswith("Loss: ")
    assert config_summary.LOSS_NAMES[name]
    assert glossary.TERMS[name].definition
    text = " ".join(config_summary.plan_sentences(plan({"name": name}), SUMMARY))
    assert ("temperature" in text) == (
        name in ("bsc", "combined", "supcon", "simcse", "mnrl", "sigmoid", "cosent", "angle")
    )
    assert ("in-batch negative" in text) == (name in ("bsc", "combined", "simcse", "mnrl", "sigmoid"))


def test_random_layers_are_in_the_sentence_of_the_encoder() -> None:
    assert "random" not in config_summary.encoder_sentence(EncoderConfig())
    text = config_summary.encoder_sentence(EncoderConfig(reinit_layers=3))
    assert text.endswith(", random weights in the upper 3 layers and the pooler")


def test_the_treatment_of_the_negatives_is_in_the_sentence() -> None:
    switches = {"mask": "self", "mask_margin": 0.1, "hardness": "all_negatives", "decoupled": True}
    text = config_summary.loss_sentence(loss(name="mnrl", matryoshka_dims=[64, 384], **switches))
    expected = "false-negative mask by the model (absolute margin 0.1), hardness weights 5 on all negatives, decoupled"
    assert text.endswith(f"query to document, {expected}, Matryoshka dimensions 64, 384")


def test_every_loss_setting_has_a_glossary_entry_unless_its_name_explains_it() -> None:
    plain = {"name", "preset", "bsc", "parts", "learn_temperature", "activation"}
    named = {field for model in LOSS_CONFIGS.values() for field in model.model_fields}
    assert named - plain <= set(glossary.TERMS)


def test_a_triplet_plan_counts_triplets() -> None:
    assert config_summary.count_rows(plan({"name": "triplet"}), SUMMARY) == 400
    assert "400 triplets" in " ".join(config_summary.plan_sentences(plan({"name": "triplet"}), SUMMARY))


def test_counted_rows_match_the_training_rows() -> None:
    data = load_data(sample_config(), seed=0)
    summary = config_summary.summarize_data(data)
    for values in ({"name": "bsc"}, SWITCHED_OFF, {"name": "triplet"}, {"name": "mse"}, {"name": "combined"}):
        config = plan(values)
        assert config_summary.count_rows(config, summary) == len(select_training_rows(config, data.train))


@pytest.mark.parametrize(
    ("values", "changes", "message"),
    [
        ({"name": "triplet", "margin": 5}, {}, "all triplet margins of 2 or more give the same gradient"),
        ({"name": "contrastive", "margin": 5}, {}, "every negative pair is pushed apart"),
        ({"name": "online_contrastive", "margin": 2}, {}, "every hard negative pair is pushed apart"),
        ({"name": "mnrl", "temperature": 1.0}, {}, "Temperature 1 is high"),
        ({"name": "bsc", "temperature": 0.1, "normalization": "range_columns"}, {}, "1 to 3 is usual"),
        ({"normalization": "l2_columns"}, {"training": {"batch_size": 4}}, "too few texts to estimate a column's"),
        ({"name": "supcon", "normalization": "none", "temperature": 1}, {}, "Raw dot products"),
        ({"name": "supcon", "mix": 1.0}, {}, "leaves the classifier out"),
        ({"name": "simcse"}, {"encoder": {"name": "static"}}, "needs dropout"),
        ({"name": "softmax", "frozen_head": True}, {}, "reproduces a mistake of the article"),
        ({"name": "softmax"}, {"training": {"schedule": "ends_early"}}, "rate is 0 for the last steps"),
        ({"name": "triplet"}, {"training": {"schedule": "restarts"}}, "restarts in each epoch"),
        ({"name": "combined", "bsc": {"temperature": 0.005}}, {}, "Temperature 0.005 is low"),
    ],
)
def test_unusual_loss_settings_give_a_warning(values: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    assert any(message in warning.text for warning in config_summary.config_warnings(plan(values, **changes), SUMMARY))


def test_a_loss_with_little_to_learn_gives_a_warning_that_lists_alternatives() -> None:
    warnings = list(config_summary.loss_warnings(plan({"name": "contrastive"}), POSITIVE))
    assert any("little for the contrastive loss" in line and "SimCSE" in line for line in warnings)
    assert list(config_summary.loss_warnings(plan({"name": "triplet"}), LABELED)) == []


def test_a_selected_loss_takes_over_changed_values_of_the_one_before() -> None:
    app = open_page("train")
    app.selectbox(key="train.loss.name").select("bsc").run()
    app.number_input(key="train.loss.bsc.temperature").set_value(0.07).run()
    app.selectbox(key="train.loss.name").select("mnrl").run()
    assert app.number_input(key="train.loss.mnrl.temperature").value == 0.07
    app.number_input(key="train.loss.mnrl.temperature").set_value(0.2).run()
    app.selectbox(key="train.loss.name").select("bsc").run()
    assert app.number_input(key="train.loss.bsc.temperature").value == 0.07


def test_the_mask_shows_its_measured_precision_and_recall_with_the_nearest_margin(runs: RunStore) -> None:
    app = choose(open_page("train", **{"train.more.loss.bsc": "true"}), "bsc")
    assert "Mask with margin" not in page_text(app)
    app.selectbox(key="train.loss.bsc.mask").set_value("self").run()
    assert "Mask with margin 0, measured on labeled data" in page_text(app)
    app.number_input(key="train.loss.bsc.mask_margin").set_value(0.08).run()
    rows = {row["data"]: row for row in measured_masks("absolute", 0.1)}
    assert set(rows) == {"cqa_a", "cqa_b", "wikiqa", "qqp"}
    text = page_text(app)
    assert "Mask with margin 0.1, measured" in text
    assert f"WikiQA {formatting.percent(rows['wikiqa']['precision'])}, " in text
    assert f"QQP {formatting.percent(rows['qqp']['recall'])}." in text


def test_a_relative_margin_has_its_own_measurements() -> None:
    absolute, relative = (measured_masks(kind, 0.05)[0] for kind in ("absolute", "relative"))
    assert absolute["margin"] == relative["margin"] == 0.05
    assert absolute["recall"] != relative["recall"]
