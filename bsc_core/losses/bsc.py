"""The batch-softmax contrastive loss (BSC): every other pair of the batch is a negative, in both directions."""

# B pairs in a batch, K extra negative documents, D dimensions

from __future__ import annotations

import torch
from torch import Tensor, nn

from bsc_core.config import BSCLossConfig
from bsc_core.errors import InputError
from bsc_core.losses.normalization import NORMALIZATIONS
from bsc_core.losses.parts import LossParts
from bsc_core.losses.softmax import logits, softmax_losses
from bsc_core.losses.temperature import make_temperature


class BSCLoss(nn.Module):
    """Batch-softmax contrastive loss, equations 1, 2 and 5 of the BSC paper.

    With s_ij = q_i . a_j / tau and y_i = 1 where the label is above the threshold (strictly):

        L0 = -1/B sum_i y_i log softmax_j(s_ij)_i        each query chooses among the documents
        L1 = -1/B sum_i y_i log softmax_j(s_ji)_i        each document a_i chooses among the queries
        total = (L0 + L1) / 2   (reduction "mean", the released code)   or   L0 + L1   ("sum", equation 1)

    Not symmetric: total = L0. Pairs labelled negative add no term of their own, but stay in every denominator and in
    the count B (equation 5); with labelled_negatives off, the loss is that of the batch without them. A batch of
    negatives alone gives 0.

    threshold: used where the config names none. `temperature.value` is tau now; `temperature.log_temperature` is the
    parameter when it is learned, and is part of the state dict.
    """

    def __init__(self, config: BSCLossConfig, threshold: float = 0.5) -> None:
        super().__init__()
        self.config = config
        self.threshold = threshold if config.threshold is None else config.threshold
        self.temperature = make_temperature(config.temperature, learn=config.learn_temperature)

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch.

        queries: (B, D), B >= 2. documents: (B + K, D); row i < B belongs to query i, further rows are negatives of
        every query in L0. labels: (B,) in [0, 1]; None: all positive. ids: text and group ids, unused by this loss.

        Computed in float32 (float64 for float64 input), whatever autocast says. Returns total and the terms
        `query_to_document` (L0) and, when symmetric, `document_to_query` (L1). Raises InputError on other shapes.
        """
        _check_shapes(queries, documents, labels)
        with torch.autocast(queries.device.type, enabled=False):
            scores = self._scores(queries, documents)  # (B, B + K)
            is_positive = self._positives(labels, scores)  # (B,)
            directions = {"query_to_document": self._direction(scores, is_positive)}
            if self.config.symmetric:
                paired = scores[:, : len(queries)]  # (B, B): an extra negative asks nothing
                directions["document_to_query"] = self._direction(paired.T, is_positive)
            total = torch.stack(list(directions.values())).sum()
            if self.config.reduction == "mean":
                total = total / len(directions)
        return LossParts(total, {name: term.detach() for name, term in directions.items()})

    def _scores(self, queries: Tensor, documents: Tensor) -> Tensor:
        precision = torch.promote_types(torch.promote_types(queries.dtype, documents.dtype), torch.float32)
        normalize = NORMALIZATIONS[self.config.normalization]
        return logits(normalize(queries.to(precision)), normalize(documents.to(precision)), self.temperature())

    def _positives(self, labels: Tensor | None, scores: Tensor) -> Tensor:
        if labels is None:
            return torch.ones(len(scores), dtype=torch.bool, device=scores.device)
        return labels.to(scores.device) > self.threshold

    def _direction(self, scores: Tensor, is_positive: Tensor) -> Tensor:
        """L0 of scores (B, M), M >= B, whose column i belongs to row i; L1 is L0 of the transposed scores."""
        pairs, columns = scores.shape
        positives = torch.eye(pairs, columns, dtype=torch.bool, device=scores.device) & is_positive[:, None]
        if self.config.labelled_negatives:
            return softmax_losses(scores, positives).sum() / pairs
        extra = is_positive.new_ones(columns - pairs)
        candidates = torch.cat([is_positive, extra]).expand(pairs, columns)
        return softmax_losses(scores, positives, candidates).sum() / is_positive.sum().clamp(min=1)


def _check_shapes(queries: Tensor, documents: Tensor, labels: Tensor | None) -> None:
    if queries.ndim != 2 or documents.ndim != 2 or queries.shape[1] != documents.shape[1]:
        raise InputError(
            f"queries are {tuple(queries.shape)} and documents {tuple(documents.shape)};"
            " give two matrices with the same number of columns"
        )
    if len(queries) < 2:
        raise InputError(
            f"a batch holds {len(queries)} pair(s); it must hold at least 2, since the other pairs are the negatives"
        )
    if len(documents) < len(queries):
        raise InputError(f"{len(queries)} queries have {len(documents)} documents; give each query its own document")
    if labels is not None and labels.shape != (len(queries),):
        raise InputError(f"labels are {tuple(labels.shape)} for {len(queries)} pairs; give one label a pair")
