"""Example-based shuffling against a slow transcription of Algorithm 1, and where it differs from its code."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core import neighbors
from bsc_core.batching import BatchPlan, build_plan
from bsc_core.batching.strategies import nearest as nearest_module
from bsc_core.config import BatchingConfig
from bsc_core.errors import InputError


def groups_of(plan: BatchPlan) -> list[list[int]]:
    """Rows of each group, in plan order."""
    return [plan.order[plan.groups == group].tolist() for group in range(plan.groups.max(initial=-1) + 1)]


def drawn_order(rows: int, seed: int, epoch: int) -> list[int]:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(epoch,))).permutation(rows).tolist()


def random_case(dataset_of, vectors_of, seed: int, rows: int, distinct: int, **options):
    """Return the config, random pairs with repeated texts, and their vectors."""
    generator = np.random.default_rng(seed)
    dataset = dataset_of(*(generator.integers(distinct, size=rows).tolist() for _ in range(2)))
    return BatchingConfig(**options), dataset, vectors_of(dataset, seed=seed)


def options_of(max_neighbors: int, **more):
    return st.fixed_dictionaries(
        {
            "group_size": st.integers(1, 9),
            "neighbors": st.integers(1, max_neighbors),
            "group_by": st.sampled_from(["query", "document"]),
            "metric": st.sampled_from(["cosine", "l2"]),
            "distinct_texts": st.booleans(),
            **more,
        }
    )


@given(st.integers(0, 999), st.integers(1, 45), st.integers(1, 30), options_of(50, easy_first=st.just(False)))
@settings(max_examples=400, derandomize=True)
def test_groups_match_the_slow_transcription_of_algorithm_1(
    dataset_of, vectors_of, slow_groups, seed, rows, distinct, options
) -> None:
    config, dataset, vectors = random_case(dataset_of, vectors_of, seed, rows, distinct, **options)
    expected = slow_groups(config, dataset, vectors, drawn_order(rows, seed, 4))
    assert groups_of(build_plan(config, dataset, vectors, seed=seed, epoch=4)) == expected
    easy_first = config.model_copy(update={"easy_first": True})
    reversed_groups = groups_of(build_plan(easy_first, dataset, vectors, seed=seed, epoch=4))
    assert reversed_groups == [group[::-1] for group in expected[::-1]]


def test_first_group_has_exactly_the_group_size_including_the_anchor(dataset_of, vectors_of) -> None:
    dataset = dataset_of(list(range(100)), list(range(100)))
    for group_size in (1, 2, 7, 8):
        config = BatchingConfig(group_size=group_size, easy_first=False)
        sizes = [len(group) for group in groups_of(build_plan(config, dataset, vectors_of(dataset), seed=0, epoch=0))]
        # Every text is a neighbor of every other, so only the last group can run out of rows.
        assert sizes == [group_size] * (100 // group_size) + [100 % group_size] * (100 % group_size > 0)


@pytest.mark.parametrize("distinct_texts", [True, False])
def test_copies_of_a_query_do_not_let_groups_grow(dataset_of, vectors_of, distinct_texts: bool) -> None:
    dataset = dataset_of([query for query in range(40) for _ in range(10)], list(range(400)))
    config = BatchingConfig(group_size=7, distinct_texts=distinct_texts)
    groups = groups_of(build_plan(config, dataset, vectors_of(dataset), seed=1, epoch=0))
    assert max(len(group) for group in groups) == 7
    repeated = any(len({int(dataset.query[row]) for row in group}) < len(group) for group in groups)
    assert repeated is not distinct_texts


def test_distinct_texts_applies_to_both_sides(dataset_of, vectors_of) -> None:
    generator = np.random.default_rng(2)
    dataset = dataset_of(generator.integers(60, size=300).tolist(), generator.integers(5, size=300).tolist())
    for by in ("query", "document"):
        plan = build_plan(BatchingConfig(group_by=by), dataset, vectors_of(dataset), seed=0, epoch=0)
        for group in groups_of(plan):
            texts = [*dataset.query[group].tolist(), *dataset.document[group].tolist()]
            assert len(set(texts)) == len(texts)


def test_more_neighbors_than_rows_trains_no_row_twice(dataset_of, vectors_of) -> None:
    dataset = dataset_of(list(range(199)), list(range(199)))
    plan = build_plan(BatchingConfig(neighbors=200), dataset, vectors_of(dataset), seed=0, epoch=0)
    assert sorted(plan.order.tolist()) == list(range(199))


def test_equal_vectors_of_different_texts_are_neighbors(dataset_of) -> None:
    dataset = dataset_of(list(range(30)), list(range(30)))
    vectors = np.ones((len(dataset.texts), 4), dtype=np.float32)
    plan = build_plan(BatchingConfig(group_size=5, neighbors=6), dataset, vectors, seed=0, epoch=0)
    assert sorted(plan.order.tolist()) == list(range(30))
    assert max(len(group) for group in groups_of(plan)) == 5


def test_easy_first_starts_with_the_small_groups(dataset_of, vectors_of) -> None:
    dataset = dataset_of(list(range(300)), list(range(300)))
    config = BatchingConfig(neighbors=12)
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
        config = BatchingConfig(group_size=2, neighbors=1, metric=metric, easy_first=False)
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


@given(
    st.integers(0, 999),
    st.integers(0, 300),
    st.integers(1, 300),
    options_of(400, easy_first=st.booleans(), search=st.just("approximate")),
)
@settings(max_examples=60, derandomize=True)
def test_approximate_groups_hold_every_row_once_and_keep_the_rules(
    dataset_of, vectors_of, seed, rows, distinct, options
) -> None:
    config, dataset, vectors = random_case(dataset_of, vectors_of, seed, rows, distinct, **options)
    plan = build_plan(config, dataset, vectors, seed=seed, epoch=1)
    assert sorted(plan.order.tolist()) == list(range(rows))
    assert np.diff(plan.groups, prepend=0).min(initial=0) == 0  # ids rise from 0, one after another
    assert np.diff(plan.groups, prepend=0).max(initial=0) <= 1
    assert max((len(group) for group in groups_of(plan)), default=0) <= config.group_size
    for group in groups_of(plan) if config.distinct_texts else []:
        texts = [*dataset.query[group].tolist(), *dataset.document[group].tolist()]
        assert len(set(texts)) == len(texts)
    again = build_plan(config, dataset, vectors, seed=seed, epoch=1)
    assert np.array_equal(plan.order, again.order)
    assert np.array_equal(plan.groups, again.groups)
    assert plan.facts == again.facts


def slow_share_as_exact(groups: list[list[int]], points: np.ndarray, neighbors: int, size: int) -> float:
    """Share of groups with as many rows as exact search would give, and as near. points: (N, D), one text a row."""
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    unused, good = set(range(len(unit))), 0
    for group in groups:
        cosines = unit @ unit[group[0]]
        near = sorted(set(range(len(unit))) - {group[0]}, key=lambda row: -cosines[row])[:neighbors]
        exact = [row for row in near if row in unused][: size - 1]
        ours = group[1 : 1 + len(exact)]
        good += len(ours) == len(exact) and (not exact or cosines[ours].mean() >= cosines[exact].mean() - 0.01)
        unused -= set(group)
    return good / len(groups)


@pytest.mark.parametrize("probes", [1, 8])
@pytest.mark.parametrize("reverse", [True, False])
def test_share_of_groups_as_good_as_exact_ones_is_the_true_one(
    dataset_of, vectors_of, monkeypatch, probes: int, reverse: bool
) -> None:
    monkeypatch.setattr(neighbors, "FIRST_PROBES", probes)
    monkeypatch.setattr(neighbors, "RECALL", 0)
    monkeypatch.setattr(nearest_module, "SAMPLE", 10_000)  # every group
    dataset = dataset_of(list(range(900)), list(range(900)))
    vectors = vectors_of(dataset, width=6)
    config = BatchingConfig(search="approximate", neighbors=40, reverse=reverse)
    plan = build_plan(config, dataset, vectors, seed=0, epoch=0)
    groups = [group[::-1] for group in groups_of(plan)[::-1]] if reverse else groups_of(plan)
    expected = slow_share_as_exact(groups, vectors[dataset.query].astype(np.float64), 40, 8)
    assert plan.facts["as_exact"] == pytest.approx(expected, abs=1e-9)
    assert plan.facts["groups_sample"] == len(groups)
    assert (0.2 < expected < 0.9) if probes == 1 else (expected > 0.9)


def test_plans_report_their_search(dataset_of, vectors_of) -> None:
    dataset = dataset_of(list(range(500)), list(range(500)))
    exact = build_plan(BatchingConfig(), dataset, vectors_of(dataset), seed=0, epoch=0)
    assert exact.facts == {"search": "exact"}
    result = build_plan(BatchingConfig(search="approximate"), dataset, vectors_of(dataset), seed=0, epoch=0)
    assert result.facts["search"] == "approximate"
    assert set(result.facts) == {"search", "recall", "recall_sample", "as_exact", "groups_sample"}
    assert 0.5 < result.facts["recall"] <= 1


def test_evicted_neighbors_are_searched_again(dataset_of, vectors_of, monkeypatch) -> None:
    generator = np.random.default_rng(5)
    dataset = dataset_of(generator.integers(300, size=3000).tolist(), generator.integers(300, size=3000).tolist())
    config = BatchingConfig(neighbors=30)
    plan = build_plan(config, dataset, vectors_of(dataset), seed=0, epoch=0)
    monkeypatch.setattr(nearest_module, "REMEMBERED", 0)
    monkeypatch.setattr(nearest_module, "AHEAD", 64)
    again = build_plan(config, dataset, vectors_of(dataset), seed=0, epoch=0)
    assert np.array_equal(plan.order, again.order)
    assert np.array_equal(plan.groups, again.groups)


@pytest.mark.parametrize("search", ["exact", "approximate"])
def test_no_row_one_row_and_equal_texts_have_plans(dataset_of, vectors_of, search) -> None:
    for distinct_texts in (True, False):
        config = BatchingConfig(search=search, distinct_texts=distinct_texts, group_size=4)
        for queries, sizes in (([], []), ([3], [1]), ([3] * 10, [1] * 10 if distinct_texts else [2, 4, 4])):
            dataset = dataset_of(queries, list(range(len(queries))))
            plan = build_plan(config, dataset, vectors_of(dataset), seed=0, epoch=0)
            assert [len(group) for group in groups_of(plan)] == sizes


@pytest.mark.parametrize("search", ["exact", "approximate"])
def test_a_number_that_is_not_finite_is_refused_on_the_grouped_side(dataset_of, vectors_of, search) -> None:
    dataset = dataset_of(list(range(50)), list(range(50)))
    vectors = vectors_of(dataset)
    vectors[dataset.query[7]] = np.nan
    with pytest.raises(InputError, match="not finite"):
        build_plan(BatchingConfig(search=search), dataset, vectors, seed=0, epoch=0)
    build_plan(BatchingConfig(search=search, group_by="document"), dataset, vectors, seed=0, epoch=0)


def test_most_groups_of_many_rows_are_full(dataset_of, vectors_of) -> None:
    generator = np.random.default_rng(0)
    dataset = dataset_of(generator.integers(2_400, size=27_000).tolist(), list(range(27_000)))
    plan = build_plan(BatchingConfig(), dataset, vectors_of(dataset, width=384), seed=0, epoch=0)
    sizes = np.bincount(plan.groups)
    assert sizes.max() == 8
    assert (sizes == 8).mean() > 0.9


def test_importing_the_package_loads_no_faiss() -> None:
    code = "import sys, bsc_core.batching; raise SystemExit(bool({'faiss', 'torch', 'umap'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
