"""One of several processes of a run: writes the gradients of steps of several losses to a file.

`python two_ranks.py ENCODER OUT`, with the environment of torchrun; without it, the same steps in one process.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from pydantic import TypeAdapter

from bsc_core.batching import BatchPlan
from bsc_core.config import EncoderConfig, LossConfig, TrainingConfig
from bsc_core.data import PairDataset
from bsc_core.encoders import load_encoder, tokenize
from bsc_core.encoders.forward import Forward
from bsc_core.losses import build_loss
from bsc_core.training.loop.device import ActivationMemory, seed_everything
from bsc_core.training.loop.distributed import Distributed
from bsc_core.training.loop.step import GradientCachedEncoder, backward_batch
from bsc_core.training.loop.trainer import Trainer
from bsc_core.training.sampler import CustomSampler

ALL_DIRECTIONS = ("query_to_doc", "doc_to_query", "query_to_query", "doc_to_doc")
LOSSES = (
    {"name": "bsc", "learn_temperature": True},
    {"name": "bsc", "normalization": "l2_columns", "temperature": 1.2},
    {"name": "softmax"},
    {"name": "supcon", "max_negatives": 3},
    {"name": "simcse", "learn_temperature": True},
    {"name": "bsc", "mask": "self", "mask_margin": 0.05, "hardness": "in_batch_negatives", "hardness_strength": 2.0},
    {"name": "bsc", "debiased_prior": 0.1, "directions": ALL_DIRECTIONS, "partition": "joint"},
    {"name": "mnrl", "decoupled": True, "matryoshka_dims": [32, 8]},
    {"name": "sigmoid"},
    {"name": "angle"},
)
WORDS = "soup bread salt water garden rose seed soil tent train ticket bank money loan sleep tea".split()
Results = dict[str, torch.Tensor]


def pairs() -> PairDataset:
    queries = [f"how do i {WORDS[row // 2]}" for row in range(16)]
    documents = [" ".join(WORDS[row : row + 1 + row % 5]) for row in range(16)]
    labels = [(1.0, 0.2)[row % 2] for row in range(16)]
    return PairDataset.from_pairs(queries, documents, labels, classes=[row % 3 for row in range(16)])


def step_gradients(encoder: str, distributed: Distributed, config: dict, mode: str, rows: range = range(12)) -> Results:
    """Return loss and gradients of one step with dropout, computed by all processes."""
    seed_everything(3)
    model = load_encoder(EncoderConfig(name=encoder, max_seq_length=32)).train()
    loss = build_loss(TypeAdapter(LossConfig).validate_python(config), dimensions=32)
    dataset = pairs()
    settings = TrainingConfig(gradient_cache=mode).model_copy(update={"micro_tokens": 16 if len(rows) > 2 else 512})
    forward = Forward(model, tokenize(model, dataset.texts.texts, 32), "fp32")
    cached = GradientCachedEncoder(forward, settings, ActivationMemory(150_000, 50_000), distributed)
    report = backward_batch(cached, loss, dataset, np.array(rows, dtype=np.int32))
    distributed.sum_gradients(parameter for _, parameter in forward.named_parameters())
    named = [*model.named_parameters(), *loss.named_parameters()]
    result = {name: parameter.grad for name, parameter in named if parameter.grad is not None}
    return result | {"loss": torch.tensor(report.loss), "random": torch.rand(1)}


def trained_weights(encoder: str) -> Results:
    """Return the weights after an epoch of the trainer, which joins the other processes."""
    seed_everything(3)
    model = load_encoder(EncoderConfig(name=encoder, max_seq_length=32))
    dataset = pairs()
    rows = np.arange(16, dtype=np.int32)
    config = TrainingConfig(epochs=1, batch_size=6, learning_rate=1e-3, gradient_accumulation_steps=2, precision="fp32")
    tokens = tokenize(model, dataset.texts.texts, 32)
    memory = np.zeros((len(dataset.texts), 32), dtype=np.float32)
    trainer = Trainer(
        model,
        build_loss(TypeAdapter(LossConfig).validate_python(LOSSES[0])),
        CustomSampler(dataset, tokens, lambda epoch: BatchPlan(rows, rows).batches(config.batch_size), memory),
        config.model_copy(update={"micro_tokens": 16}),
    )
    reports = []
    for report in trainer:
        reports.append(report)
        torch.rand(trainer.distributed.rank)  # as if this process alone had evaluated
    weights = {f"weight {name}": value.clone() for name, value in trainer.model.state_dict().items()}
    reported = {"losses": torch.tensor([report.loss for report in reports]), "memory": torch.from_numpy(memory)}
    return weights | reported


def main(encoder: str, out: Path) -> None:
    torch.set_num_threads(1)
    distributed = Distributed.from_environment()
    result = {"count": torch.tensor(distributed.count), "main": torch.tensor(distributed.is_main)}
    result["shared"] = torch.tensor(distributed.broadcast(distributed.rank + 7))
    for number, config in enumerate(LOSSES):
        for mode in ("never", "always", "auto"):
            gradients = step_gradients(encoder, distributed, config, mode)
            result |= {f"{number} {mode} {name}": value for name, value in gradients.items()}
    for mode in ("never", "always"):  # one micro-batch, so that a process has nothing to encode
        gradients = step_gradients(encoder, distributed, LOSSES[0], mode, rows=range(2))
        result |= {f"small {mode} {name}": value for name, value in gradients.items()}
    result |= trained_weights(encoder)
    distributed.wait()
    torch.save(result, out)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
