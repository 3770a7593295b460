"""The claims of the paper on margins, each as a recipe: what a margin does to polarity and to meaning."""

from __future__ import annotations

from typing import Any

from bsc_core.recipes.claims import UNTRAINED, Arm, Recipe, Statement
from bsc_core.recipes.measures_polarity import POLARITY_METRICS, PolarityMeasure
from bsc_core.recipes.subsets import Part, Subset

SENTENCES, QUERIES, EPOCHS, BATCH = 500, 250, 3, 16
RATE = 3e-5
WARMUP_STEPS, FULL_SAMPLES, FULL_BATCH = 10_000, 50_000, 64
"""Of the released schedule: it warms up anew in each epoch of N samples, and never comes to an end of it."""
EXAMPLES = {"text": "text", "class_label": "label", "split": "", "cap": 1}


def _sst2(kind: str) -> Subset:
    parts = {"train": Part("train", SENTENCES), "dev": Part("dev", 60), "test": Part("test", QUERIES)}
    return Subset("sst2", parts, data={"examples": {**EXAMPLES, "kind": kind}})


KINDS = {kind: _sst2(kind) for kind in ("triplets", "pairs", "same_class")}
VALUES: dict[str, Any] = {
    "encoder": {"name": "bundled", "max_length": 64},
    "batching": {"strategy": "random"},
    "training": {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE},
    "evaluation": {"each_epoch": True, "epoch_texts": 4000},
}


def _margin(name: str, margin: float) -> dict[str, Any]:
    return {"loss": {"name": name, "distance": "cosine", "margin": margin}}


def _released(name: str, margin: float, samples: int, batch: int) -> dict[str, Any]:
    """A margin under the released schedule, at the rates that it has in epochs of so many samples.

    Each epoch has samples / batch steps, whose rate rises from 0 to the peak and falls back to 0 as the next begins.
    The fewer steps of an epoch here come to the same peak from a higher nominal rate.
    """
    longer = -(-samples // batch) / -(-SENTENCES // BATCH)
    return {**_margin(name, margin), "training": {"schedule": "restarts", "learning_rate": RATE * longer}}


def _peak(samples: int, batch: int) -> float:
    """The highest rate of the released schedule."""
    return RATE * -(-samples // batch) / WARMUP_STEPS


TRIPLETS = {
    "triplet_001": Arm("Triplet 0.01", _margin("triplet", 0.01)),
    "triplet_01": Arm("Triplet 0.1", _margin("triplet", 0.1)),
    "triplet_1": Arm("Triplet 1", _margin("triplet", 1.0)),
    "triplet_5": Arm("Triplet 5", _margin("triplet", 5.0)),
    "triplet_10": Arm("Triplet 10", _margin("triplet", 10.0)),
}
PAIRS = {
    "contrastive_01": Arm("Contrastive 0.1", _margin("contrastive", 0.1), data="pairs"),
    "contrastive_05": Arm("Contrastive 0.5", _margin("contrastive", 0.5), data="pairs"),
    "online_01": Arm("Online contrastive 0.1", _margin("online_contrastive", 0.1), data="pairs"),
    "online_05": Arm("Online contrastive 0.5", _margin("online_contrastive", 0.5), data="pairs"),
    "mnrl": Arm("MNRL", {"loss": {"name": "mnrl", "temperature": 0.05}}, data="same_class"),
}
BUDGET = f"{SENTENCES} sentences, one example of each in every epoch, {EPOCHS} epochs, batches of {BATCH}"
NOTE = (
    f"P and S of {QUERIES} test sentences that search the training sentences, k = 16, uniform weights, the untrained "
    "encoder as reference, after the last epoch, as in the paper, whose pool has five times as many sentences as there "
    "are queries. Its differences are those of all-MiniLM-L6-v2, "
    "the encoder trained here, on phrases of SST-2 with 50,000 examples in each of five epochs."
)
MARGIN_CLAIMS = {
    "margins": Recipe(
        name="margins",
        title="Margins: what the classes gain and what meaning costs",
        paper="margins",
        table="Tables 5 and 6",
        claim="Training on the classes raises polarity at a minor cost of semantic similarity. Triplet loss with a "
        "small margin, 0.1, is best, above larger margins and above the other losses; from 2 on all margins are alike, "
        "since cosine distance never exceeds 2.",
        subsets=KINDS,
        values=VALUES,
        arms={**TRIPLETS, **PAIRS},
        statements=(
            Statement("triplet_01", UNTRAINED, "polarity", paper=0.176),
            Statement(UNTRAINED, "triplet_01", "semantic", paper=0.114),
            Statement("triplet_01", UNTRAINED, "balance", beside=True),
            Statement("triplet_01", "triplet_001", "polarity", paper=0.037),
            Statement("triplet_01", "triplet_5", "polarity", paper=-0.007),
            Statement("triplet_01", "triplet_5", "semantic", paper=0.056),
            Statement("triplet_01", "triplet_5", "balance", beside=True),
            Statement("triplet_5", "triplet_10", "polarity", expects="same", margin=0.01),
            Statement("triplet_5", "triplet_10", "semantic", expects="same", margin=0.01),
            Statement("contrastive_05", UNTRAINED, "polarity", paper=0.121),
            Statement("online_05", UNTRAINED, "polarity", paper=0.135),
            Statement("triplet_01", "contrastive_05", "polarity", paper=0.055),
            Statement("triplet_01", "online_05", "polarity", paper=0.041),
            Statement("triplet_01", "mnrl", "polarity", paper=0.112),
        ),
        metrics=POLARITY_METRICS,
        budget=BUDGET,
        note=NOTE,
        measure=PolarityMeasure(),
    ),
    "margins_few_samples": Recipe(
        name="margins_few_samples",
        title="Few samples, with a correct schedule and with the released one",
        paper="margins",
        table="Table 4",
        claim="Up to 2,000 samples leave polarity as it was; it takes tens of thousands to change it.",
        subsets={kind: KINDS[kind] for kind in ("triplets", "pairs")},
        values=VALUES,
        arms={
            "triplet_01": Arm("Correct schedule", _margin("triplet", 0.1)),
            "released": Arm("Released schedule", _released("triplet", 0.1, SENTENCES, BATCH)),
            "released_full": Arm(
                "Released schedule, the rate of 50,000 samples", _released("triplet", 0.1, FULL_SAMPLES, FULL_BATCH)
            ),
            "released_5": Arm("The same, triplet 5", _released("triplet", 5.0, FULL_SAMPLES, FULL_BATCH)),
            "released_contrastive": Arm(
                "The same, contrastive 0.5",
                _released("contrastive", 0.5, FULL_SAMPLES, FULL_BATCH),
                data="pairs",
            ),
        },
        statements=(
            Statement("released", UNTRAINED, "polarity", expects="same", margin=0.005, paper=0.0),
            Statement("triplet_01", UNTRAINED, "polarity", expects="same", margin=0.005, paper=0.0),
            *(
                Statement(name, UNTRAINED, "polarity", beside=True)
                for name in ("released_full", "released_5", "released_contrastive")
            ),
        ),
        metrics=POLARITY_METRICS,
        budget=f"{BUDGET}: {SENTENCES * EPOCHS:,} samples for every schedule",
        note="The released code warms up over 10,000 steps and starts that anew in each epoch, so few samples never "
        f"leave the first steps of it: with {SENTENCES} in batches of {BATCH} the rate is at most "
        f"{_peak(SENTENCES, BATCH):.1e} instead of {RATE:.0e}, with the 50,000 of its main tables "
        f"{_peak(FULL_SAMPLES, FULL_BATCH):.1e}. Here an epoch's rate rises to each of these, and begins anew with the "
        "next, as does the optimiser. What the table shows of few samples it shows of small rates.",
        measure=PolarityMeasure(),
    ),
}
