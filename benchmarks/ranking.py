"""Seconds of ranking and of polarity and semantic scores, compared with semantic_search of sentence-transformers.

    python benchmarks/ranking.py [--rounds 7] [--large FOLDER]

--large ranks 10,000 queries against 1,000,000 documents, which are written to FOLDER (1.5 GB), and prints the memory
used in addition to them.
"""

import sys
import tracemalloc
from pathlib import Path

import numpy as np
import torch
from measure import clock, parser, print_header, print_row, take_turns
from sentence_transformers.util import semantic_search

from bsc_core.evaluation import RetrievalTask, combine, polarity_task, rank
from bsc_core.neighbors import top_k

QUERIES, DOCUMENTS, DIMENSIONS = 200, 10_369, 384
SENTENCES, POOL, NEIGHBORS = 2_767, 13_835, 16
MANY_QUERIES, MANY_DOCUMENTS = 10_000, 1_000_000
BLOCK = 50_000


def one_gold_each(queries: int, documents: int) -> RetrievalTask:
    """Return a task in which every query has one random gold document."""
    rows = np.arange(queries, dtype=np.int32)
    return RetrievalTask(
        query=rows,
        corpus=np.arange(documents, dtype=np.int32),
        offsets=np.arange(queries + 1, dtype=np.int64),
        gold=np.random.default_rng(1).integers(0, documents, queries).astype(np.int32),
        absent=np.zeros(queries, dtype=np.int32),
        rows=rows,
    )


def random_vectors(*rows: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.standard_normal((count, DIMENSIONS), dtype=np.float32) for count in rows]


def small(rounds: int) -> None:
    """Print the table of what a page waits for."""
    queries, corpus = random_vectors(QUERIES, DOCUMENTS)
    sentences, pool = random_vectors(SENTENCES, POOL)
    classes = [np.random.default_rng(2).integers(0, 2, count) for count in (SENTENCES, POOL)]
    task, polarity = one_gold_each(QUERIES, DOCUMENTS), polarity_task((sentences, pool), classes, k=NEIGHBORS)
    left, right = torch.from_numpy(queries), torch.from_numpy(corpus)
    ranking, scoring = f"{QUERIES} x {DOCUMENTS:,}", f"{SENTENCES:,} x {POOL:,}"
    calls = {
        f"{ranking}: rank of every gold document, metrics and top 10": lambda: rank(queries, corpus, task, top=10),
        f"{ranking}: sentence-transformers semantic_search, top 10": lambda: semantic_search(left, right, top_k=10),
        f"{scoring}: the product of the vectors alone": lambda: sentences @ pool.T,
        f"{scoring}: search, top {NEIGHBORS}": lambda: top_k(sentences, pool, NEIGHBORS),
        f"{scoring}: P, S, floors and balance, with search": lambda: combine(polarity.evaluate(sentences, pool)),
    }
    print_header("task", "seconds", "processor seconds")
    for name, times in take_turns(calls, rounds).items():
        print_row(name, *(f"{value:.3f}" for value in np.median(times, axis=0)))


def large(folder: Path) -> None:
    """Rank ten thousand queries against a million documents on disk."""
    path, generator = folder / "million.npy", np.random.default_rng(0)
    shape = (MANY_DOCUMENTS, DIMENSIONS)
    corpus = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    for start in range(0, MANY_DOCUMENTS, BLOCK):
        corpus[start : start + BLOCK] = generator.standard_normal((BLOCK, DIMENSIONS), np.float32)
    corpus.flush()
    del corpus
    documents = np.load(path, mmap_mode="r")
    (queries,) = random_vectors(MANY_QUERIES)

    def progress(done: int, total: int) -> None:
        print(f"\r{done:,} of {total:,} documents", end="", file=sys.stderr)

    task, started = one_gold_each(MANY_QUERIES, MANY_DOCUMENTS), clock()
    tracemalloc.start()
    result = rank(queries, documents, task, progress=progress)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    seconds, cpu = clock() - started
    print(f"\n{MANY_QUERIES:,} x {MANY_DOCUMENTS:,}: {seconds:.0f} s, {cpu:.0f} processor seconds")
    print(f"peak memory besides the queries and the mapped file: {peak:.0f} MiB; MRR {result.metrics['mrr']:.6f}")
    path.unlink()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--large", type=Path, metavar="FOLDER")
    arguments = options.parse_args()
    print(f"{torch.get_num_threads()} threads, median of {arguments.rounds} rounds\n")
    small(arguments.rounds)
    if arguments.large:
        large(arguments.large)


if __name__ == "__main__":
    main()
