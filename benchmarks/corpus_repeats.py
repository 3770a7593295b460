"""Right documents that stand in a corpus twice: how many there are, and what a run gained with them and without them.

    bsc reproduce best_pfcc_s --data DATA --runs RUNS
    python benchmarks/corpus_repeats.py --runs RUNS

A repeat has the same letters and digits as a right document and is not one itself; the two differ in quotation marks,
say. Prints the table of docs/results.md from the vectors that the runs of one setting left: dev searched in the whole
corpus, and in the corpus without repeats.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bsc_core.data import SPLIT_SEED, Corpus, ExperimentData, PairDataset
from bsc_core.data.experiment import load_data
from bsc_core.data.plain import plain_ids
from bsc_core.evaluation import evaluate, evaluate_queries
from bsc_core.evaluation.significance import compare_seeds
from bsc_core.runs import Run, RunStore

METRICS = ("mrr", "has_positive@1", "has_positive@5")
Mask = NDArray[np.bool_]


def repeats(corpus: Corpus, right: NDArray[np.int32]) -> Mask:
    """(M,) which documents have the words of a right one without being one. right: text ids."""
    is_right = np.isin(corpus.document, right)
    words = plain_ids(corpus.texts.take(corpus.document))
    return ~is_right & np.isin(words, words[is_right])


def stand_twice(rows: PairDataset, copies: NDArray[np.int32]) -> int:
    """How many of the pairs have a document of which copies, text ids, hold a repeat."""
    words = plain_ids(rows.texts.texts)
    return int(np.isin(words[rows.document], words[copies]).sum())


def without(corpus: Corpus, left_out: Mask) -> Corpus:
    keys = None if corpus.key is None else tuple(np.asarray(corpus.key)[~left_out])
    return replace(corpus, document=corpus.document[~left_out], key=keys)


def table(runs: Sequence[Run], data: ExperimentData, corpora: Sequence[Corpus]) -> None:
    before = [np.array(runs[0].array("embeddings_before"))]
    after = [np.array(run.array("embeddings_after")) for run in runs]
    print(f"\n| encoder | documents | {' | '.join(METRICS)} |\n|{' --- |' * (len(METRICS) + 2)}")
    for corpus in corpora:
        for title, vectors in (("untrained", before), (f"trained, mean of {len(after)} seeds", after)):
            found = [evaluate(one, data.dev, corpus) for one in vectors]
            means = [float(np.mean([one[metric] for one in found])) for metric in METRICS]
            print(f"| {title} | {len(corpus):,} | {' | '.join(f'{mean:.3f}' for mean in means)} |")
    for corpus in corpora:
        sides = [[_mrr(one, data, corpus) for one in vectors] for vectors in (before, after)]
        print(f"\n{len(corpus):,} documents, mrr: {compare_seeds(sides[0], sides[1], seed=0).sentence()}", end="")
    print()


def _mrr(vectors: NDArray[np.float32], data: ExperimentData, corpus: Corpus) -> NDArray[np.float64]:
    found = evaluate_queries(vectors, data.dev, corpus)
    if found is None:
        raise SystemExit("the dev pairs have no rankings")
    return found.values["mrr"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--group", default="best_pfcc_s-best", help="the runs that are measured: one setting's seeds")
    options = parser.parse_args()
    runs = [run for run in RunStore(options.runs).list() if run.status().group == options.group]
    done = sorted((run for run in runs if run.status().state == "done"), key=lambda run: run.config().training.seed)
    if not done:
        raise SystemExit(f"{options.runs}: no finished run of the group {options.group}")
    data = load_data(done[0].config().data, seed=SPLIT_SEED)
    if data.corpus is None:
        raise SystemExit(f"{options.group}: the runs search no corpus")
    copies = repeats(data.corpus, np.concatenate([data.train.document, data.dev.document]))
    for name, rows in (("train", data.train), ("dev", data.dev)):
        twice = stand_twice(rows, data.corpus.document[copies])
        print(f"{name}: {twice} of {len(rows)} right documents stand in the corpus twice")
    table(done, data, [data.corpus, without(data.corpus, copies)])


if __name__ == "__main__":
    main()
