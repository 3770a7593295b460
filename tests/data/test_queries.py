"""User-supplied queries: files and pasted lines, with and without relevant documents."""

from __future__ import annotations

import pytest

from bsc_core.data.queries import MAX_QUERIES, parse_queries, read_queries
from bsc_core.errors import ColumnError, DataError, FileFormatError, InputError


def test_pasted_lines_are_queries_with_an_optional_document_after_a_tab():
    query_set = parse_queries("bake bread\n\n  plant a rose \twater it\r\n")
    assert query_set.texts == ("bake bread", "plant a rose")
    assert query_set.gold == ((), ("water it",))
    assert query_set.with_gold == 1


def test_a_query_of_several_rows_has_all_its_documents_once(write):
    query_set = read_queries(write("own.tsv", "Question\tanswer\nbake\tflour\nrose\twater\nbake\tyeast\nbake\tflour\n"))
    assert query_set.texts == ("bake", "rose")
    assert query_set.gold == (("flour", "yeast"), ("water",))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one.csv", "whatever\nbake bread\n"),
        ("two.csv", "id,query\n7,bake bread\n"),
        ("rows.jsonl", '{"query": "bake bread", "note": 3}\n'),
        ("lines.txt", "bake bread\n"),
    ],
)
def test_the_query_column_is_guessed_in_every_format(write, name, text):
    query_set = read_queries(write(name, text))
    assert query_set.texts == ("bake bread",)
    assert query_set.with_gold == 0


@pytest.mark.parametrize(
    ("header", "labels"),
    [
        ("label", ("1", "0", "0.2")),
        ("label", ("entailment", "neutral", "contradiction")),
        ("class_label", ("entailment", "", "-")),
        ("class_label", ("0", "1", "2")),
    ],
)
def test_documents_with_a_negative_label_are_not_relevant(write, header, labels):
    rows = zip(("soup", "soup", "bread"), ("boil", "the moon", "a train"), labels, strict=True)
    path = write("pairs.tsv", f"query\tdocument\t{header}\n" + "".join("\t".join(row) + "\n" for row in rows))
    queries = read_queries(path)
    assert queries.texts == ("soup", "bread")
    assert queries.gold == (("boil",), ())


def test_labels_of_another_scale_are_refused(write):
    rows = "".join(f"bake\tdocument {rating}\t{rating}\n" for rating in range(1, 6))
    with pytest.raises(DataError, match="the label 2 in line 3 is above 1; scale the labels to 0 to 1"):
        read_queries(write("rated.tsv", f"query\tdocument\trating\n{rows}"))


def test_queries_with_a_label_that_cannot_be_used_are_rejected(write):
    queries = read_queries(write("pairs.tsv", "query\tdocument\tlabel\na\tx\trelevant\nb\ty\tnan\nc\tz\t1\n"))
    assert queries.texts == ("c",)
    assert [one.sentence() for one in queries.rejected] == [
        "line 2, label: the label 'relevant' is neither a number nor a class of NLI",
        "line 3, label: the label 'nan' is neither a number nor a class of NLI",
    ]


def test_empty_queries_are_rejected_with_their_lines(write):
    query_set = read_queries(write("own.csv", "query,document\n,flour\nbake,\n"))
    assert query_set.texts == ("bake",)
    assert [error.sentence() for error in query_set.rejected] == ["line 2, query: the text is empty"]
    assert query_set.gold == ((),)


@pytest.mark.parametrize(
    ("name", "text", "error", "words"),
    [
        ("own.csv", "first,second\na,b\n", ColumnError, "name it 'query'"),
        ("own.csv", "query\n \n", DataError, "none of its rows"),
        ("own.txt", " \n\n", FileFormatError, "empty"),
        ("own.xlsx", "PK\x03\x04", FileFormatError, "save the table as"),
        ("own.tsv", "query;document\na;b\n", FileFormatError, "semicolons"),
        ("own.jsonl", '[{"query": "a"}]', FileFormatError, "one JSON array"),
    ],
)
def test_unusable_query_files_are_refused_in_one_sentence(write, name, text, error, words):
    with pytest.raises(error, match=words) as caught:
        read_queries(write(name, text))
    assert "\n" not in str(caught.value)


def test_too_many_queries_are_refused():
    with pytest.raises(InputError, match="give fewer"):
        parse_queries("\n".join(f"query {number}" for number in range(MAX_QUERIES + 1)))
    assert len(parse_queries("\n".join(f"query {number}" for number in range(MAX_QUERIES)))) == MAX_QUERIES


def test_empty_pasted_text_is_refused():
    with pytest.raises(DataError, match="no line with text"):
        parse_queries(" \n\t")


def test_queries_of_too_many_characters_are_refused():
    lines = "\n".join(f"{number} {'word ' * 40}" for number in range(1000))
    assert len(parse_queries(lines[:190_000])) > 800
    with pytest.raises(InputError, match="characters, and a search reads up to 200,000; give fewer or shorter ones"):
        parse_queries(lines)


def test_a_large_text_file_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "queries.txt"
    path.write_text("a query\n" * 300_000, encoding="utf-8")
    monkeypatch.setattr("bsc_core.data.queries.read_text", lambda path: pytest.fail("was read"))
    with pytest.raises(InputError, match="2,400,000 bytes, and a search reads up to 2,000,000"):
        read_queries(path)
