"""New run: every loss can be chosen, keeps its values, and is refused with one sentence where it cannot work."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import LOSS_CONFIGS, LossConfig, RunConfig, make_config
from bsc_core.data import load_data
from bsc_core.jobs.queue import Queue
from bsc_core.recipes.fitting import DataShape
from bsc_core.recipes.presets import family_of
from bsc_core.recipes.sample import sample_config, sample_nli_config
from bsc_core.runs import RunStore
from bsc_core.training.rows import training_rows
from pages.ui import loss_form, loss_words, plan_words, store, words

LABELLED = DataShape(positives=200, negatives=400, labelled=True, graded=True, classes=0, triplets=400)
POSITIVE = DataShape(positives=600, negatives=0, labelled=False, graded=False, classes=0, triplets=0)
FACTS = plan_words.Facts(train=600, dev=150, test=0, corpus=800, train_queries=200, shape=LABELLED)
SWITCHED_OFF = {"name": "bsc", "labelled_negatives": False}


def shown(app: AppTest) -> str:
    kinds = ("markdown", "text", "caption", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def choose(app: AppTest, loss: str) -> AppTest:
    return app.selectbox(key="train.loss.name").set_value(loss).run()


def start_from(app: AppTest, preset: str) -> None:
    app.selectbox(key="train.family").set_value(family_of(preset)).run()
    app.selectbox(key="train.preset").set_value(preset).run()


def config_on(app: AppTest) -> RunConfig:
    return make_config(tomllib.loads(next(code.value for code in app.code if "[training]" in code.value)))


def plan(loss: dict[str, Any], **changes: Any) -> RunConfig:
    return make_config({"data": {"train": "pairs.tsv"}, "loss": loss, **changes})


def loss(**values: Any) -> LossConfig:
    return plan(values).loss


@pytest.mark.parametrize("name", list(LOSS_CONFIGS))
def test_every_loss_can_be_chosen_and_stands_in_the_config_file(pages: type, runs: RunStore, name: str) -> None:
    app = choose(pages.alone("train", dataset=store.SAMPLE_NLI), name)
    assert not app.exception
    assert config_on(app).loss.name == name
    assert not app.button(key="train.launch").disabled


@pytest.mark.parametrize("name", list(LOSS_CONFIGS))
def test_more_settings_of_every_loss_can_be_opened(pages: type, runs: RunStore, name: str) -> None:
    app = choose(pages.alone("train", dataset=store.SAMPLE_NLI), name)
    before = config_on(app)
    for toggle in [one for one in app.toggle if one.key.startswith("train.more.loss")]:
        toggle.set_value(True)
    app.run()
    assert not app.exception
    assert config_on(app) == before


def test_only_the_chosen_losss_fields_are_drawn(pages: type, runs: RunStore) -> None:
    app = choose(pages.alone("train"), "triplet")
    drawn = {one.key for kind in ("number_input", "selectbox", "toggle") for one in app.get(kind) if one.key}
    assert {"train.loss.triplet.margin", "train.loss.triplet.distance"} <= drawn
    assert not any(key.startswith("train.loss.bsc") for key in drawn)


def test_values_survive_another_choice_and_back(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    app.number_input(key="train.loss.bsc.temperature").set_value(0.07).run()
    choose(app, "triplet")
    app.number_input(key="train.loss.triplet.margin").set_value(0.3).run()
    choose(app, "bsc")
    assert config_on(app).loss.temperature == 0.07
    assert config_on(choose(app, "triplet")).loss.margin == 0.3


def test_the_sum_of_the_paper_and_a_sum_of_ones_own(pages: type, runs: RunStore) -> None:
    app = choose(pages.alone("train"), "combined")
    app.number_input(key="train.loss.combined.mu").set_value(0.9).run()
    app.number_input(key="train.loss.combined.bsc.temperature").set_value(0.2).run()
    made = config_on(app).loss
    assert (made.mu, made.bsc.temperature) == (0.9, 0.2)
    app.selectbox(key="train.loss.combined.preset").set_value("custom").run()
    app.multiselect(key="train.loss.parts").set_value(["mnrl", "mse"]).run()
    app.number_input(key="train.loss.weight.mse").set_value(2.5).run()
    assert not app.exception
    assert [(part.weight, part.loss.name) for part in config_on(app).loss.summands] == [(1.0, "mnrl"), (2.5, "mse")]


def test_the_classifiers_features_are_chosen_from_a_list(pages: type, runs: RunStore) -> None:
    app = choose(pages.alone("train", dataset=store.SAMPLE_NLI), "softmax")
    app.multiselect(key="train.loss.softmax.features").set_value(["difference", "product"]).run()
    assert config_on(app).loss.features == ("difference", "product")


@pytest.mark.parametrize(
    ("name", "field", "value", "said"),
    [
        ("bsc", "bsc.temperature", 0.0, "temperature is 0; it must be > 0"),
        ("triplet", "triplet.margin", -1.0, "loss.margin is -1.0; input should be greater than 0"),
        ("supcon", "supcon.mix", 0.0, "loss.mix is 0.0; input should be greater than 0"),
        ("softmax", "softmax.num_classes", 1, "loss.num_classes is 1; input should be greater than or equal to 2"),
        ("combined", "combined.mu", 1.0, "loss.mu is 1.0; input should be less than 1"),
        ("combined", "combined.bsc.temperature", 0.0, "loss.bsc: temperature is 0"),
    ],
)
def test_a_wrong_value_is_said_calmly(
    pages: type, runs: RunStore, name: str, field: str, value: float, said: str
) -> None:
    app = choose(pages.alone("train", dataset=store.SAMPLE_NLI), name)
    app.number_input(key=f"train.loss.{field}").set_value(value).run()
    assert not app.exception
    assert said in shown(app)
    assert app.button(key="train.launch").disabled


def test_features_or_parts_that_are_all_taken_away_are_said_calmly(pages: type, runs: RunStore) -> None:
    app = choose(pages.alone("train", dataset=store.SAMPLE_NLI), "softmax")
    app.multiselect(key="train.loss.softmax.features").set_value([]).run()
    assert "features is []; name at least one" in shown(app)
    choose(app, "combined")
    app.selectbox(key="train.loss.combined.preset").set_value("custom").run()
    app.multiselect(key="train.loss.parts").set_value([]).run()
    assert not app.exception
    assert "preset is custom with 0 parts" in shown(app)


def test_a_loss_that_the_data_cannot_feed_says_what_is_missing_and_what_fits(pages: type, runs: RunStore) -> None:
    app = choose(pages.alone("train"), "softmax")
    assert not app.exception
    assert "softmax learns from classes, and these pairs have none" in shown(app)
    assert "Losses that fit these data: Batch-softmax contrastive (BSC), Combined, Cosine" in shown(app)
    assert app.button(key="train.launch").disabled
    options = app.selectbox(key="train.loss.name").options
    assert "Classifier (softmax): does not fit these data" in options
    assert "Batch-softmax contrastive (BSC)" in options


@pytest.mark.parametrize("name", ["softmax", "supcon"])
def test_a_classifier_can_be_launched_on_the_sample_nli_data(pages: type, runs: RunStore, name: str) -> None:
    app = choose(pages.alone("train", dataset=store.SAMPLE_NLI), name)
    app.button(key="train.launch").click().run()
    assert not app.exception
    [run] = runs.list()
    config = run.config()
    assert config.loss.name == name
    assert config.data == sample_nli_config()
    assert Queue(runs.root).waiting() == [run.id]
    assert len(training_rows(config, load_data(config.data, seed=0).train)) > 100


def test_the_labs_settings_arrive_in_the_form(pages: type, runs: RunStore) -> None:
    app = pages.closed("train")
    app.session_state["plan"] = {"loss": {"name": "bsc", "temperature": 0.3, "normalization": "range_columns"}}
    app.run()
    made = config_on(app).loss
    assert (made.name, made.temperature, made.normalization) == ("bsc", 0.3, "range_columns")


def test_another_preset_takes_the_place_of_what_was_sent(pages: type, runs: RunStore) -> None:
    app = pages.closed("train")
    app.session_state["plan"] = {"loss": {"name": "bsc", "temperature": 0.3}, "batching": {"strategy": "random"}}
    app.run()
    start_from(app, "paper_triplet")
    assert not app.exception
    assert config_on(app).loss == loss(name="triplet")


@pytest.mark.parametrize(
    ("given", "sent", "result"),
    [
        ({"name": "bsc", "temperature": 0.05}, {"name": "bsc", "symmetric": False}, {"symmetric": False}),
        ({"name": "bsc"}, {"labelled_negatives": False}, SWITCHED_OFF),
        ({"name": "mse"}, {"labelled_negatives": False}, {"name": "mse"}),
        ({"name": "mse"}, SWITCHED_OFF, SWITCHED_OFF),
    ],
)
def test_what_was_sent_lies_over_a_preset_of_the_same_loss(
    given: dict[str, Any], sent: dict[str, Any], result: dict[str, Any]
) -> None:
    made = loss_form.laid_over(given, sent)
    assert result.items() <= made.items()
    assert made.get("temperature") == given.get("temperature")
    make_config({"data": {"train": "x"}, "loss": made})


@pytest.mark.parametrize("name", list(LOSS_CONFIGS))
def test_every_loss_has_a_sentence_a_title_and_a_word(name: str) -> None:
    assert loss_words.loss_sentence(loss(name=name)).startswith("Loss: ")
    assert loss_words.TITLES[name]
    assert words.WORDS[name].definition
    said = " ".join(plan_words.plan_sentences(plan({"name": name}), FACTS))
    assert ("temperature" in said) == (name in ("bsc", "combined", "supcon", "simcse", "mnrl"))
    assert ("to be told from" in said) == (name in ("bsc", "combined", "simcse", "mnrl"))


def test_every_setting_of_every_loss_has_a_card_or_is_told_by_its_own_words() -> None:
    plain = {"name", "preset", "bsc", "parts", "learn_temperature", "activation"}
    named = {field for model in LOSS_CONFIGS.values() for field in model.model_fields}
    assert named - plain <= set(words.WORDS)


def test_a_triplet_plan_counts_triplets() -> None:
    assert plan_words.rows(plan({"name": "triplet"}), FACTS) == 400
    assert "400 triplets" in " ".join(plan_words.plan_sentences(plan({"name": "triplet"}), FACTS))


def test_the_counted_rows_are_those_of_the_run() -> None:
    data = load_data(sample_config(), seed=0)
    known = plan_words.facts(data)
    for values in ({"name": "bsc"}, SWITCHED_OFF, {"name": "triplet"}, {"name": "mse"}, {"name": "combined"}):
        config = plan(values)
        assert plan_words.rows(config, known) == len(training_rows(config, data.train))


@pytest.mark.parametrize(
    ("values", "changes", "said"),
    [
        ({"name": "triplet", "margin": 5}, {}, "margins from 2 on are one loss"),
        ({"name": "mnrl", "temperature": 1.0}, {}, "Temperature 1 is high"),
        ({"name": "bsc", "temperature": 0.1, "normalization": "range_columns"}, {}, "0.5 to 5 is usual"),
        (
            {"name": "bsc", "temperature": 1, "normalization": "l2_columns"},
            {"training": {"batch_size": 4}},
            "too few texts to tell a column's range",
        ),
        ({"name": "supcon", "normalization": "none", "temperature": 1}, {}, "Raw dot products"),
        ({"name": "supcon", "mix": 1.0}, {}, "leaves the classifier out"),
        ({"name": "simcse"}, {"encoder": {"name": "static"}}, "no dropout"),
        ({"name": "softmax", "frozen_head": True}, {}, "kept as a lesson"),
        ({"name": "softmax"}, {"training": {"schedule": "ends_early"}}, "rate is 0 for the last steps"),
        ({"name": "triplet"}, {"training": {"schedule": "restarts"}}, "rises over 10,000 steps, anew in each epoch"),
        ({"name": "combined", "bsc": {"temperature": 0.005}}, {}, "Temperature 0.005 is low"),
    ],
)
def test_what_is_odd_about_a_loss_is_said(values: dict[str, Any], changes: dict[str, Any], said: str) -> None:
    assert any(said in oddity for oddity in plan_words.oddities(plan(values, **changes), FACTS))


def test_a_loss_with_little_to_learn_is_odd_and_the_others_are_named() -> None:
    found = loss_words.oddities(plan({"name": "contrastive"}), POSITIVE)
    assert any("little in these data for contrastive" in line and "SimCSE" in line for line in found)
    assert loss_words.oddities(plan({"name": "triplet"}), LABELLED) == []
