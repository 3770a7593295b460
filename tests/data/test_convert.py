"""Conversion to Parquet: the good rows under plain names, whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from bsc_core.config import Columns
from bsc_core.data import read_pairs
from bsc_core.data import stream as stream_module
from bsc_core.data.convert import convert_file
from bsc_core.errors import DataError, FileFormatError, PathError

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


def test_the_outcome_reads_as_the_same_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(stream_module, "PIECE_ROWS", 2)
    (tmp_path / "rows.csv").write_text(HEADER + ROWS, encoding="utf-8")
    pieces = convert_file(tmp_path / "rows.csv", tmp_path / "out.parquet", COLUMNS, limits=(0, 5))
    assert (pieces.read, pieces.kept) == (4, 3)
    names = pyarrow.parquet.read_schema(tmp_path / "out.parquet").names
    assert names == ["query", "document", "label", "query_id", "split", "negative", "class_label"]
    whole = read_pairs(tmp_path / "rows.csv", COLUMNS, label_max=5)
    chosen = {name: name for name in names}
    same_rows(read_pairs(tmp_path / "out.parquet", Columns(**chosen)), whole)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["out.parquet", "rows.csv"]


def test_guessed_columns_are_guessed_again_from_the_outcome(tmp_path):
    (tmp_path / "rows.tsv").write_text("question\tanswer\tscore\tqid\na\tx\t1\t7\nb\ty\t0\t8\n", encoding="utf-8")
    convert_file(tmp_path / "rows.tsv", tmp_path / "out.parquet")
    assert read_pairs(tmp_path / "out.parquet").report.columns == Columns(
        query="query", document="document", label="label", query_id="query_id"
    )


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("rows.csv", "the outcome is a Parquet file"),
        ("there.parquet", "is there already"),
        ("none/out.parquet", "there is no folder"),
    ],
)
def test_a_place_that_cannot_take_the_outcome_is_refused_before_reading(tmp_path, out, words):
    (tmp_path / "there.parquet").write_bytes(b"kept")
    with pytest.raises(PathError, match=words):
        convert_file(tmp_path / "never read.csv", tmp_path / out)
    assert (tmp_path / "there.parquet").read_bytes() == b"kept"


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        ("a,x,1\n" * 10 + '"b,y,1\n', FileFormatError),
        ("a,x,9\n" * 10, DataError),
        (",x,1\n" * 10, DataError),
    ],
)
def test_a_file_that_is_refused_at_its_end_leaves_nothing(tmp_path, monkeypatch, rows, error):
    monkeypatch.setattr(stream_module, "PIECE_ROWS", 3)
    (tmp_path / "rows.csv").write_text("query,document,label\n" + rows, encoding="utf-8")
    with pytest.raises(error):
        convert_file(
            tmp_path / "rows.csv", tmp_path / "out.parquet", Columns(query="query", document="document", label="label")
        )
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_an_interrupted_conversion_leaves_nothing(tmp_path):
    (tmp_path / "rows.csv").write_text("query,document\n" + "a,x\n" * 10, encoding="utf-8")

    def interrupt(progress):
        assert any(path.name.endswith(".unfinished") for path in tmp_path.iterdir())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert_file(tmp_path / "rows.csv", tmp_path / "out.parquet", say=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


@pytest.mark.skipif(os.name != "posix", reason="limits of file sizes are those of POSIX")
def test_a_full_disk_leaves_nothing_and_is_said_in_one_line(tmp_path):
    rows = "".join(f"query {os.urandom(40).hex()},document {os.urandom(40).hex()}\n" for _ in range(5000))
    (tmp_path / "rows.csv").write_text("query,document\n" + rows, encoding="utf-8")
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "from bsc_core.cli import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ["convert", str(tmp_path / "rows.csv"), str(tmp_path / "out.parquet")]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "could not be written (File too large), and nothing of it is kept" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


@pytest.mark.skipif(os.name != "posix", reason="a process is killed as on POSIX")
def test_a_killed_conversion_leaves_nothing_that_could_be_taken_for_whole(tmp_path):
    (tmp_path / "rows.csv").write_text("query,document\n" + "a,x\n" * 10, encoding="utf-8")
    code = (
        "import os, signal, sys\n"
        "from bsc_core.data.convert import convert_file\n"
        "convert_file(sys.argv[1], sys.argv[2], say=lambda progress: os.kill(os.getpid(), signal.SIGKILL))"
    )
    words = [str(tmp_path / "rows.csv"), str(tmp_path / "out.parquet")]
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, timeout=120, check=False)
    assert done.returncode < 0
    left = [path for path in tmp_path.iterdir() if path.name != "rows.csv"]
    assert all(path.name.startswith(".") and path.suffix == ".unfinished" for path in left)
