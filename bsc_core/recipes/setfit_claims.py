"""SetFit's pairs beside triplets of nearest neighbours, on the same budget; in the paper the budgets differ."""

from __future__ import annotations

from bsc_core.recipes.claims import UNTRAINED, Arm, Recipe, Statement
from bsc_core.recipes.margin_claims import BATCH, EPOCHS, KINDS, SENTENCES, TRIPLETS, VALUES
from bsc_core.recipes.measures_polarity import POLARITY_METRICS, PolarityMeasure
from bsc_core.recipes.subsets import Subset

STEPS = EPOCHS * -(-SENTENCES // BATCH)
RANDOM_PAIRS = Subset("sst2", KINDS["triplets"].parts, pairs=2)
SETFIT_CLAIMS = {
    "setfit": Recipe(
        name="setfit",
        title="SetFit's pairs, on the same budget",
        paper="margins",
        table="Tables 5 and 6",
        claim="Triplets of nearest neighbours with a margin of 0.1 give more polarity than SetFit's random pairs, and "
        "keep more semantic similarity; SetFit's pairs raise polarity above the untrained encoder's.",
        subsets={"triplets": KINDS["triplets"], "random_pairs": RANDOM_PAIRS},
        values=VALUES,
        arms={
            "triplet_01": TRIPLETS["triplet_01"],
            "setfit": Arm(
                "SetFit's pairs, MSE", {"loss": {"name": "mse"}, "training": {"steps": STEPS}}, data="random_pairs"
            ),
        },
        statements=(
            Statement("triplet_01", "setfit", "polarity", paper=0.027),
            Statement("triplet_01", "setfit", "semantic", paper=0.081),
            Statement("setfit", UNTRAINED, "polarity", paper=0.149),
        ),
        metrics=POLARITY_METRICS,
        budget=f"the same {SENTENCES} sentences, {STEPS} steps of {BATCH} examples for every arm",
        note="The paper gives SetFit 1,250 labelled sentences and a classifier that is trained with the encoder, and "
        "its own losses 168,000 examples at a rate of at most 2.3e-6. Here all have the same sentences, steps and "
        "rate, and of SetFit the part that trains the encoder by pairs.",
        measure=PolarityMeasure(),
    ),
}
