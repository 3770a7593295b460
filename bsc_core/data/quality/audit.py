"""Audit of an experiment's data: duplicates, leaks, conflicts, damaged and long texts, and missing documents."""

# U distinct texts

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bsc_core.config import FilterName
from bsc_core.data.dataset import DatasetSplits, PairDataset
from bsc_core.data.quality import filters
from bsc_core.data.quality.filters import rows_with_texts, split_pairs
from bsc_core.data.text_normalization import shared_words
from bsc_core.data.text_quality import DAMAGED, DESCRIPTIONS, MARKUP, MIXED_ALPHABETS, estimate_tokens, script
from bsc_core.formatting import plural
from bsc_core.types import Ids, Indices, Mask

__all__ = ["AuditFinding", "audit", "query_word_shares"]

Severity = Literal["error", "warning", "info"]
MAX_UNUSED = 20  # splits with a finding of their own
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
RARE_SHARE = 0.05  # of positives or negatives, below which the balance is a warning
REPEATED_SHARE = 0.05  # of positive rows with a repeated document, above which they are a warning
LONG_SHARE = 0.05  # of rows with too long texts, above which they are a warning
MAIN_SCRIPT_SHARE = 0.8
SHARED_WORDS_RATIO = 1.2  # of the words that negatives and positives share with their query, from which it is a finding
MIN_SHARED_WORDS, MAX_SHARED_WORDS = 20, 5_000  # pairs of each kind that are compared
MAX_WORDS = 200
_TEXTS = tomllib.loads(Path(__file__).with_name("audit_findings.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, eq=False)
class AuditFinding:
    """One finding of an audit.

    Attributes:
        code: Stable identifier of the kind of finding.
        severity: "error", "warning" or "info".
        title: The finding in one line, with numbers.
        detail: What it means.
        suggestion: What to do about it.
        rows: int32 row numbers in the split; empty when the finding concerns all rows.
        split: "train", "dev" or "test".
        filter: The entry of `data.filters` that drops the rows, if there is one.
    """

    code: str
    severity: Severity
    title: str
    detail: str
    suggestion: str
    rows: Ids
    split: str = "train"
    filter: FilterName | None = None


def audit(data: DatasetSplits, *, max_seq_length: int | None = None) -> list[AuditFinding]:
    """Return all findings, errors first; the data are not changed.

    Args:
        data: The splits.
        max_seq_length: Tokens that the encoder reads of a text; longer texts, by an estimate, are a finding.
    """
    flags = data.texts.quality_flags
    many_words = [text.count(" ") >= MAX_WORDS and len(text.split()) > MAX_WORDS for text in data.texts]
    findings = [
        *_rejected_rows(data),
        *_within_splits(data, "conflicting_labels", filters.conflicts, _conflicting_pairs),
        *_between_splits(data, "leaked_queries", filters.shared_queries, severity_for_train="error"),
        *_between_splits(data, "shared_query_ids", filters.shared_query_ids),
        *_positives_not_in_corpus(data),
        *_within_splits(data, "duplicate_pairs", filters.duplicates),
        *_within_splits(data, "self_pairs", filters.self_pairs),
        *_between_splits(data, "texts_across_sides", filters.texts_across_sides),
        *_within_splits(data, "queries_without_positive", filters.without_positive, _queries_without_positive),
        *_unused_splits(data),
        *(_label_balance(split, dataset) for split, dataset in data.splits.items()),
        *_repeated_documents(data.train),
        *_shared_words(data.train),
        *_shared_documents(data),
        *_between_splits(data, "near_duplicate_queries", filters.near_duplicate_queries),
        *_within_splits(data, "near_duplicate_pairs", filters.near_duplicates),
        *_within_splits(data, "damaged_texts", filters.damaged, _damage),
        *_texts(data, "markup", (flags & MARKUP) > 0),
        *_texts(data, "mixed_alphabets", (flags & MIXED_ALPHABETS) > 0),
        *_other_scripts(data),
        *_texts(data, "many_words", np.asarray(many_words, dtype=bool), lambda dataset, rows: {"limit": MAX_WORDS}),
        *(_long_texts(data, max_seq_length) if max_seq_length is not None else ()),
    ]
    return sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))


Values = dict[str, Any]
"""Values of a finding's texts; "variant" names another table of texts and "severity" replaces that of the texts."""


def _finding(code: str, rows: Indices | tuple[()] = (), split: str = "train", **values: Any) -> AuditFinding:
    texts = _TEXTS[values.pop("variant", code)]
    severity = values.pop("severity", None) or texts["severity"]
    values |= {"rows": plural(len(rows), "row"), "split": split}
    title, detail, suggestion = (texts[name].format(**values) for name in ("title", "detail", "suggestion"))
    row_ids = np.asarray(rows, dtype=np.int32)
    return AuditFinding(code, severity, title, detail, suggestion, row_ids, split, texts.get("filter"))


def _within_splits(
    data: DatasetSplits,
    code: str,
    check: Callable[[PairDataset], Indices],
    describe: Callable[[PairDataset, Indices], Values] = lambda dataset, rows: {},
) -> Iterator[AuditFinding]:
    """Yield the findings of a check of the rows of each split."""
    for split, dataset in data.splits.items():
        rows = check(dataset)
        if len(rows):
            yield _finding(code, rows, split, **describe(dataset, rows))


def _texts(
    data: DatasetSplits,
    code: str,
    chosen: Mask,
    describe: Callable[[PairDataset, Indices], Values] = lambda dataset, rows: {},
) -> Iterator[AuditFinding]:
    """Yield the findings of rows with a chosen text. chosen: (U,)."""
    return _within_splits(data, code, partial(rows_with_texts, chosen=chosen), describe)


def _between_splits(
    data: DatasetSplits,
    code: str,
    check: Callable[[PairDataset, PairDataset], Indices],
    severity_for_train: Severity | None = None,
) -> Iterator[AuditFinding]:
    """Yield the findings of a check of each split against an earlier one."""
    for earlier, split in split_pairs(data):
        dataset = data.splits[split]
        rows = check(data.splits[earlier], dataset)
        if len(rows):
            queries, ids = (_count_distinct(column[rows]) for column in (dataset.query, dataset.query_group))
            severity = severity_for_train if earlier == "train" else None
            yield _finding(code, rows, split, earlier=earlier, queries=queries, ids=ids, severity=severity)


def _count_distinct(ids: Ids) -> str:
    return f"{len(np.unique(ids)):,}"


def _rejected_rows(data: DatasetSplits) -> Iterator[AuditFinding]:
    for report in data.reports:
        if report.rejected:
            yield _finding("rejected_rows", rejected=plural(len(report.rejected), "row"), summary=report.summary())


def _unused_splits(data: DatasetSplits) -> Iterator[AuditFinding]:
    for name, rows in data.unused[:MAX_UNUSED]:
        yield _finding("unused_split", name=name, unused=plural(rows, "row"))
    if others := data.unused[MAX_UNUSED:]:
        unused = plural(sum(rows for _, rows in others), "row")
        yield _finding("unused_splits", splits=f"{len(others):,} more splits", unused=unused)


def _conflicting_pairs(dataset: PairDataset, rows: Indices) -> Values:
    pairs = len(np.unique(np.stack([dataset.query[rows], dataset.document[rows]]), axis=1)[0])
    return {"pairs": plural(pairs, "pair")}


def _queries_without_positive(dataset: PairDataset, rows: Indices) -> Values:
    queries = _count_distinct(dataset.query_group[rows])
    are_lists = dataset.classes is None and len(dataset) >= 2 * len(np.unique(dataset.query_group))
    return {"queries": queries} | ({"variant": "lists_without_positive"} if are_lists else {})


def _damage(dataset: PairDataset, rows: Indices) -> Values:
    flags = dataset.texts.quality_flags
    counts = {bit: len(rows_with_texts(dataset, (flags & bit) > 0)) for bit in DESCRIPTIONS if bit & DAMAGED}
    kinds = [f"{DESCRIPTIONS[bit]} ({plural(number, 'row')})" for bit, number in counts.items() if number]
    return {"kinds": " and ".join(kinds)}


def _repeated_documents(train: PairDataset) -> Iterator[AuditFinding]:
    rows = filters.repeated_documents(train)
    if len(rows):
        most = int(np.bincount(train.document[rows]).max())
        severity = "warning" if len(rows) > REPEATED_SHARE * train.positive.sum() else "info"
        documents = plural(len(np.unique(train.document[rows])), "document")
        yield _finding("repeated_documents", rows, documents=documents, most=plural(most, "row"), severity=severity)


def query_word_shares(dataset: PairDataset) -> tuple[float, float] | None:
    """Return the mean share of a query's words that its positives and its negatives contain; None for too few pairs."""
    positive, negative = dataset.positive, ~dataset.positive
    positives = dataset.query[positive], dataset.document[positive]
    negatives = dataset.query[negative], dataset.document[negative]
    if dataset.negative is not None:
        negatives = dataset.query, dataset.negative
    shares = []
    for queries, documents in (positives, negatives):
        if len(queries) < MIN_SHARED_WORDS:
            return None
        some = np.unique(np.linspace(0, len(queries) - 1, MAX_SHARED_WORDS).astype(int))
        share = shared_words(dataset.texts.take(queries[some]), dataset.texts.take(documents[some]))
        if share is None:
            return None
        shares.append(share)
    return shares[0], shares[1]


def _shared_words(train: PairDataset) -> Iterator[AuditFinding]:
    shares = query_word_shares(train)
    if shares is not None and shares[1] > SHARED_WORDS_RATIO * shares[0]:
        yield _finding("shared_words", positives=shares[0], negatives=shares[1])


def _shared_documents(data: DatasetSplits) -> Iterator[AuditFinding]:
    for split, dataset in data.splits.items():
        rows = np.flatnonzero(np.isin(dataset.document, data.train.document))
        if split != "train" and len(rows):
            yield _finding("shared_documents", rows, split, documents=_count_distinct(dataset.document[rows]))


def _positives_not_in_corpus(data: DatasetSplits) -> Iterator[AuditFinding]:
    if data.corpus is None:
        return
    for split, dataset in data.splits.items():
        known = np.isin(dataset.document, data.corpus.document)
        if dataset.document_key is not None and data.corpus.key is not None:
            keys = frozenset(data.corpus.key)  # np.isin compares all pairs of objects
            for row, key in enumerate(dataset.document_key):
                known[row] = key in keys if key else known[row]  # without an id, the text counts
        rows = np.flatnonzero(dataset.positive & ~known)
        if split != "train" and len(rows):
            yield _finding("positives_not_in_corpus", rows, split)


def _label_balance(split: str, dataset: PairDataset) -> AuditFinding:
    share = float(np.mean(dataset.positive))
    if share == 0:
        return _finding("no_positives", split=split, threshold=dataset.threshold)
    if share == 1:
        return _finding("no_labeled_negatives", split=split)
    is_rare = share < RARE_SHARE or share > 1 - RARE_SHARE
    return _finding(
        "label_balance",
        split=split,
        variant="rare_label" if is_rare else "label_balance",
        share=share,
        threshold=dataset.threshold,
        positives=plural(int(dataset.positive.sum()), "row"),
        total=len(dataset),
    )


def _other_scripts(data: DatasetSplits) -> Iterator[AuditFinding]:
    scripts = [script(text) for text in data.texts]
    counts = Counter(name for name in scripts if name)
    main, texts = counts.most_common(1)[0] if counts else ("", 0)
    if len(counts) < 2 or texts < MAIN_SCRIPT_SHARE * counts.total():
        return

    def describe(dataset: PairDataset, rows: Indices) -> Values:
        names = {scripts[text] for column in dataset.text_columns for text in column[rows]} - {"", main}
        return {"main": main, "others": ", ".join(sorted(names))}

    yield from _texts(data, "other_scripts", np.asarray([name not in ("", main) for name in scripts]), describe)


def _long_texts(data: DatasetSplits, max_seq_length: int) -> Iterator[AuditFinding]:
    tokens = estimate_tokens(data.texts)

    def describe(dataset: PairDataset, rows: Indices) -> Values:
        longest = max(int(tokens[column].max()) for column in dataset.text_columns)
        severity = "warning" if len(rows) > LONG_SHARE * len(dataset) else "info"
        return {"limit": max_seq_length, "longest": longest, "severity": severity}

    return _texts(data, "long_texts", tokens > max_seq_length, describe)
