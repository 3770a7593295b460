"""Strategy `words`: groups of rows that share random words, Algorithm 2 of the BSC paper.

Words are lower-cased runs of letters, digits and marks of any script; in scripts without spaces each character is a
word. Arrow splits the texts in chunks.
"""

# N rows, T distinct texts on the grouped side, V distinct words

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.strategies.base import StrategyInput, StrategyResult
from bsc_core.batching.strategies.shingles import WordLists, group_by_words
from bsc_core.config import BatchingConfig
from bsc_core.data.text_normalization import limit_marks
from bsc_core.types import Ids, Progress

CHUNK = 100_000  # texts split at a time
THREADS = 2  # Arrow releases the interpreter lock
COMMON = 0.02  # a stop word occurs in more than this share of the texts
FEW = 10  # and in more than this number of texts
NOT_A_WORD = r"[^\pL\pN\pM]+"
UNSPACED = r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])"


def words(inputs: StrategyInput) -> StrategyResult:
    """Group rows that share a shingle: a random subset of `shingle_size` words, without stop words.

    A text with fewer words contributes all of them; a text without words is a group by itself.
    """
    config = inputs.config
    lists, names = cut_words(inputs.dataset.texts.take(inputs.texts), inputs.progress)
    content = without(lists, stop_words(lists, names, config))
    return group_by_words(inputs, content, config.shingle_size, {"words": float(len(names) - ("" in names))})


def cut_words(texts: Sequence[str], progress: Progress | None = None) -> tuple[WordLists, list[str]]:
    """Return the distinct words of each text, and the words by id. progress is called with (texts done, T)."""
    names: dict[str, int] = {}
    flats: list[Ids] = []
    lengths: list[NDArray[np.int64]] = []
    done = 0
    for ids, counts, dictionary in _chunks(texts):
        known = np.fromiter(
            (names.setdefault(word, len(names)) for word in dictionary), dtype=np.int32, count=len(dictionary)
        )
        flats.append(known[ids])
        lengths.append(counts)
        done += len(counts)
        if progress is not None:
            progress(done, len(texts))
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum(np.concatenate([*lengths, np.empty(0, dtype=np.int64)]), out=starts[1:])
    return WordLists(np.concatenate([*flats, np.empty(0, dtype=np.int32)]), starts), list(names)


def stop_words(lists: WordLists, names: Sequence[str], config: BatchingConfig) -> NDArray[np.bool_]:
    """Return bool (V,), the stop words: the configured ones, or the most frequent words.

    The latter are those of the `stop_count` most frequent words that occur in more than 2% of the texts and in more
    than 10 texts; ties are broken by name. A configured word with several parts, such as don't, stops each part.
    """
    if config.stop_words is not None:
        given = set(cut_words(config.stop_words)[1])
        return np.fromiter((name in given for name in names), dtype=bool, count=len(names))
    texts_with = np.bincount(lists.flat, minlength=len(names))  # (V,)
    stopped = np.zeros(len(names), dtype=bool)
    common = np.flatnonzero(texts_with > max(COMMON * len(lists), FEW)).tolist()
    stopped[sorted(common, key=lambda word: (-texts_with[word], names[word]))[: config.stop_count]] = True
    return stopped


def without(lists: WordLists, stopped: NDArray[np.bool_]) -> WordLists:
    """Return the lists without the stopped words.

    Args:
        lists: Word lists with V different words.
        stopped: bool (V,), true for words to remove.
    """
    if not stopped.any():
        return lists
    remaining = ~stopped[lists.flat]
    before = np.zeros(len(remaining) + 1, dtype=np.int64)
    np.cumsum(remaining, out=before[1:])
    return WordLists(lists.flat[remaining], before[lists.starts])


def _chunks(texts: Sequence[str]) -> Iterator[tuple[Ids, NDArray[np.int64], list[str]]]:
    parts = (texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK))
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: list[Any] = []
        for part in parts:
            waiting.append(pool.submit(_cut, part))
            if len(waiting) > THREADS:  # limits the chunks in memory
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


def _cut(texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64], list[str]]:
    """Return the distinct words of each text as dictionary ids, their number for each text, and the dictionary.

    The words of a text are sorted by name, so that sampling from them does not depend on the other texts.
    """
    import pyarrow
    import pyarrow.compute

    limited = pyarrow.array([limit_marks(text) for text in texts], type=pyarrow.large_string())
    composed = pyarrow.compute.utf8_normalize(limited, form="NFC")
    lowered = pyarrow.compute.utf8_lower(composed)
    if pyarrow.compute.any(pyarrow.compute.match_substring_regex(lowered, UNSPACED)).as_py():
        lowered = pyarrow.compute.replace_substring_regex(lowered, UNSPACED, r" \1 ")
    pieces = pyarrow.compute.split_pattern_regex(lowered, NOT_A_WORD)
    encoded = pieces.flatten().dictionary_encode()
    by_name = pyarrow.compute.sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(by_name), dtype=np.int64)
    ranks[by_name] = np.arange(len(by_name))
    dictionary: list[str] = encoded.dictionary.take(by_name).to_pylist()
    starts = pieces.offsets.to_numpy()
    owner = np.repeat(np.arange(len(texts), dtype=np.int64), np.diff(starts))
    cells = np.sort((owner << 32) | ranks[encoded.indices.to_numpy()])  # (text, word); many times faster than np.unique
    cells = cells[np.append(True, cells[1:] != cells[:-1])[: len(cells)]]
    ids = (cells & 0xFFFFFFFF).astype(np.int32)
    if "" in dictionary:  # before the first or after the last separator
        cells = cells[ids != dictionary.index("")]
        ids = (cells & 0xFFFFFFFF).astype(np.int32)
    return ids, np.bincount(cells >> 32, minlength=len(texts)).astype(np.int64), dictionary
