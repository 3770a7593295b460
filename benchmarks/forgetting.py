"""Gain of the recommended settings and loss of the general score, before and after merging with the start.

    bsc reproduce best_stsb best_mrpc best_qqp best_cqa_a best_cqa_b best_wikiqa best_pfcc_s --data DATA --runs RUNS
    python benchmarks/forgetting.py RUNS --data DATA [--seeds 5] [--claims best_stsb ...]

Uses the runs of these claims in RUNS and trains nothing. `bsc merge` suggests the alpha of each run: the best on dev
among those with a general score at most 0.005 below that of the start. Intervals are 95% t-intervals over seeds.
"""

from pathlib import Path

import numpy as np
from measure import parser, print_header, print_row
from scipy.stats import t

from bsc_core.jobs.actions.merging import ALPHAS, merge_curve
from bsc_core.reproduction.catalog import CLAIMS, RECOMMENDED_SETTINGS
from bsc_core.reproduction.claims import Claim
from bsc_core.reproduction.runs import plan_runs
from bsc_core.runs import GENERAL_SCORE, RunStore


def merged(claim: Claim, data: Path, runs: Path) -> tuple[np.ndarray, str]:
    """Return gains and general losses of the trained and the merged model, and alpha, by seed (S, 5); and the metric.

    The metric is the main one of the runs, by which they select the best epoch.
    """
    rows, metric = [], ""
    for planned in plan_runs(claim, "full", data=data, runs=runs):
        run = RunStore(runs).get(planned.id)
        if run.exists and run.status().state == "done":
            report = merge_curve(run, ALPHAS)
            points = {point["alpha"]: point for point in report["points"]}
            start, cells = points[0.0], []
            for alpha in (1.0, report["suggested"]):
                cells += [points[alpha]["dev"] - start["dev"], start[GENERAL_SCORE] - points[alpha][GENERAL_SCORE]]
            rows.append([*cells, report["suggested"]])
            metric = report["metric"]
    return np.array(rows), metric


def interval(values: np.ndarray) -> str:
    """Return the mean with its interval over seeds."""
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    mean = values.mean()
    return f"{mean:+.4f} ({mean - half:+.4f} to {mean + half:+.4f})"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("runs", type=Path)
    arguments.add_argument("--data", type=Path, required=True, help="folder that contains the datasets")
    arguments.add_argument("--claims", nargs="+", choices=RECOMMENDED_SETTINGS, default=list(RECOMMENDED_SETTINGS))
    arguments.add_argument("--seeds", type=int, default=5)
    options = arguments.parse_args()
    columns = ("gain on dev", "general loss", "gain, merged", "general loss, merged", "kept", "alpha")
    print_header("claim", "metric", "seeds", *columns)
    for name in options.claims:
        claim = CLAIMS[name]
        chosen = claim.model_copy(update={"seeds": claim.seeds[: options.seeds]})
        rows, metric = merged(chosen, options.data, options.runs)
        if len(rows):
            kept = rows[:, 2].mean() / rows[:, 0].mean()
            alphas = " ".join(f"{alpha:g}" for alpha in rows[:, 4])
            print_row(
                name, metric, len(rows), *(interval(rows[:, column]) for column in range(4)), f"{kept:.0%}", alphas
            )


if __name__ == "__main__":
    main()
