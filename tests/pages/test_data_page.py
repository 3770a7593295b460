"""Data: what was read, what was refused and why, and a file of one's own from upload to dataset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.config import DataConfig
from bsc_core.errors import FileFormatError
from bsc_core.runs import RunStore
from pages.ui import store, uploads

HEADER = "question,reply,score\n"
MARKUP = '"<b>Is</b> **this** $x$ safe? <script>alert(1)</script>"'


def told(app: AppTest) -> str:
    return "\n".join(str(element.value) for kind in ("caption", "markdown", "text") for element in app.get(kind))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Twenty good rows, one without a reply and one whose label is no number."""
    rows = [f"what is {number},it is <script>{number}</script> **indeed**,{number % 2}" for number in range(19)]
    rows += [f"{MARKUP},yes it is,1", "no reply,,1", "no label,some reply,many"]
    path = tmp_path / "own.csv"
    path.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def dataset(runs: RunStore, own: Path) -> str:
    return uploads.describe(uploads.folder_for(own), "Own", DataConfig(train=str(own), dev_share=0.3))


def test_the_sample_data_are_described_in_four_steps(visit: Callable[..., AppTest], runs: RunStore) -> None:
    app = visit("data")
    assert not app.exception
    words = told(app)
    assert all(step in words for step in ("1 · Source", "2 · Columns", "3 · Audit", "4 · Shape"))
    assert "**1,676 rows**" in words
    assert [tab.label for tab in app.tabs] == ["Source", "Columns", "Audit", "Shape"]


def test_rejected_rows_are_shown_with_line_field_and_reason(pages: type, dataset: str) -> None:
    app = pages.alone("data", dataset=dataset)
    assert not app.exception
    table = next(frame.value for frame in app.dataframe if "reason" in frame.value.columns)
    assert table["line"].tolist() == [22, 23]
    assert table["field"].tolist() == ["reply", "score"]
    assert "2 rows could not be used" in told(app)


def test_texts_stay_letter_by_letter_and_are_never_markup(pages: type, dataset: str) -> None:
    app = pages.alone("data", dataset=dataset)
    shown = [text for frame in app.dataframe for column in frame.value.columns for text in frame.value[column]]
    assert any("<script>" in str(text) for text in shown)
    assert not any("<script>" in str(element.value) for kind in ("markdown", "caption") for element in app.get(kind))


def test_guessed_columns_are_shown_with_examples_and_can_be_changed(pages: type, runs: RunStore, own: Path) -> None:
    app = pages.alone("data")
    app.text_input(key="data.pairs_path.0").input(str(own)).run()
    assert not app.exception
    assert "guessed from the header" in told(app)
    described = next(frame.value for frame in app.dataframe if "role" in frame.value.columns)
    assert described["role"].tolist() == ["query", "document", "label"]
    assert described["examples"][0].startswith("what is 0 · what is 1")
    app.selectbox(key="data.new.label").select("— none —").run()
    app.text_input(key="data.new.name").input("Mine").run()
    app.button(key="data.new.use").click().run()
    assert not app.exception
    kept = [choice for choice in store.datasets().values() if choice.label == "Mine"]
    assert len(kept) == 1
    assert kept[0].data.columns is not None
    assert kept[0].data.columns.label is None


def test_the_columns_of_ones_own_dataset_can_be_changed_later(pages: type, dataset: str) -> None:
    app = pages.alone("data", dataset=dataset)
    key = f"data.edit.{dataset}"
    app.selectbox(key=f"{key}.query").select("reply").run()
    app.selectbox(key=f"{key}.document").select("question").run()
    app.button(key=f"{key}.use").click().run()
    assert not app.exception
    columns = store.data_config(dataset).columns
    assert columns is not None
    assert (columns.query, columns.document) == ("reply", "question")


def test_a_column_mapped_twice_is_refused_calmly(pages: type, dataset: str) -> None:
    app = pages.alone("data", dataset=dataset)
    app.selectbox(key=f"data.edit.{dataset}.query").select("reply").run()
    app.button(key=f"data.edit.{dataset}.use").click().run()
    assert not app.exception
    assert "This cannot be used as it is" in told(app)
    assert store.data_config(dataset).columns is None


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.csv", b"", "empty"),
        ("broken.csv", b"question,reply\nwhat,\xff\xfe\n", "UTF-8"),
        ("archive.csv", b"PK\x03\x04rest of a zip", "zip"),
        ("header.csv", b"question,reply\n", "header.csv"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(
    pages: type, runs: RunStore, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    app = pages.alone("data")
    app.text_input(key="data.pairs_path.0").input(str(path)).run()
    if any(button.key == "data.new.use" for button in app.button):
        app.button(key="data.new.use").click().run()
    assert not app.exception
    assert "This cannot be used as it is" in told(app)
    assert any(reason in element.value for element in app.text)


def test_a_path_outside_the_allowed_roots_is_refused(
    pages: type, runs: RunStore, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = pages.alone("data")
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path / "elsewhere"))
    app.text_input(key="data.pairs_path.0").input(str(own)).run()
    assert not app.exception
    assert any("outside the folders" in element.value for element in app.text)


def test_the_same_upload_lands_in_the_same_place(runs: RunStore) -> None:
    first, second = (uploads.save_file("My pairs.csv", b"a,b\n1,2\n") for _ in range(2))
    assert first == second
    assert first.is_relative_to(runs.uploads_folder)
    assert uploads.save_file("My pairs.csv", b"a,b\n3,4\n") != first


def test_an_upload_cannot_leave_its_folder(runs: RunStore) -> None:
    assert uploads.save_file("../../evil.csv", b"a,b\n").is_relative_to(runs.uploads_folder)
    with pytest.raises(FileFormatError, match="empty"):
        uploads.save_file("none.csv", b"")


def test_a_dataset_whose_file_is_gone_says_so(pages: type, dataset: str, own: Path) -> None:
    own.unlink()
    app = pages.alone("data", dataset=dataset)
    assert not app.exception
    assert any("no such file" in element.value for element in app.text)


def test_the_losses_that_fit_are_listed_with_when_to_choose_them(pages: type, runs: RunStore) -> None:
    for dataset, fits in ((store.SAMPLE, False), (store.SAMPLE_NLI, True)):
        app = pages.alone("data", dataset=dataset)
        assert not app.exception
        table = next(frame.value for frame in app.dataframe if "when to choose it" in frame.value.columns)
        assert ("softmax" in table["loss"].tolist()) == fits
        assert "bsc" in table["loss"].tolist()


def test_the_sample_nli_data_show_their_classes(pages: type, runs: RunStore) -> None:
    app = pages.alone("data", dataset=store.SAMPLE_NLI)
    table = next(frame.value for frame in app.dataframe if "class" in frame.value.columns)
    assert set(table["class"]) == {"entailment", "neutral", "contradiction"}
    assert "These are the sample data" in told(app)


def test_a_wrong_document_and_a_class_can_be_mapped(pages: type, runs: RunStore, tmp_path: Path) -> None:
    rows = [f"what is {n},it is {n},it is not {n},{'same' if n % 2 else 'other'}" for n in range(20)]
    path = tmp_path / "triplets.csv"
    path.write_text("ask,right,wrong,kind\n" + "\n".join(rows) + "\n", encoding="utf-8")
    app = pages.alone("data")
    app.text_input(key="data.pairs_path.0").input(str(path)).run()
    for role, column in (("query", "ask"), ("document", "right"), ("negative", "wrong"), ("class_label", "kind")):
        app.selectbox(key=f"data.new.{role}").select(column).run()
    app.button(key="data.new.use").click().run()
    assert not app.exception
    [own] = [choice for key, choice in store.datasets().items() if key not in store.SAMPLES]
    assert own.data.columns is not None
    assert (own.data.columns.negative, own.data.columns.class_label) == ("wrong", "kind")
    train = store.experiment_data(own.key).train
    assert train.negative is not None
    assert train.class_names == ("other", "same")
