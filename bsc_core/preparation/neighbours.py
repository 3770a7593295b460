"""Nearest sentences of each class: the search behind generated examples."""

# N sentences, U distinct texts, D dimensions, k neighbours wanted of a kind

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching.knn import NeighbourSearch
from bsc_core.config import ExamplesConfig
from bsc_core.data.examples import Neighbours
from bsc_core.data.sentences import Sentences
from bsc_core.errors import DataError

Rows = NDArray[np.int64]
Vectors = NDArray[np.float32]
Facts = list[dict[str, float | str]]

SMALL = 256  # sentences of a class that is searched around, rather than left out of a search of its own
BLOCK = 4_000_000  # neighbours held at a time
MOST_FOUND = 200_000_000  # neighbours held in all


def sentence_neighbours(vectors: Vectors, sentences: Sentences, config: ExamplesConfig) -> Neighbours:
    """The nearest other sentences of each: k in all, k of every class, or k of its class and k of the others.

    vectors: (U, D), row i for text i. A sentence is never its own neighbour; another with the same text may be one.
    """
    rows = vectors[sentences.text]  # (N, D)
    sides = {"all": 1, "own_and_others": 2, "each_class": len(np.unique(sentences.classes))}[config.neighbours_of]
    if sides * config.neighbours * len(rows) > MOST_FOUND:
        raise DataError(
            f"{sentences.report.source}: {config.neighbours:,} neighbours of each of {sides:,} classes for "
            f"{len(rows):,} sentences are too many to hold; lower data.examples.neighbours, or set "
            'neighbours_of = "own_and_others"'
        )
    ids = np.full((len(rows), sides * config.neighbours), -1, dtype=np.int64)
    cosines = np.full(ids.shape, -np.inf, dtype=np.float32)
    facts: Facts = []
    for asking, searched, first in _searches(sentences, config):
        found = _nearest_others(rows, asking, searched, config.neighbours, facts)
        width = found[0].shape[1]
        ids[asking, first : first + width] = found[0]
        cosines[asking, first : first + width] = found[1]
    if config.neighbours_of == "own_and_others":
        _fill_others_of_small(
            rows, sentences.classes, ids[:, config.neighbours :], cosines[:, config.neighbours :], facts
        )
    if sides > 2:  # nearest first, whatever their class
        order = np.argsort(-cosines, axis=1, kind="stable")
        ids, cosines = np.take_along_axis(ids, order, axis=1), np.take_along_axis(cosines, order, axis=1)
    return Neighbours.of(ids, cosines, _said_of(facts))


def _searches(sentences: Sentences, config: ExamplesConfig) -> list[tuple[Rows, Rows, int]]:
    """For each search the rows that ask, those that are searched, and the first column for what they find.

    Left out are the searches of small classes among the others.
    """
    every = np.arange(len(sentences))
    if config.neighbours_of == "all":
        return [(every, every, 0)]
    searches = []
    for place, number in enumerate(np.unique(sentences.classes)):
        inside = sentences.classes == number
        if config.neighbours_of == "each_class":
            first = place * config.neighbours
            searches += [(every[inside], every[inside], first), (every[~inside], every[inside], first)]
            continue
        searches.append((every[inside], every[inside], 0))
        if inside.sum() > SMALL:
            searches.append((every[inside], every[~inside], config.neighbours))
    return searches


def _nearest_others(rows: Vectors, asking: Rows, searched: Rows, k: int, facts: Facts) -> tuple[Rows, Vectors]:
    """Of each row its k nearest others, by number, and their cosines; fewer where there are not so many."""
    own = 1 if np.array_equal(searched[:1], asking[:1]) else 0  # they search among themselves
    k = min(k, len(searched) - own)
    if k < 1 or not len(asking):
        return np.empty((len(asking), 0), dtype=np.int64), np.empty((len(asking), 0), dtype=np.float32)
    search = NeighbourSearch(rows, "cosine", rows=searched.astype(np.int32))
    places, cosines = search.nearest(rows[asking], k + own)
    facts.append(search.facts)
    ids = searched[places]
    if own:
        kept = ids != asking[:, None]
        kept[kept.all(axis=1), -1] = False  # equal vectors took the place of the one that asked
        ids, cosines = ids[kept].reshape(-1, k), cosines[kept].reshape(-1, k)
    return ids, cosines


def _fill_others_of_small(rows: Vectors, classes: NDArray[np.int32], ids: Rows, cosines: Vectors, facts: Facts) -> None:
    """Write the nearest sentences of other classes for those of small classes: however many, they share one search.

    Among the k + s nearest of all, s the size of the class, at least k are of other classes. ids, cosines: (N, k).
    """
    sizes = np.bincount(classes)[classes]
    asking = np.flatnonzero(sizes <= SMALL)
    if not len(asking) or len(np.unique(classes)) < 2:
        return
    k = ids.shape[1]
    depth = min(k + int(sizes[asking].max()), len(rows))
    search = NeighbourSearch(rows, "cosine")
    step = max(1, BLOCK // depth)
    for start in range(0, len(asking), step):
        part = asking[start : start + step]
        found, scores = search.nearest(rows[part], depth)
        strange = classes[found] != classes[part][:, None]
        order = np.argsort(~strange, axis=1, kind="stable")[:, :k]
        there = np.take_along_axis(strange, order, axis=1)
        width = order.shape[1]
        ids[part, :width] = np.where(there, np.take_along_axis(found, order, axis=1), -1)
        cosines[part, :width] = np.where(there, np.take_along_axis(scores, order, axis=1), -np.inf)
    facts.append(search.facts)


def _said_of(facts: Facts) -> str:
    """What is to be known of an approximate search: its least recall."""
    recalls = [float(fact["recall"]) for fact in facts if "recall" in fact]
    return f"approximate search, recall {min(recalls):.3f}" if recalls else ""
