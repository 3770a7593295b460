"""In-batch softmax losses in one direction: MNRL and SimCSE."""

# B pairs in a batch, K extra negative documents, D dimensions

from torch import Tensor

from bsc_core.config import MNRLConfig, SimCSEConfig
from bsc_core.errors import InputError
from bsc_core.losses.base import Loss, LossParts, promoted
from bsc_core.losses.kernel.masks import Diagonal, excluded_cells, without
from bsc_core.losses.kernel.normalization import l2
from bsc_core.losses.kernel.softmax import masked_softmax
from bsc_core.losses.kernel.temperature import make_temperature


class _OneDirection(Loss):
    """-1/B sum_i log softmax_j(cos(q_i, a_j) / tau)_i over all documents."""

    min_pairs = 2

    def __init__(self, config: MNRLConfig | SimCSEConfig, threshold: float = 0.5) -> None:
        super().__init__(config, threshold)
        self.temperature = make_temperature(config)

    def _loss(
        self, queries: Tensor, documents: Tensor, counted: Tensor | None = None, excluded: Tensor | None = None
    ) -> Tensor:
        left, right = (l2(vectors) for vectors in promoted(queries, documents))
        losses, _ = masked_softmax(left, right, self.temperature(), without(Diagonal(counted), excluded))
        return losses.mean() if counted is None else losses.sum() / counted.sum().clamp(min=1)


class MNRLoss(_OneDirection):
    """Multiple negatives ranking loss (Henderson et al., 2017): -1/B sum_i log softmax_j(cos(q_i, a_j) / tau)_i.

    Every other document of the batch is a negative, including extra rows such as one hard negative for each query.
    Equal to sentence-transformers' MultipleNegativesRankingLoss with scale 1 / tau. A pair whose label is not above
    the threshold adds no term, but its document stays a candidate; the mean is over the other pairs.

    Term: `query_to_document`.
    """

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        excluded = excluded_cells(ids, len(queries), len(documents))
        total = self._loss(queries, documents, self._positive(labels, queries), excluded)
        return LossParts(total, {"query_to_document": total.detach()})


class SimCSELoss(_OneDirection):
    """Unsupervised SimCSE (Gao et al., 2021): the positive of a text is its second dropout view.

    -1/B sum_i log softmax_j(cos(h_i, h'_j) / tau)_i, one direction. `queries` are the first views, (B, D), and
    `documents` the second ones, (B, D). Term: `view_to_view`.
    """

    reads_labels = False

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        if len(documents) != len(queries):
            raise InputError(f"{len(queries)} first views have {len(documents)} second views; give one for each")
        total = self._loss(queries, documents)
        return LossParts(total, {"view_to_view": total.detach()})
