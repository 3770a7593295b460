"""Classes of pairs: words or whole numbers of a file as class ids, numbered alike in every part of an experiment."""

# N rows

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from bsc_core.data.reports import Rejection

NLI = ("entailment", "neutral", "contradiction")
"""The classes of natural language inference, in the order of SNLI's ids 0, 1 and 2."""
UNLABELLED = ("", "-", "-1")
"""What SNLI and MNLI write where the annotators did not agree; such rows are counted and left out."""
LARGEST = 9_999

Classes = npt.NDArray[np.int32]


def is_class_word(cell: str) -> bool:
    """Whether a cell names a class of NLI or says that there is none."""
    return cell.strip().lower() in (*NLI, *UNLABELLED)


def read_classes(
    cells: Sequence[str], lines: Sequence[int], column: str, faults: dict[int, Rejection]
) -> tuple[Classes, tuple[str, ...] | None]:
    """Class ids (N,) and the classes' names, None where the file numbers them itself.

    NLI's words, in any case, are numbered as in SNLI, other words in sorted order. A cell without a class, or of no
    whole number among numbers, becomes -1 and a fault of its row.
    """
    words = [cell.strip() for cell in cells]
    known = {word for word in words if word not in UNLABELLED}
    ids = np.full(len(words), -1, dtype=np.int32)
    numbered = are_numbered(known)
    if numbered:
        names, numbers = None, {word: int(word) for word in known if _is_number(word) and int(word) <= LARGEST}
    else:
        is_nli = {word.lower() for word in known} <= set(NLI)
        names = NLI if is_nli else tuple(sorted(known))
        numbers = {word: names.index(word.lower() if is_nli else word) for word in known}
    reject_classes(cells, lines, column, faults, numbered=numbered)
    for row, word in enumerate(words):
        ids[row] = numbers.get(word, -1)
    return ids, names


def are_numbered(cells: Iterable[str]) -> bool:
    """Whether a column numbers its classes: one number is enough."""
    return any(_is_number(word) for word in {cell.strip() for cell in cells} - set(UNLABELLED))


def reject_classes(
    cells: Sequence[str], lines: Sequence[int], column: str, faults: dict[int, Rejection], *, numbered: bool
) -> None:
    """Add the rows without a class to faults, and those without a whole number where classes are numbered."""
    for row, cell in enumerate(cells):
        word = cell.strip()
        if word in UNLABELLED:
            faults.setdefault(row, Rejection(lines[row], column, "the row has no class"))
        elif numbered and not (_is_number(word) and int(word) <= LARGEST):
            faults.setdefault(row, Rejection(lines[row], column, f"the class {word[:40]!r} is not a whole number"))


def entailed(classes: Classes) -> npt.NDArray[np.float32]:
    """(N,) labels of NLI rows: 1 for entailment, 0 for neutral and contradiction."""
    labels: npt.NDArray[np.float32] = (classes == 0).astype(np.float32)
    return labels


def renumbered(classes: Classes, names: tuple[str, ...], wanted: tuple[str, ...]) -> Classes:
    """The same classes under the numbers that they have in another list of names, which holds them all."""
    numbers = np.asarray([wanted.index(name) for name in names], dtype=np.int32)
    renumbered: Classes = numbers[classes]
    return renumbered


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit()
