"""New run: chains, what other pages send, and the preflight that is watched beside the plan."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import RunConfig, to_toml
from bsc_core.jobs.queue import Queue
from bsc_core.jobs.states import advance
from bsc_core.preflight import Preflight
from bsc_core.preflight.job import result_file
from bsc_core.recipes.presets import family_of, preset_config
from bsc_core.recipes.sample import sample_config
from bsc_core.runs import Run, RunStore
from pages.ui import preflight_view


def shown(app: AppTest) -> str:
    kinds = ("markdown", "text", "caption", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def start_from(app: AppTest, preset: str) -> None:
    app.selectbox(key="train.family").set_value(family_of(preset)).run()
    app.selectbox(key="train.preset").set_value(preset).run()


def file_on(app: AppTest) -> dict[str, Any]:
    return tomllib.loads(next(code.value for code in app.code if "[training]" in code.value))


def file_of(preset: str) -> dict[str, Any]:
    return tomllib.loads(to_toml(preset_config(preset, sample_config())))


def launched(runs: RunStore) -> list[RunConfig]:
    return [runs.get(run_id).config() for run_id in Queue(runs.root).waiting()]


def test_lora_is_one_switch_and_its_settings(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    app.toggle(key="train.more.encoder").set_value(True).run()
    app.toggle(key="train.encoder.lora").set_value(True).run()
    app.number_input(key="train.encoder.lora.rank").set_value(4).run()
    assert not app.exception
    assert file_on(app)["encoder"]["lora"]["rank"] == 4
    app.toggle(key="train.encoder.lora").set_value(False).run()
    assert "lora" not in file_on(app)["encoder"]


def test_the_model_of_a_finished_run_can_be_trained_on(pages: type, finished: Run, runs: RunStore) -> None:
    app = pages.alone("train")
    box = app.selectbox(key="train.encoder.name")
    assert any(finished.id in option and "done" in option for option in box.options)
    box.set_value(f"run:{finished.id}").run()
    assert f"Start from the model of run {finished.id}" in shown(app)
    app.button(key="train.launch").click().run()
    assert not app.exception
    assert [config.encoder.name for config in launched(runs)] == [f"run:{finished.id}"]


def test_a_run_that_goes_on_can_be_waited_for(pages: type, runs: RunStore) -> None:
    before = runs.create(preset_config("lesson", sample_config()), "first")
    advance(before, "running")
    app = pages.closed("train")
    app.session_state["plan"] = {"encoder": {"name": "run:first"}}
    app.run()
    assert "waits in the queue until run first has ended (running)" in shown(app)
    app.button(key="train.launch").click().run()
    assert [config.encoder.name for config in launched(runs)] == ["run:first"]


@pytest.mark.parametrize(("run", "said"), [("first", "failed"), ("nowhere", "nowhere")])
def test_a_chain_that_leads_nowhere_is_said_calmly(pages: type, runs: RunStore, run: str, said: str) -> None:
    failed = runs.create(preset_config("lesson", sample_config()), "first")
    advance(failed, "running")
    advance(failed, "failed", error="no")
    app = pages.closed("train")
    app.session_state["plan"] = {"encoder": {"name": f"run:{run}"}}
    app.run()
    assert not app.exception
    assert said in shown(app)
    assert app.button(key="train.launch").disabled


def _pickled(folder: Path) -> str:
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / "pytorch_model.bin").write_bytes(b"")
    return "pickled weights can run code"


@pytest.mark.parametrize("make", [lambda folder: "not a model folder", _pickled], ids=["no model", "pickled"])
def test_a_folder_that_cannot_be_loaded_is_said_before_the_launch(
    pages: type, runs: RunStore, tmp_path: Path, make: Callable[[Path], str]
) -> None:
    said = make(tmp_path)
    app = pages.closed("train")
    app.session_state["plan"] = {"encoder": {"name": str(tmp_path)}}
    app.run()
    assert not app.exception
    assert said in shown(app)
    assert app.button(key="train.launch").disabled


def test_the_labs_settings_can_be_taken_over_without_touching_the_rest(pages: type, runs: RunStore) -> None:
    app = pages.closed("train")
    app.session_state["learn.written"] = {"temperature": "0.3", "symmetric": "0", "preset": "circle"}
    app.run()
    app.number_input(key="train.training.epochs").set_value(9).run()
    app.selectbox(key="train.loss.name").set_value("mnrl").run()
    app.button(key="train.lab").click().run()
    assert not app.exception
    made = file_on(app)
    assert (made["loss"]["name"], made["loss"]["temperature"], made["loss"]["symmetric"]) == ("bsc", 0.3, False)
    assert made["training"]["epochs"] == 9


def test_a_whole_run_that_was_sent_fills_every_section_until_a_preset_is_chosen(pages: type, runs: RunStore) -> None:
    sent = preset_config("paper_cqa_b_combined", sample_config()).model_copy()
    sections = ("encoder", "batching", "loss", "training", "evaluation")
    app = pages.closed("train")
    app.session_state["plan"] = {
        **{name: getattr(sent, name).model_dump() for name in sections},
        "evaluation": {**sent.evaluation.model_dump(), "each_epoch": False},
    }
    app.run()
    made = file_on(app)
    assert not app.exception
    assert (made["loss"]["mu"], made["training"]["epochs"], made["evaluation"]["each_epoch"]) == (0.9, 7, False)
    start_from(app, "paper_triplet")
    assert file_on(app) == file_of("paper_triplet")


def found(config: RunConfig, **changes: Any) -> None:
    """Put the report of a preflight where the page looks for it."""
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
        odd=("12% of the texts reach 90 tokens.",),
    ).as_report()
    folder = preflight_view.folder_of(config)
    folder.mkdir(parents=True, exist_ok=True)
    result_file(folder).write_text(json.dumps({**values, **changes}), encoding="utf-8")


def test_what_a_preflight_found_stands_beside_the_plan_it_was_made_for(pages: type, runs: RunStore) -> None:
    config = preset_config("recommended", sample_config())
    found(config)
    app = pages.alone("train")
    text = shown(app)
    for words in ("673", "1 min 2 s", "1.4 GB", "600 MB", "12% of the texts reach 90 tokens", "steps 81%"):
        assert words in text
    app.number_input(key="train.training.epochs").set_value(4).run()
    assert "12% of the texts" not in shown(app)
    assert not app.button(key="train.preflight.begin").disabled


def test_a_preflight_tells_the_time_and_disk_of_all_runs(pages: type, runs: RunStore) -> None:
    app = pages.alone("train")
    app.session_state["train.training.seeds"] = [0, 1, 2, 3, 4]
    found(preset_config("recommended", sample_config()))
    app.run()
    assert "5 min 10 s" in shown(app)
    assert "So many runs fill the disk" in shown(app)


class Child:
    """A process that goes on until it is told how it ended."""

    code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def terminate(self) -> None:
        self.code = -15

    def wait(self) -> int | None:
        return self.code


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Child:
    preflight_view._child.clear()
    made = Child()
    monkeypatch.setattr(preflight_view.subprocess, "Popen", lambda *_, **__: made)
    return made


def test_a_preflight_is_watched_while_the_run_can_be_launched(pages: type, runs: RunStore, child: Child) -> None:
    app = pages.alone("train")
    app.button(key="train.preflight.begin").click().run()
    folder = Path(app.session_state[preflight_view.STATE])
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    assert RunConfig.model_validate(request["config"]) == preset_config("recommended", sample_config())
    progress = {"done": 3, "of": 6, "doing": "planning an epoch", "error": None}
    (folder / "progress.json").write_text(json.dumps(progress), encoding="utf-8")
    app.run()
    assert not app.exception
    assert not app.button(key="train.launch").disabled
    app.button(key="train.preflight.end").click().run()
    assert child.code == -15
    assert not app.button(key="train.preflight.begin").disabled


def test_a_preflight_that_was_refused_or_died_says_why(pages: type, runs: RunStore, child: Child) -> None:
    app = pages.alone("train")
    app.number_input(key="train.training.epochs").set_value(6).run()
    app.button(key="train.preflight.begin").click().run()
    child.code = -9
    app.run()
    assert "the process ended early" in shown(app)
    folder = Path(app.session_state[preflight_view.STATE])
    told = {"done": 0, "of": 1, "doing": "refused", "error": "encoder: a folder that is no model"}
    (folder / "progress.json").write_text(json.dumps(told), encoding="utf-8")
    app.run()
    assert not app.exception
    assert "a folder that is no model" in shown(app)
