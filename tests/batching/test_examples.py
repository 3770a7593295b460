"""Example-based shuffling beside a slow transcription of Algorithm 1, and the resolutions that differ from its code."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.batching import BatchPlan, build_plan
from bsc_core.config import BatchingConfig


def groups_of(plan: BatchPlan) -> list[list[int]]:
    """Rows of each group, in plan order."""
    return [plan.order[plan.groups == group].tolist() for group in range(plan.groups.max(initial=-1) + 1)]


def drawn_order(rows: int, seed: int, epoch: int) -> list[int]:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch,))).permutation(rows).tolist()


@given(
    st.integers(0, 999),
    st.integers(1, 45),
    st.integers(1, 30),
    st.integers(1, 9),
    st.integers(1, 50),
    st.sampled_from(["query", "document"]),
    st.sampled_from(["cosine", "l2"]),
    st.booleans(),
)
@settings(max_examples=400, deadline=None, derandomize=True)
def test_groups_match_the_slow_transcription_of_algorithm_1(
    dataset_of, vectors_of, slow_groups, seed, rows, distinct, group_size, neighbours, by, metric, distinct_texts
) -> None:
    chooser = np.random.default_rng(seed)
    dataset = dataset_of(chooser.integers(distinct, size=rows).tolist(), chooser.integers(distinct, size=rows).tolist())
    vectors = vectors_of(dataset, seed=seed)
    config = BatchingConfig(
        group_size=group_size, neighbours=neighbours, by=by, metric=metric, distinct_texts=distinct_texts, reverse=False
    )
    expected = slow_groups(config, dataset, vectors, drawn_order(rows, seed, 4))
    assert groups_of(build_plan(config, dataset, vectors, seed=seed, epoch=4)) == expected
    turned = config.model_copy(update={"reverse": True})
    reversed_groups = groups_of(build_plan(turned, dataset, vectors, seed=seed, epoch=4))
    assert reversed_groups == [group[::-1] for group in expected[::-1]]


def test_first_group_has_exactly_the_group_size_including_the_anchor(dataset_of, vectors_of) -> None:
    dataset = dataset_of(list(range(100)), list(range(100)))
    for group_size in (1, 2, 7, 8):
        config = BatchingConfig(group_size=group_size, reverse=False)
        sizes = [len(group) for group in groups_of(build_plan(config, dataset, vectors_of(dataset), seed=0, epoch=0))]
        # Every text is a neighbour of every other, so only the last group can run out of rows.
        assert sizes == [group_size] * (100 // group_size) + [100 % group_size] * (100 % group_size > 0)


@pytest.mark.parametrize("distinct_texts", [True, False])
def test_copies_of_a_query_do_not_let_groups_grow(dataset_of, vectors_of, distinct_texts: bool) -> None:
    dataset = dataset_of([query for query in range(40) for _ in range(10)], list(range(400)))
    config = BatchingConfig(group_size=7, distinct_texts=distinct_texts)
    groups = groups_of(build_plan(config, dataset, vectors_of(dataset), seed=1, epoch=0))
    assert max(len(group) for group in groups) == 7
    repeated = any(len({int(dataset.query[row]) for row in group}) < len(group) for group in groups)
    assert repeated is not distinct_texts


def test_distinct_texts_holds_for_both_sides(dataset_of, vectors_of) -> None:
    chooser = np.random.default_rng(2)
    dataset = dataset_of(chooser.integers(60, size=300).tolist(), chooser.integers(5, size=300).tolist())
    for by in ("query", "document"):
        plan = build_plan(BatchingConfig(by=by), dataset, vectors_of(dataset), seed=0, epoch=0)
        for group in groups_of(plan):
            texts = [*dataset.query[group].tolist(), *dataset.document[group].tolist()]
            assert len(set(texts)) == len(texts)


def test_more_neighbours_than_rows_trains_no_row_twice(dataset_of, vectors_of) -> None:
    dataset = dataset_of(list(range(199)), list(range(199)))
    plan = build_plan(BatchingConfig(neighbours=200), dataset, vectors_of(dataset), seed=0, epoch=0)
    assert sorted(plan.order.tolist()) == list(range(199))


def test_equal_vectors_of_different_texts_are_neighbours(dataset_of) -> None:
    dataset = dataset_of(list(range(30)), list(range(30)))
    vectors = np.ones((len(dataset.texts), 4), dtype=np.float32)
    plan = build_plan(BatchingConfig(group_size=5, neighbours=6), dataset, vectors, seed=0, epoch=0)
    assert sorted(plan.order.tolist()) == list(range(30))
    assert max(len(group) for group in groups_of(plan)) == 5


def test_reversed_order_begins_with_the_small_groups(dataset_of, vectors_of) -> None:
    dataset = dataset_of(list(range(300)), list(range(300)))
    config = BatchingConfig(neighbours=12)
    sizes = [len(group) for group in groups_of(build_plan(config, dataset, vectors_of(dataset), seed=0, epoch=0))]
    assert np.mean(sizes[:10]) < np.mean(sizes[-10:])
    assert sizes[-1] == config.group_size


def test_cosine_ignores_length_and_l2_does_not(dataset_of) -> None:
    dataset = dataset_of([0, 1, 2], [0, 1, 2])
    query = {dataset.texts[ident]: ident for ident in dataset.query.tolist()}
    vectors = np.zeros((len(dataset.texts), 2), dtype=np.float32)
    vectors[query["q0"]] = (1, 0)
    vectors[query["q1"]] = (100, 10)  # the same direction, far away
    vectors[query["q2"]] = (0, 1)
    for metric, partner in (("cosine", 1), ("l2", 2)):
        config = BatchingConfig(group_size=2, neighbours=1, metric=metric, reverse=False)
        for epoch in range(20):
            groups = groups_of(build_plan(config, dataset, vectors, seed=0, epoch=epoch))
            if groups[0][0] == 0:
                assert groups[0] == [0, partner]
                break
        else:
            pytest.fail("row 0 was never the first anchor")


def test_progress_counts_the_rows_that_have_a_group(dataset_of, vectors_of) -> None:
    dataset = dataset_of(list(range(3000)), list(range(3000)))
    seen: list[tuple[int, int]] = []
    config = BatchingConfig(group_size=2)
    build_plan(config, dataset, vectors_of(dataset), seed=0, epoch=0, progress=lambda *done: seen.append(done))
    assert len(seen) > 1
    assert seen == sorted(set(seen))
    assert seen[-1] == (3000, 3000)


def test_27000_rows_with_2400_queries_are_planned_in_half_a_second(dataset_of, vectors_of) -> None:
    chooser = np.random.default_rng(0)
    dataset = dataset_of(chooser.integers(2_400, size=27_000).tolist(), list(range(27_000)))
    vectors = vectors_of(dataset, width=384)
    build_plan(BatchingConfig(), dataset.take(np.arange(50)), vectors, seed=0, epoch=0)  # loads Faiss
    seconds = []
    for epoch in range(3):
        start = time.process_time()
        plan = build_plan(BatchingConfig(), dataset, vectors, seed=0, epoch=epoch)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.5
    sizes = np.bincount(plan.groups)
    assert sizes.max() == 8
    assert (sizes == 8).mean() > 0.9


def test_importing_the_package_loads_no_faiss() -> None:
    code = "import sys, bsc_core.batching; raise SystemExit(bool({'faiss', 'torch', 'umap'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
