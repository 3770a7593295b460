"""What the batch order `examples` adds to an epoch: plans from vectors that the steps left, or from new ones.

    python benchmarks/training_order.py --data FOLDER_OF_DATA

The bundled encoder is trained for three epochs in the order `examples`, in the precision that suits the processor, with
`refresh = "encode"`, and the plans of the second and the third epoch are timed; then a plan is made with `"reuse"`.
`in all` is what the plans took beside the steps of all epochs. Processor seconds of one thread, the plan's file and its
count of collisions included. `encoded` is the share of the queries that the third plan encoded anew, `neighbours` that
of the 8 nearest queries which its vectors have in common with those of all queries encoded anew, on average.
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

from bsc_core.batching import BatchPlan
from bsc_core.batching.knn import nearest, unit_rows
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
EPOCHS = 3
NEIGHBOURS = 8


def config_of(folder: Path, data: str, refresh: str) -> RunConfig:
    source = {"train": str(folder / data / "pairs.tsv.gz"), "label_max": LABEL_MAX.get(data, 1)}
    batching = {"strategy": "examples", "group_size": 8, "refresh": refresh}
    training = {"epochs": EPOCHS, "batch_size": 30, "threads": 1}
    evaluation = {"each_epoch": False}
    values = {"data": source, "batching": batching, "training": training, "evaluation": evaluation}
    return make_config(values, source="this benchmark")


class Order:
    """An epoch of a data set, and what the plan of the next one takes."""

    def __init__(self, folder: Path, data: str, place: Path) -> None:
        self.folder, self.data, self.place = folder, data, place
        config = config_of(folder, data, "reuse")
        self.rows: PairDataset = training_rows(config, load_data(config.data, seed=SPLIT_SEED).train)
        self.model = load_encoder(config.encoder)
        self.tokens = tokenise(self.model, self.rows.texts.texts, config.encoder.max_length)
        precision = resolve_precision(config.training.precision, self.model.device)
        self.vectors = TextVectors(self.model, self.tokens, precision=precision, progress=lambda done, total: None)
        self.vectors.refresh()
        self.vectors.steps = self.vectors.all.copy()

    def queries(self) -> tuple[int, float]:
        """How many distinct queries there are, and their share of the tokens of all distinct texts."""
        own, both = (np.unique(texts) for texts in (self.rows.query, np.concatenate(self.rows.text_columns)))
        return len(own), float(self.tokens.lengths[own].sum() / self.tokens.lengths[both].sum())

    def train(self) -> tuple[float, list[float], tuple[float, float]]:
        """Seconds of the steps of an epoch, on average, and of the plan of each epoch but the first; of the last plan,
        the share of queries encoded anew and that of neighbours in common with fresh vectors."""
        config = config_of(self.folder, self.data, "encode")
        plans, taken, aside, shares = self._plans("encode"), [], [], []

        def plan_for(epoch: int) -> BatchPlan:
            started = time.process_time()
            plan = plans(epoch)
            planned = time.process_time()
            if epoch == EPOCHS - 1:
                shares.append(self.shares(plans))
            taken.append(planned - started)
            aside.append(time.process_time() - planned)
            return plan

        trainer = Trainer(
            self.model,
            build_loss(config.loss),
            dataset=self.rows,
            tokens=self.tokens,
            config=config.training,
            plan_for=plan_for,
            memory=self.vectors.steps,
        )
        started = time.process_time()
        for _ in trainer:
            pass
        steps = time.process_time() - started - sum(taken) - sum(aside)
        return steps / EPOCHS, taken[1:], shares[0]

    def shares(self, plans: EpochPlans) -> tuple[float, float]:
        """Of the vectors that a plan compares: how many are the model's own, and of how many neighbours they agree."""
        own = np.unique(self.rows.query)
        assert plans.compared is not None
        compared, fresh = plans.compared[own], self.vectors.of(own)[own]
        same = unit_rows(compared) * unit_rows(fresh)
        found, right = (nearest(vectors, vectors, NEIGHBOURS + 1)[0] for vectors in (compared, fresh))
        common = [len(np.intersect1d(one, other)) - 1 for one, other in zip(found, right, strict=True)]
        return float((same.sum(1) > 1 - 1e-4).mean()), float(np.mean(common)) / NEIGHBOURS

    def reuse_seconds(self) -> float:
        plans = self._plans("reuse")
        plans(0)
        started = time.process_time()
        plans(1)
        return time.process_time() - started

    def _plans(self, refresh: str) -> EpochPlans:
        config = config_of(self.folder, self.data, refresh)
        journal = Journal(RunStore(self.place).create(config))
        return EpochPlans(config, self.rows, self.vectors, journal=journal, ranks=Ranks())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder with pfcc_s, stsb and cqa_a")
    parser.add_argument("--only", nargs="*", default=["pfcc_s", "stsb", "cqa_a"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = ["data", "rows", "queries", "their tokens", "epoch, s", "reuse"]
    names += ["2nd plan, s", "of an epoch", "3rd plan, s", "of an epoch", "encoded", "neighbours", "in all"]
    print(f"| {' | '.join(names)} |")
    print(f"|---|{'---:|' * (len(names) - 1)}")
    for data in arguments.only:
        with tempfile.TemporaryDirectory() as place:
            order = Order(arguments.data, data, Path(place))
            epoch, plans, shares = order.train()
            cells = [f"{order.reuse_seconds() / epoch:.1%}"]
            for seconds in plans:
                cells += [f"{seconds:.2f}", f"{seconds / epoch:.1%}"]
            cells += [f"{shares[0]:.0%}", f"{shares[1]:.3f}"]
            cells.append(f"{sum(plans) / (EPOCHS * epoch):.1%}")
            queries, share = order.queries()
            counts = f"{len(order.rows):,} | {queries:,} | {share:.0%}"
            print(f"| {data} | {counts} | {epoch:.1f} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
