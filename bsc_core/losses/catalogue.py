"""What is worth knowing of each loss before choosing it: its data, equation, paper, and where released code departs."""

from __future__ import annotations

from dataclasses import dataclass

BSC = "Batch-Softmax Contrastive Loss for Pairwise Sentence Scoring Tasks (Chernyavskiy et al., 2022)"
SBERT = "Sentence-BERT (Reimers and Gurevych, 2019)"
MARGINS = "Margins in Contrastive Learning (Jørgensen and Breitung, 2024)"
SCL = "Sentence Embeddings using Supervised Contrastive Learning (Liao, 2021)"


@dataclass(frozen=True)
class LossCard:
    """One loss.

    title: its name in words; data: the rows it trains on; equation: LaTeX; paper: with the equation's number where it
    has one; when: in one sentence, when to choose it; deviation: where released code departs, and what is done here.
    """

    title: str
    data: str
    equation: str
    paper: str
    when: str
    deviation: str = ""


CATALOGUE: dict[str, LossCard] = {
    "bsc": LossCard(
        "Batch-softmax contrastive (BSC)",
        "pairs, positives only or labelled; extra hard negatives",
        r"L = \tfrac12 (L_0 + L_1),\quad L_0 = -\frac1B \sum_i y_i \log\frac{e^{s_{ii}/\tau}}{\sum_j e^{s_{ij}/\tau}},"
        r"\quad L_1 = -\frac1B \sum_i y_i \log\frac{e^{s_{ii}/\tau}}{\sum_j e^{s_{ji}/\tau}}",
        f"{BSC}, equations 1 to 5",
        "Search and ranking: a query has to find its document among many. The first loss to try.",
        'The released code halves the sum of the two directions (`reduction = "mean"`, the default; `sum` is '
        "equation 1), divides columns by their range without centring what the paper calls min-max (`range_columns`; "
        "`minmax_columns` is the text's), and learns 1 / tau without saving it (`temperature_parameter = "
        '"linear"`; here log tau is learned and saved).',
    ),
    "combined": LossCard(
        "Combined",
        "what its parts need; graded pairs for the presets",
        r"L = \mu L_{BSC} + (1 - \mu) L_{MSE},\quad\text{in general}\ \sum_k w_k L_k",
        f"{BSC}, equation 6 and section 7",
        "Graded pairs whose order and grades both matter.",
        "The released code counts labels of at least 0.5 as positive whatever its threshold says; here a label "
        "must be above the threshold, as in the paper.",
    ),
    "mse": LossCard(
        "Cosine regression (MSE)",
        "graded pairs",
        r"L = \frac1B \sum_i (\cos(q_i, a_i) - y_i)^2",
        f"{BSC}, second term of equation 6; {SBERT}, section 3",
        "Grades themselves are wanted, as in semantic similarity; the order among other documents is not looked at.",
        "The paper prints the dot product; its code, and this, take the cosine.",
    ),
    "pearson": LossCard(
        "Correlation (Pearson)",
        "graded pairs",
        r"L = -\frac{\sum_i (c_i - \bar c)(y_i - \bar y)}{\sqrt{\sum_i (c_i - \bar c)^2 \sum_i (y_i - \bar y)^2}},"
        r"\quad c_i = \cos(q_i, a_i)",
        f"{BSC}, section 7",
        "Grades whose scale means little: only the correlation with them counts.",
        "Where cosines or labels of a batch are constant, the correlation is not defined; the loss is 0 there.",
    ),
    "softmax": LossCard(
        "Classifier (softmax)",
        "pairs with classes, such as NLI",
        r"L = -\frac1B \sum_i \log \mathrm{softmax}(W [u_i; v_i; |u_i - v_i|])_{y_i}",
        f"{SBERT}, section 3",
        "NLI rows, when the classes are wanted; for embeddings to search with, `supcon` and `mnrl` do better.",
        "The article's optimiser leaves the head out (`frozen_head`) and its schedule ends early "
        '(`training.schedule = "ends_early"`); both are off by default, and there as lessons.',
    ),
    "supcon": LossCard(
        "Supervised contrastive (SCL)",
        "NLI rows: premises with entailed, neutral and contradicting hypotheses",
        r"L = (1-\lambda) L_{CE} - \frac{\lambda}{A} \sum_i \frac{1}{N_i^+} \sum_{j \in P_i}"
        r"\log\frac{e^{f_i \cdot f_j/\tau}}{\sum_{k \in P_i \cup N_i} e^{f_i \cdot f_k/\tau}}",
        f"{SCL}, equations 2 and 3",
        "NLI rows, when a premise should lie near what it entails.",
        'The released code compares raw dot products at tau 1 (`normalization = "none"`) and ignores its number of '
        "negatives; here negatives are really drawn, and cosines are the default, with tau 0.05 to 0.5.",
    ),
    "triplet": LossCard(
        "Triplet",
        "triplets, or queries with positive and negative labels",
        r"L = \frac1B \sum_i \max(0, d(q_i, a_i^+) - d(q_i, a_i^-) + \lambda)",
        f"{MARGINS}, section 3.3; {SBERT}, section 3",
        "One good negative for each query, and no wish for large batches.",
        "With the cosine distance margins from 2 on are one loss: 5, 7.5 and 10 differ by a constant. The margins "
        "paper's formula reads as Euclidean, its code uses the cosine.",
    ),
    "contrastive": LossCard(
        "Contrastive",
        "pairs labelled right or wrong",
        r"L = \frac{1}{2B} \sum_i \left( y_i d_i^2 + (1 - y_i) \max(0, \lambda - d_i)^2 \right)",
        f"Hadsell et al., 2006; {MARGINS}, section 3.3",
        "Pairs labelled right or wrong, such as duplicates, with a threshold on the cosine in mind.",
    ),
    "online_contrastive": LossCard(
        "Contrastive on hard pairs",
        "pairs labelled right or wrong",
        r"L = \sum_{hard\,+} d_i^2 + \sum_{hard\,-} \max(0, \lambda - d_i)^2",
        f"sentence-transformers; {MARGINS}, section 3.3",
        "As contrastive, once most pairs are told apart: only the hard ones of a batch count.",
        'The released sum grows with the batch; `reduction = "mean"` divides by the number of hard pairs.',
    ),
    "simcse": LossCard(
        "SimCSE (two dropout views)",
        "texts alone: the queries",
        r"L = -\frac1B \sum_i \log\frac{e^{\cos(h_i, h_i')/\tau}}{\sum_j e^{\cos(h_i, h_j')/\tau}}",
        "SimCSE (Gao et al., 2021), equation 4",
        "No pairs at all: the same text under two dropout masks is the positive pair.",
        "The BSC paper's row of this name is the supervised checkpoint; this is the unsupervised loss.",
    ),
    "mnrl": LossCard(
        "Multiple negatives ranking (MNRL)",
        "pairs or triplets",
        r"L = -\frac1B \sum_i \log\frac{e^{\cos(q_i, a_i)/\tau}}{\sum_j e^{\cos(q_i, a_j)/\tau}}",
        "Henderson et al., 2017, section 4.4",
        "The plain in-batch loss, to compare with sentence-transformers, whose own it equals.",
    ),
}
