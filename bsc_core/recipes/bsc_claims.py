"""The claims of the BSC paper (Chernyavskiy et al., NAACL 2022) on scores of pairs: STSb, MRPC and QQP as recipes."""

from __future__ import annotations

from functools import partial

from bsc_core.recipes.bsc_arms import MSE, RANDOM, above, bsc, combined, picked, task
from bsc_core.recipes.claims import Arm, Recipe, Statement
from bsc_core.recipes.ranking_claims import RANKING_CLAIMS
from bsc_core.recipes.subsets import Part, Subset

STSB_STEPS = 120
HALF = {"training": {"steps": STSB_STEPS // 2}}
BSC_STSB = bsc(0.1, threshold=0.6)
STSB_ARMS = {
    "mse": Arm("Squared error (MSE)", MSE),
    "bsc": Arm("Batch softmax (BSC)", {"loss": BSC_STSB}),
    "combined_1": Arm("BSC + MSE, mu 0.1", {"loss": combined(0.1, BSC_STSB)}),
    "combined_5": Arm("BSC + MSE, mu 0.5", {"loss": combined(0.5, BSC_STSB)}),
    "combined_9": Arm("BSC + MSE, mu 0.9", {"loss": combined(0.9, BSC_STSB)}),
    "pearson": Arm("Correlation (Pearson)", {"loss": {"name": "pearson"}, **RANDOM}),
    "bsc_pearson": Arm("BSC + Pearson, mu 0.1", {"loss": combined(0.1, BSC_STSB, "bsc_pearson")}),
    "first_bsc": Arm("BSC, the first half", {"loss": BSC_STSB, **HALF}),
    "bsc_then_mse": Arm("BSC, then MSE", {**MSE, **HALF}, after="first_bsc"),
    "first_mse": Arm("MSE, the first half", {**MSE, **HALF}),
    "mse_then_bsc": Arm("MSE, then BSC", {"loss": BSC_STSB, **HALF}, after="first_mse"),
}
_on_stsb = partial(
    Recipe,
    paper="bsc",
    subsets={"stsb": Subset("stsb", {"train": Part("train", 1800), "dev": Part("dev", 60), "test": Part("test")})},
    values=task(8, 64, {"steps": STSB_STEPS, "batch_size": 30, "learning_rate": 2e-5}),
    metrics=("spearman", "pearson"),
    budget=f"{STSB_STEPS} steps of 30 pairs for every arm; of two losses in turn, {STSB_STEPS // 2} steps each",
)
ON_STSB = (
    _on_stsb(
        name="sequence_stsb",
        title="One loss after the other",
        table="Table 5",
        claim="On STSb, BSC followed by MSE is better than MSE, than BSC, than both at once, and than MSE followed "
        "by BSC.",
        arms=picked(STSB_ARMS, "mse", "bsc", "combined_1", "first_bsc", "bsc_then_mse", "first_mse", "mse_then_bsc"),
        statements=above(
            "bsc_then_mse", "spearman", {"mse": 0.0091, "bsc": 0.0245, "combined_1": 0.0112, "mse_then_bsc": 0.0076}
        ),
    ),
    _on_stsb(
        name="pearson_stsb",
        title="Correlation as the loss",
        table="Section 7",
        claim="On STSb, minus the correlation of cosines and labels is a better loss than their squared error, than"
        " BSC, and than BSC with MSE.",
        arms=picked(STSB_ARMS, "mse", "bsc", "combined_1", "pearson", "bsc_pearson"),
        statements=(
            *above("pearson", "spearman", {"mse": 0.0077, "bsc": 0.0231, "combined_1": 0.0098}),
            *above("bsc_pearson", "spearman", {"mse": None}),
        ),
    ),
    _on_stsb(
        name="mu_stsb",
        title="The share of BSC in the sum",
        table="Section 5",
        claim="The share mu of BSC in its sum with MSE, tried at 0.1, 0.5 and 0.9, matters little: the quality drops "
        "by at most 0.004 between 0.1 and 0.5.",
        arms=picked(STSB_ARMS, "combined_1", "combined_5", "combined_9"),
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
        arms=picked(STSB_ARMS, "mse", "bsc", "combined_1"),
        statements=(
            *above("mse", "spearman", {"combined_1": 0.0021}),
            *above("combined_1", "spearman", {"bsc": 0.0133}),
        ),
    ),
)
MRPC_STEPS = 100
BSC_MRPC, BSC_QQP = bsc(0.1), bsc(1.2, normalization="range_columns")
ON_MRPC = Recipe(
    name="losses_mrpc",
    title="Paraphrases: BSC, MSE, both, and BSC with correlation",
    paper="bsc",
    table="Table 4, section 7",
    claim="On MRPC MSE is better than BSC, both together better than each, and BSC with the correlation best.",
    subsets={"mrpc": Subset("mrpc", {"train": Part("train", 1200), "dev": Part("train", 200), "test": Part("dev")})},
    values=task(4, 64, {"steps": MRPC_STEPS, "batch_size": 30, "learning_rate": 2e-5}),
    arms={
        "mse": Arm("Squared error (MSE)", MSE),
        "bsc": Arm("Batch softmax (BSC)", {"loss": BSC_MRPC}),
        "combined": Arm("BSC + MSE, mu 0.1", {"loss": combined(0.1, BSC_MRPC)}),
        "bsc_pearson": Arm("BSC + Pearson, mu 0.1", {"loss": combined(0.1, BSC_MRPC, "bsc_pearson")}),
    },
    statements=(
        Statement("mse", "bsc", "f1", paper=0.0235),
        Statement("combined", "mse", "f1", paper=0.0038),
        Statement("bsc_pearson", "combined", "f1", paper=0.0042),
        Statement("mse", "bsc", "average_precision", beside=True),
        Statement("combined", "mse", "average_precision", beside=True),
        Statement("bsc_pearson", "combined", "average_precision", beside=True),
    ),
    metrics=("f1", "average_precision"),
    budget=f"{MRPC_STEPS} steps of 30 pairs for every arm",
    note="The threshold of F1 is chosen on 200 held-out training pairs and applied to the dev pairs, here called test.",
)
QQP_STEPS = 60
ON_QQP = Recipe(
    name="losses_qqp",
    title="Duplicate questions: BSC, MSE, and both",
    paper="bsc",
    table="Table 4",
    claim="On QQP MSE is better than BSC, and both together better than each.",
    subsets={
        "qqp": Subset("qqp", {"train": Part("train", 1500), "dev": Part("train", 500), "test": Part("test", 2000)})
    },
    values=task(8, 64, {"steps": QQP_STEPS, "batch_size": 50, "learning_rate": 2e-5}),
    arms={
        "mse": Arm("Squared error (MSE)", MSE),
        "bsc": Arm("Batch softmax (BSC)", {"loss": BSC_QQP}),
        "combined": Arm("BSC + MSE, mu 0.1", {"loss": combined(0.1, BSC_QQP)}),
    },
    statements=(
        Statement("mse", "bsc", "f1", paper=0.0116),
        *above("combined", "f1", {"mse": 0.0078, "bsc": 0.0194}),
        Statement("mse", "bsc", "average_precision", beside=True),
        *above("combined", "average_precision", {"mse": None, "bsc": None}),
    ),
    metrics=("f1", "average_precision"),
    budget=f"{QQP_STEPS} steps of 50 pairs for every arm",
    note="The threshold of F1 is chosen on 500 held-out training pairs.",
)
BSC_CLAIMS = {recipe.name: recipe for recipe in (*ON_STSB, *RANKING_CLAIMS, ON_MRPC, ON_QQP)}
