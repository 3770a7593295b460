"""Decisions about likely false negatives: their file, merging, and the rows and labels that they change."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bsc_core.data import PairDataset
from bsc_core.data.decisions import (
    KINDS,
    Decision,
    add_decisions,
    applied_sentence,
    contradicted_rows,
    decided_rows,
    decisions_sentence,
    merge_decisions,
    read_decisions,
    undo_decisions,
    with_decisions,
    write_decisions,
)
from bsc_core.data.schema.classes import NLI
from bsc_core.errors import ColumnError, DataError, PathError
from bsc_core.evaluation.evaluator import split_digest
from bsc_core.evaluation.retrieval.rank import retrieval_task
from tests.helpers.waiting import PATIENCE_SECONDS

AWKWARD = ('a "quoted" query', "two\tcolumns\nand lines")
TABLE = "id\tname\tage\tcity\tzip\n" * 3 + "How do I sum a column?"  # each line has the tabs of a row of decisions
OLD_LINE_ENDING = ("a\rother query", "d")


def test_decisions_of_two_processes_are_all_saved(tmp_path: Path) -> None:
    code = """
import sys
from bsc_core.data.decisions import Decision, add_decisions, undo_decisions
for number in range(40):
    add_decisions(sys.argv[1], [Decision(f"{sys.argv[2]} {number}", "d"), Decision(f"{sys.argv[2]} undone", "d")])
    undo_decisions(sys.argv[1], [(f"{sys.argv[2]} undone", "d")])
"""
    file = tmp_path / "marks" / "decisions.tsv"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(file), name]) for name in ("a", "b")]
    assert [process.wait(PATIENCE_SECONDS) for process in processes] == [0, 0]
    assert sorted(one.query for one in read_decisions(file)) == sorted(f"{one} {n}" for one in "ab" for n in range(40))
    (file.parent / f".{file.name}.lock").unlink()
    (file.parent / f".{file.name}.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="cannot be changed"):
        add_decisions(file, [Decision("q", "d")])
    assert not (tmp_path / "elsewhere").exists()


def test_decisions_are_added_once_changed_and_undone(tmp_path: Path) -> None:
    path = tmp_path / "marks" / "data.tsv"
    add_decisions(path, [Decision(*AWKWARD, "positive", who="Ada"), Decision("q", "d")])
    first = read_decisions(path)
    add_decisions(path, [Decision(*AWKWARD, "positive", who="Bob")])
    assert read_decisions(path) == first, "the same decision changes nothing"
    assert [(one.pair, one.decision, one.who) for one in first] == [
        (AWKWARD, "positive", "Ada"),
        (("q", "d"), "drop", ""),
    ]
    assert all(one.when for one in first)
    add_decisions(path, [Decision("q", "d", "true_negative")])
    assert [one.decision for one in read_decisions(path)] == ["positive", "true_negative"]
    undo_decisions(path, [AWKWARD, ("never", "decided")])
    assert [one.pair for one in read_decisions(path)] == [("q", "d")]
    undo_decisions(path, [("q", "d")])
    assert read_decisions(path) == []
    assert [file.name for file in path.parent.glob("[!.]*")] == ["data.tsv"]


def test_a_decision_about_a_table_of_tabs_leaves_the_file_readable(tmp_path: Path) -> None:
    path = tmp_path / "data.tsv"
    add_decisions(path, [Decision("q", "d")])
    add_decisions(path, [Decision(TABLE, "d", who="Ada")])
    assert [one.pair for one in read_decisions(path)] == [("q", "d"), (TABLE, "d")]


def test_a_file_of_an_earlier_version_has_dropped_pairs(write, tmp_path: Path) -> None:
    write("marks.tsv", "query\tdocument\na\tb\na\tb\n")
    assert read_decisions(tmp_path / "marks.tsv") == [Decision("a", "b", "drop")]
    write("empty.tsv", "query\tdocument\n")
    assert read_decisions(tmp_path / "empty.tsv") == []


def test_unusable_files_are_refused(write, tmp_path: Path) -> None:
    write("columns.tsv", "question\tdocument\na\tb\n")
    with pytest.raises(ColumnError, match="query is missing"):
        read_decisions(tmp_path / "columns.tsv")
    with pytest.raises(PathError):
        read_decisions(tmp_path / "none.tsv")
    write("kind.tsv", "query\tdocument\tdecision\na\tb\tperhaps\n")
    with pytest.raises(DataError, match="row 2 has the decision 'perhaps'; use one of positive, drop, true_negative"):
        read_decisions(tmp_path / "kind.tsv")
    write("fields.tsv", "query\tdocument\tdecision\na\tb\tdrop\nc\td\n")
    with pytest.raises(DataError, match=r"line 3.*; correct this row of decisions"):
        read_decisions(tmp_path / "fields.tsv")
    write("list.jsonl", '{"query": "a", "document": "b", "decision": ["positive"]}\n')
    with pytest.raises(ColumnError, match="decision contains lists"):
        read_decisions(tmp_path / "list.jsonl")
    write("both.tsv", "query\tdocument\tdecision\na\tb\tdrop\nc\td\tdrop\na\tb\tpositive\n")
    with pytest.raises(DataError, match="row 4 decides positive for a pair that an earlier row decides drop"):
        read_decisions(tmp_path / "both.tsv")


def test_a_merge_returns_the_pairs_that_are_decided_differently(tmp_path: Path) -> None:
    first = [Decision("a", "x", "drop"), Decision("b", "x", "positive")]
    second = [Decision("b", "x", "true_negative"), Decision("a", "x", "drop"), Decision("c", "x", "drop")]
    merged = merge_decisions(first, second)
    assert merged.decisions == (*first, second[2])
    assert merged.added == 1
    assert merged.conflicts == ((first[1], second[0]),)
    write_decisions(tmp_path / "merged.tsv", merged.decisions)
    assert tuple(read_decisions(tmp_path / "merged.tsv")) == merged.decisions
    assert decisions_sentence(merged.decisions) == "3 decisions: 1 positive, 2 drop"


def test_decided_pairs_are_reindexed_with_their_texts() -> None:
    decisions = [Decision("a", "y", "positive"), Decision("b", "x", "true_negative")]
    decisions += [Decision("c", "z"), Decision("a", "elsewhere")]
    dataset = with_decisions(PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"]), decisions)
    assert named(dataset, dataset.marked_pairs) == {("a", "y"), ("c", "z")}
    fewer = dataset.take(np.asarray([0, 1])).compact()
    assert named(fewer, fewer.marked_pairs) == named(fewer, fewer.decided_positives) == {("a", "y")}
    assert named(fewer, fewer.decided_negatives) == {("b", "x")}


def named(dataset: PairDataset, pairs: np.ndarray | None) -> set[tuple[str, str]]:
    return {(dataset.texts[q], dataset.texts[d]) for q, d in np.asarray(pairs).tolist()}


def test_decisions_change_labels_and_the_rows_that_contradict_them() -> None:
    graded = PairDataset.from_pairs(["a", "a", "b", "b"], ["x", "y", "x", "y"], labels=[1, 0, 0, 1])
    decided = with_decisions(
        graded, [Decision("a", "y", "positive"), Decision("b", "x"), Decision("b", "y", "true_negative")]
    )
    assert decided.label is not None
    assert decided.label.tolist() == [1, 1, 0, 0]
    assert contradicted_rows(decided).tolist() == [False, False, True, False]
    counts = "1 positive, 1 dropped (ignored by the loss), 1 true negative"
    assert applied_sentence(decided) == f"3 decisions applied: {counts}; 1 training row removed"
    assert applied_sentence(graded) is None
    plain = with_decisions(PairDataset.from_pairs(["a", "b"], ["x", "y"]), [Decision("b", "y", "true_negative")])
    assert plain.label is None
    assert contradicted_rows(plain).tolist() == [False, True]


def test_a_pair_decided_positive_becomes_a_training_row() -> None:
    decisions = [Decision("a", "y", "positive"), Decision("b", "y", "positive"), Decision("c", "x", "positive")]
    pairs = PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"], query_ids=["1", "2", "3"])
    data = with_decisions(pairs, decisions)
    train = data.take(np.asarray([0, 1]))  # c is a query of another split
    rows = decided_rows(train)
    assert list(zip(rows.texts.take(rows.query), rows.texts.take(rows.document), strict=True)) == [
        ("a", "x"),
        ("b", "y"),
        ("a", "y"),
    ]
    assert rows.label is None
    assert rows.query_group[0] == rows.query_group[2]
    assert applied_sentence(train) == "3 decisions applied: 3 positives; 0 training rows removed, 1 added"
    assert applied_sentence(rows) == "3 decisions applied: 3 positives; 0 training rows removed"
    assert decided_rows(rows) is rows
    graded = decided_rows(with_decisions(PairDataset.from_pairs(["a", "b"], ["x", "y"], [0.7, 0.9]), decisions[:1]))
    assert graded.label is not None
    assert graded.label.tolist() == pytest.approx([0.7, 0.9, 1.0])


def test_the_negative_of_an_added_triplet_is_not_its_document() -> None:
    triplets = PairDataset.from_pairs(["a", "a", "b"], ["x", "x", "y"], negatives=["y", "z", "x"])
    rows = decided_rows(with_decisions(triplets, [Decision("a", "y", "positive")]))
    assert rows.negative is not None
    columns = (rows.texts.take(ids) for ids in (rows.query, rows.document, rows.negative))
    assert list(zip(*columns, strict=True)) == [("a", "x", "z"), ("b", "y", "x"), ("a", "y", "z")]


def test_every_kind_of_decision_changes_the_digest() -> None:
    dataset = PairDataset.from_pairs(["a", "b"], ["x", "y"])
    digests = {with_decisions(dataset, [Decision("a", "y", kind)]).digest for kind in KINDS}
    assert len(digests | {dataset.digest}) == 4


def test_a_positive_document_is_relevant_in_the_evaluation() -> None:
    dataset = PairDataset.from_pairs(["a", "b"], ["x", "y"])
    for kind, relevant in (("positive", [0, 1]), ("drop", [0]), ("true_negative", [0])):
        task = retrieval_task(with_decisions(dataset, [Decision("a", "y", kind)]))
        assert task.relevant(0).tolist() == relevant
        assert task.relevant(1).tolist() == [1]
        assert len(task.owner) == len(task.gold)
    assert replace(dataset, decided_positives=None).digest == dataset.digest


def test_results_with_and_without_a_positive_decision_are_of_different_data() -> None:
    dataset = PairDataset.from_pairs(["a", "b"], ["x", "y"])
    decided = [split_digest(with_decisions(dataset, [Decision("a", "y", kind)])) for kind in KINDS]
    assert [digest == split_digest(dataset) for digest in decided] == [kind != "positive" for kind in KINDS]
    of_another_split = with_decisions(dataset, [Decision("a", "y", "positive")]).take(np.array([1]))
    assert split_digest(of_another_split) == split_digest(dataset.take(np.array([1])))
    assert split_digest(of_another_split, of_all_decisions=True) != split_digest(of_another_split)


def test_a_carriage_return_in_a_text_moves_no_decision_to_another_pair(tmp_path: Path) -> None:
    path = tmp_path / "marks.tsv"
    add_decisions(path, [Decision(*OLD_LINE_ENDING), Decision("q", "d")])
    assert [one.pair for one in read_decisions(path)] == [OLD_LINE_ENDING, ("q", "d")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("query\tdocument\tlabel\na\tb\t1\n", "has the column 'label', so it is not a file of decisions"),
        ("query\tdocument\na\tb\na\tb\n", "has no column 'decision', so it is not changed"),  # training pairs
    ],
)
def test_a_table_of_pairs_is_not_changed(write, tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "pairs.tsv"
    write("pairs.tsv", content)
    for change in (lambda: add_decisions(path, [Decision("q", "d")]), lambda: undo_decisions(path, [("a", "b")])):
        with pytest.raises(DataError, match=reason):
            change()
    assert path.read_text() == content


def test_contradicting_decisions_about_equal_texts_are_refused() -> None:
    pairs = PairDataset.from_pairs(["Is it?", "other"], ["x", "y"])
    decisions = [Decision("Is it?", "x", "positive"), Decision("is it", "X.", "true_negative")]
    applied = "1 decision applied: 1 positive; 0 training rows removed"
    assert applied_sentence(with_decisions(pairs, decisions)) == applied
    with pytest.raises(DataError, match="positive and true_negative are about equal texts"):
        with_decisions(pairs, decisions, "normalized")


def test_decisions_change_nli_classes_too() -> None:
    pairs = replace(
        PairDataset.from_pairs(["a", "b", "c"], ["x", "y", "z"], labels=[1, 0, 1]),
        classes=np.asarray([0, 2, 0], dtype=np.int32),
        class_names=NLI,
    )
    decided = with_decisions(pairs, [Decision("a", "x", "true_negative"), Decision("b", "y", "positive")])
    assert decided.classes is not None
    assert decided.classes.tolist() == [0, 0, 0]
    assert contradicted_rows(decided).tolist() == [True, False, False]
    assert applied_sentence(decided) == "2 decisions applied: 1 positive, 1 true negative; 1 training row removed"


def test_spaces_at_the_ends_of_decided_texts_do_not_matter(write) -> None:
    path = write("marks.tsv", "query\tdocument\tdecision\n a\tx \tpositive\n")
    assert [one.pair for one in read_decisions(path)] == [("a", "x")]


def test_a_decision_that_could_not_be_read_again_is_refused(tmp_path):
    path = tmp_path / "decisions.tsv"
    with pytest.raises(DataError, match="too long for a file of decisions"):
        add_decisions(path, [Decision("q", "long " * 2_000_000)])
    assert not path.exists()
    add_decisions(path, [Decision("q", '"' * 2_000_000)])  # quotation marks are doubled in the file
    assert len(read_decisions(path)) == 1
