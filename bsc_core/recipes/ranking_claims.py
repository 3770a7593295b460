"""The claims of the BSC paper (Chernyavskiy et al., NAACL 2022) on ranking tasks, each as a recipe.

They are CQA-A, CQA-B and PFCC-S; the data of its fourth, Antique, are not there.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from bsc_core.recipes.bsc_arms import MSE, ORDERS, RANDOM, above, bsc, combined, losses, task
from bsc_core.recipes.claims import Arm, Recipe, Statement
from bsc_core.recipes.subsets import Part, Subset

TRAINING_A = {"steps": 120, "batch_size": 30, "learning_rate": 2e-5}
BSC_A = bsc(0.055)
_on_cqa_a = partial(
    Recipe,
    paper="bsc",
    subsets={
        "cqa_a": Subset("cqa_a", {"train": Part("train", 1800), "dev": Part("dev", 60), "test": Part("test", 2000)})
    },
    values={**task(8, 48, TRAINING_A, distinct_texts=False), "loss": BSC_A},
    metrics=("map", "mrr"),
    budget=f"{TRAINING_A['steps']} steps of 30 pairs for every arm (a triplet has one text more)",
    note="Groups of neighbours may hold several answers of one question, since the paper says that its order "
    "comes out much like that of the file, which has them together.",
)
ON_CQA_A = (
    _on_cqa_a(
        name="strategies_cqa_a",
        title="The order of pairs",
        claim="On CQA-A random order is worst, since it takes the answers of a question apart; the order of the "
        "file is best, and nearest neighbours come close. Clusters are better than random, neighbours better "
        "than clusters.",
        table="Table 2",
        arms=ORDERS,
        statements=(
            Statement("sequential", "random", "map", paper=0.053),
            Statement("examples", "random", "map", paper=0.038),
            Statement("clusters", "random", "map", paper=0.024),
            Statement("sequential", "examples", "map", paper=0.015),
            Statement("examples", "clusters", "map", paper=0.014),
            Statement("examples", "words", "map", beside=True),
        ),
    ),
    _on_cqa_a(
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
    _on_cqa_a(
        name="combined_cqa_a",
        title="BSC and MSE together, on ranking",
        claim="On CQA-A BSC with MSE is better than MSE, than BSC, and than triplet loss.",
        table="Table 2",
        arms=losses(BSC_A, 0.1),
        statements=above("combined", "map", {"mse": 0.003, "bsc": 0.071, "triplet": 0.015}),
    ),
)
TRAINING_B = {"steps": 60, "batch_size": 30, "learning_rate": 3e-5}
BSC_B = bsc(0.07)
_on_cqa_b = partial(
    Recipe,
    paper="bsc",
    table="Table 2",
    subsets={"cqa_b": Subset("cqa_b", {"train": Part("train", 1600), "dev": Part("dev")})},
    values={**task(5, 48, TRAINING_B, distinct_texts=False), "loss": BSC_B},
    metrics=("map", "mrr"),
    budget=f"{TRAINING_B['steps']} steps of 30 pairs for every arm (a triplet has one text more)",
    note="Measured on the dev part, 50 questions with ten related ones each; the paper has the test set.",
)
ON_CQA_B = (
    _on_cqa_b(
        name="strategies_cqa_b",
        title="The order of pairs, on related questions",
        claim="On CQA-B nearest neighbours are the best order and that of the file the worst, since the data are few "
        "and it never changes; random order and clusters lie between.",
        arms=ORDERS,
        statements=(
            *above("examples", "map", {"sequential": 0.014, "random": 0.008, "clusters": 0.002, "words": None}, "dev"),
            *above("random", "map", {"sequential": 0.006}, "dev"),
        ),
    ),
    _on_cqa_b(
        name="combined_cqa_b",
        title="BSC and MSE, together and alone, on related questions",
        claim="On CQA-B BSC is better than MSE and than triplet loss, and with MSE a little better still.",
        arms=losses(BSC_B, 0.9),
        statements=(
            *above("bsc", "map", {"mse": 0.024, "triplet": 0.020}, "dev"),
            *above("combined", "map", {"bsc": 0.001, "mse": 0.025}, "dev"),
        ),
    ),
)
BY_RANGE = bsc(1.2, normalization="range_columns")
PFCC_CORPUS, PFCC_STEPS = 1000, 50
SEARCHED = (
    f"Searched are {PFCC_CORPUS:,} of the 10,369 claims, the right ones among them, so values are higher than over all."
)


def _on_pfcc(*, note: str, negatives: bool = False, **rest: Any) -> Recipe:
    parts = {"train": Part("train"), "dev": Part("dev")}
    kinds: dict[str, dict[str, Any]] = {
        "pfcc_s": {},
        "rows": {"negatives": {}},
        "triplets": {"negatives": {"as_triplets": True}},
    }
    return Recipe(
        paper="bsc",
        subsets={
            kind: Subset("pfcc_s", parts, corpus=PFCC_CORPUS, data=data)
            for kind, data in kinds.items()
            if negatives or not data
        },
        metrics=("mrr", "has_positive@1", "has_positive@5"),
        values=task(8, 48, {"steps": PFCC_STEPS, "batch_size": 30, "learning_rate": 2e-5}),
        budget=f"{PFCC_STEPS} steps of 30 pairs for every arm",
        note=f"{SEARCHED} {note}",
        **rest,
    )


ON_PFCC = (
    _on_pfcc(
        name="normalization_pfcc",
        title="Normalization and temperature",
        table="Table 3, section 7",
        claim="On PFCC-S columns divided by their range are better than rows of length 1 and than no normalization; "
        "with rows a temperature of about 0.1 is right and 1 is not.",
        arms={
            "range": Arm("Columns by their range, tau 1.2", {"loss": BY_RANGE}),
            "columns": Arm("Columns of length 1, tau 1.2", {"loss": bsc(1.2, normalization="l2_columns")}),
            "rows": Arm("Rows of length 1, tau 0.1", {"loss": bsc(0.1)}),
            "minmax": Arm("Columns from 0 to 1, tau 1.2", {"loss": bsc(1.2, normalization="minmax_columns")}),
            "raw": Arm(
                "No normalization, tau 1",
                {"encoder": {"name": "bundled_raw"}, "loss": bsc(1.0, normalization="none")},
            ),
            "rows_low": Arm("Rows of length 1, tau 0.02", {"loss": bsc(0.02)}),
            "rows_high": Arm("Rows of length 1, tau 1", {"loss": bsc(1.0)}),
        },
        statements=(
            *above("range", "has_positive@1", {"rows": 0.085, "raw": 0.065}, "dev"),
            *above("range", "mrr", {"rows": None, "raw": None}, "dev"),
            *above("columns", "mrr", {"rows": None}, "dev"),
            Statement("rows", "rows_high", "mrr", "dev"),
        ),
        note="The bundled encoder ends with a layer that makes vectors of length 1; without normalization it is "
        "trained without it.",
    ),
    _on_pfcc(
        name="strategies_pfcc",
        title="The order of pairs, on claims in a corpus",
        table="Table 3",
        claim="On PFCC-S nearest neighbours are a better order than random.",
        arms={name: replace(arm, values={"loss": BY_RANGE, **arm.values}) for name, arm in ORDERS.items()},
        statements=(
            *above("examples", "has_positive@1", {"random": 0.010}, "dev"),
            *above("examples", "has_positive@5", {"random": 0.050}, "dev"),
            *above("examples", "mrr", {"random": None, "sequential": None, "words": None, "clusters": None}, "dev"),
        ),
        note="The paper shows nearest neighbours and random order; the other orders stand beside them.",
    ),
    _on_pfcc(
        negatives=True,
        name="losses_pfcc",
        title="BSC, MSE and triplet loss, on claims in a corpus",
        table="Table 3",
        claim="On PFCC-S BSC, trained on positive pairs alone, is far better than MSE and comparable to triplet loss.",
        arms={
            "bsc": Arm("Batch softmax (BSC)", {"loss": BY_RANGE}),
            "mse": Arm("Squared error (MSE)", MSE, data="rows"),
            "triplet": Arm(
                "Triplet", {"loss": {"name": "triplet", "distance": "euclidean", "margin": 0.6}, **RANDOM}, "triplets"
            ),
            "combined": Arm("BSC + MSE, mu 0.9", {"loss": combined(0.9, BY_RANGE)}, data="rows"),
        },
        statements=(
            *above("bsc", "has_positive@1", {"mse": 0.311}, "dev"),
            Statement("bsc", "triplet", "has_positive@1", "dev", expects="same", margin=0.05, paper=0.005),
            *above("combined", "has_positive@1", {"bsc": None}, "dev"),
        ),
        note="Negatives of MSE and triplet loss are the paper's: claims at the ranks 100 + 2^k of an encoder, with "
        "positives repeated until both kinds are as many. The paper calls BSC and triplet loss comparable; within 0.05 "
        "is this recipe's word for it.",
    ),
)
RANKING_CLAIMS = (*ON_PFCC, *ON_CQA_A, *ON_CQA_B)
