"""Distinct texts, each stored once; everything else points into them by number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]

# U distinct texts, M texts given


@dataclass(frozen=True)
class TextTable:
    """U distinct texts, numbered from 0 in the order of their first appearance."""

    texts: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, text_id: int) -> str:
        return self.texts[text_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def take(self, ids: Iterable[int] | Ids) -> list[str]:
        """The texts of these ids, in their order."""
        return [self.texts[text_id] for text_id in ids]

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the texts and their order; equal tables have equal digests."""
        digest = hashlib.sha256()
        for text in self.texts:
            raw = text.encode("utf-8")
            digest.update(len(raw).to_bytes(8, "little"))  # lengths keep ("ab", "c") and ("a", "bc") apart
            digest.update(raw)
        return digest.hexdigest()

    @cached_property
    def near_groups(self) -> Ids:
        """(U,) number of the set of nearly equal texts that each text belongs to."""
        from bsc_core.data.near import near_groups

        return near_groups(self.texts)

    @cached_property
    def oddities(self) -> npt.NDArray[np.uint8]:
        """(U,) what is odd about each text, as bits of `bsc_core.data.oddities`."""
        from bsc_core.data.oddities import oddities_of

        return oddities_of(self.texts)

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> tuple[TextTable, Ids]:
        """Number the distinct texts. Returns the table (U texts) and the ids (M,) of the given texts."""
        numbers: dict[str, int] = {}
        ids = [numbers.setdefault(text, len(numbers)) for text in texts]
        return cls(tuple(numbers)), np.asarray(ids, dtype=np.int32)


def unite(tables: Sequence[TextTable]) -> tuple[TextTable, list[Ids]]:
    """One table of all texts of several tables.

    Returns it and, for each given table, its map (len(table),) from old to new ids; texts in both get one id.
    """
    united, ids = TextTable.from_texts(text for table in tables for text in table.texts)
    ends = np.cumsum([len(table) for table in tables])[:-1]
    return united, list(np.split(ids, ends))
