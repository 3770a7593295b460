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
    model: SentenceTransformer, tokens: TokenTable, columns: list[Ids], micro_tokens: int | None
) -> list[Tensor]:
    """Embeddings of several columns of text ids, (B, D) for each of (B,)."""
    distinct, where = np.unique(np.concatenate(columns), return_inverse=True)
    vectors = encode_distinct(model, tokens, distinct.astype(np.int32), micro_tokens)  # (U, D)
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
) -> Batch:
    """The rows as their loss takes them.

    A loss that needs views sees each query in two forward passes, with two dropout masks; one that takes negatives sees
    row i's at B + i, where the dataset has them.
    """
    query = dataset.query[rows]
    if "views" in loss.needs:
        (queries,) = embed_columns(model, tokens, [query], micro_tokens)
        (documents,) = embed_columns(model, tokens, [query], micro_tokens)
    else:
        columns = [query, dataset.document[rows]]
        if loss.takes_negatives and dataset.negative is not None:
            columns.append(dataset.negative[rows])
        queries, *sides = embed_columns(model, tokens, columns, micro_tokens)
        documents = torch.cat(sides)
    device = queries.device
    ids = _batch_ids(dataset, rows, device)
    if len(documents) > len(rows) and dataset.negative is not None:
        negatives = torch.from_numpy(dataset.negative[rows].astype(np.int64)).to(device)
        ids["document_ids"] = torch.cat([ids["document_ids"], negatives])
    return Batch(queries, documents, batch_labels(dataset, rows, device), ids)


def batch_labels(dataset: PairDataset, rows: Ids, device: torch.device) -> Tensor | None:
    """Labels of the rows, (B,), or None where every pair is positive."""
    return None if dataset.label is None else torch.from_numpy(dataset.label[rows]).to(device)


def has_dropout(model: nn.Module) -> bool:
    """Whether two passes of a text in training mode differ."""
    return any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())


def _batch_ids(dataset: PairDataset, rows: Ids, device: torch.device) -> dict[str, Tensor]:
    columns = {"query_ids": dataset.query, "document_ids": dataset.document, "classes": dataset.classes}
    return {
        name: torch.from_numpy(column[rows].astype(np.int64)).to(device)
        for name, column in columns.items()
        if column is not None
    }
