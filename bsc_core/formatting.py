"""Formats of figures and pages: metrics, percentages, counts, durations, shortened texts."""

import re

NOT_DEFINED = "not defined"
MINUS = "\N{MINUS SIGN}"
_METRICS = {
    "mrr": "MRR",
    "map": "MAP",
    "f1": "F1",
    "auc": "AUC",
    "ndcg": "nDCG",
    "ndcg_exponential": "nDCG (exponential)",
    "has_positive": "HasPositive",
    "stsb": "Spearman on STSb",
    "sick": "Spearman on SICK",
    "sts": "Mean Spearman",
    "ten_auc": "AUC of ten sentences",
    "ten_gap": "Cosine gap of ten sentences",
    "polarity": "Polarity score",
    "semantic": "Semantic score",
}
_MARKDOWN = re.compile(r"[\\`*_\[\]!<>~$#|]")
_DIRECTION_MARKS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS = {
    code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    for code in (*range(9), *range(11, 32), *range(127, 160), *_DIRECTION_MARKS)
}


def printable(text: str) -> str:
    """Return a text with control characters, except tab and line feed, and direction marks as escape sequences.

    Otherwise a text of a data file could clear or color the terminal, or reverse the order of its characters.
    """
    return text.translate(_CONTROLS)


def without_markup(text: str) -> str:
    """Return a text on one line that Markdown shows without images and formats; only plain addresses become links."""
    return _MARKDOWN.sub(r"\\\g<0>", " ".join(text.split()))


def one_line(text: str) -> str:
    """Return a text as `printable` does, with line feeds as escape sequences too.

    Otherwise a text of a data file could add a line to the output of a command.
    """
    return printable(text).replace("\n", r"\x0a")


def metric_name(name: str) -> str:
    """Return how figures and pages write a metric: `MRR` for `mrr`, `HasPositive@1` for `has_positive@1`."""
    if name != name.lower():  # is written so already
        return name
    base, at, cutoff = name.partition("@")
    return _METRICS.get(base, base[:1].upper() + base[1:].replace("_", " ")) + at + cutoff


def metric(value: float | None, interval: tuple[float, float] | None = None, *, why: str = "no positives") -> str:
    """Format a metric: `0.812`, `0.812 [0.790, 0.831]` with its interval, `not defined: no positives` for None."""
    if value is None or value != value:
        return f"{NOT_DEFINED}: {why}"
    text = f"{value:.3f}" if interval is None else f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"
    return text.replace("-", MINUS)


def signed(value: float | None, digits: int = 3) -> str:
    """Format a difference: `+0.041`, a true minus sign below 0, `+0.000` for 0 and an empty text for None."""
    if value is None or value != value:
        return ""
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", MINUS)


def signed_digits(low: float | None, high: float | None) -> int:
    """Return the decimals of a difference with this interval: 3, or more if an end near 0 would be written as 0."""
    ends = [end for end in (low, high) if end]
    return next((digits for digits in (3, 4, 5) if all(round(end, digits) for end in ends)), 3)


def difference(value: float, low: float | None, high: float | None) -> str:
    """Format a difference with its interval, if there is one: `+0.041 [+0.012, +0.070]`, `-0.0011 [-0.0030, -0.0002]`.

    The minus sign is a true one. See `signed_digits` for the number of decimals.
    """
    if low is None or high is None:
        return signed(value)
    digits = signed_digits(low, high)
    return f"{signed(value, digits)} [{signed(low, digits)}, {signed(high, digits)}]"


def number(value: float) -> str:
    """Format a setting: `0.05`, `3e-5`."""
    return f"{value:g}".replace("e-0", "e-")


def count(number: int) -> str:
    """Format a count with thousands separators: `12,345`."""
    return f"{number:,}"


def plural(number: int, noun: str, plural: str | None = None) -> str:
    """Format a count with its noun: `1 row`, `12,345 rows`."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def percent(value: float | None, *, why: str = "nothing to count") -> str:
    """Format a share in [0, 1] as `31%`, below 10% with one decimal."""
    if value is None or value != value:
        return f"{NOT_DEFINED}: {why}"
    percent = 100 * value
    return f"{percent:.1f}%" if 0 < percent < 10 else f"{percent:.0f}%"


def duration(seconds: float | None) -> str:
    """Format seconds as `0.4 s`, `48 s`, `3 min 12 s`, `2 h 5 min`; `unknown` for None."""
    if seconds is None or seconds != seconds:
        return "unknown"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def shorten(text: str, length: int = 40) -> str:
    """Return the text on one line, cut at a word with an ellipsis when it is longer than `length` characters."""
    line = " ".join(text.split(None, length))  # so many words are longer; the rest of a long text is not read
    if len(line) <= length:
        return line
    space = line.rfind(" ", 0, length)
    return line[: space if space > length // 2 else length - 1].rstrip(" ,;:.") + "…"
