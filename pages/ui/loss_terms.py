"""The words of the losses: each loss, each of its settings, and what the lab shows of them."""

from __future__ import annotations

from bsc_core.losses.catalogue import BSC, CATALOGUE, MARGINS, SBERT, SCL
from pages.ui.word import SIMCSE, SUPCON, Word

MEANINGS = {
    "bsc": "Every query of a batch has to pick its own document among all of the batch, and the other way round.",
    "combined": "A weighted sum of losses on the same batch: batch softmax for the order, regression for the grades.",
    "mse": "Squared difference of cosine and label, averaged over the pairs.",
    "pearson": "Minus the correlation of cosines and labels over the batch.",
    "softmax": "A classifier on both embeddings and their difference; the encoder learns what it needs.",
    "supcon": "A premise has to pick the hypotheses that it entails among all of the batch, mixed with the classifier.",
    "triplet": "The right document has to be nearer to the query than the wrong one, by a margin.",
    "contrastive": "Positive pairs are drawn together; negative ones are pushed apart until they are a margin away.",
    "online_contrastive": "The contrastive loss on the hard pairs alone: negatives nearer than the farthest positive, "
    "positives farther than the nearest negative.",
    "simcse": "A text and the same text under another dropout mask are the positive pair.",
    "mnrl": "Every query chooses its document among all of the batch: the first half of batch softmax.",
}
LOSSES: dict[str, Word] = {
    name: Word(MEANINGS[name], card.equation, card.paper, card.deviation) for name, card in CATALOGUE.items()
}

SETTINGS: dict[str, Word] = {
    "temperature": Word(
        "Divides every similarity before the softmax. Small: only the hardest negatives count. Large: all count alike.",
        r"p_{ij} = \frac{e^{s_{ij}/\tau}}{\sum_k e^{s_{ik}/\tau}}",
        f"{BSC}, equation 1",
        "learns 1/τ directly, which can reach zero, and forgets it on saving; here log τ is learned and saved.",
    ),
    "temperature_parameter": Word(
        "What is learned where the temperature is: its logarithm, which keeps it above 0, or its inverse.",
        r"\tau = e^{\theta} \quad \text{or} \quad \tau = 1/\theta",
        BSC,
        "learns the inverse, as `linear` does.",
    ),
    "normalization": Word(
        "What is done to the vectors before they are compared. `l2` gives each length 1, so a similarity is a cosine; "
        "the others scale each coordinate over the batch, or leave the vectors as they are.",
        r"\text{l2: } x \leftarrow x / \lVert x \rVert_2 \qquad "
        r"\text{range\_columns: } x_{\cdot k} \leftarrow x_{\cdot k} / (\max_k - \min_k)",
        BSC,
        "divides each coordinate by its range and does not subtract the minimum: `range_columns`. "
        "`minmax_columns` subtracts it, and `l2_columns` gives each coordinate length 1 over the batch.",
    ),
    "detach_statistics": Word(
        "Treat the ranges and lengths of the columns as constants, so that no gradient flows through them.",
        paper=BSC,
        deviation="lets the gradient through.",
    ),
    "symmetric": Word(
        "Also lets each document choose among the queries: the second term of the loss.", "L = L_0 + L_1", BSC
    ),
    "reduction": Word(
        "Whether terms are averaged or added up. A sum is the mean times their number, so the learning rate counts "
        "more.",
        deviation="takes the mean of the two directions of batch softmax where equation 1 has the sum.",
    ),
    "average": Word(
        "What the sum is divided by: all pairs of the batch, or the positive ones alone.",
        r"\frac{1}{m}\sum_i \quad\text{or}\quad \frac{1}{\sum_i \mathbb{1}[y_i > t]}\sum_i",
        f"{BSC}, equation 5",
    ),
    "labelled_negatives": Word(
        "Pairs labelled negative are not pulled together, but their documents stay among the choices of all queries.",
        r"L_0 = -\frac{1}{m}\sum_i \mathbb{1}[y_i > t]\,\log p_{ii}",
        f"{BSC}, equation 5",
    ),
    "duplicates": Word(
        "What a text that occurs twice in a batch counts as. `keep`: a wrong choice like any other, though it is the "
        "right one. `merge`: one choice. `multi_positive`: a right choice too.",
        paper=f"{BSC}, equations 3 and 4",
    ),
    "multi_positive": Word(
        "Several right choices in one row: the loss is averaged over them, outside the logarithm.",
        r"-\frac{1}{|P_i|}\sum_{j \in P_i} \log p_{ij}",
        f"{BSC}, equations 3 and 4; {SUPCON}",
    ),
    "threshold": Word(
        "A pair is positive when its label is above this; a label equal to it is negative.", "y_i > t", BSC
    ),
    "mu": Word(
        "The share of batch softmax in the sum; the rest is regression on the labels.",
        r"\mu\, L_{BSC} + (1 - \mu)\, L_{MSE}",
        f"{BSC}, equation 6",
    ),
    "margin": Word(
        "How much nearer the right document has to be, or how far apart a wrong pair. A cosine distance never exceeds "
        "2, so margins from 2 on are one loss, up to a constant.",
        r"\lambda",
        MARGINS,
        "tries 5, 7.5 and 10 with cosine distance: one loss three times.",
    ),
    "distance": Word(
        "`cosine`: 1 minus the cosine, between 0 and 2. `euclidean`: length of the difference of the raw embeddings.",
        r"d = 1 - \cos(x, y) \quad\text{or}\quad d = \lVert x - y \rVert_2",
        MARGINS,
        "uses the cosine wherever a margin is given, though the paper prints a difference of vectors.",
    ),
    "mix": Word(
        "The share of the contrast; the rest is the classifier. At 1 the classifier is left out.",
        r"(1-\lambda)\,L_{CE} + \lambda\,L_{SCL}",
        SCL,
    ),
    "anchor": Word(
        "Whose turn it is to choose. `row`: every entailed row, so a premise with two of them counts twice. "
        "`premise`: every premise once.",
        paper=SCL,
        deviation="takes every entailed row.",
    ),
    "max_positives": Word(
        "The most right choices of an anchor: its own hypothesis, and others of its premise drawn at random.",
        "N_{i+}",
        SCL,
    ),
    "max_negatives": Word(
        "The most wrong choices of an anchor, drawn at random for each.",
        "N_{i-}",
        SCL,
        "has a flag for it that nothing reads: it always takes all.",
    ),
    "positive_class": Word("The number of the class that means entailment: 0 in SNLI and MNLI.", paper=SCL),
    "num_classes": Word("How many classes the classifier tells apart; class ids go from 0 to one less.", paper=SBERT),
    "features": Word(
        "What the classifier sees of the two embeddings: `u`, `v`, their `difference` without sign, their `product`. "
        "The last two are the same in both orders.",
        r"[u;\; v;\; |u - v|;\; u \odot v]",
        SBERT,
    ),
    "hidden": Word(
        "Width of a layer between the features and the classes; not set: one linear layer.",
        paper=SCL,
        deviation="has two layers without an activation between them, which are one linear map.",
    ),
    "frozen_head": Word(
        "A lesson: the classifier's weights are never trained.", paper=SBERT, deviation="of the article does this."
    ),
}

SHOWN: dict[str, Word] = {
    "loss": Word(
        "The number that training makes small. Which one fits depends on what the data hold: positive pairs, graded "
        "labels, classes, or a wrong document for each query."
    ),
    "view": Word("One encoding of a text under one dropout mask; two views of a text differ a little.", paper=SIMCSE),
    "gradient": Word(
        "How the loss changes with one similarity. Below 0 the pair is pulled together, above 0 it is pushed apart.",
        r"\frac{\partial L_0}{\partial s_{ij}} = \frac{p_{ij} - \mathbb{1}[i = j]}{m\,\tau}",
        f"{BSC}, equation 1",
    ),
    "effective_negatives": Word(
        "How many negatives really count: the exponential of the entropy of a row's softmax over its negatives, "
        "averaged over the rows. A low temperature leaves one or two.",
        r"\exp\Big(-\sum_{j \ne i} \tilde p_{ij} \log \tilde p_{ij}\Big)",
    ),
    "in_batch_negatives": Word(
        "The documents of the other pairs of a batch: wrong answers that cost no further encoding.", paper=BSC
    ),
    "hard_negative": Word("A wrong document that lies close to the query; it teaches more than one that is far off."),
}

LOSS_TERMS = LOSSES | SETTINGS | SHOWN
