"""The claims of the article on softmax-loss SBERT, as a recipe: the classifier against in-batch softmax."""

from __future__ import annotations

from typing import Any

from bsc_core.recipes.claims import UNTRAINED, Arm, Recipe, Statement
from bsc_core.recipes.measures_nli import NLIMeasure
from bsc_core.recipes.subsets import Part, Subset

STS = {
    "stsb": Subset("stsb", {"test": Part("test")}),
    "sick": Subset("sick", {"test": Part("test", 1500)}),
}
"""What models trained on inference are measured on; STS 12 to 16 are no part of the data."""
STEPS, RATE = 240, 5e-5
SNLI = Subset("snli", {"train": Part("dev", STEPS * 16), "dev": Part("test", 60), "test": Part("test", 60)})
"""SNLI's dev set has every hypothesis of each premise, its training part mostly one, so it is trained on."""
STS_NOTE = "STS is the mean of the pairs of STSb test and of 1,500 of SICK test."
STS_METRICS = ("stsb", "sick", "sts")
VALUES: dict[str, Any] = {
    "encoder": {"name": "bundled_raw", "max_length": 64},
    "batching": {"strategy": "random"},
    "training": {"steps": STEPS, "batch_size": 16, "learning_rate": RATE},
}
ARTICLE_CLAIMS = {
    "softmax_or_mnrl": Recipe(
        name="softmax_or_mnrl",
        title="A classifier or in-batch softmax",
        paper="article",
        table="Heat maps of ten sentences",
        claim="In-batch softmax (MNRL) gives better sentence embeddings than the classifier on (u, v, |u - v|): it "
        "finds the three pairs that mean the same, and sets all others far apart. The classifier improves on the "
        "encoder it starts from.",
        subsets={"snli": SNLI},
        values=VALUES,
        arms={
            "mnrl": Arm("MNRL", {"loss": {"name": "mnrl", "temperature": 0.05}}),
            "softmax": Arm("Classifier", {"loss": {"name": "softmax", "num_classes": 3}}),
            "published": Arm(
                "Classifier as published",
                {
                    "loss": {"name": "softmax", "num_classes": 3, "frozen_head": True},
                    "training": {"schedule": "ends_early", "weight_decay": 0.0, "max_grad_norm": 1e6},
                },
            ),
        },
        statements=(
            Statement("mnrl", "softmax", "ten_gap", words="MNRL sets the three pairs further apart from the others"),
            Statement("mnrl", "softmax", "ten_auc", words="MNRL ranks the three pairs above more of the others"),
            Statement("mnrl", "softmax", "stsb"),
            Statement("mnrl", "softmax", "sick"),
            Statement(
                "softmax",
                UNTRAINED,
                "ten_gap",
                words="The classifier sets them further apart than the encoder it starts from",
            ),
            Statement("softmax", UNTRAINED, "sts"),
        ),
        metrics=(*STS_METRICS, "ten_auc", "ten_gap"),
        budget=f"{STEPS} steps of 16 pairs; MNRL trains on the entailed ones alone and sees them more often",
        note="The article starts from BERT, whose cosines lie between 0.6 and 0.7 for anything; the bundled encoder "
        "was trained on inference pairs with in-batch softmax before, which favours MNRL. Ten sentences are an "
        "anecdote: their intervals draw 45 pairs. The rate is two and a half times the article's, since the "
        f"steps are few. {STS_NOTE}",
        measure=NLIMeasure(),
        beside=STS,
    ),
}
