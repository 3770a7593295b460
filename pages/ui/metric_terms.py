"""The words of evaluation: what each metric measures, and how sure a number is."""

from __future__ import annotations

from bsc_core.losses.catalogue import BSC, MARGINS, SBERT, SCL
from pages.ui.word import GEOMETRY, SIMCSE, Word

RANKING = {
    "has_positive": Word(
        "Share of the queries with at least one right document among the first k.",
        r"\frac{1}{|Q|}\sum_q \mathbb{1}[\mathrm{rank}_q \le k]",
        BSC,
    ),
    "mrr": Word(
        "One over the rank of the first right document, averaged over the queries.",
        r"\mathrm{MRR} = \frac{1}{|Q|}\sum_q \frac{1}{\mathrm{rank}_q}",
        BSC,
    ),
    "map": Word(
        "Mean over the queries of the precision at each right document.",
        r"\mathrm{AP}_q = \frac{1}{|R_q|}\sum_{k \in R_q} P@k",
        BSC,
    ),
    "precision_at_k": Word(
        "Share of right documents among the first k, or among all where a list is shorter.",
        r"P@k = \frac{1}{k}\,|\{d \in R_q : \mathrm{rank}(d) \le k\}|",
        BSC,
    ),
    "recall_at_k": Word(
        "Share of a query's right documents that stand among the first k.",
        r"R@k = \frac{1}{|R_q|}\,|\{d \in R_q : \mathrm{rank}(d) \le k\}|",
    ),
    "ndcg": Word(
        "The grades of the first k documents, each worth less the lower it stands, over those of the best order.",
        r"\mathrm{DCG}@k = \sum_{r \le k} \frac{g_r}{\log_2(r + 1)}",
        "Cumulated gain-based evaluation of IR techniques (Järvelin and Kekäläinen, 2002)",
    ),
    "ndcg_exponential": Word(
        "nDCG with a gain that tells high grades further apart.",
        r"\mathrm{DCG}@k = \sum_{r \le k} \frac{2^{g_r} - 1}{\log_2(r + 1)}",
        "Learning to rank using gradient descent (Burges et al., 2005)",
    ),
    "ties": Word(
        "Documents of equal score are ranked at their worst, the least right one first, so that no number depends on "
        "the order of a file."
    ),
}
PAIRS = {
    "spearman": Word(
        "Correlation of the ranks of similarities and labels; 1 when they order the pairs alike.",
        r"\rho = \mathrm{corr}(\mathrm{rank}(s), \mathrm{rank}(y))",
        f"{SBERT}; {SIMCSE}",
    ),
    "pearson": Word(
        "Correlation of similarities and labels; 1 when one is a rising line of the other.",
        r"r = \frac{\mathrm{cov}(s, y)}{\sigma_s\,\sigma_y}",
        BSC,
    ),
    "auc": Word(
        "Chance that a positive pair scores above a negative one, equal scores counting half.",
        r"P(s^+ > s^-) + \tfrac{1}{2} P(s^+ = s^-)",
    ),
    "average_precision": Word(
        "Precision at each height of the score, weighted by the recall gained there; it needs no threshold.",
        r"\mathrm{AP} = \sum_t (R_t - R_{t-1})\,P_t",
    ),
    "f1": Word(
        "Harmonic mean of precision and recall of the rule 'positive from the threshold up'. The threshold is the best "
        "on the dev pairs, every cut between two scores tried, and is applied to test as it is.",
        r"F_1 = \frac{2PR}{P+R}",
        BSC,
    ),
    "pair_precision": Word("Share of positives among the pairs at or above the threshold of F1."),
    "pair_recall": Word("Share of the positive pairs that lie at or above the threshold of F1."),
    "pair_accuracy": Word("Share of the pairs that the threshold of F1 sorts rightly."),
    "best_accuracy": Word(
        "Share of the pairs sorted rightly by the threshold that sorts most dev pairs rightly; it is not that of F1."
    ),
    "class_accuracy": Word("Share of the pairs whose class the classifier of the loss names rightly.", paper=SBERT),
    "calibration": Word(
        "Share of positive pairs at each height of the score, with its 95% interval (Wilson, 1927). Where it rises "
        "steeply a threshold parts the pairs well; where it is flat the score says little.",
        r"\hat{P}(y = 1 \mid s \in \mathrm{bin})",
    ),
    "sts_average": Word(
        "Mean of Spearman over STS 12 to 16, STS-B and SICK-R, in each the mean of its subsets weighted by their "
        "pairs; which tasks were there is said.",
        r"\frac{1}{T}\sum_t \frac{\sum_u n_u\,\rho_u}{\sum_u n_u}",
        SCL,
    ),
}
CLASSES = {
    "polarity": Word(
        "P: share of a sentence's k nearest neighbours that are of its own class; near 1 when classes lie apart.",
        r"P = \frac{1}{|Q|}\sum_q \sum_{i \le k} w_i\,\mathbb{1}[c_{q,i} = c_q]",
        MARGINS,
        "weights the neighbours alike, where the paper lets weights fall with the rank.",
    ),
    "semantic": Word(
        "S: how similar a reference model finds a sentence and its k nearest neighbours; it falls as meaning is lost.",
        r"S = \frac{1}{|Q|}\sum_q \sum_{i \le k} w_i\,\cos_R(q, n_{q,i})",
        MARGINS,
        "weights the neighbours alike, where the paper lets weights fall with the rank.",
    ),
    "balance": Word(
        "One number for P and S: what was gained above chance in classes and what is left of meaning, each from 0 to "
        "1, and their harmonic mean. A model that gives up one for the other ends near 0.",
        r"\frac{2ps}{p+s},\ p=\frac{P-P_0}{1-P_0},\ s=\frac{S-S_0}{S_R-S_0}",
    ),
    "floor": Word("What P or S would be if the neighbours were drawn at random: the height from which to read it."),
    "pareto": Word("Runs that no other run beats in both P and S; on all others something can be had for nothing."),
    "probe": Word(
        "Accuracy of a logistic regression on the frozen vectors: how much of a task can be read off them.",
        paper=f"SentEval (Conneau and Kiela, 2018); {SCL}",
    ),
}
SPACE = {
    "alignment": Word(
        "How near the two sides of positive pairs lie; lower is nearer.", r"E\lVert q-d\rVert^2", GEOMETRY
    ),
    "uniformity": Word(
        "How evenly the vectors spread over the sphere; lower is more even.",
        r"\log E\, e^{-2\lVert x-y\rVert^2}",
        GEOMETRY,
    ),
    "anisotropy": Word(
        "Mean cosine of two texts drawn at random: the floor from which cosines of this model are to be read.",
        r"E_{x \ne y}\cos(x, y)",
        "How contextual are contextualized word representations? (Ethayarajh, 2019)",
    ),
    "neighbour_overlap": Word(
        "Share of a text's ten nearest neighbours before training that are among its ten nearest after it.",
        r"\frac{1}{k}\,|N_k^{before} \cap N_k^{after}|",
    ),
    "sentence_map": Word(
        "Ten odd sentences, three pairs of which say the same thing in other words. A good model finds these three "
        "nearest. 3 of 45 pairs are an anecdote and no measurement.",
        paper="Training sentence transformers with softmax loss (Pinecone)",
    ),
}
SURENESS = {
    "interval": Word(
        "The middle 95% of the values that the number takes when as many queries are drawn again, some twice and some "
        "not at all (percentile bootstrap; Efron, 1979): how far it may move with other queries."
    ),
    "p_value": Word(
        "How often chance alone would make a difference as large, both ways: each query's two values are swapped at "
        "random. Below 0.05, and with 0 outside the interval, it is called a difference.",
        paper="Fisher's randomization test, paired by query",
    ),
    "holm": Word(
        "p-values raised so that among many comparisons one false difference stays as rare as in one (Holm, 1979)."
    ),
    "seed_spread": Word(
        "Runs that differ in nothing but chance. Their spread is counted beside that of the queries, and few seeds "
        "widen the interval as Student's t asks."
    ),
}
METRIC_TERMS: dict[str, Word] = {**RANKING, **PAIRS, **CLASSES, **SPACE, **SURENESS}

CUT = {"precision": "precision_at_k", "recall": "recall_at_k"}
OF_PAIRS = {"precision": "pair_precision", "recall": "pair_recall", "accuracy": "pair_accuracy"}


def term_of(metric: str) -> str | None:
    """The word that explains a metric by its name in the results, such as `ndcg@10` or `accuracy`; None without one."""
    base, _, cut = metric.partition("@")
    name = (CUT if cut else OF_PAIRS).get(base, base)
    return name if name in METRIC_TERMS else None
