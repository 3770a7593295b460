"""Subsets of the datasets: rows sampled by query with a fixed seed and written as files of one format.

A subset comes from a folder of datasets for the full form of a claim, and from the sample data for the small form. The
files have the same columns either way, so the runs differ in nothing else.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict

from bsc_core.data.io.tables import Table, check_complete, read_table
from bsc_core.data.schema.columns import as_names
from bsc_core.errors import ColumnError, ConfigError, DataError, PathError
from bsc_core.files import atomic_write, rows_as_tsv
from bsc_core.paths import check_path, sample_data_folder

SUBSETS_FOLDER = "subsets"
"""Folder of subsets inside a runs folder."""
SENTENCES_FILE = "sentences-{}.tsv"
"""The file of the sentences from which the pairs of a part were sampled, next to the pairs."""
SMALL_ROWS = {"train": 96, "dev": 48, "test": 48}
SMALL_CORPUS = 60
SAMPLING_SEED = 0
Rows = list[dict[str, str]]


@dataclass(frozen=True)
class SubsetFormat:
    """How to read a dataset. low, high: range of its labels; threshold: a pair with a higher label is positive."""

    kind: Literal["pairs", "nli", "sentences"] = "pairs"
    query: str | tuple[str, ...] = "sentence1"
    document: str | tuple[str, ...] = "sentence2"
    label: str = "label"
    query_id: str | None = None
    document_id: str | None = None
    low: float = 0.0
    high: float = 1.0
    threshold: float = 0.5
    file: str = "pairs.tsv.gz"
    corpus: str | None = None


_NLI = SubsetFormat("nli", "premise", "hypothesis", query_id="premise_id")
_SENTENCES = SubsetFormat("sentences", "text", "text", file="sentences.tsv.gz")
_QATAR = ("query_subject", "query_body")
SOURCES = {
    "pfcc_s": SubsetFormat(query="query", document="doc", query_id="query_id", document_id="doc_id", corpus="text"),
    "stsb": SubsetFormat(label="score", high=5.0, threshold=0.6),
    "sick": SubsetFormat(label="score", low=1.0, high=5.0),
    "mrpc": SubsetFormat(),
    "qqp": SubsetFormat(),
    "snli": _NLI,
    "mnli": _NLI,
    "wikiqa": SubsetFormat(query="query", document="doc", query_id="query_id", document_id="doc_id"),
    "cqa_a": SubsetFormat(query=_QATAR, document="doc", query_id="query_id", document_id="doc_id"),
    "cqa_b": SubsetFormat(
        query=_QATAR, document=("doc_subject", "doc_body"), query_id="query_id", document_id="doc_id"
    ),
    "sst2": _SENTENCES,
    "sarcasm_headlines": _SENTENCES,
}
SAMPLES = {
    "pairs": ("pairs.tsv", SubsetFormat(query_id="query_id", query="query", document="document", document_id="doc_id")),
    "nli": ("nli.tsv", SubsetFormat("nli", "premise", "hypothesis", query_id="premise_id")),
    "sentences": ("sentences.tsv", SubsetFormat("sentences", "text", "text")),
}


@dataclass(frozen=True)
class SubsetSplit:
    """Source of the rows of train, dev or test: a split of the file, and the maximum number of rows; None: all."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    split: str
    rows: int | None = None


@dataclass(frozen=True)
class Subset:
    """Part of one dataset.

    folder: name of the dataset. parts: train, dev and optionally test; parts of one split share no query. corpus:
    documents to search, including those of the parts; None: all, where the dataset has a corpus. data: further values
    of the `data` section. pairs: for classified sentences, the number of pairs that SetFit samples for each sentence,
    of the same class and of other classes each. planted: share of the positive training pairs that are added again as
    pairs of another query, with one word left out of each text, so that their documents are false negatives.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    folder: str
    parts: Mapping[str, SubsetSplit]
    corpus: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    pairs: int | None = None
    planted: float = 0.0


def prepare_subset(subset: Subset, data: Path | None, runs: Path) -> dict[str, Any]:
    """Write the files of a subset into the runs folder, unless they exist, and return its `data` section.

    Args:
        subset: The subset to sample.
        data: The folder of datasets; None: the sample data, for the small form.
        runs: The runs folder.

    Raises:
        PathError: The dataset is missing, or may not be read.
        DataError: It has rows that cannot be read.
        ConfigError: One of its splits has no rows left.
    """
    source, path, corpus = _locate(subset, data)
    folder = runs / SUBSETS_FOLDER / f"{subset.folder}-{_digest(subset, [path, corpus])}"
    if not (folder / "rows.json").is_file():
        _write(subset, source, path, corpus=corpus, folder=folder, small=data is None)
    return {**_data_section(subset, source, folder), **subset.data}


def check_files(subsets: Iterable[Subset], data: Path) -> None:
    """Raise PathError if the folder of datasets lacks a file that a subset is sampled from."""
    for subset in subsets:
        _locate(subset, data)


def row_counts(section: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of rows, and as `queries_PART` of queries, of the parts of a subset by its `data` section."""
    counts: dict[str, int] = json.loads((Path(section["train"]).parent / "rows.json").read_text(encoding="utf-8"))
    return counts


def setfit_pairs(rows: Rows, rounds: int, *, seed: int) -> Rows:
    """Sample SetFit's training pairs: in each round one pair per sentence with label 1 (same class) and one with 0.

    Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts", section 3.1, as the released code samples them.
    A sentence is never paired with itself; a pair is left out where no other sentence of the class, or no other class,
    exists.

    Args:
        rows: Sentences with `text`, `label` and `query_id`.
        rounds: Number of pairs per sentence and label.
        seed: Seed of the sampling.
    """
    generator = np.random.default_rng(seed)
    number_of = {name: number for number, name in enumerate(dict.fromkeys(row["label"] for row in rows))}
    classes = np.array([number_of[row["label"]] for row in rows], dtype=np.int32)
    members = np.split(np.argsort(classes, kind="stable"), np.cumsum(np.bincount(classes))[:-1])
    before = [rows_of - np.arange(len(rows_of)) for rows_of in members]  # rows of other classes before each row
    pairs = []
    for _ in range(rounds):
        for index, row in enumerate(rows):
            same, earlier = members[classes[index]], before[classes[index]]
            for label, number in (("1", len(same) - 1), ("0", len(rows) - len(same))):
                if number:
                    chosen = int(generator.integers(number))  # among the others of the class, or of other classes
                    if label == "1":
                        other = int(same[chosen + (same[chosen] >= index)])
                    else:
                        other = chosen + int(np.searchsorted(earlier, chosen, side="right"))
                    pair = {"query": row["text"], "document": rows[other]["text"], "label": label}
                    pairs.append({**pair, "query_id": row["query_id"], "document_id": f"{index}-{other}"})
    return pairs


def planted_copies(rows: Rows, share: float, threshold: float) -> Rows:
    """Return copies of a share of the positive rows as rows of other queries, with one word left out of each text."""
    positive = [row for row in rows if float(row["label"]) > threshold]
    chosen = sorted(positive, key=lambda row: _sort_key(row["query_id"] + row["document_id"]))
    generator = np.random.default_rng(SAMPLING_SEED)
    copies = []
    for row in chosen[: round(share * len(positive))]:
        varied = {side: _without_a_word(row[side], generator) for side in ("query", "document")}
        names = {name: f"copy of {row[name]}" for name in ("query_id", "document_id")}
        copies.append({**row, **varied, **names})
    return copies


def _without_a_word(text: str, generator: np.random.Generator) -> str:
    words = text.split()
    if not words:
        return text
    left_out = int(generator.integers(len(words)))
    return " ".join(words[:left_out] + words[left_out + 1 :]) or text


def _locate(subset: Subset, data: Path | None) -> tuple[SubsetFormat, Path, Path | None]:
    source = SOURCES[subset.folder]
    if data is None:
        name, sample = SAMPLES[source.kind]
        corpus = sample_data_folder() / "corpus.tsv" if source.corpus else None
        return sample, sample_data_folder() / name, corpus
    path = data / subset.folder / source.file
    corpus = data / subset.folder / "corpus.tsv.gz" if source.corpus else None
    for needed in (path, corpus):
        if needed is not None and not needed.is_file():
            raise PathError(f"{needed} does not exist; give the folder that contains the dataset {subset.folder}")
    return source, path, corpus


def _digest(subset: Subset, paths: Iterable[Path | None]) -> str:
    settings = {**asdict(subset), "data": None}
    if not subset.planted:
        del settings["planted"]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=list).encode())
    for path in paths:
        if path is not None:
            with check_path(path).open("rb") as file:
                for block in iter(partial(file.read, 2**20), b""):
                    digest.update(block)
    return digest.hexdigest()[:10]


def _data_section(subset: Subset, source: SubsetFormat, folder: Path) -> dict[str, Any]:
    section: dict[str, Any] = {part: str(folder / f"{part}.tsv") for part in ("train", "dev")}
    section |= {"test": str(folder / "test.tsv")} if "test" in subset.parts else {}
    if source.kind == "sentences" and subset.pairs is None:
        return section | {"examples": {"text": "text", "class_label": "label", "split": ""}}
    columns = {name: name for name in ("query", "document", "query_id")}
    if source.kind == "nli":
        return section | {"columns": columns | {"class_label": "class"}}
    columns |= {"document_id": "document_id"}
    if source.corpus or (folder / "corpus.tsv").is_file():
        section |= {"corpus": str(folder / "corpus.tsv")}
        section |= {"corpus_columns": {"document": "document", "document_id": "document_id"}}
    else:
        columns |= {"label": "label"}
    return section | {"columns": columns, "threshold": source.threshold}


def _write(subset: Subset, source: SubsetFormat, path: Path, *, corpus: Path | None, folder: Path, small: bool) -> None:
    table = _read_complete(path)
    try:
        rows = _read_rows(table, source)
    except KeyError as error:
        raise ColumnError(f"{path}: has no column {error}; give the folder of the original dataset") from None
    except ValueError as error:
        raise DataError(f"{path}: a label cannot be used ({error}); give the original dataset") from None
    parts = _sample(rows, subset.parts, small=small, path=path)
    if corpus is not None:
        parts = {name: [row for row in part if float(row["label"]) > source.threshold] for name, part in parts.items()}
    if subset.pairs is not None:
        for name, part in parts.items():
            _write_rows(folder / SENTENCES_FILE.format(name), part)
        parts = {name: setfit_pairs(part, subset.pairs, seed=SAMPLING_SEED) for name, part in parts.items()}
    if subset.planted:
        parts["train"] = parts["train"] + planted_copies(parts["train"], subset.planted, source.threshold)
    for name, part in parts.items():
        _write_rows(folder / f"{name}.tsv", part)
    counts = {name: len(part) for name, part in parts.items()}
    counts |= {f"queries_{name}": len({row["query_id"] for row in part}) for name, part in parts.items()}
    if corpus is not None:
        gold = {row["document_id"] for part in parts.values() for row in part}
        documents = _sample_documents(_read_complete(corpus), gold, SMALL_CORPUS if small else subset.corpus)
        _write_rows(folder / "corpus.tsv", documents)
        counts["corpus"] = len(documents)
    atomic_write(folder / "rows.json", json.dumps(counts))


def _read_complete(path: Path) -> Table:
    """Read a file of a dataset. Raises DataError if it has rows of the wrong shape, which would be missing."""
    table = read_table(path)
    check_complete(table)
    return table


def _read_rows(table: Table, source: SubsetFormat) -> Rows:
    """Return every row of a file in the columns of a subset; a text in several columns is joined by spaces."""
    queries, labels = _texts(table, source.query), table.columns[source.label]
    columns = {"text": queries} if source.kind == "sentences" else {"query": queries}
    if source.kind != "sentences":
        columns["document"] = _texts(table, source.document)
    if source.kind == "pairs":
        columns["label"] = [_scaled(label, source) for label in labels]
    else:
        columns["class" if source.kind == "nli" else "label"] = labels
    columns["query_id"] = queries if source.query_id is None else table.columns[source.query_id]
    if source.kind == "pairs":
        lines = [str(line) for line in table.line]
        columns["document_id"] = lines if source.document_id is None else table.columns[source.document_id]
    columns["split"] = table.columns.get("split") or ["all"] * len(table)
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _scaled(label: str, source: SubsetFormat) -> str:
    """Return a label scaled to [0, 1].

    Raises:
        ValueError: It is not a number in the range, so that a run would drop its row.
    """
    value = float(label)
    if not source.low <= value <= source.high:
        raise ValueError(f"{label[:20]!r} is not between {source.low:g} and {source.high:g}")
    return f"{(value - source.low) / (source.high - source.low):g}"


def _texts(table: Table, names: str | tuple[str, ...]) -> list[str]:
    cells = [table.columns[name] for name in as_names(names)]
    return [" ".join(part for part in parts if part).strip() for parts in zip(*cells, strict=True)]


def _sample(rows: Rows, parts: Mapping[str, SubsetSplit], *, small: bool, path: Path) -> dict[str, Rows]:
    """Return the rows of each part; parts of the same split take its queries in turn, so that they share none."""
    if small:
        parts = {name: SubsetSplit("all", SMALL_ROWS[name]) for name in parts}
    used: set[tuple[str, str]] = set()
    sampled: dict[str, Rows] = {}
    for name, part in parts.items():
        groups: dict[str, Rows] = {}
        for row in rows:
            if (small or row["split"] == part.split) and (part.split, row["query_id"]) not in used:
                groups.setdefault(row["query_id"], []).append(row)
        sampled[name] = []
        for query in sorted(groups, key=_sort_key):
            if part.rows is not None and len(sampled[name]) >= part.rows:
                break
            used.add((part.split, query))
            sampled[name] += groups[query][: part.rows]
        if not sampled[name]:
            raise ConfigError(
                f"{path}: split {part.split!r} has no rows left for {name}; take fewer rows for the other parts"
            )
    return sampled


def _sort_key(name: str) -> str:
    """Return a key that sorts names in an order which depends on the seed and the names alone."""
    return hashlib.sha1(f"{SAMPLING_SEED}:{name}".encode()).hexdigest()


def _sample_documents(table: Table, gold: set[str], number: int | None) -> Rows:
    """Return the gold documents of a corpus and others at random, `number` in all; None: all."""
    texts = table.columns["text"]
    rows = [{"document_id": key, "document": text} for key, text in zip(table.columns["doc_id"], texts, strict=True)]
    others = [row for row in rows if row["document_id"] not in gold]
    others.sort(key=lambda row: _sort_key(row["document_id"]))
    required = [row for row in rows if row["document_id"] in gold]
    return required + (others if number is None else others[: max(0, number - len(required))])


def _write_rows(path: Path, rows: Rows) -> None:
    atomic_write(path, rows_as_tsv([rows[0], *(row.values() for row in rows)]))
