"""What one step computes: each distinct text of the batch once, in micro-batches of similar length.

All sides of a row and repeated texts share one forward pass; the loss sees matrices gathered from it, so its value and
gradients are those of encoding every row by itself (dropout off).
"""

# B rows in a batch, U distinct texts in it, D dimensions

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn

from bsc_core.config import LossConfig, LossSection
from bsc_core.data.pairs import PairDataset
from bsc_core.encoders.tokens import TokenTable, token_budget

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


def encode_distinct(model: SentenceTransformer, tokens: TokenTable, ids: Ids, micro_tokens: int | None) -> Tensor:
    """Embeddings of distinct texts with their gradient. ids: (U,) text ids, no repeats. Returns (U, D) in float32."""
    parts, positions = [], []
    for chosen in tokens.micro_batches(ids, token_budget(model.device, micro_tokens)):
        features = {name: value.to(model.device) for name, value in tokens.features(ids[chosen]).items()}
        parts.append(model(features)["sentence_embedding"].float())
        positions.append(chosen)
    restore = np.argsort(np.concatenate(positions), kind="stable")
    return torch.cat(parts)[torch.from_numpy(restore).to(parts[0].device)]  # (U, D) in the order of ids


def embed_columns(
    model: SentenceTransformer,
    tokens: TokenTable,
    columns: list[Ids],
    micro_tokens: int | None,
    memory: Memory | None = None,
) -> list[Tensor]:
    """Embeddings of several columns of text ids, (B, D) for each of (B,). memory takes them too, one row a text."""
    distinct, where = np.unique(np.concatenate(columns), return_inverse=True)
    vectors = encode_distinct(model, tokens, distinct.astype(np.int32), micro_tokens)  # (U, D)
    if memory is not None:
        memory[distinct] = vectors.detach().cpu().numpy()
    gathered = vectors[torch.from_numpy(where).to(vectors.device)]
    return list(torch.split(gathered, [len(column) for column in columns]))


def embed_batch(
    model: SentenceTransformer, tokens: TokenTable, dataset: PairDataset, rows: Ids, micro_tokens: int | None
) -> tuple[Tensor, Tensor]:
    """Queries and documents of the rows, (B, D) each."""
    queries, documents = embed_columns(model, tokens, [dataset.query[rows], dataset.document[rows]], micro_tokens)
    return queries, documents


def make_batch(
    model: SentenceTransformer,
    tokens: TokenTable,
    dataset: PairDataset,
    rows: Ids,
    *,
    loss: LossConfig | LossSection,
    micro_tokens: int | None,
    memory: Memory | None = None,
) -> Batch:
    """The rows as their loss takes them. memory: (U, D) of the dataset, takes the vectors that were computed.

    A loss that needs views sees each query in two forward passes, with two dropout masks; one that takes negatives sees
    row i's at B + i, where the dataset has them.
    """
    query = dataset.query[rows]
    if "views" in loss.needs:
        (queries,) = embed_columns(model, tokens, [query], micro_tokens, memory)
        (documents,) = embed_columns(model, tokens, [query], micro_tokens)
    else:
        columns = [query, dataset.document[rows]]
        if loss.takes_negatives and dataset.negative is not None:
            columns.append(dataset.negative[rows])
        queries, *sides = embed_columns(model, tokens, columns, micro_tokens, memory)
        documents = torch.cat(sides)
    device = queries.device
    ids = _batch_ids(dataset, rows, with_negatives=len(documents) > len(rows))
    placed = {name: torch.from_numpy(array.astype(np.int64)).to(device) for name, array in ids.items()}
    return Batch(queries, documents, batch_labels(dataset, rows, device), placed)


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
