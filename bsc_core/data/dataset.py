"""Text tables, pair datasets, corpora and the splits of an experiment: distinct texts, and integers that index them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from bsc_core.data.read_report import ReadReport
from bsc_core.data.schema.classes import NLI
from bsc_core.errors import DataError
from bsc_core.types import Ids, Indices, Mask

# N rows (pairs), M documents of a corpus, U distinct texts, F marked false negatives

ARRAYS = ("query", "document", "label", "query_group", "line", "negative", "classes", "source")
NAMES = ("document_key", "split")
"""Fields of `PairDataset` with one value per row: arrays, and tuples of names."""
DECIDED = ("false_negatives", "decided_positives", "decided_negatives")
"""Fields of `PairDataset` with the pairs that were decided upon."""
EXAMPLES = 3  # rows displayed for each stage


@dataclass(frozen=True)
class TextTable:
    """U distinct texts, numbered from 0 in order of first appearance.

    Attributes:
        texts: The texts.
        queries: Where queries and documents are encoded with different prompts, the number of query texts, which come
            first; a text that is both then has two ids. None: each text is encoded once.
    """

    texts: tuple[str, ...]
    queries: int | None = None

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, text_id: int) -> str:
        return self.texts[text_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def take(self, ids: Iterable[int] | Ids) -> list[str]:
        """Return the texts of these ids, in their order."""
        return [self.texts[text_id] for text_id in ids]

    def subset(self, ids: Ids) -> tuple[TextTable, Ids]:
        """Return a table of these texts, and (U,) the new id of each text of this one, -1 for those left out.

        Args:
            ids: Text ids; if the table has a number of queries, queries before documents.
        """
        new_ids = np.full(len(self), -1, dtype=np.int32)
        new_ids[ids] = np.arange(len(ids), dtype=np.int32)
        queries = None if self.queries is None else int((ids < self.queries).sum())
        return TextTable(tuple(self.take(ids)), queries), new_ids

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the texts and their order."""
        digest = hashlib.sha256()
        for text in self.texts:
            raw = text.encode("utf-8")
            digest.update(len(raw).to_bytes(8, "little"))  # the length separates ("ab", "c") from ("a", "bc")
            digest.update(raw)
        if self.queries is not None:
            digest.update(f"queries {self.queries}".encode())
        return digest.hexdigest()

    @cached_property
    def near_groups(self) -> Ids:
        """(U,) number of the set of near-duplicate texts that each text belongs to."""
        from bsc_core.data.near_duplicates import near_groups

        return near_groups(self.texts)

    @cached_property
    def quality_flags(self) -> npt.NDArray[np.uint8]:
        """(U,) quality problems of each text, as bits of `bsc_core.data.text_quality`."""
        from bsc_core.data.text_quality import quality_flags

        return quality_flags(self.texts)

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> tuple[TextTable, Ids]:
        """Number the distinct texts; return the table (U texts) and the ids (M,) of the given texts."""
        numbers: dict[str, int] = {}
        ids = [numbers.setdefault(text, len(numbers)) for text in texts]
        return cls(tuple(numbers)), np.asarray(ids, dtype=np.int32)


@dataclass(frozen=True, eq=False, kw_only=True)
class PairDataset:
    """N pairs of a query and a document.

    Attributes:
        texts: The table that all text ids index.
        query: (N,) text ids.
        document: (N,) text ids.
        query_group: (N,) equal for rows of one query: by query id where the file has one, else by text.
        line: (N,) position of each row in its file.
        threshold: Label above which a pair is positive.
        report: The outcome of reading the file.
        label: (N,) float32 in [0, 1], or None when every pair is positive.
        document_key: The file's document ids.
        split: The file's split names.
        negative: (N,) text ids of an irrelevant document for each query.
        classes: (N,) class ids >= 0.
        class_names: Names of the classes, where the file has names.
        source: (N,) number of each row's file, 0 for `data.train` and then those of `data.mix`; None for one file.
        false_negatives: (F, 2) text ids of query and document of the pairs that a person decided to be no negatives.
        decided_positives: (P, 2) those of them that were decided to be positive.
        decided_negatives: (T, 2) text ids of query and document of the pairs that were decided to be true negatives.
    """

    texts: TextTable
    query: Ids
    document: Ids
    query_group: Ids
    line: Ids
    threshold: float
    report: ReadReport
    label: npt.NDArray[np.float32] | None = None
    document_key: tuple[str, ...] | None = None
    split: tuple[str, ...] | None = None
    negative: Ids | None = None
    classes: Ids | None = None
    class_names: tuple[str, ...] | None = None
    source: Ids | None = None
    false_negatives: Ids | None = None
    decided_positives: Ids | None = None
    decided_negatives: Ids | None = None

    def __len__(self) -> int:
        return len(self.query)

    @cached_property
    def positive(self) -> Mask:
        """(N,) true where label > threshold; all true without labels."""
        if self.label is None:
            return np.ones(len(self), dtype=bool)
        return np.asarray(self.label > np.float32(self.threshold), dtype=bool)  # float32, so that 0.6 equals 0.6

    @cached_property
    def has_negatives(self) -> bool:
        """Whether any pair is labeled negative."""
        return not bool(self.positive.all())

    @cached_property
    def distinct_queries(self) -> Ids:
        """Text ids of the distinct queries, ascending."""
        return np.unique(self.query)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of everything that training reads of the rows, and their order."""
        digest = hashlib.sha256(self.texts.digest.encode())
        for column in (self.query, self.document, self.query_group, self.label):
            digest.update(b"none" if column is None else column.tobytes())
        optional = {"negative": self.negative, "classes": self.classes, "marks": self.false_negatives}
        optional |= {name: getattr(self, name) for name in ("source", *DECIDED[1:])}
        for name, column in optional.items():
            if column is not None:
                digest.update(name.encode() + column.tobytes())
        digest.update(repr((self.threshold, self.document_key)).encode())
        return digest.hexdigest()

    @property
    def class_ids(self) -> Ids:
        """(N,) `classes`.

        Raises:
            DataError: The rows have no classes.
        """
        if self.classes is None:
            raise DataError(f"{self.report.source}: these rows have no classes; read them as classified sentences")
        return self.classes

    def class_name(self, row: int) -> str:
        """Return the name of a row's class, or its number."""
        number = int(self.class_ids[row])
        return str(number) if self.class_names is None else self.class_names[number]

    @property
    def marked_pairs(self) -> Ids:
        """(F, 2) `false_negatives`, empty where there are none."""
        return np.empty((0, 2), dtype=np.int32) if self.false_negatives is None else self.false_negatives

    def has_pair(self, pairs: Ids, document: Ids | None = None) -> Mask:
        """Return bool (N,): the row's query and document are one of the pairs.

        Args:
            pairs: (F, 2) text ids of query and document.
            document: (N,) text ids; None for the documents of the rows.
        """
        keys = pairs.astype(np.int64) @ [len(self.texts), 1]
        rows = self.query.astype(np.int64) * len(self.texts) + (self.document if document is None else document)
        return np.asarray(np.isin(rows, keys), dtype=bool)

    @property
    def text_columns(self) -> list[Ids]:
        """The columns of text ids: query, document and, where there is one, negative."""
        return [self.query, self.document, *([] if self.negative is None else [self.negative])]

    def take(self, rows: npt.ArrayLike) -> PairDataset:
        """Return these rows (row numbers, or a mask (N,)) in the given order, on the same text table."""
        chosen = np.arange(len(self))[np.asarray(rows)] if np.size(rows) else np.empty(0, dtype=np.int64)
        taken: dict[str, Any] = {}
        for name in ARRAYS + NAMES:
            column = getattr(self, name)
            if column is not None:
                taken[name] = column[chosen] if name in ARRAYS else tuple(column[row] for row in chosen)
        return replace(self, **taken)

    def compact(self) -> PairDataset:
        """Return the same pairs on a table of their texts only, in the previous order."""
        return self.reindex_texts(*self.texts.subset(np.unique(np.concatenate(self.text_columns))))

    def reindex_texts(self, texts: TextTable, new_ids: Ids, document_ids: Ids | None = None) -> PairDataset:
        """Return the same pairs on another table.

        Args:
            texts: The other table.
            new_ids: (U,) id in the other table of each text of this one, -1 for a text that no row uses.
            document_ids: (U,) the same for documents and negatives, where `new_ids` is for queries only.
        """
        document_ids = new_ids if document_ids is None else document_ids
        decided: dict[str, Any] = {}
        for name in DECIDED:
            pairs = getattr(self, name)
            if pairs is not None:
                moved = np.stack([new_ids[pairs[:, 0]], document_ids[pairs[:, 1]]], axis=1)
                decided[name] = moved[(moved >= 0).all(axis=1)]
        return replace(
            self,
            texts=texts,
            query=new_ids[self.query],
            document=document_ids[self.document],
            negative=None if self.negative is None else document_ids[self.negative],
            **decided,
        )

    def separate_sides(self) -> PairDataset:
        """Return the same pairs on a table in which a text that is both a query and a document has two ids."""
        return separate_sides([self], None)[0][0]

    def join_sides(self) -> PairDataset:
        """Return the same pairs with one id for each distinct text, also where sides are separate."""
        if self.texts.queries is None:
            return self
        return self.reindex_texts(*TextTable.from_texts(self.texts))

    def examples(self) -> tuple[tuple[str, ...], ...]:
        """Return up to three rows, far apart: their texts and, where there are labels, the label."""
        few = self.take(spread(len(self)))
        columns = [few.texts.take(column) for column in few.text_columns]
        if few.label is not None:
            columns.append([f"{label:g}" for label in few.label])
        return tuple(zip(*columns, strict=True))

    @classmethod
    def from_pairs(
        cls,
        queries: Sequence[str],
        documents: Sequence[str],
        labels: Sequence[float] | npt.NDArray[np.floating] | None = None,
        *,
        query_ids: Sequence[str] | None = None,
        negatives: Sequence[str] | None = None,
        classes: Sequence[int] | None = None,
        threshold: float = 0.5,
    ) -> PairDataset:
        """Build pairs from lists in memory, with labels in [0, 1].

        Raises:
            DataError: The lists differ in length.
        """
        given = [queries, documents, *(c for c in (labels, query_ids, negatives, classes) if c is not None)]
        if len({len(column) for column in given}) != 1:
            raise DataError(
                f"the lists have {', '.join(str(len(column)) for column in given)} rows; give one entry for each pair"
            )
        texts, ids = TextTable.from_texts([*queries, *documents, *(negatives or ())])
        rows = len(queries)
        return cls(
            texts=texts,
            query=ids[:rows],
            document=ids[rows : 2 * rows],
            label=None if labels is None else np.asarray(labels, dtype=np.float32),
            query_group=query_groups(ids[:rows], query_ids),
            line=np.arange(1, rows + 1, dtype=np.int32),
            threshold=threshold,
            report=ReadReport.complete("pairs in memory", rows),
            negative=None if negatives is None else ids[2 * rows :],
            classes=None if classes is None else np.asarray(classes, dtype=np.int32),
        )


@dataclass(frozen=True, eq=False)
class Corpus:
    """M documents to search. document: (M,) text ids; key: the file's document ids, or None."""

    texts: TextTable
    document: Ids
    key: tuple[str, ...] | None
    report: ReadReport

    def __len__(self) -> int:
        return len(self.document)

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the documents, their order and their keys."""
        return hashlib.sha256(f"{self.texts.digest} {self.document.tolist()} {self.key}".encode()).hexdigest()

    def reindex_texts(self, texts: TextTable, new_ids: Ids) -> Corpus:
        """Return the same documents on another table; see `PairDataset.reindex_texts`."""
        return replace(self, texts=texts, document=new_ids[self.document])


@dataclass(frozen=True)
class Stage:
    """One stage of generating rows: its name, the count after it, up to three examples as texts, and a note."""

    name: str
    count: int
    examples: tuple[tuple[str, ...], ...] = ()
    note: str = ""

    def sentence(self) -> str:
        """Return the stage in one line, such as `above the threshold: 1,204 (cosine of at least 0.5)`."""
        return f"{self.name}: {self.count:,}" + (f" ({self.note})" if self.note else "")


def spread(count: int) -> Indices:
    """Return at most three of the numbers 0 to count - 1, far apart."""
    return np.unique(np.linspace(0, count - 1, min(EXAMPLES, count)).astype(np.int64))


@dataclass(frozen=True, eq=False)
class DatasetSplits:
    """Train, dev, test and corpus of an experiment, on one text table.

    Attributes:
        train: Pairs to train on.
        dev: Pairs to evaluate on during training.
        test: Pairs to evaluate on at the end, if there are any.
        corpus: Further documents to search, if there are any.
        unused: (split name, rows) of the training file that no split uses.
        funnel: Rows left after each stage of generating training rows.
        filtered: (filter, rows dropped), in the order of the filters.
        mix_reports: Read reports of the additional training files.
    """

    train: PairDataset
    dev: PairDataset
    test: PairDataset | None
    corpus: Corpus | None
    unused: tuple[tuple[str, int], ...] = ()
    funnel: tuple[Stage, ...] = ()
    filtered: tuple[tuple[str, int], ...] = ()
    mix_reports: tuple[ReadReport, ...] = ()

    @property
    def texts(self) -> TextTable:
        """The distinct texts of all splits and the corpus."""
        return self.train.texts

    @property
    def splits(self) -> dict[str, PairDataset]:
        """The pair datasets by name: train, dev and, where there is one, test."""
        named = {"train": self.train, "dev": self.dev, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}

    def separate_sides(self) -> DatasetSplits:
        """Return the same data on a table in which a text that is both a query and a document has two ids."""
        pairs, corpus = separate_sides(list(self.splits.values()), self.corpus)
        return replace(self.with_splits(dict(zip(self.splits, pairs, strict=True))), corpus=corpus)

    def with_splits(self, splits: Mapping[str, PairDataset]) -> DatasetSplits:
        """Return the same data with other splits, by name."""
        return replace(self, train=splits["train"], dev=splits["dev"], test=splits.get("test"))

    @property
    def reports(self) -> tuple[ReadReport, ...]:
        """One report for each file that was read."""
        first, *others = [split.report for split in self.splits.values()]
        reports = [first, *self.mix_reports, *others, *([self.corpus.report] if self.corpus is not None else [])]
        return tuple({id(report): report for report in reports}.values())


def share_texts(pairs: Sequence[PairDataset], corpus: Corpus | None) -> DatasetSplits:
    """Build train, dev, optionally test, and the corpus on one table of their texts only."""
    compact = [split.compact() for split in align_class_ids(pairs)]
    texts, maps = merge_text_tables([split.texts for split in compact] + ([corpus.texts] if corpus is not None else []))
    train, dev, *test = [split.reindex_texts(texts, new_ids) for split, new_ids in zip(compact, maps, strict=False)]
    moved = corpus.reindex_texts(texts, maps[-1]) if corpus is not None else None
    return DatasetSplits(train, dev, test[0] if test else None, moved)


def separate_sides(pairs: Sequence[PairDataset], corpus: Corpus | None) -> tuple[list[PairDataset], Corpus | None]:
    """Give the texts of queries and those of documents separate ids, so that each side can have its own prompt.

    Args:
        pairs: Datasets on one text table.
        corpus: Documents on the same table, or None.

    Returns:
        The same data on one table with `queries` set.
    """
    texts = pairs[0].texts
    if texts.queries is not None:
        return list(pairs), corpus
    queries = np.unique(np.concatenate([part.query for part in pairs]))
    columns = [column for part in pairs for column in part.text_columns[1:]]
    documents = np.unique(np.concatenate([*columns, *([] if corpus is None else [corpus.document])]))
    _, query_ids = texts.subset(queries)
    _, document_ids = texts.subset(documents)
    document_ids[document_ids >= 0] += len(queries)
    table = TextTable(tuple(texts.take([*queries, *documents])), queries=len(queries))
    moved = [part.reindex_texts(table, query_ids, document_ids) for part in pairs]
    return moved, None if corpus is None else corpus.reindex_texts(table, document_ids)


def merge_text_tables(tables: Sequence[TextTable]) -> tuple[TextTable, list[Ids]]:
    """Merge tables into one; return it and, for each table, the new id (len(table),) of each of its texts."""
    merged, ids = TextTable.from_texts(text for table in tables for text in table.texts)
    ends = np.cumsum([len(table) for table in tables])[:-1]
    return merged, list(np.split(ids, ends))


def query_groups(query: Ids, query_ids: Sequence[str] | None) -> Ids:
    """Return (N,) numbers of the queries, by id or, where a row has no id, by text; from 0 by first appearance."""
    numbers: dict[str | int, int] = {}
    keys = query.tolist()
    if query_ids is not None:
        keys = [query_id or text for query_id, text in zip(query_ids, keys, strict=True)]
    return np.asarray([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.int32)


def align_class_ids(datasets: Sequence[PairDataset]) -> list[PairDataset]:
    """Give named classes the same ids in all datasets: those of the first, then its missing names in sorted order.

    Raises:
        DataError: Some datasets name their classes, not those of NLI, and others number them.
    """
    first, *others = datasets
    kinds = {dataset.class_names is None for dataset in datasets if dataset.classes is not None}
    if len(kinds) == 2 and any(dataset.class_names not in (None, NLI) for dataset in datasets):
        raise DataError("some files name their classes and others number them; use the same names in all files")
    if first.class_names is None:
        return list(datasets)
    missing = {name for dataset in others for name in dataset.class_names or ()} - set(first.class_names)
    names = (*first.class_names, *sorted(missing))
    id_of = {name: number for number, name in enumerate(names)}
    aligned = []
    for dataset in datasets:
        if dataset.classes is not None and dataset.class_names is not None:
            new_ids = np.asarray([id_of[name] for name in dataset.class_names], dtype=np.int32)
            dataset = replace(dataset, classes=new_ids[dataset.classes], class_names=names)
        aligned.append(dataset)
    return aligned


def concatenate_rows(datasets: Sequence[PairDataset]) -> PairDataset:
    """Join the rows of datasets on one text table, without the columns that one of them lacks."""
    joined: dict[str, Any] = {}
    for name in ARRAYS + NAMES:
        columns = [getattr(dataset, name) for dataset in datasets]
        if any(column is None for column in columns):
            joined[name] = None
        else:
            joined[name] = np.concatenate(columns) if name in ARRAYS else tuple(chain.from_iterable(columns))
    return replace(datasets[0], **joined)
