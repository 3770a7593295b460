"""Pairs a second of training the static encoder on one core, on the sample data.

python benchmarks/static_encoder.py [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from bsc_core.batching import build_plan
from bsc_core.config import make_config
from bsc_core.data import load_data
from bsc_core.encoders import load_encoder, tokenise
from bsc_core.losses import build_loss
from bsc_core.training.seeding import seed_everything, set_threads
from bsc_core.training.trainer import Trainer

PAIRS = Path(__file__).resolve().parents[1] / "sample_data" / "pairs.tsv"


def pairs_per_second() -> float:
    config = make_config(
        {
            "data": {"train": str(PAIRS)},
            "encoder": {"name": "static"},
            "batching": {"strategy": "random"},
            "training": {"batch_size": 30, "threads": 1, "epochs": 2},
        }
    )
    set_threads(config.training.threads)
    seed_everything(config.training.seed)
    data, model = load_data(config.data, seed=0), load_encoder(config.encoder)
    trainer = Trainer(
        model,
        build_loss(config.loss),
        dataset=data.train,
        tokens=tokenise(model, data.texts.texts, config.encoder.max_length),
        config=config.training,
        plan_for=lambda epoch: build_plan(config.batching, data.train, None, seed=0, epoch=epoch),
    )
    reports = list(trainer)[3:]  # the first steps allocate
    return sum(report.pairs for report in reports) / sum(report.seconds for report in reports)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    speeds = [pairs_per_second() for _ in range(parser.parse_args().rounds)]
    print(f"static encoder, 1 thread, batch 30: median {statistics.median(speeds):.0f} pairs/s of "
          + ", ".join(f"{speed:.0f}" for speed in speeds))  # fmt: skip


if __name__ == "__main__":
    main()
