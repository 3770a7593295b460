"""Marked false negatives: their file, and the text ids they become."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bsc_core.data import PairDataset
from bsc_core.data.false_negatives import (
    mark_false_negative,
    read_false_negatives,
    unmark_false_negative,
    with_false_negatives,
)
from bsc_core.errors import ColumnError, PathError


def test_pairs_are_marked_once_and_unmarked(tmp_path: Path) -> None:
    path = tmp_path / "marks" / "data.tsv"
    awkward = ('a "quoted" query', "two\tcolumns\nand lines")
    mark_false_negative(path, *awkward)
    mark_false_negative(path, "q", "d")
    mark_false_negative(path, *awkward)
    assert read_false_negatives(path) == [awkward, ("q", "d")]
    unmark_false_negative(path, *awkward)
    unmark_false_negative(path, "never", "marked")
    assert read_false_negatives(path) == [("q", "d")]
    unmark_false_negative(path, "q", "d")
    assert read_false_negatives(path) == []
    assert [file.name for file in path.parent.iterdir()] == ["data.tsv"]


def test_a_file_without_the_columns_is_refused(write, tmp_path: Path) -> None:
    write("marks.tsv", "question\tdocument\na\tb\n")
    with pytest.raises(ColumnError, match="query is missing"):
        read_false_negatives(tmp_path / "marks.tsv")
    with pytest.raises(PathError):
        read_false_negatives(tmp_path / "none.tsv")


def test_marked_pairs_are_reindexed_with_their_texts() -> None:
    dataset = with_false_negatives(
        PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"]), [("a", "y"), ("c", "z"), ("a", "elsewhere")]
    )
    named = {(dataset.texts[q], dataset.texts[d]) for q, d in dataset.marked_pairs.tolist()}
    assert named == {("a", "y"), ("c", "z")}
    fewer = dataset.take(np.asarray([0, 1])).compact()
    assert {(fewer.texts[q], fewer.texts[d]) for q, d in fewer.marked_pairs.tolist()} == {("a", "y")}
