"""Chunked reading: the rows, rejections and errors of the full reader, whatever the chunk size."""

import gzip
import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import Columns
from bsc_core.data import read_pairs, read_table
from bsc_core.data.io import tables
from bsc_core.data.io.read_pairs import ChunkedPairs
from bsc_core.data.io.sources import open_source
from bsc_core.data.io.tables import read_chunks
from bsc_core.errors import BscError, ColumnError, DataError

CELL = st.one_of(
    st.sampled_from(["", " ", "1", "0", "0.5", "2", "nan", "x", "é", "a\nb", "a,b", 'say "so"', "-"]), st.text()
)
ROWS = st.lists(st.lists(CELL, min_size=4, max_size=4), min_size=1, max_size=12)
NAMES = ("query", "document", "label", "query_id")
KINDS = (".csv", ".tsv", ".jsonl", ".csv.gz", ".jsonl.gz", ".parquet")


def written(folder, kind, rows, junk=()):
    """A file of the rows; junk: bad lines added at the end of a text file."""
    path = folder / f"rows{kind}"
    bare = kind.removesuffix(".gz")
    if bare == ".parquet":
        columns = {name: [row[index] for row in rows] for index, name in enumerate(NAMES)}
        pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=3)
        return path
    if bare == ".jsonl":
        lines = [json.dumps(dict(zip(NAMES, row, strict=True))) for row in rows] + [*junk]
        text = "\n".join(lines) + "\n"
    else:
        mark = "," if bare == ".csv" else "\t"
        quoted = [mark.join('"' + cell.replace('"', '""') + '"' for cell in row) for row in [NAMES, *rows]]
        text = "\n".join([*quoted, *junk]) + "\n"
    raw = text.encode("utf-8", "replace")
    path.write_bytes(gzip.compress(raw) if kind.endswith(".gz") else raw)
    return path


def outcome(read):
    try:
        return read()
    except BscError as error:
        return type(error).__name__, str(error)


def read_at_once(path):
    pairs = read_pairs(path)
    sides = [pairs.texts.take(column) for column in pairs.text_columns]
    labels = None if pairs.label is None else pairs.label.tolist()
    return sides, labels, pairs.report.rows_read, pairs.report.rejected[:20], len(pairs.report.rejected)


def read_in_chunks(path, monkeypatch, rows):
    monkeypatch.setattr(tables, "CHUNK_ROWS", rows)
    chunks = ChunkedPairs(path)
    result = list(chunks)
    sides = [[item for chunk in result for item in chunk.sides[side]] for side in range(len(result[0].sides))]
    labels = None if result[0].labels is None else np.concatenate([chunk.labels for chunk in result]).tolist()
    return sides, labels, chunks.rows_read, tuple(chunks.first_rejections), chunks.rows_rejected


@pytest.mark.parametrize("kind", KINDS)
@given(rows=ROWS, size=st.integers(1, 5))
@settings(max_examples=60)
def test_chunks_have_the_cells_and_lines_of_the_full_table(kind, rows, size, tmp_path_factory):
    path = written(tmp_path_factory.mktemp("chunks"), kind, rows, ["[1]"] if "json" in kind else [])
    table = read_table(path)
    chunks = list(read_chunks(path, rows=size))
    assert all(len(chunk) + len(chunk.rejected) <= size for chunk in chunks)
    assert {name: [item for chunk in chunks for item in chunk.columns[name]] for name in table.names} == table.columns
    assert [item for chunk in chunks for item in chunk.line] == table.line
    assert tuple(item for chunk in chunks for item in chunk.rejected) == table.rejected


@pytest.mark.parametrize("kind", KINDS)
@given(rows=ROWS, size=st.integers(1, 5))
@settings(max_examples=60)
def test_chunks_reject_the_rows_and_files_that_the_full_reader_rejects(kind, rows, size, tmp_path_factory):
    junk = ["[1]", "no json"] if "json" in kind else []
    path = written(tmp_path_factory.mktemp("chunks"), kind, [["q", "d", "1", "1"], *rows], junk)
    with pytest.MonkeyPatch.context() as patch:
        assert outcome(lambda: read_in_chunks(path, patch, size)) == outcome(lambda: read_at_once(path))


BAD = {
    "a missing file": ("none.csv", None),
    "no such columns": ("rows.csv", b"left,right\na,b\n"),
    "a label out of range in most rows": ("rows.csv", b"query,document,label\na,b,5\nc,d,4\ne,f,1\n"),
    "nothing usable": ("rows.csv", b"query,document\na,\n,b\n"),
    "lists": ("rows.jsonl", b'{"query": "a", "document": ["b"]}\n'),
    "lists later": ("rows.jsonl", b'{"query": "a", "document": "b"}\n' * 3 + b'{"query": "a", "document": ["b"]}\n'),
    "old line ends": ("rows.csv", b"query,document\ra,b\r"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_unusable_file_is_refused_with_the_message_of_the_full_reader(name, tmp_path, monkeypatch):
    file, raw = BAD[name]
    if raw is not None:
        (tmp_path / file).write_bytes(raw)
    expected = outcome(lambda: read_at_once(tmp_path / file))
    assert outcome(lambda: read_in_chunks(tmp_path / file, monkeypatch, 2)) == expected
    assert name == "old line ends" or isinstance(expected[0], str)


def test_a_folder_is_refused_with_the_message_of_the_full_reader(tmp_path, monkeypatch):
    expected = outcome(lambda: read_at_once(tmp_path))
    assert outcome(lambda: read_in_chunks(tmp_path, monkeypatch, 2)) == expected


def test_both_readers_reject_the_same_classes(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_text("premise,hypothesis,class\na,b,0\nc,d,-\ne,f,word\ng,h,-1\ni,j,2\n", encoding="utf-8")
    columns = Columns(query="premise", document="hypothesis", class_label="class")
    expected = read_pairs(path, columns).report.rejected
    chunks = ChunkedPairs(path, columns)
    valid = [cell for chunk in chunks for cell in chunk.cells["class_label"]]
    assert valid == ["0", "2"]
    assert tuple(chunks.first_rejections) == expected


def test_a_number_among_class_names_is_refused_in_a_later_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 2)
    path = tmp_path / "rows.tsv"
    header, named = "query\tdocument\tclass_label\n", "a\tb\tfire\nc\td\t-1\n"
    path.write_text(header + named * 2 + "e\tf\t911\n", encoding="utf-8")
    assert read_pairs(path).report.rows_valid == 1
    with pytest.raises(DataError, match="column 'class_label' has a number in line 6 after rows with class names"):
        list(ChunkedPairs(path))
    path.write_text(header + "a\tb\t-\nc\td\t-1\ne\tf\t911\n", encoding="utf-8")
    chunks = ChunkedPairs(path)
    assert [len(chunk) for chunk in chunks] == [0, 1]
    assert tuple(chunks.first_rejections) == read_pairs(path).report.rejected


def test_a_saved_dataset_is_read_in_chunks(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {"query": ["a", "b", "c"], "document": ["x", "", "z"], "note": ["", "", ""]}
    splits = datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows), "dev": datasets.Dataset.from_dict(rows)})
    splits.save_to_disk(str(tmp_path / "rows"))
    chunks = ChunkedPairs(tmp_path / "rows")
    result = list(chunks)
    assert [cell for chunk in result for cell in chunk.cells["split"]] == ["train"] * 2 + ["dev"] * 2
    assert tuple(chunks.first_rejections) == read_pairs(tmp_path / "rows").report.rejected


def test_progress_ends_at_the_total(tmp_path):
    for kind in KINDS:
        seen = []
        path = written(tmp_path, kind, [["q", "d", "1", "1"]] * 50)
        assert sum(len(chunk) for chunk in read_chunks(path, rows=7, on_progress=seen.append)) == 50
        assert [progress.rows for progress in seen] == [7, 14, 21, 28, 35, 42, 49, 50]
        assert seen[-1].done == seen[-1].total > 0


def test_a_missing_column_is_refused(tmp_path):
    path = written(tmp_path, ".csv", [["q", "d", "1", "1"]])
    with pytest.raises(ColumnError, match="there is no column 'answer' for document"):
        ChunkedPairs(path, Columns(query="query", document="answer"))


def test_twenty_rejections_are_stored_and_all_are_counted(tmp_path):
    path = written(tmp_path, ".csv", [["q", "", "1", "1"]] * 30 + [["q", "d", "1", "1"]])
    chunks = ChunkedPairs(path)
    assert sum(len(chunk) for chunk in chunks) == 1
    assert [rejection.line for rejection in chunks.first_rejections] == list(range(2, 22))
    assert (chunks.rows_read, chunks.rows_rejected) == (31, 30)
    with pytest.raises(DataError, match="none of its rows can be used"):
        list(ChunkedPairs(written(tmp_path, ".csv", [["q", "", "1", "1"]] * 3)))


def test_nested_json_values_are_not_kept(tmp_path):
    rows = ['{"query": [[], {}], "document": {"a": [1]}, "label": 1}', '{"query": "a"}']
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(rows), encoding="utf-8")
    values = [value for _, value in tables._json_rows(rows, open_source(path), set())]
    assert values == [{"query": (), "document": (), "label": 1}, {"query": "a"}]


@pytest.mark.parametrize(("later", "is_refused"), [("label", True), ("split", True), ("note", False)])
def test_a_column_that_begins_after_the_first_chunk_is_not_lost(tmp_path, monkeypatch, later, is_refused):
    path = tmp_path / "rows.jsonl"
    row = '{"query": "a", "document": "b"}\n'
    path.write_text(row * 4 + row.replace("}", f', "annotator": 1, "{later}": 0}}'), encoding="utf-8")
    if is_refused:
        with pytest.raises(ColumnError, match=f"column '{later}' begins after the first 2 rows"):
            read_in_chunks(path, monkeypatch, 2)
    else:
        assert outcome(lambda: read_in_chunks(path, monkeypatch, 2)) == outcome(lambda: read_at_once(path))
