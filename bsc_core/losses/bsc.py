"""Batch-softmax contrastive loss (BSC): the other pairs of a batch are the negatives, in both directions."""

# B pairs in a batch, K extra negative documents, D dimensions

import torch
from torch import Tensor

from bsc_core.config import DIRECTIONS, BSCLossConfig, DirectionName
from bsc_core.errors import InputError
from bsc_core.losses.in_batch import InBatchLoss, Pairs
from bsc_core.losses.kernel.candidate_rules import Diagonal, Direction, Rule, all_document_ids
from bsc_core.losses.kernel.normalization import NORMALIZATIONS


class BSCLoss(InBatchLoss):
    """Batch-softmax contrastive loss, equations 1 to 5 of the BSC paper.

    With s_ij = q_i . a_j / tau and y_i = 1 where the label is above the threshold (strictly):

        L0 = -1/B sum_i y_i log softmax_j(s_ij)_i        queries as anchors, documents as candidates
        L1 = -1/B sum_i y_i log softmax_j(s_ji)_i        documents as anchors, queries as candidates
        total = (L0 + L1) / 2   (reduction "mean", the released code)   or   L0 + L1   ("sum", equation 1)

    With `symmetric` off, total = L0. Pairs labeled negative add no term, but stay in every denominator and in the
    count B (equation 5); average "positives" divides by the number of positive pairs instead. With
    `labeled_negatives` off, they are removed from the batch. A batch without positives gives 0. For repeated texts
    see `bsc_core.losses.kernel.candidate_rules.Direction`; they need `query_ids` and `document_ids` unless duplicates
    is "keep".

    Further directions and the treatment of the negatives (masks, hardness weights and others): see `InBatchLoss`.

    Terms: `query_to_document` (L0) and, if symmetric, `document_to_query` (L1); see `InBatchLoss` for others.

    Attributes:
        temperature: Module whose `value` is the current tau; a learned temperature is part of the state dict.
    """

    config: BSCLossConfig

    @property
    def directions(self) -> tuple[DirectionName, ...]:
        """Directions whose candidates are in the denominators; by `symmetric` unless the config names them."""
        return self.config.directions or DIRECTIONS[: 2 if self.config.symmetric else 1]

    def _normalized(self, vectors: Tensor) -> Tensor:
        return NORMALIZATIONS[self.config.normalization](vectors, self.config.detach_statistics)

    def _count(self, is_positive: Tensor | None, pairs: int) -> Tensor | int:
        return pairs if is_positive is None or self._counts_all else is_positive.sum().clamp(min=1)

    def _candidates(self, direction: str, batch: Pairs) -> Tensor | None:
        if batch.is_positive is None or self.config.labeled_negatives:
            return None
        return batch.is_positive if direction == "query_to_query" else _with_extras(batch.is_positive, len(batch.right))

    @property
    def _counts_all(self) -> bool:
        return self.config.average == "batch" and self.config.labeled_negatives

    def _rules(self, is_positive: Tensor | None, pairs: int, choices: int, ids: dict[str, Tensor]) -> tuple[Rule, Rule]:
        """Return the mask rules with queries and with documents as anchors."""
        dropped = is_positive is not None and not self.config.labeled_negatives
        queries = is_positive if dropped else None  # (B,) candidates
        documents = _with_extras(is_positive, choices) if dropped and is_positive is not None else None  # (B + K,)
        if self.config.duplicates == "keep":
            return Diagonal(is_positive, documents), Diagonal(is_positive, queries)
        query, document = _text_ids(ids, pairs, choices, self.config.duplicates)
        counted = torch.ones(pairs, dtype=torch.bool, device=query.device) if is_positive is None else is_positive
        first = Direction(query, document, counted, documents)
        second = Direction(document[:pairs], query, counted, queries)
        if self.config.duplicates == "merge":
            return first.merged(), second.merged()
        return first.multi_positive(), second.multi_positive()


def _with_extras(is_positive: Tensor, choices: int) -> Tensor:
    """Return bool (B + K,); extra negatives are always candidates."""
    return torch.cat([is_positive, is_positive.new_ones(choices - len(is_positive))])


def _text_ids(ids: dict[str, Tensor], pairs: int, choices: int, mode: str) -> tuple[Tensor, Tensor]:
    """Return ids of the queries (B,) and of all documents (B + K,); extra documents without an id get a new one."""
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
    return query, all_document_ids(document, choices)
