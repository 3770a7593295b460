"""New run: any value can become a list, and seeds, lists and presets make several runs of one plan."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import LOSS_CONFIGS, RunConfig, make_sweep, read_sweep, sweep_configs, to_toml
from bsc_core.jobs.queue import Queue
from bsc_core.recipes.fitting import DataShape
from bsc_core.recipes.presets import family_of, preset_config
from bsc_core.recipes.sample import sample_config
from bsc_core.runs import RunStore
from pages.ui import forms, launching, loss_form, plan_words, reasons, sweeping, train_fields

MARGINS = [0.01, 0.1, 1.0, 5.0, 7.5, 10.0]


def shown(app: AppTest) -> str:
    kinds = ("markdown", "text", "caption", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def start_from(app: AppTest, preset: str) -> None:
    app.selectbox(key="train.family").set_value(family_of(preset)).run()
    app.selectbox(key="train.preset").set_value(preset).run()


def turn(app: AppTest, field: str) -> None:
    app.button(key=f"train.{field}.turn").click().run()
    assert not app.exception


def lists(app: AppTest, **values: list[Any]) -> None:
    """Turn fields into lists of these values; `loss_bsc__temperature` stands for loss.bsc.temperature."""
    if not app.toggle(key="train.sweep.on").value:
        app.toggle(key="train.sweep.on").set_value(True).run()
    for name, listed in values.items():
        field = name.replace("__", ".")
        turn(app, field)
        app.session_state[f"train.{field}.list"] = listed
    app.run()
    assert not app.exception


def file_on(app: AppTest) -> dict[str, Any]:
    return tomllib.loads(next(code.value for code in app.code if "[training]" in code.value))


def launched(runs: RunStore) -> list[RunConfig]:
    return [runs.get(run_id).config() for run_id in Queue(runs.root).waiting()]


def test_a_sweep_is_off_until_it_is_asked_for(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    assert not [button for button in app.button if (button.key or "").endswith(".turn")]
    assert app.button(key="train.launch").label == "Launch"


def test_every_combination_becomes_a_run_of_one_group(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    lists(app, loss__bsc__temperature=[0.05, "0.1, 0.2"], training__batch_size=[16, "32"])
    assert app.button(key="train.launch").label == "Launch 6 runs"
    assert "3 × loss.temperature, 2 × training.batch_size: **6 runs**" in shown(app)
    assert f"bsc sweep config.toml --detach --runs {runs.root}" in shown(app)
    app.button(key="train.launch").click().run()
    assert not app.exception
    cells = [(config.loss.temperature, config.training.batch_size) for config in launched(runs)]
    assert cells == [(t, size) for t in (0.05, 0.1, 0.2) for size in (16, 32)]
    assert len({run.status().group for run in runs.list()}) == 1
    assert runs.list()[0].status().group is not None


def test_a_second_click_of_the_same_sweep_makes_no_second_group(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    lists(app, training__epochs=[1, 2])
    app.button(key="train.launch").click().run()
    app.button(key="train.launch").click().run()
    assert len(runs.list()) == 2


def test_the_file_on_the_page_gives_the_same_runs_on_the_command_line(
    pages: type, runs: RunStore, tmp_path: Path
) -> None:
    app = pages.alone("train")
    lists(app, loss__bsc__symmetric=[False, True])
    app.toggle(key="train.more.training").set_value(True).run()
    app.session_state["train.training.seeds"] = [3, "4"]
    app.run()
    (tmp_path / "config.toml").write_text(next(code.value for code in app.code if "[training]" in code.value))
    made = sweep_configs(*read_sweep(tmp_path / "config.toml"))
    app.button(key="train.launch").click().run()
    assert launched(runs) == made
    assert [(config.loss.symmetric, config.training.seed) for config in made] == [
        (False, 3),
        (False, 4),
        (True, 3),
        (True, 4),
    ]


def test_a_list_turns_back_into_its_first_value(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    lists(app, loss__bsc__temperature=[0.3, 0.4])
    turn(app, "loss.bsc.temperature")
    assert app.number_input(key="train.loss.bsc.temperature").value == 0.3
    assert app.button(key="train.launch").label == "Launch"
    assert file_on(app)["loss"]["temperature"] == 0.3


def test_switching_the_sweep_off_makes_one_run_of_it(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    lists(app, training__epochs=[1, 2])
    app.toggle(key="train.sweep.on").set_value(False).run()
    assert app.button(key="train.launch").label == "Launch"
    assert "sweep" not in file_on(app)


def test_lists_are_as_they_were_after_a_visit_to_another_page(pages: type, runs: RunStore) -> None:
    app = pages.in_app("train")
    lists(app, training__epochs=[1, "2 3"])
    app.switch_page("pages/start.py").run()
    app.switch_page("pages/train.py").run()
    assert not app.exception
    assert file_on(app)["sweep"]["over"] == {"training.epochs": [1, 2, 3]}


def test_lists_of_a_loss_that_is_not_chosen_make_no_runs(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    lists(app, loss__bsc__temperature=[0.1, 0.2])
    app.selectbox(key="train.loss.name").set_value("mnrl").run()
    assert app.button(key="train.launch").label == "Launch"
    app.selectbox(key="train.loss.name").set_value("bsc").run()
    assert app.button(key="train.launch").label == "Launch 2 runs"


@pytest.mark.parametrize(
    ("field", "values", "said"),
    [
        ("loss__bsc__temperature", [0.05, "0"], "temperature is 0; it must be > 0"),
        ("loss__bsc__temperature", [0.05, "warm"], "loss.temperature is 'warm'"),
        ("training__batch_size", [], "over.training.batch_size is empty"),
        ("training__batch_size", [16, "16"], "its values must differ"),
    ],
)
def test_a_list_that_cannot_work_is_said_calmly(
    pages: type, runs: RunStore, field: str, values: list[Any], said: str
) -> None:
    app = pages.alone("train")
    lists(app, **{field: values})
    assert said in shown(app)
    assert app.button(key="train.launch").disabled


def test_more_than_a_hundred_runs_have_to_be_confirmed(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    lists(app, training__seed=[" ".join(map(str, range(101)))])
    assert app.button(key="train.launch").label == "Launch 101 runs"
    assert app.button(key="train.launch").disabled
    assert "--yes" in shown(app)
    app.checkbox(key="train.sure.101").check().run()
    assert not app.button(key="train.launch").disabled


def test_a_wrong_value_is_found_in_a_sweep_of_ten_thousand_before_it_is_confirmed(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    hundred = " ".join(map(str, range(1, 101)))
    lists(app, training__seed=[hundred], training__epochs=[hundred], loss__bsc__temperature=[0.1, -1.0])
    assert "temperature is -1" in shown(app)
    assert app.button(key="train.launch").disabled
    assert runs.list() == []


def test_some_combinations_can_be_drawn(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    lists(app, training__seed=["1 2 3 4 5"], training__epochs=["1 2 3 4"])
    app.number_input(key="train.sweep.drawn").set_value(7).run()
    assert app.button(key="train.launch").label == "Launch 7 runs"
    app.button(key="train.launch").click().run()
    assert len({(config.training.seed, config.training.epochs) for config in launched(runs)}) == 7


def test_a_run_of_more_epochs_counts_for_more_of_the_time() -> None:
    config = preset_config("recommended", sample_config())  # three epochs
    shape = DataShape(positives=200, negatives=400, labelled=True, graded=True, classes=0, triplets=400)
    known = plan_words.Facts(train=600, dev=150, test=0, corpus=800, train_queries=200, shape=shape)
    sweep = make_sweep({"over": {"training.epochs": [3, 6], "training.batch_size": [32, 64]}})
    assert launching.times_as_long(config, sweep, known) == 2 * (1 + 2)
    by_steps = make_sweep({"over": {"training.steps": [10, 30]}})
    ten = config.model_copy(update={"training": config.training.model_copy(update={"steps": 10})})
    assert launching.times_as_long(ten, by_steps, known) == 1 + 3


def test_a_preset_of_several_runs_fills_its_lists_and_another_empties_them(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    start_from(app, "paper_triplet_margins")
    assert file_on(app)["sweep"]["over"] == {"loss.margin": MARGINS}
    assert app.button(key="train.launch").label == "Launch 6 runs"
    start_from(app, "paper_rates")
    assert app.button(key="train.launch").label == "Launch 20 runs"
    start_from(app, "paper_cqa_a")
    assert file_on(app) == tomllib.loads(to_toml(preset_config("paper_cqa_a", sample_config())))


def test_several_seeds_make_a_group_without_a_sweep(pages: type, runs: RunStore) -> None:
    app = pages.closed("train")
    app.session_state["plan"] = {"training": {"seeds": (4, 5)}}
    app.run()
    assert app.button(key="train.launch").label == "Launch 2 runs"
    app.button(key="train.launch").click().run()
    assert [config.training.seed for config in launched(runs)] == [4, 5]


@pytest.mark.parametrize("loss", list(LOSS_CONFIGS))
def test_the_key_of_every_field_leads_back_to_it(loss: str) -> None:
    sections = {f"loss.{loss}": loss_form.fields(loss), **train_fields.FIELDS}
    sections |= {sweeping.PART: loss_form.fields("bsc")} if loss == "combined" else {}
    for section, fields in sections.items():
        for field in fields:
            path = sweeping.path_of(section, field)
            assert sweeping.field_of(path, loss) == (section, field)


def test_every_field_of_the_form_says_why_its_default_is_what_it_is() -> None:
    sections = {**train_fields.FIELDS, **{f"loss.{name}": loss_form.fields(name) for name in LOSS_CONFIGS}}
    asked = {f"{section}.{field}" for section, fields in sections.items() for field in fields}
    asked.add("encoder.lora")
    assert set(reasons.WHY) == asked
    for section, fields in sections.items():
        for field in fields:
            default = forms.info_of(section, field).get_default()
            assert f"*Default: {reasons.told(default)}*" in (forms.help_of(section, field) or "")
