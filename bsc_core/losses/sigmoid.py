"""Sigmoid pair loss (SigLIP): each cell of the batch is a binary decision."""

# B pairs in a batch, K extra negative documents, D dimensions; r rows of a block

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.utils.checkpoint import checkpoint

from bsc_core.config import SigmoidLossConfig
from bsc_core.losses.base import Loss, LossParts, promoted
from bsc_core.losses.kernel.candidate_rules import excluded_cells
from bsc_core.losses.kernel.negatives import cells_in_tile
from bsc_core.losses.kernel.normalization import l2
from bsc_core.losses.kernel.temperature import make_temperature

BLOCK_SCORES = 1024 * 4096
"""Scores of the queries whose row block is computed at a time; blocks are recomputed in the backward pass."""


class SigmoidLoss(Loss):
    """-1/B sum_i sum_j log sigmoid(z_ij (cos(q_i, a_j) / tau + b)), Zhai et al., 2023 (2303.15343), equation 1.

    z_ij is 1 for a pair whose label is above the threshold and -1 for all other cells, extra documents included; cells
    in `excluded` add nothing. tau and b are learned by default.

    Term: `sigmoid`.

    Attributes:
        temperature: Module whose `value` is the current tau.
        bias: b, a parameter or a buffer.
    """

    config: SigmoidLossConfig

    def __init__(self, config: SigmoidLossConfig, threshold: float = 0.5) -> None:
        super().__init__(config, threshold)
        self.temperature = make_temperature(config)
        bias = torch.tensor(config.bias)
        self.bias: Tensor
        if config.learn_bias:
            self.bias = nn.Parameter(bias)
        else:
            self.register_buffer("bias", bias)

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        left, right = (l2(vectors) for vectors in promoted(queries, documents))
        is_positive = self._positive(labels, queries)  # (B,)
        cells = excluded_cells(ids, len(left), len(right))
        tau = torch.as_tensor(self.temperature(), dtype=left.dtype, device=left.device)
        block = max(1, BLOCK_SCORES // len(right))
        total = left.new_zeros(())
        for start in range(0, len(left), block):
            rows = slice(start, min(start + block, len(left)))
            signs = _signs(rows, len(right), is_positive, cells, left)
            if len(left) <= block:
                total = total + _block_loss(left, right, tau, self.bias, signs)
            else:
                part = checkpoint(_block_loss, left[rows], right, tau, self.bias, signs, use_reentrant=False)
                total = total + part
        total = total / len(left)
        return LossParts(total, {"sigmoid": total.detach()})


def _signs(rows: slice, width: int, is_positive: Tensor | None, cells: Tensor | None, like: Tensor) -> Tensor:
    """Return z of a block of rows, (r, B + K): 1 for positives, 0 for excluded cells, else -1."""
    signs = like.new_full((rows.stop - rows.start, width), -1.0)
    signs[:, rows].fill_diagonal_(1.0)
    if is_positive is not None:
        signs[:, rows].diagonal().copy_(torch.where(is_positive[rows], 1.0, -1.0))
    if cells is not None:
        signs[cells_in_tile(cells, rows, slice(0, width))] = 0.0
    return signs


def _block_loss(left: Tensor, right: Tensor, tau: Tensor, bias: Tensor, signs: Tensor) -> Tensor:
    """Return the sum of softplus(-z (s / tau + b)) over a block; a sign of 0 adds nothing."""
    logits = left @ right.T / tau + bias
    return (softplus(-signs * logits) * signs.abs()).sum()
