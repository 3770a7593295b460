"""Batches without collisions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bsc_core.batching import BatchPlan, build_plan, collision_matrix
from bsc_core.batching.conflicts import Conflicts, assign_without_conflicts
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset, read_pairs
from bsc_core.data.decisions import Decision, with_decisions
from bsc_core.errors import InputError

repeatable = settings(max_examples=150, derandomize=True)


def conflict(dataset: PairDataset, one: int, other: int) -> bool:
    """Written from the definition: a shared text on either side, a shared query, or a marked pair between them."""
    texts = [{int(dataset.query[row]), int(dataset.document[row])} for row in (one, other)]
    marked = {tuple(mark) for mark in dataset.marked_pairs.tolist()}
    crossed = {
        (int(dataset.query[one]), int(dataset.document[other])),
        (int(dataset.query[other]), int(dataset.document[one])),
    }
    same_query = dataset.query_group[one] == dataset.query_group[other]
    return bool(texts[0] & texts[1]) or bool(same_query) or bool(crossed & marked)


@given(
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), min_size=2, max_size=40),
    st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=4),
    st.integers(2, 9),
    st.booleans(),
)
@repeatable
def test_no_two_rows_of_a_batch_conflict_and_no_row_is_lost(
    rows: list[tuple[int, int]], marks: list[tuple[int, int]], batch_size: int, keep_groups: bool
) -> None:
    dataset = PairDataset.from_pairs([f"q{a}" for a, _ in rows], [f"d{b}" for _, b in rows])
    dataset = with_decisions(dataset, [Decision(f"q{a}", f"d{b}") for a, b in marks])
    config = BatchingConfig(strategy="words", no_duplicates=True, keep_groups=keep_groups, group_size=3)
    plan = build_plan(config, dataset, seed=len(rows), epoch=0)
    try:
        batches = plan.batches(batch_size)
    except InputError:
        assume(False)
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(dataset)))
    assert all(len(batch) <= batch_size + 1 for batch in batches)
    assert len(batches) == 1 or all(len(batch) >= 2 for batch in batches)
    for batch in batches:
        assert not collision_matrix(dataset, batch).any()
        pairs = [(a, b) for a in batch.tolist() for b in batch.tolist() if a < b]
        assert not any(conflict(dataset, a, b) for a, b in pairs)


def test_rows_without_conflicts_are_cut_in_sequence() -> None:
    dataset = PairDataset.from_pairs([f"q{n}" for n in range(50)], [f"d{n}" for n in range(50)])
    free = build_plan(BatchingConfig(strategy="random"), dataset, seed=0, epoch=0)
    apart = build_plan(BatchingConfig(strategy="random", no_duplicates=True), dataset, seed=0, epoch=0)
    result = zip(free.batches(10), apart.batches(10), strict=True)
    assert all(np.array_equal(one, other) for one, other in result)


def test_a_row_that_conflicts_with_every_other_is_refused() -> None:
    dataset = PairDataset.from_pairs(["q"] * 3, ["a", "b", "c"])
    plan = build_plan(BatchingConfig(strategy="random", no_duplicates=True), dataset, seed=0, epoch=0)
    with pytest.raises(InputError, match=r"set batching\.no_duplicates = false"):
        plan.batches(2)


def test_rows_share_the_positives_of_their_query_and_the_queries_of_their_document(tmp_path: Path) -> None:
    rows = [f"one query\tdocument {n}\nquery {n}\tone document\n" for n in range(100)]
    (tmp_path / "pairs.tsv").write_text("query\tdocument\n" + "".join(rows), encoding="utf-8")
    dataset = read_pairs(tmp_path / "pairs.tsv")
    constraints = Conflicts.of_dataset(dataset).constraints(np.arange(len(dataset), dtype=np.int32))
    large = {id(one): one for row in constraints for one in row.excluded if len(one) > 2}
    assert [len(one) for one in large.values()] == [100, 100]


def test_a_positive_of_another_row_is_a_conflict(tmp_path: Path) -> None:
    rows = "a\tx\t1\na\ty\t1\nb\ty\t0\nc\tz\t1\nd\tw\t1\n"
    (tmp_path / "pairs.tsv").write_text(f"query\tdocument\tlabel\n{rows}", encoding="utf-8")
    dataset = read_pairs(tmp_path / "pairs.tsv")
    constraints = Conflicts.of_dataset(dataset).constraints(np.arange(5, dtype=np.int32))
    batches = assign_without_conflicts([np.array([row]) for row in (0, 2, 3, 4)], constraints, 4)
    assert sorted(sorted(batch.tolist()) for batch in batches) == [[0, 4], [2, 3]]  # y is a positive of a


def test_a_saved_plan_keeps_its_conflicts(tmp_path: Path) -> None:
    dataset = PairDataset.from_pairs(["a", "a", "b", "c", "b", "d"], [f"d{n}" for n in range(6)])
    plan = build_plan(BatchingConfig(strategy="random", no_duplicates=True), dataset, seed=0, epoch=0)
    plan.save(tmp_path / "plan.npz")
    loaded = BatchPlan.load(tmp_path / "plan.npz")
    assert [batch.tolist() for batch in loaded.batches(3)] == [batch.tolist() for batch in plan.batches(3)]
    assert any(collision_matrix(dataset, batch).any() for seed in range(9) for batch in _free(dataset, seed).batches(3))


def _free(dataset: PairDataset, seed: int) -> BatchPlan:
    return build_plan(BatchingConfig(strategy="random"), dataset, seed=seed, epoch=0)


def test_a_marked_pair_counts_as_a_collision() -> None:
    dataset = PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"])
    rows = np.arange(3, dtype=np.int32)
    assert not collision_matrix(dataset, rows).any()
    marked = with_decisions(dataset, [Decision("a", "y"), Decision("a", "gone")])
    assert np.argwhere(collision_matrix(marked, rows)).tolist() == [[0, 1]]
    assert marked.digest != dataset.digest
    assert replace(marked, false_negatives=None).digest == dataset.digest


def test_a_feasible_set_is_assigned_for_every_seed() -> None:
    rows = zip([1, 1, 4, 0, 0, 2], [0, 3, 3, 0, 2, 1], strict=True)
    pairs = [(f"q{query}", f"d{document}") for query, document in rows]
    dataset = PairDataset.from_pairs([query for query, _ in pairs], [document for _, document in pairs])
    config = BatchingConfig(strategy="random", no_duplicates=True)
    for seed in [*range(50), 469]:
        batches = build_plan(config, dataset, seed=seed, epoch=0).batches(3)
        assert sorted(row for batch in batches for row in batch.tolist()) == list(range(6))


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=6, max_size=60),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=3),
)
@repeatable
def test_marked_rows_are_separated_even_with_collisions_allowed(
    rows: list[tuple[int, int]], marks: list[tuple[int, int]]
) -> None:
    dataset = PairDataset.from_pairs([f"q{a}" for a, _ in rows], [f"d{b}" for _, b in rows])
    dataset = with_decisions(dataset, [Decision(f"q{a}", f"d{b}") for a, b in marks])
    plan = build_plan(BatchingConfig(strategy="random"), dataset, seed=len(rows), epoch=0)
    try:
        batches = plan.batches(6)
    except InputError:
        assume(False)
    assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(dataset)))
    marked = {tuple(mark) for mark in dataset.marked_pairs.tolist()}
    for batch in batches:
        met = {(int(dataset.query[a]), int(dataset.document[b])) for a in batch for b in batch if a != b}
        assert not met & marked
