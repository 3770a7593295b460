"""Groups of rows that share a shingle, against Algorithm 2 written with plain lists."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.batching import build_plan, plan_warnings
from bsc_core.batching.strategies.shingles import (
    ALONE,
    GROUP_STREAM,
    ORDER_STREAM,
    WordLists,
    form_groups,
    row_random,
    sample_shingles,
    shingle_ids,
)
from bsc_core.batching.strategies.words import cut_words
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset

repeatable = settings(max_examples=200, derandomize=True)
MASK = 2**64 - 1


def slow_draw(row: int, seed: int, epoch: int, stream: int) -> int:
    """splitmix64 with Python's integers."""
    key = int(np.random.SeedSequence(seed, spawn_key=(epoch, stream)).generate_state(1, np.uint64)[0])
    mixed = ((row + 1) * 0x9E3779B97F4A7C15 + key) & MASK
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = ((mixed ^ (mixed >> shift)) * factor) & MASK
    return mixed ^ (mixed >> 31)


def slow_groups(shingles: list[int], group_size: int, seed: int, epoch: int) -> list[list[int]]:
    """Algorithm 2: sort by shingle, count up, restart where the shingle changes or the group is full."""
    upper = [slow_draw(row, seed, epoch, ORDER_STREAM) >> 32 for row in range(len(shingles))]
    groups: list[list[int]] = []
    held, count = None, 0
    for row in sorted(range(len(shingles)), key=lambda row: (shingles[row], upper[row], row)):
        if shingles[row] == ALONE or shingles[row] != held or count == group_size:
            groups.append([])
            held, count = shingles[row], 0
        groups[-1].append(row)
        count += 1
    return sorted(groups, key=lambda group: slow_draw(group[0], seed, epoch, GROUP_STREAM))


@given(st.integers(0, 2**31 - 1), st.integers(0, 50), st.integers(0, 101), st.lists(st.integers(0, 2**31)))
@repeatable
def test_random_numbers_are_splitmix64_of_seed_epoch_stream_and_row(
    seed: int, epoch: int, stream: int, rows: list[int]
) -> None:
    sampled = row_random(np.asarray(rows, dtype=np.int64), seed=seed, epoch=epoch, stream=stream)
    assert sampled.tolist() == [slow_draw(row, seed, epoch, stream) for row in rows]


@given(st.lists(st.integers(ALONE, 5), max_size=60), st.integers(1, 7), st.integers(0, 9), st.integers(0, 3))
@repeatable
def test_groups_are_those_of_algorithm_2(shingles: list[int], group_size: int, seed: int, epoch: int) -> None:
    rows = np.arange(len(shingles), dtype=np.int64)
    order, groups = form_groups(
        np.asarray(shingles, dtype=np.int64), rows, group_size=group_size, seed=seed, epoch=epoch
    )
    result = [order[groups == group].tolist() for group in range(len(np.unique(groups)))]
    assert result == slow_groups(shingles, group_size, seed, epoch)


def test_large_shingle_numbers_give_the_same_groups() -> None:
    shingles = np.random.default_rng(0).integers(0, 9, 300)
    rows = np.arange(300, dtype=np.int64)
    small = form_groups(shingles, rows, group_size=4, seed=1, epoch=2)
    large = form_groups(shingles + 2**40, rows, group_size=4, seed=1, epoch=2)
    assert np.array_equal(small[0], large[0])
    assert np.array_equal(small[1], large[1])


@given(st.lists(st.lists(st.integers(0, 30), max_size=9, unique=True), min_size=1, max_size=20), st.integers(1, 5))
@repeatable
def test_a_shingle_is_a_subset_of_the_right_size(lists: list[list[int]], size: int) -> None:
    starts = np.cumsum([0, *map(len, lists)])
    flat = np.asarray([word for one in lists for word in one], dtype=np.int32)
    where = np.arange(len(lists), dtype=np.int64)
    sampled = sample_shingles(WordLists(flat, starts), where, where, size=size, seed=3, epoch=0)
    for words, shingle in zip(lists, sampled.tolist(), strict=True):
        chosen = [word for word in shingle if word >= 0]
        assert len(set(chosen)) == len(chosen) == min(size, len(words))
        assert set(chosen) <= set(words)
        assert shingle == sorted(shingle)


def test_every_subset_is_sampled_equally_often() -> None:
    words = WordLists.of_length(np.arange(5, dtype=np.int32)[None])
    rows = np.arange(100_000, dtype=np.int64)
    sampled = sample_shingles(words, np.zeros(len(rows), dtype=np.int64), rows, size=2, seed=0, epoch=0)
    counts = np.asarray(list(Counter(map(tuple, sampled.tolist())).values()))
    assert len(counts) == 10
    expected = len(rows) / 10
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert chi_square < 27.9  # 9 degrees of freedom: 1 in 1,000


@given(st.lists(st.tuples(*[st.integers(-1, 6)] * 3), min_size=1, max_size=40))
@repeatable
def test_equal_shingles_and_only_those_get_equal_numbers(sampled: list[tuple[int, ...]]) -> None:
    sorted_rows = [tuple(sorted(row)) for row in sampled]
    ids = shingle_ids(np.asarray(sorted_rows, dtype=np.int32)).tolist()
    for one, first in zip(sorted_rows, ids, strict=True):
        assert (first == ALONE) == all(word < 0 for word in one)
        for other, second in zip(sorted_rows, ids, strict=True):
            assert (one == other) == (first == second)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat, the CAT!", {"the", "cat"}),
        ("Ünïcode déjà-vu", {"ünïcode", "déjà", "vu"}),
        ("Привет мир", {"привет", "мир"}),
        ("東京の天気", {"東", "京", "の", "天", "気"}),
        ("हिन्दी भाषा", {"हिन्दी", "भाषा"}),
        ("...", set()),
        ("3.5 x2", {"3", "5", "x2"}),
    ],
)
def test_words_of_any_script_are_split(text: str, words: set[str]) -> None:
    lists, names = cut_words([text, "other"])
    assert {names[word] for word in lists.flat[: lists.starts[1]]} == words


def pairs_of(texts: list[str]) -> PairDataset:
    return PairDataset.from_pairs(texts, [f"answer {number}" for number in range(len(texts))])


def test_rows_of_a_words_group_share_a_word_and_groups_are_full() -> None:
    texts = [
        f"{color} {shape} {number}" for number in range(30) for color in ("red", "blue") for shape in ("box", "ball")
    ]
    plan = build_plan(BatchingConfig(strategy="words", group_size=4, stop_count=0), pairs_of(texts), seed=0, epoch=0)
    sizes = []
    for group in np.unique(plan.groups):
        rows = plan.order[plan.groups == group]
        assert set.intersection(*(set(texts[row].split()) for row in rows.tolist()))
        sizes.append(len(rows))
    assert max(sizes) == 4
    assert sizes.count(4) > 10


def test_stop_words_form_no_group() -> None:
    texts = [f"the {word}" for word in "abcdefghijkl"]
    given = build_plan(BatchingConfig(strategy="words", stop_words=("The",)), pairs_of(texts), seed=0, epoch=0)
    frequent = build_plan(BatchingConfig(strategy="words", stop_count=1), pairs_of(texts), seed=0, epoch=0)
    alone = build_plan(BatchingConfig(strategy="words", stop_words=()), pairs_of(["the"] * 3), seed=0, epoch=0)
    assert len(np.unique(given.groups)) == len(np.unique(frequent.groups)) == 12
    assert len(np.unique(alone.groups)) == 1


def test_texts_without_words_are_groups_by_themselves() -> None:
    plan = build_plan(BatchingConfig(strategy="words"), pairs_of(["!", "?", "..."]), seed=0, epoch=0)
    assert len(np.unique(plan.groups)) == 3


def test_premises_keep_the_rows_of_a_query_together(dataset_of) -> None:
    dataset = dataset_of([0, 1, 0, 2, 1, 0], [0, 1, 2, 3, 4, 5])
    plan = build_plan(BatchingConfig(strategy="premises", group_size=2), dataset, seed=1, epoch=0)
    assert plan.keep_groups
    result = {tuple(sorted(plan.order[plan.groups == group].tolist())) for group in np.unique(plan.groups)}
    assert result == {(0, 2, 5), (1, 4), (3,)}


def test_on_few_texts_shared_words_are_no_stop_words() -> None:
    texts = [f"topic{topic} the word{number}x{topic}" for topic in range(10) for number in range(4)]
    plan = build_plan(BatchingConfig(strategy="words", group_size=4), pairs_of(texts), seed=0, epoch=0)
    assert (np.unique(plan.groups, return_counts=True)[1] > 1).any()
    stopped = BatchingConfig(strategy="words", stop_words=("don't",))
    lone = build_plan(stopped, pairs_of(["don't", "Don't!", "DON'T"]), seed=0, epoch=0)
    assert len(np.unique(lone.groups)) == 3


def test_settings_that_exceed_the_data_give_warnings() -> None:
    dataset = pairs_of(["a b", "b c", "c d"])
    many = BatchingConfig(strategy="nearest", neighbors=900, group_size=50)
    assert plan_warnings(many, dataset) == [
        "group_size is 50 and there are 3 rows: no group can reach this size",
        "neighbors is 900, but the rows have only 3 distinct queries, so each of them is compared with all others",
    ]
    assert plan_warnings(BatchingConfig(group_size=2), dataset) == []
