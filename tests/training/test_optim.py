"""The optimizer's groups and the linear schedule."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bsc_core.config import BSCLossConfig, TrainingConfig
from bsc_core.errors import ConfigError
from bsc_core.losses import build_loss
from bsc_core.training.loop.optim import clip_gradients, layer_rates, make_optimizer, make_schedule


def rates(steps: int, warmup: float, **kind: Any) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make_schedule(optimizer, steps=steps, warmup=warmup, **kind)
    values = []
    for _ in range(steps):
        values.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return values


def test_a_tenth_of_the_steps_rises_and_the_rest_falls_to_zero():
    values = rates(100, 0.1)
    assert all(a < b for a, b in pairwise(values[:11]))
    assert values[10] == pytest.approx(1.0)
    assert all(a > b for a, b in pairwise(values[10:]))
    assert values[-1] == pytest.approx(1 / 90)


def test_the_schedule_of_the_margins_paper_restarts_in_each_epoch_and_never_reaches_its_peak():
    values = rates(5 * 782, 0.1, kind="restarts", steps_per_epoch=782)  # 50,000 samples in batches of 64, five epochs
    assert values[:782] == values[782:1564] == [step / 10_000 for step in range(782)]
    assert 3e-5 * max(values) == pytest.approx(2.34e-6, abs=5e-9)
    long = rates(12_000, 0.1, kind="restarts", steps_per_epoch=12_000)
    assert (long[10_000], long[11_000]) == (1.0, 0.5)


@given(steps=st.integers(1, 200), warmup=st.floats(0, 0.99))
def test_every_step_has_a_rate_above_zero_and_up_to_the_peak(steps, warmup):
    values = rates(steps, warmup)
    assert all(0 < rate <= 1 for rate in values)


def test_biases_norms_and_the_temperature_have_no_decay_and_the_temperature_has_a_separate_rate():
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    loss = build_loss(BSCLossConfig(learn_temperature=True))
    config = TrainingConfig(learning_rate=1e-4, temperature_learning_rate=0.3, weight_decay=0.01)
    decayed, undecayed, temperature = make_optimizer(model, loss, config).param_groups
    assert [p.ndim for p in decayed["params"]] == [2]
    assert all(p.ndim == 1 for p in undecayed["params"])
    assert (decayed["weight_decay"], undecayed["weight_decay"], temperature["weight_decay"]) == (0.01, 0.0, 0.0)
    assert temperature["lr"] == 0.3
    assert len(temperature["params"]) == 1


def test_clipping_returns_the_norm_before_and_does_not_change_small_gradients():
    model = nn.Linear(1, 1, bias=False)
    model.weight.grad = torch.full((1, 1), 5.0)
    assert clip_gradients(model, 1.0) == pytest.approx(5.0)
    assert model.weight.grad.item() == pytest.approx(1.0, abs=1e-4)
    model.weight.grad = torch.full((1, 1), 0.5)
    clip_gradients(model, 1.0)
    assert model.weight.grad.item() == pytest.approx(0.5)


def adamw(weight: float, gradients: list[float], config: TrainingConfig) -> list[float]:
    """AdamW (Loshchilov and Hutter 2019) for one number, from the equations."""
    first = second = 0.0
    values = []
    for step, gradient in enumerate(gradients, start=1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        one, two = (1 - 0.9**step, 1 - 0.999**step) if config.bias_correction else (1.0, 1.0)
        eps = 1e-8 if config.bias_correction else 1e-6
        weight *= 1 - config.learning_rate * config.weight_decay
        weight -= config.learning_rate * (first / one) / ((second / two) ** 0.5 + eps)
        values.append(weight)
    return values


def trained_number(gradients: list[float], config: TrainingConfig, *, reload_at: int | None = None) -> list[float]:
    """Compute the same with the optimizer of runs; at one step it is replaced by a new one with its state."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 0.5)
    optimizer = make_optimizer(model, nn.Module(), config)
    values = []
    for step, gradient in enumerate(gradients):
        if step == reload_at:
            state = optimizer.state_dict()
            optimizer = make_optimizer(model, nn.Module(), config)
            optimizer.load_state_dict(state)
        model.weight.grad = torch.full((1, 1), gradient)
        optimizer.step()
        values.append(model.weight.item())
    return values


GRADIENTS = st.lists(st.floats(-3, 3, width=32).filter(lambda value: abs(value) > 1e-3), min_size=1, max_size=12)


@given(gradients=GRADIENTS, corrected=st.booleans())
def test_the_optimizer_is_adamw_with_or_without_bias_correction(gradients, corrected):
    config = TrainingConfig(learning_rate=0.01, weight_decay=0.1, bias_correction=corrected)
    assert trained_number(gradients, config) == pytest.approx(adamw(0.5, gradients, config), rel=1e-4, abs=1e-6)


def test_without_correction_the_first_step_is_more_than_three_times_as_long():
    plain, uncorrected = (TrainingConfig(weight_decay=0, bias_correction=choice) for choice in (True, False))
    moved = [abs(trained_number([1.0], config)[0] - 0.5) for config in (plain, uncorrected)]
    assert moved[1] / moved[0] == pytest.approx(0.1 / 0.001**0.5, rel=1e-2)


def test_a_saved_state_continues_bit_for_bit_without_correction():
    config = TrainingConfig(learning_rate=0.01, bias_correction=False)
    gradients = [0.3, -1.0, 0.7, 0.2, -0.4]
    assert trained_number(gradients, config, reload_at=2) == trained_number(gradients, config)


def test_each_layer_has_a_share_of_the_rate_of_the_layer_above(tiny_encoder):
    from bsc_core.encoders.pretrained import load_folder

    model = load_folder(tiny_encoder, 16)
    config = TrainingConfig(learning_rate=1e-3, layer_decay=0.5)
    groups = make_optimizer(model, nn.Module(), config).param_groups
    rate_of = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    decay_of = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    expected = {"pooler": 1e-3, "encoder.layer.1.": 1e-3, "encoder.layer.0.": 5e-4, "embeddings.": 2.5e-4}
    for name, parameter in model.named_parameters():
        (group,) = [group for group in expected if group in name]
        assert rate_of[id(parameter)] == pytest.approx(expected[group]), name
        assert decay_of[id(parameter)] == (0.0 if parameter.ndim == 1 else 0.01), name


@given(decay=st.floats(0.1, 1), layers=st.integers(1, 30))
def test_the_top_layer_has_the_full_rate_and_no_layer_a_higher_one(decay, layers):
    names = ["0.model.embeddings.word.weight", "0.model.final_norm.weight"]
    names += [f"0.model.layers.{number}.mlp.weight" for number in range(layers)]
    rates = layer_rates(names, TrainingConfig(learning_rate=1e-3, layer_decay=decay))
    ordered = [rates[name] for name in (names[0], *names[2:], names[1])]
    assert ordered == sorted(ordered)
    assert rates[names[1]] == rates[names[-1]] == pytest.approx(1e-3)
    assert rates[names[0]] == pytest.approx(1e-3 * decay**layers)


def test_layer_decay_is_refused_without_layers():
    with pytest.raises(ConfigError, match=r"layer_decay is 0\.9, and this encoder has no numbered layers"):
        layer_rates(["0.embedding.weight"], TrainingConfig(layer_decay=0.9))
    assert layer_rates(["0.embedding.weight"], TrainingConfig()) == {"0.embedding.weight": 2e-5}
