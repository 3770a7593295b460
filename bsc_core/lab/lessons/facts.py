"""Numbers in the sentences of the lessons, and the batches that the lessons display."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from bsc_core.lab.batch import LabBatch
from bsc_core.lab.lessons.batches import HIGH, LOW, SIZES, USUAL, losses_by_size, negative_shares
from bsc_core.lab.lessons.margins import (
    FARTHEST,
    LENGTH,
    MARGINS,
    active_share,
    margin_batch,
)
from bsc_core.lab.lessons.margins import (
    USUAL as USUAL_MARGINS,
)
from bsc_core.lab.lessons.negatives import (
    HARD_WRONG,
    OTHER_WRONG,
    PRIORS,
    equal_temperature,
    kinds_of_negatives,
    masked_batch,
    probabilities,
    pulls,
    removed_counts,
    removed_gradient,
    shares_by_rank,
    weighted,
)
from bsc_core.lab.lessons.training import (
    DIMENSIONS,
    KEPT_SHARE,
    SEEDS,
    STEPS,
    circle_gaps,
    class_results,
    graded_results,
    paraphrase_results,
    question_results,
)
from bsc_core.lab.presets import PRESETS, STRETCH, preset_batch, rows_batch, sample_rows, thumbnails
from bsc_core.lab.settings import LabSettings, explain_batch
from bsc_core.losses.explain import first_largest, normalize

Facts = Mapping[str, str]

LONGER = PRESETS["stretched"].longer or 0
"""Index of the long document of the third lesson."""
SMALL_BATCH = 4
"""Pairs of the small batch of the first lesson's question."""
HARD_LEVEL = 10
"""Number of the edge of the hardness histogram from which the seventh lesson counts negatives as hard."""
SUM = 0.5
"""The share of the eighth and tenth lesson's sentences."""
NARROW, WIDE = 0.0, 0.15
"""Margins of the mask in the eleventh lesson's sentences."""
STRENGTH = 10.0
"""Hardness strength of the twelfth lesson's sentences."""
CUT = 16
"""Dimensions of the thirteenth lesson's sentences."""
PRIOR_PAIR = (0.05, 0.2)
"""Priors of the fourteenth lesson's sentences."""


def decimal(value: float, digits: int = 3) -> str:
    """Format a number for a sentence: `0.917`, with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def percent(value: float) -> str:
    """Format a share for a sentence: `42%`."""
    return f"{100 * value:.0f}%"


def in_batch_facts() -> Facts:
    """Compare the losses of one encoder in a small and a large batch."""
    low, high, losses = SMALL_BATCH, SIZES[-1], losses_by_size()
    return {
        "low": str(low),
        "high": str(high),
        "others": str(high - 1),
        "temperature": f"{LabSettings().temperature:g}",
        "cells": str(high * (high - 1)),
        "low_loss": decimal(float(losses[low].mean())),
        "high_loss": decimal(float(losses[high].mean())),
        "low_blind": decimal(float(np.log(low))),
        "high_blind": decimal(float(np.log(high))),
    }


def typical_query() -> int:
    """Return the row in which the share of the hardest negative changes most between two temperatures."""
    low, high = (negative_shares(tau).max(axis=1) for tau in (LOW, HIGH))
    return int(first_largest((low - high).round(3)))


def spread_query() -> int:
    """Return the row in which the hardest negative has the smallest share at a low temperature."""
    return int(np.argmin(negative_shares(LOW).max(axis=1)))


def temperature_facts() -> Facts:
    """Compute the effective negatives and the loss at three temperatures, and the gaps of the training on the circle.

    low_share, least_share: of the hardest negative of two queries at the low temperature.
    """
    batch = preset_batch("confusable")
    temperatures = {"low": LOW, "usual": USUAL, "high": HIGH}
    explained = {name: explain_batch(batch, temperature=tau, symmetric=False) for name, tau in temperatures.items()}
    row = typical_query()
    largest = negative_shares(LOW).max(axis=1)  # (B,)
    facts = {name: f"{tau:g}" for name, tau in temperatures.items()}
    facts |= {f"{name}_negatives": decimal(one.effective_negatives, 1) for name, one in explained.items()}
    facts |= {"low_share": percent(float(largest[row])), "least_share": percent(float(largest.min()))}
    facts |= {f"{name}_loss": decimal(one.total) for name, one in explained.items()}
    gaps = circle_gaps()
    facts |= {f"{name}_gap": decimal(float(gap), 2) for name, gap in zip(("low", "usual"), gaps[:, -1], strict=True)}
    facts |= {"toy_steps": str(gaps.shape[1] - 1)}
    rows = {"row": row, "spread_row": spread_query()}
    return facts | {name: str(number + 1) for name, number in rows.items()} | {"negatives": str(len(batch) - 1)}


def normalization_facts() -> Facts:
    """Count which documents rank first with and without normalization, and by how much their dot products lead."""
    batch = preset_batch("stretched")
    raw, unit = explain_batch(batch, normalization="none"), explain_batch(batch)
    by_range = explain_batch(batch, normalization="range_columns", temperature=1.0)
    by_column = explain_batch(batch, normalization="l2_columns")
    positives = np.arange(len(batch))
    products = {"unit_lead": unit.similarity, "range_lead": by_range.similarity}
    leads = {name: np.diff(np.sort(rows, axis=1)[:, -2:]).mean() for name, rows in products.items()}
    return {
        "dimensions": str(batch.documents.shape[1]),
        "longer": str(LONGER + 1),
        "stretch": f"{STRETCH:g}",
        "pairs": str(len(batch)),
        "raw_takes": str(int((first_largest(raw.rows) == LONGER).sum())),
        "range_takes": str(int((first_largest(by_range.rows) == LONGER).sum())),
        "columns_takes": str(int((first_largest(by_column.rows) == LONGER).sum())),
        "unit_takes": str(int((first_largest(unit.rows) == LONGER).sum())),
        "raw_right": str(int((first_largest(raw.rows) == positives).sum())),
        "unit_right": str(int((first_largest(unit.rows) == positives).sum())),
        **{name: decimal(float(lead), 2) for name, lead in leads.items()},
    }


def symmetric_facts() -> Facts:
    """Compute both directions of one matrix, and the pair on which they differ most."""
    explained = explain_batch(preset_batch("confusable"))
    assert explained.columns is not None
    rows, columns = np.diag(explained.rows), np.diag(explained.columns)
    pair = int(first_largest(np.abs(rows - columns)))
    return {
        "first": decimal(explained.query_to_document),
        "second": decimal(explained.document_to_query or 0.0),
        "pair": str(pair + 1),
        "row": decimal(float(rows[pair])),
        "column": decimal(float(columns[pair])),
    }


def negatives_facts() -> Facts:
    """Compute how much probability labeled negatives take from the positives, and the loss of a positive query."""
    batch = preset_batch("near_misses")
    full, dropped = explain_batch(batch), explain_batch(batch, labeled_negatives=False)
    anchors = np.flatnonzero(full.row_positives.any(axis=1))
    negatives = ~full.row_positives.any(axis=1)
    cosines = np.diag(full.similarity)
    kinds = {"own": ~negatives, "near": negatives}
    return {
        **{f"{name}_cosine": decimal(float(cosines[rows].mean()), 2) for name, rows in kinds.items()},
        "positives": str(len(anchors)),
        "negatives": str(int(negatives.sum())),
        "included": decimal(float(full.row_losses[anchors].mean())),
        "dropped": decimal(float(dropped.row_losses[anchors].mean())),
        "taken": percent(float(full.rows[anchors][:, negatives].sum(axis=1).mean())),
        "own": percent(float(full.rows[anchors, anchors].mean())),
        "own_dropped": percent(float(dropped.rows[anchors, anchors].mean())),
    }


def duplicates_facts() -> Facts:
    """Compute the cosines to the positive and to the false negative, as a negative and excluded."""
    negative, excluded = paraphrase_results(excluded=False), paraphrase_results(excluded=True)
    change = excluded.own[:, -1].mean() - negative.own[:, -1].mean()
    return {
        "answers": decimal(float(np.mean(answer_cosines())), 2),
        "batches": str(len(negative.own)),
        "steps": str(STEPS),
        "start": decimal(float(negative.other[:, 0].mean()), 2),
        "end": decimal(float(negative.other[:, -1].mean()), 2),
        "end_excluded": decimal(float(excluded.other[:, -1].mean()), 2),
        "own": decimal(float(negative.own[:, -1].mean()), 2),
        "own_change": decimal(abs(float(change)), 2),
        "own_excluded": decimal(float(excluded.own[:, -1].mean()), 2),
    }


def answer_cosines() -> NDArray[np.float64]:
    """Return the cosine of the two answers in different words of each batch of the sixth lesson, before training."""
    documents = normalize(rows_batch("", *sample_rows("paraphrases")).documents, "l2")
    return np.asarray((documents[::2] * documents[1::2]).sum(axis=1), dtype=np.float64)


def gradient_mass(batch: LabBatch) -> float:
    """Return the sum of the absolute gradients on the similarities of a batch, at the default settings."""
    return float(np.abs(explain_batch(batch).gradient).sum())


def hard_share(order: str) -> float:
    """Return the share of the queries of the sample data whose hardest negative is hard in batches of this order."""
    return float(sum(thumbnails()["hardness"]["shares"][order][HARD_LEVEL:]))


def closer_share(order: str) -> float:
    """Return the share of the queries of the sample data with a negative in their batch closer than the positive."""
    return float(thumbnails()["hardness"]["closer_share"][order])


def order_facts() -> Facts:
    """Compare the hardness of two batch orders, and the gradients of hard and easy batches."""
    hardness = thumbnails()["hardness"]
    hard, easy = (gradient_mass(preset_batch(name)) for name in ("confusable", "easy"))
    return {
        "random": percent(hard_share("random")),
        "nearest": percent(hard_share("nearest")),
        **{f"closer_{order}": percent(closer_share(order)) for order in ("random", "nearest")},
        "level": f"{hardness['edges'][HARD_LEVEL]:g}",
        "batch_size": str(hardness["batch_size"]),
        "hard": decimal(hard, 2),
        "easy": decimal(easy, 2),
    }


def combined_facts() -> Facts:
    """Compare MSE, BSC and their sum with the encoder before training: MRR, and squared error of the grades.

    The MRR is of held-out queries; the errors are of training pairs, except held_error of MSE alone and mean_error of
    always predicting the mean grade.
    """
    held_out = sample_rows("graded_held_out")[0]
    assert held_out.label is not None
    shares = {"untrained": None, "mse": 0.0, "both": SUM, "bsc": 1.0}
    mrr = {name: np.mean([one.mrr for one in graded_results(mu, held_out=True)]) for name, mu in shares.items()}
    errors = {name: np.mean([one.error for one in graded_results(mu)]) for name, mu in shares.items()}
    return {
        "mu": f"{SUM:g}",
        "seeds": str(SEEDS),
        "held_out": str(len(np.unique(held_out.query))),
        "held_error": decimal(float(np.mean([one.error for one in graded_results(0.0, held_out=True)]))),
        "mean_error": decimal(float(np.var(held_out.label))),
        **{f"{name}_mrr": decimal(float(value)) for name, value in mrr.items()},
        **{f"{name}_error": decimal(float(value)) for name, value in errors.items()},
    }


def margin_facts() -> Facts:
    """Count the active triplets of each margin, and compare the gradients of large margins."""
    batch = margin_batch()
    large = [margin for margin in MARGINS if margin > FARTHEST]
    return {
        "usual": f"{USUAL_MARGINS[0]:g}",
        "usual_high": f"{USUAL_MARGINS[1]:g}",
        "tiny": f"{MARGINS[0]:g}",
        "huge": f"{large[0]:g}",
        "large": _listed([f"{margin:g}" for margin in large]),
        "farthest": f"{FARTHEST:g}",
        "length": f"{LENGTH:g}",
        "euclidean_farthest": f"{2 * LENGTH:g}",
        "usual_active": percent(active_share(batch, USUAL_MARGINS[0])),
        "triplets": str(len(batch)),
    }


def supervised_facts() -> Facts:
    """Compare cross-entropy with and without the supervised contrastive loss, on training and held-out premises."""
    mixes = {"untrained": None, "ce": 0.0, "mix": SUM}
    nearest = {name: np.mean([one.nearest for one in class_results(mix)]) for name, mix in mixes.items()}
    held_out = {
        name: np.mean([one.nearest for one in class_results(mix, held_out=True)]) for name, mix in mixes.items()
    }
    premises = len(np.unique(sample_rows("classes_held_out")[0].query))
    return {
        "premises": str(len(np.unique(sample_rows("classes")[0].query))),
        "held_out": str(premises),
        "one_premise": percent(1 / premises),
        "seeds": str(SEEDS),
        "weight": f"{SUM:g}",
        **{f"{name}_nearest": percent(float(value)) for name, value in nearest.items()},
        **{f"{name}_held_out": percent(float(value)) for name, value in held_out.items()},
    }


def mask_facts() -> Facts:
    """Count the false negatives and the irrelevant documents that a narrow and a wide margin exclude."""
    kinds = {name: int(cells.sum()) for name, cells in kinds_of_negatives().items()}
    narrow, wide = removed_counts(NARROW), removed_counts(WIDE)
    return {
        "narrow": f"{NARROW:g}",
        "wide": f"{WIDE:g}",
        "false": str(kinds["false negatives"]),
        "wrong": str(kinds[HARD_WRONG] + kinds[OTHER_WRONG]),
        "queries": str(len(masked_batch())),
        "narrow_false": str(narrow["false negatives"]),
        "narrow_wrong": str(narrow[HARD_WRONG] + narrow[OTHER_WRONG]),
        "wide_false": str(wide["false negatives"]),
        "wide_wrong": str(wide[HARD_WRONG] + wide[OTHER_WRONG]),
        "wide_hard": str(wide[HARD_WRONG]),
        "wide_gradient": percent(removed_gradient(WIDE)),
    }


def hardness_facts() -> Facts:
    """Compare the gradient on the hardest negative and the probability of the positive with and without weights."""
    none, strong = shares_by_rank(0.0)[0], shares_by_rank(STRENGTH)[0]
    equal = equal_temperature(STRENGTH)
    of_weights = probabilities(**weighted(STRENGTH))[0]
    of_temperature = probabilities(temperature=equal, symmetric=False)[0]
    return {
        "strength": f"{STRENGTH:g}",
        "usual": f"{LabSettings().temperature:g}",
        "equal": f"{equal:g}",
        "pairs": str(len(none)),
        "none_share": percent(float(none.mean())),
        "strong_share": percent(float(strong.mean())),
        "own": decimal(float(probabilities(symmetric=False)[0].mean()), 2),
        "own_weights": decimal(float(of_weights.mean()), 2),
        "own_temperature": decimal(float(of_temperature.mean()), 2),
    }


def matryoshka_facts() -> Facts:
    """Compare the MRR of cut and full vectors on held-out questions, trained with and without Matryoshka.

    better: numbers of dimensions with which Matryoshka is better than before training for each seed. worse: those with
    which it is worse on average. mixed: the others. trained: queries of a subset.
    """
    kinds = {"untrained": None, "plain": False, "nested": True}
    at = DIMENSIONS.index(CUT)
    facts: dict[str, str] = {}
    mrr = {
        name: np.stack([one.mrr for one in question_results(matryoshka=kind, held_out=True)])
        for name, kind in kinds.items()
    }  # (seeds, dimensions) each
    for name, values in mrr.items():
        mean = values.mean(axis=0)
        facts |= {f"{name}_cut": decimal(float(mean[at])), f"{name}_full": decimal(float(mean[-1]))}
    change = mrr["nested"] - mrr["untrained"]
    ranges = {"better": change.min(axis=0) > 0, "worse": change.mean(axis=0) < 0}
    ranges["mixed"] = ~ranges["better"] & ~ranges["worse"]
    facts |= {
        name: _listed([str(number) for number, is_in in zip(DIMENSIONS, inside, strict=True) if is_in])
        for name, inside in ranges.items()
    }
    return facts | {
        "cut": str(CUT),
        "trained": str(round(KEPT_SHARE * len(np.unique(sample_rows("questions")[0].query)))),
        "dimensions": _listed([str(number) for number in DIMENSIONS[:-1]]),
        "full": str(DIMENSIONS[-1]),
        "held_out": str(len(sample_rows("questions_held_out")[0])),
        "seeds": str(SEEDS),
    }


def debiased_facts() -> Facts:
    """Count the questions at the bound at two priors, and compare gradients with those of no prior and decoupled."""
    low, high = PRIOR_PAIR
    softmax = pulls(0.0)[0]
    hardest = int(softmax.argmax())
    return {
        "hardest": str(hardest + 1),
        "peak": decimal(max(float(pulls(prior)[1][hardest]) for prior in PRIORS), 2),
        "low": f"{low:g}",
        "high": f"{high:g}",
        "pairs": str(len(softmax)),
        "low_bound": str(int((pulls(low)[1] == 0).sum())),
        "high_bound": str(int((pulls(high)[1] == 0).sum())),
        "least": decimal(float(softmax.min()), 2),
        "most": decimal(float(softmax.max()), 2),
        "decoupled": f"{pulls(0.0, decoupled=True)[0].mean():g}",
    }


def _listed(values: list[str]) -> str:
    return f"{', '.join(values[:-1])} and {values[-1]}"


FACTS: dict[str, Callable[[], Facts]] = {
    "in-batch-negatives": in_batch_facts,
    "temperature": temperature_facts,
    "normalization": normalization_facts,
    "symmetrization": symmetric_facts,
    "labeled-negatives": negatives_facts,
    "duplicates": duplicates_facts,
    "batch-order": order_facts,
    "combined-loss": combined_facts,
    "margins": margin_facts,
    "supervised-contrastive": supervised_facts,
    "mask-margin": mask_facts,
    "hardness-weights": hardness_facts,
    "matryoshka": matryoshka_facts,
    "debiased": debiased_facts,
}
"""Functions that compute the numbers of each lesson."""
