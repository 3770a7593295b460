"""Similarity data sets and the ten sentences, by a fake encoder that needs no model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from bsc_core.config import EncoderConfig, make_config
from bsc_core.data.texts import TextTable
from bsc_core.errors import DataError, RunError
from bsc_core.evaluation.drawn_pairs import ScoredPairs, pair_intervals
from bsc_core.evaluation.ten_sentences import TEN_SENTENCES, sentence_map
from bsc_core.recipes import measures_nli
from bsc_core.recipes.measures_drawn import defined, drawn_interval, drawn_weights
from bsc_core.recipes.measures_nli import NLIMeasure
from bsc_core.runs import Run, RunStore

MEASURE = NLIMeasure(("one", "two"))
WHENS = ("after", "after")


def vectors_of(name: str, texts: TextTable) -> np.ndarray:
    """A vector of each text that follows from the encoder's name and the text alone."""
    seeds = [int(hashlib.sha1(f"{Path(name).parent.name} {text}".encode()).hexdigest()[:8], 16) for text in texts]
    return np.stack([np.random.default_rng(seed).normal(size=8) for seed in seeds]).astype(np.float32)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the encoders that were asked for vectors, in order."""
    names: list[str] = []

    def embed(config: EncoderConfig, texts: TextTable) -> np.ndarray:
        names.append(config.name)
        return vectors_of(config.name, texts)

    monkeypatch.setattr(measures_nli, "embed", embed)
    return names


@pytest.fixture
def make_run(tmp_path: Path):
    store = RunStore(tmp_path / "runs")
    sections = {}
    for number, name in enumerate(("one", "two")):
        path = tmp_path / "sets" / name / "test.tsv"
        path.parent.mkdir(parents=True)
        rows = [f"left {name} {n // 2}\tright {name} {n}\t{(n * 7 + number) % 11 / 10}" for n in range(30)]
        path.write_text("\n".join(["query\tdocument\tlabel", *rows]) + "\n", encoding="utf-8")
        sections[name] = {"test": str(path)}

    def make(name: str, seed: int = 0, *, beside: bool = True) -> Run:
        values = {"data": {"train": "pairs.tsv"}, "encoder": {"name": "bundled"}, "training": {"seed": seed}}
        run = store.create(make_config(values, source="test"), name)
        if beside:
            run.write_json("beside", sections)
        return run

    return make


def spearman_of(run: Run, name: str) -> float:
    left, right, scores = zip(
        *[(f"left {name} {n // 2}", f"right {name} {n}", (n * 7 + (name == "two")) % 11 / 10) for n in range(30)],
        strict=True,
    )
    sides = [vectors_of(str(run.model_folder), TextTable(side)) for side in (left, right)]
    units = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
    return float(spearmanr((units[0] * units[1]).sum(axis=1), scores).statistic)


def test_tasks_are_measured_by_spearman_and_their_plain_mean(make_run, asked: list[str]) -> None:
    run = make_run("a")
    found = MEASURE.intervals([run], "test", "after", ["one", "two", "sts", "mrr"])
    each = [spearman_of(run, name) for name in ("one", "two")]
    assert list(found) == ["one", "two", "sts"]
    assert [found["one"].value, found["two"].value] == pytest.approx(each, abs=1e-9)
    assert found["sts"].value == pytest.approx(np.mean(each), abs=1e-9)
    assert found["sts"].low < found["sts"].value < found["sts"].high
    assert found["sts"].high - found["sts"].low < found["one"].high - found["one"].low  # two tasks tell more


def test_nothing_is_encoded_twice(make_run, asked: list[str]) -> None:
    run = make_run("a")
    first = MEASURE.intervals([run], "test", "after", ["sts", "ten_auc"])
    count = len(asked)
    assert MEASURE.intervals([run], "test", "after", ["sts", "ten_auc", "ten_gap"]).items() >= first.items()
    assert len(asked) == count == 3
    assert set(asked) == {str(run.model_folder)}


def test_before_training_the_encoder_that_the_run_started_from_is_asked_once(make_run, asked: list[str]) -> None:
    runs = [make_run("a", 0), make_run("b", 1)]
    MEASURE.intervals(runs, "test", "before", ["one"])
    assert asked == ["bundled"]


def test_the_ten_sentences_are_measured_as_their_map_is(make_run, asked: list[str]) -> None:
    runs = [make_run("a", 0), make_run("b", 1)]
    maps = [sentence_map(vectors_of(str(run.model_folder), TextTable(TEN_SENTENCES))) for run in runs]
    found = MEASURE.intervals(runs, "test", "after", ["ten_auc", "ten_gap"])
    details = MEASURE.details(runs, "after")
    gold = [np.mean([one.cosines[pair] for pair in ((1, 9), (3, 4), (5, 7))]) for one in maps]
    assert found["ten_auc"].value == pytest.approx(np.mean([one.auc for one in maps]))
    assert found["ten_gap"].value == pytest.approx(np.mean(gold) - np.mean([one.others for one in maps]))
    assert found["ten_auc"].high <= 1
    assert details["found"] == [one.found for one in maps]
    assert details["margin"] == pytest.approx([one.margin for one in maps])
    assert np.asarray(details["cosines"]).shape == (10, 10)


def test_a_comparison_is_second_less_first_on_the_same_pairs(make_run, asked: list[str]) -> None:
    one, two = [make_run("a"), make_run("b", 1)], [make_run("c"), make_run("d", 1)]
    for metric in (*MEASURE.metrics,):
        forth = MEASURE.compare(one, two, metric, "test", whens=WHENS)
        back = MEASURE.compare(two, one, metric, "test", whens=WHENS)
        values = [MEASURE.intervals(side, "test", "after", [metric])[metric].value for side in (one, two)]
        assert forth.difference.value == pytest.approx(values[1] - values[0])
        assert back.difference.value == pytest.approx(-forth.difference.value)
        assert forth.seeds == (2, 2)
    assert MEASURE.compare(one, two, "sts", "test", whens=WHENS).queries == 60
    itself = MEASURE.compare(one[:1], one[:1], "sts", "test", whens=WHENS)
    assert (itself.difference.low, itself.difference.high) == (0, 0)


def test_what_is_not_there_is_refused_in_a_sentence(make_run, asked: list[str]) -> None:
    run, bare = make_run("a"), make_run("b", beside=False)
    assert MEASURE.intervals([run], "dev", "after", ["sts"]) == {}
    with pytest.raises(DataError, match="'mrr' on test is not measured here; there are one, two, sts, ten_auc"):
        MEASURE.compare([run], [run], "mrr", "test", whens=WHENS)
    with pytest.raises(RunError, match="run b: there is no one beside it"):
        MEASURE.intervals([bare], "test", "after", ["one"])


def test_rows_of_a_group_are_drawn_together_and_as_many_groups_as_there_are() -> None:
    groups = np.asarray([3, 3, 5, 9, 9, 9])
    weights = np.concatenate(list(drawn_weights(groups, 500, 1)))
    assert weights.shape == (500, 6)
    assert (weights[:, 0] == weights[:, 1]).all()
    assert (weights[:, 3] == weights[:, 5]).all()
    assert (weights[:, [0, 2, 3]].sum(axis=1) == 3).all()
    assert np.abs(weights.mean(axis=0) - 1).max() < 0.15
    assert np.array_equal(weights, np.concatenate(list(drawn_weights(groups, 500, 1))))


def test_the_interval_of_one_seed_is_that_of_the_evaluation() -> None:
    generator = np.random.default_rng(0)
    scores = generator.normal(size=200)
    pairs = ScoredPairs(scores, 1 / (1 + np.exp(-scores - generator.normal(size=200))))
    drawn = np.concatenate([pairs.drawn("spearman", weights) for weights in drawn_weights(np.arange(200), 2000, 0)])
    found = drawn_interval(np.asarray([pairs.metrics["spearman"]], dtype=float), drawn[:, None])
    known = pair_intervals(pairs, np.arange(200), seed=0)["spearman"]
    assert (found.value, found.low, found.high) == pytest.approx((known.value, known.low, known.high), abs=0.015)


def test_seeds_that_differ_widen_an_interval_and_draws_without_a_value_are_left_out() -> None:
    generator = np.random.default_rng(1)
    drawn = generator.normal(0.5, 0.01, size=(1000, 1)) + np.zeros((1, 3))
    alike = drawn_interval(np.full(3, 0.5), drawn)
    apart = drawn_interval(np.asarray([0.4, 0.5, 0.6]), drawn)
    assert apart.high - apart.low > 3 * (alike.high - alike.low)
    some, most = drawn.copy(), drawn.copy()
    some[:300], most[:600] = np.nan, np.nan
    assert len(defined(some)) == 700
    assert defined(most) is None
    assert drawn_interval(np.full(3, 0.5), most).low is None
