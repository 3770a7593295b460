"""Tests of probes against scikit-learn, and of SentEval task files."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from bsc_core.data import TextTable, read_table
from bsc_core.errors import ColumnError, DataError
from bsc_core.evaluation import PROBE_TASKS, ProbeTask, compare, probe, read_probe_task
from bsc_core.evaluation.probes.probe import STRENGTHS
from bsc_core.evaluation.probes.tasks import SINGLE, probe_task


def small_task(rows=120, classes=2, split=None, seed=0):
    """Return texts whose vectors partly predict the class."""
    generator = np.random.default_rng(seed)
    numbers = np.arange(rows) % classes
    texts = TextTable(tuple(f"text {row}" for row in range(rows)))
    task = ProbeTask(
        "small",
        texts,
        np.arange(rows, dtype=np.int32),
        None,
        numbers.astype(np.int32),
        tuple("abcdef"[:classes]),
        tuple(split or ["all"] * rows),
    )
    vectors = generator.normal(size=(rows, 5)).astype(np.float32)
    vectors[:, :classes] += np.eye(classes, dtype=np.float32)[numbers]
    return task, vectors


def slow_choice(features, classes, parts):
    """Return the first C with the highest accuracy over (training rows, held-out rows)."""
    from sklearn.linear_model import LogisticRegression

    right = []
    for strength in STRENGTHS:
        fits = [(LogisticRegression(C=strength, max_iter=2000).fit(features[a], classes[a]), b) for a, b in parts]
        right.append(sum((model.predict(features[held]) == classes[held]).sum() for model, held in fits))
    return STRENGTHS[int(np.argmax(right))]


def slow_fit(features, classes, train, held, strength):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=2000).fit(features[train], classes[train]).predict(features[held])


@pytest.mark.parametrize("classes", [2, 4])
def test_nested_folds_are_those_of_scikit_learn_by_hand(classes):
    from sklearn.model_selection import StratifiedKFold

    task, vectors = small_task(classes=classes)
    result = probe(task, vectors, seed=3, folds=4, inner_folds=3)
    found, strengths = np.empty(120, dtype=int), []
    for train, held in StratifiedKFold(4, shuffle=True, random_state=3).split(vectors, task.classes):
        inner = StratifiedKFold(3, shuffle=True, random_state=3).split(train, task.classes[train])
        parts = [(train[a], train[b]) for a, b in inner]
        strengths.append(slow_choice(vectors, task.classes, parts))
        found[held] = slow_fit(vectors, task.classes, train, held, strengths[-1])
    assert result.strengths == pytest.approx(strengths)
    assert result.correct.tolist() == (found == task.classes).tolist()
    assert result.majority == pytest.approx(1 / classes, abs=0.05)
    assert result.split == "all"
    assert result.rows.tolist() == list(range(120))
    assert (result.f1 is None) == (classes > 2)


def test_with_three_splits_c_is_chosen_on_dev_and_test_is_evaluated():
    split = ["train"] * 70 + ["dev"] * 20 + ["test"] * 30
    task, vectors = small_task(split=split)
    result = probe(task, vectors, seed=0)
    train, dev, test = (task.rows(part) for part in ("train", "dev", "test"))
    strength = slow_choice(vectors, task.classes, [(train, dev)])
    assert result.strengths == (strength,)
    expected = slow_fit(vectors, task.classes, train, test, strength) == task.classes[test]
    assert result.correct.tolist() == expected.tolist()
    assert result.rows.tolist() == test.tolist()
    assert result.split == "test"


def test_without_a_test_split_dev_is_evaluated_and_c_chosen_within_train():
    task, vectors = small_task(split=["train"] * 90 + ["dev"] * 30)
    result = probe(task, vectors, seed=0)
    assert result.split == "dev"
    moved = vectors.copy()
    moved[90:] = moved[:30]
    assert probe(task, moved, seed=0).strengths == result.strengths  # dev had no effect


def test_the_classes_of_held_out_rows_never_reach_the_classifier():
    task, vectors = small_task(split=["train"] * 80 + ["test"] * 40)
    flipped = ProbeTask(task.name, task.texts, task.left, None, np.where(np.arange(120) < 80, task.classes,
                        1 - task.classes).astype(np.int32), task.class_names, task.split)  # fmt: skip
    one, two = probe(task, vectors, seed=0), probe(flipped, vectors, seed=0)
    assert one.correct.tolist() == (~two.correct).tolist()


def test_f1_is_that_of_scikit_learn():
    from sklearn.metrics import f1_score

    task, vectors = small_task()
    result = probe(task, vectors, seed=0, folds=5)
    found = np.where(result.correct, task.classes, 1 - task.classes)
    assert result.f1 == pytest.approx(f1_score(task.classes, found))


def test_pairs_are_seen_as_difference_and_product():
    texts = TextTable(("a", "b", "c"))
    ids = np.asarray([0, 1], dtype=np.int32)
    task = ProbeTask("pairs", texts, ids, ids + 1, ids, ("0", "1"), ("train", "dev"))
    vectors = np.asarray([[1, -2], [3, 5], [0, 1]], dtype=np.float32)
    assert task.features(vectors).tolist() == [[2, 7, 3, -10], [3, 4, 0, 5]]
    swapped = ProbeTask("pairs", texts, ids + 1, ids, ids, ("0", "1"), ("train", "dev"))
    assert swapped.features(vectors).tolist() == task.features(vectors).tolist()


def test_two_encoders_are_compared_on_the_same_rows():
    task, vectors = small_task(rows=300)
    untrained = np.random.default_rng(9).normal(size=(300, 8)).astype(np.float32)
    after, before, again = (probe(task, side, seed=0, folds=5) for side in (vectors, untrained, vectors))
    assert after.rows.tolist() == before.rows.tolist()
    comparison = compare(before.correct, after.correct, seed=0)
    assert comparison.difference.value == pytest.approx(after.accuracy - before.accuracy)
    assert comparison.significant
    interval = after.interval(seed=0)
    assert interval.low < after.accuracy < interval.high
    assert not compare(again.correct, after.correct, seed=0).significant


def test_what_cannot_be_probed_is_refused():
    task, vectors = small_task()
    with pytest.raises(DataError, match="119 vectors for 120 texts"):
        probe(task, vectors[1:], seed=0)
    with pytest.raises(DataError, match="80 folds, and the rarest class has 60 training rows"):
        probe(task, vectors, seed=0, folds=80)
    one = ProbeTask("one", task.texts, task.left, None, task.classes * 0, ("a",), task.split)
    with pytest.raises(DataError, match="of one class"):
        probe(one, vectors, seed=0)
    vectors[7] = np.nan
    with pytest.raises(DataError, match="vector 7 is not finite"):
        probe(task, vectors, seed=0)


def test_files_that_are_no_task_are_refused(tmp_path):
    path = tmp_path / "own.tsv"
    path.write_text("text\tlabel\na\t1\nb\t\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 3: label is empty"):
        probe_task("own", read_table(path), SINGLE)
    path.write_text("sentence\tlabel\na\t1\n", encoding="utf-8")
    with pytest.raises(ColumnError, match="no column text; there are sentence, label"):
        probe_task("own", read_table(path), SINGLE)
    with pytest.raises(DataError, match="choose one of MR, CR"):
        read_probe_task("SST5", tmp_path)
    (tmp_path / "senteval_mr").mkdir()
    rows = "".join(f"a\t{number}\n" for number in range(7))
    (tmp_path / PROBE_TASKS["MR"].path).write_bytes(gzip.compress(f"text\tlabel\n{rows}".encode()))
    with pytest.raises(DataError, match="7 classes, and at most 6"):
        read_probe_task("MR", tmp_path)


ROWS = {
    "MR": 10_662,
    "CR": 3771,
    "SUBJ": 10_000,
    "MPQA": 10_603,
    "SST2": 9613,
    "TREC": 5952,
    "MRPC": 4076,
    "SICK-E": 9927,
}
CLASSES = {"TREC": 6, "SICK-E": 3}


@pytest.mark.parametrize("name", PROBE_TASKS)
def test_every_task_file_is_read_completely(shared_data, name):
    task = read_probe_task(name, shared_data)
    assert len(task) == ROWS[name]
    assert len(task.class_names) == CLASSES.get(name, 2)
    parts = {part: len(task.rows(part)) for part in dict.fromkeys(task.split)}
    known = {"SST2": (6920, 872, 1821), "TREC": (5452, 500), "MRPC": (3668, 408), "SICK-E": (4500, 500, 4927)}
    assert sorted(parts.values()) == sorted(known.get(name, (ROWS[name],)))
    assert (task.right is not None) == (name in ("MRPC", "SICK-E"))
    assert task.repeats == {"MPQA": 2363, "MRPC": 0}.get(name, task.repeats)


def test_word_counts_classify_most_questions_of_trec(shared_data):
    from sklearn.feature_extraction.text import HashingVectorizer

    task = read_probe_task("TREC", shared_data)
    words = HashingVectorizer(n_features=300, alternate_sign=True).transform(task.texts)
    result = probe(task, words.toarray().astype(np.float32), seed=0, inner_folds=2)
    assert result.split == "test"
    assert len(result.rows) == 500
    assert result.majority == pytest.approx(0.188)
    assert 0.6 < result.accuracy < 0.9
    assert result.unconverged == 0
