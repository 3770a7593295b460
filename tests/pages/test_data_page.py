"""Data page: summary, columns, rejected rows and losses of a dataset."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core import formatting
from bsc_core.config import DataConfig
from bsc_core.data import PairDataset
from bsc_core.runs import RunStore
from pages.ui.components import data_cache
from pages.ui.data import overview, uploads
from tests.helpers.pages import click, figure_titles, open_page, page_text, table_with


@pytest.fixture
def dataset(runs: RunStore, pairs_file: Path) -> str:
    return uploads.register(uploads.folder_for(pairs_file), "Uploaded", DataConfig(train=str(pairs_file), dev_size=0.3))


def test_the_sample_data_have_four_summary_cards(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("data", **{"data.tab": "Shape"})
    assert app.session_state["data.tab"] == "Shape"
    text = page_text(app)
    assert all(step in text for step in ("1 · Source", "2 · Columns", "3 · Audit", "4 · Shape"))
    assert "**838 rows, 838 documents**" in text
    assert [tab.label for tab in app.tabs] == ["Source", "Columns", "Audit", "Generate rows", "Shape", "Export"]


def test_rejected_rows_are_shown_with_line_field_and_reason(dataset: str) -> None:
    app = open_page("data", dataset=dataset)
    table = table_with(app, "reason")
    assert table["line"].tolist() == [22, 23]
    assert table["field"].tolist() == ["reply", "score"]
    assert "2 rows could not be used" in page_text(app)


def test_the_problems_are_listed_first_and_lead_to_the_audit(dataset: str) -> None:
    app = open_page("data", dataset=dataset)
    text = page_text(app)
    assert text.index("Rejected: 2 rows") < text.index("1 · Source")
    click(app, "data.findings")
    assert app.session_state["data.tab"] == "Audit"


def test_labels_that_are_all_equal_have_no_figure(runs: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "positives.csv"
    path.write_text("query,document,label\n" + "".join(f"q {n},d {n},1\n" for n in range(9)), encoding="utf-8")
    app = open_page("data", dataset=uploads.register(uploads.folder_for(path), "P", DataConfig(train=str(path))))
    assert "All training pairs have the label 1." in page_text(app)
    assert "label above" not in " ".join(figure_titles(app))
    assert "Queries and documents have the same median length: 2 words" in figure_titles(app)


def test_texts_are_shown_character_by_character_and_never_as_markup(dataset: str) -> None:
    app = open_page("data", dataset=dataset)
    shown = [text for frame in app.dataframe for column in frame.value.columns for text in frame.value[column]]
    assert any("<script>" in str(text) for text in shown)
    assert not any("<script>" in str(element.value) for kind in ("markdown", "caption") for element in app.get(kind))


def test_the_columns_of_an_uploaded_dataset_can_be_changed_later(dataset: str) -> None:
    app = open_page("data", dataset=dataset)
    key = f"data.edit.{dataset}"
    app.selectbox(key=f"{key}.query").select("reply").run()
    app.selectbox(key=f"{key}.document").select("question").run()
    click(app, f"{key}.use")
    columns = data_cache.data_config(dataset).columns
    assert columns is not None
    assert (columns.query, columns.document) == ("reply", "question")


def test_a_column_mapped_twice_is_an_error(dataset: str) -> None:
    app = open_page("data", dataset=dataset)
    app.selectbox(key=f"data.edit.{dataset}.query").select("reply").run()
    click(app, f"data.edit.{dataset}.use")
    assert "**Error**" in page_text(app)
    assert data_cache.data_config(dataset).columns is None


def test_a_dataset_whose_file_is_missing_is_an_error(dataset: str, pairs_file: Path) -> None:
    pairs_file.unlink()
    app = open_page("data", dataset=dataset)
    assert any("no such file" in element.value for element in app.text)


def test_the_losses_that_fit_are_listed_with_their_use(runs: RunStore) -> None:
    for dataset, fits in ((data_cache.SAMPLE, False), (data_cache.SAMPLE_NLI, True)):
        app = open_page("data", dataset=dataset)
        table = table_with(app, "When to choose it")
        assert ("softmax" in table["Loss"].tolist()) == fits
        assert "bsc" in table["Loss"].tolist()


def test_the_numbers_of_the_shape_name_their_split(runs: RunStore) -> None:
    app = open_page("data", **{"data.tab": "Shape"})
    data = data_cache.dataset_splits(data_cache.SAMPLE)
    shown = {metric.label: metric.value for metric in app.metric}
    assert shown["Distinct texts of train"] == formatting.count(len({*texts_of(data.train)}))
    assert shown["Distinct queries of train"] == formatting.count(len(data.train.distinct_queries))
    assert shown["Pairs of dev"] == formatting.count(len(data.dev))
    assert shown["Documents of the corpus"] == formatting.count(len(data.corpus))


def texts_of(pairs: PairDataset) -> list[str]:
    return [text for column in pairs.text_columns for text in pairs.texts.take(column)]


def test_the_sample_nli_data_show_their_classes(runs: RunStore) -> None:
    app = open_page("data", dataset=data_cache.SAMPLE_NLI)
    table = table_with(app, "class")
    assert set(table["class"]) == {"entailment", "neutral", "contradiction"}
    assert "columns of the sample data are fixed" in page_text(app)


def test_rows_are_found_by_words_label_and_split(runs: RunStore) -> None:
    data = data_cache.dataset_splits("sample")
    app = open_page("data", dataset="sample", **{"data.rows.find": "rice", "data.rows.label": "positive"})
    assert not app.exception
    rows = table_with(app, "query")
    train = data.train
    texts = [[data.texts[int(column[row])] for column in train.text_columns] for row in range(len(train))]
    expected = [
        train.line[row]
        for row in np.flatnonzero(train.positive)
        if any(re.search(r"\brice\b", text.casefold()) for text in texts[row])
    ]
    assert rows["line"].tolist() == expected != []
    assert f"{len(expected)} of {len(train):,} rows." in page_text(app)
    app.segmented_control(key="data.rows.split").set_value("dev")
    app.text_input(key="data.rows.find").set_value("no such words").run()
    assert f"0 of {len(data.dev):,} rows." in page_text(app)


def test_the_page_of_the_training_rows_does_not_apply_to_those_of_dev(
    runs: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "ROWS_SHOWN", 50)
    app = open_page("data", dataset="sample", **{"data.rows.page": "10"})  # dev has four
    dev = data_cache.dataset_splits("sample").dev
    app.segmented_control(key="data.rows.split").set_value("dev").run()
    assert not app.exception
    assert "Not everything in this link can be used" not in page_text(app)
    assert table_with(app, "query")["line"].tolist() == dev.line[:50].tolist()
