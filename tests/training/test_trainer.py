"""The training loop: steps, reports, repeatability, resuming, and refusals."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from bsc_core.batching import build_plan
from bsc_core.config import BatchingConfig, BSCLossConfig, EncoderConfig, TrainingConfig
from bsc_core.data import read_pairs
from bsc_core.encoders import load_encoder, tokenize
from bsc_core.errors import ConfigError, TrainingError
from bsc_core.losses import LossParts, build_loss
from bsc_core.training.checkpoint import checkpoints, read_checkpoint, save_checkpoint
from bsc_core.training.loop.device import seed_everything
from bsc_core.training.loop.trainer import StepReport, Trainer, TrainerState
from bsc_core.training.sampler import CustomSampler

TRAINING = {"batch_size": 8, "learning_rate": 1e-3, "precision": "fp32"}


@pytest.fixture
def make(small_pairs, tiny_encoder):
    dataset = read_pairs(small_pairs)

    def trainer(
        loss: nn.Module | None = None,
        strategy: str = "random",
        seed: int = 3,
        resume: TrainerState | None = None,
        initial: dict[str, torch.Tensor] | None = None,
        **changes,
    ) -> Trainer:
        seed_everything(seed)
        config = TrainingConfig(**{**TRAINING, **changes})
        model = load_encoder(EncoderConfig(name=str(tiny_encoder), max_seq_length=32))
        model.load_state_dict(model.state_dict() if initial is None else initial)

        def batches(epoch: int) -> list[np.ndarray]:
            plan = build_plan(BatchingConfig(strategy=strategy), dataset, None, seed=config.seed, epoch=epoch)
            return plan.batches(config.batch_size)

        return Trainer(
            model,
            loss or build_loss(BSCLossConfig(learn_temperature=True)),
            CustomSampler(dataset, tokenize(model, dataset.texts.texts, 32), batches),
            config,
            resume=resume,
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


def test_restarts_reset_rate_and_moments_in_each_epoch(make):
    trainer, starts = make(epochs=2, schedule="restarts"), []
    for report in trainer:
        moments = next(iter(trainer.optimizer.state.values()))
        starts.append((report.learning_rate, int(moments["step"])))
    assert [rate for rate, _ in starts[:5]] == [rate for rate, _ in starts[5:]]
    assert starts[0][0] == 0 < starts[1][0]
    assert [steps for _, steps in starts] == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]


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


def test_evaluating_between_steps_does_not_disable_dropout(make):
    trainer = make(epochs=1)
    modes = []
    for _ in trainer:
        modes.append(trainer.model.training)
        trainer.model.eval()
    assert modes == [True] * 5


def test_a_checkpoint_has_weights_loss_and_optimizer_and_old_ones_are_deleted(make, tmp_path):
    trainer = make(epochs=1)
    for report in trainer:
        save_checkpoint(tmp_path, trainer, report, keep=2)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000004", "step-000005"]
    newest = checkpoints(tmp_path)[-1]
    loaded = load_encoder(EncoderConfig(name=str(newest / "model"), max_seq_length=32)).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in weights(trainer).items())
    saved = read_checkpoint(newest)
    assert saved.loss.keys() == trainer.loss.state_dict().keys()
    assert saved.state["optimizer"]["param_groups"][0]["lr"] == trainer.optimizer.param_groups[0]["lr"]
    moments = trainer.optimizer.state_dict()["state"]
    assert all(
        torch.equal(saved.state["optimizer"]["state"][key]["exp_avg"], moments[key]["exp_avg"]) for key in moments
    )


def without_dropout(trainer: Trainer) -> Trainer:
    for module in trainer.encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return trainer


def test_accumulated_batches_are_averaged_also_in_a_smaller_last_step(make):
    still = {"epochs": 1, "learning_rate": 1e-12, "temperature_learning_rate": 1e-12, "max_grad_norm": 1e9}
    singles: list[dict[str, torch.Tensor]] = []
    trainer = without_dropout(make(**still))
    update = trainer._update

    def remember(*arguments):
        named = trainer.forward.named_parameters()
        singles.append({name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None})
        return update(*arguments)

    trainer._update = remember
    losses = [report.loss for report in trainer]
    reports = list(without_dropout(make(gradient_accumulation_steps=2, **still)))
    assert [report.pairs for report in reports] == [16, 16, 8]
    assert [report.position for report in reports] == [2, 4, 5]
    assert [report.steps for report in reports] == [3, 3, 3]
    assert [report.ends_epoch for report in reports] == [False, False, True]
    for report, batches in zip(reports, ([0, 1], [2, 3], [4]), strict=True):
        assert report.loss == pytest.approx(np.mean([losses[batch] for batch in batches]), rel=1e-4)
        mean = [sum(singles[batch][name] for batch in batches) / len(batches) for name in singles[0]]
        assert report.grad_norm == pytest.approx(float(sum(part.square().sum() for part in mean) ** 0.5), rel=1e-3)


def test_accumulated_steps_end_with_each_epoch(make):
    reports = list(make(epochs=2, gradient_accumulation_steps=3))
    assert [(report.epoch, report.position) for report in reports] == [(1, 3), (1, 5), (2, 3), (2, 5)]
    assert [report.last for report in reports] == [False, False, False, True]


@pytest.mark.parametrize("stop", [1, 2, 4, 5])
def test_a_trainer_resumes_bit_for_bit_where_another_stopped(make, stop):
    options = {"epochs": 2, "gradient_accumulation_steps": 2, "gradient_cache": "auto"}
    complete, state = make(**options), None
    for report in complete:
        if report.step == stop:
            model, loss, state = copy.deepcopy(
                (complete.model.state_dict(), complete.loss.state_dict(), complete.state())
            )
            position = (report.step, report.epoch, report.position)
    assert state is not None
    resumed = make(resume=TrainerState(*position, False, state), initial=model, **options)
    resumed.loss.load_state_dict(loss)
    reports = list(resumed)
    assert [report.step for report in reports] == list(range(stop + 1, 7))
    expected, result = weights(complete), weights(resumed)
    assert all(torch.equal(result[name], value) for name, value in expected.items())
    assert resumed.loss.temperature.value == complete.loss.temperature.value


def test_recomputing_activations_gives_the_same_weights(make):
    storing = make(gradient_cache="never", micro_tokens=64)
    reports = list(storing)
    recomputing = make(gradient_cache="always", micro_tokens=64)
    cached = list(recomputing)
    assert [report.loss for report in cached] == [report.loss for report in reports]
    assert {report.recomputed for report in reports} == {0.0}
    assert {report.recomputed for report in cached} == {1.0}
    others = weights(recomputing)
    assert all(torch.equal(others[name], value) for name, value in weights(storing).items())


def test_a_report_has_hardness_tokens_and_memory(make):
    reports: list[StepReport] = list(make(epochs=1, micro_tokens=64))
    assert all(-2 <= report.hardness <= 2 for report in reports)
    assert all(0 < report.distinct_tokens < report.tokens for report in reports)
    assert all(report.micro_batches > 1 for report in reports)
    assert all(10**7 < report.memory_bytes < 10**11 for report in reports)


def test_fp16_is_refused_on_a_cpu(make):
    with pytest.raises(ConfigError, match=r"training\.precision is fp16.*use auto"):
        make(precision="fp16")


def test_a_scaled_loss_trains_as_an_unscaled_one(make):
    plain = make(max_steps=3)
    norms = [report.grad_norm for report in plain]
    scaled = make(max_steps=3)
    scaled.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    assert [report.grad_norm for report in scaled] == pytest.approx(norms, rel=1e-3)
    others = weights(scaled)
    assert all(torch.allclose(others[name], value, atol=1e-4) for name, value in weights(plain).items())


def test_a_step_with_an_overflow_is_skipped(make):
    class Steep(nn.Module):
        def forward(self, queries, documents, labels=None, **ids):
            return LossParts(1e4 * (queries * documents).sum(), {})

    trainer = make(loss=Steep(), max_steps=2)
    trainer.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    before = weights(trainer)
    steps = iter(trainer)
    assert not np.isfinite(next(steps).grad_norm)
    after = weights(trainer)
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert trainer.scaler.get_scale() == 2.0**126
    assert trainer.state()["scaler"]["scale"] == 2.0**126
    assert trainer.state()["schedule"]["last_epoch"] == 0


def test_a_loss_that_becomes_nan_does_not_change_the_weights(make):
    class BreaksLater(nn.Module):
        seen = 0

        def forward(self, queries, documents, labels=None, **ids):
            self.seen += 1
            total = (queries * documents).sum()
            return LossParts(total * float("nan") if self.seen == 3 else total, {})

    trainer = make(loss=BreaksLater())
    steps = iter(trainer)
    next(steps), next(steps)
    before = weights(trainer)
    with pytest.raises(TrainingError, match="step 3"):
        next(steps)
    assert all(torch.equal(value, weights(trainer)[name]) for name, value in before.items())
