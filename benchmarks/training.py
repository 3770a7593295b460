"""Training compared with the trainer of sentence-transformers in the same run: pairs per second and peak memory.

    python benchmarks/training.py --data FOLDER_OF_DATA [--parts speed memory cached] [--threads 1] [--dropout]
    python benchmarks/training.py --parts static

Both trainers train the bundled encoder in bfloat16 on the same batches in the same order, in a process each, and take
turns of some steps; medians of the turns. Seconds are processor time of all threads, which other work on the machine
hardly changes; `--wall` takes wall time instead. Those of this project include its tokenization, those of
sentence-transformers its collator, with the faster of SDPA and eager attention. ratio: pairs per second of this
project, divided by those of the peer. limit: the ratio for a step of nothing but the matrix products of the distinct
real tokens. tokens: the share of these in padded columns. losses: the first loss of this project, and of the peer with
SDPA. static: the trainer of this project alone, with the static encoder on one core and the sample data.
"""

# B pairs of a batch

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from measure import ROOT, clock, parser, print_header, print_row, resident_mib
from sentence_transformers import SentenceTransformer

from bsc_core.batching import build_plan
from bsc_core.config import BSCLossConfig, EncoderConfig, TrainingConfig, make_config
from bsc_core.data import PairDataset, load_data, read_pairs
from bsc_core.encoders import TokenTable, load_encoder, tokenize
from bsc_core.losses import build_loss
from bsc_core.training.loop.device import seed_everything, set_threads
from bsc_core.training.loop.trainer import Trainer
from bsc_core.training.sampler import CustomSampler

ORDERS = {"pfcc_s": "source", "stsb": "random", "wikiqa": "source", "cqa_a": "source"}
MINI_BATCHES = (16, 32, 64)
TEMPERATURE = 0.05
LEARNING_RATE = 2e-5
LENGTH = 90
LARGEST_PRODUCT = 4096
BF16_EPSILON = 2.0**-8
"""Relative difference allowed between the first losses: bfloat16 has 8 significant bits."""


@dataclass(frozen=True)
class Setting:
    """What is trained, and how.

    data: a dataset's folder; its first rows in source order, or random rows if shuffled. attention and mini_batch are
    for sentence-transformers: the attention of its model, and the mini-batch size of its cached loss.
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
    """Return as many rows as the steps take, without labels: every row is a positive pair."""
    dataset = read_pairs(folder / setting.data / "pairs.tsv.gz", label_max=5 if setting.data == "stsb" else 1)
    order = np.random.default_rng(0).permutation(len(dataset)) if setting.shuffled else np.arange(len(dataset))
    rows = np.resize(order[: len(order) // setting.batch * setting.batch], setting.steps * setting.batch)
    return PairDataset.from_pairs(*texts_of(dataset.take(rows)))


def texts_of(dataset: PairDataset) -> list[list[str]]:
    """Return the queries and the documents."""
    return [[dataset.texts.texts[text] for text in column] for column in (dataset.query, dataset.document)]


def bundled_model(setting: Setting) -> SentenceTransformer:
    """Return the bundled encoder, without dropout unless the setting has it."""
    model = load_encoder(EncoderConfig(max_seq_length=LENGTH))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) and not setting.dropout:
            module.p = 0.0
    return model


def tokens_per_batch(dataset: PairDataset, tokens: TokenTable, setting: Setting) -> tuple[float, float]:
    """Return the mean numbers of distinct real tokens of a batch, and of tokens of both columns with padding."""
    sides = [column.reshape(-1, setting.batch) for column in (dataset.query, dataset.document)]
    distinct = [tokens.lengths[np.unique(rows)].sum() for rows in np.concatenate(sides, axis=1)]
    padded = [tokens.lengths[column].max(axis=1) * setting.batch for column in sides]
    return float(np.mean(distinct)), float(np.mean(np.sum(padded, axis=0)))


def product_seconds(tokens: float) -> float:
    """Return processor seconds of the bundled encoder's matrix products in bfloat16 alone, forward and backward."""
    rows, total = max(1, round(min(tokens, LARGEST_PRODUCT))), 0.0
    for inner, outer in ((384, 1152), (384, 384), (384, 1536), (1536, 384)):
        x, w, g = (torch.randn(shape).bfloat16() for shape in ((rows, inner), (outer, inner), (rows, outer)))
        best = float("inf")
        for _ in range(9):
            started = time.process_time()
            _ = torch.nn.functional.linear(x, w), g @ w, g.T @ x
            best = min(best, time.process_time() - started)
        total += best
    return 6 * total * tokens / rows


def report(**values: float) -> None:
    """Print values as a line of JSON for the parent process."""
    print(json.dumps(values), flush=True)


class Turns:
    """Waits after the first step; then, for each number on standard input, times that many steps."""

    def __init__(self) -> None:
        self.remaining, self.started = 1, clock()

    def after_step(self, loss: float) -> None:
        self.remaining -= 1
        if self.remaining:
            return
        wall, cpu = clock() - self.started
        report(loss=loss, wall=wall, cpu=cpu)
        line = sys.stdin.readline()
        if not line:
            report(peak=resident_mib("VmHWM"))
            sys.exit(0)
        self.remaining, self.started = int(line), clock()


def train_by_this_project(setting: Setting, folder: Path, turns: Turns) -> None:
    dataset, model = pairs(folder, setting), bundled_model(setting)
    started = time.process_time()
    tokens = tokenize(model, dataset.texts.texts, LENGTH)
    once = (time.process_time() - started) / setting.steps
    distinct, padded = tokens_per_batch(dataset, tokens, setting)
    report(once=once, distinct=distinct, padded=padded, products=product_seconds(distinct))
    config = TrainingConfig(
        max_steps=setting.steps,
        batch_size=setting.batch,
        learning_rate=LEARNING_RATE,
        precision=setting.precision,
        threads=torch.get_num_threads(),
    )
    in_order = list(np.arange(len(dataset), dtype=np.int32).reshape(-1, setting.batch))
    loss = build_loss(BSCLossConfig(temperature=TEMPERATURE, symmetric=True))
    for step in Trainer(model, loss, CustomSampler(dataset, tokens, lambda epoch: in_order), config):
        turns.after_step(step.loss)


def train_by_sentence_transformers(setting: Setting, folder: Path, turns: Turns) -> None:
    """Train by sentence-transformers: fused AdamW, no data workers, in-batch softmax in both directions."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from sentence_transformers.sentence_transformer import losses
    from transformers import TrainerCallback

    class InOrder(DefaultBatchSampler):
        def __iter__(self) -> Iterator[list[int]]:
            return (list(range(start, start + setting.batch)) for start in range(0, len(dataset), setting.batch))

    class AfterStep(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            turns.after_step(values[-1])

    dataset, model = pairs(folder, setting), bundled_model(setting)
    model.max_seq_length = LENGTH
    model[0].auto_model.set_attn_implementation(setting.attention)
    values: list[float] = []
    both = {"directions": ("query_to_doc", "doc_to_query"), "partition_mode": "per_direction", "scale": 1 / TEMPERATURE}
    if setting.mini_batch:
        loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=setting.mini_batch, **both)
    else:
        loss = losses.MultipleNegativesRankingLoss(model, **both)
    loss.register_forward_hook(lambda module, inputs, output: values.append(float(output.detach())))
    with tempfile.TemporaryDirectory() as output:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=output,
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
        report(once=0.0)
        rows = Dataset.from_dict(dict(zip(("query", "document"), texts_of(dataset), strict=True)))
        SentenceTransformerTrainer(model, arguments, train_dataset=rows, loss=loss, callbacks=[AfterStep()]).train()


THIS_PROJECT, PEER = "this project", "sentence-transformers"
SIDES = {THIS_PROJECT: train_by_this_project, PEER: train_by_sentence_transformers}


class Side:
    """One trainer in a child process, which trains only on request."""

    def __init__(self, side: str, setting: Setting, arguments: argparse.Namespace) -> None:
        self.clock, self.batch = "wall" if arguments.wall else "cpu", setting.batch
        child = ["--side", side, "--setting", json.dumps(asdict(setting)), "--data", str(arguments.data)]
        self.process = subprocess.Popen(
            [sys.executable, __file__, *child],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "TOKENIZERS_PARALLELISM": "false"},
        )
        self.facts = self._read()
        self.first_loss = float(self._read()["loss"])
        self.seconds: list[float] = []

    def train(self, steps: int) -> None:
        """Train for a turn of some steps."""
        print(steps, file=self.process.stdin, flush=True)
        self.seconds.append(self._read()[self.clock] / steps + self.facts["once"])

    def close(self) -> float:
        """End the process and return its peak memory in MiB."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        peak = float(self._read()["peak"])
        self.process.wait()
        return peak

    @property
    def pairs_per_second(self) -> float:
        return self.batch / statistics.median(self.seconds)

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"a trainer ended early: {self.process.args}")


def speed(arguments: argparse.Namespace) -> None:
    columns = (
        "data",
        "order",
        "pairs/s",
        "sentence-transformers",
        "ratio",
        "limit",
        "tokens",
        "MiB",
        "MiB of the peer",
    )
    print_header(*columns, "losses")
    steps = 1 + (1 + arguments.turns) * arguments.steps
    for name in arguments.only:
        setting = Setting(name, ORDERS[name] == "random", steps=steps, dropout=arguments.dropout)
        peers = [Side(PEER, replace(setting, attention=kind), arguments) for kind in ("sdpa", "eager")]
        project = Side(THIS_PROJECT, setting, arguments)
        for _ in range(1 + arguments.turns):
            for side in (project, *peers):
                side.train(arguments.steps)
        for side in (project, *peers):
            del side.seconds[0]  # warmup
        best = max(peers, key=lambda side: side.pairs_per_second)
        expected = peers[0].first_loss  # with SDPA; eager attention rounds its scores to bfloat16
        if not arguments.dropout and abs(project.first_loss - expected) > BF16_EPSILON * expected:
            raise SystemExit(f"{name}: the first losses differ: {project.first_loss} and {expected}")
        peaks = {side: side.close() for side in (project, *peers)}
        print_row(
            name,
            ORDERS[name],
            f"{project.pairs_per_second:.1f}",
            f"{best.pairs_per_second:.1f}",
            f"{project.pairs_per_second / best.pairs_per_second:.2f}",
            f"{setting.batch / best.pairs_per_second / project.facts['products']:.2f}",
            f"{project.facts['distinct'] / project.facts['padded']:.0%}",
            f"{peaks[project]:,.0f}",
            f"{peaks[best]:,.0f}",
            f"{project.first_loss:.4f} {expected:.4f}",
        )


def memory(arguments: argparse.Namespace) -> None:
    print_header("data", "batch", "MiB", "of batch 30")
    for name in ("stsb", "wikiqa"):
        first = None
        for batch, steps in ((30, 300), (3000, 3)):  # the same rows
            setting = Setting(name, True, batch=batch, steps=steps, dropout=arguments.dropout)
            side = Side(THIS_PROJECT, setting, arguments)
            side.train(min(steps, 100) - 1)
            peak = side.close()
            first = first or peak
            print_row(name, f"{batch:,}", f"{peak:,.0f}", f"{peak / first:.3f}")


def cached(arguments: argparse.Namespace) -> None:
    print_header("trainer", "mini-batch", "pairs/s", "MiB", "ratio")
    project = None
    for mini_batch in (None, *MINI_BATCHES):
        setting = Setting("stsb", True, batch=3000, steps=3, dropout=arguments.dropout, mini_batch=mini_batch)
        side = Side(PEER if mini_batch else THIS_PROJECT, setting, arguments)
        side.train(1)
        project = project or side.pairs_per_second
        name = "CachedMultipleNegativesRankingLoss" if mini_batch else "this project"
        cells = (f"{side.pairs_per_second:.1f}", f"{side.close():,.0f}", f"{project / side.pairs_per_second:.2f}")
        print_row(name, mini_batch or "-", *cells)


def static(arguments: argparse.Namespace) -> None:
    speeds = [static_pairs_per_second() for _ in range(arguments.turns)]
    print(f"static encoder, 1 thread, batch 30: median {statistics.median(speeds):.0f} pairs/s of "
          + ", ".join(f"{speed:.0f}" for speed in speeds))  # fmt: skip


def static_pairs_per_second() -> float:
    config = make_config(
        {
            "data": {"train": str(ROOT / "sample_data" / "pairs.tsv")},
            "encoder": {"name": "static"},
            "batching": {"strategy": "random"},
            "training": {"batch_size": 30, "threads": 1, "epochs": 2},
        }
    )
    set_threads(config.training.threads)
    seed_everything(config.training.seed)
    data, model = load_data(config.data, seed=0), load_encoder(config.encoder)

    def batches(epoch: int) -> list[np.ndarray]:
        plan = build_plan(config.batching, data.train, None, seed=0, epoch=epoch)
        return plan.batches(config.training.batch_size)

    tokens = tokenize(model, data.texts.texts, config.encoder.max_seq_length)
    trainer = Trainer(model, build_loss(config.loss), CustomSampler(data.train, tokens, batches), config.training)
    steps = list(trainer)[3:]  # without the first steps, which allocate memory
    return sum(step.pairs for step in steps) / sum(step.seconds for step in steps)


PARTS = {"speed": speed, "memory": memory, "cached": cached, "static": static}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--data", type=Path, help="a folder with pfcc_s, stsb, wikiqa and cqa_a")
    options.add_argument("--parts", nargs="*", choices=list(PARTS), default=["speed", "memory", "cached"])
    options.add_argument("--only", nargs="*", choices=list(ORDERS), default=list(ORDERS), help="datasets of `speed`")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--steps", type=int, default=5, help="of a turn")
    options.add_argument("--dropout", action="store_true", help="train with dropout; the first losses then differ")
    options.add_argument("--wall", action="store_true", help="wall time: for a machine without other work")
    options.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    options.add_argument("--setting", type=json.loads, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.data is None and set(arguments.parts) != {"static"}:
        options.error(f"--data is required for {', '.join(arguments.parts)}")
    if arguments.side:
        SIDES[arguments.side](Setting(**arguments.setting), arguments.data, Turns())
        return
    dropout, seconds = "on" if arguments.dropout else "off", "wall" if arguments.wall else "CPU"
    print(f"{arguments.threads} thread(s), dropout {dropout}, {seconds} seconds\n", flush=True)
    for part in arguments.parts:
        PARTS[part](arguments)
        print()


if __name__ == "__main__":
    main()
