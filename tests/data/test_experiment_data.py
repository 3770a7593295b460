"""The parts of an experiment: from one file or several, on one table of texts."""

import pytest

from bsc_core.config import Columns, DataConfig
from bsc_core.data import load_data
from bsc_core.errors import ColumnError, ConfigError

SPLIT_FILE = "query,document,split\na,x,train\nb,y,train\nc,z,dev\nd,w,test\ne,v,extra\nf,u,\n"


@pytest.fixture
def write(tmp_path):
    def written(name, content):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return str(path)

    return written


def texts_of(part):
    return list(zip(part.texts.take(part.query), part.texts.take(part.document), strict=True))


def test_a_split_column_gives_all_parts_and_unused_rows_are_told(write):
    data = load_data(DataConfig(train=write("all.csv", SPLIT_FILE)), seed=0)
    assert texts_of(data.train) == [("a", "x"), ("b", "y")]
    assert texts_of(data.dev) == [("c", "z")]
    assert texts_of(data.test) == [("d", "w")]
    assert data.unused == (("extra", 1), ("", 1))
    assert "v" not in data.texts.texts
    assert list(data.parts) == ["train", "dev", "test"]
    assert len(data.reports) == 1


def test_all_parts_share_one_table(write):
    corpus = write("corpus.csv", "doc_id,text\n1,x\n2,new\n")
    data = load_data(DataConfig(train=write("all.csv", SPLIT_FILE), corpus=corpus), seed=0)
    assert data.train.texts is data.dev.texts is data.test.texts is data.corpus.texts is data.texts
    assert data.corpus.document[0] == data.train.document[0]
    assert data.texts.take(data.corpus.document) == ["x", "new"]
    assert len(set(data.texts.texts)) == len(data.texts)
    assert len(data.reports) == 2


def test_named_splits_are_taken(write):
    config = DataConfig(train=write("all.csv", SPLIT_FILE), dev_split="extra", test_split="dev")
    data = load_data(config, seed=0)
    assert texts_of(data.dev) == [("e", "v")]
    assert texts_of(data.test) == [("c", "z")]
    assert data.unused == (("test", 1), ("", 1))


@pytest.mark.parametrize(
    ("field", "value"), [("train_split", "training"), ("dev_split", "validation"), ("test_split", "final")]
)
def test_a_split_that_is_not_there_names_those_that_are(write, field, value):
    path = write("all.csv", SPLIT_FILE)
    message = (
        f"no row has '{value}' in column 'split', which holds 'train', 'dev', 'test', 'extra', ''; set data.{field}"
    )
    with pytest.raises(ConfigError, match=message) as caught:
        load_data(DataConfig(train=path, **{field: value}), seed=0)
    assert str(caught.value).startswith(path)


def test_rows_of_a_split_with_another_name_are_not_passed_over_for_a_drawn_dev(write):
    path = write("all.csv", "query,document,split\na,x,train\nb,y,train\nc,z,validation\n")
    with pytest.raises(ConfigError, match="no row has 'dev' in column 'split', which holds 'train', 'validation'"):
        load_data(DataConfig(train=path), seed=0)


def test_the_training_split_cannot_be_the_dev_split(write):
    with pytest.raises(ConfigError, match=r"data\.dev_split is 'train', which is the training split"):
        load_data(DataConfig(train=write("all.csv", SPLIT_FILE), dev_split="train"), seed=0)


def test_without_dev_rows_a_share_of_the_queries_is_held_out(write):
    rows = "".join(f"q{row // 2},d{row},{'test' if row > 35 else 'train'}\n" for row in range(40))
    config = DataConfig(train=write("all.csv", "query,document,split\n" + rows), dev_share=0.25)
    data = load_data(config, seed=5)
    assert len(data.test) == 4
    assert len(data.dev.distinct_queries) == round(0.25 * 18)
    assert len(data.train) + len(data.dev) == 36
    assert not {query for query, _ in texts_of(data.train)} & {query for query, _ in texts_of(data.dev)}
    assert texts_of(load_data(config, seed=5).dev) == texts_of(data.dev)
    assert texts_of(load_data(config, seed=6).dev) != texts_of(data.dev)


def test_files_of_their_own_may_lack_the_split_column(write):
    config = DataConfig(
        train=write("train.csv", SPLIT_FILE),
        dev=write("dev.csv", "query,document\nm,n\n"),
        test=write("test.csv", "query,document,split\no,p,test\nq,r,other\n"),
        columns=Columns(query="query", document="document", split="split"),
    )
    data = load_data(config, seed=0)
    assert texts_of(data.dev) == [("m", "n")]
    assert texts_of(data.test) == [("o", "p")]
    assert data.unused == (("dev", 1), ("test", 1), ("extra", 1), ("", 1))
    assert len(data.reports) == 3


def test_a_column_missing_from_the_dev_file_is_refused(write):
    config = DataConfig(
        train=write("train.csv", "query,document,label\na,b,1\n"),
        dev=write("dev.csv", "query,document\nc,d\n"),
        columns=Columns(query="query", document="document", label="label"),
    )
    with pytest.raises(ColumnError, match=r"dev\.csv: there is no column 'label'"):
        load_data(config, seed=0)


def test_the_threshold_and_label_scale_reach_every_part(write):
    rows = "query,document,label,split\na,b,4,train\nc,d,2,train\ne,f,3,dev\n"
    data = load_data(DataConfig(train=write("all.csv", rows), label_max=5, threshold=0.6), seed=0)
    assert data.train.positive.tolist() == [True, False]
    assert data.dev.positive.tolist() == [False]
    assert data.dev.threshold == 0.6
