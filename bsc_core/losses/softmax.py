"""The one masked-softmax kernel: how much of each row's probability misses its positives."""

# B queries, M candidates, D dimensions

from __future__ import annotations

import torch
from torch import Tensor

from bsc_core.losses.rules import Diagonal, Rule
from bsc_core.losses.tiled import TiledSoftmax

SMALL_SCORES = 128 * 128
"""Up to this size a matrix of plain in-batch scores is left to torch's own cross-entropy, which starts faster."""


def logits(left: Tensor, right: Tensor, temperature: Tensor | float) -> Tensor:
    """Scale the similarity of every left with every right.

    left: (B, D), right: (M, D), already normalised. temperature: tau > 0. Returns (B, M); the diagonal holds the given
    pairs.
    """
    return left @ right.T / temperature  # (B, M)


def softmax_losses(scores: Tensor, positives: Tensor, candidates: Tensor | None = None) -> Tensor:
    """Negative log probability of each row's positives, averaged over them outside the logarithm.

    For row i with positives P and candidates C (None: every column; positives always are candidates):
    log sum_{j in C} exp(s_ij) - mean_{j in P} s_ij, equation 2 of the BSC paper, with the averaging of its equation 3
    (Khosla et al., 2020) for rows with several positives.

    scores: (B, M), finite. positives, candidates: bool (B, M). Returns (B,), each >= 0 when P has one column. A row
    without positives is masked as in equation 5: exactly 0, with no gradient.
    """
    counts = positives.sum(dim=1)  # (B,)
    counted = counts > 0
    allowed = scores
    if candidates is not None:
        allowed = scores.masked_fill(~(candidates | positives), -torch.inf)
    attracted = torch.where(positives, scores, torch.zeros_like(scores)).sum(dim=1) / counts.clamp(min=1)
    losses = allowed.logsumexp(dim=1) - attracted
    return torch.where(counted, losses, torch.zeros_like(losses))


def masked_softmax(
    left: Tensor,
    right: Tensor,
    temperature: Tensor | float,
    rows: Rule,
    columns: Rule | None = None,
    *,
    tile: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """`softmax_losses` of logits(left, right, temperature) without the whole matrix, in one or both directions.

    left: (B, D), right: (M, D), already normalised, float32 or float64. temperature: tau > 0, a number or a scalar
    tensor, which then gets its gradient. rows: positives and candidates of each row. columns: the same for each column
    choosing among the rows, its tiles in the same (rows, columns) orientation. tile: rows and columns of a tile; None
    chooses.

    Returns the losses of the rows (B,) and, with `columns`, of the columns (M,). Memory: O((B + M) D) and one tile;
    a matrix small enough is kept for the gradient instead of computed twice. Differentiable once.
    """
    if tile is None and len(left) * len(right) <= SMALL_SCORES:
        found = _small(left, right, temperature, rows, columns)
        if found is not None:
            return found
    tau = torch.as_tensor(temperature, dtype=left.dtype, device=left.device)
    row_losses, column_losses = TiledSoftmax.apply(left, right, tau, rows, columns, tile)  # type: ignore[no-untyped-call]
    return row_losses, column_losses


def _small(
    left: Tensor, right: Tensor, temperature: Tensor | float, rows: Rule, columns: Rule | None
) -> tuple[Tensor, Tensor | None] | None:
    """The losses of a small batch whose rules are diagonals over all candidates; None for others."""
    rules = [rows] if columns is None else [rows, columns]
    if len(left) > len(right) or (columns is not None and len(left) != len(right)):
        return None
    if not all(isinstance(rule, Diagonal) and rule.candidates is None for rule in rules):
        return None
    scores = logits(left, right, temperature)
    own = torch.arange(len(left), device=left.device)
    losses = []
    for rule, seen in zip(rules, (scores, scores.T), strict=False):
        found = torch.nn.functional.cross_entropy(seen, own, reduction="none")
        counted = rule.counted if isinstance(rule, Diagonal) else None
        losses.append(found if counted is None else torch.where(counted, found, 0.0))
    return losses[0], losses[1] if columns is not None else None
