"""Marked false negatives: the small file they stand in, and the text ids they become."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bsc_core.data import PairDataset
from bsc_core.data.marks import add_mark, read_marks, remove_mark, with_marks
from bsc_core.errors import ColumnError, PathError


def test_marks_are_kept_once_and_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "marks" / "data.tsv"
    awkward = ('a "quoted" query', "two\tcolumns\nand lines")
    add_mark(path, *awkward)
    add_mark(path, "q", "d")
    add_mark(path, *awkward)
    assert read_marks(path) == [awkward, ("q", "d")]
    remove_mark(path, *awkward)
    remove_mark(path, "never", "marked")
    assert read_marks(path) == [("q", "d")]
    remove_mark(path, "q", "d")
    assert read_marks(path) == []
    assert [file.name for file in path.parent.iterdir()] == ["data.tsv"]


def test_a_file_without_the_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "marks.tsv").write_text("question\tdocument\na\tb\n", encoding="utf-8")
    with pytest.raises(ColumnError, match="query is missing"):
        read_marks(tmp_path / "marks.tsv")
    with pytest.raises(PathError):
        read_marks(tmp_path / "none.tsv")


def test_marks_follow_their_texts_to_another_table() -> None:
    dataset = with_marks(
        PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"]), [("a", "y"), ("c", "z"), ("a", "elsewhere")]
    )
    named = {(dataset.texts[q], dataset.texts[d]) for q, d in dataset.marked_pairs.tolist()}
    assert named == {("a", "y"), ("c", "z")}
    fewer = dataset.take(np.asarray([0, 1])).compact()
    assert {(fewer.texts[q], fewer.texts[d]) for q, d in fewer.marked_pairs.tolist()} == {("a", "y")}
