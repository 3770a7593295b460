"""Losses in which each query chooses its document among all of the batch, in one direction: MNRL and SimCSE."""

# B pairs in a batch, K extra negative documents, D dimensions

from __future__ import annotations

import torch
from torch import Tensor, nn

from bsc_core.config import MNRLConfig, SimCSEConfig
from bsc_core.errors import InputError
from bsc_core.losses.checks import check_batch
from bsc_core.losses.excluded import excluded_cells, without
from bsc_core.losses.normalization import l2
from bsc_core.losses.parts import LossParts
from bsc_core.losses.rules import Diagonal
from bsc_core.losses.softmax import masked_softmax
from bsc_core.losses.temperature import make_temperature


class _OneDirection(nn.Module):
    """-1/B sum_i log softmax_j(cos(q_i, a_j) / tau)_i over all documents."""

    def __init__(self, config: MNRLConfig | SimCSEConfig, threshold: float = 0.5) -> None:
        super().__init__()
        self.config, self.threshold = config, threshold
        self.temperature = make_temperature(config)

    def _loss(
        self, queries: Tensor, documents: Tensor, counted: Tensor | None = None, excluded: Tensor | None = None
    ) -> Tensor:
        with torch.autocast(queries.device.type, enabled=False):
            precision = torch.promote_types(torch.promote_types(queries.dtype, documents.dtype), torch.float32)
            left, right = l2(queries.to(precision)), l2(documents.to(precision))
            losses, _ = masked_softmax(left, right, self.temperature(), without(Diagonal(counted), excluded))
            return losses.mean() if counted is None else losses.sum() / counted.sum().clamp(min=1)


class MNRLoss(_OneDirection):
    """Multiple negatives ranking loss (Henderson et al., 2017): -1/B sum_i log softmax_j(cos(q_i, a_j) / tau)_i.

    Every other document of the batch is a negative, and so are extra rows, such as one hard negative for each query.
    Equal to sentence-transformers' MultipleNegativesRankingLoss with scale 1 / tau. A pair whose label is not above
    the threshold adds no term, but its document stays a candidate; the mean is over the other pairs.
    """

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch.

        queries: (B, D), B >= 2. documents: (B + K, D). labels: (B,) in [0, 1]; None: all positive. ids: `excluded` as
        for the batch-softmax loss. Returns total and the term `query_to_document`. Raises InputError on other input.
        """
        check_batch(queries, documents, labels, least=2)
        counted = None if labels is None else labels.to(queries.device) > self.threshold
        total = self._loss(queries, documents, counted, excluded_cells(ids, len(queries), len(documents)))
        return LossParts(total, {"query_to_document": total.detach()})


class SimCSELoss(_OneDirection):
    """Unsupervised SimCSE (Gao et al., 2021): a text has to find its own second dropout view among those of others.

    -1/B sum_i log softmax_j(cos(h_i, h'_j) / tau)_i, one direction.
    """

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch.

        queries, documents: (B, D), B >= 2, two views of the same texts. labels are not used. Returns total and the
        term `view_to_view`. Raises InputError on other input.
        """
        check_batch(queries, documents, None, least=2)
        if len(documents) != len(queries):
            raise InputError(f"{len(queries)} first views have {len(documents)} second views; give one for each")
        total = self._loss(queries, documents)
        return LossParts(total, {"view_to_view": total.detach()})
