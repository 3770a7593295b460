"""The loop: how many steps, what each reports, that it repeats, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bsc_core.batching import build_plan
from bsc_core.config import BatchingConfig, BSCLossConfig, EncoderConfig, TrainingConfig
from bsc_core.data import read_pairs
from bsc_core.encoders import load_encoder, tokenise
from bsc_core.errors import CheckpointError, TrainingError
from bsc_core.losses import LossParts, build_loss
from bsc_core.training.checkpoint import checkpoints, read_state, save_checkpoint
from bsc_core.training.seeding import seed_everything
from bsc_core.training.trainer import Trainer

TRAINING = {"batch_size": 8, "learning_rate": 1e-3, "precision": "fp32"}


@pytest.fixture
def make(small_pairs, tiny_encoder):
    dataset = read_pairs(small_pairs)

    def trainer(loss: nn.Module | None = None, strategy: str = "random", seed: int = 3, **changes) -> Trainer:
        seed_everything(seed)
        config = TrainingConfig(**{**TRAINING, **changes})
        model = load_encoder(EncoderConfig(name=str(tiny_encoder), max_length=32))
        return Trainer(
            model,
            loss or build_loss(BSCLossConfig(learn_temperature=True)),
            dataset=dataset,
            tokens=tokenise(model, dataset.texts.texts, 32),
            config=config,
            plan_for=lambda epoch: build_plan(
                BatchingConfig(strategy=strategy), dataset, None, seed=config.seed, epoch=epoch
            ),
        )

    return trainer


def weights(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def test_epochs_cover_every_pair_and_each_ends_once(make):
    reports = list(make(epochs=2))
    assert [report.step for report in reports] == list(range(1, 11))
    assert sum(report.pairs for report in reports) == 2 * 40
    assert [report.epoch for report in reports if report.ends_epoch] == [1, 2]
    assert all(report.steps == 10 and report.epochs == 2 for report in reports)


@pytest.mark.parametrize(("steps", "ends"), [(3, [3]), (5, [5]), (7, [5, 7])])
def test_a_fixed_number_of_steps_replaces_epochs(make, steps, ends):
    reports = list(make(steps=steps))
    assert len(reports) == steps
    assert [report.step for report in reports if report.ends_epoch] == ends


def test_training_lowers_the_loss_and_moves_the_temperature(make):
    reports = list(make(epochs=8, strategy="sequential"))
    assert np.mean([r.loss for r in reports[-5:]]) < 0.9 * np.mean([r.loss for r in reports[:5]])
    assert reports[-1].temperature != pytest.approx(reports[0].temperature, rel=1e-3)


def test_the_same_seed_gives_the_same_weights_bit_for_bit(make):
    def trained(seed: int) -> dict[str, torch.Tensor]:
        trainer = make(epochs=1, seed=seed)
        list(trainer)
        return weights(trainer)

    a, b, c = trained(3), trained(3), trained(4)
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert any(not torch.equal(a[name], c[name]) for name in a)


def test_a_loss_that_is_not_finite_stops_the_run_with_the_step(make):
    class Broken(nn.Module):
        def forward(self, queries, documents, labels=None, **ids):
            return LossParts(queries.sum() * float("nan"), {})

    with pytest.raises(TrainingError, match="step 1"):
        list(make(loss=Broken()))


def test_evaluating_between_steps_does_not_switch_dropout_off(make):
    trainer = make(epochs=1)
    modes = []
    for _ in trainer:
        modes.append(trainer.model.training)
        trainer.model.eval()
    assert modes == [True] * 5


def test_a_checkpoint_holds_weights_loss_and_optimiser_and_only_the_newest_stays(make, tmp_path):
    trainer = make(epochs=1)
    for report in trainer:
        save_checkpoint(tmp_path, trainer, report, keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000004", "step-000005"]
    newest = checkpoints(tmp_path)[-1]
    loaded = load_encoder(EncoderConfig(name=str(newest / "model"), max_length=32)).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in weights(trainer).items())
    state = read_state(newest)
    assert state["loss"].keys() == trainer.loss.state_dict().keys()
    assert state["optimizer"]["param_groups"][0]["lr"] == trainer.optimizer.param_groups[0]["lr"]
    moments = trainer.optimizer.state_dict()["state"]
    assert all(torch.equal(state["optimizer"]["state"][key]["exp_avg"], moments[key]["exp_avg"]) for key in moments)


def test_a_truncated_checkpoint_is_refused_by_name(make, tmp_path):
    trainer = make(steps=1)
    for report in trainer:
        checkpoint = save_checkpoint(tmp_path, trainer, report)
    state = checkpoint / "state.pt"
    state.write_bytes(state.read_bytes()[: state.stat().st_size // 2])
    with pytest.raises(CheckpointError, match="step-000001"):
        read_state(checkpoint)
