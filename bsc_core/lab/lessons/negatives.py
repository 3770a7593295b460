"""The numbers of the lessons on masks, hardness weights and the debiased loss, from stored vectors."""

# B pairs

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.lab.batch import LabBatch
from bsc_core.lab.presets import preset_batch, rows_batch, sample_rows
from bsc_core.lab.settings import LabSettings, explain_batch
from bsc_core.types import Mask

MASK_MARGINS = tuple(np.round(np.arange(-0.1, 0.51, 0.05), 2).tolist())
"""Margins of the mask."""
STRENGTHS = tuple(map(float, range(21)))
"""Strengths of the hardness weights."""
PRIORS = tuple(np.round(np.arange(0, 0.251, 0.005), 3).tolist())
"""Priors of the debiased loss."""
HARD_WRONG, OTHER_WRONG = "most similar irrelevant documents", "other irrelevant documents"
RANKS = ("hardest negative", "second hardest negative", "other negatives")


@cache
def masked_batch() -> LabBatch:
    """Return sixteen pairs: five couples with the same answer in different words, then six confusable questions."""
    couples, others = rows_batch("", *sample_rows("paraphrases")), preset_batch("confusable")
    return LabBatch(
        title="Relevant documents in other words",
        queries=np.concatenate([couples.queries, others.queries]),
        documents=np.concatenate([couples.documents, others.documents]),
        labels=np.ones(len(couples) + len(others)),
        query_texts=couples.query_texts + others.query_texts,
        document_texts=couples.document_texts + others.document_texts,
    )


@cache
def kinds_of_negatives() -> dict[str, Mask]:
    """Return the cells (B, B) of each kind of negative of `masked_batch`.

    A false negative is the document of the other query of a couple. The other documents are irrelevant.
    """
    couples, pairs = len(sample_rows("paraphrases")[0]), len(masked_batch())
    rows = np.arange(pairs)
    false = np.zeros((pairs, pairs), dtype=bool)
    false[rows[:couples], rows[:couples] ^ 1] = True
    wrong = ~false & ~np.eye(pairs, dtype=bool)
    hard = np.zeros_like(wrong)
    hard[rows, np.where(wrong, cosine_gaps(), -np.inf).argmax(axis=1)] = True
    return {"false negatives": false, HARD_WRONG: hard, OTHER_WRONG: wrong & ~hard}


@cache
def cosine_gaps() -> NDArray[np.float64]:
    """Return (B, B) the cosine of each cell of `masked_batch` minus that of the query's positive."""
    similarity = explain_batch(masked_batch()).similarity
    gaps: NDArray[np.float64] = similarity - np.diag(similarity)[:, None]
    return gaps


@cache
def masked_cells(margin: float) -> Mask:
    """Return the cells (B, B) of `masked_batch` that `mask = "self"` excludes."""
    return explain_batch(masked_batch(), mask="self", mask_margin=margin).row_masked


def removed_counts(margin: float) -> dict[str, int]:
    """Return how many negatives of each kind the mask excludes."""
    return {name: int((cells & masked_cells(margin)).sum()) for name, cells in kinds_of_negatives().items()}


def removed_gradient(margin: float) -> float:
    """Return the share of the gradient on the irrelevant documents of `masked_batch` that is on the excluded ones.

    The gradient is that of the loss without a mask, with the queries as anchors.
    """
    push = explain_batch(masked_batch(), symmetric=False).gradient
    kinds = kinds_of_negatives()
    wrong = kinds[HARD_WRONG] | kinds[OTHER_WRONG]
    return float(push[wrong & masked_cells(margin)].sum() / push[wrong].sum())


def weighted(strength: float) -> dict[str, Any]:
    """Return the changes of the lab's settings for hardness weights, with the queries as anchors; 0 for none."""
    hardness = "in_batch_negatives" if strength else "none"
    return {"hardness": hardness, "hardness_strength": strength, "symmetric": False}


def equal_temperature(strength: float) -> float:
    """Return the temperature that divides the gradient on the negatives as hardness weights do.

    The weights add strength * cosine to cosine / tau, which is the cosine divided by 1 / (1 / tau + strength).
    """
    return 1 / (1 / LabSettings().temperature + strength)


def probabilities(**changes: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return of each confusable question the probability of its positive (B,) and of its negatives (B, B - 1).

    The negatives are in descending order.
    """
    explained = explain_batch(preset_batch("confusable"), **changes)
    negatives = np.where(explained.row_positives, 0.0, explained.rows)
    return np.diag(explained.rows), -np.sort(-negatives, axis=1)[:, :-1]


@cache
def shares_by_rank(strength: float) -> NDArray[np.float64]:
    """Return (3, B) the share of each of RANKS in the gradient on the negatives of each confusable question."""
    _, negatives = probabilities(**weighted(strength))
    shares = negatives / negatives.sum(axis=1, keepdims=True)
    return np.stack([shares[:, 0], shares[:, 1], shares[:, 2:].sum(axis=1)])


def logit_gradient(prior: float, *, decoupled: bool = False) -> NDArray[np.float64]:
    """Return (B, B) the gradient of the loss of each easy question with respect to its logits, one row each."""
    explained = explain_batch(preset_batch("easy"), debiased_prior=prior, decoupled=decoupled, symmetric=False)
    gradient: NDArray[np.float64] = explained.gradient * len(explained.gradient) * LabSettings().temperature
    return gradient


@cache
def pulls(prior: float, *, decoupled: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return for each easy question the absolute gradients on its positive and on all its negatives, (B,) each.

    They are those of `logit_gradient`, so that the softmax has one minus the probability of the positive.
    """
    gradient = np.abs(logit_gradient(prior, decoupled=decoupled))
    positive = np.diag(gradient)
    return positive, gradient.sum(axis=1) - positive
