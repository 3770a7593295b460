"""One meaning for each colour and one way to write each kind of number, in every figure and on every page.

Colours are Okabe and Ito's, told apart by colour-blind eyes too; each stands for the same thing everywhere.
"""

from __future__ import annotations

QUERY = "#0072B2"
DOCUMENT = "#E69F00"
POSITIVE = "#009E73"
HARD_NEGATIVE = "#D55E00"
FALSE_NEGATIVE = "#CC79A7"
BY_HAND = "#8E3B6E"  # a false negative that a person has marked: darker than a suspected one
REFERENCE = "#8A8F98"

COSINE = ("#0B4F8A", "#3C86C0", "#9CC4E2", "#FAFAF7", "#F4C58B", "#E0912F", "#A8560A")  # -1, 0 in the middle, 1
PROBABILITY = ("#FAFAF7", "#C7E5DA", "#7CC4AC", "#2E9C7C", "#046B50")  # 0 to 1
GRADIENT = ("#046B50", "#5FB59C", "#FAFAF7", "#E39A68", "#A84300")  # pulled together, 0, pushed apart
CATEGORIES = (QUERY, DOCUMENT, POSITIVE, HARD_NEGATIVE, FALSE_NEGATIVE, "#56B4E9", "#B59B00", REFERENCE)
DASHES: tuple[tuple[int, int], ...] = ((1, 0), (6, 4), (2, 3), (8, 3))  # first compared is solid, second dashed

NOT_DEFINED = "not defined"


def metric(value: float | None, interval: tuple[float, float] | None = None, *, why: str = "no positives") -> str:
    """`0.812`, `0.812 [0.790, 0.831]` with its interval, or `not defined: no positives` for None."""
    if value is None or value != value:
        return f"{NOT_DEFINED}: {why}"
    if interval is None:
        return f"{value:.3f}"
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def change(value: float | None) -> str:
    """A difference with its sign and 3 decimals: `+0.041`, or with a true minus sign; 0 has a plus, None is empty."""
    if value is None or value != value:
        return ""
    return f"{round(value, 3) + 0.0:+.3f}".replace("-", "\N{MINUS SIGN}")


def count(number: int) -> str:
    """`12,345`."""
    return f"{number:,}"


def many(number: int, noun: str, plural: str | None = None) -> str:
    """`1 row`, `12,345 rows`."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def share(value: float | None, *, why: str = "nothing to count") -> str:
    """A share in [0, 1] as `31%`; below 10% with one decimal."""
    if value is None or value != value:
        return f"{NOT_DEFINED}: {why}"
    percent = 100 * value
    return f"{percent:.1f}%" if 0 < percent < 10 else f"{percent:.0f}%"


def duration(seconds: float | None) -> str:
    """`0.4 s`, `48 s`, `3 min 12 s`, `2 h 5 min`; `unknown` for None."""
    if seconds is None or seconds != seconds:
        return "unknown"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def short(text: str, length: int = 40) -> str:
    """The text on one line, cut at a word with an ellipsis when longer than `length` characters."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    space = line.rfind(" ", 0, length)
    return line[: space if space > length // 2 else length - 1].rstrip(" ,;:.") + "…"
