"""Text normalization: words in lower case, to compare texts regardless of punctuation and case."""

# M texts, P pairs of them

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import islice

import numpy as np
import numpy.typing as npt
import regex

from bsc_core.types import Indices, Mask

# Scripts written without spaces: each character is a word.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = regex.compile(
    rf"[{UNSPACED}]|[[\w\p{{M}}]--[{UNSPACED}]]+|[[\p{{Sm}}\p{{Sc}}\p{{So}}]--[|~]]", flags=regex.VERSION1
)
"""A word of letters, numbers and combining marks, or one symbol such as + or $. `re` does not know these categories."""

SPACED = str.maketrans(
    {one: one if re.match(r"\w", one) else f" {one} " if WORD.match(one) else " " for one in map(chr, range(128))}
)
"""Puts spaces between the words of an ASCII text, which is faster than `WORD`."""


MAX_WORDS = 1_000
"""Words of a text that are compared."""


def words_of(text: str) -> frozenset[str]:
    """Return the distinct case-folded words among the first MAX_WORDS words of a text."""
    return frozenset(match[0] for match in islice(WORD.finditer(text.casefold()), MAX_WORDS))


def shared_words(queries: Sequence[str], documents: Sequence[str]) -> float | None:
    """Return the mean share of the words of a query that are in its document; None without a query with words.

    Args:
        queries: (P,) texts.
        documents: (P,) texts, one for each query.
    """
    words = ((words_of(query), words_of(document)) for query, document in zip(queries, documents, strict=True))
    shares = [len(query & document) / len(query) for query, document in words if query]
    return sum(shares) / len(shares) if shares else None


def limit_marks(text: str) -> str:
    """Return a text with at most 30 combining marks in sequence, as in the stream-safe format of Unicode (UAX 15).

    Normalization needs time quadratic in their number. Characters that become marks by normalization count as marks.
    """
    return text if text.isascii() else _marks().sub(r"\1", text)


@cache
def _marks() -> re.Pattern[str]:
    characters = map(chr, range(0x20000))  # no combining mark comes later
    marks = "".join(
        re.escape(one) for one in characters if unicodedata.combining(unicodedata.normalize("NFKD", one)[0])
    )
    return re.compile(rf"([{marks}]{{30}})[{marks}]+")


def normalize_text(text: str) -> str:
    """Return the words of a text in lower case, each between spaces; of a text without words, the stripped text."""
    folded = text.casefold()
    words = folded.translate(SPACED).split() if text.isascii() else WORD.findall(folded)
    return f" {' '.join(words or [text.strip()])} "


def normalized_ids(texts: Iterable[str]) -> Indices:
    """Return (M,) numbers of the texts, equal for texts that are equal after normalization."""
    numbers: dict[str, int] = {}
    return np.fromiter((numbers.setdefault(normalize_text(text), len(numbers)) for text in texts), dtype=np.int64)


def one_contains_the_other(texts: Sequence[str], left: npt.ArrayLike, right: npt.ArrayLike) -> Mask:
    """Return (P,) whether one text of each pair contains the words of the other as a sequence.

    Args:
        texts: Normalized texts.
        left: (P,) index of the first text of each pair.
        right: (P,) index of the second text of each pair.
    """
    pairs = zip(np.asarray(left).tolist(), np.asarray(right).tolist(), strict=True)
    return np.fromiter((texts[a] in texts[b] or texts[b] in texts[a] for a, b in pairs), dtype=bool)


def find_words(texts: Iterable[str], words: str) -> Mask:
    """Return whether each text has all of these words, ignoring case; (N,), all false without a word.

    If no text has them as complete words, texts that contain them within longer words match, as do texts of languages
    that do not separate words. The time is linear in the length of the texts.
    """
    wanted = set(words.casefold().split())
    contained, complete = [], []
    for text in map(str.casefold, texts):
        is_contained = bool(wanted) and all(word in text for word in wanted)
        contained.append(is_contained)
        complete.append(is_contained and wanted.issubset({*re.findall(r"\w+", text), *text.split()}))
    return np.array(complete if any(complete) else contained, dtype=bool)
