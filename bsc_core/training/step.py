"""What one step computes: each distinct text of the batch once, in micro-batches of similar length.

Both sides of a pair and repeated texts share one forward pass; the loss sees two matrices gathered from it, so its
value and gradients are those of encoding every row by itself (dropout off).
"""

# B pairs in a batch, U distinct texts in it, D dimensions

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from bsc_core.data.pairs import PairDataset
from bsc_core.encoders.tokens import TokenTable, token_budget

Ids = npt.NDArray[np.int32]


def encode_distinct(model: SentenceTransformer, tokens: TokenTable, ids: Ids, micro_tokens: int | None) -> Tensor:
    """Embeddings of distinct texts with their gradient. ids: (U,) text ids, no repeats. Returns (U, D) in float32."""
    parts, positions = [], []
    for chosen in tokens.micro_batches(ids, token_budget(model.device, micro_tokens)):
        features = {name: value.to(model.device) for name, value in tokens.features(ids[chosen]).items()}
        parts.append(model(features)["sentence_embedding"].float())
        positions.append(chosen)
    restore = np.argsort(np.concatenate(positions), kind="stable")
    return torch.cat(parts)[torch.from_numpy(restore).to(parts[0].device)]  # (U, D) in the order of ids


def embed_batch(
    model: SentenceTransformer, tokens: TokenTable, dataset: PairDataset, rows: Ids, micro_tokens: int | None
) -> tuple[Tensor, Tensor]:
    """Queries and documents of the rows, (B, D) each."""
    both = np.concatenate([dataset.query[rows], dataset.document[rows]])  # (2B,)
    distinct, where = np.unique(both, return_inverse=True)
    vectors = encode_distinct(model, tokens, distinct.astype(np.int32), micro_tokens)  # (U, D)
    gathered = vectors[torch.from_numpy(where).to(vectors.device)]  # (2B, D)
    return gathered[: len(rows)], gathered[len(rows) :]


def batch_labels(dataset: PairDataset, rows: Ids, device: torch.device) -> Tensor | None:
    """Labels of the rows, (B,), or None where every pair is positive."""
    return None if dataset.label is None else torch.from_numpy(dataset.label[rows]).to(device)
