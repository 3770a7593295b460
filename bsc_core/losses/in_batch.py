"""Losses whose negatives are the other pairs of the batch: their shared computation, MNRL and SimCSE."""

# B pairs in a batch, K extra negative documents, D dimensions, G width of the guide

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bsc_core.config import DirectionName, InBatchSection, MNRLConfig, SimCSEConfig
from bsc_core.errors import InputError
from bsc_core.losses.base import Loss, LossParts, is_finite, promoted
from bsc_core.losses.kernel.candidate_rules import (
    Diagonal,
    Rule,
    SameSide,
    all_document_ids,
    excluded_cells,
    labeled_cells,
    swapped,
    transpose_rule,
    without,
)
from bsc_core.losses.kernel.negatives import Cosines, FalseNegativeMask, HardnessWeights, Negatives, debiased
from bsc_core.losses.kernel.normalization import l2
from bsc_core.losses.kernel.softmax import SoftmaxSums, masked_softmax, softmax_sums
from bsc_core.losses.kernel.temperature import make_temperature

TERMS: dict[DirectionName, str] = {
    "query_to_doc": "query_to_document",
    "doc_to_query": "document_to_query",
    "query_to_query": "query_to_query",
    "doc_to_doc": "document_to_document",
}
"""Names of the terms in `LossParts`."""


@dataclass(frozen=True)
class Pairs:
    """A batch as the softmax sees it."""

    left: Tensor  # (B, D) normalized queries
    right: Tensor  # (B + K, D) normalized documents
    is_positive: Tensor | None  # bool (B,); None for all
    query_rule: Rule  # queries as anchors, documents as candidates
    document_rule: Rule  # documents as anchors, queries as candidates
    ids: dict[str, Tensor]


class InBatchLoss(Loss):
    """Softmax of each pair over the batch, with the treatment of its negatives.

    With s_ij the similarity of query i and document j, z_ij = s_ij / tau, and N_i the negatives of anchor i:

        loss_i = log( e^{z_ii} + sum_{j in N_i} e^{z_ij + h_ij} ) - z_ii

    - `directions` and `partition`: N_i are the other documents (query_to_doc), the queries of document i
      (doc_to_query), the other queries (query_to_query) or the other documents of document i (doc_to_doc). "joint" has
      one sum over all of them, and the positive once for each of the first two; "per_direction" one for each of these.
      Equal to sentence-transformers' MultipleNegativesRankingLoss with the same names.
    - `mask`: a negative is excluded from N_i where the cosine g_ij is above the limit g_ii - margin (absolute) or
      g_ii - margin |g_ii| (relative). g is of the trained model ("self") or of the guide model, whose vectors are
      `guide_queries`, (B, G), and `guide_documents`, (B + K, G). A cell that is labeled negative is not excluded; one
      that is labeled positive is always excluded. Equal to sentence-transformers' GISTEmbedLoss (Solatorio, 2024,
      2402.16829) with the directions query_to_doc, query_to_query and doc_to_doc. A row that loses all negatives
      gives 0.
    - `hardness`: h_ij = strength * cos_ij without gradient for the chosen negatives of query i, else 0; only in the
      direction query_to_doc, as in sentence-transformers (Lan et al., 2025, 2503.04812).
    - `decoupled`: e^{z_ii} leaves the denominator (Yeh et al., 2021, 2110.06848).
    - `debiased_prior`: see `bsc_core.losses.kernel.negatives.debiased`.

    Terms: one for each direction, or `joint`; with a mask `masked_negatives`, the mean number of negatives that the
    mask excluded from an anchor, and `rows_without_negatives`, the number of anchors that lost all.
    """

    min_pairs = 2
    config: Any

    def __init__(self, config: InBatchSection, threshold: float = 0.5) -> None:
        super().__init__(config, threshold)
        self.temperature = make_temperature(config)

    @property
    def directions(self) -> tuple[DirectionName, ...]:
        """Directions whose candidates are in the denominators; the first is query_to_doc."""
        return getattr(self.config, "directions", ()) or ("query_to_doc",)

    def _normalized(self, vectors: Tensor) -> Tensor:
        return l2(vectors)

    def _rules(self, is_positive: Tensor | None, pairs: int, choices: int, ids: dict[str, Tensor]) -> tuple[Rule, Rule]:
        """Return the mask rules with queries and with documents as anchors."""
        return Diagonal(is_positive), Diagonal(is_positive)

    def _count(self, is_positive: Tensor | None, pairs: int) -> Tensor | int:
        """Return the number that the sum over the anchors is divided by."""
        return pairs if is_positive is None else is_positive.sum().clamp(min=1)

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        batch = self._pairs(queries, documents, labels, ids)
        plain = self._plain(batch)
        losses, facts = self._adjusted(batch, queries, documents) if plain is None else (plain, {})
        count = self._count(batch.is_positive, len(queries))
        terms = {name: values.sum() / count for name, values in losses.items()}
        total = torch.stack(list(terms.values())).sum()
        if getattr(self.config, "reduction", "mean") == "mean":
            total = total / len(terms)
        return LossParts(total, {name: term.detach() for name, term in terms.items()} | facts)

    def _pairs(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> Pairs:
        left, right = (self._normalized(vectors) for vectors in promoted(queries, documents))
        is_positive = self._positive(labels, queries)  # (B,)
        query_rule, document_rule = self._rules(is_positive, len(left), len(right), ids)
        cells = excluded_cells(ids, len(left), len(right))
        if "document_ids" in ids:
            ids = ids | {"document_ids": all_document_ids(ids["document_ids"], len(right))}
        if self.config.mask != "none" and {"query_ids", "document_ids"} <= ids.keys():
            labeled = labeled_cells(is_positive, ids["query_ids"], ids["document_ids"])
            if len(labeled[0]):
                cells = labeled[0] if cells is None else torch.cat([cells, labeled[0]])
            given = [part for part in (ids.get("labeled_negative"), labeled[1]) if part is not None and len(part)]
            if given:
                ids = ids | {"labeled_negative": torch.cat(given)}
        query_rule, document_rule = without(query_rule, cells), without(document_rule, swapped(cells, len(left)))
        return Pairs(left, right, is_positive, query_rule, document_rule, ids)

    def _plain(self, batch: Pairs) -> dict[str, Tensor] | None:
        """Return the losses of the anchors, (B,) by term, of the plain softmax; None for another treatment."""
        config, directions, tau = self.config, self.directions, self.temperature()
        if config.mask != "none" or config.hardness != "none" or config.decoupled or config.debiased_prior:
            return None
        if len(directions) > 1 and config.partition == "joint":
            return None
        left, right = batch.left, batch.right
        if len(directions) == 1:
            losses = [masked_softmax(left, right, tau, batch.query_rule)[0]]
        elif len(left) == len(right):
            first, second = masked_softmax(left, right, tau, batch.query_rule, transpose_rule(batch.document_rule))
            losses = [first] if second is None else [first, second]
        else:  # an extra negative is no anchor
            losses = [masked_softmax(left, right, tau, batch.query_rule)[0]]
            losses.append(masked_softmax(right[: len(left)], left, tau, batch.document_rule)[0])
        return {TERMS[name]: values for name, values in zip(directions, losses, strict=True)}

    def _adjusted(
        self, batch: Pairs, queries: Tensor, documents: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the losses of the anchors, (B,) by term, and facts about the mask."""
        sums = self._sums(batch, queries, documents)
        positive = sums["query_to_doc"].positive
        counted = torch.ones_like(positive, dtype=torch.bool) if batch.is_positive is None else batch.is_positive
        if len(sums) > 1 and self.config.partition == "joint":
            losses = {"joint": self._loss(sums, positive)}
        else:
            losses = {
                TERMS[name]: self._loss({name: part}, part.positive if name == "doc_to_query" else positive)
                for name, part in sums.items()
            }
        facts = {}
        if self.config.mask != "none":
            removed = sum_of(part.removed for part in sums.values())
            lost_all = (removed > 0) & (sum_of(part.negatives for part in sums.values()) == 0) & counted
            facts["masked_negatives"] = removed[counted].sum() / counted.sum().clamp(min=1)
            facts["rows_without_negatives"] = lost_all.sum().to(removed.dtype)
        return {name: torch.where(counted, values, 0.0) for name, values in losses.items()}, facts

    def _loss(self, sums: dict[DirectionName, SoftmaxSums], positive: Tensor) -> Tensor:
        """Return the losses of the anchors, (B,), with the candidates of all sums in one denominator."""
        count = sum_of(part.negatives for part in sums.values())  # (B,)
        smallest = torch.finfo(positive.dtype).min / 4  # for -inf, whose gradient would be NaN
        logs = torch.stack([torch.where(part.log_sum.isfinite(), part.log_sum, smallest) for part in sums.values()])
        log_sum = logs[0] if len(logs) == 1 else logs.logsumexp(dim=0)
        if self.config.debiased_prior:
            prior, tau = self.config.debiased_prior, self.temperature()
            log_sum = debiased(torch.where(count > 0, log_sum, 0.0), positive, count.clamp(min=1), prior, tau)
            copies = len({"query_to_doc", "doc_to_query"} & sums.keys())  # of the positive in the denominator
            if copies and not self.config.decoupled:
                log_sum = torch.logaddexp(log_sum, positive + math.log(copies))
        return torch.where(count > 0, log_sum - positive, 0.0)

    def _sums(self, batch: Pairs, queries: Tensor, documents: Tensor) -> dict[DirectionName, SoftmaxSums]:
        """Return the sums of each direction, with the B pairs as anchors."""
        config, tau, pairs = self.config, self.temperature(), len(batch.left)
        left, right = batch.left, batch.right
        mask, hardness = self._mask(batch, queries, documents), self._hardness(batch, queries, documents)
        removes_positive = config.decoupled or config.debiased_prior > 0
        negatives = Negatives(mask, hardness, decoupled=removes_positive)
        sums: dict[DirectionName, SoftmaxSums] = {}
        both = "doc_to_query" in self.directions
        shared = both and len(right) == pairs
        calls = len(self.directions) - shared
        if shared:
            columns = transpose_rule(batch.document_rule)
            first, second = softmax_sums(left, right, tau, batch.query_rule, columns, negatives=negatives, calls=calls)
            sums = {"query_to_doc": first} if second is None else {"query_to_doc": first, "doc_to_query": second}
        else:
            sums["query_to_doc"] = softmax_sums(left, right, tau, batch.query_rule, negatives=negatives, calls=calls)[0]
            if both:  # an extra negative is no anchor
                reverse = replace(negatives, mask=None if mask is None else mask.transposed(pairs), hardness=None)
                sums["doc_to_query"] = softmax_sums(
                    right[:pairs], left, tau, batch.document_rule, negatives=reverse, calls=calls
                )[0]
        for name, side, ids in (("query_to_query", left, "query_ids"), ("doc_to_doc", right, "document_ids")):
            if name in self.directions:
                rule = SameSide(
                    pairs, len(side), left.device, self._candidates(name, batch), self._same_text(ids, batch)
                )
                of_side = None if mask is None else mask.within("left" if side is left else "right", pairs)
                treatment = Negatives(of_side, decoupled=True, all_anchors=True)
                sums[name] = softmax_sums(side[:pairs], side, tau, rule, negatives=treatment, calls=calls)[0]
        return sums

    def _mask(self, batch: Pairs, queries: Tensor, documents: Tensor) -> FalseNegativeMask | None:
        """Return the false-negative mask."""
        config, pairs = self.config, len(batch.left)
        if config.mask == "none":
            return None
        cosines = self._cosines(batch, queries, documents)
        if config.mask == "guide":
            guide = guide_vectors(batch.ids, pairs, len(batch.right))
            cosines = Cosines.for_limits(l2(guide[0]), l2(guide[1]))
        left = batch.left if cosines.left is None else cosines.left
        right = batch.right if cosines.right is None else cosines.right
        of_positive: Tensor = (left * right[:pairs]).sum(dim=1).detach()  # (B,)
        margin = config.mask_margin if config.mask_margin_kind == "absolute" else config.mask_margin * of_positive.abs()
        return FalseNegativeMask(cosines, of_positive - margin, batch.ids.get("labeled_negative"))

    def _hardness(self, batch: Pairs, queries: Tensor, documents: Tensor) -> HardnessWeights | None:
        """Return the hardness weights."""
        kind, pairs, choices = self.config.hardness, len(batch.left), len(batch.right)
        if kind == "none" or not self.config.hardness_strength:
            return None
        return HardnessWeights(
            self._cosines(batch, queries, documents), self.config.hardness_strength, kind, pairs, choices
        )

    def _cosines(self, batch: Pairs, queries: Tensor, documents: Tensor) -> Cosines:
        """Return the cosines of the model, without gradient."""
        if getattr(self.config, "normalization", "l2") == "l2":
            return Cosines()
        left, right = promoted(queries, documents)
        return Cosines(l2(left.detach()), l2(right.detach()))

    def _candidates(self, direction: str, batch: Pairs) -> Tensor | None:
        """Return bool, the texts of one side that are candidates; None for all."""
        return None

    def _same_text(self, name: str, batch: Pairs) -> Tensor | None:
        """Return the text ids of one side if an equal text is no candidate."""
        ids = batch.ids.get(name)
        unused = ids is None or (self.config.mask == "none" and getattr(self.config, "duplicates", "keep") == "keep")
        return None if unused else ids


def sum_of(values: Iterable[Tensor | None]) -> Tensor:
    """Return the sum of tensors (B,)."""
    return torch.stack([value for value in values if value is not None]).sum(dim=0)


def guide_vectors(ids: dict[str, Tensor], pairs: int, choices: int) -> tuple[Tensor, Tensor]:
    """Return the guide's vectors of queries (B, G) and documents (B + K, G).

    Raises:
        InputError: They are missing or have another number of rows.
    """
    missing = [name for name in ("guide_queries", "guide_documents") if name not in ids]
    if missing:
        raise InputError(
            f"mask is guide and {' and '.join(missing)} are missing; give the guide's vectors of the texts"
        )
    queries, documents = promoted(ids["guide_queries"], ids["guide_documents"])
    if queries.shape[0] != pairs or documents.shape[0] != choices or queries.shape[1:] != documents.shape[1:]:
        raise InputError(
            f"guide_queries are {tuple(queries.shape)} and guide_documents {tuple(documents.shape)} for {pairs} queries"
            f" and {choices} documents; give one vector for each, of one width"
        )
    if not (is_finite(queries) and is_finite(documents)):
        raise InputError("the vectors of the guide contain NaN or infinity; choose another mask_guide")
    return queries.detach(), documents.detach()


class MNRLoss(InBatchLoss):
    """Multiple negatives ranking loss (Henderson et al., 2017): -1/B sum_i log softmax_j(cos(q_i, a_j) / tau)_i.

    Every other document of the batch is a negative, including extra rows such as one hard negative for each query.
    Equal to sentence-transformers' MultipleNegativesRankingLoss with scale 1 / tau. A pair whose label is not above
    the threshold adds no term, but its document stays a candidate; the mean is over the other pairs.

    Terms: see `InBatchLoss`.
    """

    config: MNRLConfig


class SimCSELoss(InBatchLoss):
    """Unsupervised SimCSE (Gao et al., 2021): the positive of a text is its second dropout view.

    -1/B sum_i log softmax_j(cos(h_i, h'_j) / tau)_i, one direction. `queries` are the first views, (B, D), and
    `documents` the second ones, (B, D). Term: `view_to_view`; see `InBatchLoss` for those of a mask.
    """

    reads_labels = False
    config: SimCSEConfig

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        if len(documents) != len(queries):
            raise InputError(f"{len(queries)} first views have {len(documents)} second views; give one for each")
        ids = {name: values for name, values in ids.items() if name != "excluded"}  # cells of the documents
        parts = super()._compute(queries, documents, None, ids)
        terms = dict(parts.terms)
        return LossParts(parts.total, {"view_to_view": terms.pop("query_to_document"), **terms})
