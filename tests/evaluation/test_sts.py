"""Tests of Spearman correlation by subset, its weighted mean, and the STS file readers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from bsc_core.data import TextTable
from bsc_core.errors import DataError
from bsc_core.evaluation import read_sts, sts_result, weighted_spearman
from bsc_core.evaluation.probes.sts import StsTask
from bsc_core.evaluation.transfer import _bootstrap_spearman
from tests.helpers.slow_bootstrap import resample_statistics

HEADER = "sentence1\tsentence2\tscore\tsubset\n"


def test_the_weighted_mean_weighs_subsets_by_their_pairs():
    generator = np.random.default_rng(41)
    subset = ["forum"] * 50 + ["news"] * 150
    gold = generator.integers(0, 26, 200) / 5
    given = np.r_[gold[:50] + generator.normal(size=50), gold[50:] * 0.1 - 7 + generator.normal(size=150)]
    result = weighted_spearman(given, gold, subset)
    parts = [spearmanr(given[rows], gold[rows])[0] for rows in (slice(0, 50), slice(50, 200))]
    assert list(result.spearman.values()) == pytest.approx(parts)
    assert result.weighted == pytest.approx((50 * parts[0] + 150 * parts[1]) / 200)
    assert result.mean == pytest.approx(sum(parts) / 2)
    assert result.pairs == {"forum": 50, "news": 150}
    assert result.weighted != pytest.approx(spearmanr(given, gold)[0])


def test_a_constant_subset_counts_zero_and_says_so():
    result = weighted_spearman([0.5, 0.5, 0.1, 0.9], [1, 2, 0, 5], ["same", "same", "other", "other"])
    assert result.constant == ("same",)
    assert result.spearman == {"same": 0.0, "other": pytest.approx(1)}


def test_rows_without_a_score_are_left_out_and_counted(tmp_path):
    path = tmp_path / "sts13" / "pairs.tsv.gz"
    path.parent.mkdir()
    import gzip

    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write(HEADER + "a\tb\t4.5\tFNWN\na\tc\t\tFNWN\nd\tb\t0\theadlines\n")
    task = read_sts(path.parent)
    assert (task.name, task.unscored, task.subset) == ("sts13", 1, ("FNWN", "headlines"))
    assert task.scores.tolist() == [4.5, 0]
    assert [task.texts[text] for text in (*task.left, *task.right)] == ["a", "d", "b", "b"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("sentence1\tscore\na\t1\n", "no column sentence2"), (HEADER + "a\tb\thigh\tx\n", "line 2: score is 'high'"),
     (HEADER + "a\tb\t\tx\n", "no row has a score"),
     (HEADER + "".join(f"a\tb\t1\tx{row}\n" for row in range(101)), "names 101 subsets, and at most 100")],
)  # fmt: skip
def test_files_that_are_no_sts_are_refused(tmp_path, text, message):
    (tmp_path / "pairs.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_sts(tmp_path / "pairs.tsv")


def test_unequal_lengths_and_no_pairs_are_refused():
    with pytest.raises(DataError, match="1 similarities, 2 scores"):
        weighted_spearman([1.0], [1, 2], ["x", "x"])
    with pytest.raises(DataError, match="no pair"):
        weighted_spearman([], [], [])


def test_the_test_split_of_the_sts_benchmark_is_read_completely(shared_data):
    task = read_sts(shared_data / "stsb", split="test")
    assert len(task.scores) == 1379
    assert set(task.subset) == {"test"}
    words = [set(text.lower().split()) for text in task.texts]
    shared = [len(words[a] & words[b]) / len(words[a] | words[b]) for a, b in zip(task.left, task.right, strict=True)]
    result = sts_result(shared, task)
    assert result.weighted == pytest.approx(spearmanr(shared, task.scores)[0])
    assert 0.45 < result.weighted < 0.6  # baseline of word overlap


def test_the_intervals_of_several_subsets_resample_pairs_with_the_same_first_sentence():
    generator = np.random.default_rng(3)
    left, scores = np.arange(60) // 3, generator.random(60)
    texts, _ = TextTable.from_texts([f"sentence {number}" for number in range(60)])
    names = ("one",) * 21 + ("two",) * 36 + ("few",) * 3  # many resamples lack the few
    task = StsTask("sts", texts, left, np.arange(60), scores, names, 0)
    cosines = [scores + generator.normal(0, spread, 60) for spread in (0.3, 0.6)]
    statistics = [
        lambda rows, side=side: weighted_spearman(side[rows], scores[rows], np.array(names)[rows].tolist()).weighted
        for side in cosines
    ]
    values, resamples = resample_statistics(statistics, left, 1000, 5)
    results = _bootstrap_spearman(cosines, task, seed=5)
    for result, value, column in zip(results, values, resamples.T, strict=True):
        assert result.value == pytest.approx(value)
        np.testing.assert_allclose(result.resamples, column, atol=1e-12)
