"""Statistics of a plan against counts by cell, and their file."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bsc_core.batching import KnownPairs, PlanStats, build_plan, plan_stats, similarity_matrix
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import FileFormatError


@pytest.fixture
def dataset(dataset_of) -> PairDataset:
    generator = np.random.default_rng(4)
    return dataset_of(
        generator.integers(14, size=41).tolist(), generator.integers(20, size=41).tolist(), generator.random(41)
    )


@pytest.fixture
def measured(dataset: PairDataset, vectors_of) -> PlanStats:
    vectors = vectors_of(dataset)
    config = BatchingConfig(strategy="nearest", group_size=3, neighbors=5)
    return plan_stats(partial(build_plan, config, dataset, vectors, seed=1, epoch=0), dataset, vectors, 8)


def test_batches_are_those_of_the_plan_and_hold_every_row_once(measured: PlanStats, dataset: PairDataset) -> None:
    for mine, planned in zip(measured.batches, measured.plan.batches(8), strict=True):
        np.testing.assert_array_equal(mine, planned)
    assert sorted(np.concatenate(measured.batches)) == list(range(len(dataset)))
    rows, groups = measured.batch(2)
    np.testing.assert_array_equal(rows, measured.batches[2])
    group_of = dict(zip(measured.plan.order.tolist(), measured.plan.groups.tolist(), strict=True))
    assert [group_of[row] for row in rows.tolist()] == groups.tolist()


def test_the_hardest_batch_has_the_highest_mean_of_row_maxima(
    measured: PlanStats, dataset: PairDataset, vectors_of
) -> None:
    vectors, known, means = vectors_of(dataset), KnownPairs(dataset), []
    for rows in measured.batches:
        values, crossed = similarity_matrix(dataset, vectors, rows).astype(float), known.collisions(rows)
        hardest = []
        for i in range(len(rows)):
            others = [values[i, j] for j in range(len(rows)) if j != i and not crossed[i, j]]
            if dataset.positive[rows[i]] and others:
                hardest.append(max(others))
        means.append(np.mean(hardest) if hardest else -np.inf)
    assert measured.hardest_batch(dataset) == int(np.argmax(means))


def test_the_batch_with_most_likely_false_negatives_has_most_likely_false_negatives(
    measured: PlanStats, dataset: PairDataset, vectors_of
) -> None:
    vectors, known, counts = vectors_of(dataset), KnownPairs(dataset), []
    for rows in measured.batches:
        values, crossed = similarity_matrix(dataset, vectors, rows), known.collisions(rows)
        positions = range(len(rows))
        collisions = sum(bool(crossed[i, j] or crossed[j, i]) for i in positions for j in positions if i < j)
        negative = known.negative(rows)
        likely = sum(
            bool(dataset.positive[rows[i]] and not negative[i, j] and (crossed[i, j] or values[i, j] > values[i, i]))
            for i in positions
            for j in positions
            if i != j
        )
        counts.append((collisions, likely))
    assert counts == list(
        zip(
            measured.hardness.batch_collisions.tolist(),
            measured.hardness.batch_likely_false_negatives.tolist(),
            strict=True,
        )
    )
    assert sum(collisions for collisions, _ in counts) == measured.hardness.collisions
    assert counts[measured.batch_with_most_likely_false_negatives()][1] == max(likely for _, likely in counts)


def test_group_sizes_and_pairs_in_batches_are_counted(measured: PlanStats, dataset: PairDataset) -> None:
    slow: dict[int, int] = {}
    for group in set(measured.plan.groups.tolist()):
        size = measured.plan.groups.tolist().count(group)
        slow[size] = slow.get(size, 0) + 1
    assert measured.group_sizes() == slow
    assert sum(size * count for size, count in slow.items()) == len(dataset)
    assert measured.crossed_pairs() == sum(1 for rows in measured.batches for i in range(len(rows)) for j in range(i))


def test_the_file_stores_all_values(measured: PlanStats, tmp_path: Path) -> None:
    path = tmp_path / "plan.npz"
    measured.save(path)
    again = PlanStats.load(path)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.npz"]
    for mine, read in zip(measured.batches, again.batches, strict=True):
        np.testing.assert_array_equal(mine, read)
    np.testing.assert_array_equal(measured.hardness.hardest, again.hardness.hardest)
    assert again.hardness.closer_share == measured.hardness.closer_share
    assert again.plan.facts == measured.plan.facts
    assert again.seconds == measured.seconds


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half of an archive", b"order"])
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.npz"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="not plan statistics"):
        PlanStats.load(path)
