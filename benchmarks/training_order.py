"""What the batch order `nearest` adds to an epoch: plans from vectors of the training steps, or from new ones.

    python benchmarks/training_order.py --data FOLDER_OF_DATA

The bundled encoder is trained for three epochs in the order `nearest`, in the precision that suits the processor, with
`refresh = "encode"`, and the plans of the second and the third epoch are timed; then one plan is built with `"reuse"`.
`in all` is the time of the plans relative to the steps of all epochs. Processor seconds of one thread, writing the plan
and counting its collisions included. `encoded` is the share of the queries that the third plan re-encoded, `neighbors`
the mean share of the 8 nearest queries that its vectors have in common with those of all queries re-encoded.
"""

import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from measure import parser, print_header, print_row

from bsc_core.config import RunConfig, make_config
from bsc_core.data import PairDataset, load_data
from bsc_core.encoders import load_encoder, tokenize
from bsc_core.losses import build_loss
from bsc_core.neighbors import nearest, unit_rows
from bsc_core.runs import RunStore
from bsc_core.training.data import training_rows
from bsc_core.training.embeddings import Embeddings
from bsc_core.training.loop.trainer import Trainer
from bsc_core.training.run_logger import RunLogger
from bsc_core.training.sampler import CustomSampler, PlanSampler
from bsc_core.types import Ids

EPOCHS = 3
NEIGHBORS = 8


class Order:
    """A dataset in the order `nearest`. runs: a temporary runs folder for the plans."""

    def __init__(self, folder: Path, data: str, runs: Path) -> None:
        self.source = {"train": str(folder / data / "pairs.tsv.gz"), "label_max": 5 if data == "stsb" else 1}
        self.store = RunStore(runs)
        config = self.config("reuse")
        self.rows: PairDataset = training_rows(config, load_data(config.data).train)
        self.model = load_encoder(config.encoder)
        self.tokens = tokenize(self.model, self.rows.texts.texts, config.encoder.max_seq_length)
        self.embeddings = Embeddings(self.model, self.tokens, config)
        self.embeddings.restore_steps(self.embeddings.current)
        self.queries = np.unique(self.rows.query)

    def config(self, refresh: str) -> RunConfig:
        values = {
            "data": self.source,
            "batching": {"strategy": "nearest", "group_size": 8, "refresh": refresh},
            "training": {"epochs": EPOCHS, "batch_size": 30, "threads": 1},
            "evaluation": {"each_epoch": False},
        }
        return make_config(values, source="this benchmark")

    def sampler(self, refresh: str) -> PlanSampler:
        config = self.config(refresh)
        return PlanSampler(config, self.rows, self.embeddings, RunLogger(self.store.create(config), config))

    def query_share(self) -> float:
        """Return the share of the queries in the tokens of all distinct texts."""
        lengths = self.tokens.lengths
        return float(lengths[self.queries].sum() / lengths[np.unique(np.concatenate(self.rows.text_columns))].sum())

    def train(self) -> tuple[float, list[float], tuple[float, float]]:
        """Train for all epochs.

        Returns:
            Mean seconds of the steps of an epoch; seconds of the plan of each epoch but the first; `vector_shares` of
            the last plan.
        """
        sampler, planning, excluded, shares = self.sampler("encode"), [], 0.0, (0.0, 0.0)

        def batches(epoch: int) -> list[Ids]:
            nonlocal excluded, shares
            started = time.process_time()
            result = sampler.batches(epoch)
            planning.append(time.process_time() - started)
            if epoch == EPOCHS - 1:
                shares = self.vector_shares(sampler)
            excluded += time.process_time() - started
            return result

        timed, config = (
            CustomSampler(self.rows, self.tokens, batches, self.embeddings.from_steps),
            self.config("encode"),
        )
        trainer = Trainer(self.model, build_loss(config.loss), timed, config.training)
        started = time.process_time()
        for _ in trainer:
            pass
        return (time.process_time() - started - excluded) / EPOCHS, planning[1:], shares

    def vector_shares(self, sampler: PlanSampler) -> tuple[float, float]:
        """Return the share of a plan's query vectors that are re-encoded, and of their neighbors that are right."""
        assert sampler.compared is not None
        compared, fresh = sampler.compared[self.queries], self.embeddings.encode(self.queries)[self.queries]
        cosines = (unit_rows(compared) * unit_rows(fresh)).sum(1)
        result, right = (nearest(vectors, vectors, NEIGHBORS + 1)[0] for vectors in (compared, fresh))
        common = [len(np.intersect1d(one, other)) - 1 for one, other in zip(result, right, strict=True)]
        return float((cosines > 1 - 1e-4).mean()), float(np.mean(common)) / NEIGHBORS

    def reuse_seconds(self) -> float:
        """Return the seconds of a plan from the vectors of the training steps."""
        sampler = self.sampler("reuse")
        sampler.batches(0)
        started = time.process_time()
        sampler.batches(1)
        return time.process_time() - started


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--data", type=Path, required=True, help="a folder with pfcc_s, stsb and cqa_a")
    options.add_argument("--only", nargs="*", default=["pfcc_s", "stsb", "cqa_a"])
    arguments = options.parse_args()
    torch.set_num_threads(1)
    plans = ("2nd plan, s", "of an epoch", "3rd plan, s", "of an epoch")
    print_header(
        "data", "rows", "queries", "their tokens", "epoch, s", "reuse", *plans, "encoded", "neighbors", "in all"
    )
    for data in arguments.only:
        with tempfile.TemporaryDirectory() as runs:
            order = Order(arguments.data, data, Path(runs))
            epoch, seconds, (encoded, neighbors) = order.train()
            cells = [f"{epoch:.1f}", f"{order.reuse_seconds() / epoch:.1%}"]
            for plan in seconds:
                cells += [f"{plan:.2f}", f"{plan / epoch:.1%}"]
            cells += [f"{encoded:.0%}", f"{neighbors:.3f}", f"{sum(seconds) / (EPOCHS * epoch):.1%}"]
            print_row(data, f"{len(order.rows):,}", f"{len(order.queries):,}", f"{order.query_share():.0%}", *cells)


if __name__ == "__main__":
    main()
