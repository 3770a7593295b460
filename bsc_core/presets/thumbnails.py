"""Numbers for the thumbnails of the Start page, computed once from the sample data.

`python -m bsc_core.presets.thumbnails` writes them to sample_data/thumbnails.json, so that the Start page loads no
encoder.
"""

# B questions displayed, N rows, U distinct texts, D dimensions

import argparse
import json
import statistics
import sys
import tempfile
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bsc_core.batching import build_plan, plan_hardness, similarity_matrix
from bsc_core.config import DataConfig
from bsc_core.data.dataset import PairDataset
from bsc_core.data.load import DatasetSplits, load_data
from bsc_core.data.sample_data import sample_config
from bsc_core.paths import sample_data_folder
from bsc_core.presets.catalog import recommended

QUESTIONS = 6
BINS = 25
STRATEGIES = ("random", "nearest")
SEEDS = range(5)


def make_thumbnails(data: DatasetSplits, vectors: NDArray[np.float32], *, seed: int = 0) -> dict[str, Any]:
    """Return a small matrix of easily confused questions, and the hardness of two strategies.

    The values are JSON-serializable, rounded to 4 decimals.

    Args:
        data: The data; questions and batches are of its training pairs.
        vectors: (U, D), row t for text t of data.texts.
        seed: Seed of the batches.
    """
    rows = confusable_rows(data.train, vectors, QUESTIONS)
    texts = data.train.texts
    return {
        "matrix": {
            "queries": texts.take(data.train.query[rows]),
            "documents": texts.take(data.train.document[rows]),
            "similarity": _rounded(similarity_matrix(data.train, vectors, rows)),
        },
        "hardness": _hardness(data.train, vectors, seed),
    }


def confusable_rows(dataset: PairDataset, vectors: NDArray[np.float32], number: int) -> NDArray[np.int32]:
    """Return (number,) positive rows: the one with the closest other answers, and the rows of those answers."""
    positive = np.flatnonzero(dataset.positive).astype(np.int32)
    _, first = np.unique(dataset.query_group[positive], return_index=True)
    rows = positive[np.sort(first)]  # one row per question
    values = similarity_matrix(dataset, vectors, rows)
    np.fill_diagonal(values, -1)
    nearest = np.argsort(-values, axis=1, kind="stable")[:, : number - 1]
    anchor = int(np.take_along_axis(values, nearest, axis=1).mean(axis=1).argmax())
    return rows[np.r_[anchor, nearest[anchor]]]


def _hardness(dataset: PairDataset, vectors: NDArray[np.float32], seed: int) -> dict[str, Any]:
    """Return the hardness of the batches of each strategy, with the other settings of the recommended preset."""
    preset = recommended(sample_config())
    batch_size = preset.training.batch_size
    edges = np.linspace(0, 1, BINS + 1)
    shares: dict[str, list[float]] = {}
    closer: dict[str, float | None] = {}
    for strategy in STRATEGIES:
        config = preset.batching.model_copy(update={"strategy": strategy})
        plan = build_plan(config, dataset, vectors, seed=seed, epoch=0)
        hardness = plan_hardness(plan, dataset, vectors, batch_size)
        counts, _ = np.histogram(np.clip(hardness.hardest[np.isfinite(hardness.hardest)], 0, 1), edges)
        shares[strategy] = _rounded(counts / counts.sum())
        closer[strategy] = None if hardness.closer_share is None else round(hardness.closer_share, 4)
    return {
        "pairs": len(dataset),
        "batch_size": batch_size,
        "edges": _rounded(edges),
        "shares": shares,
        "closer_share": closer,
    }


def _rounded(values: NDArray[Any]) -> list[Any]:
    rounded: list[Any] = np.asarray(values, dtype=np.float64).round(4).tolist()
    return rounded


def time_run(data: DataConfig) -> dict[str, Any]:
    """Train the recommended preset with each of SEEDS.

    Returns:
        `seconds` (median), `metric`, its value on dev `before` training, and the lowest and highest value `after`.
    """
    from bsc_core.evaluation import main_metric
    from bsc_core.pipeline import run_experiment
    from bsc_core.runs import RunStore

    seconds, after = [], []
    for seed in SEEDS:
        config = recommended(data)
        config = config.model_copy(update={"training": config.training.model_copy(update={"seed": seed})})
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            metrics = run_experiment(config, RunStore(folder).create(config))["metrics"]
            seconds.append(time.perf_counter() - started)
        name, value = main_metric(metrics["after"]["dev"], config.evaluation.metric)
        after.append(round(value, 4))
    return {
        "seconds": round(statistics.median(seconds), 1),
        "metric": name,
        "before": round(metrics["before"]["dev"][name], 4),
        "after": [min(after), max(after)],
    }


def main(arguments: list[str] | None = None) -> None:
    """Write sample_data/thumbnails.json; with --measure also time the recommended run."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--measure", action="store_true", help="also run the recommended preset and store its time")
    measure = parser.parse_args(arguments).measure
    from bsc_core.config import EncoderConfig
    from bsc_core.encoders import embed

    config = sample_config()
    path = sample_data_folder() / "thumbnails.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    data = load_data(config)
    values = make_thumbnails(data, embed(EncoderConfig(), data.texts))
    values["run"] = time_run(config) if measure else stored.get("run")
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stderr.write(f"wrote {path}\n")


if __name__ == "__main__":
    main()
