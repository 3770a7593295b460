"""What is odd about a text itself: damaged characters, markup, mixed alphabets, and about how many tokens it has."""

# M texts

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

MOJIBAKE, REPLACEMENT, CONTROL, MARKUP, MIXED = 1, 2, 4, 8, 16
DAMAGED = MOJIBAKE | REPLACEMENT | CONTROL
KEYS = {
    MOJIBAKE: "wrongly_decoded",
    REPLACEMENT: "replacement_characters",
    CONTROL: "control_characters",
    MARKUP: "html",
    MIXED: "mixed_alphabets",
}
KINDS = {
    MOJIBAKE: "wrongly decoded letters such as Ã©",
    REPLACEMENT: "replacement characters (�)",
    CONTROL: "control characters",
    MARKUP: "HTML tags or entities",
    MIXED: "words of mixed alphabets",
}

# UTF-8 bytes that were read as Windows-1252 or Latin-1: a lead byte, then the characters of 0x80 to 0xbf. After a
# capital letter that a word may end with, such as É, punctuation and letters are none of them.
TAIL = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_USUAL = "\u00a0«»‹›‚„‘’“”…•–—ƒŠšŒœŽžŸ"
_MOJIBAKE = re.compile(
    f"[ÂÃ][{TAIL}]|[Ä-Ô](?![{_USUAL}])[{TAIL}]|[\u00e0-\u00ef][{TAIL}]{{2}}|[\u00f0-\u00f4][{TAIL}]{{3}}"
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_TAGS = (
    "a|abbr|b|blockquote|body|br|code|div|em|font|h[1-6]|hr|html|i|img|li|ol|p|pre|span|strong|sub|sup|table|td|tr|u|ul"
)
_MARKUP = re.compile(rf"&(?:[a-zA-Z]{{2,8}}|#\d{{1,6}}|#x[0-9a-fA-F]{{1,6}});|</?(?:{_TAGS})(?:\s[^<>]*)?/?>", re.I)
_MIXED = re.compile("[A-Za-z][\u0400-\u04ff]|[\u0400-\u04ff][A-Za-z]")
_SCRIPTS = {
    "Latin": re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]"),
    "Cyrillic": re.compile("[\u0400-\u052f]"),
    "Greek": re.compile("[\u0370-\u03ff]"),
    "Arabic": re.compile("[\u0600-\u06ff\u0750-\u077f]"),
    "Hebrew": re.compile("[\u0590-\u05ff]"),
    "Indic": re.compile("[\u0900-\u0dff]"),
    "Thai": re.compile("[\u0e00-\u0e7f]"),
    "Chinese, Japanese or Korean": re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"),
}
CHARACTERS_PER_TOKEN = 4.2
TOKENS_PER_EXTRA_BYTE = 0.35  # of the bytes that a text has above one for each character
SPECIAL_TOKENS = 2


def oddities(text: str) -> int:
    """The kinds of what is odd about a text, their bits added; 0 for a usual one."""
    found = 0
    if not text.isprintable() and _CONTROL.search(text):
        found |= CONTROL
    if ("<" in text or "&" in text) and _MARKUP.search(text):
        found |= MARKUP
    if not text.isascii():
        found |= _foreign_oddities(text)
    return found


def oddities_of(texts: Iterable[str]) -> npt.NDArray[np.uint8]:
    """(M,) the same for each text."""
    return np.fromiter(map(oddities, texts), dtype=np.uint8)


def script(text: str) -> str:
    """The script of most of its letters, "" where there is none that is known."""
    if text.isascii():
        return "Latin" if any(letter.isalpha() for letter in text) else ""
    counts = Counter({name: len(letters.findall(text)) for name, letters in _SCRIPTS.items()})
    name, most = counts.most_common(1)[0]
    return name if most else ""


def estimated_tokens(texts: Iterable[str]) -> npt.NDArray[np.int32]:
    """(M,) about how many word pieces an encoder makes of each text, with the two that it adds itself."""
    return tokens_of_lengths(np.asarray([(len(text), _bytes(text)) for text in texts], dtype=np.int64).reshape(-1, 2).T)


def tokens_of_lengths(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """The same from (2, M) numbers of characters and of UTF-8 bytes."""
    characters, size = lengths
    pieces = characters / CHARACTERS_PER_TOKEN + (size - characters) * TOKENS_PER_EXTRA_BYTE
    tokens: npt.NDArray[np.int32] = np.ceil(pieces + SPECIAL_TOKENS).astype(np.int32)
    return tokens


def _foreign_oddities(text: str) -> int:
    found = REPLACEMENT if "\ufffd" in text else 0
    if _MOJIBAKE.search(text):
        found |= MOJIBAKE
    return found | (MIXED if _MIXED.search(text) else 0)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
