"""The general suite: its values, tasks that are left out, and runs that measure it or stop by it."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from bsc_core.config import RunConfig
from bsc_core.data import TextTable
from bsc_core.errors import ConfigError
from bsc_core.evaluation.general import GeneralSuite
from bsc_core.pipeline import run_experiment, validate
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import GENERAL, GENERAL_SCORE
from bsc_core.training.checkpoint import checkpoints
from tests.helpers.configs import with_changes

SAMPLE = Path(__file__).resolve().parents[2] / "sample_data"


def rows(name: str) -> list[dict[str, str]]:
    with (SAMPLE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@cache
def vector(text: str) -> np.ndarray:
    direction = np.random.default_rng(crc32(text.encode())).normal(size=8)
    return direction / np.linalg.norm(direction)


def encode(texts: TextTable) -> np.ndarray:
    return np.array([vector(text) for text in texts], dtype=np.float32)


def reciprocal_rank(query: str, right: str, documents: list[str]) -> float:
    others = np.array([vector(other) for other in documents if other != right])
    return 1 / (1 + int((others @ vector(query) > vector(right) @ vector(query)).sum()))


def test_the_metrics_equal_a_slow_reference_and_their_mean_is_the_score() -> None:
    metrics = GeneralSuite.load().evaluate(encode)
    pairs, answers = rows("pairs.tsv"), [row["text"] for row in rows("corpus.tsv")]
    right = [row for row in pairs if row["label"] == "1.0"]
    assert (len(right), len(pairs), len(answers)) == (240, 838, 838)
    slow = np.mean([reciprocal_rank(row["query"], row["document"], answers) for row in right])
    assert metrics["question_mrr"] == pytest.approx(slow, abs=1e-6)
    documents = np.array([vector(answer) for answer in answers])
    precisions = []
    for query in {row["query"] for row in pairs}:
        own = {row["document"] for row in pairs if row["query"] == query}
        ranked = [answers[index] in own for index in np.argsort(-(documents @ vector(query)))]
        ranks = np.flatnonzero(ranked) + 1
        precisions.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    assert metrics["subject_map"] == pytest.approx(np.mean(precisions), abs=1e-6)
    entailed = [row for row in rows("nli.tsv") if row["label"] == "entailment"]
    premises = [row["premise"] for row in entailed]
    slow = np.mean([reciprocal_rank(row["hypothesis"], row["premise"], premises) for row in entailed])
    assert metrics["premise_mrr"] == pytest.approx(slow, abs=1e-6)
    others = [value for name, value in metrics.items() if name != GENERAL_SCORE]
    assert metrics[GENERAL_SCORE] == pytest.approx(np.mean(others))
    assert GeneralSuite.load(separate_sides=True).evaluate(encode) == pytest.approx(metrics)


def test_a_task_whose_queries_are_in_the_data_is_left_out() -> None:
    question, hypothesis = rows("pairs.tsv")[0]["query"], rows("nli.tsv")[0]["hypothesis"]
    assert list(GeneralSuite.load(used=[question]).evaluate(encode)) == [GENERAL_SCORE, "premise_mrr"]
    with pytest.raises(ConfigError, match=r"evaluation.general is true, and the data contain the texts"):
        GeneralSuite.load(used=[question, hypothesis])


def conduct(config: RunConfig, folder: Path) -> Run:
    run = RunStore(folder).create(config)
    run_experiment(config, run)
    return run


def test_a_run_measures_the_suite_before_training_after_each_epoch_and_for_its_model(
    small_config: RunConfig, tmp_path: Path
) -> None:
    run = conduct(with_changes(small_config, evaluation={"general": True}), tmp_path)
    general = run.evaluation(GENERAL)
    assert list(general) == ["before", "epoch-001", "after"]
    assert general["after"] == general["epoch-001"] != general["before"]
    lines = [line for line in run.metrics()[0] if line["kind"] == "evaluation"]
    assert [line[GENERAL_SCORE] for line in lines] == [general[name][GENERAL_SCORE] for name in ("before", "epoch-001")]
    assert run.read_json("result")["general"] == {name: general[name] for name in ("before", "after")}


@pytest.fixture
def falling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the general score fall by 0.1 in each evaluation, while dev improves."""
    scores: list[float] = []

    def evaluate(suite: GeneralSuite, encode: object) -> dict[str, float]:
        scores.append(0.9 - 0.1 * len(scores))
        return {GENERAL_SCORE: scores[-1]}

    monkeypatch.setattr(GeneralSuite, "evaluate", evaluate)
    monkeypatch.setattr(
        "bsc_core.evaluation.evaluator.main_metric", lambda *_: ("mrr", -scores[-1] if scores else -1.0)
    )


@pytest.mark.usefixtures("falling")
@pytest.mark.parametrize(("tolerated", "last", "best"), [(0.05, 1, 1), (0.15, 2, 1), (0.25, 3, 2)])
def test_training_ends_when_the_general_score_has_lost_too_much(
    small_config: RunConfig, tmp_path: Path, tolerated: float, last: int, best: int
) -> None:
    training = {"epochs": 9, "early_stopping_general_loss": tolerated, "save_total_limit": 9}
    config = with_changes(small_config, training=training, evaluation={"general": True})
    run = conduct(config, tmp_path)
    result = run.read_json("result")
    assert (result["state"], result["best_epoch"]) == ("done", best)
    assert len(checkpoints(run.checkpoints_folder)) == last == run.status().epoch
    assert run.evaluation(GENERAL)["after"] == {GENERAL_SCORE: pytest.approx(0.9 - 0.1 * best)}
    run_experiment(config, run)  # resumed, it trains no further
    assert len(checkpoints(run.checkpoints_folder)) == last


def test_a_tolerated_loss_without_the_general_score_is_refused(small_config: RunConfig) -> None:
    config = with_changes(small_config, training={"early_stopping_general_loss": 0.01})
    with pytest.raises(ConfigError, match=r"early_stopping_general_loss is 0.01, which needs evaluation.general"):
        validate(config)
