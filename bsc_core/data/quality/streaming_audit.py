"""Streaming audit: counts of a file of pairs in 24 bytes per row plus one chunk."""

# N rows of the file, R rows of a chunk

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsc_core.config import Columns
from bsc_core.data.io.read_pairs import ChunkedPairs, PairChunk
from bsc_core.data.io.tables import OnProgress
from bsc_core.data.near_duplicates import MIX, Hashes, hash_texts, mix_bits
from bsc_core.data.schema.classes import NLI
from bsc_core.data.text_quality import KEYS, estimate_tokens_of_lengths, quality_flags

MAX_NAMES = 1000  # names of classes or splits counted separately; further ones are counted together
OTHERS = "(others)"
LONGEST = 10_000  # tokens; longer texts are counted as this long
TAGS = 8


class TaggedHashes:
    """64-bit hashes of N rows, each with a tag of 0 to 7 in its lowest bits.

    Two different rows have equal hashes with a probability of 2^-61; any two of ten million rows, of 1 in 46,000.
    """

    def __init__(self) -> None:
        self._chunks: list[Hashes] = []

    def add(self, hashes: Hashes, tags: npt.NDArray[np.uint8]) -> None:
        """Add a chunk of n rows.

        Args:
            hashes: (n,) hashes of the rows, whose lowest bits are replaced by the tags.
            tags: (n,) tags below TAGS.
        """
        self._chunks.append((hashes & ~np.uint64(TAGS - 1)) | tags.astype(np.uint64))

    def counts(self) -> tuple[int, int]:
        """Count the distinct hashes and those with more than one tag, and remove all hashes."""
        keys = np.concatenate([*self._chunks, np.empty(0, dtype=np.uint64)])
        self._chunks.clear()
        keys.sort()
        new_key = _starts(keys)
        keys >>= np.uint64(TAGS.bit_length() - 1)
        first = np.flatnonzero(_starts(keys))
        tags = np.add.reduceat(new_key, first, dtype=np.int64) if len(first) else np.empty(0, dtype=np.int64)
        return len(first), int((tags > 1).sum())


def audit_file(
    path: Path | str,
    columns: Columns | None = None,
    *,
    threshold: float = 0.5,
    limits: tuple[float, float] = (0.0, 1.0),
    max_seq_length: int = 90,
    on_progress: OnProgress = lambda progress: None,
) -> dict[str, Any]:
    """Count duplicates, conflicts, labels, lengths and quality problems of a file, chunk by chunk.

    Returns rows, rejections with their lines, columns and all counts, as JSON values. Arguments as in `ChunkedPairs`,
    errors as in `read_pairs`; texts of more than `max_seq_length` tokens are counted as too long.
    """
    pairs = ChunkedPairs(path, columns, limits=limits, threshold=threshold, on_progress=on_progress)
    counts = _Counts(pairs)
    for chunk in pairs:
        counts.add(chunk)
    return {**pairs.as_report(), **counts.values(max_seq_length)}


class _Counts:
    """Counts that are updated chunk by chunk."""

    def __init__(self, pairs: ChunkedPairs) -> None:
        self.source = pairs
        self.threshold = np.float32(pairs.threshold)
        self.labels = np.zeros(11, dtype=np.int64)
        self.classes: Counter[str] = Counter()
        self.splits: Counter[str] = Counter()
        self.quality: Counter[str] = Counter()
        self.pairs, self.queries, self.documents = TaggedHashes(), TaggedHashes(), TaggedHashes()
        self.positives = self.self_pairs = 0
        self.lengths = {name: np.zeros(LONGEST + 1, dtype=np.int64) for name in ("query", "document", "negative")}
        self.split_tags: dict[str, int] = {}
        self.class_tags: dict[str, int] = {}

    def add(self, chunk: PairChunk) -> None:
        query, document, *negatives = [hash_texts(side) for side in chunk.sides]
        positive = np.ones(len(chunk), dtype=bool) if chunk.labels is None else chunk.labels > self.threshold
        pair = query * MIX + document
        for negative in negatives:
            pair = _scattered(pair) * MIX + negative
        split = _tags(chunk, "split", self.split_tags)
        class_tag = _tags(chunk, "class_label", self.class_tags)
        self.pairs.add(_scattered(pair), positive.astype(np.uint8) if chunk.labels is not None else class_tag)
        self.queries.add(_scattered(query), split)
        self.documents.add(_scattered(document), split)
        self.positives += int(positive.sum())
        self.self_pairs += int((query == document).sum())
        if chunk.labels is not None:
            self.labels += np.bincount(np.round(chunk.labels * 10).astype(np.int64), minlength=11)
        _count_names(self.classes, chunk.cells.get("class_label", ()))
        _count_names(self.splits, chunk.cells.get("split", ()))
        flags = np.zeros(len(chunk), dtype=np.uint8)
        for name, side in zip(self.lengths, chunk.sides, strict=False):
            tokens = np.minimum(estimate_tokens_of_lengths(_lengths(side)), LONGEST)
            self.lengths[name] += np.bincount(tokens, minlength=LONGEST + 1)
            flags |= quality_flags(side)
        for bit, name in KEYS.items():
            self.quality[name] += int(((flags & bit) > 0).sum())

    def _positive_rows(self) -> int:
        """Return the number of positive rows; of NLI rows without labels, those of entailment."""
        names = {name.lower() for name in self.classes}
        if self.labels.any() or not names or not names <= set(NLI):
            return self.positives
        return sum(count for name, count in self.classes.items() if name.lower() == NLI[0])

    def values(self, max_seq_length: int) -> dict[str, Any]:
        """Return all counts as JSON values."""
        distinct, conflicts = self.pairs.counts()
        queries, query_leaks = self.queries.counts()
        documents, document_leaks = self.documents.counts()
        values: dict[str, Any] = {
            "positive_rows": self._positive_rows(),
            "repeated_pairs": self.source.rows_valid - distinct,
            "pairs_with_conflicting_labels": conflicts,
            "texts_paired_with_themselves": self.self_pairs,
            "distinct_queries": queries,
            "distinct_documents": documents,
            "tokens_estimated": {
                name: _length_report(counts, max_seq_length) for name, counts in self.lengths.items() if counts.any()
            },
            "rows_with": dict(self.quality),
        }
        if self.labels.any():
            values["labels"] = {f"{tenth / 10:.1f}": int(count) for tenth, count in enumerate(self.labels) if count}
        if self.classes:
            values["classes"] = dict(self.classes.most_common())
        if self.splits:
            values["splits"] = dict(self.splits.most_common())
            values["queries_in_several_splits"] = query_leaks
            values["documents_in_several_splits"] = document_leaks
        return values


def _length_report(counts: npt.NDArray[np.int64], max_seq_length: int) -> dict[str, Any]:
    total = int(counts.sum())
    return {
        "mean": float(np.arange(len(counts)) @ counts / total),
        "median": int(np.searchsorted(np.cumsum(counts), total / 2)),
        "longest": int(np.flatnonzero(counts)[-1]),
        f"above_{max_seq_length}": int(counts[max_seq_length + 1 :].sum()),
    }


def _tags(chunk: PairChunk, role: str, known: dict[str, int]) -> npt.NDArray[np.uint8]:
    """Return (R,) the number of each row's name; further names share the last one, 0 where the role is not mapped."""
    names = chunk.cells.get(role)
    if names is None:
        return np.zeros(len(chunk), dtype=np.uint8)
    for name in dict.fromkeys(names):
        known.setdefault(name, min(len(known), TAGS - 1))
    return np.fromiter((known[name] for name in names), dtype=np.uint8)


def _count_names(counter: Counter[str], names: Sequence[str]) -> None:
    for name, number in Counter(names).items():
        counter[name if name in counter or len(counter) < MAX_NAMES else OTHERS] += number


def _lengths(texts: list[str]) -> npt.NDArray[np.int64]:
    """Return (2, R) the characters and UTF-8 bytes of each text."""
    import pyarrow
    import pyarrow.compute

    column = pyarrow.array(texts, pyarrow.large_string())
    lengths = (pyarrow.compute.utf8_length(column), pyarrow.compute.binary_length(column))
    return np.stack([counts.to_numpy(zero_copy_only=False) for counts in lengths]).astype(np.int64)


def _scattered(values: Hashes) -> Hashes:
    """Return the numbers with mixed bits, so that the lowest can be replaced by tags."""
    return mix_bits(values ^ (values >> np.uint64(33)))


def _starts(keys: Hashes) -> npt.NDArray[np.bool_]:
    """Return which sorted keys differ from the previous one."""
    differs = np.ones(len(keys), dtype=bool)
    differs[1:] = keys[1:] != keys[:-1]
    return differs
