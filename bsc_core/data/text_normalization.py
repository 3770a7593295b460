"""Text normalization: words in lower case, to compare texts regardless of punctuation and case."""

# M texts, P pairs of them

import re
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from bsc_core.types import Indices, Mask

# Scripts written without spaces: each character is a word.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")


def normalize_text(text: str) -> str:
    """Return the words of a text in lower case, each between spaces; of a text without words, the stripped text."""
    words = WORD.findall(text.casefold()) or [text.strip()]
    return f" {' '.join(words)} "


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
