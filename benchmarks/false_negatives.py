"""Precision and recall of the ways to find false negatives, on pairs whose labels are known.

    python benchmarks/false_negatives.py FOLDER_OF_DATA [--output FILE]

For each query and each of its positives p, every other labeled document d of the query is judged as the loss would: it
is removed where s(q, d) > s(q, p) - margin, with a relative margin where s(q, d) > s(q, p) - margin * |s(q, p)|. It is
a false negative in truth where its label is positive. The Batches page lists d if it is closer than the positive or has
nearly the same words. The judges are untrained, as in the first step of a run. `--output` writes the rows of masks as
JSON; the New run page shows those in bsc_core/losses/mask_measurements.json.
"""

import json
import sys
from pathlib import Path

import numpy as np
from measure import parser, print_header, print_row

from bsc_core.batching.likely_false_negatives import have_nearly_equal_words
from bsc_core.data import PairDataset, read_pairs
from bsc_core.data.dataset import TextTable
from bsc_core.data.text_normalization import normalized_ids, words_of
from bsc_core.encoders import embed
from bsc_core.neighbors import unit_rows

SETS = ("cqa_a", "cqa_b", "wikiqa", "qqp")
JUDGES = ("bundled", "static")
MARGINS = {"absolute": (-0.1, -0.05, 0.0, 0.05, 0.1), "relative": (-0.1, -0.05, 0.05, 0.1)}  # relative 0 is absolute 0


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
    options.add_argument("--output", type=Path, help="JSON file of the rows of masks")
    arguments = options.parse_args()
    folder, measured = arguments.folder, []
    print_header("data", "way", "kind", "margin", "removed", "precision", "recall")
    for name in SETS:
        pairs = read_pairs(folder / name / "pairs.tsv.gz")
        cells, truth = labeled_cells(pairs)
        sys.stderr.write(f"{name}: {len(cells):,} labeled cells of {len(np.unique(pairs.query_group)):,} queries\n")
        columns = np.stack([pairs.query[cells[:, 0]], pairs.document[cells[:, 0]], pairs.document[cells[:, 1]]])
        used, ids = np.unique(columns, return_inverse=True)
        texts, (query, positive, other) = TextTable(tuple(pairs.texts.take(used))), ids.reshape(columns.shape)
        words = normalized_ids(texts)
        ways = {("all labeled documents", "-", "-"): np.ones(len(cells), dtype=bool)}
        ways["copy of the positive", "-", "-"] = words[positive] == words[other]
        word_sets = [frozenset(words_of(text)) for text in texts.texts]
        similar_words = np.array(
            [have_nearly_equal_words(word_sets[one], word_sets[two]) for one, two in zip(positive, other, strict=True)]
        )
        for judge in JUDGES:
            unit = unit_rows(embed(judge, texts))
            own = (unit[query] * unit[positive]).sum(axis=1)
            gap = (unit[query] * unit[other]).sum(axis=1) - own
            scale = {"absolute": np.ones_like(own), "relative": np.abs(own)}
            ways[f"Batches page, {judge}", "-", "-"] = (gap > 0) | similar_words
            for kind, margins in MARGINS.items():
                ways |= {(f"judge {judge}", kind, f"{margin:g}"): gap > -margin * scale[kind] for margin in margins}
        for (way, kind, margin), removed in ways.items():
            right = int((removed & truth).sum())
            share, recall = float(removed.mean()), right / max(1, int(truth.sum()))
            precision = right / int(removed.sum()) if removed.any() else None
            shown = "-" if precision is None else f"{precision:.2f}"
            print_row(name, way, kind, margin, f"{share:.2f}", shown, f"{recall:.2f}")
            if kind in MARGINS and precision is not None:
                row = {"data": name, "judge": way.removeprefix("judge "), "kind": kind, "margin": float(margin)}
                measured.append(row | {"precision": round(precision, 3), "recall": round(recall, 3)})
    if arguments.output:
        arguments.output.write_text("[\n" + ",\n".join(map(json.dumps, measured)) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
