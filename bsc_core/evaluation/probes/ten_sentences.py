"""Ten sentences with three paraphrase pairs: a small similarity map for illustration.

They are from the article on softmax-loss SBERT (Pinecone, "Training sentence transformers with softmax loss"). 3 of 45
pairs are too few for an evaluation; `stsb` has 1,379 pairs.
"""

# S = 10 sentences, D dimensions

from dataclasses import dataclass

import numpy as np

from bsc_core.errors import DataError
from bsc_core.evaluation.metrics.pairs import area_under_curve
from bsc_core.neighbors import finite_unit_rows
from bsc_core.types import Numbers, Vectors

TEN_SENTENCES = (
    "the fifty mannequin heads floating in the pool kind of freaked them out",
    "she swore she just saw her sushi move",
    "he embraced his new life as an eggplant",
    "my dentist tells me that chewing bricks is very bad for your teeth",
    "the dental specializt recommended an immediate stop to flossing with construction materials",
    "i used to practice weaving with spaghetti three hours a day",
    "the white water rafting trip was suddenly halted by the unexpected brick wall",
    "the person would knit using noodles for a few hours daily",
    "it was always dangerous to drive with him since he insisted the safety cones were a slalom course",
    "the woman thinks she saw her raw fish and rice change position",
)
GOLD_PAIRS = ((1, 9), (3, 4), (5, 7))
"""Paraphrases (sushi, dentist, noodles), zero-based."""


@dataclass(frozen=True, eq=False)
class SentenceMap:
    """Similarities of the ten sentences."""

    cosines: Numbers  # (S, S), symmetric
    matches: int  # number of gold pairs among the three most similar pairs; a tied gold pair is ranked last
    margin: float  # lowest gold cosine - highest other cosine
    others: float  # mean cosine of the 42 other pairs
    auc: float  # probability that a gold pair is more similar than another pair


def sentence_map(vectors: Vectors) -> SentenceMap:
    """Compute the similarities of the ten sentences.

    Args:
        vectors: (S, D), row i for TEN_SENTENCES[i]; they need not be normalized.

    Raises:
        DataError: The number of vectors is wrong, or one is not finite.
    """
    if len(vectors) != len(TEN_SENTENCES):
        raise DataError(
            f"ten sentences: {len(vectors)} vectors; give one for each of the {len(TEN_SENTENCES)} sentences"
        )
    units = finite_unit_rows(vectors).astype(np.float64)
    cosines = units @ units.T  # (S, S)
    left, right = np.triu_indices(len(units), 1)
    pairs = cosines[left, right]
    gold = np.asarray([pair in GOLD_PAIRS for pair in zip(left.tolist(), right.tolist(), strict=True)])
    order = np.lexsort((gold, -pairs))  # of equal cosines the gold pair last
    return SentenceMap(
        cosines=cosines,
        matches=int(gold[order[: len(GOLD_PAIRS)]].sum()),
        margin=float(pairs[gold].min() - pairs[~gold].max()),
        others=float(pairs[~gold].mean()),
        auc=float(area_under_curve(pairs, gold) or 0.0),
    )
