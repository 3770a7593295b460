"""PFCC-S: HasPositive@1/5/50 and MRR of `nearest` and `random` batches and of the untrained encoder, three seeds each.

    python benchmarks/pfcc_s.py --data FOLDER_OF_PFCC_S --runs runs/pfcc_s

Finished runs are not repeated. Prints the table of docs/results/retrieval.md.
"""

import json
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from measure import parser, print_header, print_row, run_python

CONFIG = Path(__file__).with_suffix(".toml")
METRICS = ("has_positive@1", "has_positive@5", "has_positive@50", "mrr")


def train(data: Path, runs: Path, strategy: str, seed: int) -> dict[str, Any]:
    """Return the result of one run, in a separate process so that its peak memory is separate."""
    stored = runs / f"{strategy}-{seed}.json"
    if not stored.exists():
        values = {
            "data.train": json.dumps(str(data / "pairs.tsv.gz")),
            "data.corpus": json.dumps(str(data / "corpus.tsv.gz")),
            "batching.strategy": strategy,
            "training.seed": seed,
        }
        settings = [argument for key, value in values.items() for argument in ("--set", f"{key}={value}")]
        child = run_python("-m", "bsc_core.cli", "train", CONFIG, "--runs", runs, "--json", *settings)
        stored.write_text(child.output)
    return json.loads(stored.read_text())


def mean_and_deviation(values: list[float]) -> str:
    """Format one value, or mean and sample standard deviation of several seeds."""
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.3f}{deviation}"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--runs", type=Path, default=Path("runs/pfcc_s"))
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments = options.parse_args()
    data, folder, seeds = arguments.data.resolve(), arguments.runs.resolve(), arguments.seeds
    folder.mkdir(parents=True, exist_ok=True)
    results = {name: [train(data, folder, name, seed) for seed in seeds] for name in ("nearest", "random")}
    first = results["nearest"][0]
    untrained = first["metrics"]["before"]["dev"]
    print(f"{datetime.now(UTC):%Y-%m-%d}, {first['device']}, {first['precision']}, seeds {seeds}, dev queries "
          f"{untrained['queries']:.0f}\n")  # fmt: skip
    print_header("batches", *METRICS, "seconds an epoch")
    print_row("untrained", *(mean_and_deviation([untrained[metric]]) for metric in METRICS), "-")
    for strategy, runs in results.items():
        cells = [mean_and_deviation([run["metrics"]["after"]["dev"][metric] for run in runs]) for metric in METRICS]
        seconds = statistics.median(value for run in runs for value in run["seconds"]["epochs"])
        print_row(strategy, *cells, f"{seconds:.1f}")
    best = "; ".join(f"{strategy} {[run['best_epoch'] for run in runs]}" for strategy, runs in results.items())
    peak = max(run["peak_memory_bytes"] for runs in results.values() for run in runs)
    print(f"\nBest epoch by seed: {best}\nPeak memory: {peak / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
