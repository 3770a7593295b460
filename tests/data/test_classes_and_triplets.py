"""Rows with classes and rows with negatives: reading, numbering and triplets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bsc_core.config import DataConfig
from bsc_core.data import PairDataset, load_data, read_pairs
from bsc_core.data.generation import negatives
from bsc_core.data.generation.negatives import number_of_triplets, triplets
from bsc_core.data.schema.classes import read_classes
from bsc_core.errors import DataError

ROOT = Path(__file__).resolve().parents[2]


def write(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n", encoding="utf-8")
    return path


def nli(label: object, number: int = 0) -> dict[str, object]:
    return {"premise": f"premise {number}", "hypothesis": f"hypothesis {label} {number}", "label": label}


def test_the_sample_inference_file_is_read_without_a_mapping() -> None:
    dataset = read_pairs(ROOT / "sample_data" / "nli.tsv")
    assert dataset.class_names == ("entailment", "neutral", "contradiction")
    assert np.bincount(dataset.classes).tolist() == [80, 80, 80]
    assert (dataset.label == (dataset.classes == 0)).all()
    assert len(np.unique(dataset.query_group)) == 80


def test_a_class_number_of_thousands_of_digits_is_rejected(tmp_path: Path) -> None:
    rows = [nli(0), nli("9" * 5_000, 1), nli(1, 2)]
    columns = {"query": "premise", "document": "hypothesis", "class_label": "label"}
    dataset = read_pairs(write(tmp_path / "nli.jsonl", rows), columns)
    assert dataset.classes.tolist() == [0, 1]
    assert [row.reason for row in dataset.report.rejected] == [f"the class '{'9' * 40}' is not a whole number"]


def test_rows_without_a_class_are_rejected(tmp_path: Path) -> None:
    rows = [nli("entailment"), nli("-", 1), nli("Neutral", 2), nli("", 3), nli("-1", 4), nli("CONTRADICTION", 5)]
    dataset = read_pairs(write(tmp_path / "nli.jsonl", rows))
    assert dataset.classes.tolist() == [0, 1, 2]
    assert [row.reason for row in dataset.report.rejected] == ["the row has no class"] * 3


def test_whole_numbers_are_the_class_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "nli.jsonl", [nli(2), nli(0, 1), nli(-1, 2), nli("x", 3)])
    dataset = read_pairs(path, {"query": "premise", "document": "hypothesis", "class_label": "label"})
    assert dataset.classes.tolist() == [2, 0]
    assert dataset.class_names is None
    assert dataset.label is None
    assert "'x' is not a whole number" in dataset.report.rejected[1].reason


def test_many_classes_are_numbered_without_comparing_each_with_all(tmp_path: Path) -> None:
    class Name(str):
        comparisons = 0

        def __eq__(self, other: object) -> bool:
            Name.comparisons += 1
            return str.__eq__(self, other)

        def strip(self, *characters: str) -> Name:  # type: ignore[override]
            return self

        __hash__ = str.__hash__

    words = [Name(f"class {number}") for number in range(2000)]
    ids, names = read_classes(words)
    assert names == tuple(sorted(words))
    assert [names[number] for number in ids] == words
    assert Name.comparisons < 20 * len(words)


def test_other_class_names_are_numbered_in_sorted_order_in_all_files(tmp_path: Path) -> None:
    columns = {"query": "premise", "document": "hypothesis", "class_label": "label"}
    train = write(tmp_path / "train.jsonl", [nli("red"), nli("blue", 1), nli("red", 2)])
    dev = write(tmp_path / "dev.jsonl", [nli("red", 3), nli("green", 4)])
    data = load_data(DataConfig(train=str(train), dev=str(dev), columns=columns), seed=0)
    assert data.train.class_names == data.dev.class_names == ("blue", "red", "green")
    assert data.train.classes.tolist() == [1, 0, 1]
    assert data.dev.classes.tolist() == [1, 2]


def test_classes_and_negatives_stay_with_their_rows(tmp_path: Path) -> None:
    rows = [{"query": f"q{n}", "document": f"d{n}", "negative": f"x{n % 2}"} for n in range(5)]
    dataset = read_pairs(write(tmp_path / "triplets.jsonl", rows))
    taken = dataset.take([4, 1]).compact()
    assert taken.texts.take(taken.negative) == ["x0", "x1"]
    assert taken.digest != taken.take([0, 1]).reindex_texts(taken.texts, np.arange(6)[::-1]).digest
    with_classes = PairDataset.from_pairs(["a", "b"], ["c", "d"], classes=[3, 1])
    assert with_classes.take([1]).classes.tolist() == [1]
    assert with_classes.digest != PairDataset.from_pairs(["a", "b"], ["c", "d"]).digest


def test_a_row_with_an_empty_negative_is_rejected(tmp_path: Path) -> None:
    rows = [{"query": "q", "document": "d", "negative": text} for text in ("x", " ")]
    dataset = read_pairs(write(tmp_path / "triplets.jsonl", rows))
    assert len(dataset) == 1
    assert dataset.report.rejected[0].field == "negative"


def test_every_positive_is_combined_with_every_negative_of_its_query() -> None:
    queries, documents = ["a", "a", "a", "a", "b", "b", "c"], ["p", "n", "q", "m", "r", "s", "t"]
    result = triplets(PairDataset.from_pairs(queries, documents, [1, 0, 1, 0, 1, 1, 0]))
    texts = result.texts
    rows = zip(texts.take(result.query), texts.take(result.document), texts.take(result.negative), strict=True)
    assert list(rows) == [("a", "p", "n"), ("a", "p", "m"), ("a", "q", "n"), ("a", "q", "m")]
    assert result.positive.all()


def test_a_negative_column_is_used_and_negative_rows_are_left_out() -> None:
    given = PairDataset.from_pairs(["a", "b"], ["p", "q"], [1, 0], negatives=["n", "m"])
    assert triplets(given).texts.take(triplets(given).negative) == ["n"]


def test_each_positive_is_combined_with_the_negatives_of_its_query(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    rows: list[dict[str, object]] = [
        {"query": f"q{query}", "document": f"d{number}", "label": int(label)}
        for number, (query, label) in enumerate(generator.integers([7, 2], size=(80, 2)))
    ]
    dataset = read_pairs(write(tmp_path / "pairs.jsonl", rows))
    expected = [
        (one["query"], one["document"], other["document"])
        for one in rows
        for other in rows
        if one["label"] == 1 and other["label"] == 0 and one["query"] == other["query"]
    ]
    made = triplets(dataset)
    assert made.negative is not None
    columns = (made.query, made.document, made.negative)
    assert list(zip(*(made.texts.take(column) for column in columns), strict=True)) == expected
    assert number_of_triplets(dataset) == len(expected)


def test_the_number_of_triplets_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[dict[str, object]] = [{"query": "q", "document": f"d{n}", "label": n % 2} for n in range(8)]
    dataset = read_pairs(write(tmp_path / "pairs.jsonl", rows))
    monkeypatch.setattr(negatives, "MAX_TRIPLETS", 16)
    assert len(triplets(dataset)) == 16
    monkeypatch.setattr(negatives, "MAX_TRIPLETS", 15)
    with pytest.raises(DataError, match="gives 16 triplets; the limit is 15"):
        triplets(dataset)


def test_pairs_without_a_negative_are_refused_for_triplets() -> None:
    with pytest.raises(DataError, match=r"data\.columns\.negative"):
        triplets(PairDataset.from_pairs(["a", "b"], ["p", "q"]))
