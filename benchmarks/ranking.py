"""Ranking, and polarity and semantic scores, timed; beside sentence-transformers' semantic_search.

python benchmarks/ranking.py [--rounds 7] [--large FOLDER]

--large ranks 10,000 queries against 1,000,000 documents, which are written to FOLDER (1.5 GB), and prints the memory
that was taken beside them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sentence_transformers.util import semantic_search

from bsc_core.evaluation import RetrievalTask, combine, polarity_task, rank, search

QUERIES, DOCUMENTS, DIMENSIONS = 200, 10_369, 384
SENTENCES, POOL, NEIGHBOURS = 2_767, 13_835, 16
MANY_QUERIES, MANY_DOCUMENTS = 10_000, 1_000_000
WRITTEN_AT_ONCE = 50_000


def seconds(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Medians of several rounds, after one that does not count: seconds by the clock, and of the processor."""
    work()
    taken = []
    for _ in range(rounds):
        started = time.perf_counter(), time.process_time()
        work()
        taken.append((time.perf_counter() - started[0], time.process_time() - started[1]))
    by_clock, of_processor = zip(*taken, strict=True)
    return statistics.median(by_clock), statistics.median(of_processor)


def one_gold_each(queries: int, documents: int) -> RetrievalTask:
    """A task in which every query has one gold document, drawn at random."""
    rows = np.arange(queries, dtype=np.int32)
    return RetrievalTask(
        query=rows,
        corpus=np.arange(documents, dtype=np.int32),
        offsets=np.arange(queries + 1, dtype=np.int64),
        gold=np.random.default_rng(1).integers(0, documents, queries).astype(np.int32),
        absent=np.zeros(queries, dtype=np.int32),
        rows=rows,
    )


def drawn(*rows: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal((count, DIMENSIONS), dtype=np.float32) for count in rows]


def small(rounds: int) -> None:
    """The table of what a page waits for."""
    queries, corpus = drawn(QUERIES, DOCUMENTS)
    sentences, pool = drawn(SENTENCES, POOL)
    classes = [np.random.default_rng(2).integers(0, 2, count) for count in (SENTENCES, POOL)]
    task, polarity = one_gold_each(QUERIES, DOCUMENTS), polarity_task((sentences, pool), classes, k=NEIGHBOURS)
    left, right = torch.from_numpy(queries), torch.from_numpy(corpus)
    lines = {
        f"{QUERIES} x {DOCUMENTS:,}: rank of every gold document, metrics and top 10": lambda: rank(
            queries, corpus, task, top=10
        ),
        f"{QUERIES} x {DOCUMENTS:,}: sentence-transformers semantic_search, top 10 only": lambda: semantic_search(
            left, right, top_k=10
        ),
        f"{SENTENCES:,} x {POOL:,}: the product of the vectors alone": lambda: sentences @ pool.T,
        f"{SENTENCES:,} x {POOL:,}: search, top {NEIGHBOURS}": lambda: search(sentences, pool, top=NEIGHBOURS),
        f"{SENTENCES:,} x {POOL:,}: P, S, floors and their one number, search included": lambda: combine(
            polarity.measure(sentences, pool)
        ),
    }
    print("| what | seconds | processor seconds |\n| --- | --- | --- |")
    for name, work in lines.items():
        by_clock, of_processor = seconds(work, rounds)
        print(f"| {name} | {by_clock:.3f} | {of_processor:.3f} |")


def large(folder: Path) -> None:
    """Ten thousand queries against a million documents on disk."""
    path, generator = folder / "million.npy", np.random.default_rng(0)
    shape = (MANY_DOCUMENTS, DIMENSIONS)
    corpus = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    for start in range(0, MANY_DOCUMENTS, WRITTEN_AT_ONCE):
        corpus[start : start + WRITTEN_AT_ONCE] = generator.standard_normal((WRITTEN_AT_ONCE, DIMENSIONS), np.float32)
    corpus.flush()
    del corpus
    documents = np.load(path, mmap_mode="r")
    (queries,) = drawn(MANY_QUERIES)

    def tell(done: int, total: int) -> None:
        print(f"\r{done:,} of {total:,} documents", end="", file=sys.stderr)

    task, started = one_gold_each(MANY_QUERIES, MANY_DOCUMENTS), (time.perf_counter(), time.process_time())
    tracemalloc.start()
    result = rank(queries, documents, task, progress=tell)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    taken, worked = time.perf_counter() - started[0], time.process_time() - started[1]
    print(f"\n{MANY_QUERIES:,} x {MANY_DOCUMENTS:,}: {taken:.0f} s, {worked:.0f} processor seconds")
    print(f"peak memory beside the queries and the mapped file: {peak:.0f} MiB; MRR {result.metrics['mrr']:.6f}")
    path.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--large", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    print(f"{torch.get_num_threads()} threads, median of {arguments.rounds} rounds\n")
    small(arguments.rounds)
    if arguments.large:
        large(arguments.large)


if __name__ == "__main__":
    main()
