"""MTEB on a local task: scores equal those of this project, and errors are one line."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from bsc_core.config import EncoderConfig
from bsc_core.data.dataset import TextTable
from bsc_core.encoders import embed
from bsc_core.errors import InputError
from bsc_core.evaluation import pair_metrics
from bsc_core.integrations.mteb import run_mteb
from bsc_core.neighbors import unit_rows

pytest.importorskip("mteb")
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning:mteb")]

LEFT = ["soup and bread", "a garden of roses", "the train is late", "money in the bank", "sleep and tea", "a cat"]
RIGHT = ["bread with soup", "roses", "the bank is late", "a loan of money", "water the garden", "a cat"]
SCORES = [4.0, 3.5, 1.0, 3.0, 0.5, 5.0]


@pytest.fixture
def task():
    """A task of six graded sentence pairs that needs no hub."""
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


def test_scores_of_a_local_task_equal_those_of_this_project(task, tiny_encoder):
    encoder = EncoderConfig(name=str(tiny_encoder), max_seq_length=32)
    report = run_mteb(encoder, task)
    assert (report["task"], report["type"], report["main_metric"]) == ("SixPairs", "STS", "cosine_spearman")
    vectors = [unit_rows(embed(encoder, TextTable(tuple(side)))) for side in (LEFT, RIGHT)]
    expected = pair_metrics(np.sum(vectors[0] * vectors[1], axis=1), np.asarray(SCORES) / 5)
    scores = report["metrics"]["test"]
    assert scores["cosine_spearman"] == pytest.approx(expected["spearman"], abs=1e-6)
    assert scores["cosine_pearson"] == pytest.approx(expected["pearson"], abs=1e-4)
    assert scores["main_score"] == scores["cosine_spearman"]


def test_an_unknown_task_is_refused_with_the_nearest_name(tiny_encoder):
    with pytest.raises(InputError, match=r"no task 'STSBenchmrk'; did you mean 'STSBenchmark'\?"):
        run_mteb(EncoderConfig(name=str(tiny_encoder)), "STSBenchmrk")
    with pytest.raises(InputError, match="lists them"):
        run_mteb(EncoderConfig(name=str(tiny_encoder)), "@@@@")


def test_data_that_cannot_be_loaded_are_reported_in_one_line(task, tiny_encoder, monkeypatch):
    def offline(self, num_proc=None, **kwargs):
        raise ConnectionError("no route to the hub\nmore")

    monkeypatch.setattr(type(task), "load_data", offline)
    with pytest.raises(InputError, match="no route to the hub") as caught:
        run_mteb(EncoderConfig(name=str(tiny_encoder)), task)
    assert "\n" not in str(caught.value)


def test_a_missing_mteb_is_reported_with_the_extra(tiny_encoder, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(InputError, match=r"pip install 'bsc-lab\[mteb\]'"):
        run_mteb(EncoderConfig(name=str(tiny_encoder)), "STSBenchmark")
