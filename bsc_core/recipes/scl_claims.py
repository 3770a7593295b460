"""The claims of the SCL paper, as recipes: its share, its temperature, and how many positives and negatives."""

from __future__ import annotations

from typing import Any

from bsc_core.recipes.article_claims import STS, STS_METRICS, STS_NOTE
from bsc_core.recipes.claims import Arm, Recipe, Statement
from bsc_core.recipes.measures_nli import NLIMeasure
from bsc_core.recipes.subsets import Part, Subset

STEPS, RATE = 90, 5e-5
SNLI = Subset("snli", {"train": Part("dev", STEPS * 32), "dev": Part("test", 60), "test": Part("test", 60)})
"""Whole premises with all their hypotheses, of which SNLI's training part has few here."""
VALUES: dict[str, Any] = {
    "encoder": {"name": "bundled_raw", "max_length": 64},
    "batching": {"strategy": "premises"},
    "training": {
        "steps": STEPS,
        "batch_size": 32,
        "learning_rate": RATE,
        "weight_decay": 0.0,
        "max_grad_norm": 1e6,
    },
}
CLASSIFIER = Arm(
    "Classifier alone",
    {"loss": {"name": "softmax", "num_classes": 3, "features": ["u", "v", "difference"], "hidden": 768}},
)
BUDGET = f"{STEPS} steps of 32 pairs, premises whole"
NOTE = (
    f"{STS_NOTE} The paper's is that of STS 12 to 16, which are no part of the data. The paper has one seed of each "
    "setting and 8,584 steps from a smaller BERT; the rate is two and a half times its own, since the steps are few."
)


def _supcon(title: str, **changes: Any) -> Arm:
    """As released, with all positives and negatives, but for the changes."""
    loss = {"name": "supcon", "mix": 0.5, "normalization": "none", "temperature": 1.0, **changes}
    return Arm(title, {"loss": loss})


def _recipe(name: str, title: str, table: str, claim: str, **rest: Any) -> Recipe:
    shared = {"subsets": {"snli": SNLI}, "values": VALUES, "metrics": STS_METRICS, "budget": BUDGET, "beside": STS}
    return Recipe(
        name=name, title=title, paper="scl", table=table, claim=claim, measure=NLIMeasure(), **{**shared, **rest}
    )


HALF = _supcon("SCL 0.5")
SCL_CLAIMS = {
    "scl_mix": _recipe(
        "scl_mix",
        "The share of SCL",
        "Tables 2 and 6",
        "A classifier mixed with SCL gives better embeddings than the classifier alone and than SCL alone; a share of "
        "0.3 is best.",
        arms={
            "classifier": CLASSIFIER,
            "mix_01": _supcon("SCL 0.1", mix=0.1),
            "mix_03": _supcon("SCL 0.3", mix=0.3),
            "half": HALF,
            "mix_09": _supcon("SCL 0.9", mix=0.9),
            "alone": _supcon("SCL alone", mix=1.0),
        },
        statements=(
            Statement("mix_03", "classifier", "sts", paper=0.0283),
            Statement("mix_03", "mix_01", "sts", paper=0.0126),
            Statement("mix_03", "mix_09", "sts", paper=0.0083),
            Statement("mix_03", "alone", "sts", paper=0.0106),
        ),
        note=NOTE,
    ),
    "scl_temperature": _recipe(
        "scl_temperature",
        "The temperature of SCL, with and without vectors of length 1",
        "Table 7",
        "A temperature of 1 is best and 0.1 worst.",
        arms={
            "raw_01": _supcon("Raw, 0.1", temperature=0.1),
            "half": HALF,
            "l2_01": _supcon("Length 1, 0.1", normalization="l2", temperature=0.1),
            "l2_1": _supcon("Length 1, 1", normalization="l2", temperature=1.0),
        },
        statements=(
            Statement("half", "raw_01", "sts", paper=0.0844),
            Statement("l2_1", "l2_01", "sts", words="with vectors of length 1 as well, 1 is above 0.1", beside=True),
        ),
        note=f"{NOTE} It takes raw dot products, which grow with the length of the vectors, so that its "
        "temperature says little about hardness; with length 1 it can be told apart.",
    ),
    "scl_counts": _recipe(
        "scl_counts",
        "How many positives and negatives",
        "Table 2",
        "All positives and all negatives are better than three of each, and so are all negatives with three positives.",
        arms={
            "half": HALF,
            "three_all": _supcon("3 positives, all negatives", max_positives=3),
            "three_three": _supcon("3 positives, 3 negatives", max_positives=3, max_negatives=3),
        },
        statements=(
            Statement("half", "three_three", "sts", paper=0.0288),
            Statement("three_all", "three_three", "sts", paper=0.0259),
            Statement("half", "three_all", "sts", paper=0.0029),
        ),
        note=NOTE,
    ),
}
