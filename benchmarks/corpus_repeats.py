"""Right documents that are in a corpus twice: their number, and the gain of a run with and without the repeats.

    bsc reproduce best_pfcc_s --data DATA --runs RUNS
    python benchmarks/corpus_repeats.py --runs RUNS

A repeat has the same letters and digits as a right document and is not one itself; the two differ in quotation marks,
for example. Prints the table of docs/results/retrieval.md from the stored vectors of the runs of one setting: dev
searched in the full corpus, and in the corpus without repeats.
"""

# M documents of a corpus, S seeds, Q queries

from dataclasses import replace
from pathlib import Path

import numpy as np
from measure import parser, print_header, print_row

from bsc_core.data import Corpus, PairDataset
from bsc_core.data.load import load_data
from bsc_core.data.text_normalization import normalized_ids
from bsc_core.evaluation import evaluate_queries
from bsc_core.evaluation.stats.significance import compare_seeds
from bsc_core.runs import RunStore

METRICS = ("mrr", "has_positive@1", "has_positive@5")


def repeats(corpus: Corpus, right: np.ndarray) -> np.ndarray:
    """Return (M,) which documents have the words of a right one without being one. right: text ids."""
    is_right = np.isin(corpus.document, right)
    words = normalized_ids(corpus.texts.take(corpus.document))
    return ~is_right & np.isin(words, words[is_right])


def count_repeated(rows: PairDataset, copies: np.ndarray) -> int:
    """Count the pairs whose document has a repeat among `copies`, text ids."""
    words = normalized_ids(rows.texts.texts)
    return int(np.isin(words[rows.document], words[copies]).sum())


def without(corpus: Corpus, excluded: np.ndarray) -> Corpus:
    keys = None if corpus.key is None else tuple(np.asarray(corpus.key)[~excluded])
    return replace(corpus, document=corpus.document[~excluded], key=keys)


def values(encoders: list[np.ndarray], dev: PairDataset, corpus: Corpus) -> dict[str, np.ndarray]:
    """Return each metric (S, Q) of the encoders, given by their vectors."""
    results = [evaluate_queries(vectors, dev, corpus) for vectors in encoders]
    if None in results:
        raise SystemExit("the dev pairs cannot be ranked")
    return {metric: np.stack([result.values[metric] for result in results]) for metric in METRICS}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=Path, required=True)
    group_help = "the group of runs to evaluate: the seeds of one setting"
    options.add_argument("--group", default="best_pfcc_s-best", help=group_help)
    arguments = options.parse_args()
    runs = [run for run in RunStore(arguments.runs).list() if run.status().group == arguments.group]
    done = sorted((run for run in runs if run.status().state == "done"), key=lambda run: run.config().training.seed)
    if not done:
        raise SystemExit(f"{arguments.runs}: no finished run of the group {arguments.group}")
    data = load_data(done[0].config().data)
    if data.corpus is None:
        raise SystemExit(f"{arguments.group}: the runs search no corpus")
    copies = repeats(data.corpus, np.concatenate([data.train.document, data.dev.document]))
    for name, rows in (("train", data.train), ("dev", data.dev)):
        count = count_repeated(rows, data.corpus.document[copies])
        print(f"- {name}: {count} of {len(rows)} right documents are in the corpus twice")
    vectors = {
        "untrained": [np.array(done[0].array("embeddings_before"))],
        f"trained, mean of {len(done)} seeds": [np.array(run.array("embeddings_after")) for run in done],
    }
    print()
    print_header("encoder", "documents", *METRICS)
    comparisons = []
    for corpus in (data.corpus, without(data.corpus, copies)):
        results = {title: values(encoders, data.dev, corpus) for title, encoders in vectors.items()}
        for title, metrics in results.items():
            print_row(title, f"{len(corpus):,}", *(f"{metrics[name].mean():.3f}" for name in METRICS))
        before, after = (metrics["mrr"] for metrics in results.values())
        comparisons.append(f"- {len(corpus):,} documents, mrr: {compare_seeds(before, after, seed=0).sentence()}")
    print("", *comparisons, sep="\n")


if __name__ == "__main__":
    main()
