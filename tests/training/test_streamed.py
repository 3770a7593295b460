"""Training from shards with a window of the pairs in memory: the same steps as with all pairs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch import nn

from bsc_core.batching import BatchPlan
from bsc_core.config import RunConfig, make_config
from bsc_core.data import PairDataset, read_pairs
from bsc_core.data.decisions import Decision, write_decisions
from bsc_core.data.io.shards import new_shards_folder, write_manifest, write_part
from bsc_core.data.load import load_data
from bsc_core.encoders import load_encoder, tokenize
from bsc_core.errors import DataError, FileFormatError
from bsc_core.jobs.actions.resuming import continue_run
from bsc_core.losses import build_loss
from bsc_core.pipeline import run_experiment
from bsc_core.runs import RunStore
from bsc_core.training.callbacks import OnStep
from bsc_core.training.data import PairStream, is_streamed, select_training_rows
from bsc_core.training.loop.device import seed_everything
from bsc_core.training.loop.trainer import StepReport, Trainer
from bsc_core.training.sampler import CustomSampler, ShardSampler


def write_shards(out: Path, pairs: Path, parts: int = 3) -> Path:
    """Write shards of the pairs in groups of three, in a random order."""
    dataset = read_pairs(pairs)
    order = np.random.default_rng(1).permutation(len(dataset))
    columns = {role: role for role in ("query", "document", "query_id", "label")}
    with new_shards_folder(out) as folder:
        written = []
        for number, rows in enumerate(np.array_split(order, parts)):
            table = pa.table(
                {
                    "row": rows.astype(np.int64),
                    "group": np.arange(len(rows)) // 3,
                    "query": dataset.texts.take(dataset.query[rows]),
                    "document": dataset.texts.take(dataset.document[rows]),
                    "query_id": [f"q{group}" for group in dataset.query_group[rows]],
                    "label": dataset.label[rows].astype(np.float64),
                }
            )
            written.append(write_part(folder, number, table))
        write_manifest(folder, written, columns, {})
    return out


@pytest.fixture
def shards(tmp_path: Path, small_pairs: Path) -> Path:
    return write_shards(tmp_path / "shards", small_pairs)


def config_of(shards: Path, dev: Path, encoder: Path, **changes: object) -> RunConfig:
    sections = {
        "data": {"train": str(shards), "dev": str(dev)},
        "encoder": {"name": str(encoder), "max_seq_length": 32},
        "batching": {"strategy": "sequential"},
        "training": {"epochs": 2, "batch_size": 7, "learning_rate": 1e-3, "threads": 1, "precision": "fp32"},
    }
    return make_config({name: {**fields, **changes.get(name, {})} for name, fields in sections.items()})


def without_dropout(config: RunConfig) -> SentenceTransformer:
    """Load the encoder without dropout: its random numbers depend on the ids of the texts, which differ by window."""
    model = load_encoder(config.encoder)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def trained(trainer: Trainer) -> tuple[list[StepReport], dict[str, torch.Tensor]]:
    seed_everything(0)
    return list(trainer), trainer.model.state_dict()


def test_steps_equal_those_of_the_complete_plan_for_any_window(shards: Path, small_pairs: Path, tiny_encoder: Path):
    config = config_of(shards, small_pairs, tiny_encoder)
    pairs = read_pairs(shards)
    plan = BatchPlan(np.arange(len(pairs), dtype=np.int32), np.arange(len(pairs), dtype=np.int32))
    model = without_dropout(config)
    reports, weights = trained(
        Trainer(
            model,
            build_loss(config.loss),
            CustomSampler(pairs, tokenize(model, pairs.texts.texts, 32), lambda epoch: plan.batches(7)),
            config.training,
        )
    )
    for window in (1000, 10):
        stream = PairStream(config, window=window)
        model = without_dropout(config)
        streamed = Trainer(model, build_loss(config.loss), ShardSampler(stream, model), config.training)
        result, others = trained(streamed)
        assert [report.pairs for report in result] == [7, 7, 7, 7, 7, 5] * 2
        assert [report.ends_epoch for report in result] == [report.ends_epoch for report in reports]
        assert [report.tokens for report in result] == [report.tokens for report in reports]
        assert [report.loss for report in result] == pytest.approx([report.loss for report in reports], rel=1e-3)
        assert all(torch.allclose(others[name], weights[name], atol=1e-3) for name in weights)
        assert window == 1000 or len(streamed.sampler.dataset) <= 20  # of 40


def test_a_run_streams_shards_and_evaluates_on_dev(
    shards: Path, small_pairs: Path, tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(path: Path) -> None:
        raise AssertionError(f"{path} is read completely")

    monkeypatch.setattr("bsc_core.training.data.SAMPLE", 12)
    monkeypatch.setattr("bsc_core.data.io.tables.open_shards", refuse)
    config = config_of(shards, small_pairs, tiny_encoder)
    result = run_experiment(config, RunStore(tmp_path / "runs").create(config))
    assert result["state"] == "done"
    assert result["rows"] == {"train": 40, "dev": 40}
    assert result["metrics"]["after"]["dev"]["mrr"] is not None


def test_a_streamed_run_does_not_resume_with_other_shards(
    shards: Path, small_pairs: Path, tiny_encoder: Path, tmp_path: Path
):
    config, store = config_of(shards, small_pairs, tiny_encoder), RunStore(tmp_path / "runs")
    run = store.create(config)
    run_experiment(config, run, callbacks=[OnStep(lambda report: run.request_stop())])
    run.update_status(state="stopped")
    shutil.move(shards, tmp_path / "first")
    write_shards(shards, small_pairs, parts=2)
    with pytest.raises(DataError, match="until step 1; restore its data files"):
        run_experiment(config, refused := continue_run(store, run))
    refused.update_status(state="failed")
    shutil.rmtree(shards)
    shutil.move(tmp_path / "first", shards)
    assert run_experiment(config, continue_run(store, run))["state"] == "done"


def test_shards_are_read_completely_if_all_rows_are_needed(shards: Path, small_pairs: Path, tiny_encoder: Path):
    streamed = config_of(shards, small_pairs, tiny_encoder)
    assert is_streamed(streamed)
    assert not is_streamed(config_of(small_pairs, small_pairs, tiny_encoder))
    for changes in (
        {"data": {"dev": None}},
        {"data": {"filters": ("drop_duplicates",)}},
        {"batching": {"strategy": "random"}},
        {"batching": {"no_duplicates": True}},
    ):
        assert not is_streamed(config_of(shards, small_pairs, tiny_encoder, **changes))


def test_rows_that_the_loss_does_not_train_on_are_refused(shards: Path, small_pairs: Path, tiny_encoder: Path):
    config = config_of(shards, small_pairs, tiny_encoder)
    loss = config.loss.model_copy(update={"labeled_negatives": False})
    with pytest.raises(DataError, match="contain rows that bsc does not train on"):
        PairStream(config.model_copy(update={"loss": loss}))


def test_rows_that_contradict_a_decision_are_not_streamed(shards: Path, small_pairs: Path, tiny_encoder: Path):
    config = config_of(shards, small_pairs, tiny_encoder, batching={"keep_groups": True})
    unmarked = PairStream(config, window=7)
    texts = unmarked.sample.texts.texts
    positive, negative = (np.flatnonzero(mask) for mask in (unmarked.sample.positive, ~unmarked.sample.positive))
    chosen = {"true_negative": positive[:2], "drop": negative[:1]}
    decisions = [
        Decision(texts[unmarked.sample.query[row]], texts[unmarked.sample.document[row]], kind)
        for kind, rows in chosen.items()
        for row in rows
    ]
    write_decisions(file := shards.parent / "decisions.tsv", decisions)
    decided = config.model_copy(update={"data": config.data.model_copy(update={"false_negatives": str(file)})})
    stream = PairStream(decided, window=7)
    rows = select_training_rows(decided, load_data(decided.data).train)
    pairs = [(one, batch) for one, batches in stream.windows(7) for batch in batches]
    streamed = [pair for one, batch in pairs for pair in zip(*text_pairs(one, batch), strict=True)]
    assert streamed == list(zip(*text_pairs(rows, np.arange(len(rows))), strict=True))
    assert len(stream) == len(rows) < len(unmarked)
    assert stream.count_batches(7) == len(pairs)


def text_pairs(rows: PairDataset, chosen: np.ndarray) -> tuple[list[str], list[str], list[float]]:
    """Return the queries, documents and labels of some rows."""
    return (
        rows.texts.take(rows.query[chosen]),
        rows.texts.take(rows.document[chosen]),
        rows.label[chosen].tolist(),
    )


def test_incomplete_shards_are_refused_before_any_work(shards: Path, small_pairs: Path, tiny_encoder: Path):
    (shards / "manifest.json").unlink()
    config = config_of(shards, small_pairs, tiny_encoder)
    assert is_streamed(config)
    with pytest.raises(FileFormatError, match="were not finished"):
        PairStream(config)
