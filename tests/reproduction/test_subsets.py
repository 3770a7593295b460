"""Subsets: sampled by query, deterministic, with labels between 0 and 1."""

import csv
import gzip
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bsc_core.config import make_config
from bsc_core.data.load import load_data
from bsc_core.errors import ConfigError, DataError, PathError
from bsc_core.reproduction.subsets import (
    SOURCES,
    Subset,
    SubsetSplit,
    _digest,
    prepare_subset,
    row_counts,
    setfit_pairs,
)

Rows = list[dict[str, str]]


def write(path: Path, rows: Rows) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
        writer.writeheader()
        writer.writerows(rows)


def read(path: str | Path) -> Rows:
    with Path(path).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of datasets: answers to questions, graded pairs, claims with a corpus, sentences with classes."""
    answers: Rows = [
        {"query_id": f"q{query}", "query": f"question {query}", "doc_id": f"d{query}-{rank}"}
        | {"doc": f"answer {rank} to {query}", "label": str(int(rank == 1)), "split": split}
        for split, queries in (("train", range(20)), ("dev", range(20, 26)), ("test", range(26, 30)))
        for query in queries
        for rank in range(4)
    ]
    write(tmp_path / "wikiqa" / "pairs.tsv.gz", answers)
    graded: Rows = [
        {"sentence1": f"one {n}", "sentence2": f"two {n}", "score": str(n % 6), "split": "dev" if n > 29 else "train"}
        for n in range(40)
    ]
    write(tmp_path / "stsb" / "pairs.tsv.gz", graded)
    claims: Rows = [
        {"query_id": f"q{n}", "query": f"tweet {n}", "doc_id": f"c{n}", "doc": f"claim {n}", "label": "1"}
        | {"split": "dev" if n > 7 else "train"}
        for n in range(12)
    ]
    write(tmp_path / "pfcc_s" / "pairs.tsv.gz", claims)
    corpus = [{"doc_id": f"c{n}", "title": "", "text": f"claim {n}"} for n in range(50)]
    write(tmp_path / "pfcc_s" / "corpus.tsv.gz", corpus)
    sentences = [
        {"text": f"sentence {n}", "label": str(n % 2), "split": ("train", "dev", "test")[n % 3]} for n in range(60)
    ]
    write(tmp_path / "sst2" / "sentences.tsv.gz", sentences)
    return tmp_path


WIKIQA = Subset(
    "wikiqa", {"train": SubsetSplit("train", 30), "dev": SubsetSplit("train", 8), "test": SubsetSplit("test")}
)


def test_a_label_of_any_length_is_sampled_in_bounded_memory() -> None:
    rows = [{"text": f"text {number}", "label": str(number % 2), "query_id": str(number)} for number in range(400)]
    rows[0]["label"] = "long" * 50_000
    tracemalloc.start()
    assert len(setfit_pairs(rows, 1, seed=0)) == 799  # one sentence has no other of its class
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 2**20  # a table of equally long labels has 320 MB


def test_any_number_of_labels_is_sampled_in_bounded_memory() -> None:
    rows = [{"text": f"text {number}", "label": str(number), "query_id": "0"} for number in range(4_000)]
    tracemalloc.start()
    assert len(setfit_pairs(rows, 1, seed=0)) == 4_000  # no sentence has another one of its class
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 2**20  # a table of the other sentences of each label has 128 MB


def test_a_large_file_is_identified_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv.gz"
    with path.open("wb") as file:
        file.truncate(300 * 2**20)
    tracemalloc.start()
    digest = _digest(WIKIQA, [path, None])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 2**20
    assert digest != _digest(WIKIQA, [None, None])


@pytest.mark.parametrize(
    ("name", "file"), [("wikiqa", "pairs"), ("pfcc_s", "pairs"), ("pfcc_s", "corpus"), ("sst2", "sentences")]
)
def test_a_dataset_with_rows_that_cannot_be_read_is_refused(data: Path, tmp_path: Path, name: str, file: str) -> None:
    path = data / name / f"{file}.tsv.gz"
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    lines[3] = lines[3].rpartition("\t")[0]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    parts = {"train": SubsetSplit("train"), "dev": SubsetSplit("dev")}
    with pytest.raises(DataError, match=f"{file}.tsv.gz: line 4: has [0-9] fields where the header has [0-9]"):
        prepare_subset(Subset(name, parts), data, tmp_path / "runs")
    assert not list(tmp_path.glob("runs/subsets/*/rows.json"))  # it is written last


def test_a_dataset_outside_of_the_folders_that_may_be_read_is_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_subset(WIKIQA, data, tmp_path / "runs")
    monkeypatch.setenv("BSC_ROOTS", str(tmp_path / "runs"))
    with pytest.raises(PathError, match="outside the folders that may be read"):
        prepare_subset(WIKIQA, data, tmp_path / "runs")


def test_a_subset_has_all_rows_of_a_query_and_no_query_twice(data: Path, tmp_path: Path) -> None:
    values = prepare_subset(WIKIQA, data, tmp_path / "runs")
    parts = {name: read(values[name]) for name in ("train", "dev", "test")}
    for rows in parts.values():
        assert set(Counter(row["query_id"] for row in rows).values()) == {4}
    queries = {name: {row["query_id"] for row in rows} for name, rows in parts.items()}
    assert not queries["train"] & queries["dev"]
    assert [len(parts[name]) for name in parts] == [32, 8, 16]
    assert row_counts(values) == {
        "train": 32, "dev": 8, "test": 16, "queries_train": 8, "queries_dev": 2, "queries_test": 4,
    }  # fmt: skip


def test_a_subset_is_deterministic_and_written_once(data: Path, tmp_path: Path) -> None:
    first, again = (prepare_subset(WIKIQA, data, tmp_path / name) for name in ("one", "two"))
    assert Path(first["train"]).read_bytes() == Path(again["train"]).read_bytes()
    assert Path(first["train"]).parent.name == Path(again["train"]).parent.name
    written = Path(first["train"]).stat().st_mtime_ns
    prepare_subset(WIKIQA, data, tmp_path / "one")
    assert Path(first["train"]).stat().st_mtime_ns == written


def test_other_numbers_of_rows_give_another_subset(data: Path, tmp_path: Path) -> None:
    first = prepare_subset(WIKIQA, data, tmp_path / "runs")
    more = prepare_subset(
        Subset("wikiqa", {**WIKIQA.parts, "train": SubsetSplit("train", 40)}), data, tmp_path / "runs"
    )
    assert Path(first["train"]).parent != Path(more["train"]).parent


def test_planted_copies_are_near_copies_of_positives_as_other_queries(data: Path, tmp_path: Path) -> None:
    parts = {"train": SubsetSplit("train"), "dev": SubsetSplit("dev")}
    clean = Path(prepare_subset(Subset("wikiqa", parts), data, tmp_path)["train"])
    planted = Path(prepare_subset(Subset("wikiqa", parts, planted=0.4), data, tmp_path)["train"])
    assert planted.parent != clean.parent
    assert read(planted.parent / "dev.tsv") == read(clean.parent / "dev.tsv")
    rows = read(planted)
    assert rows[: len(read(clean))] == read(clean)
    copies = rows[len(read(clean)) :]
    positive = {row["document_id"]: row for row in read(clean) if row["label"] == "1"}
    assert len(copies) == round(0.4 * len(positive))
    for copy in copies:
        original = positive[copy["document_id"].removeprefix("copy of ")]
        for side in ("query", "document"):
            left_out = Counter(original[side].split()) - Counter(copy[side].split())
            assert left_out.total() == 1
        assert copy["query_id"] == f"copy of {original['query_id']}"


@pytest.mark.parametrize("label", ["nan", "inf", "-1", "5.1", "five", ""])
def test_a_dataset_with_a_label_that_runs_would_drop_is_refused(data: Path, tmp_path: Path, label: str) -> None:
    path = data / "stsb" / "pairs.tsv.gz"
    rows = [{"sentence1": f"one {n}", "sentence2": f"two {n}", "score": "2", "split": "train"} for n in range(10)]
    rows[3]["score"] = label
    write(path, rows)
    subset = Subset("stsb", {"train": SubsetSplit("train", 5), "dev": SubsetSplit("train")})
    with pytest.raises(DataError, match=r"pairs\.tsv\.gz: a label cannot be used"):
        prepare_subset(subset, data, tmp_path / "runs")


def test_labels_are_scaled_to_0_and_1(data: Path, tmp_path: Path) -> None:
    values = prepare_subset(
        Subset("stsb", {"train": SubsetSplit("train"), "dev": SubsetSplit("dev")}), data, tmp_path / "runs"
    )
    labels = {float(row["label"]) for row in read(values["train"])}
    assert labels == {0, 0.2, 0.4, 0.6, 0.8, 1}
    assert values["threshold"] == 0.6


def test_gold_documents_are_always_in_the_corpus(data: Path, tmp_path: Path) -> None:
    subset = Subset("pfcc_s", {"train": SubsetSplit("train"), "dev": SubsetSplit("dev")}, corpus=20)
    values = prepare_subset(subset, data, tmp_path / "runs")
    documents = {row["document_id"] for row in read(values["corpus"])}
    assert len(documents) == 20
    assert {f"c{n}" for n in range(12)} <= documents
    assert row_counts(values)["corpus"] == 20


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize(
    ("folder", "parts", "pairs"),
    [
        ("wikiqa", ("train", "dev", "test"), None),
        ("stsb", ("train", "dev"), None),
        ("pfcc_s", ("train", "dev"), None),
        ("sst2", ("train", "dev", "test"), 2),
    ],
)
def test_the_files_of_a_subset_load_as_an_experiment(
    data: Path, tmp_path: Path, folder: str, parts: tuple[str, ...], pairs: int | None, small: bool
) -> None:
    subset = Subset(folder, {name: SubsetSplit(name) for name in parts}, pairs=pairs)
    values = prepare_subset(subset, None if small else data, tmp_path / "runs")
    read_back = load_data(make_config({"data": values}).data, seed=0)
    assert set(read_back.splits) == set(parts)
    assert (read_back.corpus is not None) == (folder == "pfcc_s")
    assert read_back.train.positive.any()
    counts = row_counts(values)
    assert {name: len(part) for name, part in read_back.splits.items()} == {name: counts[name] for name in parts}


@pytest.mark.parametrize("folder", sorted(SOURCES))
def test_every_data_set_has_a_small_form(folder: str, tmp_path: Path) -> None:
    values = prepare_subset(Subset(folder, {"train": SubsetSplit("train"), "dev": SubsetSplit("dev")}), None, tmp_path)
    assert row_counts(values)["train"] > row_counts(values)["dev"] > 0
    make_config({"data": values})


def test_a_missing_data_set_and_a_split_without_rows_are_errors(data: Path, tmp_path: Path) -> None:
    with pytest.raises(PathError, match=r"pairs\.tsv\.gz does not exist; give the folder"):
        prepare_subset(Subset("mrpc", {"train": SubsetSplit("train")}), data, tmp_path / "runs")
    with pytest.raises(ConfigError, match="split 'test' has no rows left for test"):
        prepare_subset(
            Subset("stsb", {"train": SubsetSplit("train"), "test": SubsetSplit("test")}), data, tmp_path / "runs"
        )


def test_setfit_pairs_join_each_sentence_with_its_class_and_with_another() -> None:
    rows = [{"text": f"sentence {n}", "label": "abc"[n % 3], "query_id": str(n)} for n in range(12)]
    known: dict[str, Any] = {row["text"]: row["label"] for row in rows}
    pairs = setfit_pairs(rows, 3, seed=0)
    assert len(pairs) == 2 * 3 * len(rows)
    for pair in pairs:
        assert pair["query"] != pair["document"]
        assert (known[pair["query"]] == known[pair["document"]]) == (pair["label"] == "1")
    assert pairs == setfit_pairs(rows, 3, seed=0)
    assert pairs != setfit_pairs(rows, 3, seed=1)


def test_a_sentence_alone_in_its_class_is_not_paired_with_itself() -> None:
    rows = [{"text": name, "label": name[0], "query_id": name} for name in ("a1", "b1", "b2")]
    pairs = setfit_pairs(rows, 1, seed=0)
    assert [(pair["query"], pair["label"]) for pair in pairs if pair["query"] == "a1"] == [("a1", "0")]
