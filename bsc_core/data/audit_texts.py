"""What is worth knowing about the texts of an experiment: near repeats, damage, markup, scripts and lengths."""

# U distinct texts

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from bsc_core.data.faulty_rows import damaged, near_repeats, nearly_known, part_pairs, rows_with
from bsc_core.data.findings import Finding, Severity, count, row_numbers
from bsc_core.data.oddities import DAMAGED, KINDS, MARKUP, MIXED, estimated_tokens, script
from bsc_core.data.pairs import PairDataset
from bsc_core.data.parts import ExperimentData

LONG_WORDS = 200
MANY = 0.05
MAIN_SCRIPT = 0.8


def too_long(data: ExperimentData, max_length: int) -> Iterator[Finding]:
    """Texts that have more tokens than the encoder keeps, by an estimate from their characters."""
    tokens = estimated_tokens(data.texts)
    for part, dataset in data.parts.items():
        rows = rows_with(dataset, tokens > max_length)
        if len(rows):
            title = f"Texts of more than about {max_length} tokens in {part}: {count(len(rows), 'row')}"
            longest = max(int(tokens[column].max()) for column in dataset.text_columns)
            detail = f"The encoder keeps {max_length} tokens of a text; the longest here has about {longest:,}."
            remedy = "Raise the longest text of the encoder, or cut the texts yourself."
            severity: Severity = "warning" if len(rows) > MANY * len(dataset) else "info"
            yield Finding(severity, title, detail, row_numbers(rows), remedy, part)


def _near_pairs(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = near_repeats(dataset)
        if len(rows):
            title = f"Nearly repeated pairs in {part}: {count(len(rows), 'row')}"
            detail = (
                "Both texts are those of an earlier row of the same label but for case, punctuation, spaces or a few "
                "words."
            )
            remedy = "Look at them, and remove them if they say the same."
            yield Finding("warning", title, detail, row_numbers(rows), remedy, part, "drop_near_repeats")


def _near_leaks(data: ExperimentData) -> Iterator[Finding]:
    for earlier, part in part_pairs(data):
        dataset = data.parts[part]
        rows = nearly_known(data.parts[earlier], dataset)
        if len(rows):
            title = f"Queries of {part} that are nearly in {earlier}: {len(np.unique(dataset.query[rows])):,}"
            detail = f"A query of {earlier} differs from theirs by case, punctuation, spaces or a few words alone."
            remedy = f"Look at them, and remove them from {earlier} if they ask the same."
            yield Finding("warning", title, detail, row_numbers(rows), remedy, part, "drop_near_repeats")


def _damaged_texts(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = damaged(dataset)
        if len(rows):
            title = f"Damaged texts in {part}: {count(len(rows), 'row')}"
            remedy = "Save the file again from its source as UTF-8, or remove these rows."
            detail = f"They hold {_kinds(dataset, DAMAGED)}."
            yield Finding("warning", title, detail, row_numbers(rows), remedy, part, "drop_damaged")


def _markup(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = rows_with(dataset, (data.texts.oddities & MARKUP) > 0)
        if len(rows):
            title = f"HTML in the texts of {part}: {count(len(rows), 'row')}"
            detail = "Tags and entities such as &amp; are read as words, which the encoder has hardly seen."
            remedy = "Turn the markup into plain text in the file."
            yield Finding("info", title, detail, row_numbers(rows), remedy, part)


def _mixed_alphabets(data: ExperimentData) -> Iterator[Finding]:
    for part, dataset in data.parts.items():
        rows = rows_with(dataset, (data.texts.oddities & MIXED) > 0)
        if len(rows):
            title = f"Words of mixed alphabets in {part}: {count(len(rows), 'row')}"
            detail = "Latin and Cyrillic letters stand in one word; some look alike, and equal words become different."
            yield Finding("info", title, detail, row_numbers(rows), "Write each word in one alphabet.", part)


def _other_scripts(data: ExperimentData) -> Iterator[Finding]:
    scripts = [script(text) for text in data.texts]
    counts = Counter(name for name in scripts if name)
    main, texts = counts.most_common(1)[0] if counts else ("", 0)
    if len(counts) < 2 or texts < MAIN_SCRIPT * counts.total():
        return
    other = np.asarray([bool(name) and name != main for name in scripts], dtype=bool)
    for part, dataset in data.parts.items():
        rows = rows_with(dataset, other)
        if len(rows):
            title = f"Texts in another script in {part}: {count(len(rows), 'row')}"
            names = sorted({scripts[text] for column in dataset.text_columns for text in column[rows]} - {"", main})
            detail = f"Most texts are written in {main} letters; these are in {', '.join(names)}."
            remedy = "Check that the encoder knows their language, or leave them out."
            yield Finding("info", title, detail, row_numbers(rows), remedy, part)


def _many_words(data: ExperimentData) -> Iterator[Finding]:
    long = np.asarray(
        [text.count(" ") >= LONG_WORDS and len(text.split()) > LONG_WORDS for text in data.texts], dtype=bool
    )
    for part, dataset in data.parts.items():
        rows = rows_with(dataset, long)
        if len(rows):
            title = f"Texts of more than {LONG_WORDS} words in {part}: {count(len(rows), 'row')}"
            detail = "The encoder keeps only its first tokens; what follows is not seen."
            remedy = "Raise the longest text of the encoder, or cut the texts yourself."
            yield Finding("info", title, detail, row_numbers(rows), remedy, part)


def _kinds(dataset: PairDataset, wanted: int) -> str:
    """Which of the wanted oddities the texts have, and in how many rows each."""
    odd = dataset.texts.oddities
    rows = {name: len(rows_with(dataset, (odd & bit) > 0)) for bit, name in KINDS.items() if bit & wanted}
    return " and ".join(f"{name} ({count(number, 'row')})" for name, number in rows.items() if number)


TEXT_CHECKS: tuple[Callable[[ExperimentData], Iterator[Finding]], ...] = (
    _near_leaks,
    _near_pairs,
    _damaged_texts,
    _markup,
    _mixed_alphabets,
    _other_scripts,
    _many_words,
)
