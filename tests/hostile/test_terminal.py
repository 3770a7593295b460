"""Texts of files in the terminal, where control characters are shown as escape sequences, and in exported tables."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from bsc_core.cli import main
from bsc_core.data.io.export import as_tsv
from bsc_core.data.io.tables import read_table
from bsc_core.formatting import printable
from pages.ui.server.log_records import CAUSED_BY_CLIENTS, PrintableRecord, prepare_log

CONTROL = [chr(code) for code in (*range(9), 11, 12, 13, *range(14, 32), 127, 0x85, 0x9B, 0x202E, 0x2066)]


@pytest.mark.parametrize("character", CONTROL, ids=ascii)
def test_a_control_character_is_escaped(character: str) -> None:
    assert printable(f"a{character}b") in (f"a\\x{ord(character):02x}b", f"a\\u{ord(character):04x}b")


@pytest.mark.parametrize("text", ["a\tb\nc", "日本 – “é” \N{GRINNING FACE}", "שלום", "e\u0301"])
def test_other_texts_are_unchanged(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize("name", ["\x1b[2J\x1b[31mred.csv", "\x9b31m.csv", "\u202evsc.csv"])
@pytest.mark.parametrize("content", ["query,document\n", "\x1b[2J,\x07\n\x1b]0;title\x07,b\n"])
def test_no_command_writes_a_control_character_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    main(["audit", str(path)])
    printed = capsys.readouterr()
    written = printed.out + printed.err
    assert written
    assert not set(written) & set(CONTROL)


def test_a_class_name_with_a_line_feed_adds_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text('query,document,class_label\na,b,x\nc,d,"x\nrows_valid: 9"\n', encoding="utf-8")
    assert main(["audit", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("rows_valid")] == ["rows_valid: 2"]
    assert any(r"x\x0arows_valid: 9" in line for line in lines)


def test_an_exported_table_keeps_formulas_and_control_characters_unchanged(tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "=cmd|' /C calc'!A0", "\x1b[31mred", '"a\tb"', "<b>b</b>", "\u202eabc"]
    path = tmp_path / "pairs.tsv"
    path.write_bytes(as_tsv({"query": texts, "document": texts[::-1]}))
    table = read_table(str(path))
    assert not table.rejected
    assert table.columns == {"query": texts, "document": texts[::-1]}


def test_the_log_of_the_server_has_no_control_characters_and_no_very_long_texts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hostile = "\x1b]0;title\x07\u202e" + "A" * 100_000 + "end"
    previous = logging.getLogRecordFactory()
    logging.setLogRecordFactory(PrintableRecord)
    try:
        logging.getLogger("streamlit.test").warning("no file %s", hostile)
        try:
            raise ValueError(hostile)
        except ValueError:
            logging.getLogger("streamlit.test").exception("failed")
    finally:
        logging.setLogRecordFactory(previous)
    lines = caplog.text
    assert "no file \\x1b]0;title" in lines
    assert "ValueError: \\x1b" in lines or "[...]" in lines
    assert len(lines) < 20_000
    assert all(character == "\n" or character.isprintable() for character in lines)


def test_clients_cause_few_records_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    logger, previous = logging.getLogger(CAUSED_BY_CLIENTS[0]), logging.getLogRecordFactory()
    filters = list(logger.filters)
    prepare_log()
    try:
        for _ in range(1000):
            logger.warning("no such file")
    finally:
        logging.setLogRecordFactory(previous)
        for name in CAUSED_BY_CLIENTS:
            logging.getLogger(name).filters = list(filters)
    assert 10 <= len(caplog.records) < 100
