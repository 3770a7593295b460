"""An audit of a file in pieces: counts of everything, in 24 bytes for each row besides one piece."""

# N rows of the file

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bsc_core.config import Columns
from bsc_core.data.checked import PairPieces, Piece
from bsc_core.data.oddities import KEYS, oddities_of, tokens_of_lengths
from bsc_core.data.stream import Say

Hashes = npt.NDArray[np.uint64]

MOST_NAMES = 1000  # names of classes or splits that are counted apart; further ones are counted together
OTHERS = "(others)"
LONGEST = 10_000  # tokens; longer texts count as this long
TAGS = 8
MIX = np.uint64(0x9E3779B97F4A7C15)


class TaggedHashes:
    """64-bit hashes of N rows, each with a tag of 0 to 7 in its lowest bits.

    Two rows that differ meet in one hash with a probability of 1 in 2^61: about 1 in 46,000 for ten million rows.
    """

    def __init__(self) -> None:
        self._parts: list[Hashes] = []

    def add(self, hashes: Hashes, tags: npt.NDArray[np.uint8]) -> None:
        """Remember a piece of rows. tags: below TAGS."""
        self._parts.append((hashes & ~np.uint64(TAGS - 1)) | tags.astype(np.uint64))

    def counts(self) -> tuple[int, int]:
        """How many hashes are distinct, and how many of them have more than one tag. Empties this store."""
        keys = np.concatenate([*self._parts, np.empty(0, dtype=np.uint64)])
        self._parts.clear()
        keys.sort()
        new_key = np.empty(len(keys), dtype=bool)
        new_key[:1], new_key[1:] = True, keys[1:] != keys[:-1]
        keys >>= np.uint64(TAGS.bit_length() - 1)
        new_hash = np.empty(len(keys), dtype=bool)
        new_hash[:1], new_hash[1:] = True, keys[1:] != keys[:-1]
        starts = np.flatnonzero(new_hash)
        tags = np.add.reduceat(new_key, starts, dtype=np.int64) if len(starts) else np.empty(0, dtype=np.int64)
        return len(starts), int((tags > 1).sum())


@dataclass(frozen=True)
class FileAudit:
    """What a file of pairs holds. `as_report` gives it as plain values."""

    pieces: PairPieces
    values: dict[str, Any]

    def as_report(self) -> dict[str, Any]:
        """Rows, rejections with their lines, columns and all counts."""
        return {**reading_report(self.pieces), **self.values}


def audit_file(
    path: Path | str,
    columns: Columns | None = None,
    *,
    threshold: float = 0.5,
    limits: tuple[float, float] = (0.0, 1.0),
    max_length: int = 90,
    say: Say = lambda progress: None,
) -> FileAudit:
    """Count what a file of pairs holds, piece by piece. Raises what `read_pairs` raises.

    limits: the file's labels that mean 0 and 1; max_length: tokens that the encoder keeps of a text.
    """
    pieces = PairPieces(path, columns, limits=limits, threshold=threshold, say=say)
    tally = _Tally(pieces)
    for piece in pieces:
        tally.add(piece)
    return FileAudit(pieces, tally.values(max_length))


def reading_report(pieces: PairPieces) -> dict[str, Any]:
    """What reading a file in pieces did, as plain values."""
    report = pieces.report()
    return {
        "file": str(pieces.path),
        "rows_read": pieces.read,
        "rows_kept": pieces.kept,
        "rejected": pieces.rejected,
        "first_rejections": [rejection.sentence(pieces.unit) for rejection in pieces.first],
        "columns": pieces.roles.model_dump(exclude_none=True),
        "columns_guessed": report.guessed,
    }


class _Tally:
    """Counts that grow piece by piece."""

    def __init__(self, pieces: PairPieces) -> None:
        self.threshold = np.float32(pieces.threshold)
        self.rows, self.labels = pieces, np.zeros(11, dtype=np.int64)
        self.classes: Counter[str] = Counter()
        self.splits: Counter[str] = Counter()
        self.pairs, self.queries, self.documents = TaggedHashes(), TaggedHashes(), TaggedHashes()
        self.positives = self.itself = 0
        self.odd: Counter[str] = Counter()
        self.lengths = {name: np.zeros(LONGEST + 1, dtype=np.int64) for name in ("query", "document", "negative")}
        self.split_tags: dict[str, int] = {}
        self.class_tags: dict[str, int] = {}

    def add(self, piece: Piece) -> None:
        hashes = [_hashes(side) for side in piece.sides]
        query, document = hashes[:2]
        positive = np.ones(len(piece), dtype=bool) if piece.labels is None else piece.labels > self.threshold
        pair = query * MIX + document
        for more in hashes[2:]:
            pair = _scattered(pair) * MIX + more
        split = _tags(piece, "split", self.split_tags)
        kind = _tags(piece, "class_label", self.class_tags)
        self.pairs.add(_scattered(pair), positive.astype(np.uint8) if piece.labels is not None else kind)
        self.queries.add(_scattered(query), split)
        self.documents.add(_scattered(document), split)
        self.positives += int(positive.sum())
        self.itself += int((query == document).sum())
        if piece.labels is not None:
            self.labels += np.bincount(np.round(piece.labels * 10).astype(np.int64), minlength=11)
        _count_names(self.classes, piece.cells.get("class_label", ()))
        _count_names(self.splits, piece.cells.get("split", ()))
        self._texts(piece)

    def _texts(self, piece: Piece) -> None:
        odd = np.zeros(len(piece), dtype=np.uint8)
        for name, side in zip(self.lengths, piece.sides, strict=False):
            tokens = np.minimum(tokens_of_lengths(_lengths(side)), LONGEST)
            self.lengths[name] += np.bincount(tokens, minlength=LONGEST + 1)
            odd |= oddities_of(side)
        for bit, name in KEYS.items():
            self.odd[name] += int(((odd & bit) > 0).sum())

    def values(self, max_length: int) -> dict[str, Any]:
        """All counts, as plain values."""
        kept = self.rows.kept
        distinct, conflicts = self.pairs.counts()
        queries, query_leaks = self.queries.counts()
        documents, document_leaks = self.documents.counts()
        found: dict[str, Any] = {
            "positive_rows": self.positives,
            "repeated_pairs": kept - distinct,
            "pairs_with_conflicting_labels": conflicts,
            "texts_paired_with_themselves": self.itself,
            "distinct_queries": queries,
            "distinct_documents": documents,
            "tokens_estimated": {
                name: _length_report(counts, max_length) for name, counts in self.lengths.items() if counts.any()
            },
            "rows_with": dict(self.odd),
        }
        if self.labels.any():
            found["labels"] = {f"{tenth / 10:.1f}": int(count) for tenth, count in enumerate(self.labels) if count}
        if self.classes:
            found["classes"] = dict(self.classes.most_common())
        if self.splits:
            found["splits"] = dict(self.splits.most_common())
            found["queries_in_several_splits"] = query_leaks
            found["documents_in_several_splits"] = document_leaks
        return found


def _length_report(counts: npt.NDArray[np.int64], max_length: int) -> dict[str, Any]:
    total, ends = int(counts.sum()), np.cumsum(counts)
    longest = int(np.flatnonzero(counts)[-1])
    return {
        "mean": float(np.arange(len(counts)) @ counts / total),
        "median": int(np.searchsorted(ends, total / 2)),
        "longest": longest,
        f"above_{max_length}": int(counts[max_length + 1 :].sum()),
    }


def _tags(piece: Piece, role: str, known: dict[str, int]) -> npt.NDArray[np.uint8]:
    """(R,) a number for each of the first names of a role; further ones share the last. 0 where it is not mapped."""
    names = piece.cells.get(role)
    if names is None:
        return np.zeros(len(piece), dtype=np.uint8)
    for name in dict.fromkeys(names):
        known.setdefault(name, min(len(known), TAGS - 1))
    return np.fromiter((known[name] for name in names), dtype=np.uint8)


def _count_names(counter: Counter[str], names: list[str] | tuple[()]) -> None:
    for name, number in Counter(names).items():
        counter[name if name in counter or len(counter) < MOST_NAMES else OTHERS] += number


def _lengths(texts: list[str]) -> npt.NDArray[np.int64]:
    """(2, R) characters and UTF-8 bytes of each text."""
    import pyarrow
    import pyarrow.compute

    column = pyarrow.array(texts, pyarrow.large_string())
    found = (pyarrow.compute.utf8_length(column), pyarrow.compute.binary_length(column))
    return np.stack([counts.to_numpy(zero_copy_only=False) for counts in found]).astype(np.int64)


def _hashes(texts: list[str]) -> Hashes:
    """(R,) equal for equal texts in every process."""
    from pandas.util import hash_array

    hashes: Hashes = hash_array(np.asarray(texts, dtype=object), categorize=False)
    return hashes


def _scattered(values: Hashes) -> Hashes:
    """The same numbers with their bits mixed, so that the lowest may be given away (the finaliser of MurmurHash3)."""
    mixed = values ^ (values >> np.uint64(33))
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    return mixed
