"""Data page: audit findings, their filters, and the export."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bsc_core import formatting
from bsc_core.config import DataConfig, ExamplesConfig
from bsc_core.runs import RunStore
from pages.ui.components import data_cache
from pages.ui.data import audit, overview, uploads
from tests.helpers.pages import click, open_page, page_text, row_count, toggle_with_label


@pytest.fixture
def flawed_dataset(runs: RunStore, tmp_path: Path) -> str:
    """Forty good pairs, three duplicates, and two texts paired with themselves."""
    rows = [f"what is {n} good for?,it is good for counting to {n},{n % 2}" for n in range(40)]
    rows += [*rows[1:4], "the same,the same,1", "also same,also same,1"]
    path = tmp_path / "flawed.csv"
    path.write_text("question,answer,score\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return uploads.register(uploads.folder_for(path), "Flawed", DataConfig(train=str(path), dev_size=0.2))


def test_a_filter_shows_what_it_would_drop_and_is_stored_with_the_dataset(flawed_dataset: str) -> None:
    app = open_page("data", dataset=flawed_dataset)
    assert "would drop 3 rows" in page_text(app)
    before = row_count(flawed_dataset)
    toggle_with_label(app, "Drop duplicates").set_value(True).run()
    assert data_cache.data_config(flawed_dataset).filters == ("drop_duplicates",)
    assert row_count(flawed_dataset) == before - 3
    assert "dropped 3 rows" in page_text(app)
    assert "filters dropped 3 rows" in page_text(app)
    assert "**Fixed:**" in page_text(app)
    toggle_with_label(app, "Drop self pairs").set_value(True).run()
    assert data_cache.data_config(flawed_dataset).filters == ("drop_duplicates", "drop_self_pairs")
    assert row_count(flawed_dataset) == before - 5
    assert "dropped 2 rows of train and dev; the filters before it had dropped 3 rows" in page_text(app)
    toggle_with_label(app, "Drop duplicates").set_value(False).run()
    assert data_cache.data_config(flawed_dataset).filters == ("drop_self_pairs",)
    assert row_count(flawed_dataset) == before - 2
    assert app.query_params["data.filters"] == f"{flawed_dataset}:drop_self_pairs"
    app.query_params["data.filters"] = f"{flawed_dataset}:drop_duplicates"  # a link or the browser's Back button
    app.run()
    assert "Filters of this link: drop duplicates. Filters of the dataset now: drop self pairs." in page_text(app)
    assert data_cache.data_config(flawed_dataset).filters == ("drop_self_pairs",), "a link has no side effects"
    click(app, "data.filters.use")
    assert data_cache.data_config(flawed_dataset).filters == ("drop_duplicates",)
    assert "Filters of this link" not in page_text(app)
    app.query_params["data.filters"] = f"{flawed_dataset}:drop_all"
    assert "it must be" in page_text(app.run())


@pytest.fixture
def shared_documents(runs: RunStore, tmp_path: Path) -> str:
    """Twenty queries with the same positive document, few positives, and a row without a query."""
    path = tmp_path / "shared.csv"
    rows = [f"what is {n} good for?,count,1" for n in range(20)]
    rows += [f"how do I use {n}?,ask somebody about {n},0" for n in range(400)]
    path.write_text("question,answer,score\n" + "\n".join([*rows, ",empty,1"]) + "\n", encoding="utf-8")
    return uploads.register(uploads.folder_for(path), "Shared", DataConfig(train=str(path), dev_size=0.2))


def test_a_finding_without_a_filter_has_a_button_that_opens_its_setting(shared_documents: str) -> None:
    app = open_page("data", dataset=shared_documents, **{"data.tab": "Audit"})
    assert app.button(key="data.audit.repeated_documents.train").label == "Change this setting of a run"
    click(app, "data.audit.repeated_documents.train")
    assert app.session_state[audit.REQUESTED] == "repeated_documents"
    click(app, "data.audit.rejected_rows.train")
    assert app.session_state["data.tab"] == "Source"
    click(app, "data.audit.label_balance.train")
    assert app.session_state["data.tab"] == "Columns"


def test_the_plan_of_a_run_counts_the_findings_that_no_filter_fixes(flawed_dataset: str) -> None:
    text = page_text(open_page("train", dataset=flawed_dataset))
    assert "Audit of the dataset: 2 warnings." in text
    app = open_page("data", dataset=flawed_dataset)
    toggle_with_label(app, "Drop duplicates").set_value(True).run()
    toggle_with_label(app, "Drop self pairs").set_value(True).run()
    text = page_text(open_page("train", dataset=flawed_dataset))
    assert "Audit of the dataset" not in text


@pytest.mark.parametrize(
    ("loss", "widget", "value", "sentence"),
    [
        ("bsc", "loss.bsc.duplicates", "merge", "Duplicates of the loss was changed from keep to merge"),
        ("combined", "loss.combined.bsc.duplicates", "merge", "Duplicates of the loss was changed from keep to merge"),
        ("mnrl", "batching.no_duplicates", True, "No duplicates in a batch was changed from off to on"),
    ],
)
def test_the_button_of_repeated_documents_changes_the_setting(
    shared_documents: str, loss: str, widget: str, value: object, sentence: str
) -> None:
    app = open_page("train", dataset=shared_documents, **{"loss.name": loss, "training.epochs": "9"})
    assert "Audit of the dataset" in page_text(app)
    assert "of them is handled" not in page_text(app)
    app.session_state[audit.REQUESTED] = "repeated_documents"
    app.run()
    assert app.session_state[f"train.{widget}"] == value
    assert app.session_state["train.training.epochs"] == 9
    field = [one for one in (*app.selectbox, *app.toggle) if one.key == f"train.{widget}"]
    assert [one.value for one in field] == [value]
    assert app.session_state[f"train.open.{widget.partition('.')[0]}"]
    assert f"{sentence}, as the audit recommends." in [one.value for one in app.info]
    name = sentence.partition(" was ")[0]
    assert f"of them is handled by {name}" in page_text(app)


def test_the_button_of_long_texts_opens_the_encoder(shared_documents: str) -> None:
    app = open_page("train", dataset=shared_documents)
    app.session_state[audit.REQUESTED] = "long_texts"
    app.run()
    assert app.session_state["train.open.encoder"]
    assert not app.info


def test_a_setting_that_handles_a_finding_is_not_changed(shared_documents: str) -> None:
    app = open_page("train", dataset=shared_documents, **{"loss.duplicates": "multi_positive"})
    app.session_state[audit.REQUESTED] = "repeated_documents"
    app.run()
    assert app.session_state["train.loss.bsc.duplicates"] == "multi_positive"
    assert [one.value for one in app.info] == [
        "Duplicates of the loss is multi_positive already, so nothing was changed."
    ]
    app.selectbox(key="train.loss.name").select("mse").run()
    assert "of them is without effect on this loss" in page_text(app)


def test_findings_of_several_splits_are_counted_as_they_are_shown(runs: RunStore, tmp_path: Path) -> None:
    paths = {}
    for split, number in (("train", 3), ("dev", 2)):
        rows = [f"what is {split} {n} good for?,counting {split} to {n},{n % 2}" for n in range(30)]
        path = tmp_path / f"{split}.csv"
        path.write_text("question,answer,score\n" + "\n".join([*rows, *rows[:number]]) + "\n", encoding="utf-8")
        paths[split] = str(path)
    key = uploads.register(uploads.folder_for(tmp_path / "train.csv"), "Splits", DataConfig(**paths))
    app = open_page("data", dataset=key, **{"data.tab": "Audit"})
    findings = audit.audit_dataset(key, "bundled")
    kinds = overview.by_kind(findings)
    assert len(kinds) < len(findings)
    assert app.button(key="data.findings").label == f"Show {len(kinds)} findings of the audit"
    warnings = sum(kind[0].severity == "warning" for kind in kinds)
    assert f"**{formatting.plural(warnings, 'warning')}**" in page_text(app)
    (balance,) = [one.value for one in app.text if one.value.startswith("Train: ") and "above" not in one.value]
    assert "Dev: 16 rows of 32." in balance


def test_a_fixed_finding_stays_on_the_page(flawed_dataset: str) -> None:
    title = re.compile(r"(?<=\*\*)[^*]*Duplicate pairs[^*]*(?=\*\*)")
    app = open_page("data", dataset=flawed_dataset)
    titles = [found for text in app.markdown for found in title.findall(text.value)]
    toggle_with_label(app, "Drop duplicates").set_value(True).run()
    assert [found for text in app.markdown for found in title.findall(text.value)] == titles
    assert titles


def test_a_filter_that_would_drop_all_rows_is_disabled(runs: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "same.csv"
    path.write_text("query,document\n" + "\n".join(f"text {n},text {n}" for n in range(20)), encoding="utf-8")
    key = uploads.register(uploads.folder_for(path), "Same", DataConfig(train=str(path)))
    app = open_page("data", dataset=key)
    assert toggle_with_label(app, "Drop self pairs").disabled
    assert "would drop all" in page_text(app)


def test_filters_of_the_sample_data_are_stored_in_the_runs_folder(runs: RunStore) -> None:
    uploads.save_filters(data_cache.SAMPLE, ("drop_near_duplicates",))
    assert data_cache.data_config(data_cache.SAMPLE).filters == ("drop_near_duplicates",)
    assert data_cache.data_config(data_cache.SAMPLE_NLI).filters == ()
    open_page("data")
    assert data_cache.dataset_splits(data_cache.SAMPLE).filtered


def test_the_export_has_the_rows_after_filters(flawed_dataset: str) -> None:
    uploads.save_filters(flawed_dataset, ("drop_duplicates",))
    app = open_page("data", dataset=flawed_dataset)
    save = next(button for button in app.get("download_button") if button.key == "data.export.save")
    assert save.label == f"Save {row_count(flawed_dataset)} rows as TSV"


def test_sentences_are_audited_as_sentences(runs: RunStore, tmp_path: Path, tiny_encoder: Path) -> None:
    rows = [f"sentence {n} of many words\t{n % 2}" for n in range(30)]
    path = tmp_path / "sentences.tsv"
    path.write_text("text\tlabel\n" + "\n".join([*rows, rows[0], rows[1]]) + "\n", encoding="utf-8")
    examples = ExamplesConfig(encoder=str(tiny_encoder), neighbors=2)
    key = uploads.register(uploads.folder_for(path), "Generated", DataConfig(train=str(path), examples=examples))
    app = open_page("data", dataset=key)
    assert not any("paired with itself" in text.value for text in app.text)
    assert not any(toggle.label == "Drop self pairs" for toggle in app.toggle)
    before = data_cache.dataset_splits(key).funnel[0].count
    toggle_with_label(app, "Drop duplicates").set_value(True).run()
    assert data_cache.dataset_splits(key).funnel[0].count < before
