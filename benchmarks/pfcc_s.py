"""PFCC-S: HasPositive@1/5/50 and MRR of `examples` and `random` batches beside the untrained encoder, three seeds each.

    python benchmarks/pfcc_s.py --data FOLDER_OF_PFCC_S --runs runs/pfcc_s

A run that is already done is not repeated. Prints the table of docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CONFIG = Path(__file__).with_suffix(".toml")
METRICS = ("has_positive@1", "has_positive@5", "has_positive@50", "mrr")


def conduct(data: Path, runs: Path, strategy: str, seed: int) -> dict[str, Any]:
    """The result of one run in a process of its own, so that its peak memory is its own."""
    kept = runs / f"{strategy}-{seed}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    command = [
        *(sys.executable, "-m", "bsc_core.cli", "train", str(CONFIG), "--runs", str(runs), "--json"),
        *("--set", f"data.train={json.dumps(str(data / 'pairs.tsv.gz'))}"),
        *("--set", f"data.corpus={json.dumps(str(data / 'corpus.tsv.gz'))}"),
        *("--set", f"batching.strategy={strategy}", "--set", f"training.seed={seed}"),
    ]
    print("$", " ".join(command), file=sys.stderr, flush=True)
    result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    kept.write_text(json.dumps(result))
    return result


def cell(values: list[float]) -> str:
    """One value, or mean and sample standard deviation of several seeds."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}"


def row(name: str, measured: list[dict[str, float]], epochs: list[float]) -> str:
    cells = [cell([metrics[metric] for metrics in measured]) for metric in METRICS]
    return f"| {name} | {' | '.join(cells)} | {f'{statistics.median(epochs):.1f}' if epochs else '-'} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/pfcc_s"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    results = {
        strategy: [conduct(options.data, options.runs, strategy, seed) for seed in options.seeds]
        for strategy in ("examples", "random")
    }
    first = results["examples"][0]
    print(f"{datetime.now(UTC):%Y-%m-%d}, {first['device']}, {first['precision']}, seeds {options.seeds}, dev queries "
          f"{first['metrics']['before']['dev']['queries']:.0f}")  # fmt: skip
    print(f"\n| batches | {' | '.join(METRICS)} | seconds an epoch |\n|{' --- |' * (len(METRICS) + 2)}")
    print(row("untrained", [first["metrics"]["before"]["dev"]], []))
    for strategy, runs in results.items():
        seconds = [value for run in runs for value in run["seconds"]["epochs"]]
        print(row(strategy, [run["metrics"]["after"]["dev"] for run in runs], seconds))
    print("\nBest epoch by seed: " + "; ".join(
        f"{strategy} {[run['best_epoch'] for run in runs]}" for strategy, runs in results.items()))  # fmt: skip
    peak = max(run["peak_memory_bytes"] for runs in results.values() for run in runs)
    print(f"Peak memory: {peak / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
