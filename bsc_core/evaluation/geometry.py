"""The shape of an embedding space: alignment, uniformity, anisotropy, and which neighbours training kept."""

# N vectors, P pairs, D dimensions (A and B of two models), k neighbours

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bsc_core.errors import DataError
from bsc_core.evaluation.bootstrap import Interval, bootstrap_mean
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.retrieval import TIE, Ids, Vectors, search, unit_rows

MOST = 5000
"""Texts that uniformity and the neighbour overlap are measured on: more are drawn from."""
ROWS_AT_ONCE = 512


def alignment(left: Vectors, right: Vectors, *, power: float = 2.0) -> Numbers:
    """||f(x) - f(y)||^power of every positive pair on the unit sphere (Wang and Isola 2020): (P,), 0 (equal) to 4.

    left, right: (P, D), row i of both a positive pair. The mean over pairs is the alignment, lower is better. With
    power 2 it is 2 - 2 cos. Raises DataError for sides of unequal shape.
    """
    if left.shape != right.shape:
        raise DataError(f"alignment: sides of shape {left.shape} and {right.shape}; give both texts of every pair")
    difference = unit_rows(np.asarray(left, dtype=np.float32)) - unit_rows(np.asarray(right, dtype=np.float32))
    lengths: Numbers = np.sqrt(np.einsum("pd,pd->p", difference, difference, dtype=np.float64)) ** power
    return lengths


def uniformity(vectors: Vectors, *, seed: int, scale: float = 2.0, most: int = MOST) -> float | None:
    """log of the mean of exp(-scale ||f(x) - f(y)||^2) over pairs of different texts (Wang and Isola 2020).

    vectors: (N, D), one row for each distinct text. 0 where all are equal, the lower the more evenly they fill the
    sphere; -4 would be all at right angles for scale 2. At most `most` texts are taken, drawn by the seed. None for
    fewer than two texts.
    """
    units = unit_rows(drawn_rows(vectors, most, seed))
    count = len(units)
    if count < 2:
        return None
    total = 0.0
    for start in range(0, count, ROWS_AT_ONCE):
        cosines = (units[start : start + ROWS_AT_ONCE] @ units.T).astype(np.float64)
        np.fill_diagonal(cosines[:, start:], -np.inf)  # no text is paired with itself
        total += float(np.exp(2 * scale * (np.minimum(cosines, 1) - 1)).sum())  # ||x - y||^2 = 2 - 2 cos
    return float(np.log(total / (count * (count - 1))))


def anisotropy(vectors: Vectors) -> float | None:
    """Mean cosine of two different texts (Ethayarajh 2019), exactly: (||sum of units||^2 - N) / (N (N - 1)).

    vectors: (N, D), one row for each distinct text. 0 for directions that cancel, 1 where all are equal: the height of
    the floor from which cosines of this model are to be read. A zero vector has cosine 0. None for fewer than two.
    """
    units = unit_rows(np.asarray(vectors, dtype=np.float32))
    count, total = len(units), units.sum(axis=0, dtype=np.float64)
    if count < 2:
        return None
    own = float(np.einsum("nd,nd->", units, units, dtype=np.float64))  # N less the zero vectors
    return (float(total @ total) - own) / (count * (count - 1))


def neighbour_overlap(before: Vectors, after: Vectors, *, seed: int, k: int = 10, most: int = MOST) -> Numbers:
    """Share of each text's k nearest others (cosine) before training that are among its k nearest after: (N or most,).

    before, after: (N, A) and (N, B), the same texts. 1 where every neighbourhood is kept; about k / (N - 1) by chance.
    After training all within 1e-6 of the k-th count as among the nearest, so a model compared with itself keeps all. At
    most `most` texts are asked, drawn by the seed, all are searched. Raises DataError for other numbers of texts, and
    for a k that is not from 1 to N - 1.
    """
    if len(before) != len(after):
        raise DataError(f"overlap: {len(before)} and {len(after)} vectors; encode the same texts with both models")
    if not 1 <= k < len(before):
        raise DataError(f"overlap: k is {k} and there are {len(before)} texts; choose k from 1 to {len(before) - 1}")
    rows = np.sort(np.random.default_rng(seed).permutation(len(before))[:most])
    near = _nearest_others(before, rows, k)
    shares = np.empty(len(rows))
    units = unit_rows(np.asarray(after, dtype=np.float32))
    far = _nearest_others(after, rows, k)[:, -1]  # the k-th after
    for place, row in enumerate(rows):
        limit = float(units[row] @ units[far[place]]) - TIE
        shares[place] = np.mean(units[near[place]] @ units[row] >= limit)
    return shares


def overlap_interval(before: Vectors, after: Vectors, *, seed: int, k: int = 10, most: int = MOST) -> Interval:
    """Mean of `neighbour_overlap` with its bootstrap interval over texts."""
    return bootstrap_mean(neighbour_overlap(before, after, seed=seed, k=k, most=most), seed=seed)


def drawn_rows(vectors: Vectors, most: int, seed: int) -> Vectors:
    """At most `most` rows of (N, D), drawn by the seed, in their order."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:most])
    return np.asarray(vectors[rows], dtype=np.float32)


def _nearest_others(vectors: Vectors, rows: NDArray[np.int64], k: int) -> Ids:
    """(n, k) the nearest other vectors of some rows, nearest first."""
    found, _ = search(vectors[rows], vectors, top=k + 1)
    kept = found != rows[:, None]
    kept[kept.all(axis=1), -1] = False  # equal vectors took the place of the one that asked
    others: Ids = found[kept].reshape(len(rows), k)
    return others
