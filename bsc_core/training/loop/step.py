"""One training batch: vectors of its distinct texts, the loss on all of them, and the gradients.

All columns of a row and repeated texts share one forward pass. The loss sees matrices gathered from it, so its value
and gradients equal those of encoding every row separately (dropout off).

The texts are encoded by `GradientCachedEncoder` in micro-batches, as in GradCache (Gao et al., 2021): the loss sees the
vectors as a leaf, and their gradient is backpropagated one micro-batch at a time. As many graphs as fit into memory are
stored in the first pass; the others are recomputed with the same random state. The choice changes time and memory,
never the result.
"""

# B rows in a batch, K extra negative documents, U distinct texts, E texts encoded, D dimensions
# A rows used to compute hardness

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bsc_core.config import LossConfig, LossSection, TrainingConfig
from bsc_core.data.dataset import PairDataset
from bsc_core.encoders.forward import Forward
from bsc_core.encoders.tokens import TextIds
from bsc_core.losses import LossParts
from bsc_core.training.loop.device import ActivationMemory, release_memory
from bsc_core.training.loop.distributed import Distributed
from bsc_core.types import Ids, Vectors

HARDNESS_ROWS = 256
HIGHEST_SEED = 2**31
RELEASE_EVERY = 8
"""Recomputed micro-batches between two releases of free memory; more frequent releases would cost time."""


@dataclass(frozen=True)
class Batch:
    """Inputs of a loss."""

    queries: Tensor  # (B, D)
    documents: Tensor  # (B + K, D)
    labels: Tensor | None  # (B,), or None where every pair is positive
    ids: dict[str, Tensor]  # `query_ids` (B,), `document_ids` (B + K,); see `Loss.forward` for others


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


def make_batch(vectors: Tensor, texts: Texts, dataset: PairDataset, rows: Ids, guide: Vectors | None = None) -> Batch:
    """Return the rows as inputs of the loss.

    Args:
        vectors: (E, D), vectors of `texts.ids`.
        texts: The texts of the rows.
        dataset: The training pairs.
        rows: (B,).
        guide: (U, G), vectors of a guide for all texts of the dataset; None without one.
    """
    queries = vectors[torch.from_numpy(texts.queries).to(vectors.device)]
    documents = vectors[torch.from_numpy(texts.documents).to(vectors.device)]
    query_ids, document_ids = dataset.query[rows], dataset.document[rows]
    if len(documents) > len(rows) and dataset.negative is not None:  # the negative of row i is document B + i
        document_ids = np.concatenate([document_ids, dataset.negative[rows]])
    arrays: dict[str, npt.NDArray[np.integer]] = {"query_ids": query_ids, "document_ids": document_ids}
    if dataset.classes is not None:
        arrays["classes"] = dataset.classes[rows]
    if len(dataset.marked_pairs):
        arrays["excluded"] = cells_of_pairs(dataset.marked_pairs, query_ids, document_ids)
    if dataset.decided_negatives is not None:
        arrays["labeled_negative"] = cells_of_pairs(dataset.decided_negatives, query_ids, document_ids)
    ids = {name: torch.from_numpy(array.astype(np.int64)).to(vectors.device) for name, array in arrays.items()}
    if guide is not None:
        for name, positions in (("guide_queries", texts.queries), ("guide_documents", texts.documents)):
            ids[name] = torch.from_numpy(guide[texts.ids[positions]]).to(vectors.device)
    labels = None if dataset.label is None else torch.from_numpy(dataset.label[rows]).to(vectors.device)
    return Batch(queries, documents, labels, ids)


def backward_batch(
    encoder: GradientCachedEncoder,
    loss: nn.Module,
    dataset: PairDataset,
    rows: Ids,
    *,
    scale: Tensor | float = 1.0,
    step_vectors: Vectors | None = None,
    guide: Vectors | None = None,
) -> BatchReport:
    """Add the gradient of `scale` times the loss of the rows to those of encoder and loss.

    Args:
        encoder: Encodes the texts of the rows.
        loss: The loss.
        dataset: The training pairs.
        rows: (B,).
        scale: Factor of the loss.
        step_vectors: (U, D), one row for each text of the dataset; receives the vectors of the batch.
        guide: (U, G), vectors of the guide of the loss.
    """
    texts = batch_texts(dataset, rows, getattr(loss, "config", LossSection()))
    encoding = encoder.encode(texts.ids)
    if step_vectors is not None:
        step_vectors[texts.ids[: texts.distinct]] = encoding.vectors[: texts.distinct].detach().cpu().numpy()
    batch = make_batch(encoding.vectors, texts, dataset, rows, guide)
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


def cells_of_pairs(pairs: Ids, query: Ids, document: Ids) -> npt.NDArray[np.int64]:
    """Return the cells (row, column) of the score matrix that have the texts of one of the pairs, (n, 2).

    Args:
        pairs: (F, 2) text ids of query and document.
        query: (B,) text ids of the queries of the batch, the rows of the matrix.
        document: (B + K,) text ids of the documents of the batch, its columns.
    """
    present = np.isin(pairs[:, 0], query) & np.isin(pairs[:, 1], document)
    cells = [np.argwhere((query == first)[:, None] & (document == second)) for first, second in pairs[present]]
    return np.concatenate([*cells, np.empty((0, 2), dtype=np.int64)])


class GradientCachedEncoder:
    """Encodes the texts of a step and backpropagates their gradient within the configured memory."""

    def __init__(
        self, forward: Forward, config: TrainingConfig, memory: ActivationMemory, distributed: Distributed | None = None
    ) -> None:
        self.forward, self.config, self.memory = forward, config, memory
        self.distributed = distributed or Distributed()

    def encode(self, ids: TextIds) -> Encoding:
        """Encode texts.

        Args:
            ids: (E,) text ids; a repeated text is encoded each time, with different dropout.
        """
        pieces = self.forward.micro_batches(ids, self.config.micro_tokens)
        if self.config.micro_tokens is None:
            pieces = self.distributed.split(pieces)
        lengths = self.forward.tokens.lengths[ids]
        assigned = self.distributed.assign(pieces, lengths)
        local = assigned[self.distributed.rank]
        encoding = Encoding(self.forward, ids, pieces, local, torch.randint(HIGHEST_SEED, (len(pieces),)).tolist())
        encoding.first_stored = self._first_stored([lengths[pieces[number]] for number in local])
        parts = encoding.first_pass()
        sizes = [sum(len(pieces[number]) for number in numbers) for numbers in assigned]
        gathered = torch.cat(self.distributed.gather(parts, sizes))
        order = np.concatenate([pieces[number] for numbers in assigned for number in numbers])
        vectors = torch.empty_like(gathered)
        vectors[torch.from_numpy(order).to(vectors.device)] = gathered
        encoding.vectors = vectors.requires_grad_()
        return encoding

    def _first_stored(self, lengths: list[npt.NDArray[np.int64]]) -> int:
        """Return the first local micro-batch whose graph is stored; the last ones are backpropagated first."""
        mode = self.config.gradient_cache
        if mode != "auto":
            return 0 if mode == "never" else len(lengths)
        costs = [self.forward.activation_bytes(of_texts) for of_texts in lengths]
        budget = self.memory.budget(sum(costs))
        first = len(costs)
        while first and costs[first - 1] <= budget:
            first -= 1
            budget -= costs[first]
        return first


@dataclass(eq=False)
class Encoding:
    """The vectors of a step's texts, and the state to backpropagate their gradient."""

    forward: Forward
    ids: TextIds  # (E,) ids of the texts
    pieces: list[npt.NDArray[np.int64]]  # positions of the texts in each micro-batch
    local: list[int]  # numbers of the micro-batches that this process encodes
    seeds: list[int]  # dropout seed of each micro-batch
    first_stored: int = 0  # graphs are stored from `local[first_stored]` on
    vectors: Tensor = field(default_factory=lambda: torch.empty(0))  # (E, D) float32, a leaf, equal in every process
    _graphs: list[Tensor] = field(default_factory=list)

    def first_pass(self) -> Tensor:
        """Return the vectors of the local micro-batches, concatenated, without gradient."""
        parts = []
        once, stored = self.local[: self.first_stored], self.local[self.first_stored :]
        with _random_state(self.forward.device), torch.no_grad(), self.forward.one_pass():
            parts += [self._embed(number) for number in once]
        with _random_state(self.forward.device), self.forward.one_pass():
            self._graphs = [self._embed(number) for number in stored]
        parts += [graph.detach() for graph in self._graphs]
        return torch.cat(parts) if parts else torch.empty((0, self.forward.width), device=self.forward.device)

    def backward(self) -> None:
        """Backpropagate the gradient of the vectors through the encoder into its parameters."""
        gradient = self.vectors.grad
        if gradient is None:
            return
        with _random_state(self.forward.device), self.forward.one_pass():
            for index in reversed(range(len(self.local))):
                number = self.local[index]
                part = self._graphs.pop() if index >= self.first_stored else self._embed(number)
                rows = torch.from_numpy(self.pieces[number]).to(gradient.device)
                torch.autograd.backward([part], [gradient[rows]])

    def recomputed(self) -> float:
        """Return the share of the local tokens that are encoded twice."""
        lengths = [int(self.forward.tokens.lengths[self.ids[self.pieces[number]]].sum()) for number in self.local]
        return sum(lengths[: self.first_stored]) / max(1, sum(lengths))

    def _embed(self, number: int) -> Tensor:
        if self.first_stored and number % RELEASE_EVERY == RELEASE_EVERY - 1:
            release_memory()
        _seed(self.forward.device, self.seeds[number])
        return self.forward.embed(self.ids[self.pieces[number]])


@contextmanager
def _random_state(device: torch.device) -> Iterator[None]:
    """Restore the random generators at the end of the block."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


def _seed(device: torch.device, seed: int) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        torch.cuda.default_generators[index].manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)
