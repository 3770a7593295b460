"""Plans of every strategy, their batches and their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.batching import STRATEGIES, BatchPlan, build_plan
from bsc_core.config import BatchingConfig
from bsc_core.errors import FileFormatError, InputError, PathError

repeatable = settings(max_examples=200, derandomize=True)
group_sizes = st.lists(st.integers(1, 12), min_size=0, max_size=40)


def plan_of(sizes: list[int], *, keep_groups: bool) -> BatchPlan:
    """A plan over rows in a shuffled order, with groups of these sizes."""
    order = np.random.default_rng(sum(sizes)).permutation(sum(sizes)).astype(np.int32)
    return BatchPlan(order, np.repeat(np.arange(len(sizes), dtype=np.int32), sizes), keep_groups)


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@given(seed=st.integers(0, 99), rows=st.integers(0, 40), distinct=st.integers(1, 12), config=st.fixed_dictionaries(
    {
        "group_size": st.integers(1, 9),
        "neighbors": st.integers(1, 60),
        "group_by": st.sampled_from(["query", "document"]),
        "metric": st.sampled_from(["cosine", "l2"]),
        "distinct_texts": st.booleans(),
        "easy_first": st.booleans(),
        "keep_groups": st.booleans(),
        "shingle_size": st.integers(1, 4),
        "shingle_neighbors": st.integers(1, 9),
        "stop_count": st.integers(0, 5),
        "graph_neighbors": st.integers(1, 9),
        "skip_ranks": st.integers(0, 9),
    }
))  # fmt: skip
@repeatable
def test_every_strategy_is_a_permutation_of_the_rows(
    dataset_of, vectors_of, strategy: str, seed: int, rows: int, distinct: int, config: dict
) -> None:
    generator = np.random.default_rng(seed)
    dataset = dataset_of(
        generator.integers(distinct, size=rows).tolist(), generator.integers(distinct, size=rows).tolist()
    )
    sides = dataset.query if config["group_by"] == "query" else dataset.document
    settings_of = BatchingConfig(strategy=strategy, clusters=max(1, len(np.unique(sides)) // 2), **config)
    plan = build_plan(settings_of, dataset, vectors_of(dataset), seed=seed, epoch=1)
    assert sorted(plan.order.tolist()) == list(range(rows))
    assert plan.order.dtype == plan.groups.dtype == np.int32
    assert np.all(np.isin(np.diff(plan.groups), [0, 1]))
    assert sorted(np.concatenate([[], *plan.batches(7)]).tolist()) == list(range(rows))


def test_sequential_keeps_the_order_of_the_file(dataset_of) -> None:
    plan = build_plan(BatchingConfig(strategy="sequential"), dataset_of([0, 1, 2], [0, 1, 2]), seed=3, epoch=2)
    assert plan.order.tolist() == [0, 1, 2]


@pytest.mark.parametrize("strategy", sorted(set(STRATEGIES) - {"sequential"}))
def test_seed_and_epoch_decide_the_order(dataset_of, vectors_of, strategy: str) -> None:
    dataset = dataset_of(list(range(200)), list(range(200)))
    vectors = vectors_of(dataset)
    config = BatchingConfig(strategy=strategy, clusters=20)
    pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (2**31 - 1, 0)]
    orders = [build_plan(config, dataset, vectors, seed=s, epoch=e).order.tolist() for s, e in pairs]
    again = [build_plan(config, dataset, vectors, seed=s, epoch=e).order.tolist() for s, e in pairs]
    assert orders == again
    assert len({tuple(order) for order in orders}) == len(pairs)
    assert list(range(200)) not in orders


@given(group_sizes, st.integers(2, 15), st.booleans())
@repeatable
def test_batches_hold_every_row_once_and_never_a_single_one(
    sizes: list[int], batch_size: int, keep_groups: bool
) -> None:
    plan = plan_of(sizes, keep_groups=keep_groups)
    batches = plan.batches(batch_size)
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(plan)))
    lengths = [len(batch) for batch in batches]
    assert lengths == [1] or all(2 <= length <= batch_size + 1 for length in lengths)
    assert sum(length > batch_size for length in lengths) <= 1


@given(group_sizes, st.integers(2, 15))
@repeatable
def test_keep_groups_keeps_groups_whole_where_they_fit(sizes: list[int], batch_size: int) -> None:
    plan = plan_of(sizes, keep_groups=True)
    batch_of = {row: number for number, batch in enumerate(plan.batches(batch_size)) for row in batch.tolist()}
    for group, size in enumerate(sizes):
        homes = {batch_of[row] for row in plan.order[plan.groups == group].tolist()}
        assert len(homes) == 1 or size > batch_size


@given(group_sizes, st.integers(2, 15))
@repeatable
def test_groups_are_packed_first_fit(sizes: list[int], batch_size: int) -> None:
    rooms: list[int] = []
    expected: list[list[int]] = []
    start = 0
    for size in sizes:
        for piece in range(0, size, batch_size):
            length = min(batch_size, size - piece)
            home = next((number for number, room in enumerate(rooms) if room >= length), len(rooms))
            if home == len(rooms):
                rooms.append(batch_size)
                expected.append([])
            rooms[home] -= length
            expected[home] += range(start + piece, start + piece + length)
        start += size
    result = [positions.tolist() for positions in plan_of(sizes, keep_groups=True).positions(batch_size)]
    if all(len(batch) > 1 for batch in expected):
        assert result == expected
    else:
        assert len(result) == max(len(expected) - 1, 1)


@given(group_sizes, st.integers(2, 15), st.booleans())
@repeatable
def test_intact_is_the_share_of_real_groups_in_one_batch(sizes: list[int], batch_size: int, keep_groups: bool) -> None:
    plan = plan_of(sizes, keep_groups=keep_groups)
    batches = [set(batch.tolist()) for batch in plan.batches(batch_size)]
    members = [set(plan.order[plan.groups == group].tolist()) for group in range(len(sizes))]
    complete = [any(group <= batch for batch in batches) for group in members if len(group) > 1]
    assert plan.intact(batch_size) == (pytest.approx(sum(complete) / len(complete)) if complete else None)


def test_last_single_row_joins_the_batch_before() -> None:
    assert [len(batch) for batch in plan_of([1] * 9, keep_groups=False).batches(4)] == [4, 5]
    assert [len(batch) for batch in plan_of([1], keep_groups=False).batches(4)] == [1]
    assert plan_of([], keep_groups=False).batches(4) == []


def test_first_single_row_joins_the_batch_after_it() -> None:
    batches = plan_of([1, 4, 4], keep_groups=True).positions(4)
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3, 4], [5, 6, 7, 8]]


def test_batch_size_of_one_is_refused() -> None:
    with pytest.raises(InputError, match="batch_size is 1; it must be >= 2"):
        plan_of([3], keep_groups=False).batches(1)


@pytest.mark.parametrize("keep_groups", [True, False])
def test_saved_plan_reads_back(tmp_path: Path, keep_groups: bool) -> None:
    plan = plan_of([2, 5, 1], keep_groups=keep_groups)
    plan.save(tmp_path / "epoch-001.npz")
    back = BatchPlan.load(tmp_path / "epoch-001.npz")
    assert back.order.tolist() == plan.order.tolist()
    assert back.groups.tolist() == plan.groups.tolist()
    assert back.keep_groups is keep_groups
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-001.npz"]


def test_missing_broken_and_pickled_plans_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.npz"
    with pytest.raises(PathError, match="no such batch plan"):
        BatchPlan.load(path)
    plan_of([2, 5, 1], keep_groups=False).save(path)
    complete = path.read_bytes()
    objects = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "objects.npz", order=objects, groups=objects, keep_groups=objects)
    np.savez(tmp_path / "other.npz", rows=np.arange(3))
    np.savez(tmp_path / "uneven.npz", order=np.arange(3), groups=np.arange(2), keep_groups=np.array(False))
    np.savez(tmp_path / "floats.npz", order=np.ones(3), groups=np.ones(3), keep_groups=np.array(False))
    np.save(tmp_path / "single.npy", np.arange(3))
    for name, content in {"cut.npz": complete[: len(complete) // 2], "empty.npz": b"", "text.npz": b"order"}.items():
        (tmp_path / name).write_bytes(content)
    names = ["cut.npz", "empty.npz", "text.npz", "objects.npz", "other.npz", "uneven.npz", "floats.npz", "single.npy"]
    for name in names:
        with pytest.raises(FileFormatError, match="not a batch plan"):
            BatchPlan.load(tmp_path / name)


DAMAGED_PLANS: dict[str, Callable[[dict[str, np.ndarray]], object]] = {
    "row twice": lambda arrays: arrays.update(order=np.zeros_like(arrays["order"])),
    "row out of range": lambda arrays: arrays.update(order=arrays["order"] + 1),
    "negative seed": lambda arrays: arrays.update(batch_order=np.array('{"seed": -1}')),
    "unknown mixing": lambda arrays: arrays.update(batch_order=np.array('{"mixing": "all"}')),
    "unknown setting": lambda arrays: arrays.update(batch_order=np.array('{"code": 1}')),
    "temperature without a number": lambda arrays: arrays.update(batch_order=np.array('{"temperature": NaN}')),
    "sources of other rows": lambda arrays: arrays.update(source=np.zeros(3, dtype=np.int32)),
    "huge text id": lambda arrays: arrays["conflict_answers"].fill(2**31 - 1),
    "query out of range": lambda arrays: arrays["conflict_asker"].fill(9),
    "conflicts of other rows": lambda arrays: arrays.update(conflict_own=arrays["conflict_own"][:1]),
    "conflicts of texts": lambda arrays: arrays.update(conflict_own=arrays["conflict_own"].astype(str)),
    "ends out of range": lambda arrays: arrays["conflict_starts"].fill(2**40),
    "many ids": lambda arrays: arrays.update(conflict_own=np.repeat(arrays["conflict_own"], 3, axis=1)),
    "no ends": lambda arrays: arrays.update(conflict_starts=arrays["conflict_starts"][:0]),
}


@pytest.mark.parametrize("name", DAMAGED_PLANS)
def test_a_plan_that_cannot_be_one_of_the_rows_is_refused(tmp_path: Path, dataset_of, name: str) -> None:
    dataset, path = dataset_of([0, 1, 2, 3], [0, 1, 2, 2]), tmp_path / "plan.npz"
    plan = build_plan(BatchingConfig(strategy="random", no_duplicates=True), dataset, seed=0, epoch=0)
    plan.save(path)
    assert BatchPlan.load(path, dataset).order.tolist() == plan.order.tolist()
    with np.load(path) as stored:
        arrays = dict(stored)
    DAMAGED_PLANS[name](arrays)
    np.savez(path, **arrays)
    with pytest.raises(FileFormatError, match="not a batch plan"):
        BatchPlan.load(path, dataset)


def test_embeddings_of_other_texts_are_refused(dataset_of) -> None:
    dataset = dataset_of([0, 1], [0, 1])
    with pytest.raises(InputError, match=r"embeddings are \(3, 2\) for 4 distinct texts"):
        build_plan(BatchingConfig(), dataset, np.zeros((3, 2), dtype=np.float32), seed=0, epoch=0)
    with pytest.raises(InputError, match="none were given"):
        build_plan(BatchingConfig(), dataset, seed=0, epoch=0)
    with pytest.raises(InputError, match="not finite"):
        build_plan(BatchingConfig(), dataset, np.full((4, 2), np.nan, dtype=np.float32), seed=0, epoch=0)
