"""What the batch order `examples` adds to an epoch: the plan from vectors that the steps left, or from new ones.

    python benchmarks/training_order.py --data FOLDER_OF_DATA

The bundled encoder is trained for one epoch in the order `examples`, in the precision that suits the processor; then
the second epoch's plan is made twice, with `refresh = "reuse"` and with `"encode"`, which encodes the queries anew.
Processor seconds of one thread, the plan's file and its count of collisions included.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch

from bsc_core.config import RunConfig, make_config
from bsc_core.data import SPLIT_SEED, PairDataset, load_data
from bsc_core.encoders import load_encoder, tokenise
from bsc_core.losses import build_loss
from bsc_core.runs import RunStore
from bsc_core.training.epoch_plans import EpochPlans
from bsc_core.training.journal import Journal
from bsc_core.training.precision import resolve_precision
from bsc_core.training.ranks import Ranks
from bsc_core.training.rows import training_rows
from bsc_core.training.text_vectors import TextVectors
from bsc_core.training.trainer import Trainer

LABEL_MAX = {"stsb": 5}
REFRESHES = ("reuse", "encode")


def config_of(folder: Path, data: str, refresh: str) -> RunConfig:
    source = {"train": str(folder / data / "pairs.tsv.gz"), "label_max": LABEL_MAX.get(data, 1)}
    batching = {"strategy": "examples", "group_size": 8, "refresh": refresh}
    training = {"epochs": 1, "batch_size": 30, "threads": 1}
    evaluation = {"each_epoch": False}
    values = {"data": source, "batching": batching, "training": training, "evaluation": evaluation}
    return make_config(values, source="this benchmark")


class Order:
    """An epoch of a data set, and what the plan of the next one takes."""

    def __init__(self, folder: Path, data: str, place: Path) -> None:
        self.folder, self.data, self.place = folder, data, place
        config = config_of(folder, data, "reuse")
        self.train: PairDataset = training_rows(config, load_data(config.data, seed=SPLIT_SEED).train)
        self.model = load_encoder(config.encoder)
        self.tokens = tokenise(self.model, self.train.texts.texts, config.encoder.max_length)
        precision = resolve_precision(config.training.precision, self.model.device)
        self.vectors = TextVectors(self.model, self.tokens, precision=precision, progress=lambda done, total: None)
        self.vectors.refresh()
        self.vectors.steps = self.vectors.all.copy()

    def queries(self) -> tuple[int, float]:
        """How many distinct queries there are, and their share of the tokens of all distinct texts."""
        own, both = (np.unique(texts) for texts in (self.train.query, np.concatenate(self.train.text_columns)))
        return len(own), float(self.tokens.lengths[own].sum() / self.tokens.lengths[both].sum())

    def epoch_seconds(self) -> float:
        config = config_of(self.folder, self.data, "reuse")
        trainer = Trainer(
            self.model,
            build_loss(config.loss),
            dataset=self.train,
            tokens=self.tokens,
            config=config.training,
            plan_for=self._plans("reuse"),
            memory=self.vectors.steps,
        )
        return sum(self._timed(trainer))

    def plan_seconds(self, refresh: str) -> float:
        plans = self._plans(refresh)
        plans(0)
        started = time.process_time()
        plans(1)
        return time.process_time() - started

    def _plans(self, refresh: str) -> EpochPlans:
        config = config_of(self.folder, self.data, refresh)
        journal = Journal(RunStore(self.place).create(config))
        return EpochPlans(config, self.train, self.vectors, journal=journal, ranks=Ranks())

    def _timed(self, trainer: Trainer) -> list[float]:
        taken, started = [], 0.0
        for report in trainer:
            if report.step > 1:  # the first is preceded by the plan, and by what is made once
                taken.append(time.process_time() - started)
            started = time.process_time()
        return [*taken, sum(taken) / len(taken)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder with pfcc_s, stsb and cqa_a")
    parser.add_argument("--only", nargs="*", default=["pfcc_s", "stsb", "cqa_a"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| data | rows | queries | their tokens | epoch, s | reuse, s | of an epoch | encode, s | of an epoch |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for data in arguments.only:
        with tempfile.TemporaryDirectory() as place:
            order = Order(arguments.data, data, Path(place))
            epoch = order.epoch_seconds()
            cells = []
            for refresh in REFRESHES:
                seconds = order.plan_seconds(refresh)
                cells += [f"{seconds:.2f}", f"{seconds / epoch:.1%}"]
            queries, share = order.queries()
            counts = f"{len(order.train):,} | {queries:,} | {share:.0%}"
            print(f"| {data} | {counts} | {epoch:.1f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
