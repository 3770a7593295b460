"""The two trainers that benchmarks/training.py sets against each other, each in a process of its own that takes turns.

A process trains on the same rows in the same order; after its first step it waits, and for each number on standard
input it trains so many steps and prints what they took.
"""

# B pairs of a batch

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from bsc_core.config import BSCLossConfig, EncoderConfig, TrainingConfig
from bsc_core.data import PairDataset, read_pairs
from bsc_core.encoders import TokenTable, load_encoder, tokenise
from bsc_core.losses import build_loss

TEMPERATURE = 0.05
LEARNING_RATE = 2e-5
LENGTH = 90
LARGEST_PRODUCT = 4096


@dataclass(frozen=True)
class Setting:
    """What is trained, and how.

    data: a data set's folder; its first rows in source order, or rows drawn at random where shuffled. attention and
    mini_batch are sentence-transformers' own: the attention of its model, and the mini-batch size of its cached loss.
    """

    data: str
    shuffled: bool = False
    batch: int = 30
    steps: int = 100
    precision: str = "bf16"
    dropout: bool = False
    attention: str = "sdpa"
    mini_batch: int | None = None


def pairs(folder: Path, setting: Setting) -> PairDataset:
    """As many rows as the steps take, without labels: every row is a pair, the others of its batch its negatives."""
    path = folder / setting.data / "pairs.tsv.gz"
    whole = read_pairs(path, label_max=5 if setting.data == "stsb" else 1)
    order = np.random.default_rng(0).permutation(len(whole)) if setting.shuffled else np.arange(len(whole))
    wanted = np.resize(order[: len(order) // setting.batch * setting.batch], setting.steps * setting.batch)
    texts = whole.texts.texts
    return PairDataset.from_pairs([texts[i] for i in whole.query[wanted]], [texts[i] for i in whole.document[wanted]])


def bundled_model(setting: Setting) -> SentenceTransformer:
    """The bundled encoder, without dropout unless the setting keeps it."""
    model = load_encoder(EncoderConfig(max_length=LENGTH))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) and not setting.dropout:
            module.p = 0.0
    return model


def tokens_of_a_batch(dataset: PairDataset, tokens: TokenTable, setting: Setting) -> tuple[float, float]:
    """Distinct real tokens of a batch, and tokens of both columns padded, in the mean of all batches."""
    sides = [column.reshape(-1, setting.batch) for column in (dataset.query, dataset.document)]
    distinct = [tokens.lengths[np.unique(rows)].sum() for rows in np.concatenate(sides, axis=1)]
    padded = [tokens.lengths[column].max(axis=1) * setting.batch for column in sides]
    return float(np.mean(distinct)), float(np.mean(np.sum(padded, axis=0)))


def product_seconds(tokens: float) -> float:
    """Processor seconds of the bundled encoder's matrix products in bfloat16 alone, forward and backward."""
    rows, taken = max(1, round(min(tokens, LARGEST_PRODUCT))), 0.0
    for inner, outer in ((384, 1152), (384, 384), (384, 1536), (1536, 384)):
        x, w, g = (torch.randn(shape).bfloat16() for shape in ((rows, inner), (outer, inner), (rows, outer)))
        best = float("inf")
        for _ in range(9):
            started = time.process_time()
            _ = torch.nn.functional.linear(x, w), g @ w, g.T @ x
            best = min(best, time.process_time() - started)
        taken += best
    return 6 * taken * tokens / rows


class Turns:
    """Waits after the first step; then for each number read, times so many steps."""

    def __init__(self) -> None:
        self.left, self.begun = 1, (0.0, 0.0)

    def now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def after_step(self, loss: float) -> None:
        self.left -= 1
        if self.left:
            return
        (wall, cpu), ended = self.begun, self.now()
        self.tell({"loss": loss, "wall": ended[0] - wall, "cpu": ended[1] - cpu})
        line = sys.stdin.readline()
        if not line:
            self.tell({"peak": peak()})
            sys.exit(0)
        self.left, self.begun = int(line), self.now()

    def tell(self, found: dict[str, Any]) -> None:
        print(json.dumps(found), flush=True)


def peak() -> float:
    """The most MiB that this process held (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def ours(setting: Setting, folder: Path, turns: Turns) -> None:
    from bsc_core.training.trainer import Trainer

    dataset, model = pairs(folder, setting), bundled_model(setting)
    started = time.process_time()
    tokens = tokenise(model, dataset.texts.texts, LENGTH)
    once = (time.process_time() - started) / setting.steps
    distinct, padded = tokens_of_a_batch(dataset, tokens, setting)
    turns.tell({"once": once, "distinct": distinct, "padded": padded, "products": product_seconds(distinct)})
    config = TrainingConfig(
        steps=setting.steps,
        batch_size=setting.batch,
        learning_rate=LEARNING_RATE,
        precision=setting.precision,
        threads=torch.get_num_threads(),
    )

    class InOrder:
        def batches(self, batch_size: int) -> list[np.ndarray]:
            return list(np.arange(len(dataset), dtype=np.int32).reshape(-1, batch_size))

    loss = build_loss(BSCLossConfig(temperature=TEMPERATURE, symmetric=True))
    trainer = Trainer(model, loss, dataset=dataset, tokens=tokens, config=config, plan_for=lambda epoch: InOrder())
    for report in trainer:
        turns.after_step(report.loss)


def theirs(setting: Setting, folder: Path, turns: Turns) -> None:
    """sentence-transformers' trainer: fused AdamW, bf16, no workers, in-batch softmax in both directions."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from sentence_transformers.sentence_transformer.losses import (
        CachedMultipleNegativesRankingLoss,
        MultipleNegativesRankingLoss,
    )
    from transformers import TrainerCallback

    class InOrder(DefaultBatchSampler):
        def __iter__(self) -> Iterator[list[int]]:
            return (list(range(start, start + setting.batch)) for start in range(0, len(dataset), setting.batch))

    class AfterStep(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            turns.after_step(seen[-1])

    dataset, model = pairs(folder, setting), bundled_model(setting)
    model.max_seq_length = LENGTH
    model[0].auto_model.set_attn_implementation(setting.attention)
    texts = dataset.texts.texts
    columns = {"query": [texts[i] for i in dataset.query], "document": [texts[i] for i in dataset.document]}
    seen: list[float] = []
    both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction", "scale": 1 / TEMPERATURE}
    if setting.mini_batch:
        loss = CachedMultipleNegativesRankingLoss(model, mini_batch_size=setting.mini_batch, **both)
    else:
        loss = MultipleNegativesRankingLoss(model, **both)
    loss.register_forward_hook(lambda module, inputs, output: seen.append(float(output.detach())))
    with tempfile.TemporaryDirectory() as place:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=place,
            use_cpu=True,
            bf16=setting.precision == "bf16",
            optim="adamw_torch_fused",
            max_steps=setting.steps,
            per_device_train_batch_size=setting.batch,
            batch_sampler=InOrder,
            learning_rate=LEARNING_RATE,
            warmup_steps=0.1,
            weight_decay=0.01,
            dataloader_num_workers=0,
            logging_strategy="no",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        turns.tell({"once": 0.0})
        trainer = SentenceTransformerTrainer(
            model, arguments, train_dataset=Dataset.from_dict(columns), loss=loss, callbacks=[AfterStep()]
        )
        trainer.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("side", choices=("ours", "theirs"))
    parser.add_argument("setting", type=json.loads)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    side = ours if arguments.side == "ours" else theirs
    side(Setting(**arguments.setting), arguments.folder, Turns())


if __name__ == "__main__":
    main()
