"""Batch strategies: seconds and peak memory, beside a direct transcription of the paper's pseudocode.

python benchmarks/batching.py [--only NAME ...] [--threads 2]

Each case runs in a process of its own, so that its peak is its own (Linux): `before` is what the process held when the
strategy began, vectors and texts included, `peak` the most that it held from then on. `CPU s` sums all threads; other
work on the machine hardly moves it. Vectors are synthetic: points around 2,000 topics in a space of 32 numbers, seen
through 384.

as exact: of 200 groups, drawn by seed, the share that are as good as exact search over the rows unused at their turn
would make them: as many rows, and a mean cosine with the anchor at most 0.01 lower.
"""

# N rows, T distinct texts, D dimensions

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from by_paper import BY_PAPER

from bsc_core.batching import build_plan
from bsc_core.config import BatchingConfig
from bsc_core.data import PairDataset
from bsc_core.data.texts import TextTable

DIMENSIONS = 384
TOPICS = 2_000
LATENT = 32
BLOCK = 65_536


@dataclass(frozen=True)
class Case:
    """One line of the table.

    rows: N. texts: distinct queries, by default one a row. by_paper: the transcription instead of the strategy.
    part: rows after which the transcription stops where it would take hours; its seconds are then scaled up.
    """

    strategy: str
    rows: int
    texts: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    by_paper: bool = False
    part: int | None = None
    goal: str = ""


CASES = (
    Case("examples", 27_000, 2_400, goal="0.5 s"),
    Case("examples", 27_000, 2_400, by_paper=True),
    Case("examples", 100_000),
    Case("examples", 100_000, config={"search": "approximate"}),
    Case("examples", 100_000, by_paper=True),
    Case("examples", 1_000_000, goal="600 s, 6 GiB, 90% as exact"),
    Case("examples", 1_000_000, by_paper=True, part=10_000),
    Case("words", 1_000_000, goal="6 s"),
    Case("words", 1_000_000, by_paper=True),
    Case("words", 10_000_000, goal="90 s, 6 GiB"),
    Case("clusters", 1_000_000, goal="60 s"),
    Case("clusters", 1_000_000, by_paper=True, part=20_000),
)


def batching(case: Case) -> BatchingConfig:
    return BatchingConfig.model_validate({"strategy": case.strategy, **case.config})


def pairs(rows: int, texts: int) -> PairDataset:
    """Pairs in which each document is new, and each query one of so many."""
    asked = np.random.default_rng(0).permutation(np.arange(rows) % texts).tolist()
    return PairDataset.from_pairs([f"query {text}" for text in asked], [f"document {row}" for row in range(rows)])


def sentences(rows: int) -> PairDataset:
    """Pairs whose queries hold nine words of a vocabulary of 50,000, as frequent as words are, and a number."""
    generator = np.random.default_rng(0)
    vocabulary = np.array([f"word{rank}" for rank in range(50_000)], dtype=object)
    shares = 1 / np.arange(1, len(vocabulary) + 1)
    texts: list[str] = []
    for start in range(0, rows, BLOCK):
        chosen = generator.choice(vocabulary, size=(min(BLOCK, rows - start), 9), p=shares / shares.sum())
        texts += [f"{' '.join(words)} {start + row}" for row, words in enumerate(chosen.tolist())]
    few = PairDataset.from_pairs(["query"], ["document"])
    ids = np.arange(rows, dtype=np.int32)
    table = TextTable((*texts, *(f"document {row}" for row in range(rows))))
    return replace(few, texts=table, query=ids, document=ids + rows, query_group=ids, line=ids)


def topic_vectors(texts: int) -> np.ndarray:
    """(T, D) float32: points around the centres of topics, in a space of few dimensions, with a little noise."""
    generator = np.random.default_rng(0)
    seen = generator.standard_normal((LATENT, DIMENSIONS), dtype=np.float32) / np.float32(LATENT**0.5)
    centres = generator.standard_normal((TOPICS, LATENT), dtype=np.float32)
    vectors = np.empty((texts, DIMENSIONS), dtype=np.float32)
    for start in range(0, texts, BLOCK):
        part = vectors[start : start + BLOCK]
        points = centres[generator.integers(TOPICS, size=len(part))]
        points += np.float32(0.5) * generator.standard_normal(points.shape, dtype=np.float32)
        part[:] = points @ seen + np.float32(0.1) * generator.standard_normal(part.shape, dtype=np.float32)
    return vectors


def resident(name: str) -> float:
    """GiB of this process in memory: VmRSS now, VmHWM at the peak."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 2**20


class Clock:
    """Seconds of wall and of all threads between two looks at it."""

    def __init__(self) -> None:
        self.last = self.now()

    def now(self) -> np.ndarray:
        return np.array([time.perf_counter(), time.process_time()])

    def lap(self) -> np.ndarray:
        before, self.last = self.last, self.now()
        return self.last - before


def measure(case: Case) -> dict[str, Any]:
    """Seconds, GiB and facts of one case, in this process."""
    if case.strategy == "words":
        dataset, vectors = sentences(case.rows), np.empty((2 * case.rows, 0), dtype=np.float32)
    else:
        dataset = pairs(case.rows, case.texts or case.rows)
        vectors = topic_vectors(len(dataset.texts))
    few = dataset.take(np.arange(min(1000, case.rows)))
    build_plan(batching(case), few, vectors, seed=0, epoch=0)  # what loads once
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew from here
    clock, facts, scale = Clock(), {}, 1.0
    if case.by_paper:
        form = BY_PAPER[case.strategy](batching(case), case.part, dataset, vectors)
        once, scale = clock.lap(), case.rows / (case.part or case.rows)
        sizes = np.array([len(group) for group in form()])
    else:
        once = clock.lap()
        plan = build_plan(batching(case), dataset, vectors, seed=0, epoch=0)
        sizes, facts = np.bincount(plan.groups), plan.facts
    seconds, cpu = once + scale * clock.lap()
    return {
        "seconds": float(seconds),
        "cpu": float(cpu),
        "before": before,
        "peak": resident("VmHWM"),
        "mean group": float(sizes.mean()),
        **facts,
    }


def in_its_own_process(number: int, threads: int) -> dict[str, Any]:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, __file__, "--case", str(number)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def line(case: Case, found: dict[str, Any]) -> str:
    what = ", ".join([case.strategy, *(f"{name} {value}" for name, value in case.config.items())])
    by = "the paper's pseudocode" if case.by_paper else found.get("search", "ours")
    taken = f"{found['seconds']:,.2f}" + (f", extrapolated from {case.part:,} rows" if case.part else "")
    shares = [f"{found[name]:.3f}" if name in found else "-" for name in ("recall", "as_exact")]
    cells = [
        what,
        f"{case.rows:,}",
        f"{case.texts or case.rows:,}",
        by,
        taken,
        f"{found['cpu']:,.2f}",
        f"{found['before']:.2f}",
        f"{found['peak']:.2f}",
        f"{found['mean group']:.2f}",
        *shares,
        case.goal or "-",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=sorted({case.strategy for case in CASES}), help="strategies")
    parser.add_argument("--largest", type=int, help="leave out cases with more rows than this")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case is not None:
        print(json.dumps(measure(CASES[arguments.case])))
        return
    print(f"{arguments.threads} threads, D = {DIMENSIONS}, groups of 8, 500 neighbours\n")
    heads = [
        "strategy",
        "rows",
        "texts",
        "by",
        "seconds",
        "CPU s",
        "GiB before",
        "GiB peak",
        "mean group",
        "recall",
        "as exact",
    ]
    print(f"| {' | '.join([*heads, 'goal'])} |\n|{' --- |' * (len(heads) + 1)}")
    for number, case in enumerate(CASES):
        if arguments.only and case.strategy not in arguments.only:
            continue
        if arguments.largest is None or case.rows <= arguments.largest:
            print(line(case, in_its_own_process(number, arguments.threads)), flush=True)


if __name__ == "__main__":
    main()
