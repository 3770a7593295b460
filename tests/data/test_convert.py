"""Conversion to Parquet: the valid rows under standard names, or no file."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from bsc_core.config import Columns
from bsc_core.data import read_pairs
from bsc_core.data.io import tables
from bsc_core.data.io.convert import convert_file
from bsc_core.errors import DataError, FileFormatError, PathError
from tests.helpers.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
HEADER = "qid,title,body,answer,wrong,score,part,kind\n"
ROWS = (
    '1,a,b,x,n,5,train,entailment\n1,a,"b, c",y,m,0,dev,neutral\n2,,é,z,k,2.5,train,neutral\n3,d,,,k,1,train,neutral\n'
)
COLUMNS = Columns(
    query=("title", "body"),
    document="answer",
    negative="wrong",
    label="score",
    query_id="qid",
    split="part",
    class_label="kind",
)


def same_rows(one, other):
    assert [one.texts.take(column) for column in one.text_columns] == [
        other.texts.take(column) for column in other.text_columns
    ]
    assert one.label.tolist() == other.label.tolist()
    for name in ("split", "document_key", "class_names"):
        assert getattr(one, name) == getattr(other, name)
    assert one.query_group.tolist() == other.query_group.tolist()
    assert one.classes.tolist() == other.classes.tolist()


def test_the_converted_file_has_the_same_pairs(write, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 2)
    write("rows.csv", HEADER + ROWS)
    pairs = convert_file(tmp_path / "rows.csv", tmp_path / "out.parquet", COLUMNS, limits=(0, 5))
    assert (pairs.rows_read, pairs.rows_valid) == (4, 3)
    names = pyarrow.parquet.read_schema(tmp_path / "out.parquet").names
    assert names == ["query", "document", "label", "query_id", "split", "negative", "class_label"]
    expected = read_pairs(tmp_path / "rows.csv", COLUMNS, label_max=5)
    chosen = {name: name for name in names}
    same_rows(read_pairs(tmp_path / "out.parquet", Columns(**chosen)), expected)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["out.parquet", "rows.csv"]


def test_the_columns_of_the_converted_file_are_guessed(write, tmp_path):
    write("rows.tsv", "question\tanswer\tscore\tqid\na\tx\t1\t7\nb\ty\t0\t8\n")
    convert_file(tmp_path / "rows.tsv", tmp_path / "out.parquet")
    assert read_pairs(tmp_path / "out.parquet").report.columns == Columns(
        query="query", document="document", label="label", query_id="query_id"
    )


def test_the_classes_of_a_converted_file_are_read_again(write, tmp_path):
    write("nli.csv", "premise,hypothesis,label\na,b,entailment\nc,d,neutral\ne,f,contradiction\n")
    convert_file(tmp_path / "nli.csv", tmp_path / "nli.parquet")
    before, after = read_pairs(tmp_path / "nli.csv"), read_pairs(tmp_path / "nli.parquet")
    assert after.class_names == before.class_names
    assert after.classes.tolist() == before.classes.tolist()
    assert after.label.tolist() == before.label.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("rows.csv", "not a Parquet file"),
        ("there.parquet", "exists already"),
        ("none/out.parquet", "the folder .* is missing"),
    ],
)
def test_an_unusable_output_path_is_refused_before_reading(tmp_path, out, message):
    (tmp_path / "there.parquet").write_bytes(b"content")
    with pytest.raises(PathError, match=message):
        convert_file(tmp_path / "never read.csv", tmp_path / out)
    assert (tmp_path / "there.parquet").read_bytes() == b"content"


@pytest.mark.parametrize(
    ("rows", "error"),
    [("a,x,1\n" * 10 + '"b,y,1\n', FileFormatError), ("a,x,9\n" * 10, DataError), (",x,1\n" * 10, DataError)],
)
def test_a_file_refused_at_its_end_leaves_no_output(write, tmp_path, monkeypatch, rows, error):
    monkeypatch.setattr(tables, "CHUNK_ROWS", 3)
    write("rows.csv", "query,document,label\n" + rows)
    with pytest.raises(error):
        convert_file(
            tmp_path / "rows.csv", tmp_path / "out.parquet", Columns(query="query", document="document", label="label")
        )
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_an_interrupted_conversion_leaves_no_output(write, tmp_path):
    write("rows.csv", "query,document\n" + "a,x\n" * 10)

    def interrupt(progress):
        assert any(path.name.endswith(".unfinished") for path in tmp_path.iterdir())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_file(tmp_path / "rows.csv", tmp_path / "out.parquet", on_progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


@pytest.mark.skipif(os.name != "posix", reason="limits of file sizes are those of POSIX")
def test_a_full_disk_leaves_no_output_and_one_line_of_error(write, tmp_path):
    rows = "".join(f"query {os.urandom(40).hex()},document {os.urandom(40).hex()}\n" for _ in range(5000))
    write("rows.csv", "query,document\n" + rows)
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "from bsc_core.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["convert", str(tmp_path / "rows.csv"), str(tmp_path / "out.parquet")]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 1
    (error,) = (line for line in done.stderr.splitlines() if not line.startswith("convert: "))  # lines of progress
    assert "could not be written (File too large), and nothing was saved" in error
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


@pytest.mark.skipif(os.name != "posix", reason="a process is killed as on POSIX")
def test_a_killed_conversion_leaves_only_a_hidden_file(write, tmp_path):
    write("rows.csv", "query,document\n" + "a,x\n" * 10)
    code = (
        "import os, signal, sys\n"
        "from bsc_core.data.io.convert import convert_file\n"
        "convert_file(sys.argv[1], sys.argv[2], on_progress=lambda progress: os.kill(os.getpid(), signal.SIGKILL))"
    )
    arguments = [str(tmp_path / "rows.csv"), str(tmp_path / "out.parquet")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode < 0
    left = [path for path in tmp_path.iterdir() if path.name != "rows.csv"]
    assert all(path.name.startswith(".") and path.suffix == ".unfinished" for path in left)
