"""Bad input: one clear sentence names the file, the row or the column, and the fix; valid rows remain."""

import gzip
import io
import zipfile

import pyarrow
import pyarrow.parquet
import pytest

from bsc_core.config import Columns
from bsc_core.data import read_corpus, read_pairs, read_table
from bsc_core.data.io import tables
from bsc_core.data.io.read_pairs import ChunkedPairs
from bsc_core.errors import ColumnError, ConfigError, DataError, FileFormatError, PathError

GOOD = "query,document,label\na,b,1\nc,d,0\n"
LATIN_1 = b"query,document\na,b\nc,caf\xe9\n"


def zipped():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("pairs.csv", GOOD)
    return stream.getvalue()


def parquet_bytes(columns=None):
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns or {"query": ["a"], "document": ["b"]}), stream)
    return stream.getvalue()


UNUSABLE_FILES = {
    "nothing": ("pairs.csv", b"", "is empty; it needs a header"),
    "only blank lines": ("pairs.tsv", b"\n \n", "is empty"),
    "an empty gzip": ("pairs.csv.gz", gzip.compress(b""), "is empty"),
    "only a header": ("pairs.csv", b"query,document\n", "it has no rows; add rows"),
    "no rows": ("pairs.parquet", parquet_bytes({"query": pyarrow.array([], "string")}), "it has no rows; add rows"),
    "latin-1": ("pairs.csv", LATIN_1, r"line 3 \(byte 24\) is not UTF-8; save the file as UTF-8"),
    "latin-1 in gzip": ("pairs.csv.gz", gzip.compress(LATIN_1), r"line 3 \(byte 24\) is not UTF-8"),
    "UTF-16": ("pairs.csv", GOOD.encode("utf-16"), "contains UTF-16 text, not CSV; export"),
    "UTF-16 without a mark": ("pairs.csv", GOOD.encode("utf-16-le"), "zero bytes and is not UTF-8; save"),
    "a zip named csv": ("pairs.csv", zipped(), "a zip archive or an Excel workbook, not CSV; export the table as"),
    "Parquet named csv": ("pairs.csv", parquet_bytes(), r"a Parquet file, not CSV; give it a name that ends in \.parq"),
    "CSV named parquet": ("pairs.parquet", GOOD, "not a complete Parquet file; write it again"),
    "half a Parquet file": ("pairs.parquet", parquet_bytes()[:40], "not a complete Parquet file"),
    "Parquet with a broken inside": ("pairs.parquet", b"PAR1" + b"x" * 40 + b"PAR1", "cannot be read .*write it again"),
    "plain text named gz": ("pairs.csv.gz", GOOD, r"not a complete gzip file, though its name ends in \.gz"),
    "half a gzip file": ("pairs.csv.gz", gzip.compress(GOOD.encode() * 9)[:-12], "not a complete gzip file"),
    "gzip without its ending": ("pairs.csv", gzip.compress(GOOD.encode()), "contains gzip data, not CSV"),
    "a web page": ("pairs.csv", "<!DOCTYPE html><html></html>", "contains an HTML or XML page, not CSV"),
    "JSON named csv": ("pairs.csv", '{"query": "a"}\n', r"contains JSON, not CSV; .* name the file \.jsonl"),
    "a JSON array": ("pairs.jsonl", '[{"query": "a", "document": "b"}]', "one JSON array; write one object per line"),
    "CSV named jsonl": ("pairs.jsonl", GOOD, "no line is a JSON object; write one object per line"),
    "a name without a format": (
        "pairs.txt",
        GOOD,
        r"the ending \.txt is not that of a known format; save the table as \.csv",
    ),
    "commas in a tsv": ("pairs.tsv", GOOD, r"the header has commas but no tabs; .*\.csv for commas"),
    "tabs in a csv": ("pairs.csv", "query\tdocument\na\tb\n", "the header has tabs but no commas"),
    "semicolons in a tsv": ("pairs.tsv", "query;document\na;b\n", "the header has semicolons but no tabs"),
    "a quote that never closes": ("pairs.csv", 'query,document\na,b\n"c,d\n', "starts at line 3 has unmatched quot"),
    "rows without quotes": (
        "pairs.tsv",
        'query\tdocument\ta\nb\t"c d\te\nf\tg\th\ni\tj"\tk\n',
        "starts at line 2 has unmatched quotation marks .the next one is in line 4",
    ),
    "rows without quotes around a blank line": (
        "pairs.tsv",
        'query\tdocument\ta\nb\t"c d\te\n\nf\tg\th\ni\tj"\tk\n',
        "starts at line 2 has unmatched quotation marks .the next one is in line 5",
    ),
    "rows without quotes, the last one too long": (
        "pairs.tsv",
        'query\tdocument\ta\nb\t"c d\te\nf\tg\th\ni\tj"\tk\tl\n',
        "starts at line 2 has unmatched quotation marks .the next one is in line 4",
    ),
    "rows without quotes, of tabs in quotes": (
        "pairs.tsv",
        'query\tdocument\n"a\t""b\nc"\td\n',
        "starts at line 2 has unmatched quotation marks .the next one is in line 3",
    ),
    "text after a closing quote": ("pairs.csv", 'query,document\n"c"d,e\n', "line 2 has unmatched quotation marks"),
    "a name twice": ("pairs.csv", "query,document,query\na,b,c\n", "names query more than once; rename one"),
}


@pytest.mark.parametrize("case", UNUSABLE_FILES)
def test_an_unusable_file_is_refused_in_one_sentence_by_both_readers(write, monkeypatch, case):
    name, content, message = UNUSABLE_FILES[case]
    path = write(name, content)
    with pytest.raises(FileFormatError, match=message) as caught:
        read_pairs(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    monkeypatch.setattr(tables, "CHUNK_ROWS", 2)
    with pytest.raises(FileFormatError) as in_chunks:
        list(ChunkedPairs(path))
    assert str(in_chunks.value) == str(caught.value)


def test_semicolons_separate_the_columns_of_a_csv_file_if_only_these_divide_its_header(write):
    path = write("excel.csv", '\n"query, in short";document;label\n"a;b";c, d;1\ne;f;0\n')
    pairs = read_pairs(path, {"query": "query, in short", "document": "document", "label": "label"})
    assert pairs.texts.take(pairs.query) == ["a;b", "e"]
    assert pairs.texts.take(pairs.document) == ["c, d", "f"]
    assert pairs.line.tolist() == [3, 4]
    assert pairs.report.summary() == f"{path}: 2 rows read (separated by semicolons), none rejected"
    commas = read_pairs(write("commas.csv", "query,document;x\na;b,c\n"), {"query": "query", "document": "document;x"})
    assert (commas.texts.take(commas.query), commas.report.separator) == (["a;b"], "")


@pytest.mark.parametrize(
    ("row", "field", "reason"),
    [
        (",b,1", "query", "the text is empty"),
        ("a, \u3000 ,1", "document", "the text is empty"),
        ("a,b,good", "label", "the label 'good' is not a number"),
        ("a,b,0_1", "label", "the label '0_1' is not a number"),
        ("a,b,", "label", "the label is empty"),
        ("a,b,NaN", "label", "the label is NaN"),
        ("a,b,1.5", "label", "the label 1.5 is outside 0 to 1"),
        ("a,b,-inf", "label", "the label -inf is outside 0 to 1"),
        ("a,b", "", "has 2 fields where the header has 3"),
        ("a,b,1,2", "", "has 4 fields where the header has 3"),
    ],
)
def test_an_invalid_row_is_rejected_with_its_line_and_field_and_valid_rows_remain(write, row, field, reason):
    path = write("pairs.csv", f"query,document,label\na,b,1\n{row}\nc,d,0\n")
    pairs = read_pairs(path)
    assert pairs.line.tolist() == [2, 4]
    assert pairs.report.rows_read == 3
    assert [(bad.line, bad.field, bad.reason) for bad in pairs.report.rejected] == [(3, field, reason)]
    position = f"line 3, {field}" if field else "line 3"
    assert pairs.report.summary() == f"{path}: 3 rows read, 1 rejected ({position}: {reason})"


def test_a_line_that_is_not_an_object_is_rejected(write):
    path = write("pairs.jsonl", '{"query": "a", "document": "b"}\n{"query": "c",\n"x"\n{"query": "d"}\n')
    pairs = read_pairs(path)
    assert len(pairs) == 1
    assert [(bad.line, bad.field, bad.reason) for bad in pairs.report.rejected] == [
        (2, "", "is not a JSON object"),
        (3, "", "is not a JSON object"),
        (4, "document", "the text is empty"),
    ]


def test_an_unpaired_surrogate_is_rejected(write):
    path = write("pairs.jsonl", '{"query": "a", "document": "b"}\n{"query": "\\ud800", "document": "b"}\n')
    assert read_pairs(path).report.rejected[0].reason == "the text contains an unpaired surrogate, which is not Unicode"


def test_a_row_with_two_faults_is_counted_once(write):
    path = write("pairs.csv", "query,document,label\n,,x\na,b,1\n")
    assert len(read_pairs(path).report.rejected) == 1


def test_many_rejected_rows_are_summarized(write):
    path = write("pairs.csv", "query,document\na,b\n" + ",x\n" * 1200)
    summary = read_pairs(path).report.summary()
    assert "1,201 rows read, 1,200 rejected (line 3, query: the text is empty; line 4" in summary
    assert summary.endswith("and 1,197 more)")


def test_parquet_rejections_count_rows(write):
    path = write("pairs.parquet", parquet_bytes({"query": ["a", None], "document": ["b", "c"]}))
    assert "(row 2, query: the text is empty)" in read_pairs(path).report.summary()


def test_no_usable_row_is_refused_with_the_first_reason(write):
    path = write("pairs.csv", "query,document\n,b\nc,\n")
    unusable = "none of its rows can be used"
    with pytest.raises(DataError, match=rf"{unusable} \(2 read\); the first: line 2, query: the text is empty; cor"):
        read_pairs(path)
    with pytest.raises(DataError, match=rf"{unusable} \(1 read\); the first: line 2: has 1 fields"):
        read_pairs(write("short.csv", "query,document\nonly\n"))


def test_a_file_with_labels_outside_the_range_is_refused(write):
    path = write("pairs.csv", "query,document,score\na,b,5\nc,d,3.5\ne,f,0\n")
    message = r"2 of 3 labels in column 'score' are outside .* \(they range from 3.5 to 5\); set label_min"
    with pytest.raises(DataError, match=message):
        read_pairs(path)


def test_a_missing_column_is_named_with_the_existing_ones(write):
    path = write("pairs.csv", GOOD)
    message = r"no column 'answer' for document; the columns are 'query', 'document', 'label'; map"
    with pytest.raises(ColumnError, match=message) as caught:
        read_pairs(path, columns=Columns(query="query", document="answer"))
    assert str(caught.value).startswith(str(path))
    with pytest.raises(ColumnError, match="no column 'body' for query"):
        read_pairs(path, columns={"query": ["query", "body"], "document": "document"})


BOTH = {"query": "query", "document": "document"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"query": "query"}, "document is missing; name its column"),
        (BOTH | {"answer": "x"}, "'answer' is not a role; the roles are query, document"),
        ({"query": "query", "document": 3}, "document is 3; give the name of a column"),
        ({"query": "query", "document": "query"}, "'query' is used as query and as document"),
        (BOTH | {"label": "document"}, "'document' is used as document and as label"),
        ({"query": [], "document": "document"}, "query names no column"),
    ],
)
def test_an_invalid_mapping_is_refused(write, columns, message):
    with pytest.raises(ColumnError, match=message):
        read_pairs(write("pairs.csv", GOOD), columns=columns)


def test_a_column_of_lists_is_refused_as_a_text(write):
    path = write("pairs.jsonl", '{"query": "a", "document": ["b", "c"]}\n')
    message = "column 'document' contains lists, objects or bytes; map document to a column of texts"
    with pytest.raises(ColumnError, match=message):
        read_pairs(path)
    assert read_table(path).nested == {"document"}


def test_a_corpus_of_unknown_columns_is_refused(write):
    with pytest.raises(ColumnError, match=r"no column looks like the document; the columns are 'a', 'b'; rename it"):
        read_corpus(write("corpus.csv", "a,b\n1,2\n"))


def test_invalid_label_limits_are_refused(write):
    path = write("pairs.csv", GOOD)
    with pytest.raises(ConfigError, match="label_min 1, label_max 1"):
        read_pairs(path, label_min=1)
    with pytest.raises(ConfigError, match="threshold is 2"):
        read_pairs(path, threshold=2)


def test_a_missing_file_a_folder_and_a_zero_byte_are_refused(tmp_path):
    with pytest.raises(PathError, match=r"gone\.csv: there is no such file or folder"):
        read_pairs(tmp_path / "gone.csv")
    with pytest.raises(PathError, match="not a regular file; give the path of a file"):
        read_pairs(tmp_path)
    with pytest.raises(PathError, match="not a valid path"):
        read_pairs("a\x00b.csv")
    with pytest.raises(PathError, match="the path is empty"):
        read_pairs("")


def test_a_file_outside_the_allowed_folders_is_refused(write, tmp_path, monkeypatch):
    path = write("pairs.csv", GOOD)
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.setenv("BSC_ROOTS", str(inside))
    with pytest.raises(PathError, match=r"outside the folders that may be read .*BSC_ROOTS"):
        read_pairs(path)
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path))
    assert len(read_pairs(path)) == 2
