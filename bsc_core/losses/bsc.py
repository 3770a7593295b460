"""The batch-softmax contrastive loss (BSC): every other pair of the batch is a negative, in both directions."""

# B pairs in a batch, K extra negative documents, D dimensions

from __future__ import annotations

import torch
from torch import Tensor, nn

from bsc_core.config import BSCLossConfig
from bsc_core.errors import InputError
from bsc_core.losses.checks import check_batch
from bsc_core.losses.duplicates import Side
from bsc_core.losses.excluded import excluded_cells, swapped, without
from bsc_core.losses.normalization import NORMALIZATIONS
from bsc_core.losses.parts import LossParts
from bsc_core.losses.rules import Diagonal, Rule, turned
from bsc_core.losses.softmax import masked_softmax
from bsc_core.losses.temperature import make_temperature


class BSCLoss(nn.Module):
    """Batch-softmax contrastive loss, equations 1 to 5 of the BSC paper.

    With s_ij = q_i . a_j / tau and y_i = 1 where the label is above the threshold (strictly):

        L0 = -1/B sum_i y_i log softmax_j(s_ij)_i        each query chooses among the documents
        L1 = -1/B sum_i y_i log softmax_j(s_ji)_i        each document a_i chooses among the queries
        total = (L0 + L1) / 2   (reduction "mean", the released code)   or   L0 + L1   ("sum", equation 1)

    Not symmetric: total = L0. Pairs labelled negative add no term of their own, but stay in every denominator and in
    the count B (equation 5); average "positives" divides by the number of positive pairs instead. With
    labelled_negatives off, the loss is that of the batch without them. A batch of negatives alone gives 0. What
    repeated texts do is told in `bsc_core.losses.duplicates`.

    threshold: used where the config names none. `temperature.value` is tau now; when it is learned its parameter is
    part of the state dict.
    """

    def __init__(self, config: BSCLossConfig, threshold: float = 0.5) -> None:
        super().__init__()
        self.config = config
        self.threshold = threshold if config.threshold is None else config.threshold
        self.temperature = make_temperature(config)

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch.

        queries: (B, D), B >= 2. documents: (B + K, D); row i < B belongs to query i, further rows are negatives of
        every query in L0. labels: (B,) in [0, 1]; None: all positive. ids: `query_ids` and `document_ids`, (B,), equal
        where texts are equal; needed unless duplicates is "keep"; `excluded`, (E, 2), places of a query and a document
        that may not choose each other, such as false negatives that a person marked.

        Computed in float32 (float64 for float64 input), whatever autocast says. Returns total and the terms
        `query_to_document` (L0) and, when symmetric, `document_to_query` (L1). Raises InputError on other input.
        """
        check_batch(queries, documents, labels, least=2)
        with torch.autocast(queries.device.type, enabled=False):
            losses = self._losses(queries, documents, labels, ids)
            directions = {"query_to_document": losses[0], "document_to_query": losses[1]}
            terms = {name: term for name, term in directions.items() if term is not None}
            total = torch.stack(list(terms.values())).sum()
            if self.config.reduction == "mean":
                total = total / len(terms)
        return LossParts(total, {name: term.detach() for name, term in terms.items()})

    def _losses(
        self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """L0 and, when symmetric, L1."""
        precision = torch.promote_types(torch.promote_types(queries.dtype, documents.dtype), torch.float32)
        normalize, detach = NORMALIZATIONS[self.config.normalization], self.config.detach_statistics
        left, right = normalize(queries.to(precision), detach), normalize(documents.to(precision), detach)
        is_positive = None if labels is None else labels.to(queries.device) > self.threshold  # (B,)
        asking, answering = self._rules(is_positive, len(queries), len(documents), ids)
        cells = excluded_cells(ids, len(queries), len(documents))
        asking, answering = without(asking, cells), without(answering, swapped(cells, len(queries)))
        tau = self.temperature()
        if not self.config.symmetric:
            first, second = masked_softmax(left, right, tau, asking)
        elif len(documents) == len(queries):
            first, second = masked_softmax(left, right, tau, asking, turned(answering))
        else:  # an extra negative asks nothing
            first, _ = masked_softmax(left, right, tau, asking)
            second, _ = masked_softmax(right[: len(left)], left, tau, answering)
        count = len(queries) if is_positive is None or self._counts_all else is_positive.sum().clamp(min=1)
        return first.sum() / count, None if second is None else second.sum() / count

    @property
    def _counts_all(self) -> bool:
        return self.config.average == "batch" and self.config.labelled_negatives

    def _rules(self, is_positive: Tensor | None, pairs: int, choices: int, ids: dict[str, Tensor]) -> tuple[Rule, Rule]:
        """What each query may choose among the documents, and each document among the queries."""
        left_out = is_positive is not None and not self.config.labelled_negatives
        asking = is_positive if left_out else None  # (B,)
        answering = _with_extras(is_positive, choices) if left_out and is_positive is not None else None  # (B + K,)
        if self.config.duplicates == "keep":
            return Diagonal(is_positive, answering), Diagonal(is_positive, asking)
        query, document = _text_ids(ids, pairs, choices, self.config.duplicates)
        counted = torch.ones(pairs, dtype=torch.bool, device=query.device) if is_positive is None else is_positive
        first = Side(query, document, counted, answering)
        second = Side(document[:pairs], query, counted, asking)
        if self.config.duplicates == "merge":
            return first.merged(), second.merged()
        return first.multi_positive(), second.multi_positive()


def _with_extras(is_positive: Tensor, choices: int) -> Tensor:
    """bool (B + K,): an extra negative may always be chosen."""
    return torch.cat([is_positive, is_positive.new_ones(choices - len(is_positive))])


def _text_ids(ids: dict[str, Tensor], pairs: int, choices: int, mode: str) -> tuple[Tensor, Tensor]:
    """Ids of the queries (B,) and of all documents (B + K,); an extra document without an id repeats no other."""
    missing = [name for name in ("query_ids", "document_ids") if name not in ids]
    if missing:
        raise InputError(
            f"duplicates is {mode} and {' and '.join(missing)} are missing; give ids equal for equal texts"
        )
    query, document = ids["query_ids"], ids["document_ids"]
    if query.shape != (pairs,) or document.shape not in ((pairs,), (choices,)):
        raise InputError(
            f"query_ids are {tuple(query.shape)} and document_ids {tuple(document.shape)} for {pairs} pairs"
            f" and {choices} documents; give one id for each"
        )
    if len(document) < choices:
        lowest = document.min() - 1
        extra = lowest - torch.arange(choices - len(document), device=document.device)
        document = torch.cat([document, extra])
    return query, document
