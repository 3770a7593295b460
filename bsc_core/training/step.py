"""What one step computes: vectors of the batch's distinct texts, the loss on all of them, and the gradient of both.

All sides of a row and repeated texts share one forward pass; the loss sees matrices gathered from it, so its value and
gradients are those of encoding every row by itself (dropout off).
"""

# B rows in a batch, K extra negative documents, U distinct texts, E texts encoded, D dimensions

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bsc_core.config import LossConfig, LossSection
from bsc_core.data.pairs import PairDataset
from bsc_core.losses import LossParts
from bsc_core.training.cache import CachedEncoder
from bsc_core.training.hardness import batch_hardness

Ids = npt.NDArray[np.int32]
Memory = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Batch:
    """What a loss takes: queries (B, D), documents (B + K, D), labels (B,) or None, and ids, long.

    ids: `query_ids` (B,), `document_ids` (B + K,) and perhaps `classes` (B,)."""

    queries: Tensor
    documents: Tensor
    labels: Tensor | None
    ids: dict[str, Tensor]


@dataclass(frozen=True)
class Texts:
    """Which texts a batch encodes, and which of them are its sides.

    ids: (E,) text ids, the distinct ones once, or once for each of two views. distinct: U. queries: (B,), documents:
    (B + K,) positions in ids.
    """

    ids: Ids
    distinct: int
    queries: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]


@dataclass(frozen=True)
class BatchReport:
    """What a batch was: its loss; hardness as `batch_hardness` tells; tokens of its sides, and of its distinct texts;
    how many micro-batches this process encoded, and which share of its tokens twice."""

    loss: float
    terms: dict[str, float]
    hardness: float | None
    pairs: int
    tokens: int
    distinct_tokens: int
    micro_batches: int
    recomputed: float


def batch_texts(dataset: PairDataset, rows: Ids, loss: LossConfig | LossSection) -> Texts:
    """The texts of the rows as their loss takes them.

    A loss that needs views sees each query twice, with two dropout masks; one that takes negatives sees row i's at
    B + i, where the dataset has them.
    """
    columns = [dataset.query[rows]]
    if "views" not in loss.needs:
        columns.append(dataset.document[rows])
        if loss.takes_negatives and dataset.negative is not None:
            columns.append(dataset.negative[rows])
    distinct, where = np.unique(np.concatenate(columns), return_inverse=True)
    queries, documents = where[: len(rows)], where[len(rows) :]
    if "views" not in loss.needs:
        return Texts(distinct.astype(np.int32), len(distinct), queries, documents)
    return Texts(np.concatenate([distinct, distinct]).astype(np.int32), len(distinct), queries, queries + len(distinct))


def make_batch(vectors: Tensor, texts: Texts, dataset: PairDataset, rows: Ids) -> Batch:
    """The rows as their loss takes them. vectors: (E, D) of texts.ids."""
    queries = vectors[torch.from_numpy(texts.queries).to(vectors.device)]
    documents = vectors[torch.from_numpy(texts.documents).to(vectors.device)]
    ids = _batch_ids(dataset, rows, with_negatives=len(documents) > len(rows))
    placed = {name: torch.from_numpy(array.astype(np.int64)).to(vectors.device) for name, array in ids.items()}
    return Batch(queries, documents, batch_labels(dataset, rows, vectors.device), placed)


def backward_batch(
    encoder: CachedEncoder,
    loss: nn.Module,
    dataset: PairDataset,
    rows: Ids,
    *,
    scale: Tensor | float = 1.0,
    memory: Memory | None = None,
) -> BatchReport:
    """Add the gradient of scale times the rows' loss to that of encoder and loss.

    memory: (U, D) with a row for each text of the dataset, takes the vectors. Raises what the loss raises.
    """
    texts = batch_texts(dataset, rows, getattr(loss, "config", LossSection()))
    encoding = encoder.encode(texts.ids)
    if memory is not None:
        memory[texts.ids[: texts.distinct]] = encoding.vectors[: texts.distinct].detach().cpu().numpy()
    batch = make_batch(encoding.vectors, texts, dataset, rows)
    parts: LossParts = loss(batch.queries, batch.documents, batch.labels, **batch.ids)
    torch.autograd.backward([parts.total * scale])
    encoding.backward()
    lengths = encoder.forward.tokens.lengths
    sides = np.concatenate([texts.queries, texts.documents])
    return BatchReport(
        loss=float(parts.total.detach()),
        terms={name: float(value.detach()) for name, value in parts.terms.items()},
        hardness=_hardness(batch, dataset, rows),
        pairs=len(rows),
        tokens=int(lengths[texts.ids[sides]].sum()),
        distinct_tokens=int(lengths[texts.ids].sum()),
        micro_batches=len(encoding.own),
        recomputed=encoding.recomputed(),
    )


def _hardness(batch: Batch, dataset: PairDataset, rows: Ids) -> float | None:
    positive = None if batch.labels is None else torch.from_numpy(dataset.positive[rows]).to(batch.queries.device)
    queries, documents = batch.queries.detach(), batch.documents.detach()
    return batch_hardness(queries, documents, batch.ids["query_ids"], batch.ids["document_ids"], positive)


def batch_labels(dataset: PairDataset, rows: Ids, device: torch.device) -> Tensor | None:
    """Labels of the rows, (B,), or None where every pair is positive."""
    return None if dataset.label is None else torch.from_numpy(dataset.label[rows]).to(device)


def has_dropout(model: nn.Module) -> bool:
    """Whether two passes of a text in training mode differ."""
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())


def _batch_ids(dataset: PairDataset, rows: Ids, *, with_negatives: bool) -> dict[str, npt.NDArray[np.integer]]:
    query, document = dataset.query[rows], dataset.document[rows]
    if with_negatives and dataset.negative is not None:  # the negative of row j is document B + j
        document = np.concatenate([document, dataset.negative[rows]])
    ids: dict[str, npt.NDArray[np.integer]] = {"query_ids": query, "document_ids": document}
    if dataset.classes is not None:
        ids["classes"] = dataset.classes[rows]
    if len(dataset.marked_pairs):
        ids["excluded"] = excluded_places(dataset, query, document)
    return ids


def excluded_places(dataset: PairDataset, query: Ids, document: Ids) -> npt.NDArray[np.int64]:
    """The places (query, document) of a batch that a person marked as false negatives, (E, 2).

    query: (B,), document: (B + K,) text ids of the batch.
    """
    here = np.isin(dataset.marked_pairs[:, 0], query) & np.isin(dataset.marked_pairs[:, 1], document)
    cells = [np.argwhere((query == one)[:, None] & (document == other)) for one, other in dataset.marked_pairs[here]]
    return np.concatenate([*cells, np.empty((0, 2), dtype=np.int64)])
