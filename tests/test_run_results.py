"""Tests of the comparison of runs: from stored results, from vectors, and every error in between."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from bsc_core import run_results
from bsc_core.config import make_config
from bsc_core.errors import DataError, RunError
from bsc_core.evaluation import Evaluator, compare_seeds
from bsc_core.evaluation.comparison import compare_results, setting_interval, shared_metrics
from bsc_core.preparation.experiment import load_experiment
from bsc_core.run_results import compare_runs, load_results, metrics_by_dimension, run_intervals, save_results
from bsc_core.runs import Run, RunStore
from tests.helpers.slow_bootstrap import compare_statistics, pair_statistic

TEXTS, WIDTH = 60, 8


def noisy(seed, noise):
    """Vectors whose cosines follow the texts' numbers, the less so the more noise there is."""
    base = np.random.default_rng(0).standard_normal((TEXTS, WIDTH))
    return (base + noise * np.random.default_rng(seed).standard_normal(base.shape)).astype(np.float32)


@pytest.fixture
def pairs(tmp_path):
    """Twelve queries with four candidates each, graded, on dev and on test."""
    generator = np.random.default_rng(1)
    lines = []
    for query in range(24):
        for candidate in range(4):
            label = float(generator.integers(0, 3)) / 2 if candidate else 1.0
            lines.append(
                {
                    "query": f"query {query}",
                    "document": f"document {(query * 5 + candidate) % 30}",
                    "label": label,
                    "split": "train" if query < 4 else "dev" if query < 16 else "test",
                }
            )
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def make_run(tmp_path, pairs):
    """A run as the pipeline leaves it, from vectors that are made up. keeps: False for one of an older version."""

    def make(name, after, *, data=None, keeps=True):
        config = make_config({"data": {"train": str(data or pairs)}, "encoder": {"name": "static"}})
        run = RunStore(tmp_path / "runs").create(config, name)
        rows = load_experiment(config.data)
        run.write_json("texts", {"digest": rows.texts.digest, "count": len(rows.texts)})
        for when, vectors in (("before", noisy(99, 1.0)), ("after", after)):
            run.write_array(f"embeddings_{when}", vectors[: len(rows.texts)])
            run.write_json(
                f"evaluation/{when}", Evaluator(rows, config.evaluation).evaluate(vectors[: len(rows.texts)])
            )
        if keeps:
            save_results(run, rows)
        return run

    return make


@pytest.mark.parametrize("split", ["dev", "test"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_stored_results_of_a_run_equal_those_computed_from_its_vectors(make_run, split, when):
    kept = load_results(make_run("new", noisy(1, 0.5)), split, when=when)
    computed = load_results(make_run("old", noisy(1, 0.5), keeps=False), split, when=when)
    assert kept.digest == computed.digest
    assert kept.metrics == computed.metrics
    assert (kept.decision, kept.accuracy_decision) == (computed.decision, computed.accuracy_decision)
    assert list(kept.queries.query) == list(computed.queries.query)
    for metric, values in computed.queries.values.items():
        assert np.array_equal(kept.queries.values[metric], values)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_intervals_contain_the_metrics_that_the_run_reports(make_run, split):
    run = make_run("one", noisy(1, 0.5))
    reported = run.read_json("evaluation/after")[split]
    result = run_intervals(run, split)
    assert {"mrr", "map", "spearman", "pearson", "f1", "auc", "average_precision", "best_accuracy"} <= set(result)
    for metric, span in result.items():
        assert span.value == pytest.approx(reported[metric], abs=1e-12)
        assert span.low <= span.value <= span.high
    computed = run_intervals(make_run("old", noisy(1, 0.5), keeps=False), split)
    assert set(computed) == set(result)
    for metric, span in computed.items():
        assert (span.low, span.high) == pytest.approx((result[metric].low, result[metric].high))


def test_a_difference_by_query_is_that_of_compare_seeds(make_run):
    first = [make_run(f"a{seed}", noisy(seed, 1.0)) for seed in range(2)]
    second = [make_run(f"b{seed}", noisy(seed, 0.1)) for seed in range(3)]
    result = compare_runs(first, second, "mrr")
    tables = [np.stack([load_results(run).queries.values["mrr"] for run in side]) for side in (first, second)]
    assert result == compare_seeds(*tables, seed=0)
    assert result.seeds == (2, 3)
    assert result.difference.value == pytest.approx(tables[1].mean() - tables[0].mean())


def test_a_difference_of_all_pairs_is_that_of_resampled_rows_with_the_thresholds_of_dev(make_run):
    first, second = make_run("a", noisy(1, 1.0)), make_run("b", noisy(2, 0.2))
    for metric in ("spearman", "f1", "best_accuracy"):
        sides = [load_results(run, "test") for run in (first, second)]
        cuts = [
            run.read_json("evaluation/after")["dev"][
                "accuracy_threshold" if metric == "best_accuracy" else "f1_threshold"
            ]
            for run in (first, second)
        ]
        statistics = [
            [pair_statistic(side.cosines, side.labels, metric, threshold=0.5, decision=cut)]
            for side, cut in zip(sides, cuts, strict=True)
        ]
        slow = compare_statistics(*statistics, sides[0].groups, seed=0, n_resamples=300)
        result = compare_runs([first], [second], metric, "test")
        assert result.difference.value == pytest.approx(slow.difference.value, abs=1e-12)
        assert result.queries == slow.queries == 8
        assert abs(result.difference.low - slow.difference.low) < 0.05


def test_an_untrained_encoder_that_runs_share_counts_once(make_run):
    runs = [make_run(f"s{seed}", noisy(seed, 0.2)) for seed in range(3)]
    assert compare_runs(runs, runs, "mrr", first_when="before").seeds == (1, 3)
    assert compare_runs(runs, runs, "spearman", first_when="before").seeds == (1, 3)


def test_the_interval_of_a_setting_covers_seeds_and_queries(make_run):
    runs = [load_results(make_run(f"s{seed}", noisy(seed, 0.6))) for seed in range(3)]
    for metric in ("mrr", "spearman"):
        alone, together = setting_interval(runs[:1], metric), setting_interval(runs, metric)
        assert alone.value == pytest.approx(runs[0].metrics[metric])
        assert together.value == pytest.approx(np.mean([run.metrics[metric] for run in runs]))
        assert together.low < together.value < together.high
    seeds_alone = [setting_interval([run], "spearman").value for run in runs]
    assert np.ptp(seeds_alone) > 0
    assert setting_interval([runs[0]] * 3, "spearman") == setting_interval(runs[:1], "spearman")


def test_the_interval_of_two_very_different_seeds_stays_in_the_range_of_the_metric(make_run, pairs):
    rows = load_experiment(make_config({"data": {"train": str(pairs)}, "encoder": {"name": "static"}}).data)
    right = np.zeros((len(rows.texts), len(rows.texts)), dtype=np.float32)
    for split in rows.splits.values():
        right[split.query, split.query] = 1
        right[split.document, split.query] = split.label - 0.5  # cosines that increase with the labels
    wrong = right.copy()
    wrong[np.unique(np.concatenate([split.document for split in rows.splits.values()]))] *= -1
    runs = [load_results(make_run(name, vectors)) for name, vectors in (("right", right), ("wrong", wrong))]
    for metric, lowest in (("mrr", 0.0), ("spearman", -1.0)):
        interval = setting_interval(runs, metric)
        assert (interval.low, interval.high) == (lowest, 1.0)


def test_a_run_against_itself_shows_no_difference(make_run):
    run = make_run("one", noisy(1, 0.5))
    for metric in shared_metrics([load_results(run)]):
        result = compare_runs([run], [run], metric)
        assert result.difference.value == 0
        assert not result.significant
        assert result.p is None


def test_runs_on_other_rows_are_refused_in_one_sentence(make_run, pairs, tmp_path):
    fewer = tmp_path / "fewer.jsonl"
    lines = pairs.read_text(encoding="utf-8").splitlines()
    fewer.write_text("\n".join(line for line in lines if '"query 9"' not in line) + "\n", encoding="utf-8")
    one, other = make_run("one", noisy(1, 0.5)), make_run("other", noisy(1, 0.5), data=fewer)
    with pytest.raises(DataError, match=r"evaluated on different dev data \(48 and 44 pairs\)"):
        compare_runs([one], [other], "mrr")


def test_runs_trained_on_different_rows_are_comparable_on_the_same_test_rows(make_run, pairs, tmp_path):
    less = tmp_path / "less.jsonl"
    lines = pairs.read_text(encoding="utf-8").splitlines()
    less.write_text("\n".join(lines[4:]) + "\n", encoding="utf-8")  # without the first query, which is for training
    one, other = make_run("one", noisy(1, 0.5)), make_run("other", noisy(2, 0.5), data=less)
    assert one.read_json("texts") != other.read_json("texts")
    assert compare_runs([one], [other], "mrr").queries == 12


def test_a_missing_metric_is_named_with_the_available_ones(make_run):
    run = make_run("one", noisy(1, 0.5))
    with pytest.raises(DataError, match=r"'ndcg@7' is not defined for these dev pairs; there are spearman, pearson"):
        compare_runs([run], [run], "ndcg@7")
    with pytest.raises(DataError, match="no run is given"):
        compare_results([], [], "mrr")


def test_a_run_with_stored_results_needs_neither_data_nor_vectors(make_run, pairs):
    run = make_run("one", noisy(1, 0.5))
    pairs.unlink()
    for when in ("before", "after"):
        (run.folder / f"embeddings_{when}.npy").unlink()
    assert compare_runs([run], [run], "mrr", first_when="before").queries == 12


def test_an_older_run_with_missing_or_changed_data_is_reported(make_run, pairs):
    run = make_run("old", noisy(1, 0.5), keeps=False)
    pairs.write_text(pairs.read_text(encoding="utf-8").replace("document 3", "another 3"), encoding="utf-8")
    with pytest.raises(RunError, match="run old: its data files have changed"):
        load_results(run)
    pairs.unlink()
    with pytest.raises(RunError, match=r"run old: its data cannot be read .* restore pairs.jsonl"):
        load_results(run)


def test_changed_labels_are_changed_data(make_run, pairs):
    run = make_run("one", noisy(1, 0.5))
    assert metrics_by_dimension(run, [4])
    pairs.write_text(pairs.read_text(encoding="utf-8").replace('"label": 0.5', '"label": 0.75'), encoding="utf-8")
    with pytest.raises(RunError, match="run one: its data files have changed"):
        metrics_by_dimension(run, [4])


def test_a_split_that_a_run_does_not_have_is_named(make_run, pairs):
    lines = [line for line in pairs.read_text(encoding="utf-8").splitlines() if '"test"' not in line]
    pairs.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for keeps in (True, False):
        run = make_run(f"keeps-{keeps}", noisy(1, 0.5), keeps=keeps)
        with pytest.raises(RunError, match="has no test pairs; it was evaluated on dev"):
            load_results(run, "test")


def test_the_error_for_a_run_without_metrics_names_its_state(make_run):
    run = make_run("one", noisy(1, 0.5))
    waiting = run.store.create(run.config(), "waiting")
    with pytest.raises(RunError, match="run waiting has no metrics from after training; it is queued"):
        load_results(waiting)


def test_what_is_missing_from_a_folder_is_named(make_run):
    run = make_run("one", noisy(1, 0.5))
    (run.folder / "evaluation" / "after-dev-pairs.npy").unlink()
    with pytest.raises(RunError, match=r"evaluation/after-dev-pairs.npy is missing"):
        load_results(run)


def test_a_comparison_of_one_query_is_inconclusive(make_run, tmp_path):
    lines = [{"query": "only", "document": f"document {n}", "label": float(n == 0), "split": "dev"} for n in range(4)]
    lines += [{"query": f"other {n}", "document": f"word {n}", "label": 1.0, "split": "train"} for n in range(4)]
    path = tmp_path / "single.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    one, other = make_run("one", noisy(1, 0.5), data=path), make_run("other", noisy(2, 2.0), data=path)
    for metric in ("mrr", "auc"):
        assert run_intervals(one)[metric].low is None
        result = compare_runs([one], [other], metric)
        assert result.p is None
        assert not result.significant


def test_constant_scores_are_evaluated_and_compared(make_run):
    flat, other = make_run("flat", np.ones((TEXTS, WIDTH), dtype=np.float32)), make_run("other", noisy(1, 0.2))
    assert run_intervals(flat)["spearman"].high == 0
    result = compare_runs([flat], [other], "spearman")
    assert result.difference.value == pytest.approx(other.read_json("evaluation/after")["dev"]["spearman"])


def test_positive_pairs_alone_are_compared_by_retrieval(make_run, tmp_path):
    lines = [
        {"query": f"query {n}", "document": f"document {n}", "split": "train" if n < 3 else "dev"} for n in range(15)
    ]
    path = tmp_path / "positives.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    run = make_run("one", noisy(1, 0.5), data=path)
    result = load_results(run)
    assert result.pairs is None
    assert result.labels is None
    assert "mrr" in shared_metrics([result])
    assert "auc" not in run_intervals(run)


def test_a_real_run_stores_its_intervals(small_config, tmp_path):
    from bsc_core.pipeline import run_experiment

    run = RunStore(tmp_path / "runs").create(small_config)
    result = run_experiment(small_config, run)
    found = run_intervals(run)
    status = run.status()
    assert set(run.read_json("evaluation/intervals")) == {"before", "after"}
    assert (status.metric_low, status.metric_high) == (found["mrr"].low, found["mrr"].high)
    for metric, span in found.items():
        assert span.value == result["metrics"]["after"]["dev"][metric]
    copy = Run(tmp_path / "copy")
    shutil.copytree(run.folder, copy.folder)
    for path in copy.folder.glob("evaluation/*-dev-*.npy"):
        path.unlink()
    (copy.folder / "evaluation" / "results.json").unlink()
    assert load_results(copy).metrics == load_results(run).metrics
    assert compare_runs([run], [copy], "mrr").difference.value == 0


@pytest.mark.parametrize(
    "kind",
    [[("query", "i8"), ("a", "f8"), ("b", "f8")], [("query", "i8"), ("a", "f16")], [("query", "f8")]],
    ids=["many", "long", "fractions"],
)
def test_arrays_of_results_that_no_run_writes_are_refused(kind: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match="numbers"):
        run_results._check_numbers(np.zeros(7_000_000 if len(kind) == 3 else 10, dtype=kind))


def test_a_table_with_padded_rows_is_damaged() -> None:
    padded = np.dtype({"names": ["cosine", "group"], "formats": ["<f8", "<i4"], "itemsize": 4096})
    with pytest.raises(ValueError, match="padded"):
        run_results._check_numbers(np.zeros(3, dtype=padded))
