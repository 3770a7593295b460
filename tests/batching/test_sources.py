"""Batches of a single source, and the order of their sources."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.batching import STRATEGIES, BatchPlan, KnownPairs, build_plan
from bsc_core.batching.sources import BatchOrder
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import InputError

repeatable = settings(max_examples=25, derandomize=True)
MIXING = ["proportional", "round_robin", "temperature"]


def mixed_pairs(dataset_of, sizes: list[int], seed: int = 0) -> PairDataset:
    """Distinct pairs of several sources, in random order."""
    rows = sum(sizes)
    source = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes), dtype=np.int32), sizes))
    return replace(dataset_of(list(range(rows)), list(range(rows))), source=source)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@given(
    seed=st.integers(0, 99),
    sizes=st.lists(st.integers(2, 25), min_size=1, max_size=4),
    batch_size=st.integers(2, 9),
    keep_groups=st.booleans(),
    no_duplicates=st.booleans(),
    mixing=st.sampled_from(MIXING),
)
@repeatable
def test_batches_hold_rows_of_one_source(
    dataset_of,
    vectors_of,
    strategy: str,
    seed: int,
    sizes: list[int],
    batch_size: int,
    keep_groups: bool,
    no_duplicates: bool,
    mixing: str,
) -> None:
    dataset = mixed_pairs(dataset_of, sizes, seed)
    config = BatchingConfig(
        **{"strategy": strategy, "group_size": 3, "clusters": 2, "graph_neighbors": 4, "skip_ranks": 1},
        **{"single_source": True, "mixing": mixing, "mixing_temperature": 2, "keep_groups": keep_groups},
        no_duplicates=no_duplicates and strategy != "premises",
    )
    plan = build_plan(config, dataset, vectors_of(dataset), seed=seed, epoch=0)
    assert sorted(plan.order.tolist()) == list(range(len(dataset)))
    assert dataset.source is not None
    for group in np.unique(plan.groups):
        assert len(set(dataset.source[plan.order[plan.groups == group]].tolist())) == 1
    batches = plan.batches(batch_size)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(dataset)))
    lengths: dict[int, list[int]] = {}
    for batch in batches:
        (number,) = set(dataset.source[batch].tolist())
        lengths.setdefault(number, []).append(len(batch))
    for number, size in enumerate(sizes):
        assert all(2 <= length <= batch_size + 1 for length in lengths[number])
        if not config.keep_groups and not config.no_duplicates and strategy != "premises":
            extra = 1 if size % batch_size == 1 and size > 1 else 0
            assert sorted(lengths[number])[::-1][extra:-1] == [batch_size] * (len(lengths[number]) - 1 - extra)
            assert len(lengths[number]) == max(1, -(-size // batch_size) - extra)


@pytest.mark.parametrize("mixing", MIXING)
def test_seed_and_epoch_decide_the_order_and_a_saved_plan_has_it(dataset_of, tmp_path: Path, mixing: str) -> None:
    dataset = mixed_pairs(dataset_of, [200, 60, 20])
    config = BatchingConfig(strategy="random", single_source=True, mixing=mixing, mixing_temperature=3)
    plans = [build_plan(config, dataset, seed=seed, epoch=epoch) for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))]
    batches = [[batch.tolist() for batch in plan.batches(8)] for plan in plans]
    assert batches[0] == batches[1]
    assert batches[0] != batches[2]
    assert batches[0] != batches[3]
    plans[0].save(tmp_path / "plan.npz")
    assert [batch.tolist() for batch in BatchPlan.load(tmp_path / "plan.npz").batches(8)] == batches[0]


def sources_of(plan: BatchPlan, dataset: PairDataset, batch_size: int) -> list[int]:
    assert dataset.source is not None
    return [int(dataset.source[batch[0]]) for batch in plan.batches(batch_size)]


def test_round_robin_takes_turns_until_a_source_is_used_up(dataset_of) -> None:
    dataset = mixed_pairs(dataset_of, [24, 8, 16])
    config = BatchingConfig(strategy="random", single_source=True, mixing="round_robin")
    plan = build_plan(config, dataset, seed=0, epoch=0)
    assert sources_of(plan, dataset, 4) == [0, 1, 2, 0, 1, 2, 0, 2, 0, 2, 0, 0]


def test_proportional_order_is_uniform(dataset_of) -> None:
    dataset = mixed_pairs(dataset_of, [120, 40])
    config = BatchingConfig(strategy="random", single_source=True)
    shares = np.mean(
        [sources_of(build_plan(config, dataset, seed=0, epoch=epoch), dataset, 4) for epoch in range(400)], axis=0
    )
    assert shares.mean() == pytest.approx(0.25)  # 10 of 40 batches are of source 1
    assert np.abs(shares - 0.25).max() < 0.09  # four standard errors


@pytest.mark.parametrize("temperature", [1.0, 2.0, 1000.0])
def test_temperature_sets_the_probability_of_a_source(dataset_of, temperature: float) -> None:
    sizes = np.array([900, 100])
    dataset = mixed_pairs(dataset_of, sizes.tolist())
    config = BatchingConfig(strategy="random", single_source=True, mixing="temperature", mixing_temperature=temperature)
    orders = [sources_of(build_plan(config, dataset, seed=0, epoch=epoch), dataset, 4) for epoch in range(400)]
    weights = sizes ** (1 / temperature)
    first = np.mean([order[:10] for order in orders])  # neither source can be used up
    assert first == pytest.approx(weights[1] / weights.sum(), abs=0.04)
    last = [len(order) - 1 - order[::-1].index(1) for order in orders]
    assert (np.mean(last) > 200) == (temperature == 1)  # of 250: a large temperature uses the small source up early


def test_the_order_of_a_source_is_that_of_the_plan(dataset_of) -> None:
    dataset = mixed_pairs(dataset_of, [30, 50])
    plan = build_plan(BatchingConfig(strategy="sequential", single_source=True), dataset, seed=0, epoch=0)
    assert dataset.source is not None
    for number in (0, 1):
        rows = np.concatenate([batch for batch in plan.batches(7) if dataset.source[batch[0]] == number])
        assert rows.tolist() == np.flatnonzero(dataset.source == number).tolist()


def test_duplicates_are_avoided_in_each_source(dataset_of) -> None:
    generator = np.random.default_rng(0)
    dataset = dataset_of(generator.integers(20, size=90).tolist(), list(range(90)))
    dataset = replace(dataset, source=np.repeat(np.arange(3, dtype=np.int32), 30))
    config = BatchingConfig(strategy="random", single_source=True, no_duplicates=True)
    plan, known = build_plan(config, dataset, seed=0, epoch=0), KnownPairs(dataset)
    assert dataset.source is not None
    for batch in plan.batches(6):
        assert len(set(dataset.source[batch].tolist())) == 1
        assert not known.collisions(batch).any()


def test_one_source_gives_the_plan_without_sources(dataset_of, vectors_of) -> None:
    dataset = dataset_of(list(range(40)), list(range(40)))
    plain = build_plan(BatchingConfig(), dataset, vectors_of(dataset), seed=0, epoch=0)
    config = BatchingConfig(single_source=True)
    for one in (dataset, replace(dataset, source=np.zeros(40, dtype=np.int32))):
        plan = build_plan(config, one, vectors_of(dataset), seed=0, epoch=0)
        assert [rows.tolist() for rows in plan.batches(8)] == [rows.tolist() for rows in plain.batches(8)]


def test_without_single_source_batches_hold_rows_of_several(dataset_of) -> None:
    dataset = mixed_pairs(dataset_of, [40, 40])
    plan = build_plan(BatchingConfig(strategy="random"), dataset, seed=0, epoch=0)
    assert dataset.source is not None
    assert any(len(set(dataset.source[batch].tolist())) == 2 for batch in plan.batches(8))


def test_a_source_with_one_row_is_refused(dataset_of) -> None:
    dataset = mixed_pairs(dataset_of, [6, 1])
    with pytest.raises(InputError, match="file 2 of the training pairs has one row"):
        build_plan(BatchingConfig(strategy="random", single_source=True), dataset, seed=0, epoch=0)


def test_errors_and_facts_name_the_file(dataset_of, vectors_of) -> None:
    dataset = mixed_pairs(dataset_of, [20, 4])
    broken = vectors_of(dataset)
    broken[dataset.query[dataset.source == 1]] = np.nan
    config = BatchingConfig(strategy="clusters", clusters=5, single_source=True)
    with pytest.raises(InputError, match=r"file 2 of the training pairs: embeddings are not finite"):
        build_plan(config, dataset, broken, seed=0, epoch=0)
    assert build_plan(config, dataset, vectors_of(dataset), seed=0, epoch=0).facts == {
        "clusters of file 1": 5.0,
        "clusters of file 2": 1.0,
    }
    words = build_plan(BatchingConfig(strategy="words", single_source=True), dataset, seed=0, epoch=0)
    assert words.facts == {"words of file 1": 20.0, "words of file 2": 4.0}
    near = build_plan(BatchingConfig(single_source=True), dataset, vectors_of(dataset), seed=0, epoch=0)
    assert near.facts == {"search": "exact"}


def test_clusters_start_from_those_of_their_source(dataset_of, vectors_of) -> None:
    dataset = mixed_pairs(dataset_of, [60, 30])
    vectors = vectors_of(dataset)
    config = BatchingConfig(strategy="clusters", clusters=3, single_source=True)
    first = build_plan(config, dataset, vectors, seed=0, epoch=0)
    second = build_plan(config, dataset, vectors, seed=0, epoch=1, previous=first)
    assert dataset.source is not None
    assert first.centroids is not None
    assert second.centroids is not None
    for number in (0, 1):
        rows = dataset.take(np.flatnonzero(dataset.source == number))
        alone = config.model_copy(update={"single_source": False})
        start = build_plan(alone, rows, vectors, seed=0, epoch=0)
        again = build_plan(alone, rows, vectors, seed=0, epoch=1, previous=start)
        part = slice(3 * number, 3 * number + 3)
        np.testing.assert_array_equal(first.centroids[part], start.centroids)
        np.testing.assert_array_equal(second.centroids[part], again.centroids)


def test_an_empty_plan_has_no_batches() -> None:
    assert BatchOrder(shuffled=True).arrange([[]]) == []
    assert BatchOrder(source=np.empty(0, dtype=np.int32)).arrange([]) == []
