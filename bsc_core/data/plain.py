"""Texts as plain words, by which repeats and fragments of a text are told whatever its punctuation and case."""

# M texts, P pairs of them

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]

# Scripts that are written without spaces give a word for each character.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


def plain(text: str) -> str:
    """The words of a text in lower case, each between spaces; of a text without words, its marks alone."""
    words = WORD.findall(text.casefold()) or [text.strip()]
    return f" {' '.join(words)} "


def plain_ids(texts: Iterable[str]) -> npt.NDArray[np.int64]:
    """(M,) numbers of the texts, equal for texts with the same plain words."""
    numbers: dict[str, int] = {}
    return np.fromiter((numbers.setdefault(plain(text), len(numbers)) for text in texts), dtype=np.int64)


def one_contains_the_other(texts: Sequence[str], left: npt.ArrayLike, right: npt.ArrayLike) -> Mask:
    """(P,) whether the words of one text stand, in a row, in the other's, or are the same.

    texts: plain texts; left, right: (P,) numbers of texts.
    """
    pairs = zip(np.asarray(left).tolist(), np.asarray(right).tolist(), strict=True)
    return np.fromiter((texts[a] in texts[b] or texts[b] in texts[a] for a, b in pairs), dtype=bool)
