"""Any text written to any format is read back unchanged."""

import csv
import gzip
import io
import json

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from bsc_core.data import read_corpus, read_pairs, read_table
from bsc_core.errors import FileFormatError
from bsc_core.files import rows_as_tsv

NASTY = [
    "null", "NA", "nan", "None", "", "-", '"', '""', 'say "hi"', "a\tb", "a,b", "a\nb", "a\r\nb", "a\rb", "nel\x85",
    "\u2028", "para\u2029graph", "🙂 👩‍👩‍👧", "e\u0301", "\ufeffmark", "\x00", "<b>*x*</b>", "=1+1", "'", "#", "\\",
    "\\n", "שלום", "  spaces  ", "\x1c", "0", "1e5", "True",
]  # fmt: skip
TEXT = st.one_of(st.sampled_from(NASTY), st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12))
ROWS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=8)


def delimited(rows, delimiter):
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter).writerows([("query", "document"), *rows])
    return stream.getvalue().encode("utf-8")


def json_lines(rows, ascii_only):
    lines = [json.dumps({"query": query, "document": doc}, ensure_ascii=ascii_only) for query, doc in rows]
    return ("\n".join(lines) + "\n").encode("utf-8")


def parquet(rows):
    stream = io.BytesIO()
    queries, documents = zip(*rows, strict=True)
    pyarrow.parquet.write_table(pyarrow.table({"query": list(queries), "document": list(documents)}), stream)
    return stream.getvalue()


FORMATS = {
    ".csv": lambda rows: delimited(rows, ","),
    ".csv.gz": lambda rows: gzip.compress(delimited(rows, ",")),
    ".tsv": lambda rows: delimited(rows, "\t"),
    ".tsv.gz": lambda rows: gzip.compress(delimited(rows, "\t")),
    ".jsonl": lambda rows: json_lines(rows, False),
    ".jsonl.gz": lambda rows: gzip.compress(json_lines(rows, True)),
    ".parquet": parquet,
}


def assume_unambiguous(rows, ending):
    """Leave out quoted cells with a tab and a line break, which can look like two rows; they can be reported."""
    assume(".tsv" not in ending or not any("\t" in cell and set("\r\n") & set(cell) for row in rows for cell in row))


@pytest.mark.parametrize("ending", FORMATS)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_every_cell_is_read_as_it_was_written(tmp_path, ending, rows):
    assume_unambiguous(rows, ending)
    path = tmp_path / f"rows{ending}"
    path.write_bytes(FORMATS[ending](rows))
    table = read_table(path)
    assert list(zip(table.columns["query"], table.columns["document"], strict=True)) == rows
    assert not table.rejected


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.tuples(TEXT, TEXT | st.sampled_from(["a\tb\nc\td", '"a\tb"\n"c\td"'])), min_size=1, max_size=4))
def test_every_cell_of_an_exported_row_is_read_as_it_was_written(tmp_path, rows):
    path = tmp_path / "rows.tsv"
    path.write_bytes(rows_as_tsv([("query", "document"), *rows]).encode())
    table = read_table(path)
    assert list(zip(table.columns["query"], table.columns["document"], strict=True)) == rows


@pytest.mark.parametrize("ending", FORMATS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_valid_rows_stay_in_order_and_all_rows_are_counted(tmp_path, ending, rows):
    assume_unambiguous(rows, ending)
    rows = [*rows, ("last query", "last document")]
    path = tmp_path / f"rows{ending}"
    path.write_bytes(FORMATS[ending](rows))
    pairs = read_pairs(path)
    stripped = [(query.strip(), document.strip()) for query, document in rows]
    good = [row for row in stripped if all(row)]
    assert list(zip(pairs.texts.take(pairs.query), pairs.texts.take(pairs.document), strict=True)) == good
    assert pairs.report.rows_read == len(rows)
    assert pairs.report.rows_valid == len(pairs) == len(good)
    assert len(pairs.report.rejected) == len(rows) - len(good)


def test_line_numbers_are_those_of_an_editor(write):
    path = write("rows.csv", b'query,document\r\n"two\r\nlines",x\r\n\r\nb,\r\nc,z\r\n')
    pairs = read_pairs(path)
    assert pairs.line.tolist() == [2, 6]
    assert pairs.report.rejected[0].line == 5


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_lines_may_end_as_on_any_system(write, ending):
    path = write("rows.csv", ending.join(["query,document", "a,b", "c,d", ""]).encode())
    assert read_pairs(path).line.tolist() == [2, 3]


def test_byte_order_mark_is_not_part_of_the_first_name(write):
    path = write("rows.csv", b"\xef\xbb\xbfquery,document\na,b\n")
    assert read_table(path).names == ("query", "document")


def test_a_very_long_text_is_valid(tmp_path):
    path = tmp_path / "rows.tsv"
    long = "word " * 60_000
    path.write_text(f"query\tdocument\na\t{long}\n", encoding="utf-8")
    assert read_pairs(path).texts[1] == long.strip()


def test_numbers_and_truth_values_of_json_and_parquet_can_be_labels(tmp_path):
    lines = tmp_path / "rows.jsonl"
    lines.write_text(
        '{"query": "a", "document": "b", "label": true}\n{"query": "c", "document": "d", "label": 0.25}\n',
        encoding="utf-8",
    )
    assert read_pairs(lines).label.tolist() == [1.0, 0.25]
    columns = {"query": ["a", "c"], "document": ["b", "d"], "label": [False, True]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    assert read_pairs(tmp_path / "rows.parquet").label.tolist() == [0.0, 1.0]


def test_labels_are_scaled_from_the_files_limits(write):
    path = write("rows.csv", "query,document,score\na,b,5\nc,d,3\ne,f,0\n")
    pairs = read_pairs(path, label_max=5, threshold=0.6)
    assert pairs.label.tolist() == pytest.approx([1.0, 0.6, 0.0])
    assert pairs.positive.tolist() == [True, False, False]


def test_several_columns_make_one_text(write):
    path = write("rows.csv", "title,body,answer\nA,long story,x\n,only body,y\n,,z\n")
    pairs = read_pairs(path, columns={"query": ["title", "body"], "document": "answer"})
    assert pairs.texts.take(pairs.query) == ["A long story", "only body"]
    assert pairs.report.rejected[0].field == "title + body"


def test_marks_in_a_file_of_one_column_do_not_merge_its_lines(write):
    message = "starts at line 3 has unmatched .* put every text and the header in quotes"
    with pytest.raises(FileFormatError, match=message):
        read_corpus(write("corpus.tsv", 'text\nfirst\n"to be\nor not\nto be"\n'))
    quoted = read_corpus(write("quoted.tsv", '"text"\n"first"\n\n"to be\nor not"\n"say ""hi"""\n'))
    assert quoted.texts.texts == ("first", "to be\nor not", 'say "hi"')


def test_a_corpus_has_its_ids_and_repeats(write):
    path = write("corpus.csv", "doc_id,text\nd1,x\nd2,y\nd3,x\nd4,\n")
    corpus = read_corpus(path)
    assert corpus.key == ("d1", "d2", "d3")
    assert corpus.texts.take(corpus.document) == ["x", "y", "x"]
    assert len(corpus) == 3
    assert corpus.report.rejected[0].line == 5
    assert len(corpus.digest) == 64
