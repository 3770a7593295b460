"""Word-based shuffling: pairs that share random words, Algorithm 2 of the BSC paper.

Words are runs of letters, digits and marks of any script, in lower case; scripts that are written without spaces give
a word for each character. Texts are cut by Arrow in chunks, so that millions take seconds.
"""

# N rows, T distinct texts on the grouped side, V distinct words

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.arrays import Formed, Ids, Progress, Vectors
from bsc_core.batching.shingles import WordLists, draw_shingles, form_groups, shingle_ids
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset

CHUNK = 100_000  # texts cut at a time
THREADS = 2  # Arrow releases the interpreter while it cuts
COMMON = 0.02  # a word in fewer texts than this share is never taken for a stop word
FEW = 10  # nor is a word in so few texts
NOT_A_WORD = r"[^\pL\pN\pM]+"
UNSPACED = r"([\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}])"


def words(
    config: BatchingConfig,
    dataset: PairDataset,
    *,
    embeddings: Vectors | None,
    seed: int,
    epoch: int,
    progress: Progress | None,
) -> Formed:
    """Groups of rows that share a shingle: a random subset of `shingle_size` of the words that are no stop words.

    A text with fewer words gives all of them; one without any stands alone. progress is told (texts cut, T).
    """
    side = dataset.query if config.by == "query" else dataset.document
    texts, text_of_row = np.unique(side, return_inverse=True)  # (T,), (N,)
    lists, names = cut_words(dataset.texts.take(texts), progress)
    kept = without(lists, stop_words(lists, names, config))
    rows = np.arange(len(dataset), dtype=np.int64)
    drawn = draw_shingles(kept, text_of_row, rows, size=config.shingle_size, seed=seed, epoch=epoch)
    order, groups = form_groups(shingle_ids(drawn), rows, group_size=config.group_size, seed=seed, epoch=epoch)
    return Formed(order.astype(np.int32), groups, {"words": float(len(names) - ("" in names))})


def cut_words(texts: Sequence[str], progress: Progress | None = None) -> tuple[WordLists, list[str]]:
    """The distinct words of each text, and the words by id. texts: (T,). progress is told (texts done, T)."""
    names: dict[str, int] = {}
    flats: list[Ids] = []
    lengths: list[NDArray[np.int64]] = []
    done = 0
    for found, counts, dictionary in _chunks(texts):
        known = np.fromiter(
            (names.setdefault(word, len(names)) for word in dictionary), dtype=np.int32, count=len(dictionary)
        )
        flats.append(known[found])
        lengths.append(counts)
        done += len(counts)
        if progress is not None:
            progress(done, len(texts))
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum(np.concatenate([*lengths, np.empty(0, dtype=np.int64)]), out=starts[1:])
    return WordLists(np.concatenate([*flats, np.empty(0, dtype=np.int32)]), starts), list(names)


def stop_words(lists: WordLists, names: Sequence[str], config: BatchingConfig) -> NDArray[np.bool_]:
    """(V,) which words make no shingle: those given, or the most frequent ones.

    Of the `stop_count` words in most texts, those that stand in more than 2% of the texts and in more than 10; of two
    words in equally many texts the first by name. A given word of several parts, such as don't, stops them all.
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
    """The lists without some words. stopped: (V,)."""
    if not stopped.any():
        return lists
    kept = ~stopped[lists.flat]
    before = np.zeros(len(kept) + 1, dtype=np.int64)
    np.cumsum(kept, out=before[1:])
    return WordLists(lists.flat[kept], before[lists.starts])


def _chunks(texts: Sequence[str]) -> Iterator[tuple[Ids, NDArray[np.int64], list[str]]]:
    parts = (texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK))
    with ThreadPoolExecutor(THREADS) as pool:
        waiting: list[Any] = []
        for part in parts:
            waiting.append(pool.submit(_cut, part))
            if len(waiting) > THREADS:  # so that few chunks are held at a time
                yield waiting.pop(0).result()
        for future in waiting:
            yield future.result()


def _cut(texts: Sequence[str]) -> tuple[Ids, NDArray[np.int64], list[str]]:
    """Distinct words of each text as numbers of a dictionary, how many each text has, and the dictionary.

    A text's words are in the order of their names, so that draws of them do not depend on the texts around it.
    """
    import pyarrow
    import pyarrow.compute

    whole = pyarrow.compute.utf8_normalize(pyarrow.array(texts, type=pyarrow.large_string()), form="NFC")
    lowered = pyarrow.compute.utf8_lower(whole)
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
    found = (cells & 0xFFFFFFFF).astype(np.int32)
    if "" in dictionary:  # what stands before a first or after a last separator
        cells = cells[found != dictionary.index("")]
        found = (cells & 0xFFFFFFFF).astype(np.int32)
    return found, np.bincount(cells >> 32, minlength=len(texts)).astype(np.int64), dictionary
