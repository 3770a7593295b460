"""Masked softmax: negative log probability of the positives among the candidates of each row."""

# B queries, M candidates, D dimensions

from dataclasses import dataclass

import torch
from torch import Tensor

from bsc_core.losses.kernel.candidate_rules import Diagonal, Rule
from bsc_core.losses.kernel.negatives import Negatives
from bsc_core.losses.kernel.tiled import TiledSoftmax

SMALL_SCORES = 128 * 128
"""Matrices up to this size use torch's cross-entropy, which has less overhead."""


def logits(left: Tensor, right: Tensor, temperature: Tensor | float) -> Tensor:
    """Return similarities divided by the temperature, (B, M); the diagonal holds the given pairs.

    Args:
        left: (B, D), normalized.
        right: (M, D), normalized.
        temperature: tau > 0.
    """
    return left @ right.T / temperature  # (B, M)


def masked_softmax(
    left: Tensor,
    right: Tensor,
    temperature: Tensor | float,
    rows: Rule,
    columns: Rule | None = None,
    *,
    tile: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Compute the negative log probability of the positives of each row, in one or both directions.

    For row i with positives P and candidates C: log sum_{j in C} exp(s_ij) - mean_{j in P} s_ij, equation 2 of the BSC
    paper, with the averaging of its equation 3 (Khosla et al., 2020) for rows with several positives. Positives are
    always candidates. A row without positives gives exactly 0 and no gradient (equation 5). The full matrix is not
    stored.

    Memory is O((B + M) D) plus one tile; a small matrix is stored for the backward pass instead of recomputed.
    Differentiable once.

    Args:
        left: (B, D), normalized, float32 or float64.
        right: (M, D), normalized.
        temperature: tau > 0, a number or a scalar tensor, which then receives its gradient.
        rows: Mask rule with the rows as anchors.
        columns: Mask rule with the columns as anchors, its tiles in the same (rows, columns) orientation; None for
            one direction.
        tile: Rows and columns of a tile; None to choose.

    Returns:
        The losses of the rows (B,) and, with `columns`, of the columns (M,).
    """
    if tile is None and len(left) * len(right) <= SMALL_SCORES:
        losses = _small(left, right, temperature, rows, columns)
        if losses is not None:
            return losses
    row_sums, column_sums = softmax_sums(left, right, temperature, rows, columns, tile=tile)
    return row_sums.losses(), None if column_sums is None else column_sums.losses()


@dataclass(frozen=True)
class SoftmaxSums:
    """Sums of the softmax of each anchor, (anchors,) each.

    Attributes:
        log_sum: Log-sum-exp of the logits of the candidates; -inf for an anchor without candidates, 0 for one that
            does not count.
        positive: Mean logit of the positives; 0 without positives.
        negatives: Number of negatives; None for plain negatives, where it is not counted.
        removed: Number of negatives that the mask removed; None without a mask.
    """

    log_sum: Tensor
    positive: Tensor
    negatives: Tensor | None
    removed: Tensor | None

    def losses(self) -> Tensor:
        """Return log_sum - positive, at least 0."""
        losses = self.log_sum - self.positive
        return losses + (losses.clamp(min=0.0) - losses).detach()  # below 0 is rounding


def softmax_sums(
    left: Tensor,
    right: Tensor,
    temperature: Tensor | float,
    rows: Rule,
    columns: Rule | None = None,
    *,
    negatives: Negatives | None = None,
    tile: int | None = None,
    calls: int = 1,
) -> tuple[SoftmaxSums, SoftmaxSums | None]:
    """Return the parts of `masked_softmax` for denominators that are put together from several of them.

    Args:
        left: (B, D), normalized, float32 or float64.
        right: (M, D), normalized.
        temperature: tau > 0, a number or a scalar tensor.
        rows: Mask rule with the rows as anchors.
        columns: Mask rule with the columns as anchors, its tiles in the same (rows, columns) orientation.
        negatives: Treatment of the negatives; None: plain.
        tile: Rows and columns of a tile; None to choose.
        calls: Number of calls whose scores are stored for the backward pass at the same time; they share its memory.

    Returns:
        The sums of the rows, and, with `columns`, of the columns.
    """
    tau = torch.as_tensor(temperature, dtype=left.dtype, device=left.device)
    results = TiledSoftmax.apply(left, right, tau, rows, columns, negatives, tile, calls)  # type: ignore[no-untyped-call]
    return SoftmaxSums(*results[:4]), None if columns is None else SoftmaxSums(*results[4:])


def _small(
    left: Tensor, right: Tensor, temperature: Tensor | float, rows: Rule, columns: Rule | None
) -> tuple[Tensor, Tensor | None] | None:
    """Return the losses of a small batch with diagonal rules over all candidates; None for other rules."""
    rules = [rows] if columns is None else [rows, columns]
    if len(left) > len(right) or (columns is not None and len(left) != len(right)):
        return None
    if not all(isinstance(rule, Diagonal) and rule.candidates is None for rule in rules):
        return None
    scores = logits(left, right, temperature)
    target = torch.arange(len(left), device=left.device)
    losses = []
    for rule, oriented in zip(rules, (scores, scores.T), strict=False):
        loss = torch.nn.functional.cross_entropy(oriented, target, reduction="none")
        counted = rule.counted if isinstance(rule, Diagonal) else None
        losses.append(loss if counted is None else torch.where(counted, loss, 0.0))
    return losses[0], losses[1] if columns is not None else None
