"""Text quality checks (damaged characters, markup, mixed alphabets, scripts) and token estimates."""

# M texts

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from bsc_core.types import Ids

MOJIBAKE, REPLACEMENT, CONTROL, MARKUP, MIXED_ALPHABETS = 1, 2, 4, 8, 16
DAMAGED = MOJIBAKE | REPLACEMENT | CONTROL
KEYS = {
    MOJIBAKE: "wrongly_decoded",
    REPLACEMENT: "replacement_characters",
    CONTROL: "control_characters",
    MARKUP: "html",
    MIXED_ALPHABETS: "mixed_alphabets",
}
DESCRIPTIONS = {
    MOJIBAKE: "wrongly decoded letters such as Ã©",
    REPLACEMENT: "replacement characters (�)",
    CONTROL: "control characters",
    MARKUP: "HTML tags or entities",
    MIXED_ALPHABETS: "words of mixed alphabets",
}

# UTF-8 bytes read as Windows-1252 or Latin-1: a lead byte, then the characters of 0x80 to 0xbf. After a capital letter
# that a word may end with, such as É, punctuation and letters do not count.
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
TOKENS_PER_EXTRA_BYTE = 0.35  # for bytes beyond one per character
SPECIAL_TOKENS = 2


def text_flags(text: str) -> int:
    """Return the quality problems of a text as bits; 0 for none."""
    flags = 0
    if not text.isprintable() and _CONTROL.search(text):
        flags |= CONTROL
    if ("<" in text or "&" in text) and _MARKUP.search(text):
        flags |= MARKUP
    if text.isascii():
        return flags
    flags |= REPLACEMENT if "\ufffd" in text else 0
    flags |= MOJIBAKE if _MOJIBAKE.search(text) else 0
    return flags | (MIXED_ALPHABETS if _MIXED.search(text) else 0)


def quality_flags(texts: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Return (M,) the `text_flags` of each text."""
    return np.fromiter(map(text_flags, texts), dtype=np.uint8)


def script(text: str) -> str:
    """Return the most frequent script of a text's letters, "" where none is known."""
    if text.isascii():
        return "Latin" if any(letter.isalpha() for letter in text) else ""
    counts = Counter({name: len(letters.findall(text)) for name, letters in _SCRIPTS.items()})
    name, count = counts.most_common(1)[0]
    return name if count else ""


def estimate_tokens(texts: Iterable[str]) -> Ids:
    """Return (M,) the estimated word pieces of each text, including two special tokens."""
    lengths = [(len(text), len(text.encode("utf-8", "surrogatepass"))) for text in texts]
    return estimate_tokens_of_lengths(np.asarray(lengths, dtype=np.int64).reshape(-1, 2).T)


def estimate_tokens_of_lengths(lengths: npt.NDArray[np.int64]) -> Ids:
    """Return (M,) the tokens of texts with these (2, M) numbers of characters and of UTF-8 bytes."""
    characters, size = lengths
    pieces = characters / CHARACTERS_PER_TOKEN + (size - characters) * TOKENS_PER_EXTRA_BYTE
    tokens: Ids = np.ceil(pieces + SPECIAL_TOKENS).astype(np.int32)
    return tokens
