"""Files of classified sentences: which columns are read, what is rejected and what is refused."""

import pytest

from bsc_core.config import DataConfig, ExamplesConfig
from bsc_core.data.experiment import load_data
from bsc_core.data.sentences import Sentences, read_sentences
from bsc_core.errors import ColumnError, DataError


@pytest.fixture
def write(tmp_path):
    def written(content, name="sentences.csv"):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    return written


def test_text_class_and_split_are_guessed_and_the_report_says_so(write):
    found = read_sentences(write("text,label,split\ngood,pos,train\nbad,neg,dev\ngood,neg,train\n"))
    assert found.texts.take(found.text) == ["good", "bad", "good"]
    assert [found.class_name(row) for row in range(3)] == ["pos", "neg", "neg"]
    assert found.split == ("train", "dev", "train")
    assert found.line.tolist() == [2, 3, 4]
    assert found.report.mapping() == "columns guessed from the header: text = text, class_label = label, split = split"


def test_named_columns_win_and_several_make_one_text(write):
    path = write("text,label,head,body,topic\nx,0,a,b,sea\ny,1,c,d,sky\n")
    found = read_sentences(path, ExamplesConfig(text=("head", "body"), class_label="topic"))
    assert found.texts.take(found.text) == ["a b", "c d"]
    assert found.class_names == ("sea", "sky")
    assert not found.report.guessed


def test_an_empty_name_says_that_there_is_no_split(write):
    path = write("text,label,split\ngood,pos,all\nbad,neg,all\nfine,pos,all\ndull,neg,all\n")
    assert read_sentences(path, ExamplesConfig(split="")).split is None
    data = load_data(DataConfig(train=path, mix=(path,), examples=ExamplesConfig(split="")), seed=0)
    assert len(data.train) + len(data.dev) == 8


def test_a_class_column_that_is_called_text_elsewhere_is_not_the_sentence(write):
    found = read_sentences(write("question,category\nwho?,person\nwhere?,place\n"))
    assert found.class_names == ("person", "place")


def test_rows_without_a_text_or_a_class_are_counted_and_left_out(write):
    found = read_sentences(write("text,label\ngood,1\n ,0\nbad,-1\nworse,\nodd,two\nfine,0\n"))
    assert found.texts.take(found.text) == ["good", "fine"]
    assert [(row.line, row.field, row.reason) for row in found.report.rejected] == [
        (3, "text", "the text is empty"),
        (4, "label", "the row has no class"),
        (5, "label", "the row has no class"),
        (6, "label", "the class 'two' is not a whole number"),
    ]
    assert found.report.rows_read == found.report.rows_kept + len(found.report.rejected)


def test_half_a_surrogate_pair_is_rejected(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "\\ud83d", "label": 1}\n{"text": "ok 😀", "label": 0}\n', encoding="utf-8")
    found = read_sentences(path)
    assert found.texts.texts == ("ok 😀",)
    assert "half a surrogate pair" in found.report.rejected[0].reason


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "cannot tell which column holds the sentence.*data.examples.text"),
        ("text,b\n1,2\n", "cannot tell which column holds the class.*data.examples.class_label"),
    ],
)
def test_columns_that_cannot_be_told_are_asked_for(write, content, message):
    with pytest.raises(ColumnError, match=message):
        read_sentences(write(content))


def test_a_column_that_is_not_there_or_has_two_roles_is_refused(write):
    path = write("text,label\na,1\n")
    with pytest.raises(ColumnError, match="no column 'words' for text"):
        read_sentences(path, ExamplesConfig(text="words"))
    with pytest.raises(ColumnError, match="'text' is mapped to text and to class_label"):
        read_sentences(path, ExamplesConfig(text="text", class_label="text"))


def test_a_file_whose_sentences_all_lack_a_class_is_refused(write):
    with pytest.raises(
        DataError, match=r"none of its rows can be used .2 read.; the first: line 2, label: the row has"
    ):
        read_sentences(write("text,label\na,-1\nb,\n"))


def test_sentences_survive_the_way_through_pairs(write):
    before = read_sentences(write("text,label,split\na,x,train\nb,y,train\na,y,train\nc,x,dev\nd,y,test\n"))
    after = Sentences.from_pairs(before.as_pairs(0.5))
    assert (after.text == before.text).all()
    assert (after.classes == before.classes).all()
    assert after.class_names == before.class_names


def test_classes_in_words_are_numbered_alike_in_all_parts(write):
    train = write("text,label\na,dog\nb,cat\nc,dog\n", "train.csv")
    dev = write("text,label\nd,cat\ne,eel\n", "dev.csv")
    data = load_data(DataConfig(train=train, dev=dev, examples=ExamplesConfig()), seed=0)
    assert data.train.class_names == data.dev.class_names == ("cat", "dog", "eel")
    assert data.train.classes.tolist() == [1, 0, 1]
    assert data.dev.classes.tolist() == [0, 2]


def test_a_text_is_never_both_held_out_and_trained_on(write):
    rows = "".join(f"text {number % 17},{number % 2}\n" for number in range(60))
    data = load_data(DataConfig(train=write("text,label\n" + rows), examples=ExamplesConfig(), dev_share=0.3), seed=1)
    assert not set(data.train.query.tolist()) & set(data.dev.query.tolist())
    assert len(data.train) + len(data.dev) == 60


def test_classes_stay_with_their_sentences_where_rows_are_left_out(write):
    found = read_sentences(write("text,label\n,first\nkept,second\n,first\nalso kept,third\n"))
    assert [found.class_name(row) for row in range(2)] == ["second", "third"]
    assert found.line.tolist() == [3, 5]
