"""New run page: LoRA, runs that start from another run, settings from other pages, and the preflight."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bsc_core import background_task
from bsc_core.config import RunConfig, make_config
from bsc_core.data.sample_data import sample_config
from bsc_core.jobs.states import advance
from bsc_core.preflight import Preflight
from bsc_core.presets.catalog import preset_config
from bsc_core.runs import Run, RunStore
from bsc_core.runs.ids import short_id
from bsc_core.training import estimate as estimates
from pages.ui.new_run import preflight
from tests.helpers.pages import (
    click,
    config_file,
    open_page,
    open_with_settings,
    page_text,
    prepare_page,
    queued_configs,
    select_preset,
)


def test_lora_is_one_switch_and_its_settings(runs: RunStore) -> None:
    app = open_page("train")
    app.toggle(key="train.more.encoder").set_value(True).run()
    app.toggle(key="train.encoder.lora").set_value(True).run()
    app.number_input(key="train.encoder.lora.rank").set_value(4).run()
    assert config_file(app)["encoder"]["lora"]["rank"] == 4
    app.toggle(key="train.encoder.lora").set_value(False).run()
    assert "lora" not in config_file(app)["encoder"]


def test_a_run_can_start_from_a_finished_run(finished: Run, runs: RunStore) -> None:
    app = open_page("train")
    box = app.selectbox(key="train.encoder.name")
    assert any(short_id(finished.id) in option and "done" in option for option in box.options)
    box.set_value(f"run:{finished.id}").run()
    assert f"Start from the model of run {finished.id}" in page_text(app)
    click(app, "train.launch")
    assert [config.encoder.name for config in queued_configs(runs)] == [f"run:{finished.id}"]


def test_a_run_can_wait_for_an_active_run(runs: RunStore) -> None:
    before = runs.create(preset_config("lesson", sample_config()), "first")
    advance(before, "running")
    app = open_with_settings({"encoder": {"name": "run:first"}})
    assert "waits in the queue until run first has ended (running)" in page_text(app)
    click(app, "train.launch")
    assert [config.encoder.name for config in queued_configs(runs)] == ["run:first"]


@pytest.mark.parametrize(("run", "message"), [("first", "failed"), ("nowhere", "nowhere")])
def test_a_chain_to_a_run_without_a_model_is_reported(runs: RunStore, run: str, message: str) -> None:
    failed = runs.create(preset_config("lesson", sample_config()), "first")
    advance(failed, "running")
    advance(failed, "failed", error="no")
    app = open_with_settings({"encoder": {"name": f"run:{run}"}})
    assert message in page_text(app)
    assert app.button(key="train.launch").disabled


def _pickled(folder: Path) -> str:
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / "pytorch_model.bin").write_bytes(b"")
    return "pickled weights can run code"


@pytest.mark.parametrize("make", [lambda folder: "not a model folder", _pickled], ids=["no model", "pickled"])
def test_an_invalid_model_folder_is_reported_before_the_launch(
    runs: RunStore, tmp_path: Path, make: Callable[[Path], str]
) -> None:
    message = make(tmp_path)
    app = open_with_settings({"encoder": {"name": str(tmp_path)}})
    assert message in page_text(app)
    assert app.button(key="train.launch").disabled


def test_loss_lab_settings_change_only_the_loss(runs: RunStore) -> None:
    app = prepare_page("train")
    directed = {"directions": "query_to_doc,doc_to_doc", "partition": "joint"}
    app.session_state["learn.written"] = {"temperature": "0.3", "symmetric": "0", "preset": "circle"} | directed
    app.run()
    app.number_input(key="train.training.epochs").set_value(9).run()
    app.selectbox(key="train.loss.name").set_value("mnrl").run()
    click(app, "train.lab")
    config = config_file(app)
    assert (config["loss"]["name"], config["loss"]["temperature"], config["loss"]["symmetric"]) == ("bsc", 0.3, False)
    assert (config["loss"]["directions"], config["loss"]["partition"]) == (["query_to_doc", "doc_to_doc"], "joint")
    assert config["training"]["epochs"] == 9


def test_a_complete_config_fills_every_section_until_a_preset_is_selected(runs: RunStore) -> None:
    sent = preset_config("paper_cqa_b_combined", sample_config())
    sections = ("encoder", "batching", "loss", "training", "evaluation")
    settings = {name: getattr(sent, name).model_dump() for name in sections}
    settings["evaluation"]["each_epoch"] = False
    app = open_with_settings(settings)
    config = config_file(app)
    assert (config["loss"]["mu"], config["training"]["epochs"], config["evaluation"]["each_epoch"]) == (0.9, 7, False)
    select_preset(app, "paper_triplet")
    assert make_config(config_file(app)) == preset_config("paper_triplet", sample_config())


def write_preflight(config: RunConfig, **changes: Any) -> None:
    """Write the result of a preflight where the page reads it."""
    values = Preflight(
        rows=673,
        texts=1000,
        tokens=20_000,
        steps=63,
        epochs=3,
        steps_timed=3,
        step_seconds=0.25,
        pairs_per_second=128.0,
        seconds={"start": 2.0, "encode": 8.0, "plan": 1.0, "train": 50.0, "checkpoint": 1.0},
        memory_bytes=1_400_000_000,
        memory_free_bytes=9_000_000_000,
        disk_bytes=600_000_000,
        disk_free_bytes=3_000_000_000,
        device="cpu",
        precision="fp32",
        loss=1.0,
        warnings=("12% of the texts reach 90 tokens.",),
    ).as_report()
    folder = preflight.preflight_folder(config)
    folder.mkdir(parents=True, exist_ok=True)
    request = {"config": config.model_dump(mode="json")}
    (folder / background_task.REQUEST).write_text(json.dumps(request), encoding="utf-8")
    (folder / background_task.RESULT_FILE).write_text(json.dumps({**values, **changes}), encoding="utf-8")


def test_an_estimate_names_the_run_by_its_short_id(runs: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = estimates.Estimate(60.0, 10**9, 10**7, "20260101-000000-nearest-ab12")
    monkeypatch.setattr(estimates, "estimate", lambda config, data, store: expected)
    assert "Measured on this machine in run nearest-ab12." in page_text(open_page("train"))


def test_a_preflight_is_shown_for_its_config_only(runs: RunStore) -> None:
    config = preset_config("recommended", sample_config())
    write_preflight(config)
    app = open_page("train")
    text = page_text(app)
    for words in ("673", "1 min 2 s", "1.4 GB", "600 MB", "12% of the texts reach 90 tokens", "training 81%"):
        assert words in text
    app.number_input(key="train.training.epochs").set_value(4).run()
    assert "12% of the texts" not in page_text(app)
    assert not app.button(key="train.preflight.begin").disabled


def test_a_preflight_is_shown_for_configs_of_the_same_cost(runs: RunStore) -> None:
    write_preflight(preset_config("recommended", sample_config()))
    app = open_page("train")
    assert "It was measured with" not in page_text(app)
    app.number_input(key="train.loss.bsc.temperature").set_value(0.2).run()
    app.number_input(key="train.training.learning_rate").set_value(1e-4).run()
    text = page_text(app)
    assert "12% of the texts reach 90 tokens" in text
    assert "It was measured with Temperature = 0.05, Learning rate = 3e-5, which does not change the cost." in text
    app.number_input(key="train.training.batch_size").set_value(8).run()
    assert "12% of the texts" not in page_text(app)


def test_markup_in_a_warning_of_a_preflight_is_shown_as_text(runs: RunStore) -> None:
    write_preflight(preset_config("recommended", sample_config()), odd=["![image](https://example.org/a.png)"])
    shown = [element.value for element in open_page("train").markdown if "example.org" in element.value]
    assert len(shown) == 1
    assert "![image](" not in shown[0]


def test_a_preflight_reports_time_and_disk_of_all_runs(runs: RunStore) -> None:
    app = open_page("train")
    app.session_state["train.training.seeds"] = [0, 1, 2, 3, 4]
    write_preflight(preset_config("recommended", sample_config()))
    app.run()
    assert "5 min 10 s" in page_text(app)
    assert "These runs may fill the disk" in page_text(app)


class Child:
    """A fake process that runs until `code` is set."""

    pid = 0
    code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.code = -15

    def wait(self, timeout: float | None = None) -> int | None:
        return self.code


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    process = Child()
    monkeypatch.setattr(background_task, "_children", {})
    monkeypatch.setattr(background_task.subprocess, "Popen", lambda *_, **__: process)
    return process


def test_the_run_can_be_launched_during_a_preflight(runs: RunStore, child: Child) -> None:
    app = open_page("train")
    click(app, "train.preflight.begin")
    folder = Path(app.session_state[preflight.STATE])
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    assert RunConfig.model_validate(request["config"]) == preset_config("recommended", sample_config())
    background_task.write_progress(folder, 3, 6, "planning an epoch")
    app.run()
    assert not app.button(key="train.launch").disabled
    click(app, "train.preflight.end")
    assert child.code == -15
    assert not app.button(key="train.preflight.begin").disabled


def test_a_launch_ends_the_preflight(runs: RunStore, child: Child) -> None:
    app = open_page("train")
    click(app, "train.preflight.begin")
    click(app, "train.launch")
    assert len(runs.list()) == 1
    assert child.code == -15
    assert preflight.STATE not in app.session_state


def test_a_failed_preflight_reports_its_error(runs: RunStore, child: Child) -> None:
    app = open_page("train")
    app.number_input(key="train.training.epochs").set_value(6).run()
    click(app, "train.preflight.begin")
    child.code = -9
    app.run()
    assert "the process ended early" in page_text(app)
    folder = Path(app.session_state[preflight.STATE])
    background_task.write_progress(folder, 0, 1, "refused", error="encoder: a folder that is no model")
    app.run()
    assert "a folder that is no model" in page_text(app)
