"""Batch plans as the Batches page needs them: built once for the same settings, measured, and cut into batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from bsc_core.batching import BatchPlan, Hardness, KnownPairs, build_plan, plan_hardness, similarity_matrix
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.figures import hardness as hardness_figures
from bsc_core.figures import similarity, theme
from pages.ui import show

LIMIT = 128
"""Pairs of a batch that the matrix shows at most."""


@dataclass(frozen=True, eq=False)
class Look:
    """One strategy's plan on a dataset: how hard it is, and its batches as row numbers with the group of each row."""

    plan: BatchPlan
    hardness: Hardness
    batches: list[np.ndarray]
    groups: list[np.ndarray]

    def positive_hardest(self, dataset: PairDataset) -> np.ndarray:
        """The hardness of the positive rows: the only queries that the loss asks."""
        found: np.ndarray = self.hardness.hardest[dataset.positive[self.plan.order]]
        return found


def looks(
    name: str, strategies: dict[str, BatchingConfig], shape: tuple[int, int, int], data: tuple[PairDataset, np.ndarray]
) -> dict[str, Look]:
    """The plan of each strategy. name: tells dataset and encoder apart. shape: (batch size, seed, epoch from 0)."""
    return {
        strategy: _look((name, config.model_dump_json(), *shape), config, _data=data)
        for strategy, config in strategies.items()
    }


@st.cache_resource(max_entries=48, show_spinner="Grouping the pairs …")
def _look(key: tuple[str, str, int, int, int], config: BatchingConfig, _data: tuple[PairDataset, np.ndarray]) -> Look:
    dataset, vectors = _data
    _, _, batch_size, seed, epoch = key
    plan = build_plan(config, dataset, vectors, seed=seed, epoch=epoch)
    places = plan.places(batch_size)
    hardness = plan_hardness(plan, dataset, vectors, batch_size)
    return Look(plan, hardness, [plan.order[place] for place in places], [plan.groups[place] for place in places])


def comparison(looks: dict[str, Look]) -> pd.DataFrame:
    """The strategies side by side: one line a measure, one column a strategy, numbers as they are read."""
    lines = {
        "nearer than the own document": lambda look: theme.share(look.hardness.closer_share),
        "median nearest cosine": lambda look: theme.metric(_median(look.hardness.hardest)),
        "collisions": lambda look: theme.count(look.hardness.collisions),
        "groups intact": lambda look: theme.share(look.hardness.intact, why="no groups"),
        "batches": lambda look: theme.count(len(look.batches)),
    }
    values = {name: [line(look) for line in lines.values()] for name, look in looks.items()}
    return pd.DataFrame({"": list(lines), **values})


def _median(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else None


def hardest_batch(look: Look, dataset: PairDataset, vectors: np.ndarray) -> int:
    """The batch whose positive queries meet the most similar wrong documents on average."""
    known = KnownPairs(dataset)
    return int(np.argmax([_batch_hardness(rows, dataset, vectors, known) for rows in look.batches]))


def most_suspicious_batch(look: Look, dataset: PairDataset, vectors: np.ndarray) -> int:
    """The batch with the most collisions; among equals, with the most documents nearer than the own one."""
    known = KnownPairs(dataset)
    counts = []
    for rows in look.batches:
        shown = cells(rows, rows, dataset, vectors, known)
        kinds = shown.kinds()
        counts.append((int((kinds == similarity.COLLISION).sum()), int((kinds == similarity.CLOSER).sum())))
    return max(range(len(counts)), key=lambda batch: counts[batch])


def _batch_hardness(rows: np.ndarray, dataset: PairDataset, vectors: np.ndarray, known: KnownPairs) -> float:
    values = similarity_matrix(dataset, vectors, rows).astype(np.float64)
    values[known.collisions(rows) | np.eye(len(rows), dtype=bool)] = -1
    asked = dataset.positive[rows]
    return float(values.max(axis=1)[asked].mean()) if asked.any() else -1.0


def cells(
    rows: np.ndarray, groups: np.ndarray, dataset: PairDataset, vectors: np.ndarray, known: KnownPairs
) -> similarity.Cells:
    """The matrix of one batch with what the data say about its cells."""
    values = similarity_matrix(dataset, vectors, rows)
    return similarity.Cells(values, rows, groups, dataset.positive[rows], known.collisions(rows), known.negative(rows))


def by_group(look: Look, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and groups of a batch with the rows of a group side by side, at most LIMIT of them."""
    rows, groups = look.batches[batch], look.groups[batch]
    first = {group: place for place, group in reversed(list(enumerate(groups.tolist())))}
    order = np.argsort([first[group] for group in groups.tolist()], kind="stable")[:LIMIT]
    return rows[order], groups[order]


def own_cosines(dataset: PairDataset, vectors: np.ndarray) -> np.ndarray:
    """(P,) cosine of each positive pair: what the wrong documents are measured against."""
    left, right = vectors[dataset.query[dataset.positive]], vectors[dataset.document[dataset.positive]]
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    found: np.ndarray = np.divide((left * right).sum(axis=1), lengths, out=np.zeros_like(lengths), where=lengths > 0)
    return found


def sentence(looks: dict[str, Look]) -> str:
    """What the comparison shows, in one sentence with its numbers."""
    parts = [f"{theme.share(look.hardness.closer_share)} under {name}" for name, look in looks.items()]
    return f"A wrong document lies nearer to the query than its own for {', '.join(parts)}."


def group_rows(look: Look, group: int, config: BatchingConfig) -> np.ndarray:
    """The rows of a group with its anchor first: a reversed plan holds the anchor last."""
    rows: np.ndarray = look.plan.order[look.plan.groups == group]
    return rows[::-1] if config.strategy == "examples" and config.reverse else rows


def hardness_picture(looks: dict[str, Look], dataset: PairDataset, vectors: np.ndarray) -> None:
    """The distributions of the strategies laid over each other, with that of the own documents."""
    hardest = {strategy: look.positive_hardest(dataset) for strategy, look in looks.items()}
    table = hardness_figures.hardness_table(hardest, own_cosines(dataset, vectors))
    show.figure(hardness_figures.hardness_figure(table), name="hardness", alt=sentence(looks), data=table)
