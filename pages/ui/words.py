"""The words of the field, each with its definition, equation and paper: the text behind every small "?"."""

from __future__ import annotations

from dataclasses import dataclass

BSC = "Batch-Softmax Contrastive Loss for Pairwise Sentence Scoring Tasks (Chernyavskiy et al., 2022)"
UMAP = "UMAP: Uniform Manifold Approximation and Projection (McInnes et al., 2018)"
GEOMETRY = "Alignment and Uniformity on the Hypersphere (Wang and Isola, 2020)"


@dataclass(frozen=True)
class Word:
    """One word: what it means, its equation, the paper it is from, and where the released code departs from it."""

    definition: str
    equation: str = ""
    paper: str = ""
    deviation: str = ""


WORDS: dict[str, Word] = {
    "bsc": Word(
        "Every query of a batch has to pick its own document among all of the batch, and the other way round.",
        r"L = -\frac{1}{m}\sum_i \log \frac{e^{s_{ii}/\tau}}{\sum_j e^{s_{ij}/\tau}} "
        r"-\frac{1}{m}\sum_i \log \frac{e^{s_{ii}/\tau}}{\sum_j e^{s_{ji}/\tau}}",
        f"{BSC}, equation 1",
        "halves the sum of the two directions; the setting `mean` does the same, `sum` is the equation.",
    ),
    "temperature": Word(
        "Divides every similarity before the softmax. Small: only the hardest negatives count. Large: all count alike.",
        r"p_{ij} = \frac{e^{s_{ij}/\tau}}{\sum_k e^{s_{ik}/\tau}}",
        f"{BSC}, equation 1",
        "learns 1/τ directly, which can reach zero, and forgets it on saving; here log τ is learned and saved.",
    ),
    "normalization": Word(
        "What is done to the vectors before they are compared: `l2` gives each length 1, so a similarity is a cosine.",
        r"x \leftarrow x / \lVert x \rVert_2",
        BSC,
    ),
    "symmetric": Word(
        "Also lets each document choose among the queries: the second term of the loss.", "L = L_0 + L_1", BSC
    ),
    "labelled_negatives": Word(
        "Pairs labelled negative are not pulled together, but their documents stay among the choices of all queries.",
        r"L_0 = -\frac{1}{m}\sum_i \mathbb{1}[y_i > t]\,\log p_{ii}",
        f"{BSC}, equation 5",
    ),
    "threshold": Word(
        "A pair is positive when its label is above this; a label equal to it is negative.", "y_i > t", BSC
    ),
    "strategy": Word(
        "In which order pairs meet in batches. `random`: shuffled. `examples`: groups of nearest neighbours, so that "
        "a batch holds pairs that are easy to confuse. `sequential`: as in the file.",
        paper=f"{BSC}, Algorithm 1",
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
    "has_positive": Word("Share of the queries with at least one right document among the first k.", paper=BSC),
    "mrr": Word(
        "One over the rank of the first right document, averaged over the queries.",
        r"\mathrm{MRR} = \frac{1}{|Q|}\sum_q \frac{1}{\mathrm{rank}_q}",
    ),
    "map": Word(
        "Mean over the queries of the precision at each right document.",
        r"\mathrm{AP}_q = \frac{1}{|R_q|}\sum_{k \in R_q} P@k",
    ),
    "spearman": Word("Correlation of the ranks of similarities and labels; 1 when they order the pairs alike."),
    "f1": Word("Harmonic mean of precision and recall at the best threshold on the dev pairs.", r"\frac{2PR}{P+R}"),
    "learning_rate": Word("Size of a step at its peak: it rises during the warm-up and then falls to 0 in a line."),
    "umap": Word(
        "A map in two dimensions that keeps near neighbours near. Gaps between clusters and their sizes mean little.",
        paper=UMAP,
    ),
    "alignment": Word(
        "How near the two sides of positive pairs lie; lower is nearer.", r"E\lVert q-d\rVert^2", GEOMETRY
    ),
    "uniformity": Word(
        "How evenly the vectors spread over the sphere; lower is more even.",
        r"\log E\, e^{-2\lVert x-y\rVert^2}",
        GEOMETRY,
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
