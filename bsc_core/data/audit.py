"""What is worth knowing about the data before training on it: repeats, leaks, conflicts, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from bsc_core.data.experiment import ExperimentData
from bsc_core.data.pairs import PairDataset
from bsc_core.data.texts import Ids

LONG_WORDS = 200
RARE_SHARE = 0.05
ORDER = ("error", "warning", "info")


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing found.

    rows: int32 row numbers of the part named by `part` ("train", "dev" or "test"); empty when it concerns them all.
    """

    severity: Literal["error", "warning", "info"]
    title: str
    detail: str
    rows: Ids
    remedy: str
    part: str = "train"


def audit(data: ExperimentData) -> list[Finding]:
    """All findings, errors first. Nothing is changed or dropped by it."""
    findings = [finding for check in CHECKS for finding in check(data)]
    return sorted(findings, key=lambda finding: ORDER.index(finding.severity))


def _rejected_rows(data: ExperimentData) -> Iterator[Finding]:
    for report in data.reports:
        if report.rejected:
            title = f"Rejected: {_count(len(report.rejected), 'row')}"
            yield Finding(
                "warning", title, report.summary(), _rows(()), "Correct these rows in the file, or go on without them."
            )


def _unused_splits(data: ExperimentData) -> Iterator[Finding]:
    for name, rows in data.unused:
        detail = "No part of the experiment takes this value of the split column."
        yield Finding(
            "info",
            f"Not used: {_count(rows, 'row')} of split {name!r}",
            detail,
            _rows(()),
            "Name the split in the data settings.",
        )


def _duplicate_pairs(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        pair = _pair_numbers(dataset)
        _, first = np.unique(pair, return_index=True)
        rows = np.setdiff1d(np.arange(len(dataset)), first)
        if len(rows):
            title = f"Repeated pairs in {part}: {_count(len(rows), 'row')}"
            detail = (
                "The same query with the same document stands in the file more than once, and counts more than once."
            )
            yield Finding(
                "warning", title, detail, _rows(rows), "Remove the repeats, unless they are meant as weights.", part
            )


def _conflicting_labels(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        pair = _pair_numbers(dataset)
        both = np.intersect1d(pair[dataset.positive], pair[~dataset.positive])
        rows = np.flatnonzero(np.isin(pair, both))
        if len(rows):
            title = f"Conflicting labels in {part}: {_count(len(both), 'pair')}"
            detail = (
                "The same two texts stand in rows above and rows not above the threshold, so the loss pulls both ways."
            )
            yield Finding("error", title, detail, _rows(rows), "Keep one label for each pair.", part)


def _same_text_twice(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = np.flatnonzero(dataset.query == dataset.document)
        if len(rows):
            title = f"A text paired with itself in {part}: {_count(len(rows), 'row')}"
            detail = "A positive of this kind teaches nothing, and a negative one cannot be met."
            yield Finding("warning", title, detail, _rows(rows), "Remove these rows.", part)


def _query_leaks(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = np.flatnonzero(np.isin(dataset.query, data.train.query))
        if part != "train" and len(rows):
            title = f"Queries of {part} that are also in train: {len(np.unique(dataset.query[rows])):,}"
            detail = f"Their texts stand on the query side of train too, so the numbers on {part} will look too good."
            yield Finding(
                "error",
                title,
                detail,
                _rows(rows),
                f"Remove the query from one side, or let the app draw {part} by query.",
                part,
            )


def _shared_documents(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = np.flatnonzero(np.isin(dataset.document, data.train.document))
        if part != "train" and len(rows):
            title = f"Documents of {part} that are also in train: {len(np.unique(dataset.document[rows])):,}"
            detail = "Usual for a fixed collection of answers; a measure of new documents would need them apart."
            yield Finding(
                "info",
                title,
                detail,
                _rows(rows),
                "Nothing to do, unless new documents are what you want to measure.",
                part,
            )


def _gold_not_in_corpus(data: ExperimentData) -> Iterator[Finding]:
    if data.corpus is None:
        return
    for part, dataset in data.parts.items():
        if dataset.document_key is not None and data.corpus.key is not None:
            there = np.isin(np.asarray(dataset.document_key, dtype=object), np.asarray(data.corpus.key, dtype=object))
        else:
            there = np.isin(dataset.document, data.corpus.document)
        rows = np.flatnonzero(dataset.positive & ~there)
        if part != "train" and len(rows):
            title = f"Right answers of {part} that are not in the corpus: {_count(len(rows), 'row')}"
            detail = "A search over the corpus cannot find them, which lowers every retrieval number."
            yield Finding(
                "warning", title, detail, _rows(rows), "Add the documents to the corpus, or map the document ids.", part
            )


def _long_texts(data: ExperimentData) -> Iterator[Finding]:
    long = np.asarray(
        [text.count(" ") >= LONG_WORDS and len(text.split()) > LONG_WORDS for text in data.texts], dtype=bool
    )
    for part, dataset in data.parts.items():
        rows = np.flatnonzero(long[dataset.query] | long[dataset.document])
        if len(rows):
            title = f"Texts of more than {LONG_WORDS} words in {part}: {_count(len(rows), 'row')}"
            detail = "The encoder keeps only its first tokens; what follows is not seen."
            yield Finding(
                "info",
                title,
                detail,
                _rows(rows),
                "Raise the longest text of the encoder, or cut the texts yourself.",
                part,
            )


def _class_balance(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        share = float(np.mean(dataset.positive))
        above = f"of {part} are positive (label above {dataset.threshold:g})"
        if share == 0:
            remedy = "Lower the threshold, or check the label column and its scale."
            yield Finding(
                "error",
                f"No rows {above}",
                "Without a positive pair there is nothing to pull together or to find.",
                _rows(()),
                remedy,
                part,
            )
        elif share == 1:
            detail = "Every pair counts as right; the other pairs of a batch are the only negatives."
            yield Finding(
                "info",
                f"{part} has no labelled negatives",
                detail,
                _rows(()),
                "Nothing to do: this is the usual case of BSC.",
                part,
            )
        else:
            rare = share < RARE_SHARE or share > 1 - RARE_SHARE
            detail = f"{_count(int(dataset.positive.sum()), 'row')} of {len(dataset):,}."
            remedy = "Check the threshold and the scale of the labels." if rare else "Nothing to do."
            yield Finding("warning" if rare else "info", f"{share:.1%} {above}", detail, _rows(()), remedy, part)


def _pair_numbers(dataset: PairDataset) -> npt.NDArray[np.int64]:
    """(N,) one number for each distinct (query, document)."""
    return dataset.query.astype(np.int64) * len(dataset.texts) + dataset.document


def _rows(rows: npt.ArrayLike) -> Ids:
    return np.asarray(rows, dtype=np.int32)


def _count(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else one + 's'}"


CHECKS: tuple[Callable[[ExperimentData], Iterator[Finding]], ...] = (
    _rejected_rows,
    _conflicting_labels,
    _query_leaks,
    _gold_not_in_corpus,
    _duplicate_pairs,
    _same_text_twice,
    _unused_splits,
    _class_balance,
    _shared_documents,
    _long_texts,
)
