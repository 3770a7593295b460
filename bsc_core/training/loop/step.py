"""One training batch: vectors of its distinct texts, the loss on all of them, and the gradients.

All columns of a row and repeated texts share one forward pass. The loss sees matrices gathered from it, so its value
and gradients equal those of encoding every row separately (dropout off).
"""

# B rows in a batch, K extra negative documents, U distinct texts, E texts encoded, D dimensions
# A rows used to compute hardness

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bsc_core.config import LossConfig, LossSection
from bsc_core.data.dataset import PairDataset
from bsc_core.losses import LossParts
from bsc_core.training.loop.grad_cache import CachedEncoder

Ids = npt.NDArray[np.int32]
Memory = npt.NDArray[np.float32]
HARDNESS_ROWS = 256


@dataclass(frozen=True)
class Batch:
    """Inputs of a loss."""

    queries: Tensor  # (B, D)
    documents: Tensor  # (B + K, D)
    labels: Tensor | None  # (B,), or None where every pair is positive
    ids: dict[str, Tensor]  # `query_ids` (B,), `document_ids` (B + K,), where known `classes` (B,), `excluded` (n, 2)


@dataclass(frozen=True)
class Texts:
    """Texts that a batch encodes."""

    ids: Ids  # (E,) text ids, each distinct one once, or once for each of two views
    distinct: int  # U
    queries: npt.NDArray[np.int64]  # (B,) positions in ids
    documents: npt.NDArray[np.int64]  # (B + K,) positions in ids


@dataclass(frozen=True, kw_only=True)
class BatchReport:
    """Results of a batch."""

    loss: float  # value of the loss
    terms: dict[str, float]  # named terms of the loss
    hardness: float | None  # see `batch_hardness`
    pairs: int  # B
    tokens: int  # tokens of all queries and documents
    distinct_tokens: int  # tokens of the texts that were encoded
    micro_batches: int  # micro-batches that this process encoded
    recomputed: float  # share of their tokens that was encoded twice


def batch_texts(dataset: PairDataset, rows: Ids, loss: LossConfig | LossSection) -> Texts:
    """Return the texts of the rows as the loss takes them.

    A loss that needs views sees each query twice, with two dropout masks. One that takes negatives sees the negative of
    row i at B + i, where the dataset has them.
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
    """Return the rows as inputs of the loss. vectors: (E, D) of `texts.ids`."""
    queries = vectors[torch.from_numpy(texts.queries).to(vectors.device)]
    documents = vectors[torch.from_numpy(texts.documents).to(vectors.device)]
    query_ids, document_ids = dataset.query[rows], dataset.document[rows]
    if len(documents) > len(rows) and dataset.negative is not None:  # the negative of row i is document B + i
        document_ids = np.concatenate([document_ids, dataset.negative[rows]])
    arrays: dict[str, npt.NDArray[np.integer]] = {"query_ids": query_ids, "document_ids": document_ids}
    if dataset.classes is not None:
        arrays["classes"] = dataset.classes[rows]
    if len(dataset.marked_pairs):
        arrays["excluded"] = excluded_cells(dataset, query_ids, document_ids)
    ids = {name: torch.from_numpy(array.astype(np.int64)).to(vectors.device) for name, array in arrays.items()}
    labels = None if dataset.label is None else torch.from_numpy(dataset.label[rows]).to(vectors.device)
    return Batch(queries, documents, labels, ids)


def backward_batch(
    encoder: CachedEncoder,
    loss: nn.Module,
    dataset: PairDataset,
    rows: Ids,
    *,
    scale: Tensor | float = 1.0,
    memory: Memory | None = None,
) -> BatchReport:
    """Add the gradient of `scale` times the loss of the rows to those of encoder and loss.

    rows: (B,). memory: one row for each text of the dataset; receives the vectors of the batch.
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
        hardness=batch_hardness(
            batch.queries.detach(),
            batch.documents.detach(),
            batch.ids["query_ids"],
            batch.ids["document_ids"],
            None if batch.labels is None else torch.from_numpy(dataset.positive[rows]).to(batch.queries.device),
        ),
        pairs=len(rows),
        tokens=int(lengths[texts.ids[sides]].sum()),
        distinct_tokens=int(lengths[texts.ids].sum()),
        micro_batches=len(encoding.local),
        recomputed=encoding.recomputed(),
    )


@torch.no_grad()
def batch_hardness(
    queries: Tensor, documents: Tensor, query_ids: Tensor, document_ids: Tensor, positive: Tensor | None = None
) -> float | None:
    """Return how close the hardest negative of a query is, relative to its positive document.

    This is the mean over positive rows of the largest cosine with a negative minus the cosine with the positive. Below
    0 the positive is closest on average; a batch is hard toward 0 and above. A document with the positive's text, or
    in another positive row of the same query, is no negative. At most 256 evenly spaced rows are used.

    Args:
        queries: (B, D).
        documents: (B + K, D).
        query_ids: (B,) text ids.
        document_ids: (B + K,) text ids.
        positive: (B,) bool; None if all rows are positive.

    Returns:
        The mean in [-2, 2]; None where no row has a negative.
    """
    size = len(queries)
    positives = torch.ones(size, dtype=torch.bool, device=queries.device) if positive is None else positive
    rows = positives.nonzero().squeeze(1)
    rows = rows[:: max(1, -(-len(rows) // HARDNESS_ROWS))]  # (A,)
    scores = normalize(queries[rows].float(), dim=1) @ normalize(documents.float(), dim=1).T  # (A, B + K)
    cosine = scores.gather(1, rows[:, None]).squeeze(1)
    negative = document_ids != document_ids[rows, None]  # (A, B + K)
    negative[:, :size] &= (query_ids != query_ids[rows, None]) | ~positives
    hardest = scores.masked_fill_(~negative, -torch.inf).amax(dim=1) if len(rows) else cosine
    gaps = (hardest - cosine)[negative.any(dim=1)]
    return float(gaps.mean()) if len(gaps) else None


def has_dropout(model: nn.Module) -> bool:
    """Return whether two passes of a text in training mode differ."""
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())


def excluded_cells(dataset: PairDataset, query: Ids, document: Ids) -> npt.NDArray[np.int64]:
    """Return the cells (row, column) of the score matrix that are marked as false negatives, (n, 2).

    query: (B,) and document: (B + K,) text ids of the batch.
    """
    present = np.isin(dataset.marked_pairs[:, 0], query) & np.isin(dataset.marked_pairs[:, 1], document)
    cells = [
        np.argwhere((query == text)[:, None] & (document == marked)) for text, marked in dataset.marked_pairs[present]
    ]
    return np.concatenate([*cells, np.empty((0, 2), dtype=np.int64)])
