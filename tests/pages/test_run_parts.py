"""Runs page, one run: first batch, curves, model, actions, and live updates."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import zipfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import psutil
import pytest

from bsc_core import background_task
from bsc_core.cli.parser import make_parser
from bsc_core.config import RunConfig
from bsc_core.diagnosis import task as diagnosis_task
from bsc_core.errors import InputError
from bsc_core.jobs.actions import merging
from bsc_core.runs import Run, RunStatus, RunStore
from pages.ui.components import data_cache
from pages.ui.runs import actions, detail, diagnosis, merge, model_export
from tests.helpers.pages import click, figure_titles, open_page, open_page_in_app, open_tab, page_text, table_with

PAIR = {"query": "how do i bake", "document": "heat it", "label": None}
PAIR |= {"query_tokens": 6, "document_tokens": 4, "query_cut": False, "document_cut": False}


def mark_alive(run: Run, **changes: Any) -> None:
    """Set the status of a run as if this process trained it."""
    run.update_status(pid=os.getpid(), process_created=psutil.Process().create_time(), **changes)


def test_the_first_batch_is_shown_as_the_model_read_it(finished: Run) -> None:
    cut = PAIR | {"query": "<b>a</b> **long** one", "query_cut": True}
    finished.write_json("first_batch", {"epoch": 1, "size": 40, "pairs": [PAIR, cut]})
    app = open_tab(open_page("runs", run=finished.id), "First batch")
    sentence = "Epoch 1 starts with 40 pairs, the first 2 are shown; 1 text was truncated"
    assert sentence in page_text(app)
    table = next(table.value for table in app.dataframe if "Query tokens" in table.value.columns)
    assert table["Query"].tolist() == ["how do i bake", "<b>a</b> **long** one"]
    assert table["Truncated"].tolist() == ["", "query"]


def test_the_batch_sentence_reports_if_no_text_was_truncated() -> None:
    sentence = detail.batch_sentence({"epoch": 1, "size": 1, "pairs": [PAIR]})
    assert sentence == "Epoch 1 starts with 1 pair; no text was truncated."


def test_a_run_without_a_first_batch_explains_why(runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "queued")
    assert "as soon as training begins" in page_text(open_tab(open_page("runs", run=run.id), "First batch"))
    run.update_status(state="stopped")
    assert "saved no first batch" in page_text(open_tab(open_page("runs", run=run.id), "First batch"))


def test_every_logged_number_has_a_curve_by_step_or_time(finished: Run) -> None:
    fields = {"loss": 1.0, "temperature": 0.1, "learning_rate": 1e-5, "grad_norm": 2.0, "tokens_per_second": 9e3}
    finished.metrics_file.unlink()
    for step in (1, 2):
        more = {"hardness": 0.25, "memory_bytes": 2**28, "pairs_per_second": 5.0, "elapsed_seconds": 2.0 * step}
        finished.append_metrics({"kind": "step", "step": step, "epoch": 1, **fields, **more})
    app = open_tab(open_page("runs", run=finished.id), "Curves")
    assert len(app.get("vega_lite_chart")) == len(fields) + 2
    app.slider(key="smoothing").set_value(0.5)
    app.get("button_group")[-1].set_value("time").run()
    first = json.loads(app.get("vega_lite_chart")[0].proto.spec)
    assert [layer["encoding"]["x"]["field"] for layer in first["layer"]] == ["seconds", "seconds"]


def test_the_zip_contains_the_model_and_the_snippet_runs_on_it(
    finished: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(io.BytesIO(model_export.zip_model(finished))) as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path)
    unpacked = tmp_path / f"{finished.id}-model"
    files = {path.relative_to(finished.model_folder) for path in model_export.model_files(finished)}
    assert {path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()} == files
    exec(compile(model_export.SNIPPET.format(folder=json.dumps(str(unpacked))), "snippet", "exec"), {})
    assert capsys.readouterr().out.startswith("tensor([[")


def test_the_evaluate_command_names_the_runs_folder(finished: Run) -> None:
    app = open_tab(open_page("runs", run=finished.id), "Model")
    (command,) = [one.value for one in app.code if one.value.startswith("bsc evaluate")]
    arguments = make_parser().parse_args(shlex.split(command)[1:])
    assert RunStore(arguments.runs).get(arguments.model).id == finished.id


def test_the_model_is_merged_with_its_start_at_a_chosen_alpha(
    finished: Run, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_here(folder: Path, module: str, request: Any, environment: dict[str, str], **options: object) -> None:
        """Run the task in this process."""
        assert module == "bsc_core.jobs.actions.merging"
        folder.mkdir(parents=True)
        (folder / background_task.REQUEST).write_text(json.dumps(request), encoding="utf-8")
        merging.perform(folder, request)

    monkeypatch.setattr(background_task, "start", start_here)
    (finished.model_folder / "link.safetensors").symlink_to("missing")
    app = open_tab(open_page("runs", run=finished.id), "Model")
    app = click(app, f"runs.merge.{merge.task_folder(finished).name}")
    curve = background_task.read_result(merge.task_folder(finished))
    assert curve is not None
    alphas, steps = [point["alpha"] for point in curve["points"]], [step / 10 for step in range(11)]
    best = max(step for step in steps if step <= curve["suggested"])
    assert alphas == sorted({*steps, *([round(best + 0.05, 4)] if best < 1 else [])})
    assert len(app.get("vega_lite_chart")) == 1
    app.select_slider(key=f"runs.alpha.{finished.id}").set_value(0.3).run()
    assert merge.point_sentence(curve, 0.3) in page_text(app)
    with monkeypatch.context() as patch:
        patch.setattr(merge, "check_run_disk", Mock(side_effect=InputError("the disk quota is used up")))
        assert "the disk quota is used up" in page_text(app.run())
    app = click(app.run(), f"runs.merge.{merge.task_folder(finished, 0.3).name}")
    saved = merging.merged_folder(finished, 0.3)
    assert (saved / "modules.json").is_file()
    assert str(saved) in page_text(app)
    finished.write_json("config", {**finished.config().model_dump(mode="json"), "encoder": {"reinit_layers": 1}})
    app = open_tab(open_page("runs", run=finished.id), "Model")
    assert "cannot be merged with its start" in page_text(app)


def test_the_diagnosis_offers_the_changed_setting_for_a_new_run(
    finished: Run, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_here(folder: Path, module: str, request: Any, environment: dict[str, str], **options: object) -> None:
        """Run the task in this process."""
        assert module == diagnosis_task.__name__
        folder.mkdir(parents=True)
        (folder / background_task.REQUEST).write_text(json.dumps(request), encoding="utf-8")
        diagnosis_task.perform(folder, request)

    monkeypatch.setattr(background_task, "start", start_here)
    finished.write_embeddings("after", np.array(finished.embeddings("before")))
    app = open_tab(open_page("runs", run=finished.id), "Diagnosis")
    assert "What limits the quality of this run?" in page_text(app)
    app = click(app, f"runs.diagnosis.{diagnosis.task_folder(finished).name}")
    report = background_task.read_result(diagnosis.task_folder(finished))
    assert report is not None
    assert report["verdict"] in page_text(app)
    assert diagnosis.QUESTIONS[report["state"]] in page_text(app)
    codes = [finding["code"] for finding in report["findings"]]
    number = codes.index("learning_rate_low")
    assert "Set training.learning_rate to 0.01" in page_text(app)
    assert "Expected" in table_with(app, "Evidence").columns
    sent: list[RunConfig] = []
    monkeypatch.setattr(actions, "start_from_config", sent.append)
    use = f"runs.diagnosis.use.{finished.id}.{number}"
    assert app.button(key=use).label == "New run with Learning rate 0.01"
    click(app, use)
    assert sent[0].training.learning_rate == pytest.approx(0.01)


def test_the_button_of_an_older_page_does_not_start_a_running_task_again(
    finished: Run, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = diagnosis.task_folder(finished)
    monkeypatch.setattr(background_task, "start", lambda *_, **__: None)
    monkeypatch.setattr(background_task, "reset", lambda _: pytest.fail("the task was started again"))
    app = open_tab(open_page("runs", run=finished.id), "Diagnosis")
    folder.mkdir(parents=True)
    (folder / background_task.REQUEST).write_text("{}", encoding="utf-8")  # as from another page
    click(app, f"runs.diagnosis.{folder.name}")


def test_a_run_that_has_not_ended_is_not_diagnosed(runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "queued")
    app = open_tab(open_page("runs", run=run.id), "Diagnosis")
    assert "appears here when the run has ended" in page_text(app)


def test_a_change_that_does_not_fit_the_config_is_not_offered(trained: Run) -> None:
    config = trained.config()
    changed = diagnosis.changed_config(config, {"loss.name": "mnrl", "data.filters": ["drop_leaks"]})
    assert changed is not None
    assert (changed.loss.name, changed.data.filters) == ("mnrl", ("drop_leaks",))
    assert diagnosis.changed_config(config, {"loss.margin": 1.0}) is None
    assert diagnosis.changed_config(config, {}) is None


def test_a_run_stopped_before_training_shows_its_message(finished: Run) -> None:
    changes = {"step": 0, "steps": None, "epochs": None, "metric_name": None, "started": None, "resumed_from": None}
    status = finished.update_status(state="stopped", message="stopped before it began", **changes)
    assert detail.status_line(status) == "stopped before it began"


@pytest.mark.parametrize(("high", "is_worse"), [(0.1, True), (1.0, False)])
def test_a_run_that_got_worse_says_so_in_its_head(finished: Run, high: float, is_worse: bool) -> None:
    finished.update_status(metric_high=high)
    app = open_page("runs", run=finished.id)
    assert ("worse than before training" in page_text(app)) == is_worse


@pytest.mark.parametrize(("before", "is_worse"), [(0.8, True), (0.5, False)])
def test_an_active_run_says_that_no_epoch_is_as_good_as_before_training(
    finished: Run, before: float, is_worse: bool
) -> None:
    evaluated = finished.evaluation("before")
    evaluated["dev"]["spearman"] = before  # about 0.75 after each epoch
    finished.write_evaluation("before", evaluated)
    finished.update_status(metric_name="spearman")
    mark_alive(finished, state="running")
    app = open_page("runs", run=finished.id)
    assert ("no epoch as good as before training" in page_text(app)) == is_worse


def test_the_status_line_has_the_metric_before_training() -> None:
    status = RunStatus(state="done", metric_name="mrr", metric_best=0.7)
    assert detail.status_line(status, before=0.8) == "best on dev: MRR 0.700, before training 0.800"


def test_a_failed_run_offers_resume_only_with_a_checkpoint(finished: Run) -> None:
    finished.update_status(state="failed", error="no such encoder")
    assert "then resume the run or launch another" in page_text(open_page("runs", run=finished.id))
    shutil.rmtree(finished.checkpoints_folder)
    app = open_page("runs", run=finished.id)
    assert "then duplicate the run" in page_text(app)
    assert not any("Resume" in button.label for button in app.button)


def test_no_model_is_offered_while_a_run_is_active_or_if_it_is_incomplete(finished: Run) -> None:
    app = open_tab(open_page("runs", run=finished.id), "Model")
    assert [one.label.split(" (")[0] for one in app.get("download_button")] == ["Download the model"]
    mark_alive(finished, state="running")
    app = open_tab(open_page("runs", run=finished.id), "Model")
    assert not app.get("download_button")
    assert "when the run has ended" in page_text(app)
    finished.update_status(state="done")
    (finished.model_folder / "modules.json").unlink()
    app = open_tab(open_page("runs", run=finished.id), "Model")
    assert "saved no model" in page_text(app)


def test_a_model_too_large_to_download_names_its_folder(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_export, "MAX_BYTES", 1000)
    app = open_tab(open_page("runs", run=finished.id), "Model")
    assert not app.get("download_button")
    assert "copy its folder" in page_text(app)


def test_undo_restores_a_deleted_run_completely(finished: Run) -> None:
    before = sorted(path.relative_to(finished.folder) for path in finished.folder.rglob("*"))
    app = click(open_page("runs", run=finished.id), f"runs.delete.{finished.id}")
    app.run()
    assert not finished.folder.exists()
    assert f"Run {finished.id} was deleted." in page_text(app)
    assert "There are no runs yet" in page_text(app)
    click(app, "runs.undo").run()
    assert sorted(path.relative_to(finished.folder) for path in finished.folder.rglob("*")) == before
    assert "was deleted" not in page_text(app)
    assert app.dataframe[0].value["State"].tolist() == ["✓ done"]


def test_the_trash_restores_a_run_in_another_session_and_can_be_emptied(finished: Run) -> None:
    click(open_page("runs", run=finished.id), f"runs.delete.{finished.id}")
    other = open_page("runs")
    assert "was deleted" not in page_text(other)
    click(other, f"runs.restore.{finished.id}")
    assert finished.folder.exists()
    app = click(open_page("runs", run=finished.id), f"runs.delete.{finished.id}").run()
    click(app, "runs.trash.empty")
    assert "was deleted" not in page_text(app)
    assert not any(button.key == f"runs.restore.{finished.id}" for button in app.button)


def test_an_active_run_cannot_be_deleted(finished: Run) -> None:
    mark_alive(finished, state="running")
    app = open_page("runs", run=finished.id)
    assert f"runs.delete.{finished.id}" not in [button.key for button in app.button]


def test_a_lost_run_with_a_living_process_can_be_stopped(finished: Run) -> None:
    mark_alive(finished, state="lost")
    offered = {button.label for button in open_page("runs", run=finished.id).button}
    assert {"Stop", "Resume", "Delete"} & offered == {"Stop"}
    finished.update_status(pid=None, process_created=None)
    offered = {button.label for button in open_page("runs", run=finished.id).button}
    assert {"Stop", "Resume", "Delete"} & offered == {"Resume", "Delete"}


def test_duplicate_opens_new_run_with_every_setting(finished: Run) -> None:
    app = click(open_page_in_app("runs", run=finished.id), f"runs.duplicate.{finished.id}")
    assert "What will this run do" in app.title[0].value
    config = finished.config()
    sent = app.session_state["sent_settings"]
    assert RunConfig.model_validate({"data": config.data, **sent}) == config.model_copy(update={"name": ""})
    assert data_cache.datasets()[app.session_state["context"]["dataset"]].data == config.data


def test_the_dataset_of_a_config_is_created_once(runs: RunStore, trained: Run) -> None:
    data = trained.config().data
    first = actions.saved_dataset_key(data)
    assert actions.saved_dataset_key(data) == first
    assert data_cache.datasets()[first].data == data
    assert actions.saved_dataset_key(data_cache.datasets()[data_cache.SAMPLE].data) == data_cache.SAMPLE
    other = data.model_copy(update={"threshold": 0.1})
    assert actions.saved_dataset_key(other) != first


def test_training_from_a_run_starts_from_its_model(finished: Run) -> None:
    config = finished.config().model_dump(mode="json")
    config["encoder"]["reinit_layers"] = 1
    finished.write_json("config", config)
    app = open_tab(open_page_in_app("runs", run=finished.id), "Model")
    click(app, f"runs.chain.{finished.id}")
    assert app.session_state["sent_settings"]["encoder"]["name"] == f"run:{finished.id}"
    assert app.session_state["sent_settings"]["encoder"]["max_seq_length"] == finished.config().encoder.max_seq_length
    assert app.session_state["sent_settings"]["encoder"]["reinit_layers"] == 0


def test_live_updates_end_when_every_run_has_ended(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import streamlit as st

    requested: list[str | None] = []
    fragment = st.fragment

    def record(function: Any, *, run_every: str | None = None) -> Any:
        requested.append(run_every)
        return fragment(function, run_every=run_every)

    monkeypatch.setattr(st, "fragment", record)
    shutil.copytree(finished.folder, finished.folder.with_name("active"))
    other = Run(finished.folder.with_name("active"))
    mark_alive(other, state="running")
    app = open_page("runs", run=other.id)
    assert requested == ["5s", "2s", "2s", "2s"]  # the sidebar, the table, the run and the queue
    requested.clear()
    other.update_status(state="done")
    app.run()
    assert requested == [None] * 4
    requested.clear()
    mark_alive(other, state="running")
    app.selectbox(key="run").select(finished.id).run()
    assert requested == ["5s", "2s", None, "2s"]  # the run that is shown has ended


def test_stop_in_two_tabs_stops_once(runs: RunStore, trained: Run) -> None:
    run = runs.create(trained.config(), "waiting")
    first, second = open_page("runs", run=run.id), open_page("runs", run=run.id)
    click(first, "runs.stop.waiting")
    click(second, "runs.stop.waiting")
    assert run.status().state == "stopped"


def test_until_the_first_evaluation_the_loss_has_the_full_width(finished: Run) -> None:
    assert len(open_page("runs", run=finished.id).get("vega_lite_chart")) >= 2
    rows = [json.loads(line) for line in (finished.folder / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if row["kind"] == "step"]
    (finished.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    app = open_page("runs", run=finished.id)
    assert [title for title in figure_titles(app) if title.startswith("The loss")]
    assert len(figure_titles(app)) == 1
