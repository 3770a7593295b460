"""Files of classified sentences: columns read, rows rejected, files refused."""

import pytest

from bsc_core.config import DataConfig, ExamplesConfig, SentenceColumns
from bsc_core.data import read_table
from bsc_core.data.io.read_pairs import to_sentences
from bsc_core.data.load import load_data
from bsc_core.errors import ColumnError, DataError


def read_sentences(path, **config):
    return to_sentences(read_table(path), ExamplesConfig(**config))


@pytest.fixture
def sentences_of(write):
    """Read classified sentences from the text of a CSV file."""
    return lambda content: read_sentences(write("sentences.csv", content))


def test_text_class_and_split_are_guessed_and_the_report_says_so(sentences_of):
    result = sentences_of("text,label,split\ngood,pos,train\nbad,neg,dev\ngood,neg,train\n")
    assert result.texts.take(result.query) == ["good", "bad", "good"]
    assert [result.class_name(row) for row in range(3)] == ["pos", "neg", "neg"]
    assert result.split == ("train", "dev", "train")
    assert result.line.tolist() == [2, 3, 4]
    assert result.report.guessed
    assert result.report.columns == SentenceColumns(text="text", class_label="label", split="split")


def test_named_columns_take_precedence_and_several_make_one_text(write):
    path = write("sentences.csv", "text,label,head,body,topic\nx,0,a,b,sea\ny,1,c,d,sky\n")
    result = read_sentences(path, text=("head", "body"), class_label="topic")
    assert result.texts.take(result.query) == ["a b", "c d"]
    assert result.class_names == ("sea", "sky")
    assert not result.report.guessed


def test_an_empty_name_means_no_split(write):
    rows = "text,label,split\ngood,pos,all\nbad,neg,all\nfine,pos,all\ndull,neg,all\n"
    path, other = write("sentences.csv", rows), write("others.csv", rows)
    assert read_sentences(path, split="").split is None
    data = load_data(DataConfig(train=path, mix=(other,), examples=ExamplesConfig(split="")), seed=0)
    assert len(data.train) + len(data.dev) == 8


def test_the_class_column_is_not_guessed_as_the_sentence(sentences_of):
    result = sentences_of("question,category\nwho?,person\nwhere?,place\n")
    assert result.class_names == ("person", "place")


def test_rows_without_a_text_or_a_class_are_rejected(sentences_of):
    result = sentences_of("text,label\ngood,1\n ,0\nbad,-1\nworse,\nodd,two\nfine,0\n")
    assert result.texts.take(result.query) == ["good", "fine"]
    assert [(row.line, row.field, row.reason) for row in result.report.rejected] == [
        (3, "text", "the text is empty"),
        (4, "label", "the row has no class"),
        (5, "label", "the row has no class"),
        (6, "label", "the class 'two' is not a whole number"),
    ]
    assert result.report.rows_read == result.report.rows_valid + len(result.report.rejected)


def test_an_unpaired_surrogate_is_rejected(write):
    path = write("rows.jsonl", '{"text": "\\ud83d", "label": 1}\n{"text": "ok 😀", "label": 0}\n')
    result = read_sentences(path)
    assert result.texts.texts == ("ok 😀",)
    assert "an unpaired surrogate" in result.report.rejected[0].reason


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "no column looks like the sentence.*data.examples.text"),
        ("text,b\n1,2\n", "no column looks like the class.*data.examples.class_label"),
    ],
)
def test_unknown_columns_are_refused_with_the_key_to_set(sentences_of, content, message):
    with pytest.raises(ColumnError, match=message):
        sentences_of(content)


def test_a_missing_column_or_one_with_two_roles_is_refused(write):
    path = write("sentences.csv", "text,label\na,1\n")
    with pytest.raises(ColumnError, match="no column 'words' for text"):
        read_sentences(path, text="words")
    with pytest.raises(ColumnError, match="'text' is used as text and as class_label"):
        read_sentences(path, text="text", class_label="text")


def test_a_file_whose_sentences_all_lack_a_class_is_refused(sentences_of):
    with pytest.raises(
        DataError, match=r"none of its rows can be used .2 read.; the first: line 2, label: the row has"
    ):
        sentences_of("text,label\na,-1\nb,\n")


def test_class_names_are_numbered_the_same_in_all_splits(write):
    train = write("train.csv", "text,label\na,dog\nb,cat\nc,dog\n")
    dev = write("dev.csv", "text,label\nd,cat\ne,eel\n")
    data = load_data(DataConfig(train=train, dev=dev, examples=ExamplesConfig()), seed=0)
    assert data.train.class_names == data.dev.class_names == ("cat", "dog", "eel")
    assert data.train.classes.tolist() == [1, 0, 1]
    assert data.dev.classes.tolist() == [0, 2]


def test_a_text_is_never_in_both_train_and_dev(write):
    rows = "".join(f"text {number % 17},{number % 2}\n" for number in range(60))
    path = write("sentences.csv", "text,label\n" + rows)
    data = load_data(DataConfig(train=path, examples=ExamplesConfig(), dev_size=0.3), seed=1)
    assert not set(data.train.query.tolist()) & set(data.dev.query.tolist())
    assert len(data.train) + len(data.dev) == 60


def test_classes_stay_with_their_sentences_where_rows_are_left_out(sentences_of):
    result = sentences_of("text,label\n,first\nkept,second\n,first\nalso kept,third\n")
    assert [result.class_name(row) for row in range(2)] == ["second", "third"]
    assert result.line.tolist() == [3, 5]
