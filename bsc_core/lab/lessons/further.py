"""Lessons seven to ten: batch order, the combination with MSE, margins, and supervised contrastive learning."""

from __future__ import annotations

from bsc_core.lab.lessons.lesson import Facts, Lesson, decimal, percent, seen
from bsc_core.lab.lessons.margins import FARTHEST, MARGINS, active_share, gradient_difference, margin_batch
from bsc_core.lab.lessons.order import gradient_mass, hardness_of
from bsc_core.lab.presets import preset_batch

MUS = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Shares of BSC that the eighth lesson trains with: MSE alone, three sums, BSC alone."""
MIXES = (0.0, 0.1, 0.5, 0.9)
"""Shares of SCL that the tenth lesson trains with: cross-entropy alone, and three mixes."""
DIMENSIONS = 2
"""The eighth lesson leaves the encoder this few numbers for each text, so that it cannot have everything."""


def order_facts() -> Facts:
    """How hard the negatives of two batch orders are, and what hard and easy batches give to learn from."""
    random, examples = hardness_of("random"), hardness_of("examples")
    hard, easy = (gradient_mass(preset_batch(name)) for name in ("confusable", "easy"))
    return {
        "random": percent(random.closer_share),
        "examples": percent(examples.closer_share),
        "batch_size": str(random.batch_size),
        "hard": decimal(hard, 2),
        "easy": decimal(easy, 2),
        "times": decimal(hard / easy, 1),
        "hard_loss": decimal(seen(preset_batch("confusable")).total),
        "easy_loss": decimal(seen(preset_batch("easy")).total),
    }


def combined_facts() -> Facts:
    """What MSE, BSC and their sum make of order and of value."""
    from bsc_core.lab.lessons.training import trained_on_grades

    found = {mu: trained_on_grades(mu) for mu in MUS}
    mse, both, bsc = found[0.0], found[0.5], found[1.0]
    return {
        "rows": str(mse.rows),
        "dimensions": str(DIMENSIONS),
        "mse_mrr": decimal(mse.mrr),
        "mse_rho": decimal(mse.spearman),
        "bsc_mrr": decimal(bsc.mrr),
        "bsc_rho": decimal(bsc.spearman),
        "both_mrr": decimal(both.mrr),
        "both_rho": decimal(both.spearman),
        "mu": "0.5",
        "low_mrr": decimal(found[0.1].mrr),
    }


def margin_facts() -> Facts:
    """Which triplets still teach under each margin, and how far the gradients of large margins differ."""
    batch = margin_batch()
    small, large = MARGINS[0], [margin for margin in MARGINS if margin > FARTHEST]
    return {
        "small": f"{small:g}",
        "usual": f"{MARGINS[1]:g}",
        "large": ", ".join(f"{margin:g}" for margin in large),
        "farthest": f"{FARTHEST:g}",
        "small_active": percent(active_share(batch, small)),
        "usual_active": percent(active_share(batch, MARGINS[1])),
        "large_active": percent(active_share(batch, large[0])),
        "difference": f"{max(gradient_difference(batch, large[0], margin) for margin in large):g}",
        "usual_difference": decimal(gradient_difference(batch, MARGINS[1], large[0])),
    }


def supervised_facts() -> Facts:
    """What cross-entropy and the supervised contrastive loss make of classes and of neighbours."""
    from bsc_core.lab.lessons.training import trained_on_classes

    alone, mixed = trained_on_classes(MIXES[0]), trained_on_classes(0.5)
    return {
        "premises": str(alone.premises),
        "ce_accuracy": percent(alone.accuracy),
        "ce_nearest": percent(alone.nearest),
        "mix_accuracy": percent(mixed.accuracy),
        "mix_nearest": percent(mixed.nearest),
        "ce_entailed": decimal(alone.cosines[0], 2),
        "ce_neutral": decimal(alone.cosines[1], 2),
        "ce_contradicted": decimal(alone.cosines[2], 2),
        "mix_entailed": decimal(mixed.cosines[0], 2),
        "mix_neutral": decimal(mixed.cosines[1], 2),
        "mix_contradicted": decimal(mixed.cosines[2], 2),
        "mix": "0.5",
    }


FURTHER = (
    Lesson(
        slug="batch-order",
        title="Hard negatives and batch order",
        claim="Who meets whom decides how much there is to learn: in shuffled batches of {batch_size}, {random} of "
        "the queries have a wrong document nearer than their own; grouped with their nearest neighbours, {examples}.",
        move="Switch between the two orders and watch the nearest wrong documents move to the right.",
        question="How much more does a hard batch move the encoder than an easy one of the same size?",
        answer="The pushes and pulls on six easily confused questions add up to {hard}, those on six questions "
        "about different things to {easy}: {times} times as much, at a loss of {hard_loss} against {easy_loss}.",
        facts=order_facts,
        link={"preset": "easy"},
    ),
    Lesson(
        slug="combined-loss",
        title="MSE alone loses the order",
        claim="Squared error fits the grade of each pair and never looks at other documents. With {dimensions} "
        "numbers for each text and {rows} graded pairs, it reaches a rank correlation of {mse_rho} with the "
        "grades, but an MRR of only {mse_mrr} among all documents.",
        move="Move mu from MSE alone to BSC alone and watch the two measures trade places.",
        question="Is there a mu that keeps both the grades and the order?",
        answer="BSC alone has an MRR of {bsc_mrr} and a rank correlation of {bsc_rho}. At a mu of {mu} the sum "
        "keeps {both_mrr} and {both_rho}. (These are the rows it was trained on: the picture shows what each loss "
        "wants, not how it generalises.)",
        facts=combined_facts,
        link={"preset": "near_misses", "watch": "mse"},
    ),
    Lesson(
        slug="margins",
        title="Margins that saturate",
        claim="A cosine distance never exceeds {farthest}, so no triplet can ever meet a larger margin: {large} "
        "are one and the same loss, up to a constant.",
        move="Move the margin and watch how many triplets still pull and push.",
        question="How far apart are the gradients of triplet losses with margins of {large}?",
        answer="Exactly {difference}. At a margin of {small}, {small_active} of the triplets are still active; at "
        "{usual}, {usual_active}; beyond {farthest}, {large_active}, and easy triplets pull as hard as difficult "
        "ones. The gradient at {usual} differs from theirs by {usual_difference}.",
        facts=margin_facts,
        link={"source": "circle", "watch": "contrastive"},
    ),
    Lesson(
        slug="supervised-contrastive",
        title="Supervised contrastive against cross-entropy",
        claim="A classifier on (u, v, |u − v|) can tell the classes of {premises} premises' hypotheses "
        "({ce_accuracy} right) without putting a premise near what it entails: for {ce_nearest} of them the "
        "entailed hypothesis is the nearest.",
        move="Move the share of the contrastive term and watch the three kinds of hypotheses part.",
        question="Does the contrastive term cost the classifier anything here?",
        answer="With a mix of {mix} the classes are {mix_accuracy} right, and the entailed hypothesis is nearest "
        "for {mix_nearest}. Its mean cosine is {mix_entailed}, against {mix_neutral} for neutral and "
        "{mix_contradicted} for contradicting ones; under cross-entropy alone {ce_entailed}, {ce_neutral} and "
        "{ce_contradicted}. (On the rows it was trained on.)",
        facts=supervised_facts,
        link={"preset": "inference"},
    ),
)
