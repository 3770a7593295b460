"""The claims of the BSC paper (Chernyavskiy et al., NAACL 2022), each as a recipe.

Batch, rate, temperature and groups are the paper's of the task; the encoder is the bundled one, and the number of steps
is small and the same for all arms of a recipe. Arms that recipes share have the same settings and are trained once.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from bsc_core.recipes.claims import Arm, Recipe, Statement
from bsc_core.recipes.subsets import Part, Subset

Sections = dict[str, dict[str, Any]]
CQA_A = Subset("cqa_a", {"train": Part("train", 600), "dev": Part("dev", 60), "test": Part("test", 1000)})
PFCC = Subset("pfcc_s", {"train": Part("train", 300), "dev": Part("dev")}, corpus=500)
STSB = Subset("stsb", {"train": Part("train", 1200), "dev": Part("dev", 60), "test": Part("test")})
MRPC = Subset("mrpc", {"train": Part("train", 600), "dev": Part("train", 200), "test": Part("dev")})
STEPS = {"cqa_a": 40, "pfcc_s": 20, "stsb": 60, "mrpc": 40}
HALF = {"training": {"steps": 30}}


def _task(name: str, rate: float, group_size: int, length: int, **batching: Any) -> Sections:
    """What the arms of a task share."""
    return {
        "encoder": {"name": "bundled", "max_length": length},
        "batching": {"strategy": "examples", "group_size": group_size, **batching},
        "training": {"steps": STEPS[name], "batch_size": 30, "learning_rate": rate},
    }


def _bsc(temperature: float, **changes: Any) -> dict[str, Any]:
    return {"name": "bsc", "temperature": temperature, "normalization": "l2", **changes}


def _combined(mu: float, bsc: dict[str, Any], preset: str = "bsc_mse") -> dict[str, Any]:
    return {"name": "combined", "preset": preset, "mu": mu, "bsc": bsc}


RANDOM = {"batching": {"strategy": "random"}}
ON_CQA_A = _task("cqa_a", 2e-5, 8, 48, distinct_texts=False)
ON_PFCC = _task("pfcc_s", 2e-5, 8, 48)
ON_STSB = _task("stsb", 2e-5, 8, 64)
ON_MRPC = _task("mrpc", 2e-5, 4, 64)
BSC_CQA_A, BSC_STSB, BSC_MRPC = _bsc(0.055), _bsc(0.1, threshold=0.6), _bsc(0.1)
MSE = {"loss": {"name": "mse"}, **RANDOM}
STSB_ARMS = {
    "mse": Arm("Squared error (MSE)", MSE),
    "bsc": Arm("Batch softmax (BSC)", {"loss": BSC_STSB}),
    "combined_1": Arm("BSC + MSE, mu 0.1", {"loss": _combined(0.1, BSC_STSB)}),
    "combined_5": Arm("BSC + MSE, mu 0.5", {"loss": _combined(0.5, BSC_STSB)}),
    "combined_9": Arm("BSC + MSE, mu 0.9", {"loss": _combined(0.9, BSC_STSB)}),
    "pearson": Arm("Correlation (Pearson)", {"loss": {"name": "pearson"}, **RANDOM}),
    "bsc_pearson": Arm("BSC + Pearson, mu 0.1", {"loss": _combined(0.1, BSC_STSB, "bsc_pearson")}),
    "first_bsc": Arm("BSC, the first half", {"loss": BSC_STSB, **HALF}),
    "bsc_then_mse": Arm("BSC, then MSE", {**MSE, **HALF}, after="first_bsc"),
    "first_mse": Arm("MSE, the first half", {**MSE, **HALF}),
    "mse_then_bsc": Arm("MSE, then BSC", {"loss": BSC_STSB, **HALF}, after="first_mse"),
}


def _picked(arms: dict[str, Arm], *names: str) -> dict[str, Arm]:
    return {name: arms[name] for name in names}


_on_stsb = partial(
    Recipe,
    paper="bsc",
    subsets={"stsb": STSB},
    values=ON_STSB,
    metrics=("spearman", "pearson"),
    budget="60 steps of 30 pairs for every arm; of two losses in turn, 30 steps each",
)


def _above(
    better: str, metric: str, others: dict[str, float | None], split: Literal["dev", "test"] = "test"
) -> tuple[Statement, ...]:
    """One setting above several others. others: their arms, and what the paper shows between the two."""
    return tuple(Statement(better, worse, metric, split, paper=paper) for worse, paper in others.items())


ON_STSB_CLAIMS = (
    _on_stsb(
        name="sequence_stsb",
        title="One loss after the other",
        table="Table 5",
        claim="On STSb, BSC followed by MSE is better than MSE, than BSC, than both at once, and than MSE followed "
        "by BSC.",
        arms=_picked(STSB_ARMS, "mse", "bsc", "combined_1", "first_bsc", "bsc_then_mse", "first_mse", "mse_then_bsc"),
        statements=_above(
            "bsc_then_mse", "spearman", {"mse": 0.0091, "bsc": 0.0245, "combined_1": 0.0112, "mse_then_bsc": 0.0076}
        ),
    ),
    _on_stsb(
        name="pearson_stsb",
        title="Correlation as the loss",
        table="Section 7",
        claim="On STSb, minus the correlation of cosines and labels is a better loss than their squared error, than"
        " BSC, and than BSC with MSE; it stays so together with BSC.",
        arms=_picked(STSB_ARMS, "mse", "bsc", "combined_1", "pearson", "bsc_pearson"),
        statements=(
            *_above("pearson", "spearman", {"mse": 0.0077, "bsc": 0.0231, "combined_1": 0.0098}),
            *_above("bsc_pearson", "spearman", {"mse": None}),
        ),
    ),
    _on_stsb(
        name="mu_stsb",
        title="The share of BSC in the sum",
        table="Section 5",
        claim="The share mu of BSC in its sum with MSE, tried at 0.1, 0.5 and 0.9, matters little: the quality drops "
        "by at most 0.004 between 0.1 and 0.5.",
        arms=_picked(STSB_ARMS, "combined_1", "combined_5", "combined_9"),
        statements=(
            Statement("combined_1", "combined_5", "spearman", expects="same", margin=0.004),
            Statement("combined_5", "combined_9", "spearman", expects="same", margin=0.004),
        ),
    ),
    _on_stsb(
        name="combined_stsb",
        title="BSC and MSE together, on similarity",
        table="Table 5",
        claim="On STSb, the one task where it is so, MSE alone is better than BSC with MSE, and that better than "
        "BSC alone.",
        arms=_picked(STSB_ARMS, "mse", "bsc", "combined_1"),
        statements=(
            *_above("mse", "spearman", {"combined_1": 0.0021}),
            *_above("combined_1", "spearman", {"bsc": 0.0133}),
        ),
    ),
)
CQA_ARMS = {
    "examples": Arm("Nearest neighbours"),
    "random": Arm("Random order", RANDOM),
    "sequential": Arm("Order of the file", {"batching": {"strategy": "sequential"}}),
    "words": Arm("Shared words", {"batching": {"strategy": "words"}}),
    "clusters": Arm("Clusters", {"batching": {"strategy": "clusters", "clusters": 30}}),
}
LOSS_ARMS = {
    "bsc": Arm("Batch softmax (BSC)"),
    "mse": Arm("Squared error (MSE)", MSE),
    "combined": Arm("BSC + MSE, mu 0.1", {"loss": _combined(0.1, BSC_CQA_A)}),
    "triplet": Arm("Triplet", {"loss": {"name": "triplet", "distance": "euclidean", "margin": 0.5}, **RANDOM}),
}
_on_cqa = partial(
    Recipe,
    paper="bsc",
    subsets={"cqa_a": CQA_A},
    values={**ON_CQA_A, "loss": BSC_CQA_A},
    metrics=("map", "mrr"),
    budget="40 steps of 30 pairs for every arm (a triplet has one text more)",
    note="Groups of neighbours may hold several answers of one question, since the paper says that its order "
    "comes out much like that of the file, which has them together.",
)
ON_CQA_CLAIMS = (
    _on_cqa(
        name="strategies_cqa_a",
        title="The order of pairs",
        claim="On CQA-A random order is worst, since it takes the answers of a question apart; the order of the "
        "file is best, and nearest neighbours come close. Clusters are better than random, neighbours better "
        "than clusters or words.",
        table="Table 2",
        arms=CQA_ARMS,
        statements=(
            Statement("sequential", "random", "map", paper=0.053),
            Statement("examples", "random", "map", paper=0.038),
            Statement("clusters", "random", "map", paper=0.024),
            Statement("sequential", "examples", "map", paper=0.015),
            Statement("examples", "clusters", "map", paper=0.014),
            Statement("examples", "words", "map"),
        ),
    ),
    _on_cqa(
        name="negatives_cqa_a",
        title="Labelled negatives",
        claim="Pairs labelled negative, kept in every denominator, make a better model than positive pairs alone "
        "(by 1 to 2 points).",
        table="Table 1, section 7",
        arms={
            "examples": Arm("With labelled negatives"),
            "positives": Arm("Positives only", {"loss": {"labelled_negatives": False}}),
        },
        statements=(Statement("examples", "positives", "map", paper=0.02),),
    ),
    _on_cqa(
        name="combined_cqa_a",
        title="BSC and MSE together, on ranking",
        claim="On CQA-A BSC with MSE is better than MSE, than BSC, and than triplet loss.",
        table="Table 2",
        arms=LOSS_ARMS,
        statements=_above("combined", "map", {"mse": 0.003, "bsc": 0.071, "triplet": 0.015}),
    ),
)
PFCC_ARMS = {
    "range": Arm("Columns by their range, tau 1.2", {"loss": _bsc(1.2, normalization="range_columns")}),
    "columns": Arm("Columns of length 1, tau 1.2", {"loss": _bsc(1.2, normalization="l2_columns")}),
    "rows": Arm("Rows of length 1, tau 0.1", {"loss": _bsc(0.1)}),
    "minmax": Arm("Columns from 0 to 1, tau 1.2", {"loss": _bsc(1.2, normalization="minmax_columns")}),
    "raw": Arm(
        "No normalization, tau 1",
        {"encoder": {"name": "bundled_raw"}, "loss": _bsc(1.0, normalization="none")},
    ),
    "rows_low": Arm("Rows of length 1, tau 0.02", {"loss": _bsc(0.02)}),
    "rows_high": Arm("Rows of length 1, tau 1", {"loss": _bsc(1.0)}),
}
NORMALIZATION = Recipe(
    name="normalization_pfcc",
    title="Normalization and temperature",
    paper="bsc",
    table="Table 3, section 7",
    claim="On PFCC-S columns divided by their range are better than rows of length 1 and than no normalization; with "
    "rows a temperature of about 0.1 is right and 1 is not.",
    subsets={"pfcc_s": PFCC},
    values=ON_PFCC,
    arms=PFCC_ARMS,
    statements=(
        *_above("range", "has_positive@1", {"rows": 0.085, "raw": 0.065}, "dev"),
        *_above("range", "mrr", {"rows": None, "raw": None}, "dev"),
        *_above("columns", "mrr", {"rows": None}, "dev"),
        *_above("rows", "mrr", {"rows_high": None}, "dev"),
    ),
    metrics=("mrr", "has_positive@1", "has_positive@5"),
    budget="20 steps of 30 pairs for every arm",
    note="Searched are 500 of the 10,369 claims, the right ones among them, so values are higher than over all. The "
    "bundled encoder ends with a layer that makes vectors of length 1; without normalization it is trained without it.",
)
PEARSON_MRPC = Recipe(
    name="losses_mrpc",
    title="Paraphrases: BSC, MSE, both, and BSC with correlation",
    paper="bsc",
    table="Table 4, section 7",
    claim="On MRPC MSE is better than BSC, both together better than each, and BSC with the correlation best.",
    subsets={"mrpc": MRPC},
    values=ON_MRPC,
    arms={
        "mse": Arm("Squared error (MSE)", MSE),
        "bsc": Arm("Batch softmax (BSC)", {"loss": BSC_MRPC}),
        "combined": Arm("BSC + MSE, mu 0.1", {"loss": _combined(0.1, BSC_MRPC)}),
        "bsc_pearson": Arm("BSC + Pearson, mu 0.1", {"loss": _combined(0.1, BSC_MRPC, "bsc_pearson")}),
    },
    statements=(
        Statement("mse", "bsc", "f1", paper=0.0235),
        Statement("combined", "mse", "f1", paper=0.0038),
        Statement("bsc_pearson", "combined", "f1", paper=0.0042),
        Statement("mse", "bsc", "average_precision"),
        Statement("combined", "mse", "average_precision"),
        Statement("bsc_pearson", "combined", "average_precision"),
    ),
    metrics=("f1", "average_precision"),
    budget="40 steps of 30 pairs for every arm",
    note="The threshold of F1 is chosen on 200 held-out training pairs and applied to the dev pairs, here called test.",
)
BSC_CLAIMS = {recipe.name: recipe for recipe in (*ON_STSB_CLAIMS, NORMALIZATION, *ON_CQA_CLAIMS, PEARSON_MRPC)}
