"""Which column plays which role, guessed from the names people give them; a guess is always reported, never hidden."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bsc_core.config import ColumnNames, Columns, CorpusColumns, ExamplesConfig, SentenceColumns
from bsc_core.data.classes import is_class_word
from bsc_core.errors import ColumnError

Examples = Mapping[str, Sequence[str]]

# Names in lower case without punctuation; an earlier name wins.
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
# fmt: on
QUERY_ID = ("queryid", "qid", "questionid", "premiseid", "anchorid")
DOCUMENT_ID = ("documentid", "docid", "answerid", "passageid", "claimid", "vclaimid", "hypothesisid")
NEGATIVE = ("negative", "hardnegative", "neg", "negativedocument", "negativepassage")
SPLIT = ("split", "subset", "partition")
CORPUS_DOCUMENT = ("document", "doc", "text", "passage", "claim", "vclaim", "answer", "content", "body", "sentence")
SENTENCE = (
    "text",
    "sentence",
    "content",
    "body",
    "utterance",
    "review",
    "tweet",
    "title",
    "headline",
    "question",
    "query",
)
CLASS = ("label", "class", "classlabel", "category", "topic", "intent", "sentiment", "polarity", "goldlabel", "target")
CORPUS_ID = (*DOCUMENT_ID, "id", "key")
QUERY_PARTS = (("querysubject", "querybody"), ("questionsubject", "questionbody"), ("querytitle", "querybody"))
DOCUMENT_PARTS = (("docsubject", "docbody"), ("documentsubject", "documentbody"), ("doctitle", "docbody"))


def guess_columns(names: Sequence[str], examples: Examples | None = None) -> Columns:
    """The roles of a pair file's columns.

    examples: some cells of each column, which tell a numeric label from a class in words. Raises ColumnError listing
    the columns when the query or the document cannot be told, or naming the label column when it holds only words.
    """
    known = {_plain(name): name for name in reversed(names)}
    query = _joined(known, QUERY_PARTS) or _first(known, QUERY)
    document = _joined(known, DOCUMENT_PARTS) or _first(known, DOCUMENT)
    missing = [role for role, column in (("query", query), ("document", document)) if column is None]
    if query is None or document is None:
        raise ColumnError(
            f"cannot tell which column holds the {' and the '.join(missing)}; the columns are {_listed(names)}; "
            'name them, such as columns = {query = "...", document = "..."}'
        )
    label, class_label = _guess_label(known, examples or {})
    return Columns(
        query=query,
        document=document,
        label=label,
        class_label=class_label,
        negative=_first(known, NEGATIVE),
        query_id=_first(known, QUERY_ID),
        document_id=_first(known, DOCUMENT_ID),
        split=_first(known, SPLIT),
    )


def guess_corpus_columns(names: Sequence[str], examples: Examples | None = None) -> CorpusColumns:
    """The roles of a corpus file's columns. Raises ColumnError listing the columns when the document cannot be told."""
    known = {_plain(name): name for name in reversed(names)}
    document = _joined(known, DOCUMENT_PARTS) or _first(known, CORPUS_DOCUMENT)
    if document is None:
        raise ColumnError(
            f"cannot tell which column holds the document; the columns are {_listed(names)}; "
            'name it, such as corpus_columns = {document = "..."}'
        )
    return CorpusColumns(document=document, document_id=_first(known, CORPUS_ID))


def guess_query_columns(names: Sequence[str]) -> tuple[str, str | None]:
    """The columns of a file of queries: the query, and the right document or None.

    A file of one column holds queries, whatever it is called. Raises ColumnError listing the columns when the query
    cannot be told.
    """
    known = {_plain(name): name for name in reversed(names)}
    query = _first(known, QUERY) or (names[0] if len(names) == 1 else None)
    if query is None:
        raise ColumnError(
            f"cannot tell which column holds the query; the columns are {_listed(names)}; name it 'query', and the "
            "right document, where there is one, 'document'"
        )
    return query, _first({key: name for key, name in known.items() if name != query}, ("gold", *DOCUMENT))


def guess_sentence_columns(names: Sequence[str], given: ExamplesConfig) -> SentenceColumns:
    """The roles of a file of classified sentences; those that `given` names are taken from it, "" for no split.

    Raises ColumnError listing the columns when the text or the class cannot be told, or both are one column.
    """
    known = {_plain(name): name for name in reversed(names)}
    label = given.class_label or _first({key: name for key, name in known.items() if name != given.text}, CLASS)
    text = given.text or _first({key: name for key, name in known.items() if name != label}, SENTENCE)
    if text is None or label is None:
        field, what = ("text", "sentence") if text is None else ("class_label", "class")
        raise ColumnError(
            f"cannot tell which column holds the {what}; the columns are {_listed(names)}; "
            f'name it, such as data.examples.{field} = "..."'
        )
    if label in as_names(text):
        raise ColumnError(f"column {label!r} is mapped to text and to class_label; map class_label to another column")
    split = _first(known, SPLIT) if given.split is None else given.split or None
    return SentenceColumns(text=text, class_label=label, split=split)


def require_columns(columns: Columns | CorpusColumns | SentenceColumns, names: Sequence[str]) -> None:
    """Raise ColumnError when a mapped column is not there, or when one column was given two roles."""
    roles = columns.model_dump(exclude_none=True)
    for role, given in roles.items():
        absent = [name for name in as_names(given) if name not in names]
        if absent:
            raise ColumnError(
                f"there is no column {absent[0]!r} for {role}; the columns are {_listed(names)}; "
                f"map {role} to one of them"
            )
        if not as_names(given):
            raise ColumnError(f"{role} names no column; the columns are {_listed(names)}; map {role} to one of them")
    used: dict[str, str] = {}
    for role in ("query", "document", "label", "split"):
        for name in as_names(roles.get(role, ())):
            if name in used:
                raise ColumnError(
                    f"column {name!r} is mapped to {used[name]} and to {role}; map {role} to another column"
                )
            used[name] = role


def as_names(columns: ColumnNames | list[str]) -> tuple[str, ...]:
    """The column names of a role as a tuple."""
    return (columns,) if isinstance(columns, str) else tuple(columns)


def is_number(cell: str) -> bool:
    """Whether a cell reads as a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _guess_label(known: Mapping[str, str], examples: Examples) -> tuple[str | None, str | None]:
    """The column of graded labels, or the one of NLI's classes, or neither."""
    candidates = [known[name] for name in LABEL if name in known]
    for name in candidates:
        cells = examples.get(name, ())
        if not cells or any(is_number(cell) and not is_class_word(cell) for cell in cells):
            return name, None
    told = next((name for name in candidates if all(is_class_word(cell) for cell in examples[name])), None)
    if told is not None:
        return None, told
    if candidates:
        name = candidates[0]
        raise ColumnError(
            f"column {name!r} looks like the label but holds words such as {examples[name][0]!r}; "
            "map the columns yourself, as class_label, with a numeric label, or without one if every pair is positive"
        )
    return None, None


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _first(known: Mapping[str, str], wanted: Sequence[str]) -> str | None:
    return next((known[name] for name in wanted if name in known), None)


def _joined(known: Mapping[str, str], wanted: Sequence[tuple[str, str]]) -> tuple[str, ...] | None:
    return next(((known[head], known[body]) for head, body in wanted if head in known and body in known), None)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(name if len(name) <= 40 else name[:39] + "…" for name in names[:30])
    return shown + (f" and {len(names) - 30} more" if len(names) > 30 else "")
