"""Supervised contrastive loss on NLI (SCL): entailed hypotheses against all hypotheses of the batch."""

# B pairs in a batch, A anchors, D dimensions; r rows, c columns of a tile

import torch
from torch import Tensor

from bsc_core.config import SoftmaxLossConfig, SupConLossConfig
from bsc_core.errors import InputError
from bsc_core.losses.base import Loss, LossParts, promoted
from bsc_core.losses.classification import SoftmaxLoss, class_ids
from bsc_core.losses.kernel.candidate_rules import TileRule, excluded_cells, without
from bsc_core.losses.kernel.normalization import l2
from bsc_core.losses.kernel.softmax import masked_softmax
from bsc_core.losses.kernel.temperature import make_temperature

BLOCK = 256
"""Anchors whose candidates are sampled at a time."""


class SupConLoss(Loss):
    """(1 - mix) * cross-entropy + mix * SCL, equations 2 and 3 of the SCL paper.

        SCL = -1/A sum_i 1/N_i+ sum_{j in P_i} log( exp(f_i . f_j / tau) / sum_{k in P_i or N_i} exp(f_i . f_k / tau) )

    Anchors i are the premises of entailed pairs; P_i are the entailed hypotheses of the premise, N_i all other
    hypotheses of the batch. max_positives and max_negatives sample from them with torch's generator. A batch without
    entailed pairs has an SCL of 0. Classes are given as for `SoftmaxLoss`; without `query_ids`, every row is a
    separate premise. Only the first B documents are used. Terms: `supcon` and, if mix < 1, `softmax`.
    """

    min_pairs = 2
    reads_labels = False
    config: SupConLossConfig

    def __init__(self, config: SupConLossConfig, threshold: float = 0.5, dimensions: int | None = None) -> None:
        super().__init__(config, threshold)
        self.temperature = make_temperature(config)
        head = SoftmaxLossConfig(num_classes=config.num_classes)
        self.classifier = SoftmaxLoss(head, dimensions=dimensions) if config.mix < 1 else None

    def _compute(self, queries: Tensor, documents: Tensor, labels: Tensor | None, ids: dict[str, Tensor]) -> LossParts:
        classes = class_ids(labels, ids, len(queries), max(self.config.num_classes, self.config.positive_class + 1))
        hypotheses = documents[: len(queries)]
        contrast = self._contrast(queries, hypotheses, classes.to(queries.device), ids)
        terms = {"supcon": contrast.detach()}
        if self.classifier is None:
            return LossParts(contrast, terms)
        classified = self.classifier(queries, hypotheses, classes=classes)
        total = (1 - self.config.mix) * classified.total + self.config.mix * contrast
        return LossParts(total, terms | classified.terms)

    def _contrast(self, queries: Tensor, hypotheses: Tensor, classes: Tensor, ids: dict[str, Tensor]) -> Tensor:
        entailed = classes == self.config.positive_class  # (B,)
        premises = ids.get("query_ids", torch.arange(len(queries), device=queries.device))
        if premises.shape != (len(queries),):
            raise InputError(f"query_ids are {tuple(premises.shape)} for {len(queries)} pairs; give one for each pair")
        anchors = _anchor_rows(entailed, premises, self.config.anchor)  # (A,)
        if not len(anchors):
            return queries.float().sum() * 0
        left, right = promoted(queries[anchors], hypotheses)
        if self.config.normalization == "l2":
            left, right = l2(left), l2(right)
        rule = self._rule(anchors, entailed, premises)
        cells = _of_anchors(excluded_cells(ids, len(queries), len(hypotheses)), anchors)
        losses, _ = masked_softmax(left, right, self.temperature(), without(rule, cells))
        return losses.mean()

    def _rule(self, anchors: Tensor, entailed: Tensor, premises: Tensor) -> TileRule:
        """Return positives and candidates of each anchor; samples are taken once, here."""
        hypotheses = _Hypotheses(anchors, entailed, premises)
        max_positives, max_negatives = self.config.max_positives, self.config.max_negatives
        positives = None if max_positives is None else hypotheses.sample(max_positives - 1, positive=True)
        negatives = None if max_negatives is None else hypotheses.sample(max_negatives, positive=False)

        def tile(rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
            related = hypotheses.positives(rows, columns)
            chosen = (
                related if positives is None else _cells(positives[rows], columns) | hypotheses.paired(rows, columns)
            )
            if negatives is not None:
                return chosen, _cells(negatives[rows], columns)
            return chosen, None if positives is None else ~related

        return tile


class _Hypotheses:
    """Positives and negatives of each anchor among the hypotheses."""

    def __init__(self, anchors: Tensor, entailed: Tensor, premises: Tensor) -> None:
        self.anchors, self.entailed, self.premises = anchors, entailed, premises

    def positives(self, rows: slice, columns: slice) -> Tensor:
        """Return bool (r, c), the entailed hypotheses of the anchor's premise."""
        same = self.premises[self.anchors[rows], None] == self.premises[columns]
        return same & self.entailed[columns]

    def paired(self, rows: slice, columns: slice) -> Tensor:
        """Return bool (r, c), the hypothesis in the anchor's row."""
        return self.anchors[rows, None] == torch.arange(columns.start, columns.stop, device=self.anchors.device)

    def sample(self, number: int, *, positive: bool) -> Tensor:
        """Sample hypotheses of each anchor without replacement, (A, number or fewer); -1 if there are no more.

        The paired hypothesis is not sampled.
        """
        everything = slice(0, len(self.premises))
        number = min(number, len(self.premises))
        sampled = []
        for start in range(0, len(self.anchors), BLOCK):
            rows = slice(start, min(start + BLOCK, len(self.anchors)))
            related = self.positives(rows, everything)
            pool = related & ~self.paired(rows, everything) if positive else ~related
            keys = torch.rand(pool.shape).to(pool.device).masked_fill_(~pool, -1.0)  # the generator of the run
            values, positions = keys.topk(number, dim=1)
            sampled.append(positions.masked_fill_(values < 0, -1).to(torch.int32))
        return torch.cat(sampled)


def _anchor_rows(entailed: Tensor, premises: Tensor, anchor: str) -> Tensor:
    """Return the anchor rows: every entailed one, or the first of each premise."""
    rows = entailed.nonzero().squeeze(1)
    if anchor == "row" or not len(rows):
        return rows
    numbers: Tensor = torch.unique(premises[rows], return_inverse=True)[1]
    positions = torch.arange(len(rows), device=rows.device)
    first = positions.new_full((int(numbers.max()) + 1,), len(rows)).scatter_reduce(0, numbers, positions, "amin")
    return rows[first.sort().values]


def _of_anchors(cells: Tensor | None, anchors: Tensor) -> Tensor | None:
    """Return the excluded cells (E, 2) of the anchors (A,), with the anchor's index instead of its row."""
    if cells is None:
        return None
    where = (cells[:, :1] == anchors).nonzero()  # (matches, 2): cell and anchor index
    return torch.stack([where[:, 1], cells[where[:, 0], 1]], dim=1)


def _cells(sampled: Tensor, columns: slice) -> Tensor:
    """Return bool (r, c), the sampled hypotheses (r, number) in a tile's columns; -1 is none."""
    width = columns.stop - columns.start
    inside = (sampled >= columns.start) & (sampled < columns.stop)
    cells = sampled.new_zeros((len(sampled), width + 1), dtype=torch.bool)  # the last column collects the others
    cells.scatter_(1, torch.where(inside, sampled - columns.start, width).long(), True)
    return cells[:, :width]
