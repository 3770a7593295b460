"""`bsc audit` and `bsc convert`: reports, progress and errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bsc_core.cli import main
from bsc_core.cli.output import ReadProgressPrinter
from bsc_core.data.io.tables import ReadProgress
from tests.helpers.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
PAIRS = "q\tlabel\td\nwhat\t1\tthis\nwhat\t0\tthat\n\t1\tno question\nwhat\t1\tthis\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("BSC_ROOTS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    return tmp_path


def report_of(capsys, *words):
    assert main([*words, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    return json.loads(out)


def test_audit_reports_counts_rejections_and_columns(folder, capsys):
    report = report_of(capsys, "audit", "pairs.tsv", "--columns", "query=q,document=d,label=label")
    assert (report["rows_read"], report["rows_valid"], report["rejected"]) == (4, 3, 1)
    assert report["rows_kept"] == report["rows_valid"]
    assert report["first_rejections"] == ["line 4, q: the text is empty"]
    assert report["repeated_pairs"] == 1
    assert report["labels"] == {"0.0": 1, "1.0": 2}
    assert report["columns"] == {"query": "q", "document": "d", "label": "label"}
    assert not report["columns_guessed"]


def test_audit_is_also_printed_as_text(folder, capsys):
    assert main(["audit", "pairs.tsv", "--columns", "query=q,document=d"]) == 0
    assert "repeated_pairs: 1\n" in capsys.readouterr().out


def test_convert_writes_what_audit_counts_again(folder, capsys):
    first = report_of(capsys, "convert", "pairs.tsv", "out.parquet", "--columns", "query=q,document=d,label=label")
    assert first["out"] == "out.parquet"
    report = report_of(capsys, "audit", "out.parquet")
    assert (report["rows_read"], report["rejected"]) == (3, 0)
    assert report["columns"] == {"query": "query", "document": "document", "label": "label"}


def test_the_scale_of_labels_can_be_given(folder, capsys):
    (folder / "graded.csv").write_text("query,document,label\na,b,5\nc,d,2\n")
    assert main(["audit", "graded.csv"]) == 2
    assert "set label_min and label_max" in capsys.readouterr().err
    report = report_of(capsys, "audit", "graded.csv", "--label-max", "5", "--threshold", "0.3", "--max-length", "2")
    assert report["labels"] == {"0.4": 1, "1.0": 1}
    assert report["positive_rows"] == 2
    assert report["tokens_estimated"]["query"]["above_2"] == 2


@pytest.mark.parametrize(
    "words",
    [
        ["audit", "none.csv"],
        ["audit", "pairs.tsv", "--columns", "query=none,document=d"],
        ["audit", "pairs.tsv"],
        ["convert", "pairs.tsv", "out.csv"],
        ["convert", "pairs.tsv"],
    ],
)
def test_a_refused_input_is_one_line_and_writes_nothing(folder, capsys, words):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("bsc: ")
    assert captured.err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["pairs.tsv"]


def test_progress_is_written_at_most_once_a_second(capsys, monkeypatch):
    now = iter([0.0, 0.5, 1.0, 1.2, 4.0])
    monkeypatch.setattr("bsc_core.cli.output.time.monotonic", lambda: next(now))
    say = ReadProgressPrinter("audit")
    for done in (1, 25, 30, 50):
        say(ReadProgress(rows=done * 1000, done=done, total=100))
    assert capsys.readouterr().err.splitlines() == [
        "audit: 25,000 rows, 25%, about 3 s left",
        "audit: 50,000 rows, 50%, about 4 s left",
    ]


def peak_mebibytes(folder, rows):
    """Return the peak memory of an audit of that many distinct rows, in a separate process."""
    row = "a question of some words\tan answer of some more words than that\t1\n"
    with (folder / "large.tsv").open("w") as file:
        file.write("query\tdocument\tlabel\n")
        file.writelines(f"{number} {row}" for number in range(rows))
    code = (
        "import resource, sys; from bsc_core.cli import main\n"
        "status = main(sys.argv[1:])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "audit", "large.tsv", "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert json.loads(done.stdout)["distinct_queries"] == rows
    return int(done.stderr.splitlines()[-1])


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is in kibibytes only on Linux")
def test_memory_hardly_grows_with_the_rows(folder):
    growth = peak_mebibytes(folder, 400_000) - peak_mebibytes(folder, 100_000)
    assert growth < 60  # reading the complete file takes about that much for each 100,000 rows


def test_the_audit_of_a_small_file_names_lines_and_filters(tmp_path, capsys):
    rows = [f"question {number}\tanswer {number}\t1" for number in range(30)]
    rows += ["question 3\tanswer 3\t1", "question 5\tanswer 5\t0"]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join(["query\tdocument\tlabel", *rows]) + "\n", encoding="utf-8")
    assert main(["audit", str(path), "--json"]) == 0
    findings = {finding["filter"]: finding for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["drop_duplicates"]["lines"] == [32]
    assert findings["drop_conflicts"]["lines"] == [7, 33]
    assert main(["audit", str(path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "error: Conflicting labels in train: 1 pair (lines 7, 33). " in printed[0]
    assert printed[1].endswith(" Filter: drop_duplicates")
