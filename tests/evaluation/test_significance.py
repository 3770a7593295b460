"""Tests of paired significance tests, against exact enumeration, SciPy and error rates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.errors import DataError
from bsc_core.evaluation import (
    QueryValues,
    ScoredPairs,
    compare,
    compare_pairs,
    compare_queries,
    compare_seeds,
    holm,
    pair_metrics,
)

pairs = st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=2, max_size=9)


def slow_permutation(first, second):
    gained = [b - a for a, b in zip(first, second, strict=True)]
    observed = abs(sum(gained))
    sums = [
        abs(sum(s * g for s, g in zip(signs, gained, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(gained))
    ]
    return sum(result >= observed - 1e-9 for result in sums) / len(sums)


@settings(max_examples=60)
@given(pairs)
def test_few_queries_have_the_p_of_all_sign_changes(rows):
    first, second = zip(*rows, strict=True)
    p = compare(first, second, seed=0, n_resamples=100).p
    assert p is None if first == second else p == pytest.approx(slow_permutation(first, second))


def test_many_queries_have_the_p_of_scipys_permutation_test():
    from scipy.stats import permutation_test

    generator = np.random.default_rng(1)
    first = generator.random(60)
    second = first + generator.normal(0.03, 0.1, 60)
    peer = permutation_test((second, first), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=9999,
                            vectorized=False, rng=np.random.default_rng(2))  # fmt: skip
    assert compare(first, second, seed=0).p == pytest.approx(peer.pvalue, abs=0.015)


@settings(max_examples=40)
@given(pairs)
def test_swapping_the_runs_turns_the_sign_and_keeps_p(rows):
    first, second = (np.asarray(column, dtype=float) for column in zip(*rows, strict=True))
    there, back = compare(first, second, seed=3, n_resamples=500), compare(second, first, seed=3, n_resamples=500)
    assert there.difference.value == -back.difference.value
    assert there.p == back.p
    assert (there.wins, there.losses, there.ties) == (back.losses, back.wins, back.ties)
    assert there.queries == len(rows) == there.wins + there.losses + there.ties


def test_a_true_difference_is_significant_and_noise_is_not():
    generator = np.random.default_rng(4)
    first = generator.random(200)
    better, same = first + generator.normal(0.05, 0.1, 200), first + generator.normal(0, 0.1, 200)
    reported = compare(first, better, seed=0)
    assert reported.significant
    assert reported.sentence().endswith("200 queries): better")
    assert compare(better, first, seed=0).sentence().endswith("worse")
    assert not compare(first, same, seed=0).significant
    assert compare(first, same, seed=0).sentence().endswith("inconclusive")


def test_one_test_in_twenty_finds_a_difference_where_there_is_none():
    generator, result = np.random.default_rng(5), []
    for trial in range(400):
        first = generator.random(50)
        result.append(compare(first, first + generator.normal(0, 0.1, 50), seed=trial, n_resamples=400).significant)
    assert 0.02 < np.mean(result) < 0.08


@pytest.mark.parametrize("seeds", [(3, 3), (1, 3)])
def test_other_seeds_of_one_setting_are_rarely_a_difference(seeds):
    generator, result = np.random.default_rng(6), []
    for trial in range(300):
        queries = generator.random(60)
        tables = []
        for count in seeds:
            effect = generator.normal(0, 0.05, (count, 1)) if count > 1 else 0
            tables.append(queries + effect + generator.normal(0, 0.1, (count, 60)))
        result.append(compare_seeds(*tables, seed=trial, n_resamples=400).significant)
    assert np.mean(result) < 0.09


def test_small_p_values_of_three_seeds_are_as_rare_as_they_say():
    generator, result = np.random.default_rng(11), []
    for trial in range(600):
        queries = generator.random(50)
        trained = queries + generator.normal(0, 0.05, (3, 1)) + generator.normal(0, 0.01, (3, 50))
        result.append(compare_seeds(queries, trained, seed=trial, n_resamples=2000).p)
    assert np.mean(np.asarray(result) < 0.05 / 6) < 0.02  # Holm threshold of the smallest of six p-values


def test_queries_alone_would_call_the_luck_of_a_seed_a_difference():
    generator = np.random.default_rng(7)
    queries = generator.random(200)
    tables = [queries + np.asarray(luck)[:, None] for luck in ([0.0, 0.06, -0.06], [0.03, 0.1, -0.03])]
    means = [table.mean(axis=0) for table in tables]
    assert compare(*(mean + generator.normal(0, 0.01, 200) for mean in means), seed=0).significant
    reported = compare_seeds(*tables, seed=0)
    assert not reported.significant
    assert reported.seeds == (3, 3)


def test_a_clear_gain_of_every_seed_over_the_untrained_encoder_is_a_difference():
    generator = np.random.default_rng(8)
    untrained = generator.random(100)
    trained = untrained + 0.06 + generator.normal(0, 0.005, (3, 1)) + generator.normal(0, 0.1, (3, 100))
    reported = compare_seeds(untrained, trained, seed=0)
    assert reported.significant
    assert reported.difference.low > 0
    assert reported.seeds == (1, 3)


def test_one_query_or_equal_runs_are_inconclusive():
    for reported in (compare([0.1], [0.9], seed=0), compare([0.3, 0.4], [0.3, 0.4], seed=0)):
        assert reported.p is None
        assert not reported.significant
    assert compare_seeds([[0.1]], [[0.9]], seed=0).p is None
    assert "no test" in compare([0.1], [0.9], seed=0).sentence()


def values_of(ids, numbers):
    return QueryValues(ids, {"mrr": np.asarray(numbers, dtype=float)}, np.ones(len(ids), dtype=int), np.ones(len(ids)))


def test_queries_are_matched_by_their_ids():
    first, second = values_of(["a", "b", "c"], [0.1, 0.2, 0.3]), values_of(["c", "a", "b"], [0.3, 0.2, 0.3])
    reported = compare_queries(first, second, "mrr", seed=0)
    assert reported.difference.value == pytest.approx(0.2 / 3)
    assert (reported.wins, reported.losses, reported.ties) == (2, 0, 1)


def test_runs_of_other_queries_or_metrics_are_refused():
    first = values_of(["a", "b"], [0.1, 0.2])
    with pytest.raises(DataError, match="not the same"):
        compare_queries(first, values_of(["a", "x"], [0.1, 0.2]), "mrr", seed=0)
    with pytest.raises(DataError, match="no metric 'map'; there are mrr"):
        compare_queries(first, first, "map", seed=0)
    with pytest.raises(DataError, match="same queries in the same order"):
        compare([1, 2], [1, 2, 3], seed=0)
    with pytest.raises(DataError, match="2 and 3 queries"):
        compare_seeds([[1, 2]], [[1, 2, 3]], seed=0)
    with pytest.raises(DataError, match="value 1 is nan"):
        compare([1, np.nan], [1, 2], seed=0)


def test_spearman_of_two_runs_is_compared_over_resampled_pairs():
    generator = np.random.default_rng(9)
    labels = generator.random(300)
    scores = [labels + generator.normal(0, spread, 300) for spread in (0.6, 0.3, 0.3)]
    one, two, three = (ScoredPairs(given, labels) for given in scores)
    reported = compare_pairs([one], [two], "spearman", range(300), seed=0, n_resamples=300)
    expected = [pair_metrics(given, labels)["spearman"] for given in scores]
    assert reported.difference.value == pytest.approx(expected[1] - expected[0])
    assert reported.significant
    assert not compare_pairs([two], [three], "spearman", range(300), seed=0, n_resamples=300).significant
    both = compare_pairs([one], [two, three], "spearman", range(300), seed=0, n_resamples=300)
    assert both.difference.value == pytest.approx(np.mean(expected[1:]) - expected[0])
    assert both.seeds == (1, 2)
    assert both.queries == 300
    assert both.wins is None


def test_equal_statistics_are_inconclusive():
    labels = np.asarray([0, 1, 1, 0, 1.0])
    same = ScoredPairs(labels * 0.5, labels, decision=0.3)
    assert compare_pairs([same], [same], "f1", range(5), seed=0, n_resamples=50).p is None


def test_holm_raises_p_values_as_its_steps_say():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1, 1])
    assert holm([]) == []


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_the_order_and_never_lowers(values):
    raised = holm(values)
    assert all(value - 1e-12 <= one <= 1 for value, one in zip(values, raised, strict=True))
    order = np.argsort(values, kind="stable")
    assert (np.diff(np.asarray(raised)[order]) >= 0).all()
    assert raised[order[0]] == pytest.approx(min(1, values[order[0]] * len(values)))
