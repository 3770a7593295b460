"""Seconds and peak memory of the batch strategies; those of the BSC paper also as a transcription of its pseudocode.

    python benchmarks/batching.py [--only NAME ...] [--threads 2]

Each case runs in a separate process (Linux): `before` is its memory when the strategy starts, vectors and texts
included, `peak` its largest memory from then on. `CPU s` sums all threads; other work on the machine hardly changes it.
Vectors are synthetic: points around 2,000 topics in a space of 32 dimensions, mapped to 384.

as exact: share of 200 sampled groups that are as good as an exact search over the rows unused at their turn would build
them: as many rows, and a mean cosine with the anchor at most 0.01 lower.
"""

# N rows, T distinct texts, D dimensions

import argparse
import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from measure import clock, parser, print_header, print_row, reset_peak, resident_mib, run_python

from bsc_core.batching import build_plan
from bsc_core.batching.strategies.base import plan_generator
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.data.dataset import TextTable
from bsc_core.neighbors import NeighborSearch, unit_rows

DIMENSIONS = 384
TOPICS = 2_000
LATENT = 32
BLOCK = 65_536
Rows = list[list[int]]


@dataclass(frozen=True)
class Case:
    """One row of the table.

    rows: N. texts: distinct queries, by default N. by_paper: the transcription instead of the strategy. part: rows
    after which a transcription that would take hours stops; its seconds are extrapolated. goal: shown in the table.
    """

    strategy: str
    rows: int
    texts: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    by_paper: bool = False
    part: int | None = None
    goal: str = "-"


CASES = (
    Case("nearest", 27_000, 2_400, goal="0.5 s"),
    Case("nearest", 27_000, 2_400, by_paper=True),
    Case("nearest", 100_000),
    Case("nearest", 100_000, config={"search": "approximate"}),
    Case("nearest", 100_000, by_paper=True),
    Case("nearest", 1_000_000, goal="600 s, 6 GiB, 90% as exact"),
    Case("nearest", 1_000_000, by_paper=True, part=10_000),
    Case("words", 1_000_000, goal="6 s"),
    Case("words", 1_000_000, by_paper=True),
    Case("words", 10_000_000, goal="90 s, 6 GiB"),
    Case("clusters", 1_000_000, goal="60 s"),
    Case("clusters", 1_000_000, by_paper=True, part=20_000),
    Case("communities", 1_000_000, goal="120 s, 6 GiB"),
    Case("cuthill_mckee", 1_000_000, goal="120 s, 6 GiB"),
)


def pairs(rows: int, texts: int) -> PairDataset:
    """Pairs whose documents are all distinct, and whose queries are `texts` different ones."""
    queries = np.random.default_rng(0).permutation(np.arange(rows) % texts).tolist()
    return PairDataset.from_pairs([f"query {text}" for text in queries], [f"document {row}" for row in range(rows)])


def sentences(rows: int) -> PairDataset:
    """Pairs whose queries have a number and nine words of a vocabulary of 50,000, which follow Zipf's law."""
    generator = np.random.default_rng(0)
    vocabulary = np.array([f"word{rank}" for rank in range(50_000)], dtype=object)
    shares = 1 / np.arange(1, len(vocabulary) + 1)
    texts: list[str] = []
    for start in range(0, rows, BLOCK):
        sampled = generator.choice(vocabulary, size=(min(BLOCK, rows - start), 9), p=shares / shares.sum())
        texts += [f"{' '.join(words)} {start + row}" for row, words in enumerate(sampled.tolist())]
    one = PairDataset.from_pairs(["query"], ["document"])
    ids = np.arange(rows, dtype=np.int32)
    table = TextTable((*texts, *(f"document {row}" for row in range(rows))))
    return replace(one, texts=table, query=ids, document=ids + rows, query_group=ids, line=ids)


def topic_vectors(texts: int) -> np.ndarray:
    """(T, D) float32: points around the centers of topics, in a space of few dimensions, with a little noise."""
    generator = np.random.default_rng(0)
    projection = generator.standard_normal((LATENT, DIMENSIONS), dtype=np.float32) / np.float32(LATENT**0.5)
    centers = generator.standard_normal((TOPICS, LATENT), dtype=np.float32)
    vectors = np.empty((texts, DIMENSIONS), dtype=np.float32)
    for start in range(0, texts, BLOCK):
        block = vectors[start : start + BLOCK]
        points = centers[generator.integers(TOPICS, size=len(block))]
        points += np.float32(0.5) * generator.standard_normal(points.shape, dtype=np.float32)
        block[:] = points @ projection + np.float32(0.1) * generator.standard_normal(block.shape, dtype=np.float32)
    return vectors


def nearest_by_paper(
    config: BatchingConfig, part: int | None, dataset: PairDataset, vectors: np.ndarray
) -> Callable[[], Rows]:
    """Algorithm 1 as printed: each unused row in turn takes the first s - 1 unused of its n nearest rows; reversed.

    Exact neighbors of all rows, 1,000 rows at a time as in the released code, also for repeated texts.
    """
    used = np.zeros(len(dataset), dtype=bool)
    turns = plan_generator(0, 0).permutation(len(dataset))[:part]
    queries = unit_rows(vectors[dataset.query])  # (N, D)
    search = NeighborSearch(queries, "l2", search="exact")  # of unit vectors: by cosine, without another copy

    def form() -> Rows:
        groups: Rows = []
        for start in range(0, len(turns), 1000):
            rows = turns[start : start + 1000]
            for row, near in zip(rows.tolist(), search.others(rows, config.neighbors), strict=True):
                if not used[row]:
                    groups.append([row, *near[~used[near]][: config.group_size - 1].tolist()])
                    used[groups[-1]] = True
        return groups[::-1]

    return form


def words_by_paper(
    config: BatchingConfig, part: int | None, dataset: PairDataset, vectors: np.ndarray
) -> Callable[[], Rows]:
    """Algorithm 2 as printed, row by row: words, a random shingle, sort, count to s, sort by group."""
    generator = random.Random(0)
    stop_words = {f"word{rank}" for rank in range(config.stop_count)}  # known here; the strategy counts them itself

    def form() -> Rows:
        shingled = []
        for row, text in enumerate(dataset.query.tolist()):
            words = sorted(set(re.findall(r"\w+", dataset.texts[text].lower())) - stop_words)
            shingle = tuple(sorted(generator.sample(words, min(config.shingle_size, len(words)))))
            shingled.append((shingle, generator.random(), row))
        return grouped(shingled, config.group_size, generator)

    return form


def clusters_by_paper(
    config: BatchingConfig, part: int | None, dataset: PairDataset, vectors: np.ndarray
) -> Callable[[], Rows]:
    """k-means over all rows, by scikit-learn as in the released code, and Algorithm 2 on the cluster ids."""
    from sklearn.cluster import KMeans

    generator = random.Random(0)
    rows = unit_rows(vectors[dataset.query[:part]])

    def form() -> Rows:
        clusters = KMeans(config.clusters, n_init=1, random_state=0).fit_predict(rows).tolist()
        numbered = [(cluster, generator.random(), row) for row, cluster in enumerate(clusters)]
        return grouped(numbered, config.group_size, generator)

    return form


def grouped(shingled: list[tuple[Any, float, int]], group_size: int, generator: random.Random) -> Rows:
    """The second half of Algorithm 2: sorted rows, a new random group id where the shingle changes or s is reached."""
    shingled.sort()
    numbered, current, count, group = [], None, 0, 0.0
    for shingle, _, row in shingled:
        if shingle != current or count == group_size:
            current, count, group = shingle, 0, generator.random()
        numbered.append((group, row))
        count += 1
    numbered.sort()
    return [[row for _, row in rows] for _, rows in groupby(numbered, key=itemgetter(0))]


BY_PAPER = {"nearest": nearest_by_paper, "words": words_by_paper, "clusters": clusters_by_paper}
"""Each does the work of fixed size and returns the work that grows with the rows, whose time is extrapolated."""


def measure(case: Case) -> dict[str, Any]:
    """Return seconds, GiB and facts of one case, run in this process."""
    config = BatchingConfig.model_validate({"strategy": case.strategy, **case.config})
    if case.strategy == "words":
        dataset, vectors = sentences(case.rows), np.empty((2 * case.rows, 0), dtype=np.float32)
    else:
        dataset = pairs(case.rows, case.texts or case.rows)
        vectors = topic_vectors(len(dataset.texts))
    build_plan(config, dataset.take(np.arange(min(1000, case.rows))), vectors, seed=0, epoch=0)  # loads libraries
    before, facts = resident_mib("VmRSS"), {}
    reset_peak()
    started = clock()
    if case.by_paper:
        form = BY_PAPER[case.strategy](config, case.part, dataset, vectors)
        prepared = clock()
        sizes = np.array([len(group) for group in form()])
        seconds, cpu = prepared - started + (clock() - prepared) * case.rows / (case.part or case.rows)
    else:
        plan = build_plan(config, dataset, vectors, seed=0, epoch=0)
        sizes, facts = np.bincount(plan.groups), plan.facts
        seconds, cpu = clock() - started
    peak = resident_mib("VmHWM")
    return {"seconds": seconds, "cpu": cpu, "before": before, "peak": peak, "mean group": sizes.mean(), **facts}


def print_result(case: Case, result: dict[str, Any]) -> None:
    print_row(
        ", ".join([case.strategy, *(f"{name} {value}" for name, value in case.config.items())]),
        f"{case.rows:,}",
        f"{case.texts or case.rows:,}",
        "the paper's pseudocode" if case.by_paper else result.get("search", "this project"),
        f"{result['seconds']:,.2f}" + (f", extrapolated from {case.part:,} rows" if case.part else ""),
        f"{result['cpu']:,.2f}",
        *(f"{result[name] / 1024:.2f}" for name in ("before", "peak")),
        f"{result['mean group']:.2f}",
        *(f"{result[name]:.3f}" if name in result else "-" for name in ("recall", "as_exact")),
        case.goal,
    )


def main() -> None:
    options = parser(__doc__)
    strategies = sorted({case.strategy for case in CASES})
    options.add_argument("--only", nargs="*", choices=strategies, default=strategies, help="strategies")
    options.add_argument("--largest", type=int, default=10_000_000, help="leave out cases with more rows than this")
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--case", type=int, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.case is not None:
        print(json.dumps(measure(CASES[arguments.case]), default=float))
        return
    print(f"{arguments.threads} threads, D = {DIMENSIONS}, groups of 8, 500 neighbors\n")
    columns = ("strategy", "rows", "texts", "by", "seconds", "CPU s", "GiB before", "GiB peak", "mean group", "recall")
    print_header(*columns, "as exact", "goal")
    for number, case in enumerate(CASES):
        if case.strategy in arguments.only and case.rows <= arguments.largest:
            threads = {"OMP_NUM_THREADS": arguments.threads, "OMP_WAIT_POLICY": "PASSIVE"}
            print_result(case, json.loads(run_python(__file__, "--case", number, **threads).output))


if __name__ == "__main__":
    main()
