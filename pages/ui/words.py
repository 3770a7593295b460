"""The words of the field, each with its definition, equation and paper: the text behind every small "?"."""

from __future__ import annotations

from bsc_core.losses.catalogue import BSC
from pages.ui.data_terms import DATA_TERMS
from pages.ui.loss_terms import LOSS_TERMS
from pages.ui.metric_terms import METRIC_TERMS, term_of
from pages.ui.word import UMAP, Word

WORDS: dict[str, Word] = {
    **LOSS_TERMS,
    **DATA_TERMS,
    **METRIC_TERMS,
    "strategy": Word(
        "In which order pairs meet in batches. `random`: shuffled. `examples`: groups of nearest neighbours, so that "
        "a batch holds pairs that are easy to confuse. `words`: pairs that share words. `clusters`: pairs of one "
        "k-means cluster. `neighbours`: pairs that share nearest neighbours. `premises`: the rows of a query together. "
        "`sequential`: as in the file.",
        paper=f"{BSC}, Algorithms 1 and 2",
        deviation="leaves the first epoch in file order; here every epoch is ordered.",
    ),
    "group_size": Word(
        "Rows in a group of near neighbours, the anchor among them. Larger groups give harder batches.",
        paper=f"{BSC}, Algorithm 1",
        deviation="counts the distinct texts, 7 where the paper has 7 neighbours and the anchor.",
    ),
    "batch_size": Word("Pairs in a batch: each query is compared with batch size minus 1 documents of other pairs."),
    "epoch": Word("One pass over the training pairs; the order is drawn anew for each from the seed and its number."),
    "hardness": Word(
        "How similar a query is to the nearest document of another pair in its batch. Near 1: a hard negative.",
        r"h_i = \max_{j \ne i} \cos(q_i, d_j)",
    ),
    "closer_negative": Word(
        "Share of the queries to which some other document of the batch lies nearer than their own.",
        r"\frac{1}{m}\sum_i \mathbb{1}[h_i > \cos(q_i, d_i)]",
    ),
    "collision": Word(
        "Two rows of one batch whose crossed pair is in truth a positive: the same text, the same query, or a pair "
        "labelled positive elsewhere. The loss pushes it apart all the same."
    ),
    "false_negative": Word(
        "A document that answers the query although the batch counts it as wrong. Suspected where it lies nearer to "
        "the query than the query's own document does; certain where it is a collision."
    ),
    "groups_intact": Word("Share of the groups of two or more rows that lie in one batch, not cut by its edge."),
    "learning_rate": Word("Size of a step at its peak: it rises during the warm-up and then falls to 0 in a line."),
    "umap": Word(
        "A map in two dimensions that keeps near neighbours near. Gaps between clusters and their sizes mean little.",
        paper=UMAP,
    ),
}


def help_text(name: str) -> str:
    """The word's card as Markdown for a widget's `help`."""
    word = WORDS[name]
    parts = [word.definition]
    parts += [f"$${word.equation}$$"] if word.equation else []
    parts += [f"*Paper:* {word.paper}"] if word.paper else []
    parts += [f"*Released code:* {word.deviation}"] if word.deviation else []
    return "\n\n".join(parts)


def metric_help(metric: str) -> str:
    """The card of a metric by its name in the results, such as `ndcg@10`; empty where there is none."""
    name = term_of(metric)
    return help_text(name) if name else ""
