"""Queries of one's own: files and pasted lines, with right documents or without, and bad ones in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsc_core.data.asked import MOST, pasted_queries, read_queries
from bsc_core.errors import ColumnError, DataError, FileFormatError, InputError


@pytest.fixture
def file(tmp_path: Path):
    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_pasted_lines_are_queries_and_a_tab_parts_the_right_document():
    asked = pasted_queries("bake bread\n\n  plant a rose \twater it\r\n")
    assert asked.texts == ("bake bread", "plant a rose")
    assert asked.gold == ((), ("water it",))
    assert asked.told == 1


def test_a_query_of_several_rows_has_all_its_documents_once(file):
    asked = read_queries(file("own.tsv", "Question\tanswer\nbake\tflour\nrose\twater\nbake\tyeast\nbake\tflour\n"))
    assert asked.texts == ("bake", "rose")
    assert asked.gold == (("flour", "yeast"), ("water",))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("one.csv", "whatever\nbake bread\n"),
        ("two.csv", "id,query\n7,bake bread\n"),
        ("rows.jsonl", '{"query": "bake bread", "note": 3}\n'),
        ("lines.txt", "bake bread\n"),
    ],
)
def test_the_query_is_found_in_every_format(file, name, text):
    asked = read_queries(file(name, text))
    assert asked.texts == ("bake bread",)
    assert asked.told == 0


def test_empty_queries_are_rejected_with_their_lines(file):
    asked = read_queries(file("own.csv", "query,document\n,flour\nbake,\n"))
    assert asked.texts == ("bake",)
    assert [fault.sentence() for fault in asked.rejected] == ["line 2, query: the text is empty"]
    assert asked.gold == ((),)


@pytest.mark.parametrize(
    ("name", "text", "fault", "words"),
    [
        ("own.csv", "first,second\na,b\n", ColumnError, "name it 'query'"),
        ("own.csv", "query\n \n", DataError, "none of its rows"),
        ("own.txt", " \n\n", FileFormatError, "empty"),
        ("own.xlsx", "PK\x03\x04", FileFormatError, "save it as"),
        ("own.csv", "query;document\na;b\n", FileFormatError, "semicolons"),
        ("own.jsonl", '[{"query": "a"}]', FileFormatError, "one JSON array"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(file, name, text, fault, words):
    with pytest.raises(fault, match=words) as told:
        read_queries(file(name, text))
    assert "\n" not in str(told.value)


def test_too_many_queries_are_refused():
    with pytest.raises(InputError, match="bring a part"):
        pasted_queries("\n".join(f"query {number}" for number in range(MOST + 1)))
    assert len(pasted_queries("\n".join(f"query {number}" for number in range(MOST)))) == MOST


def test_nothing_pasted_is_refused():
    with pytest.raises(DataError, match="no line with text"):
        pasted_queries(" \n\t")
