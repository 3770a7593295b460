"""Categories of each text: its side, label, split, group, topic and search result.

A text may be in several rows; its category is then the first one in the order given here.
"""

import numpy as np

from bsc_core import formatting
from bsc_core.data.io.tables import read_table
from bsc_core.data.load import DatasetSplits
from bsc_core.errors import BscError
from bsc_core.evaluation.retrieval import search_errors
from bsc_core.figures import theme
from bsc_core.figures.evaluation import maps

MAX_TOPICS = 40
ERRORS = {
    search_errors.FIRST: theme.POSITIVE,
    search_errors.IN_TOP_10: theme.CATEGORIES[5],
    search_errors.MISSED: theme.HARD_NEGATIVE,
    search_errors.ABOVE_RELEVANT: theme.FALSE_NEGATIVE,
    search_errors.NOT_SEARCHED: theme.REFERENCE,
}


def colorings(data: DatasetSplits) -> dict[str, maps.Coloring]:
    """Return the colorings of all U texts: side, label, split, group, and every file column with few values."""
    result = {"side": maps.coloring(sides(data), maps.SIDES)}
    if data.train.label is not None:
        result["label"] = maps.coloring(labels(data), maps.LABELS)
    for name, values in topics(data).items():
        result[name] = maps.coloring(values)
    result["split"] = maps.coloring(splits(data))
    result["group"] = maps.coloring(groups(data))
    return result


def sides(data: DatasetSplits) -> list[str]:
    """Return the side of each text: query, document, or both."""
    query, document = np.zeros(len(data.texts), bool), np.zeros(len(data.texts), bool)
    for part in data.splits.values():
        query[part.query] = True
        document[part.document] = True
    if data.corpus is not None:
        document[data.corpus.document] = True
    both = query & document
    return list(np.where(both, "both", np.where(query, "query", "document")).tolist())


def labels(data: DatasetSplits) -> list[str]:
    """Return the label of each text: positive if it is in a positive pair, negative if only in negative ones."""
    positive, negative = np.zeros(len(data.texts), bool), np.zeros(len(data.texts), bool)
    for part in data.splits.values():
        for column in (part.query, part.document):
            positive[column[part.positive]] = True
            negative[column[~part.positive]] = True
    return list(np.where(positive, "positive", np.where(negative, "negative", "not labeled")).tolist())


def splits(data: DatasetSplits) -> list[str]:
    """Return the first split with each text; corpus for texts in no split."""
    names = np.full(len(data.texts), "corpus only", dtype=object)
    for name, part in reversed(data.splits.items()):
        names[part.query] = name
        names[part.document] = name
    return names.tolist()


def groups(data: DatasetSplits) -> list[str]:
    """Return the start of the query whose pairs contain each text."""
    names = np.full(len(data.texts), "no group", dtype=object)
    for part in reversed(data.splits.values()):
        for query, document in zip(part.query.tolist(), part.document.tolist(), strict=True):
            names[query] = names[document] = formatting.shorten(data.texts[query], 32)
    return names.tolist()


def errors(data: DatasetSplits, vectors: np.ndarray, ids: np.ndarray | None) -> maps.Coloring:
    """Return the result of a search with every dev and test query, for each text.

    Args:
        data: The texts and rows.
        vectors: (N, D) vectors of the texts `ids`, which are searched.
        ids: Ascending text ids; None for all texts.
    """
    searched = np.arange(len(data.texts)) if ids is None else ids
    names = np.full(len(data.texts), search_errors.NOT_SEARCHED, dtype=object)
    parts = [part for name, part in data.splits.items() if name != "train"]
    names[searched] = search_errors.search_errors(parts, data.corpus, vectors, texts=ids)
    return maps.coloring(names.tolist(), ERRORS)


def topics(data: DatasetSplits) -> dict[str, list[str]]:
    """Return the unused file columns with few values, such as a topic: column -> value of each text."""
    values: dict[str, list[str]] = {}
    for part in data.splits.values():
        try:
            table = read_table(part.report.source)
        except BscError:  # the file was moved after the run; its topics are optional
            continue
        position = {line: row for row, line in enumerate(table.line)}
        for column in _unused_columns(table.columns, part.report.columns.model_dump()):
            names = values.setdefault(column, ["none"] * len(data.texts))
            for query, document, line in zip(part.query, part.document, part.line, strict=True):
                if int(line) in position:
                    names[query] = names[document] = table.columns[column][position[int(line)]]
    return values


def _unused_columns(columns: dict[str, list[str]], roles: dict[str, str | tuple[str, ...] | None]) -> list[str]:
    used = {name for role in roles.values() for name in ([role] if isinstance(role, str) else role or ())}
    return [name for name, cells in columns.items() if name not in used and 2 <= len(set(cells)) <= MAX_TOPICS]
