"""Gain of the recommended settings and loss of the general score, before and after merging with the start.

    bsc reproduce best_stsb best_mrpc best_qqp best_cqa_a best_cqa_b best_wikiqa best_pfcc_s --data DATA --runs RUNS
    python benchmarks/forgetting.py RUNS --data DATA [--seeds 5] [--first-seed 0] [--average 1] [--claims best_stsb ...]

Uses the runs of these claims in RUNS and trains nothing. `bsc merge RUN --alpha auto` suggests the alpha of each run:
the best on dev among those with a general score at most 0.005 below that of the start. With --average K, the runs of
each K seeds are averaged and the average is merged: `bsc merge RUN ... RUN --alpha auto`. Intervals are 95%
t-intervals over the runs, or over the averages.
"""

from pathlib import Path

import numpy as np
from measure import parser, print_header, print_row
from scipy.stats import t

from bsc_core.jobs.actions.merging import ALPHAS, Candidates, merge_curve
from bsc_core.reproduction.catalog import CLAIMS, RECOMMENDED_SETTINGS
from bsc_core.reproduction.claims import Claim
from bsc_core.reproduction.runs import latest_attempt, plan_runs
from bsc_core.runs import Run, RunStore
from bsc_core.runs.documents import GENERAL_SCORE


def trained_runs(claim: Claim, data: Path, runs: Path) -> list[Run]:
    """Return the finished runs of a claim, by seed."""
    planned = plan_runs(claim, "full", data=data, runs=runs)
    found = (latest_attempt(RunStore(runs), one.id) for one in planned)
    return [run for run in found if run.exists and run.status().state == "done"]


def changes(run: Run, metric: str, start: float) -> tuple[float, float]:
    """Return the gain of the metric on dev and the loss of the general score, which is `start` before training."""
    before, after = (run.evaluation(name)["dev"][metric] for name in ("before", "after"))
    models = Candidates(run)
    return after - before, start - models.general_score(models.trained)


def merged_changes(report: dict) -> tuple[float, float, float]:
    """Return gain, general loss and alpha of the suggested model of `merge_curve`."""
    points = {point["alpha"]: point for point in report["points"]}
    start, chosen = points[0.0], points[report["suggested"]]
    return chosen["dev"] - start["dev"], start[GENERAL_SCORE] - chosen[GENERAL_SCORE], report["suggested"]


def interval(values: np.ndarray) -> str:
    """Return the mean with its interval."""
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    mean = values.mean()
    return f"{mean:+.4f} ({mean - half:+.4f} to {mean + half:+.4f})"


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("runs", type=Path)
    arguments.add_argument("--data", type=Path, required=True, help="folder that contains the datasets")
    arguments.add_argument("--claims", nargs="+", choices=RECOMMENDED_SETTINGS, default=list(RECOMMENDED_SETTINGS))
    arguments.add_argument("--seeds", type=int, default=5)
    arguments.add_argument("--first-seed", type=int, default=0)
    arguments.add_argument("--average", type=int, default=1, metavar="K", help="average the runs of each K seeds")
    arguments.add_argument("--alphas", type=float, nargs="+", default=ALPHAS, help="which are evaluated, with 0")
    options = arguments.parse_args()
    columns = ("gain on dev", "general loss", "gain, merged", "general loss, merged", "kept", "alpha")
    print_header("claim", "metric", "seeds", *columns)
    seeds = tuple(range(options.first_seed, options.first_seed + options.seeds))
    for name in options.claims:
        runs = trained_runs(CLAIMS[name].model_copy(update={"seeds": seeds}), options.data, options.runs)
        groups = [runs[first : first + options.average] for first in range(0, len(runs), options.average)]
        if runs:
            reports = [merge_curve(group, options.alphas) for group in groups]
            metric = reports[0]["metric"]
            start = reports[0]["points"][0][GENERAL_SCORE]
            trained = np.array([changes(run, metric, start) for run in runs])
            merged = np.array([merged_changes(report) for report in reports])
            print_row(
                name,
                metric,
                f"{seeds[0]} to {seeds[-1]}",
                *map(interval, trained.T),
                *map(interval, merged.T[:2]),
                f"{merged[:, 0].mean() / trained[:, 0].mean():.0%}",
                " ".join(f"{alpha:g}" for alpha in merged[:, 2]),
            )


if __name__ == "__main__":
    main()
