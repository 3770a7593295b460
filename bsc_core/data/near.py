"""Texts that are nearly the same: equal but for case, punctuation, spaces and Unicode forms, or of nearly equal words.

The words and pairs of neighbouring words of a text are its shingles; candidates are found by MinHash in bands, and kept
when their shingles' Jaccard similarity is high enough, so that none is reported by chance.
"""

# U texts, F distinct plain forms, W words of all forms, P candidate pairs

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from bsc_core.data.plain import plain

Ids = npt.NDArray[np.int32]
Hashes = npt.NDArray[np.uint64]

JACCARD = 0.8
LEAST_WORDS = 5  # shorter texts are told apart by their plain form alone
BANDS, ROWS = 6, 4  # a pair of Jaccard 0.8 is a candidate with probability 0.96, one of 0.9 with 0.998
BLOCK = 100_000
SEED = 2024
MIX = np.uint64(0x9E3779B97F4A7C15)
MOST = np.uint64(0xFFFFFFFFFFFFFFFF)


def near_groups(texts: Iterable[str]) -> Ids:
    """(U,) number of the set of nearly equal texts each text belongs to; chains of nearly equal texts are one set."""
    numbers: dict[str, int] = {}
    form = np.fromiter((numbers.setdefault(_form(text), len(numbers)) for text in texts), dtype=np.int32)
    forms = list(numbers)
    left, right = _near_pairs(forms)
    if not len(left):
        return form
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(left), dtype=np.int8), (left, right)), shape=(len(forms), len(forms)))
    _, component = connected_components(graph, directed=False)
    groups: Ids = component.astype(np.int32)[form]
    return groups


def _form(text: str) -> str:
    return plain(text if text.isascii() else unicodedata.normalize("NFKC", text))


def _near_pairs(forms: list[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(P,) and (P,) numbers of forms that are nearly equal; enough of them to connect each set."""
    words = [form.split() for form in forms]
    long = np.asarray([row for row, found in enumerate(words) if len(found) >= LEAST_WORDS], dtype=np.int64)
    none = np.empty(0, dtype=np.int64)
    if len(long) < 2:
        return none, none
    shingles = _Shingles([words[row] for row in long.tolist()])
    left, right = _candidates(shingles.bands())
    near = shingles.jaccard(left, right) >= JACCARD
    return long[left[near]], long[right[near]]


class _Shingles:
    """The hashed words and word pairs of many texts, one text after the other."""

    def __init__(self, words: list[list[str]]) -> None:
        from pandas.util import hash_array

        vocabulary: dict[str, int] = {}
        flat = [vocabulary.setdefault(word, len(vocabulary)) for found in words for word in found]
        hashes = hash_array(np.asarray(list(vocabulary), dtype=object), categorize=False)
        self.counts = np.asarray([len(found) for found in words], dtype=np.int64)
        self.starts = np.cumsum(self.counts) - self.counts
        self.single: Hashes = hashes[np.asarray(flat, dtype=np.int64)]  # (W,)
        self.pair: Hashes = np.full_like(self.single, MOST)  # (W,), of a text's last word none
        self.pair[:-1] = self.single[:-1] * MIX + self.single[1:]
        self.pair[self.starts + self.counts - 1] = MOST

    def bands(self) -> list[Hashes]:
        """BANDS arrays, one number a text: equal where ROWS smallest hashes are equal."""
        generator = np.random.default_rng(SEED)
        salts = generator.integers(1, 2**63, size=(BANDS, ROWS), dtype=np.uint64) | np.uint64(1)
        parts = [self._bands_of(start, salts) for start in range(0, len(self.counts), BLOCK)]
        return [np.concatenate([part[band] for part in parts]) for band in range(BANDS)]

    def _bands_of(self, start: int, salts: Hashes) -> list[Hashes]:
        stop = min(start + BLOCK, len(self.counts))
        first, last = self.starts[start], self.starts[stop - 1] + self.counts[stop - 1]
        single, pair, starts = self.single[first:last], self.pair[first:last], self.starts[start:stop] - first
        found = []
        for band in salts:
            key = np.zeros(stop - start, dtype=np.uint64)
            for salt in band:
                least = np.minimum.reduceat(_mixed(single, salt), starts)
                pairs = np.where(pair == MOST, MOST, _mixed(pair, salt))
                key = _mixed(key + np.minimum(least, np.minimum.reduceat(pairs, starts)), MIX)
            found.append(key)
        return found

    def jaccard(self, left: npt.NDArray[np.int64], right: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """(P,) shared shingles of two texts as a share of all of both."""
        from scipy.sparse import csr_array

        used, places = np.unique(np.concatenate([left, right]), return_inverse=True)
        parts = [self._of(row) for row in used.tolist()]
        sizes = np.asarray([len(part) for part in parts], dtype=np.int64)
        if not len(parts):
            return np.empty(0)
        known, column = np.unique(np.concatenate(parts), return_inverse=True)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        matrix = csr_array((np.ones(len(column), dtype=np.int32), column, ends), shape=(len(used), len(known)))
        one, other = np.split(places, 2)
        shared = np.concatenate(
            [
                np.asarray(matrix[one[at : at + BLOCK]].multiply(matrix[other[at : at + BLOCK]]).sum(axis=1)).ravel()
                for at in range(0, len(one), BLOCK)
            ]
        )
        similarity: npt.NDArray[np.float64] = shared / (sizes[one] + sizes[other] - shared)
        return similarity

    def _of(self, row: int) -> Hashes:
        """The distinct shingles of a text."""
        start, stop = self.starts[row], self.starts[row] + self.counts[row]
        return np.unique(np.concatenate([self.single[start:stop], self.pair[start : stop - 1]]))


def _candidates(bands: list[Hashes]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Pairs of texts that are equal in a band: each with the one before it and with the first of its bucket."""
    lefts, rights = [], []
    for keys in bands:
        order = np.argsort(keys, kind="stable")
        same = np.concatenate([[False], keys[order][1:] == keys[order][:-1]])
        first = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))
        rows = np.flatnonzero(same)
        lefts += [order[rows - 1], order[first[rows]]]
        rights += [order[rows], order[rows]]
    pairs = np.unique(np.stack([np.concatenate(lefts), np.concatenate(rights)]), axis=1)
    return pairs[0], pairs[1]


def _mixed(values: Hashes, salt: np.uint64) -> Hashes:
    """Well scattered numbers, other ones for each salt (the finaliser of MurmurHash3 on salted values)."""
    mixed = (values ^ salt) * np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    return mixed
