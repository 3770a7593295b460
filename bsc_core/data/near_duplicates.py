"""Near-duplicate texts: equal up to case, punctuation, spaces and Unicode forms, or with mostly the same words.

The shingles of a text are its words and pairs of adjacent words. MinHash bands give candidate pairs, which count when
the exact Jaccard similarity of their shingles is high enough.
"""

# U texts, F distinct normalized texts, W words of all of them, P candidate pairs

import hashlib
import unicodedata
from array import array
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bsc_core.data.text_normalization import limit_marks, normalize_text
from bsc_core.types import Ids, Indices

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Hashes = npt.NDArray[np.uint64]

JACCARD = 0.8
MIN_WORDS = 5  # shorter texts are near duplicates only when equal after normalization
BANDS, ROWS = 6, 4  # a pair of Jaccard 0.8 is a candidate with probability 0.96, one of 0.9 with 0.998
BLOCK_WORDS = 2_000_000  # words of the texts that are hashed, or compared, at a time
MAX_GROWTH = 1.5  # by NFKC; a longer text is compared without it, since each character could become 18
MIX = np.uint64(0x9E3779B97F4A7C15)
MAX_HASH = np.uint64(0xFFFFFFFFFFFFFFFF)


def near_groups(texts: Iterable[str]) -> Ids:
    """Return (U,) the number of each text's set of near duplicates; chains of near duplicates are one set."""
    numbers: dict[str, int] = {}
    form = np.fromiter((numbers.setdefault(_form(text), len(numbers)) for text in texts), dtype=np.int32)
    forms = list(numbers)
    shingles = _Shingles(forms)
    component: Indices = np.arange(len(forms), dtype=np.int64)
    pairs = np.empty((2, 0), dtype=np.int64)
    for left, right in _candidates(shingles.bands()) if len(shingles.form) > 1 else ():
        apart = component[shingles.form[left]] != component[shingles.form[right]]
        left, right = left[apart], right[apart]
        near = shingles.jaccard(left, right) >= JACCARD
        pairs = np.concatenate([pairs, shingles.form[np.stack([left[near], right[near]])]], axis=1)
        component = _components(pairs, len(forms))
    groups: Ids = component.astype(np.int32)[form]
    return groups


def _components(pairs: Indices, count: int) -> Indices:
    """Return (count,) the number of the connected component of each node, for edges (2, E)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(pairs.shape[1], dtype=np.int8), (pairs[0], pairs[1])), shape=(count, count))
    component: Indices = connected_components(graph, directed=False)[1].astype(np.int64)
    return component


def _form(text: str) -> str:
    if text.isascii():
        return normalize_text(text)
    form = unicodedata.normalize("NFKC", limit_marks(text))
    return normalize_text(form if len(form) <= MAX_GROWTH * len(text) else text)


class _Shingles:
    """Hashed words and word pairs of the L forms with at least MIN_WORDS words, concatenated."""

    def __init__(self, forms: list[str]) -> None:
        form, counts, hashes = array("q"), array("q"), [np.empty(0, dtype=np.uint64)]
        vocabulary: dict[str, int] = {}  # of the words that are not hashed yet
        flat = array("q")
        for number, text in enumerate(forms):
            words = text.split()
            if len(words) >= MIN_WORDS:
                form.append(number)
                counts.append(len(words))
                flat.extend(vocabulary.setdefault(word, len(vocabulary)) for word in words)
            if len(flat) >= BLOCK_WORDS or (flat and number == len(forms) - 1):
                hashes.append(hash_texts(list(vocabulary))[np.asarray(flat)])
                vocabulary, flat = {}, array("q")
        self.form: Indices = np.asarray(form)  # (L,) numbers of the forms
        self.counts: Indices = np.asarray(counts)  # (L,)
        self.starts = np.cumsum(self.counts) - self.counts
        self.single: Hashes = np.concatenate(hashes)  # (W,)
        self.pair: Hashes = np.full_like(self.single, MAX_HASH)  # (W,), MAX_HASH after a text's last word
        self.pair[:-1] = self.single[:-1] * MIX + self.single[1:]
        self.pair[self.starts + self.counts - 1] = MAX_HASH
        self.sizes = np.zeros_like(self.counts)  # (L,) distinct shingles of each text; 0 where they are not counted yet

    def bands(self) -> list[Hashes]:
        """Return BANDS arrays with one number per text, equal where ROWS smallest hashes are equal."""
        salts = self._salts()
        blocks = [self._bands_of(rows, salts) for rows in _blocks(np.arange(len(self.counts)), self.counts)]
        return [np.concatenate(bands) for bands in zip(*blocks, strict=True)]

    def _salts(self) -> Hashes:
        """Return (BANDS, ROWS) salts. They depend on all words, so that no text can have most of the smallest."""
        seed = int.from_bytes(hashlib.blake2b(self.single.data, digest_size=8).digest(), "little")
        return np.random.default_rng(seed).integers(1, 2**63, size=(BANDS, ROWS), dtype=np.uint64) | np.uint64(1)

    def _bands_of(self, rows: Indices, salts: Hashes) -> list[Hashes]:
        """Return the numbers of some adjacent texts."""
        first, last = self.starts[rows[0]], self.starts[rows[-1]] + self.counts[rows[-1]]
        single, pair, starts = self.single[first:last], self.pair[first:last], self.starts[rows] - first
        keys = []
        for band in salts:
            key = np.zeros(len(rows), dtype=np.uint64)
            for salt in band:
                smallest = np.minimum.reduceat(mix_bits(single ^ salt), starts)
                pairs = np.where(pair == MAX_HASH, MAX_HASH, mix_bits(pair ^ salt))
                key = mix_bits((key + np.minimum(smallest, np.minimum.reduceat(pairs, starts))) ^ MIX)
            keys.append(key)
        return keys

    def jaccard(self, left: Indices, right: Indices) -> npt.NDArray[np.float64]:
        """Return (P,) the shared shingles of two texts as a share of all shingles of both; 0 if it is below JACCARD."""
        similarity = np.zeros(len(left))
        rows = np.unique(np.concatenate([left, right]))
        for part in _blocks(rows[self.sizes[rows] == 0], self.counts):
            self.sizes[part] = np.diff(self._matrix(part).indptr)
        smaller, larger = (choose(self.sizes[left], self.sizes[right]) for choose in (np.minimum, np.maximum))
        possible = np.flatnonzero(smaller >= JACCARD * larger)  # else the sizes rule out a high similarity
        for part in _blocks(possible, self.counts[left] + self.counts[right]):
            similarity[part] = self._jaccard(left[part], right[part])
        return similarity

    def _jaccard(self, left: Indices, right: Indices) -> npt.NDArray[np.float64]:
        rows, inverse = np.unique(np.concatenate([left, right]), return_inverse=True)
        matrix, (one, other) = self._matrix(rows), np.split(inverse, 2)
        shared = np.asarray(matrix[one].multiply(matrix[other]).sum(axis=1)).ravel()
        similarity: npt.NDArray[np.float64] = shared / (self.sizes[left] + self.sizes[right] - shared)
        return similarity

    def _matrix(self, rows: Indices) -> "csr_array":
        """Return the sparse (R, 2**30) matrix of the distinct shingles of some texts, 1 where a text has one."""
        from scipy.sparse import coo_array

        counts = self.counts[rows]
        words = np.repeat(self.starts[rows] - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        hashes = np.concatenate([self.single[words], self.pair[words]])
        is_shingle = hashes != MAX_HASH
        row = np.tile(np.repeat(np.arange(len(rows)), counts), 2)[is_shingle]
        column = (hashes[is_shingle] >> np.uint64(34)).astype(np.int32)  # 30 bits are distinct enough
        matrix = coo_array((np.ones(len(row), dtype=np.int32), (row, column)), shape=(len(rows), 2**30)).tocsr()
        matrix.data[:] = 1  # repeated shingles were added
        return matrix


def _blocks(rows: Indices, words: Indices) -> list[Indices]:
    """Divide the numbers of texts, or pairs, into parts of about BLOCK_WORDS words."""
    edges = np.flatnonzero(np.diff(np.cumsum(words[rows]) // BLOCK_WORDS)) + 1
    return np.split(rows, edges) if len(rows) else []


def _candidates(bands: list[Hashes]) -> Iterator[tuple[Indices, Indices]]:
    """Yield texts with equal keys in a band: each text with the first of its bucket, then with the previous one."""
    for keys in bands:
        order = np.argsort(keys, kind="stable")
        same = np.concatenate([[False], keys[order][1:] == keys[order][:-1]])
        first = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
        rows = np.flatnonzero(same)
        yield order[first[rows]], order[rows]
        yield order[rows - 1], order[rows]


def hash_texts(texts: list[str]) -> Hashes:
    """Return (U,) hashes, equal for equal texts in every process."""
    from pandas.util import hash_array

    hashes: Hashes = hash_array(np.asarray(texts, dtype=object), categorize=False)
    return hashes


def mix_bits(values: Hashes) -> Hashes:
    """Return the values with mixed bits (the finalizer of MurmurHash3 from its first multiplication on)."""
    mixed = values * np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    return mixed
