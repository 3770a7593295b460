"""Precision and recall of the ways to find false negatives, on pairs whose labels are known.

    python benchmarks/false_negatives.py FOLDER_OF_DATA

For each query and each of its positives p, every other labeled document d of the query is judged as the loss would: it
is removed where s(q, d) > s(q, p) - margin. It is a false negative in truth where its label is positive. The rule of
the Batches page ("closer than the positive") is the margin 0. The judges are untrained, as in the first step of a run.
"""

import sys
from pathlib import Path

import numpy as np
from measure import parser, print_header, print_row

from bsc_core.data import PairDataset, read_pairs
from bsc_core.data.text_normalization import normalized_ids
from bsc_core.encoders import embed
from bsc_core.neighbors import unit_rows

SETS = ("cqa_a", "cqa_b", "wikiqa")
JUDGES = ("bundled", "static")
MARGINS = (-0.1, -0.05, 0.0, 0.05, 0.1)


def labeled_cells(pairs: PairDataset) -> tuple[np.ndarray, np.ndarray]:
    """Return (E, 2) rows (positive, other) of the same query, and whether the other one is positive, (E,)."""
    cells = []
    order = np.argsort(pairs.query_group, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(pairs.query_group[order])) + 1):
        positive = rows[pairs.positive[rows]]
        cells += [(one, other) for one in positive for other in rows if other != one]
    index = np.array(cells, dtype=np.int64).reshape(-1, 2)
    different = pairs.document[index[:, 0]] != pairs.document[index[:, 1]]
    return index[different], pairs.positive[index[different][:, 1]]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("folder", type=Path)
    folder = options.parse_args().folder
    print_header("data", "way", "margin", "removed", "precision", "recall")
    for name in SETS:
        pairs = read_pairs(folder / name / "pairs.tsv.gz")
        cells, truth = labeled_cells(pairs)
        sys.stderr.write(f"{name}: {len(cells):,} labeled cells of {len(np.unique(pairs.query_group)):,} queries\n")
        positive, other = pairs.document[cells[:, 0]], pairs.document[cells[:, 1]]
        words = normalized_ids(pairs.texts)
        ways = {("all labeled documents", "-"): np.ones(len(cells), dtype=bool)}
        ways["copy of the positive", "-"] = words[positive] == words[other]
        for judge in JUDGES:
            unit = unit_rows(embed(judge, pairs.texts))
            query = unit[pairs.query[cells[:, 0]]]
            gap = (query * unit[other]).sum(axis=1) - (query * unit[positive]).sum(axis=1)
            ways |= {(f"judge {judge}", f"{margin:g}"): gap > -margin for margin in MARGINS}
        for (way, margin), removed in ways.items():
            right = int((removed & truth).sum())
            precision = f"{right / removed.sum():.2f}" if removed.any() else "-"
            print_row(name, way, margin, f"{removed.mean():.2f}", precision, f"{right / max(1, truth.sum()):.2f}")


if __name__ == "__main__":
    main()
