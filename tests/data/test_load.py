"""The splits of an experiment: from one file or several, on one text table."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bsc_core.config import Columns, DataConfig, ExamplesConfig
from bsc_core.data import PairDataset, load_data, read_corpus, read_pairs, read_table
from bsc_core.data.io import limits
from bsc_core.data.load import concatenate
from bsc_core.data.quality.audit import audit
from bsc_core.errors import ColumnError, ConfigError, DataError, FileFormatError
from tests.helpers.pairs import texts_of

ROWS = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("wxyz"), st.integers(0, 2)), min_size=1, max_size=8)
SPLIT_FILE = "query,document,split\na,x,train\nb,y,train\nc,z,dev\nd,w,test\ne,v,extra\nf,u,\n"


def test_small_files_that_are_mixed_may_not_have_many_cells_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNCHECKED_CELLS", 9_000)
    path, *others = (tmp_path / f"{number}.tsv.gz" for number in range(4))
    for file in (path, *others):
        file.write_bytes(gzip.compress(b"query\tdocument\n" + b"a\tb\n" * 2_000))
    assert len(load_data(DataConfig(train=str(path), dev=str(path))).train) == 2_000
    with pytest.raises(FileFormatError, match=r"files before it, .* may have 9,000 cells, and these have at least"):
        load_data(DataConfig(train=str(path), mix=tuple(map(str, others)), dev=str(path)))


def test_a_file_is_not_read_many_times_under_other_names(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("query\tdocument\na\tb\n")
    sizes = limits.Sizes()
    for number in range(limits.MAX_READS):
        (tmp_path / f"{number}.tsv").hardlink_to(tmp_path / "pairs.tsv")
        assert len(read_table(tmp_path / f"{number}.tsv", sizes=sizes)) == 1
    with pytest.raises(FileFormatError, match="the same file is read under several names; name each file once"):
        read_table(tmp_path / "pairs.tsv", sizes=sizes)


def test_each_training_file_is_named_once(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = write("first.csv", "query,document\na,x\nb,y\n"), write("second.csv", "query,document\nc,z\nd,w\n")
    Path("link.csv").symlink_to(second)
    for mix in ((first,), (f"{Path(first).parent}/./first.csv",), (second, second), (second, "link.csv")):
        with pytest.raises(ConfigError, match=r"is the same file as .*; name each training file once"):
            load_data(DataConfig(train=first, mix=mix))


def test_a_split_column_gives_all_splits_and_unused_rows_are_reported(write):
    data = load_data(DataConfig(train=write("all.csv", SPLIT_FILE)), seed=0)
    assert texts_of(data.train) == [("a", "x"), ("b", "y")]
    assert texts_of(data.dev) == [("c", "z")]
    assert texts_of(data.test) == [("d", "w")]
    assert data.unused == (("extra", 1), ("", 1))
    assert "v" not in data.texts.texts
    assert list(data.splits) == ["train", "dev", "test"]
    assert len(data.reports) == 1


def test_a_column_of_many_values_is_listed_in_part(write):
    rows = "".join(f"q{n},d{n},train\nr{n},e{n},name {n}\ns{n},f{n},dev\n" for n in range(40))
    config = DataConfig(train=write("all.csv", f"query,document,split\n{rows}"))
    unused = [one for one in audit(load_data(config, seed=0)) if one.title.startswith("Not used")]
    assert len(unused) == 21
    assert unused[-1].title == "Not used: 20 rows of 20 more splits"
    with pytest.raises(ConfigError, match=r"which contains 'train', 'name 0', .* …; set data\.train_split"):
        load_data(config.model_copy(update={"train_split": "absent"}), seed=0)


def test_all_splits_share_one_table(write):
    corpus = write("corpus.csv", "doc_id,text\n1,x\n2,new\n")
    data = load_data(DataConfig(train=write("all.csv", SPLIT_FILE), corpus=corpus), seed=0)
    assert data.train.texts is data.dev.texts is data.test.texts is data.corpus.texts is data.texts
    assert data.corpus.document[0] == data.train.document[0]
    assert data.texts.take(data.corpus.document) == ["x", "new"]
    assert len(set(data.texts.texts)) == len(data.texts)
    assert len(data.reports) == 2


def test_named_splits_are_used(write):
    config = DataConfig(train=write("all.csv", SPLIT_FILE), dev_split="extra", test_split="dev")
    data = load_data(config, seed=0)
    assert texts_of(data.dev) == [("e", "v")]
    assert texts_of(data.test) == [("c", "z")]
    assert data.unused == (("test", 1), ("", 1))


@pytest.mark.parametrize(
    ("field", "value"), [("train_split", "training"), ("dev_split", "validation"), ("test_split", "final")]
)
def test_a_missing_split_is_refused_with_the_existing_ones(write, field, value):
    path = write("all.csv", SPLIT_FILE)
    message = (
        f"no row has '{value}' in column 'split', which contains 'train', 'dev', 'test', 'extra', ''; set data.{field}"
    )
    with pytest.raises(ConfigError, match=message) as caught:
        load_data(DataConfig(train=path, **{field: value}), seed=0)
    assert str(caught.value).startswith(path)


def test_a_split_with_an_unknown_name_is_not_replaced_by_a_held_out_dev(write):
    path = write("all.csv", "query,document,split\na,x,train\nb,y,train\nc,z,validation\n")
    with pytest.raises(ConfigError, match="no row has 'dev' in column 'split', which contains 'train', 'validation'"):
        load_data(DataConfig(train=path), seed=0)


def test_the_training_split_cannot_be_the_dev_split(write):
    with pytest.raises(ConfigError, match=r"data\.dev_split is 'train', which is the training split"):
        load_data(DataConfig(train=write("all.csv", SPLIT_FILE), dev_split="train"), seed=0)


def test_without_dev_rows_a_share_of_the_queries_is_held_out(write):
    rows = "".join(f"q{row // 2},d{row},{'test' if row > 35 else 'train'}\n" for row in range(40))
    config = DataConfig(train=write("all.csv", "query,document,split\n" + rows), dev_size=0.25)
    data = load_data(config, seed=5)
    assert len(data.test) == 4
    assert len(data.dev.distinct_queries) == round(0.25 * 18)
    assert len(data.train) + len(data.dev) == 36
    assert not {query for query, _ in texts_of(data.train)} & {query for query, _ in texts_of(data.dev)}
    assert texts_of(load_data(config, seed=5).dev) == texts_of(data.dev)
    assert texts_of(load_data(config, seed=6).dev) != texts_of(data.dev)


def test_dev_and_test_files_may_lack_the_split_column(write):
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


def test_the_threshold_and_label_range_apply_to_every_split(write):
    rows = "query,document,label,split\na,b,4,train\nc,d,2,train\ne,f,3,dev\n"
    data = load_data(DataConfig(train=write("all.csv", rows), label_max=5, threshold=0.6), seed=0)
    assert data.train.positive.tolist() == [True, False]
    assert data.dev.positive.tolist() == [False]
    assert data.dev.threshold == 0.6


def dataset_of(rows):
    queries, documents, ids = zip(*rows, strict=True)
    return PairDataset.from_pairs(queries, documents, query_ids=[str(number) for number in ids])


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_every_row_of_every_file_is_included_once_and_in_order(files):
    joined = concatenate([dataset_of(rows) for rows in files])
    assert texts_of(joined) == [(query, document) for rows in files for query, document, _ in rows]
    assert len(set(joined.texts.texts)) == len(joined.texts)
    sources = np.repeat(np.arange(len(files)), [len(rows) for rows in files])
    assert len(files) == 1 or joined.source.tolist() == sources.tolist()


@given(st.lists(ROWS, min_size=2, max_size=3))
def test_rows_with_one_query_text_are_one_query_across_files(files):
    joined = concatenate([dataset_of(rows) for rows in files])
    group_of = dict(zip(joined.texts.take(joined.query), joined.query_group.tolist(), strict=True))
    assert [group_of[query] for query in joined.texts.take(joined.query)] == joined.query_group.tolist()


def test_equal_query_ids_of_two_files_are_two_queries():
    joined = concatenate([dataset_of([("a", "x", 1), ("b", "y", 1)]), dataset_of([("c", "z", 1)])])
    assert joined.query_group.tolist() == [0, 0, 1]


def test_each_file_has_its_report_and_its_splits(write):
    first = write("one.csv", "query,document,label,split\na,x,1,train\nb,y,0,dev\n")
    second = write("two.csv", "split,label,document,query\ntrain,0,z,c\ndev,1,w,d\ntest,1,v,e\n,,,\n")
    data = load_data(DataConfig(train=first, mix=(second,)), seed=0)
    assert texts_of(data.train) == [("a", "x"), ("c", "z")]
    assert texts_of(data.dev) == [("b", "y"), ("d", "w")]
    assert texts_of(data.test) == [("e", "v")]
    assert data.train.label.tolist() == [1, 0]
    assert data.train.source.tolist() == [0, 1]
    assert data.test.source.tolist() == [1]
    assert [(report.source, report.rows_read, len(report.rejected)) for report in data.reports] == [
        (first, 2, 0),
        (second, 4, 1),
    ]


@pytest.mark.parametrize("columns", [None, Columns(query="query", document="document", split="split")])
def test_a_file_without_the_split_column_is_training_rows_only(write, columns):
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


def test_a_file_without_a_column_is_refused_by_name(write):
    first, second = write("one.csv", "query,document,label\na,x,1\n"), write("two.csv", "query,document\nc,z\n")
    with pytest.raises(ColumnError, match=r"two\.csv: there is no column 'label' for label") as caught:
        load_data(DataConfig(train=first, mix=(second,)), seed=0)
    assert f"a file of data.mix needs the columns of {first}" in str(caught.value)


def test_class_names_are_numbered_the_same_in_all_files(write):
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


@pytest.mark.parametrize("column", ["label", "negative", "class_label"])
def test_a_column_that_only_a_further_file_has_is_not_dropped(write, column):
    first = write("first.csv", "query,document\na,x\nb,y\n")
    second = write("second.csv", f"query,document,{column}\nc,z,0\nd,w,1\n")
    with pytest.raises(ColumnError, match=f"column '{column}' has no counterpart in the first file"):
        load_data(DataConfig(train=first, mix=(second,)), seed=0)


def test_named_and_numbered_classes_are_not_mixed(write):
    first = write("first.csv", "query,document,class_label\na,x,sports\nb,y,politics\n")
    second = write("second.csv", "query,document,class_label\nc,z,0\nd,w,1\n")
    with pytest.raises(DataError, match="some files name their classes and others number them"):
        load_data(DataConfig(train=first, dev=second), seed=0)


@pytest.mark.parametrize("role", ["mix", "dev"])
@pytest.mark.parametrize("classes", [("entailment", "not_entailment"), ("0", "1")])
@pytest.mark.parametrize("nli_first", [True, False])
def test_labels_of_nli_classes_are_not_lost_beside_other_classes(write, role, classes, nli_first):
    nli = write("nli.csv", "query,document,class_label\na,x,entailment\nb,y,neutral\nc,z,contradiction\n")
    other = write("other.csv", f"query,document,class_label\nd,x,{classes[0]}\ne,y,{classes[1]}\n")
    first, second = (nli, other) if nli_first else (other, nli)
    columns = Columns(query="query", document="document", class_label="class_label")
    config = DataConfig(train=first, columns=columns, **{role: (second,) if role == "mix" else second})
    with pytest.raises(
        DataError, match=r"other\.csv: its classes are .*, so its pairs have no labels, unlike those of"
    ):
        load_data(config, seed=0)


def test_texts_have_no_spaces_at_their_ends(write):
    train = write("train.csv", "query,document,doc_id\n a,x ,1\na ,x,1\nb,y,2\n")
    data = load_data(
        DataConfig(train=train, dev=train, corpus=write("corpus.csv", "doc_id,text\n1, x\n2,y \n")), seed=0
    )
    assert sorted(data.texts.texts) == ["a", "b", "x", "y"]


def test_of_documents_with_one_id_the_first_is_read(write):
    path = write("corpus.csv", "doc_id,text\n1,a\n2,b\n1,c\n2,b\n,d\n,e\n")
    corpus = read_corpus(path)
    assert corpus.texts.take(corpus.document) == ["a", "b", "b", "d", "e"]
    assert [(one.line, one.field) for one in corpus.report.rejected] == [(4, "doc_id")]


def test_numbers_that_are_not_finite_are_missing_texts(write):
    path = write("rows.jsonl", '{"query": "a", "document": "b"}\n{"query": "c", "document": NaN}\n')
    pairs = read_pairs(path)
    assert [one.line for one in pairs.report.rejected] == [2]
