"""A step on real tokens only: the gradients of every loss are the plain ones, and the same bits when computed again."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from bsc_core.config import EncoderConfig, TrainingConfig
from bsc_core.encoders import load_encoder
from bsc_core.encoders.forward import make_forward
from bsc_core.encoders.packed import PackedForward
from bsc_core.training.cache import CachedEncoder
from bsc_core.training.memory import Room
from bsc_core.training.step import backward_batch
from tests.training.test_step import LOSSES, ROWS, TOKENS, Bench, loss_of, plain_gradients, sixteen_pairs


@pytest.fixture(scope="module")
def bench(tiny_encoder) -> Bench:
    return Bench(load_encoder(EncoderConfig(name=str(tiny_encoder), max_length=32)), sixteen_pairs())


def packed_step(bench: Bench, loss: nn.Module, mode: str, precision: str) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss, and gradients by name of the parameter, of a step on real tokens only."""
    forward = make_forward(bench.model, bench.tokens, precision)
    assert isinstance(forward, PackedForward)
    config = TrainingConfig(gradient_cache=mode).model_copy(update={"micro_tokens": TOKENS})
    torch.manual_seed(5)
    report = backward_batch(CachedEncoder(forward, config, Room(2**30, 2**28)), loss, bench.dataset, ROWS)
    assert report.micro_batches > 1
    named = [*forward.named_parameters(), *loss.named_parameters()]
    taken = {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None}
    loss.zero_grad()
    return report.loss, taken


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("config", LOSSES, ids=[f"{number}-{loss['name']}" for number, loss in enumerate(LOSSES)])
def test_real_tokens_only_have_the_same_bits_when_computed_again(bench: Bench, config: dict, precision: str) -> None:
    bench.model.train()
    loss = loss_of(config)
    one, kept = packed_step(bench, loss, "never", precision)
    two, cached = packed_step(bench, loss, "always", precision)
    assert one == two
    assert len(kept) == len(cached) > 30
    assert all(torch.equal(cached[name], gradient) for name, gradient in kept.items())


@pytest.mark.parametrize("config", LOSSES, ids=[f"{number}-{loss['name']}" for number, loss in enumerate(LOSSES)])
def test_real_tokens_only_give_the_plain_gradients(bench: Bench, config: dict) -> None:
    bench.model.eval()
    if "max_negatives" in config:  # which draws; the other cut into micro-batches would draw other numbers before
        config = {**config, "max_negatives": 100, "max_positives": 100}
    loss = loss_of(config)
    total, found = packed_step(bench, loss, "never", "fp32")
    plain, expected = plain_gradients(bench, loss, ROWS)
    assert total == pytest.approx(plain, abs=1e-5)
    largest = max(float(gradient.abs().max()) for gradient in expected)
    for (name, _), gradient in zip(bench.model.named_parameters(), expected, strict=False):
        if name in found:
            whole = gradient[np.unique(bench.tokens.tokens)] if "word_embeddings" in name else gradient
            assert torch.allclose(found[name], whole, atol=2e-5 * max(1.0, largest), rtol=1e-4), name
