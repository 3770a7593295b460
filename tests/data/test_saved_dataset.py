"""Saved folders of Hugging Face `datasets` are read as files are."""

import sys

import pytest

from bsc_core.config import Columns, CorpusColumns, DataConfig
from bsc_core.data import load_data, read_corpus, read_pairs, read_table
from bsc_core.data.io.saved_dataset import is_saved_dataset
from bsc_core.errors import ConfigError, DataError, FileFormatError, PathError

datasets = pytest.importorskip("datasets")

ROWS = {"query": ["a", "b", "c"], "document": ["x", "y", "z"], "label": [1.0, 0.0, 1.0]}
NLI = ["entailment", "neutral", "contradiction"]


def saved(folder, content):
    content.save_to_disk(str(folder))
    return str(folder)


def classed(values, names=NLI):
    features = datasets.Features(
        {
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": datasets.ClassLabel(names=names),
        }
    )
    rows = {"premise": [f"p{n}" for n in range(len(values))], "hypothesis": ["h"] * len(values), "label": values}
    return datasets.Dataset.from_dict(rows, features=features)


def test_a_saved_dataset_is_read_like_a_file_of_its_rows(tmp_path):
    pairs = read_pairs(saved(tmp_path / "rows", datasets.Dataset.from_dict(ROWS)))
    assert pairs.texts.take(pairs.query) == ROWS["query"]
    assert pairs.texts.take(pairs.document) == ROWS["document"]
    assert pairs.label.tolist() == ROWS["label"]
    assert pairs.line.tolist() == [1, 2, 3]
    assert pairs.report.unit == "row"


def test_selected_rows_of_a_dataset_are_read_in_order(tmp_path):
    shuffled = datasets.Dataset.from_dict(ROWS).select([2, 0])
    assert read_table(saved(tmp_path / "rows", shuffled)).columns["query"] == ["c", "a"]


def test_splits_of_a_dataset_become_a_split_column(tmp_path):
    rows = datasets.Dataset.from_dict(ROWS)
    splits = datasets.DatasetDict({"train": rows, "dev": rows.select([0]), "final": rows.select([1, 2])})
    path = saved(tmp_path / "splits", splits)
    table = read_table(path)
    assert table.columns["split"] == ["train"] * 3 + ["dev"] + ["final"] * 2
    assert table.line == [1, 2, 3, 4, 5, 6]
    data = load_data(DataConfig(train=path, test_split="final"), seed=0)
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 3, "dev": 1, "test": 2}


def test_columns_that_a_split_lacks_are_empty_there(tmp_path):
    splits = datasets.DatasetDict(
        {"train": datasets.Dataset.from_dict(ROWS), "dev": datasets.Dataset.from_dict({"query": ["d"], "note": ["n"]})}
    )
    columns = read_table(saved(tmp_path / "splits", splits)).columns
    assert columns["document"] == ["x", "y", "z", ""]
    assert columns["note"] == ["", "", "", "n"]


def test_one_split_of_a_saved_dataset_is_read_from_its_folder(tmp_path):
    splits = datasets.DatasetDict({"train": datasets.Dataset.from_dict(ROWS), "dev": datasets.Dataset.from_dict(ROWS)})
    table = read_table(f"{saved(tmp_path / 'splits', splits)}/dev")
    assert "split" not in table.columns
    assert len(table) == 3


def test_several_splits_and_a_split_column_are_refused(tmp_path):
    rows = datasets.Dataset.from_dict({**ROWS, "split": ["x", "y", "z"]})
    path = saved(tmp_path / "splits", datasets.DatasetDict({"train": rows, "dev": rows}))
    with pytest.raises(DataError, match="several splits and also a column 'split'; choose the folder of one split"):
        read_table(path)


def test_classes_keep_their_names_and_rows_without_one_are_rejected(tmp_path):
    pairs = read_pairs(saved(tmp_path / "nli", classed([0, 2, -1, 1])))
    assert pairs.class_names == tuple(NLI)
    assert pairs.classes.tolist() == [0, 2, 1]
    assert [rejection.line for rejection in pairs.report.rejected] == [3]


def test_classes_of_other_names_can_be_mapped(tmp_path):
    path = saved(tmp_path / "topics", classed([1, 0], names=["sports", "politics"]))
    columns = Columns(query="premise", document="hypothesis", class_label="label")
    assert read_pairs(path, columns).class_names == ("politics", "sports")


def test_a_corpus_may_be_a_saved_dataset(tmp_path):
    path = saved(tmp_path / "corpus", datasets.Dataset.from_dict({"doc_id": ["1", "2"], "text": ["x", "y"]}))
    corpus = read_corpus(path, CorpusColumns(document="text", document_id="doc_id"))
    assert corpus.texts.take(corpus.document) == ["x", "y"]
    assert corpus.key == ("1", "2")


def test_columns_of_lists_are_refused_as_in_files(tmp_path):
    path = saved(tmp_path / "rows", datasets.Dataset.from_dict({"query": ["a"], "document": [["x", "y"]]}))
    with pytest.raises(DataError, match="column 'document' contains lists"):
        read_pairs(path)


def test_an_incomplete_folder_is_refused(tmp_path):
    path = saved(tmp_path / "rows", datasets.Dataset.from_dict(ROWS))
    next((tmp_path / "rows").glob("*.arrow")).unlink()
    with pytest.raises(FileFormatError, match="this folder of a saved dataset cannot be read"):
        read_table(path)


def test_a_dataset_without_rows_is_refused(tmp_path):
    path = saved(tmp_path / "rows", datasets.Dataset.from_dict({"query": [], "document": []}))
    with pytest.raises(FileFormatError, match=r"it has no rows|cannot be read"):
        read_table(path)


def test_folders_outside_the_roots_are_not_read(tmp_path, monkeypatch):
    path = saved(tmp_path / "rows", datasets.Dataset.from_dict(ROWS))
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path / "other"))
    with pytest.raises(PathError, match="outside the folders"):
        read_table(path)


def test_the_package_is_not_used(monkeypatch, tmp_path):
    path = saved(tmp_path / "rows", datasets.Dataset.from_dict(ROWS))
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert read_table(path).columns["query"] == ROWS["query"]


def test_a_dataset_of_several_files_is_read_in_order(tmp_path):
    rows = datasets.Dataset.from_dict({"query": [str(number) for number in range(100)], "document": ["x"] * 100})
    rows.save_to_disk(str(tmp_path / "rows"), num_shards=3)
    assert read_table(tmp_path / "rows").columns["query"] == rows["query"][:]


def test_other_folders_are_not_datasets(tmp_path):
    assert not is_saved_dataset(tmp_path)
    with pytest.raises(PathError, match="not a regular file"):
        read_table(tmp_path)


def test_a_missing_split_is_refused_with_the_splits_of_the_dataset(tmp_path):
    rows = datasets.Dataset.from_dict(ROWS)
    path = saved(tmp_path / "splits", datasets.DatasetDict({"train": rows, "validation": rows}))
    with pytest.raises(ConfigError, match="contains 'train', 'validation'"):
        load_data(DataConfig(train=path), seed=0)
