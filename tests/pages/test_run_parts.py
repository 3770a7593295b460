"""One run: its first batch and curves, its model as a file and as code, and what can be done with it."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.cli.parser import make_parser
from bsc_core.config import RunConfig
from bsc_core.runs import Run, RunStore
from pages.ui import live, model_use, run_actions, run_detail, store

PAIR = {"query": "how do i bake", "document": "heat it", "label": None}
PAIR |= {"query_tokens": 6, "document_tokens": 4, "query_cut": False, "document_cut": False}


def shown(app: AppTest) -> str:
    """Every word on the page outside tables."""
    kinds = ("title", "subheader", "markdown", "text", "caption", "code")
    return "\n".join(str(element.value) for kind in kinds for element in app.get(kind))


def opened(app: AppTest, run: Run, part: str) -> AppTest:
    """The page after another tab of the run was clicked."""
    app.session_state[f"runs.part.{run.id}.Overview"] = part
    app.run()
    assert not app.exception
    return app


def pressed(app: AppTest, key: str) -> AppTest:
    app.button(key=key).click().run()
    assert not app.exception
    return app


def alive(run: Run, **changes: Any) -> None:
    """The run as it is while a process of its own, here this one, trains it."""
    run.update_status(pid=os.getpid(), process_created=psutil.Process().create_time(), **changes)


def test_the_first_batch_stands_as_the_model_saw_it(pages: type, finished: Run) -> None:
    cut = PAIR | {"query": "<b>a</b> **long** one", "query_cut": True}
    finished.write_json("first_batch", {"epoch": 1, "size": 40, "pairs": [PAIR, cut]})
    app = opened(pages.alone("runs", run=finished.id), finished, "First batch")
    assert "Epoch 1 begins with 40 pairs, the first 2 of them below; 1 text longer than the encoder reads" in shown(app)
    table = next(table.value for table in app.dataframe if "Query tokens" in table.value.columns)
    assert table["Query"].tolist() == ["how do i bake", "<b>a</b> **long** one"]
    assert table["Cut"].tolist() == ["", "query"]


def test_a_batch_of_which_no_text_was_cut_says_so() -> None:
    told = run_detail.batch_sentence({"epoch": 1, "size": 1, "pairs": [PAIR]})
    assert told == "Epoch 1 begins with 1 pair; no text was cut."


def test_a_run_without_a_first_batch_says_why(pages: type, runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "begins")
    assert "as soon as training begins" in shown(opened(pages.alone("runs", run=run.id), run, "First batch"))
    run.update_status(state="stopped")
    assert "kept no first batch" in shown(opened(pages.alone("runs", run=run.id), run, "First batch"))


def test_every_number_that_the_steps_noted_has_a_curve(pages: type, finished: Run) -> None:
    fields = {"loss": 1.0, "temperature": 0.1, "learning_rate": 1e-5, "grad_norm": 2.0, "tokens_per_second": 9e3}
    finished.metrics_file.unlink()
    for step in (1, 2):
        more = {"hardness": 0.25, "memory_bytes": 2**28, "pairs_per_second": 5.0}
        finished.append_metrics({"kind": "step", "step": step, "epoch": 1, **fields, **more})
    app = opened(pages.alone("runs", run=finished.id), finished, "Curves")
    assert len(app.get("vega_lite_chart")) == len(fields) + 2


def test_the_zip_holds_the_model_and_the_snippet_runs_on_it(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(io.BytesIO(model_use.packed(finished))) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)
    unpacked = tmp_path / f"{finished.id}-model"
    kept = {path.relative_to(finished.model_folder) for path in model_use.model_files(finished)}
    assert {path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()} == kept
    exec(compile(model_use.SNIPPET.format(folder=json.dumps(str(unpacked))), "snippet", "exec"), {})
    assert capsys.readouterr().out.startswith("tensor([[")


def test_the_command_beside_the_model_names_the_runs_folder(pages: type, finished: Run) -> None:
    app = opened(pages.alone("runs", run=finished.id), finished, "Model")
    (command,) = [one.value for one in app.code if one.value.startswith("bsc evaluate")]
    arguments = make_parser().parse_args(shlex.split(command)[1:])
    assert RunStore(arguments.runs).get(arguments.model).id == finished.id


def test_a_run_that_was_stopped_before_it_began_promises_no_model(finished: Run) -> None:
    changes = {"step": 0, "steps": None, "epochs": None, "metric_name": None, "started": None, "resumed_from": None}
    status = finished.update_status(state="stopped", message="stopped before it began", **changes)
    assert live.status_line(status) == "stopped before it began"


def test_a_run_that_failed_offers_only_what_there_is(pages: type, finished: Run) -> None:
    finished.update_status(state="failed", error="no such encoder")
    assert "then resume the run or launch another" in shown(pages.alone("runs", run=finished.id))
    shutil.rmtree(finished.checkpoints_folder)
    app = pages.alone("runs", run=finished.id)
    assert "then duplicate the run" in shown(app)
    assert not any("Resume" in button.label for button in app.button)


def test_no_model_is_offered_while_a_run_goes_on_or_where_none_is_whole(pages: type, finished: Run) -> None:
    app = opened(pages.alone("runs", run=finished.id), finished, "Model")
    assert [one.label.split(" (")[0] for one in app.get("download_button")] == ["Download the model"]
    alive(finished, state="running")
    app = opened(pages.alone("runs", run=finished.id), finished, "Model")
    assert not app.get("download_button")
    assert "when the run has ended" in shown(app)
    finished.update_status(state="done")
    (finished.model_folder / "modules.json").unlink()
    app = opened(pages.alone("runs", run=finished.id), finished, "Model")
    assert "left no model" in shown(app)


def test_a_model_too_large_to_be_sent_names_its_folder(
    pages: type, finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_use, "LARGEST", 1000)
    app = opened(pages.alone("runs", run=finished.id), finished, "Model")
    assert not app.get("download_button")
    assert "copy its folder" in shown(app)


def test_a_deleted_run_leaves_the_table_and_undo_brings_it_back_whole(pages: type, finished: Run) -> None:
    before = sorted(path.relative_to(finished.folder) for path in finished.folder.rglob("*"))
    app = pressed(pages.alone("runs", run=finished.id), f"runs.delete.{finished.id}")
    app.run()
    assert not finished.folder.exists()
    assert f"Run {finished.id} was deleted." in shown(app)
    assert "No run yet" in shown(app)
    pressed(app, "runs.undo").run()
    assert sorted(path.relative_to(finished.folder) for path in finished.folder.rglob("*")) == before
    assert "was deleted" not in shown(app)
    assert app.dataframe[0].value["State"].tolist() == ["✓ done"]


def test_the_trash_brings_a_run_back_in_another_session_and_can_be_emptied(pages: type, finished: Run) -> None:
    pressed(pages.alone("runs", run=finished.id), f"runs.delete.{finished.id}")
    other = pages.alone("runs")
    assert "was deleted" not in shown(other)
    pressed(other, f"runs.restore.{finished.id}")
    assert finished.folder.exists()
    app = pressed(pages.alone("runs", run=finished.id), f"runs.delete.{finished.id}").run()
    pressed(app, "runs.trash.empty")
    assert "was deleted" not in shown(app)
    assert not any(button.key == f"runs.restore.{finished.id}" for button in app.button)


def test_a_run_that_goes_on_cannot_be_deleted(pages: type, finished: Run) -> None:
    alive(finished, state="running")
    app = pages.alone("runs", run=finished.id)
    assert f"runs.delete.{finished.id}" not in [button.key for button in app.button]


def test_a_run_given_up_for_lost_whose_process_is_still_there_can_be_stopped(pages: type, finished: Run) -> None:
    alive(finished, state="lost")
    offered = {button.label for button in pages.alone("runs", run=finished.id).button}
    assert {"Stop", "Resume", "Delete"} & offered == {"Stop"}
    finished.update_status(pid=None, process_created=None)
    offered = {button.label for button in pages.alone("runs", run=finished.id).button}
    assert {"Stop", "Resume", "Delete"} & offered == {"Resume", "Delete"}


def test_a_duplicate_opens_new_run_with_every_setting(pages: type, finished: Run) -> None:
    app = pressed(pages.in_app("runs", run=finished.id), f"runs.duplicate.{finished.id}")
    assert "What should the encoder learn" in app.title[0].value
    config = finished.config()
    kept = app.session_state["plan"]
    assert RunConfig.model_validate({"data": config.data, **kept}) == config.model_copy(update={"name": ""})
    assert store.datasets()[app.session_state["context"]["dataset"]].data == config.data


def test_the_dataset_of_a_config_is_found_or_made_once(runs: RunStore, trained: Run) -> None:
    data = trained.config().data
    first = run_actions.dataset_of(data)
    assert run_actions.dataset_of(data) == first
    assert store.datasets()[first].data == data
    assert run_actions.dataset_of(store.datasets()[store.SAMPLE].data) == store.SAMPLE
    other = data.model_copy(update={"threshold": 0.1})
    assert run_actions.dataset_of(other) != first


def test_training_on_from_a_run_starts_from_its_model(pages: type, finished: Run) -> None:
    app = opened(pages.in_app("runs", run=finished.id), finished, "Model")
    pressed(app, f"runs.chain.{finished.id}")
    assert app.session_state["plan"]["encoder"]["name"] == f"run:{finished.id}"
    assert app.session_state["plan"]["encoder"]["max_length"] == finished.config().encoder.max_length


def test_nothing_on_the_page_is_looked_at_again_once_every_run_has_ended(
    pages: type, finished: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import streamlit as st

    asked: list[str | None] = []
    plain = st.fragment

    def noted(function: Any, *, run_every: str | None = None) -> Any:
        asked.append(run_every)
        return plain(function, run_every=run_every)

    monkeypatch.setattr(st, "fragment", noted)
    shutil.copytree(finished.folder, finished.folder.with_name("goes-on"))
    other = Run(finished.folder.with_name("goes-on"))
    alive(other, state="running")
    app = pages.alone("runs", run=other.id)
    assert asked == ["2s"] * 4  # the sidebar, the table, the queue and the run
    asked.clear()
    other.update_status(state="done")
    app.run()
    assert asked == [None] * 4
    asked.clear()
    app.session_state["run"] = finished.id
    alive(other, state="running")
    app.run()
    assert asked == ["2s", "2s", "2s", None]  # the run that is shown has ended


def test_a_click_on_stop_in_two_tabs_at_once_stops_once(pages: type, runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "waiting")
    first, second = pages.alone("runs", run=run.id), pages.alone("runs", run=run.id)
    pressed(first, "runs.stop.waiting")
    pressed(second, "runs.stop.waiting")
    assert run.status().state == "stopped"
