"""Texts that are equal after normalization: one text in duplicates, batches, splits and evaluation."""

import numpy as np
import pytest

from bsc_core.config import DataConfig, ExamplesConfig
from bsc_core.data import load_data, load_evaluation_data
from bsc_core.evaluation.retrieval.rank import retrieval_task

PAIRS = (
    "query,document,doc_id,split\n"
    "Is it true?,It is “true”.,1,train\n"
    "is it  true,It is 'true',2,train\n"
    "another one,other text,3,train\n"
    "who said it,It is true!,2,dev\n"
)
CORPUS = "doc_id,text\n1,It is “true”.\n2,It is 'true'\n3,other text\n4,IT IS TRUE\n"


@pytest.fixture
def files(write):
    return {"train": write("pairs.csv", PAIRS), "corpus": write("corpus.csv", CORPUS)}


def test_copies_are_one_text_the_first_one(files):
    exact = load_data(DataConfig(**files))
    data = load_data(DataConfig(**files, text_identity="normalized"))
    assert len(np.unique(exact.train.document)) == 3
    assert data.train.document[0] == data.train.document[1]
    assert data.train.query[0] == data.train.query[1]
    assert data.train.query_group[0] == data.train.query_group[1] != data.train.query_group[2]
    assert data.texts.take(data.train.document) == ["It is “true”.", "It is “true”.", "other text"]
    assert data.dev.document[0] == data.train.document[0]


def test_copies_are_duplicates_and_leaks_for_the_filters(files):
    config = DataConfig(**files, text_identity="normalized", filters=("drop_duplicates",))
    assert load_data(config).filtered == (("drop_duplicates", 1),)
    exact = config.model_copy(update={"text_identity": "exact"})
    assert load_data(exact).filtered == (("drop_duplicates", 0),)


def test_every_copy_of_a_right_document_is_right(files):
    for identity, gold in (("exact", [1]), ("normalized", [0, 1, 3])):
        data = load_data(DataConfig(**files, text_identity=identity))
        task = retrieval_task(data.dev, data.corpus)
        assert task.relevant(0).tolist() == gold
        dataset, corpus = load_evaluation_data(DataConfig(**files, text_identity=identity))
        task = retrieval_task(dataset, corpus)
        assert task.relevant(len(task.query) - 1).tolist() == gold


def test_without_keys_every_copy_is_right_too(write):
    pairs = write("pairs.csv", "query,document,split\na,x y,train\nb,y,train\nc,X Y!,dev\n")
    corpus = write("corpus.csv", "text\nx y\nx-y\ny\n")
    data = load_data(DataConfig(train=pairs, corpus=corpus, text_identity="normalized"))
    assert retrieval_task(data.dev, data.corpus).relevant(0).tolist() == [0, 1]


@pytest.mark.parametrize("corpus", ["5,y\n,Y!\n1,x\n,z\n", ",Y!\n5,y\n1,x\n,z\n"])
def test_a_pair_without_a_document_id_is_not_given_that_of_another_document(write, corpus):
    pairs = write("pairs.csv", "query,document,doc_id,split\na,x,,train\nb,y,5,dev\nc,z,,dev\nd,w,,train\n")
    corpus = write("corpus.csv", f"id,text\n{corpus}")
    data = load_data(DataConfig(train=pairs, corpus=corpus, text_identity="normalized"))
    task = retrieval_task(data.dev, data.corpus)
    assert [task.relevant(0).tolist(), task.relevant(1).tolist()] == [[0, 1], [3]]


def test_sentences_of_one_text_have_one_group(write):
    train = write("classes.csv", "text,class_label\nGood!,a\ngood,a\nbad,b\nworse,b\nfine,a\nawful,b\n")
    config = DataConfig(train=train, text_identity="normalized", examples=ExamplesConfig(encoder="static"))
    data = load_data(config)
    rows = np.concatenate([split.query for split in data.splits.values()])
    assert len(np.unique(rows)) == 5


def test_copies_in_two_files_of_a_mix_are_one_text(write):
    config = DataConfig(
        train=write("one.csv", "query,document\na,x\nb,y\nc,z\n"),
        mix=(write("two.csv", "query,document\nA!,w\nd,X?\n"),),
        text_identity="normalized",
    )
    data = load_data(config)
    groups = {}
    for split in data.splits.values():
        for text, group in zip(data.texts.take(split.query), split.query_group.tolist(), strict=True):
            groups.setdefault(text, set()).add(group)
    assert "A!" not in groups
    assert len(groups["a"]) == 1
    assert "X?" not in data.texts.texts


def test_a_decision_about_a_copy_applies_to_all_copies(files, write):
    marks = write("marks.tsv", "query\tdocument\tdecision\nANOTHER ONE\tit is true?\tpositive\n")
    for identity, count in (("exact", 0), ("normalized", 1)):
        data = load_data(DataConfig(**files, text_identity=identity, false_negatives=marks))
        assert len(data.train.marked_pairs) == count
    ((query, document),) = data.train.marked_pairs
    assert (data.texts[query], data.texts[document]) == ("another one", "It is “true”.")
