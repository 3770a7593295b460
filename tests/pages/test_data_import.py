"""Data page: importing files, folders and Hub datasets."""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.errors import FileFormatError, PathError
from bsc_core.runs import RunStore
from pages.ui.components import data_cache, users
from pages.ui.data import column_mapping, import_form, uploads
from tests.helpers.pages import added_dataset, click, import_paths, open_page, page_text, row_count, table_with


def import_rows(path: Path, header: str, rows: list[str]) -> AppTest:
    """Write a file of rows and open it in the import form."""
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return import_paths(path)


def test_guessed_columns_are_shown_with_examples_and_can_be_changed(runs: RunStore, pairs_file: Path) -> None:
    app = import_paths(pairs_file)
    assert "guessed from the header" in page_text(app)
    assert "3 · Audit" not in page_text(app), "the audit of the previous dataset is shown"
    described = table_with(app, "Role")
    assert described["Role"].tolist() == ["query", "document", "label"]
    assert described["Examples"][0].startswith("what is 0 · what is 1")
    assert described["Examples"][2].startswith("0 · 1"), "equal values are shown twice"
    app.selectbox(key="data.new.label").select("— none —").run()
    app.text_input(key="data.new.name").input("Mine").run()
    click(app, "data.new.use")
    saved = [choice for choice in data_cache.datasets().values() if choice.label == "Mine"]
    assert len(saved) == 1
    assert saved[0].data.columns is not None
    assert saved[0].data.columns.label is None


def test_the_columns_of_another_file_are_guessed_again(runs: RunStore, tmp_path: Path, pairs_file: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("question,answer\nwhat,that\nwho,she\n", encoding="utf-8")
    app = import_paths(other)
    assert app.selectbox(key="data.new.label").value == "— none —"
    app.text_input(key="data.new.name").input("Mine").run()
    app.selectbox(key="data.new.label").select("answer").run()
    app.text_area(key="data.paths.0").input(str(pairs_file)).run()
    assert app.selectbox(key="data.new.label").value == "score"
    assert app.text_input(key="data.new.name").value != "Mine"
    app.selectbox(key="data.new.label").select("— none —").run()
    assert app.selectbox(key="data.new.label").value == "— none —"
    click(app, "data.discard")
    app.text_area(key="data.paths.1").input(str(pairs_file)).run()
    assert app.selectbox(key="data.new.label").value == "score"
    assert not app.exception


def test_a_general_name_of_a_file_is_to_be_replaced(runs: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("question,answer\nwhat,that\nwho,she\n", encoding="utf-8")
    app = import_paths(path)
    app.text_input(key="data.new.name").input("pairs").run()
    assert "Type a name that distinguishes this dataset" in page_text(app)
    app.text_input(key="data.new.name").input("Bread questions").run()
    assert "Type a name that distinguishes this dataset" not in page_text(app)


def test_joined_columns_and_the_columns_of_the_corpus_are_shown(runs: RunStore, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.csv"
    corpus.write_text("doc_id,title,text\n1,a title,a text\n", encoding="utf-8")
    path = tmp_path / "pairs.csv"
    path.write_text("query_subject,query_body,document\na,b,c\n", encoding="utf-8")
    app = import_paths(path)
    app.text_input(key="data.corpus_path.0").set_value(str(corpus)).run()
    assert "query = query_subject + query_body" in page_text(app)
    assert [frame.value["Role"].tolist() for frame in app.dataframe if "Role" in frame.value] == [
        ["query", "query", "document"],
        ["document id", "not used", "document"],
    ]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/data/cqa_b/pairs.tsv.gz", "cqa_b"),
        ("/data/my.questions.csv", "my.questions"),
        ("/data/folder/", "folder"),
        ("hf://owner/data", "data"),
        ("pairs.tsv", "pairs"),
    ],
)
def test_a_dataset_has_the_name_of_its_file_or_folder(source: str, name: str) -> None:
    assert import_form.dataset_name(source) == name


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.csv", b"", "empty"),
        ("broken.csv", b"question,reply\nwhat,\xff\xfe\n", "UTF-8"),
        ("archive.csv", b"PK\x03\x04rest of a zip", "zip"),
        ("header.csv", b"question,reply\n", "header.csv"),
    ],
)
def test_an_unreadable_file_is_an_error_with_its_reason(
    runs: RunStore, tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    app = import_paths(path)
    if any(button.key == "data.new.use" for button in app.button):
        click(app, "data.new.use")
    assert "**Error**" in page_text(app)
    assert any(reason in element.value for element in app.text)


def test_a_file_of_one_column_is_an_error_without_config_syntax(runs: RunStore, tmp_path: Path) -> None:
    (message,) = (element.value for element in import_rows(tmp_path / "one.csv", "just one column", ["a", "b"]).text)
    assert "one.csv: the file has only 1 column ('just one column'), but a row needs a query and a document" in message
    assert "{" not in message


def test_an_error_names_an_uploaded_file_as_the_user_did(runs: RunStore) -> None:
    path = uploads.save_file("my pairs.tsv", b"query;document\na;b\n")
    (message,) = (element.value for element in import_paths(path).text)
    assert message.startswith(f"{path.name}: the header has semicolons")


def test_the_separator_of_a_file_with_semicolons_is_reported(runs: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_text("query;document\n" + "".join(f"ask {n};say {n}\n" for n in range(20)), encoding="utf-8")
    click(import_paths(path), "data.new.use")
    assert "excel.csv: the columns are separated by semicolons." in page_text(
        open_page("data", dataset=added_dataset().key)
    )


def test_a_path_outside_the_allowed_folders_is_refused(
    runs: RunStore, pairs_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_page("data")
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path / "elsewhere"))
    app.text_area(key="data.paths.0").input(str(pairs_file)).run()
    assert any("outside the folders" in element.value for element in app.text)
    app.text_area(key="data.paths.0").input("/no/such/folder").run()
    assert "/no/such/folder: there is no such file or folder; check its spelling and its folder" in page_text(app)
    monkeypatch.setattr(users, "is_shared", lambda: True)
    with pytest.raises(PathError, match="outside the folders"):
        uploads._existing_path("/no/such/folder")


def test_the_same_upload_has_the_same_path(runs: RunStore) -> None:
    first, second = (uploads.save_file("My pairs.csv", b"a,b\n1,2\n") for _ in range(2))
    assert first == second
    assert first.is_relative_to(runs.uploads_folder)
    assert uploads.save_file("My pairs.csv", b"a,b\n3,4\n") != first


def test_an_upload_cannot_leave_its_folder(runs: RunStore) -> None:
    assert uploads.save_file("../../evil.csv", b"a,b\n").is_relative_to(runs.uploads_folder)
    with pytest.raises(FileFormatError, match="empty"):
        uploads.save_file("none.csv", b"")


def test_a_negative_and_a_class_column_can_be_mapped(runs: RunStore, tmp_path: Path) -> None:
    rows = [f"what is {n},it is {n},it is not {n},{'same' if n % 2 else 'other'}" for n in range(20)]
    path = tmp_path / "triplets.csv"
    app = import_rows(path, "ask,right,wrong,kind", rows)
    for role, column in (("query", "ask"), ("document", "right"), ("negative", "wrong"), ("class_label", "kind")):
        app.selectbox(key=f"data.new.{role}").select(column).run()
    click(app, "data.new.use")
    added = added_dataset()
    assert added.data.columns is not None
    assert (added.data.columns.negative, added.data.columns.class_label) == ("wrong", "kind")
    train = data_cache.dataset_splits(added.key).train
    assert train.negative is not None
    assert train.class_names == ("other", "same")


def test_columns_without_a_known_name_are_selected_by_their_values(runs: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    rows = [f"{n},news,the first headline {n},another headline {n},{n % 11 / 2}" for n in range(100, 130)]
    app = import_rows(path, "id,genre,Headline A,Headline B,gold rating (0-5)", rows)
    assert table_with(app, "Role")["Role"].tolist() == ["not used", "not used", "query", "document", "label"]
    assert "columns with the longest texts are selected, and gold rating (0-5), a column" in page_text(app)
    app.selectbox(key="data.new.query").select("genre").run()
    assert "longest texts" not in page_text(app)
    assert "**Column mapping**" in page_text(app)


def test_the_scale_of_the_labels_is_that_of_the_column_and_its_error_names_the_fields(
    runs: RunStore, tmp_path: Path
) -> None:
    path = tmp_path / "graded.csv"
    rows = [f"what is {n},it is {n},{n % 9 / 2 + 0.5},{n % 2}" for n in range(40)]
    app = import_rows(path, "query,answer,grade,same", rows)
    assert label_scale(app) == (0, 5)
    assert "0 and 5, the range of the labels in the file. 16 of 40 pairs are positive" in app.warning[0].value
    app.selectbox(key="data.new.label").select("same").run()
    assert label_scale(app) == (0, 1)
    app.selectbox(key="data.new.label").select("grade").run()
    app.number_input(key="data.new.label_max").set_value(1).run()
    assert not app.warning
    click(app, "data.new.use")
    assert "set Minimum label and Maximum label to the file's scale" in page_text(app)
    app.number_input(key="data.new.label_max").set_value(5).run()
    click(app, "data.new.use")
    assert (added_dataset().data.label_min, added_dataset().data.label_max) == (0, 5)


@pytest.mark.parametrize(
    ("header", "labels", "scale"),
    [
        ("premise,hypothesis,label", "012", None),  # classes
        ("premise,hypothesis,label", ["0", "1", "2", "-1"], None),
        ("query,document,label", ["0", "1", "-1"], None),  # rows without a label
        ("query,document,label", ["0", "1"] * 20 + ["11"], None),  # an error
        ("query,document,label", ["0", "1", "5"] * 20 + ["55"], None),
        ("query,document,label", "012", (0, 2)),
        ("query,document,label", "12345", (1, 5)),
        ("premise,hypothesis,label", ["0.5", "1", "3.5"], (0, 4)),
    ],
)
def test_only_grades_set_the_scale_of_the_labels(
    header: str, labels: list[str], scale: tuple[float, float] | None
) -> None:
    assert column_mapping.common_scale([list(map(float, labels))], header.split(",")) == scale


def test_a_file_with_labels_in_0_to_1_keeps_the_scale_of_others_from_being_set() -> None:
    assert column_mapping.common_scale([[0, 2, 5], [1, 4, 5]], ["query", "document"]) == (0, 5)
    assert column_mapping.common_scale([[0, 2, 5], [0, 1, 1]], ["query", "document"]) is None
    assert column_mapping.common_scale([[0, 2, 5], []], ["query", "document"]) is None


def test_class_numbers_of_nli_are_no_scale_and_rows_outside_of_it_are_rejected(runs: RunStore, tmp_path: Path) -> None:
    rows = [f"what is {n},it is {n},{n % 3}" for n in range(40)]
    app = import_rows(tmp_path / "snli.csv", "premise,hypothesis,label", rows)
    assert label_scale(app) == (0, 1)
    assert "Column label looks like class numbers" in app.warning[0].value
    click(app, "data.new.use")
    assert data_cache.dataset_splits(added_dataset().key).train.report.rejected[0].reason == (
        "the label 2 is outside 0 to 1"
    )


def label_scale(app: AppTest) -> tuple[float, float]:
    return app.number_input(key="data.new.label_min").value, app.number_input(key="data.new.label_max").value


def test_a_column_of_zeros_and_ones_without_a_known_name_is_reported_until_it_is_the_label(
    runs: RunStore, tmp_path: Path
) -> None:
    path = tmp_path / "pairs.csv"
    rows = [f"what is {n},it is {n},{n % 2},{n}" for n in range(20)]
    app = import_rows(path, "query,answer,is_same,row", rows)
    warning = "looks like a label and is not used"
    assert [warning in box.value and "is\\_same" in box.value for box in app.warning] == [True]
    app.selectbox(key="data.new.label").select("is_same").run()
    assert table_with(app, "Role")["Role"].tolist() == ["query", "document", "label", "not used"]
    assert not app.warning


def test_a_named_text_stays_when_the_other_is_not_named(tmp_path: Path, runs: RunStore) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("source,other,query\n" + "a,b,c\n" * 3, encoding="utf-8")
    roles = table_with(import_paths(path), "Role")
    assert roles["Role"].tolist() == ["document", "not used", "query"]


@pytest.mark.parametrize(
    ("header", "cells", "roles"),
    [
        ("first text,second text,gold_label", "a {n},b {n},entailment", {"class_label": "gold_label"}),
        ("first text,second text,score,split", "a {n},b {n},0.{n},train", {"label": "score", "split": "split"}),
        ("id,question,reply text,score", "{n},a {n},b {n},{n}", {"document": "reply text", "label": "score"}),
        ("number,one,two", "{n},a {n},b {n}", {"query": "one", "document": "two", "label": "— none —"}),
    ],
)
def test_columns_with_a_known_name_keep_their_role_where_the_texts_have_none(
    tmp_path: Path, runs: RunStore, header: str, cells: str, roles: dict[str, str]
) -> None:
    path = tmp_path / "pairs.csv"
    rows = [cells.replace("{n}", str(number)) for number in range(1, 30)]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    app = open_page("data")
    app.text_area(key="data.paths.0").set_value(str(path)).run()
    assert {role: app.selectbox(key=f"data.new.{role}").value for role in roles} == roles
    assert "does not name both texts" in page_text(app)


def test_several_files_become_one_dataset(runs: RunStore, tmp_path: Path) -> None:
    paths = [tmp_path / f"part{number}.csv" for number in range(2)]
    for number, path in enumerate(paths):
        rows = [f"ask {number} {n},say {number} {n}" for n in range(20)]
        path.write_text("query,document\n" + "\n".join(rows) + "\n", encoding="utf-8")
    app = import_paths(*paths)
    click(app, "data.new.use")
    added = added_dataset()
    assert added.data.mix == (str(paths[1]),)
    assert row_count(added.key) == 40
    app = open_page("data", dataset=added.key)
    table = table_with(app, "Rows read")
    assert table["File"].tolist() == ["part0.csv", "part1.csv"]


def test_each_of_several_files_with_errors_is_reported(runs: RunStore, tmp_path: Path, pairs_file: Path) -> None:
    paths = [tmp_path / f"part{number:02}.csv" for number in range(12)]
    for number, path in enumerate(paths):
        path.write_text("" if number else '"', encoding="utf-8")
    (text,) = [element.value for element in import_paths(pairs_file, *paths, tmp_path / "none.csv").text]
    lines = text.splitlines()
    assert [line.partition(": ")[0].rpartition("/")[2] for line in lines[:10]] == [path.name for path in paths[:10]]
    assert lines[10:] == ["and 3 other files with errors"]
    paths[1].write_text("query,document\na,b\n", encoding="utf-8")
    (line,) = [element.value for element in import_paths(pairs_file, *paths[:2]).text]
    assert paths[0].name in line


def test_a_saved_dataset_is_read_from_its_folder(runs: RunStore, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    rows = {"question": [f"ask {n}" for n in range(20)], "answer": [f"say {n}" for n in range(20)]}
    datasets.Dataset.from_dict(rows).save_to_disk(str(tmp_path / "saved"))
    app = import_paths(tmp_path / "saved")
    click(app, "data.new.use")
    added = added_dataset().key
    assert row_count(added) == 20


@pytest.mark.parametrize("given", ["hf://nobody", "hf://nobody/nothing-of-this-name"])
def test_an_unavailable_hub_dataset_is_an_error(runs: RunStore, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    app = import_paths(given)
    assert "**Error**" in page_text(app)


def test_a_file_too_large_for_a_page_is_not_read(
    runs: RunStore, pairs_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = open_page("data")
    monkeypatch.setattr(uploads, "MAX_MEBIBYTES", 0)
    app.text_area(key="data.paths.0").input(str(pairs_file)).run()
    assert any("bsc train" in element.value for element in app.text)
