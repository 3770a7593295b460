"""Geometry of an embedding space: alignment, uniformity, anisotropy and neighbor overlap."""

# N vectors, P pairs, D dimensions (A and B of two models), k neighbors

import numpy as np

from bsc_core.errors import DataError
from bsc_core.neighbors import TIE, finite_unit_rows, nearest_others
from bsc_core.types import Numbers, Vectors

MAX_TEXTS = 5000
"""Maximum number of texts for uniformity and neighbor overlap; larger sets are sampled."""
ROWS_AT_ONCE = 512


def alignment(left: Vectors, right: Vectors, *, power: float = 2.0) -> Numbers:
    """Return ||f(x) - f(y)||^power of each positive pair on the unit sphere (Wang and Isola 2020).

    The mean over pairs is the alignment; lower is better. With power 2 a value is 2 - 2 cos.

    Args:
        left: (P, D) vectors of the first text of each pair.
        right: (P, D) vectors of the second text of each pair.
        power: Exponent of the distance.

    Returns:
        (P,) values, from 0 (equal) to 2^power.

    Raises:
        DataError: The shapes differ.
    """
    if left.shape != right.shape:
        raise DataError(f"alignment: sides of shape {left.shape} and {right.shape}; give both texts of every pair")
    difference = finite_unit_rows(left) - finite_unit_rows(right)
    return np.asarray(np.sqrt(np.einsum("pd,pd->p", difference, difference, dtype=np.float64)) ** power)


def uniformity(vectors: Vectors, *, seed: int, max_texts: int = MAX_TEXTS) -> float | None:
    """Return log mean exp(-2 ||f(x) - f(y)||^2) over pairs of different texts (Wang and Isola 2020).

    The value is 0 if all vectors are equal, -4 if they are orthogonal, and lower the more evenly they fill the sphere;
    None for fewer than two texts.

    Args:
        vectors: (N, D), one row per distinct text.
        seed: seed of the sample.
        max_texts: maximum number of texts; more are sampled.
    """
    units = finite_unit_rows(sample_vectors(vectors, max_texts, seed))
    count = len(units)
    if count < 2:
        return None
    total = 0.0
    for start in range(0, count, ROWS_AT_ONCE):
        cosines = (units[start : start + ROWS_AT_ONCE] @ units.T).astype(np.float64)
        np.fill_diagonal(cosines[:, start:], -np.inf)  # no text is paired with itself
        total += float(np.exp(4 * (np.minimum(cosines, 1) - 1)).sum())  # ||x - y||^2 = 2 - 2 cos
    return float(np.log(total / (count * (count - 1))))


def anisotropy(vectors: Vectors) -> float | None:
    """Return the exact mean cosine of two different texts (Ethayarajh 2019).

    It is (||sum of units||^2 - N) / (N (N - 1)): about 0 if directions cancel, 1 if all vectors are equal. Cosines of
    the model should be read relative to this baseline. A zero vector has cosine 0. None for fewer than two texts.

    Args:
        vectors: (N, D), one row per distinct text.
    """
    units = finite_unit_rows(vectors)
    count, total = len(units), units.sum(axis=0, dtype=np.float64)
    if count < 2:
        return None
    squares = float(np.einsum("nd,nd->", units, units, dtype=np.float64))  # N less the zero vectors
    return (float(total @ total) - squares) / (count * (count - 1))


def neighbor_overlap(before: Vectors, after: Vectors, *, seed: int, k: int = 10, max_texts: int = MAX_TEXTS) -> Numbers:
    """Return the share of each text's k nearest neighbors that are still among its k nearest after training.

    The share is 1 if a neighborhood is unchanged and about k / (N - 1) by chance. After training, all texts within 1e-6
    of the k-th neighbor count as neighbors, so that a model compared with itself has overlap 1.

    Args:
        before: (N, A) vectors before training.
        after: (N, B) vectors of the same texts after training.
        seed: seed of the sample.
        k: number of neighbors.
        max_texts: maximum number of query texts; more are sampled. Neighbors are searched among all texts.

    Returns:
        (N,) shares, or (max_texts,) if the texts are sampled.

    Raises:
        DataError: The numbers of texts differ, or k is not from 1 to N - 1.
    """
    if len(before) != len(after):
        raise DataError(f"overlap: {len(before)} and {len(after)} vectors; encode the same texts with both models")
    if not 1 <= k < len(before):
        raise DataError(f"overlap: k is {k} and there are {len(before)} texts; choose k from 1 to {len(before) - 1}")
    rows = np.sort(np.random.default_rng(seed).permutation(len(before))[:max_texts])
    near, _ = nearest_others(before, rows, k)
    shares = np.empty(len(rows))
    units = finite_unit_rows(after)
    limits = nearest_others(after, rows, k)[1].min(axis=1) - TIE  # cosine of the k-th neighbor after training
    for index, row in enumerate(rows):
        shares[index] = np.mean(units[near[index]] @ units[row] >= limits[index])
    return shares


def sample_vectors(vectors: Vectors, max_texts: int, seed: int) -> Vectors:
    """Return at most `max_texts` random rows of vectors (N, D), in their original order."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:max_texts])
    return np.asarray(vectors[rows], dtype=np.float32)
