"""New run page: lists of values, seeds and presets that launch several runs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import LOSS_CONFIGS, make_sweep, read_sweep, sweep_configs, to_toml
from bsc_core.data.sample_data import sample_config
from bsc_core.presets.catalog import preset_config
from bsc_core.runs import RunStore
from pages.ui.components import config_form
from pages.ui.new_run import form, launch, loss_form, sweep_form
from tests.helpers.pages import (
    SUMMARY,
    click,
    config_file,
    open_page,
    open_page_in_app,
    open_with_settings,
    page_text,
    queued_configs,
    select_preset,
)

MARGINS = [0.01, 0.1, 1.0, 5.0, 7.5, 10.0]


def select_lists(app: AppTest, *fields: str) -> None:
    """Select the fields that have several values, such as `loss.bsc.temperature`."""
    chosen = [tuple(field.rsplit(".", 1)) for field in fields]
    app.multiselect(key="train.sweep.chosen").set_value(chosen).run()


def open_with_lists(**values: list[Any]) -> AppTest:
    """Open the page with lists of values; `loss__bsc__temperature` is the field loss.bsc.temperature."""
    return set_lists(open_page("train"), **values)


def set_lists(app: AppTest, **values: list[Any]) -> AppTest:
    app.toggle(key="train.sweep.on").set_value(True).run()
    lists = {name.replace("__", "."): listed for name, listed in values.items()}
    select_lists(app, *lists)
    for field, listed in lists.items():
        app.session_state[f"train.{field}.list"] = listed
    return app.run()


def test_a_sweep_is_off_by_default(runs: RunStore) -> None:
    app = open_page("train")
    assert "train.sweep.chosen" not in [one.key for one in app.multiselect]
    assert app.button(key="train.launch").label == "Launch run"


@pytest.mark.parametrize("loss", LOSS_CONFIGS)
def test_the_settings_of_a_sweep_have_different_names(runs: RunStore, loss: str) -> None:
    app = open_page("train", **{"loss.name": loss, "sweep.training.epochs": "1,2"})
    names = app.multiselect(key="train.sweep.chosen").options
    assert len(set(names)) == len(names)
    assert len(names) > 50


def test_every_combination_becomes_a_run_of_one_group(runs: RunStore) -> None:
    app = open_with_lists(loss__bsc__temperature=[0.05, "0.1, 0.2"], training__batch_size=[16, "32"])
    assert app.button(key="train.launch").label == "Launch 6 runs"
    assert "3 values of Temperature × 2 values of Batch size: **6 runs**" in page_text(app)
    assert f"bsc sweep config.toml --detach --runs {runs.root}" in page_text(app)
    click(app, "train.launch")
    cells = [(config.loss.temperature, config.training.batch_size) for config in queued_configs(runs)]
    assert cells == [(t, size) for t in (0.05, 0.1, 0.2) for size in (16, 32)]
    assert len({run.status().group for run in runs.list()}) == 1
    assert runs.list()[0].status().group is not None


def test_a_second_click_of_the_same_sweep_creates_no_second_group(runs: RunStore) -> None:
    app = open_with_lists(training__epochs=[1, 2])
    click(app, "train.launch")
    click(app, "train.launch")
    assert len(runs.list()) == 2


def test_the_config_file_gives_the_same_runs_on_the_command_line(runs: RunStore, tmp_path: Path) -> None:
    app = open_with_lists(loss__bsc__symmetric=[False, True])
    assert any(box.label == "Seeds" for box in app.multiselect), "without the switch More"
    app.session_state["train.training.seeds"] = [3, "4"]
    app.run()
    (tmp_path / "config.toml").write_text(next(code.value for code in app.code if "[training]" in code.value))
    configs = sweep_configs(*read_sweep(tmp_path / "config.toml"))
    click(app, "train.launch")
    assert queued_configs(runs) == configs
    cells = [(config.loss.symmetric, config.training.seed) for config in configs]
    assert cells == [(False, 3), (False, 4), (True, 3), (True, 4)]


def test_a_setting_that_is_no_longer_a_list_has_the_value_of_before(runs: RunStore) -> None:
    before = open_page("train").number_input(key="train.loss.bsc.temperature").value
    app = open_with_lists(loss__bsc__temperature=[0.3, 0.4], loss__bsc__labeled_negatives=[False, True])
    select_lists(app)
    assert app.number_input(key="train.loss.bsc.temperature").value == before
    assert app.button(key="train.launch").label == "Launch run"
    assert config_file(app)["loss"]["temperature"] == before
    assert config_file(app)["loss"].get("labeled_negatives", True) is True


def test_switching_the_sweep_off_leaves_one_run(runs: RunStore) -> None:
    app = open_with_lists(training__epochs=[1, 2])
    app.toggle(key="train.sweep.on").set_value(False).run()
    assert app.button(key="train.launch").label == "Launch run"
    assert "sweep" not in config_file(app)


def test_lists_survive_a_visit_to_another_page(runs: RunStore) -> None:
    app = open_page_in_app("train")
    set_lists(app, training__epochs=[1, "2 3"])
    app.switch_page("pages/start.py").run()
    app.switch_page("pages/train.py").run()
    assert config_file(app)["sweep"]["over"] == {"training.epochs": [1, 2, 3]}


def test_lists_of_a_loss_that_is_not_chosen_are_ignored(runs: RunStore) -> None:
    app = open_with_lists(loss__bsc__temperature=[0.1, 0.2])
    app.selectbox(key="train.loss.name").set_value("mnrl").run()
    assert app.button(key="train.launch").label == "Launch run"
    app.selectbox(key="train.loss.name").set_value("bsc").run()
    assert app.button(key="train.launch").label == "Launch 2 runs"


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        ("loss__bsc__temperature", [0.05, "0"], "temperature is 0; it must be > 0"),
        ("loss__bsc__temperature", [0.05, "warm"], "loss.temperature is 'warm'"),
        ("training__batch_size", [], "over.training.batch_size is empty"),
        ("training__batch_size", [16, "16"], "its values must be distinct"),
    ],
)
def test_an_invalid_list_is_reported(runs: RunStore, field: str, values: list[Any], message: str) -> None:
    app = open_with_lists(**{field: values})
    assert message in page_text(app)
    assert app.button(key="train.launch").disabled


def test_more_than_a_hundred_runs_have_to_be_confirmed(runs: RunStore) -> None:
    app = open_with_lists(training__seed=[" ".join(map(str, range(101)))])
    assert app.button(key="train.launch").label == "Launch 101 runs"
    assert app.button(key="train.launch").disabled
    assert "--yes" in page_text(app)
    app.checkbox(key="train.sure.101").check().run()
    assert not app.button(key="train.launch").disabled


def test_an_invalid_value_in_a_large_sweep_is_reported_before_confirmation(runs: RunStore) -> None:
    hundred = " ".join(map(str, range(1, 101)))
    app = open_with_lists(training__seed=[hundred], training__epochs=["1 2"], loss__bsc__temperature=[0.1, -1.0])
    assert "temperature is -1" in page_text(app)
    assert app.button(key="train.launch").disabled
    assert runs.list() == []


def test_combinations_can_be_sampled(runs: RunStore) -> None:
    app = open_with_lists(training__seed=["1 2 3 4 5"], training__epochs=["1 2 3 4"])
    app.number_input(key="train.sweep.sampled").set_value(7).run()
    assert app.button(key="train.launch").label == "Launch 7 runs"
    click(app, "train.launch")
    assert len({(config.training.seed, config.training.epochs) for config in queued_configs(runs)}) == 7


def test_the_time_factor_weights_runs_by_their_length() -> None:
    config = preset_config("recommended", sample_config())  # three epochs
    sweep = make_sweep({"over": {"training.epochs": [3, 6], "training.batch_size": [32, 64]}})
    assert launch.time_factor(config, sweep, SUMMARY) == 2 * (1 + 2)
    by_steps = make_sweep({"over": {"training.max_steps": [10, 30]}})
    ten = config.model_copy(update={"training": config.training.model_copy(update={"max_steps": 10})})
    assert launch.time_factor(ten, by_steps, SUMMARY) == 1 + 3


def test_a_preset_of_several_runs_fills_its_lists_and_another_empties_them(runs: RunStore) -> None:
    app = open_page("train")
    select_preset(app, "paper_triplet_margins")
    assert config_file(app)["sweep"]["over"] == {"loss.margin": MARGINS}
    assert app.button(key="train.launch").label == "Launch 6 runs"
    select_preset(app, "paper_rates")
    assert app.button(key="train.launch").label == "Launch 20 runs"
    select_preset(app, "paper_cqa_a")
    assert config_file(app) == tomllib.loads(to_toml(preset_config("paper_cqa_a", sample_config())))


def test_several_seeds_make_a_group_without_a_sweep(runs: RunStore) -> None:
    app = open_with_settings({"training": {"seeds": (4, 5)}})
    assert app.button(key="train.launch").label == "Launch 2 runs"
    click(app, "train.launch")
    assert [config.training.seed for config in queued_configs(runs)] == [4, 5]


@pytest.mark.parametrize("loss", list(LOSS_CONFIGS))
def test_config_keys_and_form_fields_map_to_each_other(loss: str) -> None:
    sections = {f"loss.{loss}": loss_form.fields(loss), **form.FIELDS}
    sections |= {sweep_form.COMBINED_BSC: loss_form.fields("bsc")} if loss == "combined" else {}
    for section, fields in sections.items():
        for field in fields:
            key = sweep_form.config_key(section, field)
            assert sweep_form.form_field(key, loss) == (section, field)


def test_every_form_field_explains_its_default() -> None:
    sections = {**form.FIELDS, **{f"loss.{name}": loss_form.fields(name) for name in LOSS_CONFIGS}}
    fields_of_form = {f"{section}.{field}" for section, fields in sections.items() for field in fields}
    fields_of_form.add("encoder.lora")
    assert set(config_form.REASONS) == fields_of_form
    for section, fields in sections.items():
        for field in fields:
            default = config_form.info_of(section, field).get_default()
            text = f"*Default without a preset: {config_form.format_setting(default)}*"
            assert text in (config_form.help_of(section, field) or "")
