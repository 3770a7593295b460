"""Toy training for the lessons: a linear map over stored vectors, and pairs on a circle.

The map (D, D) starts as the identity, so that all values start as those of the encoder.
The results are stored in sample_data/lessons.npz by `python -m bsc_core.lab.lessons`, so that the page does not train
when a whole class opens it.
"""

# N rows, D dimensions of the vectors, S seeds, T steps

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bsc_core.config import (
    BSCLossConfig,
    CombinedLossConfig,
    LossConfig,
    MSELossConfig,
    SoftmaxLossConfig,
    SupConLossConfig,
)
from bsc_core.lab.lessons.batches import LOW, USUAL, training_batch
from bsc_core.lab.presets import sample_rows
from bsc_core.losses.explain import first_largest, normalize
from bsc_core.neighbors import TIE
from bsc_core.paths import sample_data_folder
from bsc_core.types import Numbers

if TYPE_CHECKING:
    from torch import Tensor, nn

    from bsc_core.data.dataset import PairDataset

Result = TypeVar("Result")
RESULTS = "lessons.npz"
CIRCLE = "circle/gaps"  # key of `circle_gaps`
SEEDS = 5
STEPS, LEARNING_RATE = 50, 0.003
KEPT_SHARE = 0.8
"""Share of the queries that each seed trains on."""
MUS = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Shares of BSC: MSE alone, three sums, BSC alone."""
MIXES = (0.0, 0.1, 0.5, 0.9)
"""Shares of SCL: cross-entropy alone, and three mixes."""
DIMENSIONS = (2, 4, 8, 16, 32, 64, 128, 384)
"""Numbers of leading dimensions of the Matryoshka loss, and of the cut vectors."""


@dataclass(frozen=True, eq=False)
class GradedResult:
    """Metrics of one map on graded pairs."""

    mrr: float  # mean reciprocal rank of the positive pairs' documents among all documents
    spearman: float  # Spearman correlation of cosines and grades
    error: float  # mean squared difference of cosine and grade
    cosines: Numbers  # (N,) of each row; NaN for training rows that this seed leaves out


@dataclass(frozen=True, eq=False)
class ClassResult:
    """Metrics of one map on NLI rows."""

    accuracy: float  # of the classification head
    nearest: float  # share of premises whose nearest hypothesis is the entailed one
    means: tuple[float, float, float]  # mean cosine of premise and hypothesis by class
    cosines: Numbers  # (N,) of each row
    classes: NDArray[np.int32]  # (N,)


@dataclass(frozen=True, eq=False)
class CutResult:
    """Ranking of the positives, by number of leading dimensions of the vectors."""

    mrr: Numbers  # (len(DIMENSIONS),) mean reciprocal rank
    gaps: NDArray[np.float32]  # (len(DIMENSIONS), N) cosine of the positive minus that of the nearest other document


@dataclass(frozen=True, eq=False)
class _Map:
    """A linear map of one seed."""

    weights: Numbers  # (D, D)
    loss: nn.Module  # with its head
    rows: NDArray[np.intp]  # rows that it was trained on, or without steps would be


@dataclass(frozen=True, eq=False)
class ParaphraseResult:
    """Mean cosines of the two questions of each batch during training, (batches, T + 1)."""

    own: Numbers  # to the answer of its pair
    other: Numbers  # to the document of the other pair


def graded_results(mu: float | None, *, held_out: bool = False) -> tuple[GradedResult, ...]:
    """Return the results of maps trained with mu * BSC + (1 - mu) * MSE, one for each seed.

    Args:
        mu: One of MUS; 0 and 1 are the losses alone; None is before training, on the same rows.
        held_out: Evaluate on rows of other questions instead of those that the map was trained on.
    """
    return _stored_results(GradedResult, _key("grades", mu, held_out))


def question_results(*, matryoshka: bool | None, held_out: bool = False) -> tuple[CutResult, ...]:
    """Return the results of maps trained with BSC, one for each seed, that rank the documents with cut vectors.

    Args:
        matryoshka: Whether to train with the sum of the losses of the first DIMENSIONS; None is before training, on the
            same rows.
        held_out: Rank the documents of other questions instead of those that the map was trained on.
    """
    return _stored_results(CutResult, _key("questions", matryoshka, held_out))


def class_results(mix: float | None, *, held_out: bool = False) -> tuple[ClassResult, ...]:
    """Return the results of maps trained with (1 - mix) * cross-entropy + mix * SCL, one for each seed.

    Args:
        mix: One of MIXES; None is before training, on the same rows.
        held_out: Evaluate on rows of other premises instead of those that the map was trained on.
    """
    return _stored_results(ClassResult, _key("classes", mix, held_out))


def paraphrase_results(*, excluded: bool) -> ParaphraseResult:
    """Return the training of batches in which two differently worded questions have the same answer.

    Args:
        excluded: Exclude the document of the other pair from the softmax instead of counting it as a negative.
    """
    return _stored_results(ParaphraseResult, _key("paraphrases", excluded))[0]


def circle_gaps() -> NDArray[np.float32]:
    """Return (2, T + 1) the smallest gap of `training_batch` by step, trained at the temperatures LOW and USUAL."""
    gaps: NDArray[np.float32] = _stored(sample_data_folder())[CIRCLE]
    return gaps


def train() -> dict[str, NDArray[Any]]:
    """Train all maps and return the fields of their results, each stacked over the seeds, and `circle_gaps`."""
    from bsc_core.lab.toy_training import train_points

    results: dict[str, tuple[Any, ...]] = {}
    for held_out in (False, True):
        results |= {_key("grades", mu, held_out): _train_on_grades(mu, held_out) for mu in (None, *MUS)}
        results |= {
            _key("questions", kind, held_out): _train_on_questions(kind, held_out) for kind in (None, False, True)
        }
        results |= {_key("classes", mix, held_out): _train_on_classes(mix, held_out) for mix in (None, *MIXES)}
    results |= {_key("paraphrases", excluded): (_train_on_paraphrases(excluded),) for excluded in (False, True)}
    stacked = {
        f"{key}/{name}": np.stack([getattr(one, name) for one in seeds])
        for key, seeds in results.items()
        for name in vars(seeds[0])
    }
    circle = [train_points(training_batch(), BSCLossConfig(temperature=tau)).gap for tau in (LOW, USUAL)]
    return stacked | {CIRCLE: np.stack(circle)}


def _key(*parts: object) -> str:
    return "/".join(map(str, parts))


@cache
def _stored(folder: Path) -> dict[str, NDArray[Any]]:
    with np.load(folder / RESULTS) as arrays:
        return dict(arrays)


def _stored_results(kind: type[Result], key: str) -> tuple[Result, ...]:
    """Return the stored results of this class, one for each seed."""
    names = [one.name for one in fields(kind)]  # type: ignore[arg-type]
    columns = [_stored(sample_data_folder())[f"{key}/{name}"] for name in names]
    return tuple(kind(**dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True))


def _train_on_grades(mu: float | None, held_out: bool) -> tuple[GradedResult, ...]:
    from scipy.stats import spearmanr

    results = []
    for one, dataset, vectors in _evaluated("graded", _graded_maps(mu), held_out):
        assert dataset.label is not None
        grades, positives = dataset.label.astype(np.float64), np.flatnonzero(dataset.positive)
        mapped = normalize(vectors @ one.weights, "l2")
        similarity = mapped[dataset.query] @ mapped[dataset.document].T  # (N, N)
        cosines = np.diag(similarity)
        rho, error = float(spearmanr(cosines, grades).statistic), float(np.square(cosines - grades).mean())
        of_all = cosines if held_out else np.full(len(sample_rows("graded")[0]), np.nan)
        if not held_out:
            of_all[one.rows] = cosines
        results.append(GradedResult(_reciprocal_rank(similarity, positives), rho, error, of_all))
    return tuple(results)


def _evaluated(
    name: str, maps: tuple[_Map, ...], held_out: bool
) -> Iterator[tuple[_Map, PairDataset, NDArray[np.float32]]]:
    """Yield each map with the rows on which it is evaluated, those that it was trained on or held-out ones."""
    dataset, vectors = sample_rows(f"{name}_held_out" if held_out else name)
    for one in maps:
        yield one, dataset if held_out else dataset.take(one.rows), vectors


def _reciprocal_rank(similarity: Numbers, positives: NDArray[np.intp]) -> float:
    """Return the mean reciprocal rank of the paired document (N, N) of these rows; documents in a tie share a rank."""
    higher = similarity[positives] > np.diag(similarity)[positives, None] + TIE
    return float((1 / (1 + higher.sum(axis=1))).mean())


@cache
def _graded_maps(mu: float | None) -> tuple[_Map, ...]:
    config: LossConfig = CombinedLossConfig(mu=mu) if mu and mu < 1 else BSCLossConfig() if mu else MSELossConfig()
    return _trained_maps("graded", config, 0 if mu is None else STEPS)


def _train_on_questions(matryoshka: bool | None, held_out: bool) -> tuple[CutResult, ...]:
    results = []
    for one, dataset, vectors in _evaluated("questions", _question_maps(matryoshka), held_out):
        mapped, mrr, gaps = vectors @ one.weights, [], []
        for dimensions in DIMENSIONS:
            cut = normalize(mapped[:, :dimensions], "l2")
            similarity = cut[dataset.query] @ cut[dataset.document].T
            mrr.append(_reciprocal_rank(similarity, np.arange(len(dataset))))
            others = np.where(dataset.document[:, None] == dataset.document, -np.inf, similarity)
            gaps.append(np.diag(similarity) - others.max(axis=1))
        results.append(CutResult(np.array(mrr), np.array(gaps, dtype=np.float32)))
    return tuple(results)


@cache
def _question_maps(matryoshka: bool | None) -> tuple[_Map, ...]:
    config = BSCLossConfig(matryoshka_dims=DIMENSIONS) if matryoshka else BSCLossConfig()
    return _trained_maps("questions", config, 0 if matryoshka is None else STEPS)


def _train_on_classes(mix: float | None, held_out: bool) -> tuple[ClassResult, ...]:
    results = []
    for one, dataset, vectors in _evaluated("classes", _class_maps(mix), held_out):
        assert dataset.classes is not None
        entailed = np.flatnonzero(dataset.classes == 0)
        mapped = vectors.astype(np.float64) @ one.weights
        premises, hypotheses = mapped[dataset.query], mapped[dataset.document]
        similarity = normalize(premises, "l2") @ normalize(hypotheses, "l2").T  # (N, N)
        cosines = np.diag(similarity)
        means = [float(cosines[dataset.classes == number].mean()) for number in range(3)]
        results.append(
            ClassResult(
                accuracy=float((_predict(one.loss, premises, hypotheses) == dataset.classes).mean()),
                nearest=float((first_largest(similarity[entailed]) == entailed).mean()),
                means=(means[0], means[1], means[2]),
                cosines=cosines,
                classes=dataset.classes,
            )
        )
    return tuple(results)


@cache
def _class_maps(mix: float | None) -> tuple[_Map, ...]:
    config: LossConfig = SupConLossConfig(mix=mix) if mix else SoftmaxLossConfig()
    return _trained_maps("classes", config, 0 if mix is None else STEPS)


def _trained_maps(name: str, config: LossConfig, steps: int) -> tuple[_Map, ...]:
    """Return for each seed a map, trained on most rows of a lesson; without steps, it is the identity."""
    import torch

    from bsc_core.losses import build_loss

    dataset, vectors = sample_rows(name)
    queries, maps = np.unique(dataset.query), []
    for seed in range(SEEDS):
        kept = np.random.default_rng(seed).permutation(queries)[: round(KEPT_SHARE * len(queries))]
        rows = np.flatnonzero(np.isin(dataset.query, kept))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            loss = build_loss(config, dimensions=vectors.shape[1])
        *_, weights = _train(loss, vectors, dataset.take(rows), steps=steps)
        maps.append(_Map(weights, loss, rows))
    return tuple(maps)


def _train(
    loss: nn.Module,
    vectors: NDArray[np.float32],
    dataset: PairDataset,
    *,
    steps: int = STEPS,
    more: Mapping[str, Tensor] | None = None,
) -> Iterator[Numbers]:
    """Train a map with Adam on all rows as one batch, and yield it before the first and after every step.

    more: additional inputs of the loss.
    """
    import torch

    weights = torch.eye(vectors.shape[1], requires_grad=True)
    optimizer = torch.optim.Adam([weights, *loss.parameters()], lr=LEARNING_RATE)
    sides = [torch.from_numpy(vectors[column]) for column in (dataset.query, dataset.document)]
    labels = None if dataset.label is None else torch.from_numpy(dataset.label)
    ids: dict[str, Any] = {"query_ids": torch.from_numpy(dataset.query.astype(np.int64)), **(more or {})}
    if dataset.classes is not None:
        ids["classes"] = torch.from_numpy(dataset.classes.astype(np.int64))
    yield weights.detach().numpy().astype(np.float64)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(sides[0] @ weights, sides[1] @ weights, labels, **ids).total.backward()
        optimizer.step()
        yield weights.detach().numpy().astype(np.float64)


def _train_on_paraphrases(excluded: bool) -> ParaphraseResult:
    """Train batches with two differently worded pairs that have the same answer, and four pairs on other topics."""
    import torch

    from bsc_core.losses import build_loss

    couples, vectors = sample_rows("paraphrases")
    others, other_vectors = sample_rows("easy")
    both = np.concatenate([vectors, other_vectors])
    own, other = [], []
    for first in range(0, len(couples), 2):
        pair = np.arange(first, first + 2)
        queries = both[np.concatenate([couples.query[pair], len(vectors) + others.query[:4]])]
        documents = both[np.concatenate([couples.document[pair], len(vectors) + others.document[:4]])]
        cells = {"excluded": torch.tensor([[0, 1], [1, 0]])} if excluded else {}
        texts, rows = np.concatenate([queries, documents]), _pairs(len(queries))
        maps = _train(build_loss(BSCLossConfig()), texts, rows, more=cells)
        units = [[normalize(side[:2] @ one, "l2") for side in (queries, documents)] for one in maps]
        table = np.stack([left @ right.T for left, right in units])  # (T + 1, 2, 2)
        own.append((table[:, 0, 0] + table[:, 1, 1]) / 2)
        other.append((table[:, 0, 1] + table[:, 1, 0]) / 2)
    return ParaphraseResult(np.stack(own), np.stack(other))


def _pairs(count: int) -> PairDataset:
    """Return pairs whose queries are texts 0 to count - 1 and whose documents are the next texts."""
    from bsc_core.data.dataset import PairDataset

    return PairDataset.from_pairs(
        [f"query {number}" for number in range(count)], [f"document {number}" for number in range(count)]
    )


def _predict(loss: nn.Module, premises: Numbers, hypotheses: Numbers) -> NDArray[np.int64]:
    """Return (N,) the class that the head of the loss predicts for each row."""
    import torch

    from bsc_core.losses import SoftmaxLoss

    head = next(module for module in loss.modules() if isinstance(module, SoftmaxLoss))
    sides = [torch.from_numpy(side.astype(np.float32)) for side in (premises, hypotheses)]
    predicted: NDArray[np.int64] = head.predict(sides[0], sides[1]).argmax(dim=1).numpy()
    return predicted
