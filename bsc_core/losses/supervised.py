"""Supervised contrastive loss on NLI (SCL): a premise has to find what it entails among all hypotheses of the batch."""

# B pairs in a batch, A anchors, D dimensions

from __future__ import annotations

import torch
from torch import Tensor, nn

from bsc_core.config import SoftmaxLossConfig, SupConLossConfig
from bsc_core.errors import InputError
from bsc_core.losses.checks import check_batch
from bsc_core.losses.classification import SoftmaxLoss, class_ids
from bsc_core.losses.excluded import excluded_cells, without
from bsc_core.losses.normalization import l2
from bsc_core.losses.parts import LossParts
from bsc_core.losses.rules import TileRule
from bsc_core.losses.softmax import masked_softmax
from bsc_core.losses.temperature import make_temperature

BLOCK = 256
"""Anchors whose candidates are drawn at a time."""


class SupConLoss(nn.Module):
    """(1 - mix) * cross-entropy + mix * SCL, equations 2 and 3 of the SCL paper.

        SCL = -1/A sum_i 1/N_i+ sum_{j in P_i} log( exp(f_i . f_j / tau) / sum_{k in P_i and N_i} exp(f_i . f_k / tau) )

    Anchors i are the premises of entailed pairs; P_i holds the own hypothesis and other entailed hypotheses of the
    premise, N_i every other hypothesis of the batch. max_positives and max_negatives draw from them at random, with
    torch's generator, so that a seeded run repeats. A batch without entailment has an SCL of 0.
    """

    def __init__(self, config: SupConLossConfig, threshold: float = 0.5, dimensions: int | None = None) -> None:
        super().__init__()
        self.config, self.threshold = config, threshold
        self.temperature = make_temperature(config)
        head = SoftmaxLossConfig(num_classes=config.num_classes)
        self.classifier = SoftmaxLoss(head, dimensions=dimensions) if config.mix < 1 else None

    def forward(self, queries: Tensor, documents: Tensor, labels: Tensor | None = None, **ids: Tensor) -> LossParts:
        """The loss of one batch.

        queries: (B, D) premises, B >= 2; documents: (B + K, D) hypotheses, of which the first B count. ids: `classes`
        as for the classifier, and `query_ids` (B,), equal for one premise; without them every row is a premise of its
        own. Returns total and the terms `supcon` and, where mix < 1, `softmax`. Raises InputError on other input.
        """
        check_batch(queries, documents, None, least=2)
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
            raise InputError(f"query_ids are {tuple(premises.shape)} for {len(queries)} pairs; give one a pair")
        anchors = _anchor_rows(entailed, premises, self.config.anchor)  # (A,)
        if not len(anchors):
            return queries.float().sum() * 0
        with torch.autocast(queries.device.type, enabled=False):
            precision = torch.promote_types(torch.promote_types(queries.dtype, hypotheses.dtype), torch.float32)
            left, right = queries[anchors].to(precision), hypotheses.to(precision)
            if self.config.normalization == "l2":
                left, right = l2(left), l2(right)
            rule = self._rule(anchors, entailed, premises)
            cells = _of_anchors(excluded_cells(ids, len(queries), len(hypotheses)), anchors)
            losses, _ = masked_softmax(left, right, self.temperature(), without(rule, cells))
            return losses.mean()

    def _rule(self, anchors: Tensor, entailed: Tensor, premises: Tensor) -> TileRule:
        """Chosen positives and candidates of each anchor, a tile at a time; samples are drawn here, once."""
        kin = _Kin(anchors, entailed, premises)
        most_positives, most_negatives = self.config.max_positives, self.config.max_negatives
        positives = None if most_positives is None else kin.draw(most_positives - 1, positive=True)
        negatives = None if most_negatives is None else kin.draw(most_negatives, positive=False)

        def tile(rows: slice, columns: slice) -> tuple[Tensor, Tensor | None]:
            related = kin.positives(rows, columns)
            chosen = related if positives is None else _cells(positives[rows], columns) | kin.own(rows, columns)
            if negatives is not None:
                return chosen, _cells(negatives[rows], columns)
            return chosen, None if positives is None else ~related

        return tile


class _Kin:
    """Which hypotheses are positives of which anchor."""

    def __init__(self, anchors: Tensor, entailed: Tensor, premises: Tensor) -> None:
        self.anchors, self.entailed, self.premises = anchors, entailed, premises

    def positives(self, rows: slice, columns: slice) -> Tensor:
        """bool (r, c): entailed hypotheses of the anchor's premise."""
        same = self.premises[self.anchors[rows], None] == self.premises[columns]
        return same & self.entailed[columns]

    def own(self, rows: slice, columns: slice) -> Tensor:
        """bool (r, c): the anchor's own hypothesis."""
        return self.anchors[rows, None] == torch.arange(columns.start, columns.stop, device=self.anchors.device)

    def draw(self, number: int, *, positive: bool) -> Tensor:
        """(A, number or fewer) hypotheses drawn for each anchor without replacement; -1 where there are no more.

        The own hypothesis is not drawn. Looks at a block of anchors at a time.
        """
        everything = slice(0, len(self.premises))
        number = min(number, len(self.premises))
        drawn = []
        for start in range(0, len(self.anchors), BLOCK):
            rows = slice(start, min(start + BLOCK, len(self.anchors)))
            related = self.positives(rows, everything)
            pool = related & ~self.own(rows, everything) if positive else ~related
            keys = torch.rand(pool.shape).to(pool.device).masked_fill_(~pool, -1.0)  # the generator of the run
            values, places = keys.topk(number, dim=1)
            drawn.append(places.masked_fill_(values < 0, -1).to(torch.int32))
        return torch.cat(drawn)


def _anchor_rows(entailed: Tensor, premises: Tensor, anchor: str) -> Tensor:
    """Rows that ask: every entailed one, or the first of each premise."""
    rows = entailed.nonzero().squeeze(1)
    if anchor == "row" or not len(rows):
        return rows
    numbers: Tensor = torch.unique(premises[rows], return_inverse=True)[1]
    places = torch.arange(len(rows), device=rows.device)
    first = places.new_full((int(numbers.max()) + 1,), len(rows)).scatter_reduce(0, numbers, places, "amin")
    return rows[first.sort().values]


def _of_anchors(cells: Tensor | None, anchors: Tensor) -> Tensor | None:
    """The excluded cells (E, 2) of the anchors (A,), by the anchor's place among them."""
    if cells is None:
        return None
    where = (cells[:, :1] == anchors).nonzero()  # (found, 2): the cell and the anchor's place
    return torch.stack([where[:, 1], cells[where[:, 0], 1]], dim=1)


def _cells(drawn: Tensor, columns: slice) -> Tensor:
    """bool (r, c) of the drawn hypotheses (r, number) that fall into a tile's columns; -1 is none."""
    width = columns.stop - columns.start
    inside = (drawn >= columns.start) & (drawn < columns.stop)
    cells = drawn.new_zeros((len(drawn), width + 1), dtype=torch.bool)  # the last column takes what is outside
    cells.scatter_(1, torch.where(inside, drawn - columns.start, width).long(), True)
    return cells[:, :width]
