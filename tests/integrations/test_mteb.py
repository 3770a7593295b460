"""A task of mteb whose data are made here: its scores are those of this project, and refusals are one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bsc_core.config import EncoderConfig
from bsc_core.data.texts import TextTable
from bsc_core.encoders import embed
from bsc_core.errors import InputError
from bsc_core.evaluation import pair_metrics
from bsc_core.evaluation.retrieval import unit_rows
from bsc_core.integrations.mteb import run_mteb

pytest.importorskip("mteb")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:mteb"),
]

LEFT = ["soup and bread", "a garden of roses", "the train is late", "money in the bank", "sleep and tea", "a cat"]
RIGHT = ["bread with soup", "roses", "the bank is late", "a loan of money", "water the garden", "a cat"]
SCORES = [4.0, 3.5, 1.0, 3.0, 0.5, 5.0]


@pytest.fixture
def task():
    """Six sentence pairs with a grade each, as a task that needs no hub."""
    import datasets
    from mteb.abstasks.sts import AbsTaskSTS
    from mteb.abstasks.task_metadata import TaskMetadata

    class SixPairs(AbsTaskSTS):
        metadata = TaskMetadata(
            name="SixPairs",
            description="Six sentence pairs.",
            reference="https://example.org",
            dataset={"path": "none", "revision": "1"},
            type="STS",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="cosine_spearman",
        )

        def load_data(self, num_proc=None, **kwargs):
            rows = {"sentence1": LEFT, "sentence2": RIGHT, "score": SCORES}
            self.dataset = datasets.DatasetDict({"test": datasets.Dataset.from_dict(rows)})
            self.data_loaded = True

    return SixPairs()


def test_a_local_task_scores_as_this_project_does(task, tiny_encoder: Path):
    encoder = EncoderConfig(name=str(tiny_encoder), max_length=32)
    found = run_mteb(encoder, task)
    assert (found["task"], found["type"], found["main_metric"]) == ("SixPairs", "STS", "cosine_spearman")
    vectors = [unit_rows(embed(encoder, TextTable(tuple(side)))) for side in (LEFT, RIGHT)]
    own = pair_metrics(np.sum(vectors[0] * vectors[1], axis=1), np.asarray(SCORES) / 5)
    measured = found["metrics"]["test"]
    assert measured["cosine_spearman"] == pytest.approx(own["spearman"], abs=1e-6)
    assert measured["cosine_pearson"] == pytest.approx(own["pearson"], abs=1e-4)
    assert measured["main_score"] == measured["cosine_spearman"]


def test_an_unknown_task_is_refused_with_the_nearest_name(tiny_encoder: Path):
    with pytest.raises(InputError, match=r"no task 'STSBenchmrk'; did you mean 'STSBenchmark'\?"):
        run_mteb(EncoderConfig(name=str(tiny_encoder)), "STSBenchmrk")
    with pytest.raises(InputError, match="lists them"):
        run_mteb(EncoderConfig(name=str(tiny_encoder)), "@@@@")


def test_data_that_cannot_be_fetched_are_refused_in_one_sentence(task, tiny_encoder: Path, monkeypatch):
    def offline(self, num_proc=None, **kwargs):
        raise ConnectionError("no route to the hub\nmore")

    monkeypatch.setattr(type(task), "load_data", offline)
    with pytest.raises(InputError, match="no route to the hub") as told:
        run_mteb(EncoderConfig(name=str(tiny_encoder)), task)
    assert "\n" not in str(told.value)


def test_without_mteb_the_extra_is_named(tiny_encoder: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(InputError, match=r"pip install bsc-lab\[mteb\]"):
        run_mteb(EncoderConfig(name=str(tiny_encoder)), "STSBenchmark")
