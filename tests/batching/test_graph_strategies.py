"""Strategies on the graph of ranks, against a graph and a partition written with plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from bsc_core.batching import build_plan, compared_texts, plan_hardness, plan_warnings
from bsc_core.batching.strategies.base import StrategyInput
from bsc_core.batching.strategies.communities import partition
from bsc_core.batching.strategies.graph import rank_graph
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import InputError
from bsc_core.neighbors import TIE, NeighborSearch

repeatable = settings(max_examples=60, derandomize=True)
BOTH = ["communities", "cuthill_mckee"]


def slow_links(dataset: PairDataset, vectors: np.ndarray, *, skip: int, linked: int) -> dict[int, set[int]]:
    """For each row the documents at ranks skip + 1 to skip + linked, nearest first, without its own document."""
    unit = vectors.astype(np.float64)
    lengths = np.linalg.norm(unit, axis=1, keepdims=True)
    unit = np.divide(unit, lengths, out=unit, where=lengths > 0)
    links = {}
    for row in range(len(dataset)):
        others = sorted(set(dataset.document.tolist()) - {int(dataset.document[row])})
        ranked = sorted(others, key=lambda text: -round(float(unit[dataset.query[row]] @ unit[text]), 9))
        links[row] = set(ranked[skip : skip + linked])
    return links


@pytest.mark.parametrize(("skip", "linked"), [(0, 1), (0, 5), (3, 4), (30, 5), (500, 5)])
def test_rows_are_linked_to_the_documents_at_these_ranks(dataset_of, vectors_of, skip: int, linked: int) -> None:
    dataset = dataset_of(list(range(60)), list(range(60)))
    vectors = vectors_of(dataset)
    config = BatchingConfig(strategy="communities", graph_neighbors=linked)
    graph, facts = rank_graph(StrategyInput(config, dataset, vectors), skip=skip)
    dense = graph.toarray()
    expected = np.zeros((60, 60), dtype=int)
    row_of = {int(text): row for row, text in enumerate(dataset.document)}
    for row, texts in slow_links(dataset, vectors, skip=skip, linked=linked).items():
        for text in texts:
            expected[row, row_of[text]] += 1
    assert np.array_equal(dense, expected + expected.T)
    assert facts["search"] == "exact"


@given(seed=st.integers(0, 99), rows=st.integers(0, 40), distinct=st.integers(1, 9), linked=st.integers(1, 9))
@repeatable
def test_rows_that_share_texts_are_linked_once_for_each_document(
    dataset_of, vectors_of, seed: int, rows: int, distinct: int, linked: int
) -> None:
    generator = np.random.default_rng(seed)
    dataset = dataset_of(
        generator.integers(distinct, size=rows).tolist(), generator.integers(2 * distinct, size=rows).tolist()
    )
    vectors = vectors_of(dataset)
    config = BatchingConfig(strategy="communities", graph_neighbors=linked)
    graph = rank_graph(StrategyInput(config, dataset, vectors, seed, 2))[0].toarray()
    allowed = slow_links(dataset, vectors, skip=0, linked=linked)
    assert np.array_equal(graph, graph.T)
    assert graph.sum() <= 2 * rows * linked
    for row, other in zip(*np.nonzero(graph), strict=True):
        assert dataset.query[row] != dataset.query[other]
        forth = dataset.document[other] in allowed[row]
        back = dataset.document[row] in allowed[other]
        assert forth or back
        assert graph[row, other] <= forth + back


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_ties_are_ordered_by_id(metric) -> None:
    generator = np.random.default_rng(0)
    distinct = generator.normal(size=(10, 6)).astype(np.float32)
    copies = generator.integers(10, size=200)
    noise = 1 + generator.choice([-1e-7, 0, 1e-7], size=(200, 1))  # less than TIE apart, as on another processor
    vectors = (distinct[copies] * noise).astype(np.float32)
    for equal in (vectors, vectors[::-1]):
        ranked = NeighborSearch(equal, metric).ranked(distinct, 15)
        unit = distinct / np.linalg.norm(distinct, axis=1, keepdims=True)
        order = copies if equal is vectors else copies[::-1]
        between = -(unit @ unit.T) if metric == "cosine" else ((distinct[:, None] - distinct[None]) ** 2).sum(axis=2)
        for query in range(10):
            assert ranked[query].tolist() == np.lexsort((np.arange(200), between[query][order]))[:15].tolist()
    assert TIE > 1e-7


def test_communities_of_a_graph_with_clear_blocks_are_the_blocks() -> None:
    blocks = np.random.default_rng(0).permutation(np.repeat(np.arange(30), 8))
    dense = (blocks[:, None] == blocks[None]).astype(np.int8)
    np.fill_diagonal(dense, 0)
    community, inside = partition(csr_array(dense), 8, seed=0, epoch=0)
    assert inside == 1
    assert len(set(zip(blocks.tolist(), community.tolist(), strict=True))) == 30


@given(seed=st.integers(0, 99), rows=st.integers(1, 60), share=st.floats(0, 0.5), size=st.integers(1, 12))
@repeatable
def test_communities_are_limited_in_size_and_no_two_linked_ones_fit_together(
    seed: int, rows: int, share: float, size: int
) -> None:
    generator = np.random.default_rng(seed)
    dense = np.triu(generator.random((rows, rows)) < share, k=1) * generator.integers(1, 3, size=(rows, rows))
    dense = (dense + dense.T).astype(np.int8)
    community, inside = partition(csr_array(dense), size, seed=seed, epoch=1)
    sizes = np.bincount(community)
    assert sizes.min() >= 1
    assert sizes.max() <= size
    same = community[:, None] == community[None]
    for row, other in zip(*np.nonzero(dense), strict=True):
        assert same[row, other] or sizes[community[row]] + sizes[community[other]] > size
    assert inside == (pytest.approx(dense[same].sum() / dense.sum()) if dense.any() else None)


def test_heavier_edges_are_merged_first() -> None:
    dense = np.ones((4, 4), dtype=np.int8)
    np.fill_diagonal(dense, 0)
    dense[0, 3] = dense[3, 0] = dense[1, 2] = dense[2, 1] = 2
    for epoch in range(20):
        community, inside = partition(csr_array(dense), 2, seed=0, epoch=epoch)
        assert community[0] == community[3]
        assert community[1] == community[2]
        assert inside == 0.5


def topics(dataset_of, count: int, each: int) -> tuple[PairDataset, np.ndarray, np.ndarray]:
    """Pairs around `count` centers, their vectors, and the center of each row."""
    rows = count * each
    dataset = dataset_of(list(range(rows)), list(range(rows)))
    generator = np.random.default_rng(1)
    topic = generator.permutation(np.repeat(np.arange(count), each))
    centers = generator.normal(size=(count, 16)) * 3
    vectors = np.empty((len(dataset.texts), 16), dtype=np.float32)
    for side in (dataset.query, dataset.document):
        vectors[side] = centers[topic] + generator.normal(size=(rows, 16))
    return dataset, vectors, topic


@pytest.mark.parametrize("strategy", BOTH)
def test_batches_are_harder_than_random_ones(dataset_of, strategy: str) -> None:
    dataset, vectors, topic = topics(dataset_of, 40, 24)
    config = BatchingConfig(strategy=strategy, group_size=8, skip_ranks=2)
    plan = build_plan(config, dataset, vectors, seed=0, epoch=0)
    purity = [np.bincount(topic[rows]).max() / len(rows) for rows in plan.batches(8)]
    assert np.mean(purity) > 0.7
    means = {}
    for name in (strategy, "random"):
        one = build_plan(config.model_copy(update={"strategy": name}), dataset, vectors, seed=0, epoch=0)
        means[name] = float(plan_hardness(one, dataset, vectors, 16).hardest.mean())
    assert means[strategy] > means["random"] + 0.1


def test_skipped_ranks_are_those_of_likely_false_negatives(dataset_of) -> None:
    dataset, vectors, _ = topics(dataset_of, 40, 24)
    counts = []
    for skip in (0, 12):
        config = BatchingConfig(strategy="communities", group_size=8, graph_neighbors=10, skip_ranks=skip)
        plan = build_plan(config, dataset, vectors, seed=0, epoch=0)
        counts.append(int(plan_hardness(plan, dataset, vectors, 16).batch_likely_false_negatives.sum()))
    assert counts[1] < counts[0]


@pytest.mark.parametrize("strategy", BOTH)
def test_vectors_are_needed_and_must_be_finite_on_both_sides(dataset_of, vectors_of, strategy: str) -> None:
    dataset = dataset_of([0, 1, 2], [0, 1, 2])
    config = BatchingConfig(strategy=strategy)
    with pytest.raises(InputError, match="encode the texts first"):
        build_plan(config, dataset, seed=0, epoch=0)
    for side in (dataset.query, dataset.document):
        broken = vectors_of(dataset)
        broken[side[1], 0] = np.nan
        with pytest.raises(InputError, match="not finite"):
            build_plan(config, dataset, broken, seed=0, epoch=0)


@pytest.mark.parametrize("strategy", BOTH)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 50])
@pytest.mark.parametrize("case", ["zero", "equal", "one query", "one document"])
def test_tiny_and_degenerate_data_use_each_row_once(
    dataset_of, vectors_of, strategy: str, rows: int, case: str
) -> None:
    ids, one = list(range(rows)), [0] * rows
    dataset = dataset_of(one if case == "one query" else ids, one if case == "one document" else ids)
    vectors = vectors_of(dataset)
    if case in ("zero", "equal"):
        vectors[:] = 0 if case == "zero" else vectors[:1]
    config = BatchingConfig(strategy=strategy, group_size=4, skip_ranks=1, graph_neighbors=3)
    plan = build_plan(config, dataset, vectors, seed=0, epoch=0)
    assert sorted(plan.order.tolist()) == ids
    assert np.unique(plan.groups, return_counts=True)[1].max(initial=0) <= 4
    again = build_plan(config, dataset, vectors, seed=0, epoch=0)
    assert np.array_equal(plan.order, again.order)


def test_cuthill_mckee_batches_are_consecutive_rows_in_random_order(dataset_of, vectors_of) -> None:
    dataset = dataset_of(list(range(100)), list(range(100)))
    plan = build_plan(BatchingConfig(strategy="cuthill_mckee"), dataset, vectors_of(dataset), seed=3, epoch=0)
    positions = plan.positions(10)
    assert all(np.array_equal(np.diff(one), np.ones(9)) for one in positions)
    firsts = [int(one[0]) for one in positions]
    assert sorted(firsts) == list(range(0, 100, 10))
    assert firsts != sorted(firsts)
    other = build_plan(BatchingConfig(strategy="cuthill_mckee"), dataset, vectors_of(dataset), seed=3, epoch=1)
    together = [{frozenset(rows.tolist()) for rows in one.batches(10)} for one in (plan, other)]
    assert together[0] != together[1]  # other batches, not only another order of them


def test_both_sides_are_compared(dataset_of) -> None:
    dataset = dataset_of([0, 1, 1], [0, 1, 2])
    for strategy in BOTH:
        assert len(compared_texts(BatchingConfig(strategy=strategy), dataset)) == 5
    assert len(compared_texts(BatchingConfig(strategy="nearest"), dataset)) == 2
    assert len(compared_texts(BatchingConfig(strategy="nearest", group_by="document"), dataset)) == 3


@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_approximate_ranks_report_the_recall_of_the_queries(metric) -> None:
    generator = np.random.default_rng(3)
    centers = generator.normal(size=(40, 16))
    vectors = (centers[generator.integers(40, size=5000)] + 0.4 * generator.normal(size=(5000, 16))).astype(np.float32)
    queries = (centers[generator.integers(40, size=700)] + 0.4 * generator.normal(size=(700, 16))).astype(np.float32)
    exact = NeighborSearch(vectors, metric, search="exact").ranked(queries, 30)
    search = NeighborSearch(vectors, metric, search="approximate")
    found = search.ranked(queries, 30)
    shares = [len(set(one) & set(other)) / 30 for one, other in zip(found.tolist(), exact.tolist(), strict=True)]
    assert np.mean(shares) == pytest.approx(search.facts["recall"], abs=0.03)
    assert np.mean(shares) > 0.95


def test_settings_without_effect_are_reported(dataset_of) -> None:
    dataset = dataset_of(list(range(9)), list(range(9)))
    config = BatchingConfig(strategy="communities", group_size=4, single_source=True)
    assert plan_warnings(config, dataset) == [
        "skip_ranks is 30 and a query has 8 other documents: no row is linked",
        "single_source is on and the rows come from one file: it has no effect",
    ]
    assert plan_warnings(BatchingConfig(strategy="communities", group_size=4, skip_ranks=7), dataset) == []
