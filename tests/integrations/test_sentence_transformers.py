"""Losses and batch sampler in SentenceTransformerTrainer, tested by training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

from bsc_core.batching import build_plan
from bsc_core.config import LOSS_CONFIGS, BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.errors import ConfigError, InputError
from bsc_core.integrations import sentence_transformers as adapter
from bsc_core.losses import load_loss, save_loss

datasets = pytest.importorskip("datasets")

WORDS = ["soup", "bread", "garden", "train", "money", "sleep", "cat", "bike"]
QUERIES = [f"how do i {word}" for word in WORDS]
DOCUMENTS = [f"you can {word} in the rain" for word in WORDS]
NEGATIVES = [f"the {word} is old" for word in WORDS]
GRADES = [1.0, 0.2, 0.9, 0.0, 1.0, 0.4, 0.7, 0.1]
CLASSES = [0, 1, 2, 0, 1, 2, 0, 0]
PAIRS: dict[str, list[Any]] = {"query": QUERIES, "document": DOCUMENTS}
GRADED = {**PAIRS, "label": GRADES}
CLASSED = {**PAIRS, "label": CLASSES}

CASES = [
    (adapter.BSCLoss, {"learn_temperature": True, "duplicates": "multi_positive"}, GRADED),
    (adapter.BSCLoss, {"normalization": "range_columns", "temperature": 1.2}, PAIRS),
    (adapter.CombinedLoss, {"mu": 0.1}, GRADED),
    (adapter.CosineMSELoss, {}, GRADED),
    (adapter.PearsonLoss, {}, GRADED),
    (adapter.SoftmaxLoss, {}, CLASSED),
    (adapter.SupConLoss, {"max_negatives": 2}, CLASSED),
    (adapter.TripletLoss, {}, {**PAIRS, "negative": NEGATIVES}),
    (adapter.ContrastiveLoss, {}, GRADED),
    (adapter.OnlineContrastiveLoss, {}, GRADED),
    (adapter.SimCSELoss, {}, {"text": QUERIES}),
    (adapter.MNRLoss, {}, {**PAIRS, "negative": NEGATIVES}),
    (adapter.MNRLoss, {"mask": "self", "hardness": "hard_negatives"}, {**PAIRS, "negative": NEGATIVES}),
    (adapter.SigmoidLoss, {}, PAIRS),
    (adapter.CoSENTLoss, {}, GRADED),
    (adapter.AngleLoss, {}, GRADED),
]


@pytest.fixture
def model(tiny_encoder):
    return SentenceTransformer(str(tiny_encoder), device="cpu")


def columns_of(model: SentenceTransformer, data: dict[str, list[Any]]) -> list[dict[str, torch.Tensor]]:
    return [model.preprocess(texts) for name, texts in data.items() if name != "label"]


def train(
    model: SentenceTransformer,
    loss: torch.nn.Module,
    data: dict[str, list[Any]],
    folder: Path,
    *,
    callbacks: tuple[Any, ...] | list[Any] = (),
    resume: str | None = None,
    **changes: Any,
):
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        **{
            "per_device_train_batch_size": 4,
            "max_steps": 3,
            "learning_rate": 1e-2,
            "report_to": "none",
            "save_strategy": "no",
            "use_cpu": True,
            "logging_steps": 1,
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            **changes,
        },
    )
    trainer = SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=datasets.Dataset.from_dict(data), loss=loss, callbacks=[*callbacks]
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_every_loss_has_a_class():
    assert {loss.name for loss, *_ in CASES} == set(LOSS_CONFIGS)


@pytest.mark.parametrize(("kind", "fields", "data"), CASES, ids=[f"{case[0].name}-{n}" for n, case in enumerate(CASES)])
def test_the_loss_trains_in_the_trainer(kind, fields, data, model, tmp_path):
    loss = kind(model, **fields)
    of_loss = {name: value.clone() for name, value in loss.loss.state_dict().items()}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer = train(model, loss, data, tmp_path)
    logged = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(logged) == 3
    assert np.isfinite(logged).all()
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(not torch.equal(of_loss[name], value) for name, value in loss.loss.state_dict().items())


SEEN_ONCE = [case for case in CASES if case[0] is not adapter.SimCSELoss]  # its two views differ by dropout


@pytest.mark.parametrize(
    ("kind", "fields", "data"), SEEN_ONCE, ids=[f"{case[0].name}-{n}" for n, case in enumerate(SEEN_ONCE)]
)
def test_the_adapter_is_the_core_loss_on_the_same_embeddings(kind, fields, data, model):
    model.eval()
    loss = kind(model, **fields)
    columns = columns_of(model, data)
    sides = [model(dict(column))["sentence_embedding"] for column in columns]
    labels = torch.tensor(data["label"]) if "label" in data else None
    ids = {"query_ids": adapter.text_ids(columns[:1]), "document_ids": adapter.text_ids(columns[1:])}
    if data is CLASSED:
        ids["classes"] = labels
    torch.manual_seed(0)
    grades = None if labels is None or data is CLASSED else labels
    expected = loss.loss(sides[0], torch.cat(sides[1:]), grades, **ids).total
    torch.manual_seed(0)
    assert loss(columns, labels).item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("data", [PAIRS, {**PAIRS, "negative": NEGATIVES}], ids=["pairs", "hard negatives"])
def test_mnrl_equals_the_librarys_loss_in_value_and_gradient(data, model):
    model.eval()
    columns = columns_of(model, data)
    totals, gradients = [], []
    for loss in (adapter.MNRLoss(model), MultipleNegativesRankingLoss(model)):
        model.zero_grad()
        total = loss([dict(column) for column in columns], None)
        total.backward()
        totals.append(total.item())
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert totals[0] == pytest.approx(totals[1], abs=1e-6)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-4, atol=1e-6)


def test_equal_texts_have_equal_ids_with_any_padding(model):
    features = model.preprocess(["the cat", "the cat sleep in the rain", "the cat", "bread"])
    assert adapter.text_ids([features]).tolist() == [0, 1, 0, 2]
    more = model.preprocess(["bread", "the garden"])
    assert adapter.text_ids([features, more]).tolist() == [0, 1, 0, 2, 2, 3]


def test_a_trained_head_is_saved_and_loaded(model, tmp_path):
    loss = adapter.SoftmaxLoss(model)
    train(model, loss, CLASSED, tmp_path)
    save_loss(loss.loss, tmp_path / "loss")
    read = load_loss(tmp_path / "loss")
    assert all(torch.equal(read.state_dict()[name], value) for name, value in loss.loss.state_dict().items())


@pytest.mark.parametrize(
    ("kind", "fields", "data"), [CASES[0], CASES[5], CASES[6]], ids=["temperature", "head", "head of supcon"]
)
def test_training_resumes_with_the_loss_of_the_checkpoint(kind, fields, data, model, tiny_encoder, tmp_path):
    arguments = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    loss = kind(model, **fields)
    train(model, loss, data, tmp_path, callbacks=[adapter.LossCheckpoint(loss)], **arguments)
    torch.manual_seed(99)
    fresh = SentenceTransformer(str(tiny_encoder), device="cpu")
    again = kind(fresh, **fields)
    resumed = str(tmp_path / "checkpoint-2")
    train(fresh, again, data, tmp_path, callbacks=[adapter.LossCheckpoint(again)], resume=resumed, **arguments)
    for name, value in loss.loss.state_dict().items():
        torch.testing.assert_close(again.loss.state_dict()[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("kind", "fields", "data"), CASES, ids=[f"{case[0].name}-{n}" for n, case in enumerate(CASES)])
def test_a_last_batch_of_one_row_is_accepted(kind, fields, data, model, tmp_path):
    five = {name: column[:5] for name, column in data.items()}
    trainer = train(model, kind(model, **fields), five, tmp_path, max_steps=2)
    assert trainer.state.global_step == 2


def test_a_negative_that_repeats_a_document_is_merged(model):
    model.eval()
    data = {"query": QUERIES[:3], "document": DOCUMENTS[:3], "negative": [DOCUMENTS[1], DOCUMENTS[0], NEGATIVES[0]]}
    loss = adapter.BSCLoss(model, duplicates="merge", symmetric=False, temperature=0.05)
    whole = loss(columns_of(model, data), None)
    fewer = {**data, "negative": [NEGATIVES[0]] * 3}
    assert whole.item() == pytest.approx(loss(columns_of(model, fewer), None).item(), abs=1e-6)


def test_wrong_fields_and_missing_columns_are_reported_in_one_line(model):
    with pytest.raises(ConfigError, match="temperature is 0"):
        adapter.BSCLoss(model, temperature=0)
    with pytest.raises(InputError, match="needs 2 columns of texts; the batch has 1"):
        adapter.BSCLoss(model)(columns_of(model, {"query": QUERIES}), None)
    with pytest.raises(InputError, match="needs a label"):
        adapter.CosineMSELoss(model)(columns_of(model, PAIRS), None)


def test_the_trainer_uses_the_batches_of_the_plans(model, tmp_path):
    dataset = PairDataset.from_pairs(QUERIES, DOCUMENTS)

    def plan_for(epoch):
        return build_plan(BatchingConfig(strategy="random"), dataset, None, seed=5, epoch=epoch)

    seen: list[list[str]] = []

    class Recorder(adapter.MNRLoss):
        def forward(self, sentence_features, labels):
            columns = list(sentence_features)
            rows = columns[0]["input_ids"]
            seen.append(
                [text.replace(" ", "") for text in model.tokenizer.batch_decode(rows, skip_special_tokens=True)]
            )
            return super().forward(columns, labels)

    sampler = adapter.PlannedBatchSampler.with_plans(plan_for)
    train(model, Recorder(model), PAIRS, tmp_path, batch_sampler=sampler, max_steps=-1, num_train_epochs=2)
    expected = [
        [QUERIES[row].replace(" ", "") for row in rows] for epoch in range(2) for rows in plan_for(epoch).batches(4)
    ]
    assert seen == expected
    assert expected[:2] != expected[2:]
