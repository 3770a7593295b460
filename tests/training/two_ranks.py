"""One process of a run with several: steps of every kind, whose gradients it writes to a file.

`python two_ranks.py ENCODER OUT`, with the environment that torchrun gives; alone, the same steps in one process.
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
from bsc_core.encoders import load_encoder, tokenise
from bsc_core.encoders.forward import PlainForward
from bsc_core.losses import build_loss
from bsc_core.training.cache import CachedEncoder
from bsc_core.training.memory import Room
from bsc_core.training.ranks import Ranks, start_ranks
from bsc_core.training.seeding import seed_everything
from bsc_core.training.step import backward_batch
from bsc_core.training.trainer import Trainer

LOSSES = (
    {"name": "bsc", "learn_temperature": True},
    {"name": "bsc", "normalization": "l2_columns", "temperature": 1.2},
    {"name": "softmax"},
    {"name": "supcon", "max_negatives": 3},
    {"name": "simcse", "learn_temperature": True},
)
WORDS = "soup bread salt water garden rose seed soil tent train ticket bank money loan sleep tea".split()


Found = dict[str, torch.Tensor]


def pairs() -> PairDataset:
    queries = [f"how do i {WORDS[row // 2]}" for row in range(16)]
    documents = [" ".join(WORDS[row : row + 1 + row % 5]) for row in range(16)]
    labels = [(1.0, 0.2)[row % 2] for row in range(16)]
    return PairDataset.from_pairs(queries, documents, labels, classes=[row % 3 for row in range(16)])


def step_gradients(encoder: str, ranks: Ranks, config: dict, mode: str, rows: range = range(12)) -> Found:
    """Loss and gradients of one step with dropout, by this process and the others."""
    seed_everything(3)
    model = load_encoder(EncoderConfig(name=encoder, max_length=32)).train()
    loss = build_loss(TypeAdapter(LossConfig).validate_python(config), dimensions=32)
    dataset = pairs()
    settings = TrainingConfig(gradient_cache=mode).model_copy(update={"micro_tokens": 16 if len(rows) > 2 else 512})
    forward = PlainForward(model, tokenise(model, dataset.texts.texts, 32), "fp32")
    cached = CachedEncoder(forward, settings, Room(150_000, 50_000), ranks)
    report = backward_batch(cached, loss, dataset, np.array(rows, dtype=np.int32))
    ranks.sum_gradients(parameter for _, parameter in forward.named_parameters())
    named = [*model.named_parameters(), *loss.named_parameters()]
    found = {name: parameter.grad for name, parameter in named if parameter.grad is not None}
    return found | {"loss": torch.tensor(report.loss), "random": torch.rand(1)}


def trained_weights(encoder: str) -> Found:
    """Weights after an epoch of the trainer, which finds the other processes itself."""
    seed_everything(3)
    model = load_encoder(EncoderConfig(name=encoder, max_length=32))
    dataset = pairs()
    rows = np.arange(16, dtype=np.int32)
    config = TrainingConfig(epochs=1, batch_size=6, learning_rate=1e-3, accumulation=2, precision="fp32")
    trainer = Trainer(
        model,
        build_loss(TypeAdapter(LossConfig).validate_python(LOSSES[0])),
        dataset=dataset,
        tokens=tokenise(model, dataset.texts.texts, 32),
        config=config.model_copy(update={"micro_tokens": 16}),
        plan_for=lambda epoch: BatchPlan(rows, rows),
        memory=np.zeros((len(dataset.texts), 32), dtype=np.float32),
    )
    reports = []
    for report in trainer:
        reports.append(report)
        torch.rand(trainer.ranks.rank)  # as if this process alone had measured
    weights = {f"weight {name}": value.clone() for name, value in trainer.model.state_dict().items()}
    told = {"losses": torch.tensor([report.loss for report in reports]), "memory": torch.from_numpy(trainer.memory)}
    return weights | told


def main(encoder: str, out: Path) -> None:
    torch.set_num_threads(1)
    ranks = start_ranks()
    found = {"count": torch.tensor(ranks.count), "main": torch.tensor(ranks.is_main)}
    found["shared"] = torch.tensor(ranks.share(ranks.rank + 7))
    for number, config in enumerate(LOSSES):
        for mode in ("never", "always", "auto"):
            gradients = step_gradients(encoder, ranks, config, mode)
            found |= {f"{number} {mode} {name}": value for name, value in gradients.items()}
    for mode in ("never", "always"):  # one micro-batch, so that a process has nothing to encode
        gradients = step_gradients(encoder, ranks, LOSSES[0], mode, rows=range(2))
        found |= {f"small {mode} {name}": value for name, value in gradients.items()}
    found |= trained_weights(encoder)
    ranks.wait()
    torch.save(found, out)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
