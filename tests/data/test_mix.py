"""Several files as one training mix: rows one after the other, one report a file, nothing silently left out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import Columns, DataConfig, ExamplesConfig
from bsc_core.data import PairDataset, load_data
from bsc_core.data.mix import concatenate
from bsc_core.errors import ColumnError

ROWS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz"), st.integers(0, 2)), min_size=1, max_size=8)


@pytest.fixture
def write(tmp_path):
    def written(name, content):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    return written


def texts_of(part):
    return list(zip(part.texts.take(part.query), part.texts.take(part.document), strict=True))


def dataset_of(rows):
    queries, documents, ids = zip(*rows, strict=True)
    return PairDataset.from_pairs(queries, documents, query_ids=[str(number) for number in ids])


@given(st.lists(ROWS, min_size=1, max_size=3))
@settings(deadline=None)
def test_every_row_of_every_file_is_there_once_and_in_order(files):
    whole = concatenate([dataset_of(rows) for rows in files])
    assert texts_of(whole) == [(query, document) for rows in files for query, document, _ in rows]
    assert len(set(whole.texts.texts)) == len(whole.texts)


@given(st.lists(ROWS, min_size=2, max_size=3))
@settings(deadline=None)
def test_rows_with_one_query_text_are_of_one_query_whatever_their_file(files):
    whole = concatenate([dataset_of(rows) for rows in files])
    group_of = dict(zip(whole.texts.take(whole.query), whole.query_group.tolist(), strict=True))
    assert [group_of[query] for query in whole.texts.take(whole.query)] == whole.query_group.tolist()


def test_equal_query_ids_of_two_files_are_two_queries():
    whole = concatenate([dataset_of([("a", "x", 1), ("b", "y", 1)]), dataset_of([("c", "z", 1)])])
    assert whole.query_group.tolist() == [0, 0, 1]


def test_each_file_has_its_report_and_its_splits(write):
    first = write("one.csv", "query,document,label,split\na,x,1,train\nb,y,0,dev\n")
    second = write("two.csv", "split,label,document,query\ntrain,0,z,c\ndev,1,w,d\ntest,1,v,e\n,,,\n")
    data = load_data(DataConfig(train=first, mix=(second,)), seed=0)
    assert texts_of(data.train) == [("a", "x"), ("c", "z")]
    assert texts_of(data.dev) == [("b", "y"), ("d", "w")]
    assert texts_of(data.test) == [("e", "v")]
    assert data.train.label.tolist() == [1, 0]
    assert [(report.source, report.rows_read, len(report.rejected)) for report in data.reports] == [
        (first, 2, 0),
        (second, 4, 1),
    ]


@pytest.mark.parametrize("columns", [None, Columns(query="query", document="document", split="split")])
def test_a_file_without_the_split_column_is_training_rows_alone(write, columns):
    first = write("one.csv", "query,document,split\na,x,train\nb,y,dev\n")
    second = write("two.csv", "query,document\nc,z\n")
    data = load_data(DataConfig(train=first, mix=(second,), columns=columns), seed=0)
    assert texts_of(data.train) == [("a", "x"), ("c", "z")]
    assert texts_of(data.dev) == [("b", "y")]


def test_the_test_rows_of_a_further_file_are_never_trained_on(write):
    first = write("one.csv", "query,document\na,x\nb,y\n")
    second = write("two.csv", "query,document,Split\nc,z,train\nd,w,test\ne,v,dev\n")
    data = load_data(DataConfig(train=first, mix=(second,)), seed=0)
    assert texts_of(data.train) == [("a", "x"), ("b", "y"), ("c", "z")]
    assert texts_of(data.test) == [("d", "w")]


def test_a_file_that_lacks_a_column_is_refused_with_its_name(write):
    first, second = write("one.csv", "query,document,label\na,x,1\n"), write("two.csv", "query,document\nc,z\n")
    with pytest.raises(ColumnError, match=r"two\.csv: there is no column 'label' for label") as caught:
        load_data(DataConfig(train=first, mix=(second,)), seed=0)
    assert f"a file of data.mix needs the columns of {first}" in str(caught.value)


def test_classes_in_words_are_numbered_alike(write):
    first = write("one.csv", "query,document,label\na,x,neutral\nb,y,entailment\n")
    second = write("two.csv", "query,document,label\nc,z,contradiction\nd,w,entailment\n")
    config = DataConfig(
        train=first, mix=(second,), dev=first, columns=Columns(query="query", document="document", class_label="label")
    )
    train = load_data(config, seed=0).train
    assert [train.class_names[number] for number in train.classes] == [
        "neutral",
        "entailment",
        "contradiction",
        "entailment",
    ]


def test_sentences_can_be_mixed(write):
    first, second = write("one.csv", "text,topic\na,1\nb,2\n"), write("two.csv", "topic,text\n2,c\n1,d\n")
    data = load_data(DataConfig(train=first, mix=(second,), dev=first, examples=ExamplesConfig()), seed=0)
    assert data.texts.take(data.train.query) == ["a", "b", "c", "d"]
    assert data.train.classes.tolist() == [1, 2, 2, 1]
