"""Tests of Spearman correlation by subset, its weighted mean, and the STS file readers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from bsc_core.errors import DataError
from bsc_core.evaluation import read_sts, sts_result, weighted_spearman

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
     (HEADER + "a\tb\t\tx\n", "no row has a score")],
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
