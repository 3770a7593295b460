"""Decisions of a person about pairs that look like false negatives: a TSV file of texts and decisions.

The file has the columns query, document, decision, who and when. A file with query and document only contains
dropped pairs.
"""

# P, F, T decided pairs: positive; positive or dropped; negative; A pairs that become training rows

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from bsc_core.data.dataset import DatasetSplits, PairDataset, concatenate_rows
from bsc_core.data.io.tables import max_line, read_table
from bsc_core.data.schema.classes import NLI
from bsc_core.data.text_normalization import normalize_text
from bsc_core.errors import ColumnError, DataError, FileFormatError
from bsc_core.files import atomic_write, error_reason, file_lock, rows_as_tsv
from bsc_core.formatting import plural
from bsc_core.types import Ids, Indices

DecisionKind = Literal["positive", "drop", "true_negative"]
KINDS: tuple[DecisionKind, ...] = get_args(DecisionKind)
TextIdentity = Literal["exact", "normalized"]
TextPair = tuple[str, str]  # the texts of a query and of a document
MAX_HEADER_BYTES = 1000


@dataclass(frozen=True)
class Decision:
    """A decision about one pair of texts.

    Attributes:
        query: Text of the query.
        document: Text of the document.
        decision: `positive`: the document is relevant. `drop`: neither positive nor negative. `true_negative`: it is
            not relevant.
        who: Name of the person, or empty.
        when: Time of the decision (ISO 8601, UTC), or empty.
    """

    query: str
    document: str
    decision: DecisionKind = "drop"
    who: str = ""
    when: str = ""

    @property
    def pair(self) -> TextPair:
        """The texts of the query and of the document."""
        return self.query, self.document


HEADER = tuple(field.name for field in fields(Decision))


@dataclass(frozen=True)
class Merge:
    """The result of merging two files: all decisions, and the pairs that the files decide differently.

    Attributes:
        decisions: The first file's decisions, then the new ones of the second file.
        added: Number of new decisions.
        conflicts: (first, second) decision of each conflict; `decisions` has the first.
    """

    decisions: tuple[Decision, ...]
    added: int
    conflicts: tuple[tuple[Decision, Decision], ...]


def read_decisions(path: Path | str) -> list[Decision]:
    """Read the decisions of a file, one for each pair of texts; the file may have no rows.

    Raises:
        PathError: The file cannot be read.
        FileFormatError: The file is unusable.
        ColumnError: The column query or document is missing.
        DataError: A decision is unknown, or two decisions about one pair contradict each other.
    """
    try:
        table = read_table(path)
    except FileFormatError:
        if _is_header_only(Path(path)):
            return []
        raise
    if table.rejected:
        raise DataError(f"{path}: {table.rejected[0].sentence(table.unit)}; correct this row of decisions")
    if nested := table.nested.intersection(HEADER):
        raise ColumnError(f"{path}: {min(nested)} contains lists or objects; give a text in each row")
    columns = table.columns
    missing = [name for name in HEADER[:2] if name not in columns]
    if missing:
        raise ColumnError(
            f"{path}: {' and '.join(missing)} is missing; give decided pairs in the columns query and document"
        )
    rows = len(columns["query"])
    values = [columns.get(name, [""] * rows) for name in HEADER]
    decided: dict[TextPair, Decision] = {}
    for line, (query, document, name, who, when) in enumerate(zip(*values, strict=True), 2):
        kind = name.strip() or "drop"
        if kind not in KINDS:
            raise DataError(f"{path}: row {line} has the decision {name!r}; use one of {', '.join(KINDS)}")
        decision = Decision(query.strip(), document.strip(), cast(DecisionKind, kind), who, when)
        first = decided.setdefault(decision.pair, decision)
        if first.decision != kind:
            raise DataError(
                f"{path}: row {line} decides {kind} for a pair that an earlier row decides {first.decision} "
                f"(query {query[:60]!r}); remove one of the two rows"
            )
    return list(decided.values())


def write_decisions(path: Path | str, decisions: Iterable[Decision]) -> None:
    """Write a file atomically."""
    atomic_write(Path(path), as_text(decisions))


def as_text(decisions: Iterable[Decision]) -> str:
    """Return the content of a file of decisions."""
    return rows_as_tsv([HEADER, *map(astuple, decisions)])


def add_decisions(path: Path | str, decisions: Sequence[Decision]) -> None:
    """Add decisions to the file, which is created when it is missing. A new decision about a pair replaces the old.

    A decision without a time gets the present one.

    Raises:
        InputError: As `read_decisions`, or the file has other columns or none of decisions, or the texts of a decision
            are longer than a row that can be read.
    """
    if any(2 * sum(len(text.encode()) for text in decision.pair) > max_line() for decision in decisions):
        raise DataError("the texts of this pair are too long for a file of decisions; shorten them in the data")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with _lock(path):
        decided = {decision.pair: decision for decision in _existing(path)}
        for decision in decisions:
            previous = decided.get(decision.pair)
            if previous is None or previous.decision != decision.decision:
                decided[decision.pair] = decision if decision.when else replace(decision, when=now)
        write_decisions(path, decided.values())


def undo_decisions(path: Path | str, pairs: Iterable[TextPair]) -> None:
    """Remove the decisions about these pairs of texts from the file, where it has them."""
    undone = set(pairs)
    with _lock(path):
        if decided := _existing(path):
            write_decisions(path, [one for one in decided if one.pair not in undone])


@contextmanager
def _lock(path: Path | str) -> Iterator[None]:
    """Hold the lock of a file of decisions, so that those of another app on the same file are not lost."""
    lock = Path(path).with_name(f".{Path(path).name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        with file_lock(lock):
            yield
    except OSError as error:
        raise DataError(f"{path}: cannot be changed ({error_reason(error)}); check its folder") from None


def merge_decisions(first: Iterable[Decision], second: Iterable[Decision]) -> Merge:
    """Merge the decisions of two people. Where they decide a pair differently, the first decision stays."""
    decided = {decision.pair: decision for decision in first}
    known = len(decided)
    conflicts = []
    for decision in second:
        previous = decided.setdefault(decision.pair, decision)
        if previous.decision != decision.decision:
            conflicts.append((previous, decision))
    return Merge(tuple(decided.values()), len(decided) - known, tuple(conflicts))


def with_decisions(
    dataset: PairDataset, decisions: Iterable[Decision], text_identity: TextIdentity = "exact"
) -> PairDataset:
    """Return the dataset with the decisions whose texts are both in it.

    The labels of decided rows become 1 (positive) and 0 (true negative) where the dataset has labels. With classes of
    NLI, those decided positive are entailed.

    Args:
        dataset: The pairs.
        decisions: Decisions about pairs of texts.
        text_identity: Which texts of dataset and decisions are equal, as `data.text_identity`.

    Raises:
        DataError: Two decisions about one pair contradict each other.
    """
    given = list(decisions)
    key: Callable[[str], str] = str if text_identity == "exact" else normalize_text
    wanted = {key(text) for decision in given for text in decision.pair}
    texts, queries = dataset.texts, dataset.texts.queries or 0
    ids = {key(text): number for number, text in enumerate(texts) if key(text) in wanted}  # documents last
    of_queries = {key(text): number for number, text in enumerate(texts.texts[:queries])} if queries else ids
    pairs: dict[DecisionKind, list[tuple[int, int]]] = {kind: [] for kind in KINDS}
    kind_of: dict[tuple[int, int], DecisionKind] = {}
    for decision in given:
        query, document = of_queries.get(key(decision.query)), ids.get(key(decision.document), -1)
        if query is not None and document >= queries:
            if (first := kind_of.setdefault((query, document), decision.decision)) != decision.decision:
                raise DataError(
                    f"the decisions {first} and {decision.decision} are about equal texts (query "
                    f"{decision.query[:60]!r}, data.text_identity = {text_identity!r}); remove one of them"
                )
            pairs[decision.decision].append((query, document))
    positive, drop, negative = (np.asarray(pairs[kind], dtype=np.int32).reshape(-1, 2) for kind in KINDS)
    decided = replace(
        dataset,
        false_negatives=np.concatenate([positive, drop]),
        decided_positives=positive if len(positive) else None,
        decided_negatives=negative if len(negative) else None,
    )
    if dataset.label is None or not (len(positive) or len(negative)):
        return decided
    label = dataset.label.copy()
    label[decided.has_pair(positive)] = 1.0
    label[decided.has_pair(negative)] = 0.0
    classes = decided.classes
    if classes is not None and decided.class_names == NLI:
        classes = np.where(decided.has_pair(positive), NLI.index("entailment"), classes).astype(classes.dtype)
    return replace(decided, label=label, classes=classes)


def apply_decisions(
    data: DatasetSplits, decisions: Sequence[Decision], text_identity: TextIdentity = "exact"
) -> DatasetSplits:
    """Return the splits with the decisions whose texts are in the data; see `with_decisions`."""
    return data.with_splits(
        {name: with_decisions(split, decisions, text_identity) for name, split in data.splits.items()}
    )


def contradicted_rows(train: PairDataset) -> npt.NDArray[np.bool_]:
    """Return bool (N,): training rows that contradict a decision, which training leaves out.

    These are rows labeled negative and triplets whose negative was decided positive or dropped, and unlabeled or
    entailed pairs that were decided true negative.
    """
    wrong = ~train.positive & train.has_pair(train.marked_pairs)
    if train.negative is not None:
        wrong |= train.has_pair(train.marked_pairs, train.negative)
    if train.decided_negatives is not None and (train.label is None or train.class_names == NLI):
        entailed = train.classes == NLI.index("entailment") if train.label is not None else True
        wrong |= train.has_pair(train.decided_negatives) & entailed
    return np.asarray(wrong, dtype=bool)


def decided_rows(train: PairDataset) -> PairDataset:
    """Return the training rows without those that contradict a decision, and with the pairs decided positive.

    A pair decided positive becomes a last row where it is none, its query has a positive row, and the rows have no
    classes. It takes query id, file and negative from the query's first positive row; its label is 1.
    """
    rows, documents = _new_positives(train)
    contradicted = contradicted_rows(train)
    left = train.take(np.flatnonzero(~contradicted)) if contradicted.any() else train
    if not len(rows):
        return left
    added = replace(train.take(rows), document=documents)
    if train.label is not None:
        added = replace(added, label=np.ones(len(rows), dtype=np.float32))
    if train.document_key is not None:
        keys = dict(zip(train.document.tolist(), train.document_key, strict=True))
        added = replace(added, document_key=tuple(keys.get(document, "") for document in documents.tolist()))
    return concatenate_rows([left, added])


def _new_positives(train: PairDataset) -> tuple[Indices, Ids]:
    """Return (A,) the first positive row of the query, and (A,) the document, of each pair that `decided_rows` adds."""
    usable = train.positive.copy()
    if train.negative is not None:
        usable &= ~contradicted_rows(train)
    positives = np.flatnonzero(usable)
    if train.decided_positives is None or train.classes is not None or not len(positives):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    queries, first = np.unique(train.query[positives], return_index=True)
    pairs = np.unique(train.decided_positives, axis=0)
    position = np.minimum(np.searchsorted(queries, pairs[:, 0]), len(queries) - 1)
    keys = pairs.astype(np.int64) @ [len(train.texts), 1]
    known = np.isin(keys, train.query.astype(np.int64) * len(train.texts) + train.document)
    new = (queries[position] == pairs[:, 0]) & ~known
    return positives[first[position[new]]], pairs[new, 1].astype(np.int32)


def applied_sentence(data: PairDataset) -> str | None:
    """Return a sentence: "2 decisions applied: 1 positive, 1 dropped (ignored by the loss); 6 training rows removed".

    The removed rows, and added ones such as ", 1 added", are those of `decided_rows`. None without decisions.
    """
    positives = 0 if data.decided_positives is None else len(data.decided_positives)
    negatives = 0 if data.decided_negatives is None else len(data.decided_negatives)
    dropped = len(data.marked_pairs) - positives
    if not (positives or dropped or negatives):
        return None
    rows = int(contradicted_rows(data).sum())
    parts = [(positives, plural(positives, "positive")), (dropped, f"{dropped:,} dropped (ignored by the loss)")]
    parts.append((negatives, plural(negatives, "true negative")))
    counts = ", ".join(text for number, text in parts if number)
    added = len(_new_positives(data)[0])
    changes = f"{plural(rows, 'training row')} removed" + (f", {added:,} added" if added else "")
    return f"{plural(positives + dropped + negatives, 'decision')} applied: {counts}; {changes}"


def decisions_sentence(decisions: Sequence[Decision]) -> str:
    """Return a sentence such as "4 decisions: 2 positive, 1 drop, 1 true negative"."""
    counts = Counter(decision.decision for decision in decisions)
    parts = ", ".join(f"{counts[kind]:,} {kind.replace('_', ' ')}" for kind in KINDS if counts[kind])
    return plural(len(decisions), "decision") + (f": {parts}" if parts else "")


def _existing(path: Path | str) -> list[Decision]:
    """Return the decisions of a file that will be changed. Raises DataError if it may be another table of pairs."""
    if not Path(path).is_file():
        return []
    if not _is_header_only(Path(path)):
        names = set(read_table(path).columns)
        if others := names - set(HEADER):
            raise DataError(
                f"{path}: has the column {min(others)!r}, so it is not a file of decisions and is not changed; choose "
                "another file for data.false_negatives"
            )
        if "decision" not in names:
            raise DataError(
                f"{path}: has no column 'decision', so it is not changed; if its rows are decisions, add this column "
                "with the value drop, else choose another file for data.false_negatives"
            )
    return read_decisions(path)


def _is_header_only(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size > MAX_HEADER_BYTES:
        return False
    names = path.read_text(encoding="utf-8", errors="replace").strip().split("\t")
    return names in (list(HEADER), list(HEADER[:2]))
