"""Texts of files in the terminal: control characters are shown as escape sequences."""

from __future__ import annotations

from pathlib import Path

import pytest

from bsc_core.cli import main
from bsc_core.formatting import printable

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
