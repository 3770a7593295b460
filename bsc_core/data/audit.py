"""What is worth knowing about the data before training on it: repeats, leaks, conflicts, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np

from bsc_core.data.audit_texts import TEXT_CHECKS, too_long
from bsc_core.data.faulty_rows import (
    conflicts,
    known_across,
    known_ids,
    known_queries,
    part_pairs,
    repeats,
    self_pairs,
    without_positive,
)
from bsc_core.data.findings import Finding, Severity, count, row_numbers
from bsc_core.data.parts import ExperimentData

__all__ = ["Finding", "audit"]

RARE_SHARE = 0.05
ORDER = ("error", "warning", "info")


def audit(data: ExperimentData, *, max_length: int | None = None) -> list[Finding]:
    """All findings, errors first. Nothing is changed or dropped by it.

    max_length: tokens that the encoder keeps of a text; texts that are longer by an estimate are a finding.
    """
    found = chain.from_iterable(check(data) for check in (*CHECKS, *TEXT_CHECKS))
    findings = [*found, *(too_long(data, max_length) if max_length is not None else ())]
    return sorted(findings, key=lambda finding: ORDER.index(finding.severity))


def _rejected_rows(data: ExperimentData) -> Iterator[Finding]:
    for report in data.reports:
        if report.rejected:
            title = f"Rejected: {count(len(report.rejected), 'row')}"
            yield Finding(
                "warning",
                title,
                report.summary(),
                row_numbers(()),
                "Correct these rows in the file, or go on without them.",
            )


def _unused_splits(data: ExperimentData) -> Iterator[Finding]:
    for name, rows in data.unused:
        detail = "No part of the experiment takes this value of the split column."
        yield Finding(
            "info",
            f"Not used: {count(rows, 'row')} of split {name!r}",
            detail,
            row_numbers(()),
            "Name the split in the data settings.",
        )


def _duplicate_pairs(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = repeats(dataset)
        if len(rows):
            title = f"Repeated pairs in {part}: {count(len(rows), 'row')}"
            detail = (
                "The same query with the same document stands in the file more than once, and counts more than once."
            )
            remedy = "Remove the repeats, unless they are meant as weights."
            yield Finding("warning", title, detail, row_numbers(rows), remedy, part, "drop_repeats")


def _conflicting_labels(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = conflicts(dataset)
        if len(rows):
            pairs = len(np.unique(np.stack([dataset.query[rows], dataset.document[rows]]), axis=1)[0])
            title = f"Conflicting labels in {part}: {count(pairs, 'pair')}"
            detail = (
                "The same two texts stand in rows above and rows not above the threshold, or in rows of two classes, "
                "so the loss pulls both ways."
            )
            remedy = "Keep one label for each pair."
            yield Finding("error", title, detail, row_numbers(rows), remedy, part, "drop_conflicts")


def _same_text_twice(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = self_pairs(dataset)
        if len(rows):
            title = f"A text paired with itself in {part}: {count(len(rows), 'row')}"
            detail = "A positive of this kind teaches nothing, and a negative one cannot be met."
            yield Finding("warning", title, detail, row_numbers(rows), "Remove these rows.", part, "drop_self_pairs")


def _no_positive(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = without_positive(dataset)
        if not len(rows):
            continue
        queries = len(np.unique(dataset.query_group[rows]))
        title = f"Queries without a positive in {part}: {queries:,}"
        lists = dataset.classes is None and len(dataset) >= 2 * len(np.unique(dataset.query_group))
        detail = (
            "No document of theirs is above the threshold, so a ranking of their documents has nothing to find."
            if lists
            else "All rows of theirs are labelled negative, which is usual for labelled pairs."
        )
        remedy = "Remove them, or check their labels." if lists else "Nothing to do, unless they are meant as searches."
        yield Finding(
            "warning" if lists else "info",
            title,
            detail,
            row_numbers(rows),
            remedy,
            part,
            "drop_queries_without_positive",
        )


def _query_leaks(data: ExperimentData) -> Iterator[Finding]:
    for earlier, part in part_pairs(data):
        dataset = data.parts[part]
        rows = known_queries(data.parts[earlier], dataset)
        if len(rows):
            title = f"Queries of {part} that are also in {earlier}: {len(np.unique(dataset.query[rows])):,}"
            detail = (
                f"Their texts stand on the query side of {earlier} too, so the numbers on {part} will look too good."
            )
            remedy = (
                f"Remove the query from one side (the remedy takes {earlier}), or let the app draw {part} by query."
            )
            severity: Severity = "error" if earlier == "train" else "warning"
            yield Finding(severity, title, detail, row_numbers(rows), remedy, part, "drop_leaks")


def _shared_ids(data: ExperimentData) -> Iterator[Finding]:
    for earlier, part in part_pairs(data):
        dataset = data.parts[part]
        rows = known_ids(data.parts[earlier], dataset)
        if len(rows):
            ids = len(np.unique(dataset.query_group[rows]))
            title = f"Query ids of {part} that {earlier} has for other texts: {ids:,}"
            detail = "An id counts within a split, so these are measured as queries of their own."
            remedy = "If they are one query, give it one text or keep its rows in one split; else give each its own id."
            yield Finding("warning", title, detail, row_numbers(rows), remedy, part)


def _texts_across(data: ExperimentData) -> Iterator[Finding]:
    for earlier, part in part_pairs(data):
        dataset = data.parts[part]
        rows = known_across(data.parts[earlier], dataset)
        if len(rows):
            title = f"Texts of {part} on the other side of {earlier}: {count(len(rows), 'row')}"
            detail = (
                f"A query of theirs is a document of {earlier}, or a document of theirs is a query of it, so {part} "
                "measures texts that training has seen."
            )
            remedy = f"Remove these texts from {earlier}, or draw {part} by component."
            yield Finding("warning", title, detail, row_numbers(rows), remedy, part, "drop_leaks")


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
                row_numbers(rows),
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
            title = f"Right answers of {part} that are not in the corpus: {count(len(rows), 'row')}"
            detail = "A search over the corpus cannot find them, which lowers every retrieval number."
            yield Finding(
                "warning",
                title,
                detail,
                row_numbers(rows),
                "Add the documents to the corpus, or map the document ids.",
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
                row_numbers(()),
                remedy,
                part,
            )
        elif share == 1:
            detail = "Every pair counts as right; the other pairs of a batch are the only negatives."
            yield Finding(
                "info",
                f"{part} has no labelled negatives",
                detail,
                row_numbers(()),
                "Nothing to do: this is the usual case of BSC.",
                part,
            )
        else:
            rare = share < RARE_SHARE or share > 1 - RARE_SHARE
            detail = f"{count(int(dataset.positive.sum()), 'row')} of {len(dataset):,}."
            remedy = "Check the threshold and the scale of the labels." if rare else "Nothing to do."
            yield Finding("warning" if rare else "info", f"{share:.1%} {above}", detail, row_numbers(()), remedy, part)


CHECKS: tuple[Callable[[ExperimentData], Iterator[Finding]], ...] = (
    _rejected_rows,
    _conflicting_labels,
    _query_leaks,
    _shared_ids,
    _gold_not_in_corpus,
    _duplicate_pairs,
    _same_text_twice,
    _texts_across,
    _no_positive,
    _unused_splits,
    _class_balance,
    _shared_documents,
)
