"""Seconds of mining hard negatives, compared with mine_hard_negatives of sentence-transformers.

    python benchmarks/mining.py [--documents 100000] [--queries 2000] [--rounds 5]

Both get the same vectors and settings, take turns in one process, and select the same negatives, which is checked. The
cosines of all queries and documents in float32 are timed alone as well.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import datasets
import numpy as np
import torch
from measure import parser, print_header, print_row, take_turns
from sentence_transformers.util import mine_hard_negatives

from bsc_core.config import NegativesConfig
from bsc_core.data.dataset import Corpus, PairDataset, TextTable, merge_text_tables
from bsc_core.data.generation.negatives import find_candidates
from bsc_core.data.read_report import ReadReport
from bsc_core.neighbors import unit_rows
from bsc_core.preparation.generate import mine

DIMENSIONS = 384
BLOCK = 512  # queries whose cosines are computed at a time
SETTINGS = NegativesConfig(method="window", count=5, absolute_margin=0.05, max_score=0.9)


class Vectors:
    """Encoder of sentence-transformers with given vectors."""

    device = torch.device("cpu")

    def __init__(self, vectors: dict[str, np.ndarray]) -> None:
        self.vectors = vectors

    def encode_query(self, texts: list[str], **options: object) -> np.ndarray:
        return np.stack([self.vectors[text] for text in texts])

    encode_document = encode_query

    def get_embedding_dimension(self) -> int:
        return DIMENSIONS

    def similarity(self, left: object, right: object) -> torch.Tensor:
        return torch.as_tensor(left) @ torch.as_tensor(right).T

    def similarity_pairwise(self, left: object, right: object) -> torch.Tensor:
        return (torch.as_tensor(left) * torch.as_tensor(right)).sum(dim=1)


def make_pairs(queries: int, documents: int) -> tuple[PairDataset, Corpus, np.ndarray]:
    """Return pairs, a corpus that contains their documents, and unit vectors of all texts."""
    numbers = range(queries)
    rows = PairDataset.from_pairs([f"query {n}" for n in numbers], [f"document {n}" for n in numbers])
    table, ids = TextTable.from_texts([f"document {number}" for number in range(documents)])
    corpus = Corpus(table, ids, None, ReadReport("corpus", documents, documents, (), rows.report.columns, False))
    texts, (of_rows, of_corpus) = merge_text_tables([rows.texts, table])
    rows, corpus = rows.reindex_texts(texts, of_rows), corpus.reindex_texts(texts, of_corpus)
    vectors = np.random.default_rng(0).standard_normal((len(texts), DIMENSIONS), dtype=np.float32)
    vectors[rows.document] += 0.5 * vectors[rows.query]
    return rows, corpus, unit_rows(vectors)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=100_000)
    options.add_argument("--queries", type=int, default=2_000)
    options.add_argument("--rounds", type=int, default=5)
    arguments = options.parse_args()
    rows, corpus, unit = make_pairs(arguments.queries, arguments.documents)
    texts = rows.texts
    model = Vectors(dict(zip(texts.texts, unit, strict=True)))
    columns = {"query": texts.take(rows.query), "document": texts.take(rows.document)}
    documents = texts.take(corpus.document)

    def by_this_project() -> set[tuple[str, str]]:
        candidates = find_candidates(rows, corpus)
        negatives = mine(rows, candidates, unit, SETTINGS).negatives
        row, column = np.nonzero(negatives >= 0)
        mined = candidates.document[negatives[row, column]]
        return set(zip(texts.take(candidates.query[row]), texts.take(mined), strict=True))

    def by_sentence_transformers(**search: bool) -> set[tuple[str, str]]:
        mined = mine_hard_negatives(
            datasets.Dataset.from_dict(columns),
            model,
            corpus=documents,
            num_negatives=SETTINGS.count,
            absolute_margin=SETTINGS.absolute_margin,
            max_score=SETTINGS.max_score,
            output_format="triplet",
            verbose=False,
            **search,
        )
        return set(zip(mined["query"], mined["negative"], strict=True))

    queries, searched = unit[rows.query], unit[corpus.document]

    def all_cosines() -> None:
        for start in range(0, len(queries), BLOCK):
            queries[start : start + BLOCK] @ searched.T

    calls = {
        "bsc_core": by_this_project,
        "sentence-transformers": by_sentence_transformers,
        "sentence-transformers, use_faiss": lambda: by_sentence_transformers(use_faiss=True),
    }
    results = [call() for call in calls.values()]
    assert results[0] == results[1] == results[2]
    times = take_turns(calls | {"cosines alone": all_cosines}, arguments.rounds)
    medians = {name: np.median(values, axis=0) for name, values in times.items()}
    print_header(
        f"{arguments.queries:,} queries, {arguments.documents:,} documents",
        "seconds",
        "processor seconds",
        "ratio",
        "processor ratio",
    )
    for name, (wall, processor) in medians.items():
        ratios = (wall, processor) / medians["bsc_core"]
        print_row(name, f"{wall:.2f}", f"{processor:.2f}", *(f"{ratio:.2f}" for ratio in ratios))


if __name__ == "__main__":
    main()
