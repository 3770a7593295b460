"""Categories of each text: its side, label, split, group, topic and search result.

A text may be in several rows; its category is then the first one in the order given here.
"""

import numpy as np

from bsc_core import formatting
from bsc_core.data.io.tables import read_table
from bsc_core.data.load import DatasetSplits
from bsc_core.data.read_report import ReadReport
from bsc_core.errors import BscError
from bsc_core.evaluation.retrieval import search_errors
from bsc_core.figures import theme
from bsc_core.figures.evaluation import maps

MAX_TOPICS = 40
Columns = dict[str, dict[int, str]]  # name -> line in the file -> cell
ERRORS = {
    search_errors.FIRST: theme.POSITIVE,
    search_errors.IN_TOP_10: theme.CATEGORIES[5],
    search_errors.MISSED: theme.HARD_NEGATIVE,
    search_errors.ABOVE_RELEVANT: theme.FALSE_NEGATIVE,
    search_errors.NOT_SEARCHED: theme.REFERENCE,
}


def colorings(data: DatasetSplits, *, with_columns: bool) -> dict[str, maps.Coloring]:
    """Return the colorings of all U texts: side, label, split and group.

    Args:
        data: The texts and rows.
        with_columns: Whether to include the file columns with few values that are not part of the pairs.
    """
    result = {"side": maps.coloring(sides(data), maps.SIDES)}
    if data.train.label is not None:
        result["label"] = maps.coloring(labels(data), maps.LABELS)
    for name, values in (topics(data) if with_columns else {}).items():
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
    """Return the unused file columns with few values, such as a topic: column -> value of each text.

    A text of a file without the column, or without a row of a file, has the value `none`.
    """
    tables: dict[str, Columns] = {}
    values: dict[str, list[str]] = {}
    for part in data.splits.values():
        numbers = np.zeros(len(part), dtype=np.int32) if part.source is None else part.source
        for number, report in enumerate((part.report, *data.mix_reports)):
            rows = np.flatnonzero(numbers == number).tolist()
            if rows and report.source not in tables:
                tables[report.source] = _unused_columns(report)
            for column, cells in tables.get(report.source, {}).items() if rows else ():
                names = values.setdefault(column, ["none"] * len(data.texts))
                for row in rows:
                    if (cell := cells.get(int(part.line[row]))) is not None:
                        names[part.query[row]] = names[part.document[row]] = cell
    cells_of = {name: [one[name].values() for one in tables.values() if name in one] for name in values}
    return {name: values[name] for name, cells in cells_of.items() if 2 <= len(set().union(*cells)) <= MAX_TOPICS}


def _unused_columns(report: ReadReport) -> Columns:
    """Return the columns of a file that are not part of the pairs, each as line -> cell; {} if it cannot be read."""
    try:
        table = read_table(report.source)
    except BscError:  # the file was moved after the run; its topics are optional
        return {}
    roles = report.columns.model_dump().values()
    used = {name for role in roles for name in ([role] if isinstance(role, str) else role or ())}
    unused = {name: cells for name, cells in table.columns.items() if name not in used}
    few = {name: cells for name, cells in unused.items() if len(set(cells)) <= MAX_TOPICS}
    return {name: dict(zip(map(int, table.line), cells, strict=True)) for name, cells in few.items()}
