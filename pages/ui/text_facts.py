"""What is known of each text of an experiment: its side, its label, its group and its topic, one category each.

A text may stand in several rows; its category is what all of them say, else the first by the order given here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bsc_core.data.tables import read_table
from bsc_core.errors import BscError
from bsc_core.evaluation import search_errors
from bsc_core.figures import maps, theme

if TYPE_CHECKING:
    from bsc_core.data.experiment import ExperimentData

MOST_TOPICS = 40
ERRORS = {
    search_errors.FIRST: theme.POSITIVE,
    search_errors.LATER: theme.CATEGORIES[5],
    search_errors.MISSED: theme.HARD_NEGATIVE,
    search_errors.INSTEAD: theme.FALSE_NEGATIVE,
    search_errors.OTHERS: theme.REFERENCE,
}


def colourings(data: ExperimentData) -> dict[str, maps.Colouring]:
    """Ways to colour all U texts: side, label, split, group, and every column of the file with few values."""
    found = {"side": maps.colouring(sides(data), maps.SIDES)}
    if data.train.label is not None:
        found["label"] = maps.colouring(labels(data), maps.LABELS)
    for name, values in topics(data).items():
        found[name] = maps.colouring(values)
    found["split"] = maps.colouring(splits(data))
    found["group"] = maps.colouring(groups(data))
    return found


def sides(data: ExperimentData) -> list[str]:
    """query, document, or both."""
    query, document = np.zeros(len(data.texts), bool), np.zeros(len(data.texts), bool)
    for part in data.parts.values():
        query[part.query] = True
        document[part.document] = True
    if data.corpus is not None:
        document[data.corpus.document] = True
    both = query & document
    return list(np.where(both, "both", np.where(query, "query", "document")).tolist())


def labels(data: ExperimentData) -> list[str]:
    """Whether a document is in a positive pair, only in negative ones, or in none; a query is in positive ones."""
    positive, negative = np.zeros(len(data.texts), bool), np.zeros(len(data.texts), bool)
    for part in data.parts.values():
        for column in (part.query, part.document):
            positive[column[part.positive]] = True
            negative[column[~part.positive]] = True
    return list(np.where(positive, "positive", np.where(negative, "negative", "not labelled")).tolist())


def splits(data: ExperimentData) -> list[str]:
    """train, dev or test by the first part that holds the text; corpus for the others."""
    names = np.full(len(data.texts), "corpus only", dtype=object)
    for name, part in reversed(data.parts.items()):
        names[part.query] = name
        names[part.document] = name
    return names.tolist()


def groups(data: ExperimentData) -> list[str]:
    """The query whose pairs a text stands in: the first few words of its text."""
    names = np.full(len(data.texts), "no group", dtype=object)
    for part in reversed(data.parts.values()):
        for query, document in zip(part.query.tolist(), part.document.tolist(), strict=True):
            names[query] = names[document] = theme.short(data.texts[query], 32)
    return names.tolist()


def errors(data: ExperimentData, vectors: np.ndarray, ids: np.ndarray | None) -> maps.Colouring:
    """How a search with every query of dev and test ends, as a model's vectors (N, D) of the texts `ids` find it.

    ids: ascending, None for all texts. Where a model holds some texts only, it searches among these.
    """
    held = np.arange(len(data.texts)) if ids is None else ids
    names = np.full(len(data.texts), search_errors.OTHERS, dtype=object)
    parts = [part for name, part in data.parts.items() if name != "train"]
    names[held] = search_errors.search_errors(parts, data.corpus, vectors, texts=ids)
    return maps.colouring(names.tolist(), ERRORS)


def topics(data: ExperimentData) -> dict[str, list[str]]:
    """Columns of the files that play no role and hold few values, such as a topic: column -> one value a text."""
    found: dict[str, list[str]] = {}
    for part in data.parts.values():
        try:
            table = read_table(part.report.source)
        except BscError:  # the file moved since the run; its topics are a comfort, not a need
            continue
        place = {line: row for row, line in enumerate(table.line)}
        for column in _free_columns(table.columns, part.report.columns.model_dump()):
            names = found.setdefault(column, ["none"] * len(data.texts))
            for query, document, line in zip(part.query, part.document, part.line, strict=True):
                if int(line) in place:
                    names[query] = names[document] = table.columns[column][place[int(line)]]
    return found


def _free_columns(columns: dict[str, list[str]], roles: dict[str, str | tuple[str, ...] | None]) -> list[str]:
    taken = {name for role in roles.values() for name in ([role] if isinstance(role, str) else role or ())}
    return [name for name, cells in columns.items() if name not in taken and 2 <= len(set(cells)) <= MOST_TOPICS]
