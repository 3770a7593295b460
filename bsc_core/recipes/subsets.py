"""Parts of data sets in the shared format, drawn by whole queries with a fixed seed and written as files of one shape.

A subset is made from a folder of data sets for the full form of a recipe, and from the sample data for the small form;
either way the files have the same columns, so the runs differ in nothing else.
"""

# N rows of a file

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from bsc_core.data.columns import as_names
from bsc_core.data.places import sample_data_folder
from bsc_core.data.tables import Table, read_table
from bsc_core.errors import ConfigError, PathError
from bsc_core.files import write_whole
from bsc_core.recipes.paired_classes import same_and_other

SUBSETS = "subsets"
"""The folder of a runs folder in which subsets lie."""
SENTENCES_OF = "sentences-{}.tsv"
"""The file of the sentences from which the pairs of a part were drawn, beside the pairs."""
SMALL_ROWS = {"train": 96, "dev": 48, "test": 48}
SMALL_CORPUS = 60
DRAW_SEED = 0
Row = dict[str, str]
Rows = list[Row]


@dataclass(frozen=True)
class Source:
    """How a data set of the shared format is read. low, high: of its labels; threshold: above it a pair is positive."""

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


_NLI = Source("nli", "premise", "hypothesis", query_id="premise_id")
_SENTENCES = Source("sentences", "text", "text", file="sentences.tsv.gz")
_QATAR = ("query_subject", "query_body")
SOURCES = {
    "pfcc_s": Source(query="query", document="doc", query_id="query_id", document_id="doc_id", corpus="text"),
    "stsb": Source(label="score", high=5.0, threshold=0.6),
    "sick": Source(label="score", low=1.0, high=5.0),
    "mrpc": Source(),
    "qqp": Source(),
    "snli": _NLI,
    "mnli": _NLI,
    "wikiqa": Source(query="query", document="doc", query_id="query_id", document_id="doc_id"),
    "cqa_a": Source(query=_QATAR, document="doc", query_id="query_id", document_id="doc_id"),
    "cqa_b": Source(query=_QATAR, document=("doc_subject", "doc_body"), query_id="query_id", document_id="doc_id"),
    "sst2": _SENTENCES,
    "sarcasm_headlines": _SENTENCES,
}
SAMPLES = {
    "pairs": ("pairs.tsv", Source(query_id="query_id", query="query", document="document", document_id="doc_id")),
    "nli": ("nli.tsv", Source("nli", "premise", "hypothesis", query_id="premise_id")),
    "sentences": ("sentences.tsv", Source("sentences", "text", "text")),
}


@dataclass(frozen=True)
class Part:
    """Where the rows of train, dev or test come from: a split of the file, and how many rows at most; None: all."""

    split: str
    rows: int | None = None


@dataclass(frozen=True)
class Subset:
    """Part of one data set. folder: its name in the shared format.

    parts: train, dev and perhaps test; parts of one split share no query. corpus: documents to search, the parts' own
    among them; None: all, where the data set has a corpus. data: further values of the `data` section. pairs: where the
    data are classified sentences, how many pairs to draw of each sentence in train, of its class and of others, as
    SetFit does.
    """

    folder: str
    parts: Mapping[str, Part]
    corpus: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    pairs: int | None = None


def prepare(subset: Subset, data: Path | None, runs: Path) -> dict[str, Any]:
    """Write the subset's files under the runs folder, where they are not there yet, and return its `data` section.

    data: the folder of data sets; None: the sample data stand for it, for the small form. Raises PathError where the
    data set is not there, ConfigError where one of its splits has no rows.
    """
    source, path, corpus = _found(subset, data)
    folder = runs / SUBSETS / f"{subset.folder}-{_digest(subset, [path, corpus])}"
    if not (folder / "rows.json").is_file():
        _write(subset, source, path, corpus=corpus, folder=folder, small=data is None)
    return {**_values(subset, source, folder), **subset.data}


def check_there(subsets: Iterable[Subset], data: Path) -> None:
    """Raise PathError where the folder of data sets lacks a file that a subset is drawn from."""
    for subset in subsets:
        _found(subset, data)


def rows_of(values: Mapping[str, Any]) -> dict[str, int]:
    """How many rows, and `queries_`, each part of a prepared subset has, by the `data` section that `prepare` gave."""
    counted: dict[str, int] = json.loads((Path(values["train"]).parent / "rows.json").read_text(encoding="utf-8"))
    return counted


def _found(subset: Subset, data: Path | None) -> tuple[Source, Path, Path | None]:
    source = SOURCES[subset.folder]
    if data is None:
        name, sample = SAMPLES[source.kind]
        corpus = sample_data_folder() / "corpus.tsv" if source.corpus else None
        return sample, sample_data_folder() / name, corpus
    path = data / subset.folder / source.file
    corpus = data / subset.folder / "corpus.tsv.gz" if source.corpus else None
    for needed in (path, corpus):
        if needed is not None and not needed.is_file():
            raise PathError(f"{needed}: there is no such file; give the folder that holds the data set {subset.folder}")
    return source, path, corpus


def _digest(subset: Subset, paths: Iterable[Path | None]) -> str:
    digest = hashlib.sha256(json.dumps({**asdict(subset), "data": None}, sort_keys=True, default=list).encode())
    for path in paths:
        digest.update(b"" if path is None else path.read_bytes())
    return digest.hexdigest()[:10]


def _values(subset: Subset, source: Source, folder: Path) -> dict[str, Any]:
    """The `data` section that reads the files."""
    values: dict[str, Any] = {"train": str(folder / "train.tsv"), "dev": str(folder / "dev.tsv")}
    values |= {"test": str(folder / "test.tsv")} if "test" in subset.parts else {}
    if source.kind == "sentences" and subset.pairs is None:
        return values | {"examples": {"text": "text", "class_label": "label", "split": ""}}
    columns = {"query": "query", "document": "document", "query_id": "query_id"}
    if source.kind == "nli":
        return values | {"columns": columns | {"class_label": "class"}}
    values |= {"columns": columns | {"label": "label", "document_id": "document_id"}, "threshold": source.threshold}
    if source.corpus or (folder / "corpus.tsv").is_file():
        del values["columns"]["label"]
        values |= {"corpus": str(folder / "corpus.tsv")}
        values |= {"corpus_columns": {"document": "document", "document_id": "document_id"}}
    return values


def _write(subset: Subset, source: Source, path: Path, *, corpus: Path | None, folder: Path, small: bool) -> None:
    rows = _rows(read_table(path), source)
    parts = _drawn(rows, _small(subset.parts) if small else subset.parts, small=small, path=path)
    if corpus is not None:
        parts = {name: [row for row in part if float(row["label"]) > source.threshold] for name, part in parts.items()}
    if subset.pairs is not None:
        for name, part in parts.items():
            _write_rows(folder / SENTENCES_OF.format(name), part)
        parts = {name: same_and_other(part, subset.pairs, seed=DRAW_SEED) for name, part in parts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in parts.items():
        _write_rows(folder / f"{name}.tsv", part)
    counted = {name: len(part) for name, part in parts.items()}
    counted |= {f"queries_{name}": len({row["query_id"] for row in part}) for name, part in parts.items()}
    if corpus is not None:
        gold = {row["document_id"] for part in parts.values() for row in part}
        documents = _documents(read_table(corpus), gold, SMALL_CORPUS if small else subset.corpus)
        _write_rows(folder / "corpus.tsv", documents)
        counted["corpus"] = len(documents)
    write_whole(folder / "rows.json", json.dumps(counted).encode())


def _small(parts: Mapping[str, Part]) -> dict[str, Part]:
    return {name: Part("all", SMALL_ROWS[name]) for name in parts}


def _rows(table: Table, source: Source) -> Rows:
    """Every row of a file in the columns that subsets have; a text in several columns is joined by a space."""
    queries, documents = (_texts(table, names) for names in (source.query, source.document))
    labels = table.columns[source.label]
    splits = table.columns.get("split") or ["all"] * len(table)
    ids = queries if source.query_id is None else table.columns[source.query_id]
    keys = [str(line) for line in table.line] if source.document_id is None else table.columns[source.document_id]
    if source.kind != "pairs":
        name = "class" if source.kind == "nli" else "label"
        first = {"text": queries} if source.kind == "sentences" else {"query": queries, "document": documents}
        columns = {**first, name: labels, "query_id": ids, "split": splits}
    else:
        graded = [f"{(float(label) - source.low) / (source.high - source.low):g}" for label in labels]
        columns = {"query": queries, "document": documents, "label": graded, "query_id": ids, "document_id": keys}
        columns["split"] = splits
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _texts(table: Table, names: str | tuple[str, ...]) -> list[str]:
    cells = [table.columns[name] for name in as_names(names)]
    return [" ".join(part for part in parts if part).strip() for parts in zip(*cells, strict=True)]


def _drawn(rows: Rows, parts: Mapping[str, Part], *, small: bool, path: Path) -> dict[str, Rows]:
    """The rows of each part; parts that share a split take its queries one after another, so that none is in two."""
    taken: set[tuple[str, str]] = set()
    drawn: dict[str, Rows] = {}
    for name, part in parts.items():
        chosen: Rows = []
        for query, group in _groups([row for row in rows if small or row["split"] == part.split]):
            if part.rows is not None and len(chosen) >= part.rows:
                break
            if (part.split, query) not in taken:
                taken.add((part.split, query))
                chosen += group
        if not chosen:
            raise ConfigError(f"{path}: no row of split {part.split!r} is left for {name}; draw fewer for the others")
        drawn[name] = chosen
    return drawn


def _groups(rows: Rows) -> list[tuple[str, Rows]]:
    """The rows by their query, queries in an order that follows from the seed and their ids alone."""
    found: dict[str, Rows] = {}
    for row in rows:
        found.setdefault(row["query_id"], []).append(row)
    return sorted(found.items(), key=lambda group: _lot(group[0]))


def _lot(name: str) -> str:
    return hashlib.sha1(f"{DRAW_SEED}:{name}".encode()).hexdigest()


def _documents(table: Table, gold: set[str], number: int | None) -> Rows:
    """Documents of a corpus: those that are an answer, and others by lot up to the number."""
    name = "doc_id"
    texts = table.columns["text"]
    rows = [{"document_id": key, "document": text} for key, text in zip(table.columns[name], texts, strict=True)]
    others = sorted((row for row in rows if row["document_id"] not in gold), key=lambda row: _lot(row["document_id"]))
    kept = [row for row in rows if row["document_id"] in gold]
    return kept + (others if number is None else others[: max(0, number - len(kept))])


def _write_rows(path: Path, rows: Sequence[Row]) -> None:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), delimiter="\t", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())
