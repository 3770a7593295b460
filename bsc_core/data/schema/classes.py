"""Class labels: names or integers in a file as class ids, equal in all splits of an experiment."""

# N rows

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from bsc_core.types import Ids

NLI = ("entailment", "neutral", "contradiction")
"""The classes of natural language inference, in the order of SNLI's ids 0, 1 and 2."""
UNLABELED = ("", "-", "-1")
"""Cells of SNLI and MNLI rows without a majority label; such rows are rejected."""
LARGEST = 9_999
MAX_DIGITS = 100  # of a class number, including zeros in front
NO_CLASS = "the row has no class"


def is_class_word(cell: str) -> bool:
    """Return whether a cell names an NLI class or the lack of one."""
    return cell.strip().lower() in (*NLI, *UNLABELED)


def read_classes(cells: Sequence[str]) -> tuple[Ids, tuple[str, ...] | None]:
    """Return class ids (N,), -1 for a cell with a `class_fault`, and class names, None where the file numbers classes.

    NLI class names, in any case, are numbered as in SNLI, other names in sorted order.
    """
    words = [cell.strip() for cell in cells]
    known = set(words) - set(UNLABELED)
    if are_numbered(known):
        names, numbers = None, {word: _number(word) for word in known if not class_fault(word, numbered=True)}
    else:
        is_nli = {word.lower() for word in known} <= set(NLI)
        names = NLI if is_nli else tuple(sorted(known))
        number_of = {name: number for number, name in enumerate(names)}
        numbers = {word: number_of[word.lower() if is_nli else word] for word in known}
    return np.asarray([numbers.get(word, -1) for word in words], dtype=np.int32), names


def are_numbered(cells: Iterable[str]) -> bool:
    """Return whether a column numbers its classes; one number is enough."""
    return any(_is_number(word) for word in {cell.strip() for cell in cells} - set(UNLABELED))


def class_fault(cell: str, *, numbered: bool) -> str:
    """Return why a cell gives no class, "" where it does.

    Args:
        cell: A cell of the column of classes.
        numbered: Whether the column numbers its classes.
    """
    word = cell.strip()
    if word in UNLABELED:
        return NO_CLASS
    if numbered and not (_is_number(word) and _number(word) <= LARGEST):
        return f"the class {word[:40]!r} is not a whole number"
    return ""


def entailment_labels(classes: Ids) -> npt.NDArray[np.float32]:
    """Return (N,) labels of NLI rows: 1 for entailment, 0 for neutral and contradiction."""
    labels: npt.NDArray[np.float32] = (classes == 0).astype(np.float32)
    return labels


def _number(word: str) -> int:
    return int(word.removesuffix(".0"))


def _is_number(word: str) -> bool:
    """Return whether a word is a whole number, maybe with ".0", as columns with missing values are written."""
    digits = word.removesuffix(".0")
    return digits.isascii() and digits.isdigit() and len(digits) <= MAX_DIGITS
