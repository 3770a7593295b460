"""Ten odd sentences, three pairs of which say the same thing in other words: a map small enough to read.

They are those of the article on softmax-loss SBERT (Pinecone, "Training sentence transformers with softmax loss"). 3
of 45 pairs are an anecdote, not a measurement; `stsb` measures the same in 1,379 pairs.
"""

# S = 10 sentences, D dimensions

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bsc_core.errors import DataError
from bsc_core.evaluation.measures import Numbers
from bsc_core.evaluation.pairs import area_under_curve
from bsc_core.evaluation.retrieval import Vectors, unit_rows

TEN_SENTENCES = (
    "the fifty mannequin heads floating in the pool kind of freaked them out",
    "she swore she just saw her sushi move",
    "he embraced his new life as an eggplant",
    "my dentist tells me that chewing bricks is very bad for your teeth",
    "the dental specialist recommended an immediate stop to flossing with construction materials",
    "i used to practice weaving with spaghetti three hours a day",
    "the white water rafting trip was suddenly halted by the unexpected brick wall",
    "the person would knit using noodles for a few hours daily",
    "it was always dangerous to drive with him since he insisted the safety cones were a slalom course",
    "the woman thinks she saw her raw fish and rice change position",
)
GOLD_PAIRS = ((1, 9), (3, 4), (5, 7))
"""Sushi, dentist and noodles, numbered from 0."""


@dataclass(frozen=True, eq=False)
class SentenceMap:
    """cosines: (S, S), symmetric. found: gold pairs among the three nearest pairs, a pair that ties with another at its
    worst. margin: lowest gold cosine - highest other. others: mean cosine of the 42 other pairs. auc: chance that a
    gold pair is nearer than another."""

    cosines: Numbers
    found: int
    margin: float
    others: float
    auc: float


def sentence_map(vectors: Vectors) -> SentenceMap:
    """How a model sees the ten sentences. vectors: (S, D), row i for TEN_SENTENCES[i]; they need no normalising.

    Raises DataError for another number of vectors and for one that is not finite.
    """
    if len(vectors) != len(TEN_SENTENCES):
        raise DataError(
            f"ten sentences: {len(vectors)} vectors; give one for each of the {len(TEN_SENTENCES)} sentences"
        )
    units = unit_rows(np.asarray(vectors, dtype=np.float32)).astype(np.float64)
    cosines = units @ units.T  # (S, S)
    left, right = np.triu_indices(len(units), 1)
    pairs = cosines[left, right]
    gold = np.asarray([pair in GOLD_PAIRS for pair in zip(left.tolist(), right.tolist(), strict=True)])
    order = np.lexsort((gold, -pairs))  # of equal cosines the gold pair last
    return SentenceMap(
        cosines=cosines,
        found=int(gold[order[: len(GOLD_PAIRS)]].sum()),
        margin=float(pairs[gold].min() - pairs[~gold].max()),
        others=float(pairs[~gold].mean()),
        auc=float(area_under_curve(pairs, gold) or 0.0),
    )
