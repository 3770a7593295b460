"""Column roles, guessed from common names; every guess is reported."""

import math
import re
from collections.abc import Mapping, Sequence

from bsc_core.config import ColumnNames, Columns, CorpusColumns, ExamplesConfig, SentenceColumns
from bsc_core.data.schema.classes import is_class_word
from bsc_core.errors import ColumnError

Examples = Mapping[str, Sequence[str]]

# Names in lower case without punctuation; earlier names take precedence.
# fmt: off
QUERY = (
    "query", "question", "anchor", "sentence1", "premise", "texta", "text1", "question1", "sentencea", "sent1",
    "s1", "q1", "tweet",
)
DOCUMENT = (
    "document", "doc", "answer", "positive", "passage", "sentence2", "hypothesis", "textb", "text2",
    "question2", "sentenceb", "sent2", "s2", "q2", "response", "reply", "comment", "candidate", "claim",
    "vclaim", "context", "text", "sentence",
)
LABEL = (
    "label", "score", "similarity", "similarityscore", "relevance", "relatedness", "relatednessscore", "rel",
    "gold", "goldlabel", "isduplicate", "grade", "rating", "target",
)
SENTENCE = (
    "text", "sentence", "content", "body", "utterance", "review", "tweet", "title", "headline", "question", "query",
)
# fmt: on
DOCUMENT_ID = ("documentid", "docid", "answerid", "passageid", "claimid", "vclaimid", "hypothesisid")
SPLIT = ("split", "subset", "partition")
OTHER_ROLES = {
    "negative": ("negative", "hardnegative", "neg", "negativedocument", "negativepassage"),
    "query_id": ("queryid", "qid", "questionid", "premiseid", "anchorid"),
    "document_id": DOCUMENT_ID,
    "split": SPLIT,
}
CORPUS_DOCUMENT = ("document", "doc", "text", "passage", "claim", "vclaim", "answer", "content", "body", "sentence")
CLASS = ("label", "class", "classlabel", "category", "topic", "intent", "sentiment", "polarity", "goldlabel", "target")
CORPUS_ID = (*DOCUMENT_ID, "id", "key")
QUERY_PARTS = (("querysubject", "querybody"), ("questionsubject", "questionbody"), ("querytitle", "querybody"))
DOCUMENT_PARTS = (("docsubject", "docbody"), ("documentsubject", "documentbody"), ("doctitle", "docbody"))


def guess_columns(
    names: Sequence[str],
    examples: Examples | None = None,
    *,
    query: ColumnNames | None = None,
    document: ColumnNames | None = None,
) -> Columns:
    """Guess the column of each role of a file of pairs.

    Args:
        names: The columns.
        examples: Some cells of each column; they distinguish numeric labels from class names.
        query: The column of the queries; None to guess it.
        document: The column of the documents; None to guess it.

    Raises:
        ColumnError: No column looks like the query or the document, the label column contains only words, or there are
            several columns of negatives.
    """
    known = _by_plain_name(names)
    guessed = guess_text_columns(names)
    query, document = query or guessed[0], document or guessed[1]
    missing = [role for role, column in (("query", query), ("document", document)) if column is None]
    if query is None or document is None:
        fix = 'rename them in the file, or name them in the config: columns = {query = "...", document = "..."}'
        raise _no_column(" or the ".join(missing), names, fix)
    label, class_label = _guess_label(known, examples or {})
    class_label = class_label or known.get("classlabel")  # as `bsc convert` names it
    others = {role: _first(known, wanted) for role, wanted in OTHER_ROLES.items()}
    numbered = [name for plain, name in reversed(known.items()) if re.fullmatch(r"(hard)?(neg|negative)\d+", plain)]
    if numbered and others["negative"] is None:
        raise ColumnError(
            f"the columns {_listed(numbered)} look like negatives, but a row has one negative; write a row for "
            "each of them, as `bsc mine --layout triplet` does, or map one of them as negative"
        )
    return Columns(query=query, document=document, label=label, class_label=class_label, **others)


def guess_text_columns(names: Sequence[str]) -> tuple[ColumnNames | None, ColumnNames | None]:
    """Guess the columns of the query and of the document of a file of pairs; None for one that is not recognized."""
    known = _by_plain_name(names)
    query = _joined(known, QUERY_PARTS) or _first(known, QUERY)
    return query, _joined(known, DOCUMENT_PARTS) or _first(known, DOCUMENT)


def columns_by_texts(names: Sequence[str], examples: Examples) -> list[str]:
    """Return the columns that are no text of a pair by their names, those that may be one first, in their order.

    A text contains not only numbers, and its column is not named as another role. If there are more such columns than
    texts without one, those with the longest texts come first, and those with a single distinct text last.
    """
    known, guessed = _by_plain_name(names), guess_text_columns(names)
    texts = {name for one in guessed for name in as_names(one or ())}
    of_roles = (*LABEL, *CORPUS_ID, "classlabel", *(name for wanted in OTHER_ROLES.values() for name in wanted))
    roles = {known[name] for name in of_roles if name in known}
    others = [name for name in names if name not in texts]
    no_texts = {name for name in others if name in roles or all(map(is_number, examples.get(name, ())))}
    constant = {name for name in others if len(set(examples.get(name, ()))) <= 1}
    by_length = sorted(others, key=lambda name: (name in no_texts, name in constant, _length(examples.get(name, ()))))
    longest = by_length[: guessed.count(None)]
    return sorted(others, key=lambda name: (name not in longest, name in no_texts))


def _length(cells: Sequence[str]) -> tuple[int, int]:
    """Return minus the number of words and of characters of the cells; an id can be long and is one word."""
    return -sum(len(cell.split()) for cell in cells), -sum(map(len, cells))


def label_by_values(names: Sequence[str], examples: Examples) -> str | None:
    """Return the first of the columns with the numbers of a scale, and not one for each row; None without one."""
    return next((name for name in names if _are_graded(examples.get(name, ()))), None)


def _are_graded(cells: Sequence[str]) -> bool:
    """Whether cells are numbers that repeat or have fractions, as labels do, in contrast to ids."""
    if not cells or not all(map(is_number, cells)):
        return False
    different = {float(cell) for cell in cells}
    has_fractions = any(not value.is_integer() for value in different)
    return len(different) > 1 and (has_fractions or 2 * len(different) <= len(cells))


def guess_corpus_columns(names: Sequence[str], examples: Examples | None = None) -> CorpusColumns:
    """Guess the column of each role of a corpus.

    Raises:
        ColumnError: No column looks like the document.
    """
    known = _by_plain_name(names)
    document = _joined(known, DOCUMENT_PARTS) or _first(known, CORPUS_DOCUMENT)
    if document is None:
        fix = 'rename it in the file, or name it in the config: corpus_columns = {document = "..."}'
        raise _no_column("document", names, fix)
    return CorpusColumns(document=document, document_id=_first(known, CORPUS_ID))


def guess_query_columns(names: Sequence[str]) -> tuple[str, str | None, str | None]:
    """Guess the columns of a file of queries: the query, the document or None, and the label of the pair or None.

    A single column contains the queries, whatever its name.

    Raises:
        ColumnError: No column looks like the query.
    """
    known = _by_plain_name(names)
    query = _first(known, QUERY) or (names[0] if len(names) == 1 else None)
    if query is None:
        raise _no_column("query", names, "name it 'query', and the relevant document, if there is one, 'document'")
    document = _first(known, ("gold", *DOCUMENT), other_than=query)
    return query, document, _first(known, ("classlabel", *LABEL)) if document not in (None, known.get("gold")) else None


def guess_sentence_columns(names: Sequence[str], given: ExamplesConfig) -> SentenceColumns:
    """Guess the columns of a file of classified sentences; names in `given` take precedence, "" means no split.

    Raises:
        ColumnError: No column looks like the text or the class, or both are the same column.
    """
    known = _by_plain_name(names)
    label = given.class_label or _first(known, CLASS, other_than=given.text)
    text = given.text or _first(known, SENTENCE, other_than=label)
    if text is None or label is None:
        field, what = ("text", "sentence") if text is None else ("class_label", "class")
        fix = f'rename it in the file, or name it in the config: data.examples.{field} = "..."'
        raise _no_column(what, names, fix)
    if label in as_names(text):
        raise ColumnError(f"column {label!r} is used as text and as class_label; change one of them")
    split = _first(known, SPLIT) if given.split is None else given.split or None
    return SentenceColumns(text=text, class_label=label, split=split)


def require_columns(columns: Columns | CorpusColumns | SentenceColumns, names: Sequence[str]) -> None:
    """Raise ColumnError when a mapped column is missing, or when one column has two roles."""
    roles = columns.model_dump(exclude_none=True)
    for role, given in roles.items():
        absent = [f"there is no column {name!r} for {role}" for name in as_names(given) if name not in names]
        if absent or not as_names(given):
            fault = absent[0] if absent else f"{role} names no column"
            raise ColumnError(f"{fault}; the columns are {_listed(names)}; map {role} to one of them")
        if len(set(as_names(given))) < len(as_names(given)):
            raise ColumnError(f"a column is named twice for {role}; name each column once")
    used: dict[str, str] = {}
    for role in ("query", "document", "label", "split"):
        for name in as_names(roles.get(role, ())):
            if name in used:
                raise ColumnError(f"column {name!r} is used as {used[name]} and as {role}; change one of them")
            used[name] = role


def as_names(columns: ColumnNames | list[str]) -> tuple[str, ...]:
    """Return the column names of a role as a tuple."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def is_class_column(name: str) -> bool:
    """Return whether a column is named as those that `bsc convert` writes for classes."""
    return "classlabel" in _by_plain_name([name])


def number_of(cell: str) -> float:
    """Return the number in a cell; raises ValueError without one, and for `1_0`, which Python reads as 10."""
    if "_" in cell:
        raise ValueError(f"{cell} is not a number")
    return float(cell)


def is_number(cell: str) -> bool:
    """Return whether a cell is a finite number."""
    try:
        return math.isfinite(number_of(cell))
    except ValueError:
        return False


def _guess_label(known: Mapping[str, str], examples: Examples) -> tuple[str | None, str | None]:
    """Return the column of numeric labels, or the column of NLI classes, or neither."""
    candidates = [known[name] for name in LABEL if name in known]
    for name in candidates:
        cells = examples.get(name, ())
        if not cells or any(is_number(cell) and not is_class_word(cell) for cell in cells):
            return name, None
    classes = next((name for name in candidates if all(is_class_word(cell) for cell in examples[name])), None)
    if classes is not None:
        return None, classes
    if candidates:
        name = candidates[0]
        raise ColumnError(
            f"column {name!r} looks like the label but contains words such as {examples[name][0]!r}; "
            "map the columns yourself, as class_label, with a numeric label, or without one if every pair is positive"
        )
    return None, None


def _by_plain_name(names: Sequence[str]) -> dict[str, str]:
    return {"".join(filter(str.isalnum, name.lower())): name for name in reversed(names)}


def _first(known: Mapping[str, str], wanted: Sequence[str], other_than: ColumnNames | None = None) -> str | None:
    return next((known[name] for name in wanted if name in known and known[name] != other_than), None)


def _joined(known: Mapping[str, str], wanted: Sequence[tuple[str, str]]) -> tuple[str, ...] | None:
    return next(((known[head], known[body]) for head, body in wanted if head in known and body in known), None)


def _no_column(role: str, names: Sequence[str], suggestion: str) -> ColumnError:
    return ColumnError(f"no column looks like the {role}; the columns are {_listed(names)}; {suggestion}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"'{name if len(name) <= 40 else name[:39] + '…'}'" for name in names[:30])
    return shown + (f" and {len(names) - 30} more" if len(names) > 30 else "")
