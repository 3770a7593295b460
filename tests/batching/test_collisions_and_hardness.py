"""Collisions and hardness against cell-by-cell definitions."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.batching import (
    BatchPlan,
    KnownPairs,
    build_plan,
    collision_matrix,
    hardest_negatives,
    plan_hardness,
    similarity_matrix,
)
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset, read_pairs
from bsc_core.neighbors import unit_rows

seeds = st.integers(0, 999)
repeatable = settings(max_examples=100, derandomize=True)


def labeled(dataset_of, seed: int, rows: int = 40) -> PairDataset:
    """Random pairs with repeated texts on both sides, labels, and query ids that some texts share."""
    generator = np.random.default_rng(seed)
    queries = generator.integers(14, size=rows)
    return dataset_of(
        queries.tolist(),
        generator.integers(16, size=rows).tolist(),
        generator.random(rows).tolist(),
        query_ids=[f"id{query // 2}" for query in queries],
    )


def slow_collision(dataset: PairDataset, i: int, j: int) -> bool:
    """Whether any positive row joins the document of j to the query text or the query group of i."""
    return i != j and any(
        dataset.positive[row]
        and dataset.document[row] == dataset.document[j]
        and (dataset.query[row] == dataset.query[i] or dataset.query_group[row] == dataset.query_group[i])
        for row in range(len(dataset))
    )


@given(seeds)
@repeatable
def test_collisions_match_their_definition(dataset_of, seed: int) -> None:
    dataset = labeled(dataset_of, seed)
    rows = np.random.default_rng(seed).permutation(40)[:12].astype(np.int32)
    expected = [[slow_collision(dataset, i, j) for j in rows] for i in rows]
    assert collision_matrix(dataset, rows).tolist() == expected


def test_each_kind_of_collision_is_found(dataset_of) -> None:
    dataset = dataset_of([0, 0, 1, 2, 3, 2], [0, 1, 1, 2, 3, 3], [1, 1, 1, 1, 1, 1])
    rows = np.array([0, 1, 2, 3, 4], dtype=np.int32)
    result = {(i, j) for i, j in zip(*np.nonzero(collision_matrix(dataset, rows)), strict=True)}
    same_query, same_document, elsewhere = {(0, 1), (1, 0), (0, 2)}, {(1, 2), (2, 1)}, {(3, 4)}
    assert result == same_query | same_document | elsewhere


def test_labeled_negative_of_the_same_query_is_no_collision(dataset_of) -> None:
    dataset = dataset_of([0, 0], [0, 1], [1.0, 0.2])
    assert collision_matrix(dataset, np.array([0, 1])).tolist() == [[False, False], [True, False]]
    assert KnownPairs(dataset).negative(np.array([0, 1])).tolist() == [[False, True], [False, True]]


def test_dataset_without_positives_has_no_collisions(dataset_of) -> None:
    dataset = dataset_of([0, 0], [0, 0], [0.0, 0.0])
    assert not collision_matrix(dataset, np.array([0, 1])).any()


def test_similarities_are_cosines_of_queries_and_documents(dataset_of, vectors_of) -> None:
    dataset = dataset_of([0, 1, 2], [0, 1, 0])
    vectors = vectors_of(dataset)
    vectors[dataset.query[1]] = 0
    rows = np.array([2, 0, 1], dtype=np.int32)
    result = similarity_matrix(dataset, vectors, rows)
    for i, row in enumerate(rows):
        for j, other in enumerate(rows):
            left, right = vectors[dataset.query[row]], vectors[dataset.document[other]]
            expected = 0 if row == 1 else left @ right / np.linalg.norm(left) / np.linalg.norm(right)
            assert result[i, j] == pytest.approx(expected, abs=1e-6)


@given(seeds, st.booleans())
@repeatable
def test_plan_hardness_matches_its_definition(dataset_of, vectors_of, seed: int, keep_groups: bool) -> None:
    dataset = labeled(dataset_of, seed)
    vectors = vectors_of(dataset, seed=seed)
    plan = build_plan(BatchingConfig(group_size=3, keep_groups=keep_groups), dataset, vectors, seed=seed, epoch=0)
    hardness = plan_hardness(plan, dataset, vectors, 7)
    position = {int(row): number for number, row in enumerate(plan.order)}
    closer, collisions = [], 0
    for batch in plan.batches(7):
        similarities = similarity_matrix(dataset, vectors, batch)
        for i, row in enumerate(batch):
            negatives = [
                similarities[i, j] for j, o in enumerate(batch) if j != i and not slow_collision(dataset, row, o)
            ]
            result = hardness.hardest[position[int(row)]]
            assert np.isnan(result) if not negatives else result == pytest.approx(max(negatives))
            assert hardness.pair_similarity[position[int(row)]] == pytest.approx(similarities[i, i])
            if negatives and dataset.positive[row]:
                closer.append(max(negatives) > similarities[i, i])
            collisions += sum(
                slow_collision(dataset, row, other) or slow_collision(dataset, other, row) for other in batch[i + 1 :]
            )
    assert hardness.closer_share == (pytest.approx(np.mean(closer)) if closer else None)
    assert hardness.collisions == collisions
    assert hardness.intact == plan.intact(7)


def test_a_single_pair_has_no_hardness(dataset_of, vectors_of) -> None:
    dataset = dataset_of([0], [0])
    plan = BatchPlan(np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32))
    hardness = plan_hardness(plan, dataset, vectors_of(dataset), 4)
    assert np.isnan(hardness.hardest).all()
    assert (hardness.closer_share, hardness.collisions, hardness.intact) == (None, 0, None)


def test_nearest_gives_harder_negatives_than_random(dataset_of) -> None:
    generator = np.random.default_rng(0)
    dataset = dataset_of(list(range(400)), list(range(400)))
    topics = generator.normal(size=(50, 16))
    vectors = np.empty((len(dataset.texts), 16), dtype=np.float32)
    for row in range(400):
        pair = topics[row % 50] + 0.5 * generator.normal(size=16)
        vectors[[dataset.query[row], dataset.document[row]]] = pair + 0.3 * generator.normal(size=(2, 16))
    hard, easy = (
        plan_hardness(
            build_plan(BatchingConfig(strategy=name), dataset, vectors, seed=0, epoch=0), dataset, vectors, 16
        )
        for name in ("examples", "random")
    )
    assert np.nanmean(hard.hardest) > np.nanmean(easy.hardest) + 0.1
    assert hard.closer_share > easy.closer_share


@given(seeds)
@repeatable
def test_hardest_negatives_are_the_most_similar_other_documents(dataset_of, vectors_of, seed: int) -> None:
    dataset = labeled(dataset_of, seed)
    vectors = vectors_of(dataset, seed=seed)
    rows = np.random.default_rng(seed).permutation(40)[:10].astype(np.int32)
    similarities = similarity_matrix(dataset, vectors, rows)
    cells = {
        (int(rows[i]), int(rows[j])): (float(similarities[i, j]), float(similarities[i, i]))
        for i in range(10)
        for j in range(10)
        if i != j and dataset.positive[rows[i]]
    }
    result = hardest_negatives(dataset, vectors, rows, top=15)
    assert [pair.similarity for pair in result] == sorted((cell[0] for cell in cells.values()), reverse=True)[:15]
    for pair in result:
        assert cells[pair.query_row, pair.document_row] == (pair.similarity, pair.positive_similarity)
        assert not (pair.labeled_negative and slow_collision(dataset, pair.query_row, pair.document_row))


def test_hard_negatives_report_which_pairs_are_labeled_negative(dataset_of) -> None:
    dataset = dataset_of([0, 0, 1], [0, 1, 2], [1.0, 0.0, 1.0])
    vectors = np.zeros((len(dataset.texts), 2), dtype=np.float32)
    vectors[dataset.query[0]] = (1, 0)
    vectors[dataset.document] = [(1, 1), (1, 0), (2, 1)]
    vectors[dataset.query[2]] = (0, 1)
    result = hardest_negatives(dataset, vectors, np.arange(3, dtype=np.int32), top=2)
    assert [(pair.query_row, pair.document_row) for pair in result] == [(0, 1), (0, 2)]
    assert [pair.labeled_negative for pair in result] == [True, False]


def word_vectors(texts, *, width: int = 512) -> np.ndarray:
    """Counts of words that share a bucket: enough for texts on one topic to be near each other."""
    vectors = np.zeros((len(texts), width), dtype=np.float32)
    for number in range(len(texts)):
        for word in texts[number].lower().split():
            vectors[number, zlib.crc32(word.encode()) % width] += 1
    return vectors


@pytest.mark.parametrize("by", ["query", "document"])
def test_groups_of_the_sample_pairs_are_similar_and_repeat_no_text(sample_pairs: Path, by: str) -> None:
    dataset = read_pairs(sample_pairs)
    vectors = word_vectors(dataset.texts)
    plan = build_plan(BatchingConfig(group_by=by, keep_groups=True), dataset, vectors, seed=0, epoch=0)
    side = unit_rows(vectors[dataset.query if by == "query" else dataset.document])
    similarity_in_batches = []
    for group in range(plan.groups.max() + 1):
        rows = plan.order[plan.groups == group]
        texts = [*dataset.query[rows].tolist(), *dataset.document[rows].tolist()]
        assert len(rows) <= 8
        assert len(set(texts)) == len(texts)
        if len(rows) > 1:
            similarity_in_batches.append((side[rows] @ side[rows].T)[~np.eye(len(rows), dtype=bool)].mean())
    assert sorted(plan.order.tolist()) == list(range(len(dataset)))
    assert plan.intact(30) == 1
    assert np.mean(similarity_in_batches) > 1.25 * (side @ side.T).mean()
