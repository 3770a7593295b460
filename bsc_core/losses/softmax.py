"""The one masked-softmax kernel: how much of each row's probability misses its positives."""

# B queries, M candidates, D dimensions

from __future__ import annotations

import torch
from torch import Tensor


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
