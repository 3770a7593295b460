"""Ranking 200 queries against 10,369 documents of 384 numbers, beside sentence-transformers' semantic_search.

python benchmarks/ranking.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from sentence_transformers.util import semantic_search

from bsc_core.evaluation import RetrievalTask, rank

QUERIES, DOCUMENTS, DIMENSIONS = 200, 10_369, 384


def seconds(work: Callable[[], object], rounds: int) -> float:
    work()
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    generator = np.random.default_rng(0)
    queries = generator.standard_normal((QUERIES, DIMENSIONS), dtype=np.float32)
    corpus = generator.standard_normal((DOCUMENTS, DIMENSIONS), dtype=np.float32)
    gold = generator.integers(0, DOCUMENTS, QUERIES)
    task = RetrievalTask(
        query=np.arange(QUERIES, dtype=np.int32),
        corpus=np.arange(DOCUMENTS, dtype=np.int32),
        offsets=np.arange(QUERIES + 1, dtype=np.int64),
        gold=gold.astype(np.int32),
        absent=np.zeros(QUERIES, dtype=np.int32),
        rows=np.arange(QUERIES, dtype=np.int32),
    )
    left, right = torch.from_numpy(queries), torch.from_numpy(corpus)
    ours = seconds(lambda: rank(queries, corpus, task, top=10), rounds)
    peer = seconds(lambda: semantic_search(left, right, top_k=10), rounds)
    print(f"{torch.get_num_threads()} threads, median of {rounds} rounds\n\n| what | seconds |\n| --- | --- |")
    print(f"| ranks of every gold document, metrics and top 10 | {ours:.3f} |")
    print(f"| sentence-transformers semantic_search, top 10 only | {peer:.3f} |")


if __name__ == "__main__":
    main()
