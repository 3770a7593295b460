"""Exported rows are read back unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.config import DataConfig
from bsc_core.data import PairDataset, load_data, read_pairs
from bsc_core.data.dataset import DatasetSplits, share_texts
from bsc_core.data.io.export import as_parquet, as_tsv, exported_columns
from bsc_core.data.schema.classes import NLI

AWKWARD = ["a\ttab", 'a "quote"', "two\nlines", "old\rline ending", "NA", " ünïcode 漢 ", "=1+1"]


def data(texts: list[str]) -> DatasetSplits:
    labels = np.linspace(0.4999996, 0.5000004, len(texts)).astype(np.float32)
    pairs = PairDataset.from_pairs(texts, texts[::-1], labels, negatives=[*texts[1:], texts[0]])
    return share_texts([pairs, pairs.take([0])], None)


@pytest.mark.parametrize(("suffix", "written"), [("tsv", as_tsv), ("parquet", as_parquet)])
def test_an_exported_file_reads_back_to_the_same_rows(tmp_path: Path, suffix: str, written) -> None:
    exported = data(AWKWARD)
    path = tmp_path / f"rows.{suffix}"
    path.write_bytes(written(exported_columns(exported, ["train"])))
    read = read_pairs(path)
    assert not read.report.rejected
    for side in ("query", "document", "negative"):
        written_texts = exported.texts.take(getattr(exported.train, side))
        assert read.texts.take(getattr(read, side)) == [text.strip() for text in written_texts]
    assert read.label is not None
    assert exported.train.label is not None
    np.testing.assert_array_equal(read.label, exported.train.label)
    np.testing.assert_array_equal(read.query_group, exported.train.query_group)


def test_the_classes_of_an_exported_file_are_recognized(tmp_path: Path) -> None:
    path = tmp_path / "nli.tsv"
    rows = "".join(f"premise {n}\thypothesis {n}\t{NLI[n % 3]}\n" for n in range(9))
    path.write_text(f"premise\thypothesis\tlabel\n{rows}", encoding="utf-8")
    exported = load_data(DataConfig(train=str(path)), seed=0)
    path.write_bytes(as_tsv(exported_columns(exported)))
    again = load_data(DataConfig(train=str(path)), seed=0).train
    assert again.class_names == NLI
    assert again.classes is not None
    assert again.classes.tolist() == exported.train.classes.tolist()


def test_the_split_column_restores_the_splits(tmp_path: Path) -> None:
    exported = data(["one", "two", "three"])
    path = tmp_path / "rows.tsv"
    path.write_bytes(as_tsv(exported_columns(exported)))
    again = load_data(DataConfig(train=str(path)), seed=0)
    assert (len(again.train), len(again.dev)) == (3, 1)


def test_missing_splits_are_left_out_and_rows_are_limited() -> None:
    columns = exported_columns(data(["one", "two", "three"]), ["train", "test"], rows=2)
    assert columns["split"] == ["train", "train"]
    assert exported_columns(data(["one"]), ["test"]) == {}


def test_a_column_that_one_split_lacks_is_left_out() -> None:
    train = PairDataset.from_pairs(["a", "b"], ["c", "d"], negatives=["e", "f"])
    dev = PairDataset.from_pairs(["a"], ["c"])
    assert "negative" not in exported_columns(share_texts([train, dev], None))
    assert "negative" in exported_columns(share_texts([train, dev], None), ["train"])


def test_pairs_of_a_split_without_labels_are_exported_as_positive(tmp_path: Path) -> None:
    train = PairDataset.from_pairs(["a", "b"], ["c", "d"], np.array([0.0, 1.0], dtype=np.float32))
    dev = PairDataset.from_pairs(["a"], ["c"])
    path = tmp_path / "rows.tsv"
    path.write_bytes(as_tsv(exported_columns(share_texts([train, dev], None))))
    label = read_pairs(path).label
    assert label is not None
    assert label.tolist() == [0.0, 1.0, 1.0]


@given(
    st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(str.strip), min_size=1, max_size=5)
)
def test_any_text_survives_a_parquet_file(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("export") / "rows.parquet"
    path.write_bytes(as_parquet(exported_columns(data(texts), ["train"])))
    read = read_pairs(path)
    assert read.texts.take(read.query) == [text.strip() for text in texts]
