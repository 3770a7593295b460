"""Numbers in the sentences of the lessons, and the batches that the lessons display."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from bsc_core.lab.batch import LabBatch
from bsc_core.lab.lessons.margins import FARTHEST, MARGINS, active_share, gradient_difference, margin_batch
from bsc_core.lab.presets import preset_batch, thumbnails
from bsc_core.lab.settings import explain_batch
from bsc_core.losses.explain import first_largest

Facts = Mapping[str, str]

LOW, USUAL, HIGH = 0.02, 0.1, 2.0
"""Temperatures that the second lesson compares."""
STRETCH = 3.0
"""Factor by which the third lesson lengthens one document."""
LONGER = 2
"""Index of that document."""
MUS = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Shares of BSC that the eighth lesson trains with: MSE alone, three sums, BSC alone."""
MIXES = (0.0, 0.1, 0.5, 0.9)
"""Shares of SCL that the tenth lesson trains with: cross-entropy alone, and three mixes."""
DIMENSIONS = 2
"""Dimensions of the encoder in the eighth lesson, too few to fit everything."""


def decimal(value: float, digits: int = 3) -> str:
    """Format a number for a sentence: `0.917`, with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def percent(value: float) -> str:
    """Format a share for a sentence: `42%`."""
    return f"{100 * value:.0f}%"


def stretched() -> LabBatch:
    """Return the confusable questions with one document's vector lengthened."""
    batch = preset_batch("confusable")
    documents = batch.documents.copy()
    documents[LONGER] *= STRETCH
    return replace(batch, title=f"{batch.title}, document {LONGER + 1} longer", documents=documents)


def in_batch_facts() -> Facts:
    """Count the in-batch negatives, and compute the loss of an encoder whose vectors are all equal."""
    batch = preset_batch("confusable")
    pairs = len(batch)
    equal = replace(batch, queries=np.ones_like(batch.queries), documents=np.ones_like(batch.documents))
    return {
        "pairs": str(pairs),
        "negatives": str(pairs - 1),
        "cells": str(pairs * (pairs - 1)),
        "blind": decimal(explain_batch(equal).query_to_document),
        "blind_share": decimal(1 / pairs),
        "loss": decimal(explain_batch(batch).query_to_document),
    }


def temperature_facts() -> Facts:
    """Compute the effective negatives and the share of the hardest one at three temperatures."""
    batch = preset_batch("confusable")
    temperatures = {"low": LOW, "usual": USUAL, "high": HIGH}
    explained = {name: explain_batch(batch, temperature=tau) for name, tau in temperatures.items()}
    facts = {f"{name}_negatives": decimal(one.effective_negatives, 1) for name, one in explained.items()}
    row = explained["usual"].hardest_row
    shares = {}
    for name, one in explained.items():
        push = np.where(one.row_positives[row], 0.0, one.rows[row])
        shares[f"{name}_share"] = percent(float(push.max() / push.sum()))
    taus = {name: f"{tau:g}" for name, tau in temperatures.items()}
    return facts | shares | taus | {"row": str(row + 1), "negatives": str(len(batch) - 1)}


def normalization_facts() -> Facts:
    """Count which documents are chosen with and without normalization, and the spread of the scores."""
    batch = stretched()
    raw, unit = explain_batch(batch, normalization="none"), explain_batch(batch)
    columns = {
        name: explain_batch(batch, normalization=name, temperature=1.0) for name in ("l2_columns", "range_columns")
    }
    positives = np.arange(len(batch))
    compared = {"unit": explain_batch(batch, temperature=1.0), **columns}
    spread = {name: decimal(float(np.ptp(one.logits)), 1) for name, one in compared.items()}
    return {
        "longer": str(LONGER + 1),
        "stretch": f"{STRETCH:g}",
        "pairs": str(len(batch)),
        "raw_takes": str(int((first_largest(raw.rows) == LONGER).sum())),
        "unit_takes": str(int((first_largest(unit.rows) == LONGER).sum())),
        "raw_right": str(int((first_largest(raw.rows) == positives).sum())),
        "unit_right": str(int((first_largest(unit.rows) == positives).sum())),
        "unit_spread": spread["unit"],
        "columns_spread": spread["l2_columns"],
        "range_spread": spread["range_columns"],
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
        "larger": "document" if rows[pair] < columns[pair] else "query",
    }


def negatives_facts() -> Facts:
    """Compute how much probability labeled negatives take from the right answers."""
    batch = preset_batch("near_misses")
    full, dropped = explain_batch(batch), explain_batch(batch, labeled_negatives=False)
    anchors = np.flatnonzero(full.row_positives.any(axis=1))
    negatives = ~full.row_positives.any(axis=1)
    return {
        "pairs": str(len(batch)),
        "positives": str(len(anchors)),
        "negatives": str(int(negatives.sum())),
        "included": decimal(full.query_to_document),
        "dropped": decimal(dropped.query_to_document),
        "taken": percent(float(full.rows[anchors][:, negatives].sum(axis=1).mean())),
        "own": percent(float(full.rows[anchors, anchors].mean())),
        "own_dropped": percent(float(dropped.rows[anchors, anchors].mean())),
    }


def duplicates_facts() -> Facts:
    """Compute the cost of repeated pairs, and the effect of the two ways to treat them."""
    batch = preset_batch("repeats")
    explained = {name: explain_batch(batch, duplicates=name) for name in ("keep", "merge", "multi_positive")}
    twice = [row for row in range(len(batch)) if batch.query_texts.count(batch.query_texts[row]) > 1]
    unchanged = explained["keep"]
    return {
        "twice": str(len(twice) // 2),
        "keep": decimal(unchanged.total),
        "merge": decimal(explained["merge"].total),
        "multi": decimal(explained["multi_positive"].total),
        "share": percent(float(unchanged.rows[twice, twice].mean())),
        "merged_share": percent(float(explained["merge"].rows[twice, twice].mean())),
        "floor": decimal(float(np.log(2))),
    }


def gradient_mass(batch: LabBatch) -> float:
    """Return the sum of the absolute gradients on the similarities of a batch, at the default settings."""
    return float(np.abs(explain_batch(batch).gradient).sum())


def order_facts() -> Facts:
    """Compare the hardness of two batch orders, and the gradients of hard and easy batches."""
    hardness = thumbnails()["hardness"]
    hard, easy = (gradient_mass(preset_batch(name)) for name in ("confusable", "easy"))
    return {
        "random": percent(hardness["closer_share"]["random"]),
        "nearest": percent(hardness["closer_share"]["nearest"]),
        "batch_size": str(hardness["batch_size"]),
        "hard": decimal(hard, 2),
        "easy": decimal(easy, 2),
        "times": decimal(hard / easy, 1),
        "hard_loss": decimal(explain_batch(preset_batch("confusable")).total),
        "easy_loss": decimal(explain_batch(preset_batch("easy")).total),
    }


def combined_facts() -> Facts:
    """Compare MSE, BSC and their sum by ranking and by correlation."""
    from bsc_core.lab.lessons.training import train_on_grades

    results = {mu: train_on_grades(mu) for mu in MUS}
    mse, both, bsc = results[0.0], results[0.5], results[1.0]
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
        "low_mrr": decimal(results[0.1].mrr),
    }


def margin_facts() -> Facts:
    """Count the active triplets of each margin, and compare the gradients of large margins."""
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
    """Compare cross-entropy with the supervised contrastive loss by accuracy and by neighbors."""
    from bsc_core.lab.lessons.training import train_on_classes

    alone, mixed = train_on_classes(MIXES[0]), train_on_classes(0.5)
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
}
"""Functions that compute the numbers of each lesson."""
