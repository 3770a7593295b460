"""The words of the Data page: how training rows are made from other data."""

from __future__ import annotations

from bsc_core.losses.catalogue import BSC, MARGINS, SCL
from pages.ui.word import Word

DATA_TERMS = {
    "data.examples": Word(
        "Every sentence is an anchor. A reference encoder finds its nearest sentences of the same class (positives) "
        "and of other classes (negatives); those above a least similarity make triplets or labelled pairs, at most "
        "so many of an anchor, and at random so many in all.",
        r"(a,\ p,\ n):\ p \in N_k(a \mid c_a),\ n \in N_k(a \mid \bar{c}_a),\ \cos(a, \cdot) \ge s",
        MARGINS,
        "takes the k nearest of all classes together (`neighbours_of = all`), and its threshold lets all pass.",
    ),
    "data.negatives": Word(
        "A reference encoder ranks the documents for each query; those at the ranks 100 + 2^k, or the nearest that "
        "stay below the right document by a margin, become its wrong documents.",
        r"\mathrm{rank} \in \{100 + 2^k : k = 0, 1, \dots\}",
        BSC,
    ),
    "data.nli": Word(
        "An anchor is a premise with a hypothesis that it entails; rows of one premise stay together. Added pairs "
        "join the premise with another of its hypotheses under that one's class, or with one of another premise as "
        "neutral.",
        paper=SCL,
    ),
}
