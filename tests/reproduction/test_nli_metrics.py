"""Similarity datasets and the ten sentences, by a fake encoder that needs no model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from bsc_core.config import EncoderConfig, make_config
from bsc_core.data.dataset import TextTable
from bsc_core.encoders import embedding_cache
from bsc_core.errors import DataError, RunError
from bsc_core.evaluation.probes.ten_sentences import TEN_SENTENCES, sentence_map
from bsc_core.evaluation.stats.bootstrap import defined_resamples, mean_interval
from bsc_core.evaluation.stats.bootstrap_pairs import ScoredPairs, pair_intervals
from bsc_core.reproduction.metrics import nli
from bsc_core.reproduction.metrics.nli import NLIMetrics
from bsc_core.reproduction.metrics.source import bootstrap_weights
from bsc_core.runs import Run, RunStore
from tests.helpers.configs import with_changes

METRICS = NLIMetrics()
WHENS = ("after", "after")


def vectors_of(name: str, texts: TextTable) -> np.ndarray:
    """Vectors that depend on the encoder's name and the text alone."""
    seeds = [int(hashlib.sha1(f"{Path(name).parent.name} {text}".encode()).hexdigest()[:8], 16) for text in texts]
    return np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds]).astype(np.float32)


@pytest.fixture
def encoders_used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the encoders that embedded texts, in order."""
    names: list[str] = []

    def embed(config: EncoderConfig, texts: TextTable) -> np.ndarray:
        names.append(config.name)
        return vectors_of(config.name, texts)

    for module in (nli, embedding_cache):  # `embed_initial` calls the latter, except for random layers
        monkeypatch.setattr(module, "embed", embed)
    return names


@pytest.fixture
def make_run(tmp_path: Path):
    store = RunStore(tmp_path / "runs")
    sections = {}
    for number, name in enumerate(nli.TASKS):
        path = tmp_path / "sets" / name / "test.tsv"
        path.parent.mkdir(parents=True)
        rows = [f"left {name} {n // 2}\tright {name} {n}\t{(n * 7 + number) % 11 / 10}" for n in range(30)]
        path.write_text("\n".join(["query\tdocument\tlabel", *rows]) + "\n", encoding="utf-8")
        sections[name] = {"test": str(path)}

    def make(name: str, seed: int = 0, *, extra_data: bool = True) -> Run:
        values = {"data": {"train": "pairs.tsv"}, "encoder": {"name": "bundled"}, "training": {"seed": seed}}
        run = store.create(make_config(values, source="test"), name)
        if extra_data:
            run.write_json("beside", sections)
        return run

    return make


def spearman_of(run: Run, name: str) -> float:
    left, right, scores = zip(
        *[(f"left {name} {n // 2}", f"right {name} {n}", (n * 7 + (name == "sick")) % 11 / 10) for n in range(30)],
        strict=True,
    )
    sides = [vectors_of(str(run.model_folder), TextTable(side)) for side in (left, right)]
    units = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
    return float(spearmanr((units[0] * units[1]).sum(axis=1), scores).statistic)


def test_tasks_are_evaluated_by_spearman_and_their_mean(make_run, encoders_used: list[str]) -> None:
    run = make_run("a")
    intervals = METRICS.intervals([run], "test", "after", ["stsb", "sick", "sts", "mrr"])
    each = [spearman_of(run, name) for name in nli.TASKS]
    assert list(intervals) == ["stsb", "sick", "sts"]
    assert [intervals["stsb"].value, intervals["sick"].value] == pytest.approx(each, abs=1e-9)
    assert intervals["sts"].value == pytest.approx(np.mean(each), abs=1e-9)
    assert intervals["sts"].low < intervals["sts"].value < intervals["sts"].high
    widths = {name: interval.high - interval.low for name, interval in intervals.items()}
    assert widths["sts"] < widths["stsb"]  # two tasks have more pairs


def test_nothing_is_encoded_twice(make_run, encoders_used: list[str]) -> None:
    run = make_run("a")
    first = METRICS.intervals([run], "test", "after", ["sts", "ten_auc"])
    count = len(encoders_used)
    assert METRICS.intervals([run], "test", "after", ["sts", "ten_auc", "ten_gap"]).items() >= first.items()
    assert len(encoders_used) == count == 3
    assert set(encoders_used) == {str(run.model_folder)}


def test_before_training_the_initial_encoder_embeds_once(make_run, encoders_used: list[str]) -> None:
    runs = [make_run("a", 0), make_run("b", 1)]
    METRICS.intervals(runs, "test", "before", ["stsb"])
    assert encoders_used == ["bundled"]


def test_before_training_random_layers_are_those_of_each_seed(make_run, tiny_encoder: Path) -> None:
    runs = [make_run("a", 0), make_run("b", 1)]
    for run in runs:
        encoder = {"name": str(tiny_encoder), "reinit_layers": 1}
        run.write_json("config", with_changes(run.config(), encoder=encoder).model_dump(mode="json"))
    METRICS.intervals(runs, "test", "before", ["ten_auc"])
    first, second = (run.array("measured/ten-before") for run in runs)
    assert not np.allclose(first, second)


def test_the_metrics_of_the_ten_sentences_are_those_of_their_map(make_run, encoders_used: list[str]) -> None:
    runs = [make_run("a", 0), make_run("b", 1)]
    maps = [sentence_map(vectors_of(str(run.model_folder), TextTable(TEN_SENTENCES))) for run in runs]
    intervals = METRICS.intervals(runs, "test", "after", ["ten_auc", "ten_gap"])
    details = METRICS.details(runs, "after")
    gold = [np.mean([one.cosines[pair] for pair in ((1, 9), (3, 4), (5, 7))]) for one in maps]
    assert intervals["ten_auc"].value == pytest.approx(np.mean([one.auc for one in maps]))
    assert intervals["ten_gap"].value == pytest.approx(np.mean(gold) - np.mean([one.others for one in maps]))
    assert intervals["ten_auc"].high <= 1
    assert details["found"] == [one.matches for one in maps]
    assert details["margin"] == pytest.approx([one.margin for one in maps])
    assert np.asarray(details["cosines"]).shape == (10, 10)


def test_a_comparison_is_second_less_first_on_the_same_pairs(make_run, encoders_used: list[str]) -> None:
    one, two = [make_run("a"), make_run("b", 1)], [make_run("c"), make_run("d", 1)]
    for metric in nli.NLI_METRICS:
        forth = METRICS.compare(one, two, metric, "test", when=WHENS)
        back = METRICS.compare(two, one, metric, "test", when=WHENS)
        values = [METRICS.intervals(side, "test", "after", [metric])[metric].value for side in (one, two)]
        assert forth.difference.value == pytest.approx(values[1] - values[0])
        assert back.difference.value == pytest.approx(-forth.difference.value)
        assert forth.seeds == (2, 2)
    assert METRICS.compare(one, two, "sts", "test", when=WHENS).queries == 60
    itself = METRICS.compare(one[:1], one[:1], "sts", "test", when=WHENS)
    assert (itself.difference.low, itself.difference.high) == (0, 0)


def test_unknown_metrics_and_missing_data_sets_are_errors(make_run, encoders_used: list[str]) -> None:
    run, bare = make_run("a"), make_run("b", extra_data=False)
    assert METRICS.intervals([run], "dev", "after", ["sts"]) == {}
    with pytest.raises(DataError, match="'mrr' on test is not available; choose among stsb, sick, sts, ten_auc"):
        METRICS.compare([run], [run], "mrr", "test", when=WHENS)
    with pytest.raises(RunError, match="run b: the dataset stsb to evaluate on is missing"):
        METRICS.intervals([bare], "test", "after", ["stsb"])


def test_rows_of_a_group_are_resampled_together() -> None:
    groups = np.asarray([3, 3, 5, 9, 9, 9])
    weights = np.concatenate(list(bootstrap_weights(groups, 500, 1)))
    assert weights.shape == (500, 6)
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 3] == weights[:, 5]).all()
    assert (weights[:, [0, 2, 3]].sum(axis=1) == 3).all()
    assert np.abs(weights.mean(axis=0) - 1).max() < 0.15
    assert np.array_equal(weights, np.concatenate(list(bootstrap_weights(groups, 500, 1))))


def test_the_interval_of_one_seed_is_that_of_the_evaluation() -> None:
    generator = np.random.default_rng(0)
    scores = generator.normal(size=200)
    pairs = ScoredPairs(scores, 1 / (1 + np.exp(-scores - generator.normal(size=200))))
    resampled = np.concatenate(
        [pairs.resampled("spearman", weights) for weights in bootstrap_weights(np.arange(200), 2000, 0)]
    )
    intervals = mean_interval(np.asarray([pairs.metrics["spearman"]], dtype=float), resampled[:, None], seed=0)
    known = pair_intervals(pairs, np.arange(200), seed=0)["spearman"]
    assert (intervals.value, intervals.low, intervals.high) == pytest.approx(
        (known.value, known.low, known.high), abs=0.015
    )


def test_seeds_that_differ_widen_an_interval_and_undefined_resamples_are_left_out() -> None:
    generator = np.random.default_rng(1)
    resampled = generator.normal(0.5, 0.01, size=(1000, 1)) + np.zeros((1, 3))
    close = mean_interval(np.full(3, 0.5), resampled, seed=0)
    spread = mean_interval(np.asarray([0.4, 0.5, 0.6]), resampled, seed=0)
    assert spread.high - spread.low > 3 * (close.high - close.low)
    some, most = resampled.copy(), resampled.copy()
    some[:300], most[:600] = np.nan, np.nan
    assert len(defined_resamples(some)) == 700
    assert defined_resamples(most) is None
    assert mean_interval(np.full(3, 0.5), most, seed=0).low is None
