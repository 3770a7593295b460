"""Files in pieces: the rows, rejections and errors of the ordinary reader, whatever the size of a piece."""

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
from bsc_core.data.checked import PairPieces
from bsc_core.data.stream import read_pieces
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
        columns = {name: [row[place] for row in rows] for place, name in enumerate(NAMES)}
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


def read_whole(path):
    pairs = read_pairs(path)
    sides = [pairs.texts.take(column) for column in pairs.text_columns]
    labels = None if pairs.label is None else pairs.label.tolist()
    return sides, labels, pairs.report.rows_read, pairs.report.rejected[:20], len(pairs.report.rejected)


def read_in_pieces(path, monkeypatch, rows):
    monkeypatch.setattr(
        "bsc_core.data.checked.read_pieces", lambda *given, **named: read_pieces(*given, **named, rows=rows)
    )
    pieces = PairPieces(path)
    found = list(pieces)
    sides = [[item for piece in found for item in piece.sides[side]] for side in range(len(found[0].sides))]
    labels = None if found[0].labels is None else np.concatenate([piece.labels for piece in found]).tolist()
    return sides, labels, pieces.read, tuple(pieces.first), pieces.rejected


@pytest.mark.parametrize("kind", KINDS)
@given(rows=ROWS, size=st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_pieces_hold_the_cells_and_lines_of_the_whole_table(kind, rows, size, tmp_path_factory):
    path = written(tmp_path_factory.mktemp("pieces"), kind, rows, ["[1]"] if "json" in kind else [])
    table = read_table(path)
    pieces = list(read_pieces(path, rows=size))
    assert all(len(piece) + len(piece.rejected) <= size for piece in pieces)
    assert {name: [item for piece in pieces for item in piece.columns[name]] for name in table.names} == table.columns
    assert [item for piece in pieces for item in piece.line] == table.line
    assert tuple(item for piece in pieces for item in piece.rejected) == table.rejected


@pytest.mark.parametrize("kind", KINDS)
@given(rows=ROWS, size=st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_pieces_reject_the_rows_and_files_that_the_whole_reader_rejects(kind, rows, size, tmp_path_factory):
    path = written(
        tmp_path_factory.mktemp("pieces"),
        kind,
        [["q", "d", "1", "1"], *rows],
        ["[1]", "no json"] if "json" in kind else [],
    )
    with pytest.MonkeyPatch.context() as patch:
        assert outcome(lambda: read_in_pieces(path, patch, size)) == outcome(lambda: read_whole(path))


BAD = {
    "empty": ("rows.csv", b""),
    "a header alone": ("rows.csv", b"query,document\n"),
    "no utf-8": ("rows.csv", b"query,document\na,b\nc,\xff\n"),
    "no utf-8 in gzip": ("rows.csv.gz", gzip.compress(b"query,document\na,b\nc,\xe9\n")),
    "gzip cut short": ("rows.csv.gz", gzip.compress(b"query,document\n" + b"a,b\n" * 1000)[:-20]),
    "no gzip": ("rows.csv.gz", b"query,document\na,b\n"),
    "empty gzip": ("rows.jsonl.gz", b""),
    "unmatched quotes": ("rows.csv", b'query,document\na,b\n"c,d\n'),
    "a repeated name": ("rows.csv", b"query,query\na,b\n"),
    "semicolons": ("rows.csv", b"query;document\na;b\n"),
    "a zip archive": ("rows.csv", b"PK\x03\x04rest"),
    "a page": ("rows.tsv", b"<!DOCTYPE html><p>x"),
    "json in csv": ("rows.csv", b'{"query": 1}\n'),
    "an array": ("rows.jsonl", b"[1]\n"),
    "no objects": ("rows.jsonl", b"1\n2\n"),
    "a parquet file cut short": ("rows.parquet", b"PAR1 and no end"),
    "another ending": ("rows.xlsx", b"x"),
    "no such columns": ("rows.csv", b"left,right\na,b\n"),
    "a label out of range in most rows": ("rows.csv", b"query,document,label\na,b,5\nc,d,4\ne,f,1\n"),
    "nothing usable": ("rows.csv", b"query,document\na,\n,b\n"),
    "lists": ("rows.jsonl", b'{"query": "a", "document": ["b"]}\n'),
    "lists later": ("rows.jsonl", b'{"query": "a", "document": "b"}\n' * 3 + b'{"query": "a", "document": ["b"]}\n'),
    "old line ends": ("rows.csv", b"query,document\ra,b\r"),
    "zero bytes": ("rows.csv", "query,document\na,b\n".encode("utf-16-le")),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_the_sentence_of_the_whole_reader(name, tmp_path, monkeypatch):
    file, raw = BAD[name]
    (tmp_path / file).write_bytes(raw)
    told = outcome(lambda: read_whole(tmp_path / file))
    assert outcome(lambda: read_in_pieces(tmp_path / file, monkeypatch, 2)) == told
    assert name == "old line ends" or isinstance(told[0], str)


def test_a_missing_file_and_a_folder_are_refused_alike(tmp_path, monkeypatch):
    for path in (tmp_path / "none.csv", tmp_path / "folder.csv"):
        (tmp_path / "folder.csv").mkdir(exist_ok=True)
        assert outcome(lambda path=path: read_in_pieces(path, monkeypatch, 2)) == outcome(
            lambda path=path: read_whole(path)
        )


def test_numbered_classes_and_rows_without_one_are_rejected_alike(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_text("premise,hypothesis,class\na,b,0\nc,d,-\ne,f,word\ng,h,-1\ni,j,2\n", encoding="utf-8")
    columns = Columns(query="premise", document="hypothesis", class_label="class")
    whole = read_pairs(path, columns)
    pieces = PairPieces(path, columns)
    kept = [cell for piece in pieces for cell in piece.cells["class_label"]]
    assert kept == ["0", "2"]
    assert tuple(pieces.first) == whole.report.rejected


def test_a_data_set_of_hugging_face_is_read_in_pieces(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {"query": ["a", "b", "c"], "document": ["x", "", "z"], "note": ["", "", ""]}
    parts = datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows), "dev": datasets.Dataset.from_dict(rows)})
    parts.save_to_disk(str(tmp_path / "rows"))
    pieces = PairPieces(tmp_path / "rows")
    found = list(pieces)
    assert [cell for piece in found for cell in piece.cells["split"]] == ["train"] * 2 + ["dev"] * 2
    assert tuple(pieces.first) == read_pairs(tmp_path / "rows").report.rejected


def test_progress_ends_with_the_whole_file(tmp_path):
    for kind in KINDS:
        seen = []
        path = written(tmp_path, kind, [["q", "d", "1", "1"]] * 50)
        assert sum(len(piece) for piece in read_pieces(path, rows=7, say=seen.append)) == 50
        assert [progress.rows for progress in seen] == [7, 14, 21, 28, 35, 42, 49, 50]
        assert seen[-1].done == seen[-1].whole > 0


def test_a_given_column_that_is_not_there_is_refused(tmp_path):
    path = written(tmp_path, ".csv", [["q", "d", "1", "1"]])
    with pytest.raises(ColumnError, match="there is no column 'answer' for document"):
        PairPieces(path, Columns(query="query", document="answer"))


def test_only_twenty_rejections_are_kept_and_all_are_counted(tmp_path):
    path = written(tmp_path, ".csv", [["q", "", "1", "1"]] * 30 + [["q", "d", "1", "1"]])
    pieces = PairPieces(path)
    assert sum(len(piece) for piece in pieces) == 1
    assert [rejection.line for rejection in pieces.first] == list(range(2, 22))
    assert (pieces.read, pieces.rejected) == (31, 30)
    with pytest.raises(DataError, match="none of its rows can be used"):
        list(PairPieces(written(tmp_path, ".csv", [["q", "", "1", "1"]] * 3)))
