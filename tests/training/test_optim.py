"""The optimiser's groups and the linear schedule."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bsc_core.config import BSCLossConfig, DataConfig, RunConfig, TrainingConfig
from bsc_core.losses import build_loss
from bsc_core.training.optim import clip_gradients, make_optimizer, make_schedule
from bsc_core.training.precision import processor_gains_from_bf16, resolve_precision


def rates(steps: int, warmup: float) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = make_schedule(optimizer, steps=steps, warmup=warmup)
    seen = []
    for _ in range(steps):
        seen.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return seen


def test_a_tenth_of_the_steps_rises_and_the_rest_falls_to_zero():
    seen = rates(100, 0.1)
    assert all(a < b for a, b in pairwise(seen[:11]))
    assert seen[10] == pytest.approx(1.0)
    assert all(a > b for a, b in pairwise(seen[10:]))
    assert seen[-1] == pytest.approx(1 / 90)


@given(steps=st.integers(1, 200), warmup=st.floats(0, 0.99))
def test_no_step_is_wasted_at_rate_zero_or_above_the_peak(steps, warmup):
    seen = rates(steps, warmup)
    assert all(0 < rate <= 1 for rate in seen)


def test_decay_spares_biases_norms_and_the_temperature_which_has_its_own_rate():
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    loss = build_loss(BSCLossConfig(learn_temperature=True))
    config = TrainingConfig(learning_rate=1e-4, temperature_learning_rate=0.3, weight_decay=0.01)
    decayed, spared, own = make_optimizer(model, loss, config).param_groups
    assert [p.ndim for p in decayed["params"]] == [2]
    assert all(p.ndim == 1 for p in spared["params"])
    assert (decayed["weight_decay"], spared["weight_decay"], own["weight_decay"]) == (0.01, 0.0, 0.0)
    assert own["lr"] == 0.3
    assert len(own["params"]) == 1


def test_clipping_reports_the_norm_before_and_leaves_small_gradients_alone():
    model = nn.Linear(1, 1, bias=False)
    model.weight.grad = torch.full((1, 1), 5.0)
    assert clip_gradients(model, 1.0) == pytest.approx(5.0)
    assert model.weight.grad.item() == pytest.approx(1.0, abs=1e-4)
    model.weight.grad = torch.full((1, 1), 0.5)
    clip_gradients(model, 1.0)
    assert model.weight.grad.item() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("flags", "gains"), [("fpu avx2 avx512f", False), ("fpu avx512_bf16", True), ("fpu amx_bf16 amx_tile", True)]
)
def test_auto_precision_asks_the_processor(tmp_path, flags, gains, monkeypatch):
    monkeypatch.setattr("platform.system", lambda: "Linux")
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor : 0\nflags\t\t: {flags}\n")
    assert processor_gains_from_bf16(torch.device("cpu"), cpuinfo) is gains


def test_a_named_precision_is_taken_as_it_is():
    assert resolve_precision("fp32", torch.device("cpu")) == "fp32"
    assert resolve_precision("bf16", torch.device("cpu")) == "bf16"


def test_every_run_config_has_a_valid_default_training_section():
    assert RunConfig(data=DataConfig(train="x.csv")).training == TrainingConfig()
