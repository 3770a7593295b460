"""Report on the batches of an epoch, without training."""

import time
from typing import Any

import numpy as np

from bsc_core.batching import build_plan, plan_hardness, plan_warnings
from bsc_core.config import RunConfig
from bsc_core.data.read_report import rejected_rows
from bsc_core.encoders import embed
from bsc_core.preparation.experiment import load_experiment
from bsc_core.training.data import select_training_rows
from bsc_core.types import Vectors


def plan_report(config: RunConfig, *, epoch: int = 0) -> dict[str, Any]:
    """Return counts, group sizes and hardness of the batches of an epoch, for the encoder that the run starts from.

    Args:
        config: Config of the run.
        epoch: Epoch of the plan, from 0.
    """
    data = load_experiment(config.data)
    train = select_training_rows(config, data.train)
    vectors = embed(config.encoder, data.texts)
    started = time.perf_counter()
    plan = build_plan(config.batching, train, vectors, seed=config.training.seed, epoch=epoch)
    seconds = time.perf_counter() - started
    hardness = plan_hardness(plan, train, vectors, config.training.batch_size)
    batches = plan.batches(config.training.batch_size)
    crossed = sum(len(rows) * (len(rows) - 1) // 2 for rows in batches)
    sizes, counts = np.unique(np.unique(plan.groups, return_counts=True)[1], return_counts=True)
    return {
        "strategy": config.batching.strategy,
        "epoch": epoch,
        "rows": len(train),
        "rejected": rejected_rows(data.reports),
        "funnel": {stage.name: stage.count for stage in data.funnel},
        "batches": len(batches),
        "groups": {str(size): int(count) for size, count in zip(sizes, counts, strict=True)},
        "hardest_negative": _quantiles(hardness.hardest),
        "closer_share": hardness.closer_share,
        "likely_false_negatives": int(hardness.batch_likely_false_negatives.sum()),
        "collisions": hardness.collisions,
        "collision_share": hardness.collisions / crossed if crossed else 0.0,
        "notes": plan_warnings(config.batching, train),
        "intact": hardness.intact,
        "facts": plan.facts,
        "seconds": seconds,
    }


def _quantiles(values: Vectors) -> dict[str, float | None]:
    """Return the tenth, fiftieth and ninetieth percentile of the defined values."""
    defined = values[~np.isnan(values)]
    shares = {"p10": 0.1, "median": 0.5, "p90": 0.9}
    return {name: float(np.quantile(defined, share)) if len(defined) else None for name, share in shares.items()}
