"""Audit findings: each fault is reported with its rows, and clean data have none."""

from typing import get_args

import pytest

from bsc_core.config import DataConfig, FilterName
from bsc_core.data import audit, load_data


@pytest.fixture
def findings_of(write):
    def findings(rows, corpus=None, header="query,document,label,split"):
        pairs = write("pairs.csv", "\n".join([header, *rows]) + "\n")
        documents = write("corpus.csv", "\n".join(["doc_id,text", *corpus]) + "\n") if corpus else None
        data = load_data(DataConfig(train=pairs, corpus=documents), seed=0)
        return {(finding.split, finding.title.partition(":")[0]): finding for finding in audit(data)}

    return findings


WITHOUT_POSITIVE = "Queries without a positive in train"
CLEAN = ["a,x,1,train", "b,y,0,train", "c,z,1,dev", "d,w,0,dev"]


def test_clean_data_has_only_its_label_balance(findings_of):
    findings = findings_of(CLEAN)
    assert all(finding.severity == "info" for finding in findings.values())
    assert {split for split, _ in findings} == {"train", "dev"}
    assert any("50.0% of train are positive" in title for _, title in findings)


@pytest.mark.parametrize(
    ("extra", "split", "title", "severity", "rows"),
    [
        (["a,x,1,train"], "train", "Duplicate pairs in train", "warning", [2]),
        (["a,x,0,train"], "train", "Conflicting labels in train", "error", [0, 2]),
        (["e,x,1,train", "f,x,0,train"], "train", "Positives shared by several queries in train", "warning", [0, 2]),
        (["e,e,1,train"], "train", "Texts paired with themselves in train", "warning", [2]),
        (["a,v,1,dev"], "dev", "Queries of dev that are also in train", "error", [2]),
        (["e,x,1,dev"], "dev", "Documents of dev that are also in train", "info", [2]),
        (["e," + "word " * 201 + ",1,train"], "train", "Texts of more than 200 words in train", "info", [2]),
        ([",x,1,train", "e,f,?,train"], "train", "Rejected", "warning", []),
        (["e,f,1,other", "g,h,1,test"], "train", "Not used", "info", []),
        (["c,z,1,test"], "test", "Queries of test that are also in dev", "warning", [0]),
        (["x,v,1,dev"], "dev", "Queries of dev that are documents of train, or the reverse", "warning", [2]),
        (["e,a,1,dev"], "dev", "Queries of dev that are documents of train, or the reverse", "warning", [2]),
        (["A!,v,1,dev"], "dev", "Queries of dev with a near duplicate in train", "warning", [2]),
        (["A!, x.,1,train"], "train", "Near-duplicate pairs in train", "warning", [2]),
        (["cafÃ©,f,1,train", "e,g\x00,1,train"], "train", "Damaged texts in train", "warning", [2, 3]),
        (["e,f &amp; g,1,train"], "train", "HTML in the texts of train", "info", [2]),
        (["p\u0430ss,f,1,train"], "train", "Words of mixed alphabets in train", "info", [2]),
        (["Привет,f,1,train"], "train", "Texts in another script in train", "info", [2]),
        (["e,f,0,train", "e,g,0,train"], "train", WITHOUT_POSITIVE, "info", [1, 2, 3]),
        (["a,f,0,train", "e,g,0,train", "e,h,0,train"], "train", WITHOUT_POSITIVE, "info", [1, 3, 4]),
    ],
)
def test_each_fault_is_reported_with_its_rows(findings_of, extra, split, title, severity, rows):
    findings = findings_of([*CLEAN, *extra])
    finding = findings[split, title]
    assert finding.severity == severity
    assert finding.rows.tolist() == rows
    assert finding.suggestion.endswith(".")


def test_documents_of_several_queries_are_counted(findings_of):
    findings = findings_of([*CLEAN, "e,x,1,train", "f,x,1,train", "a,x,1,train"])
    finding = findings["train", "Positives shared by several queries in train"]
    assert finding.code == "repeated_documents"
    assert finding.rows.tolist() == [0, 2, 3, 4]
    assert "1 document are" not in finding.detail
    assert "in up to 4 rows" in finding.detail


def test_a_pair_that_is_repeated_is_no_document_of_several_queries(findings_of):
    assert ("train", "Positives shared by several queries in train") not in findings_of(
        [*CLEAN, "a,x,1,train", "e,x,0,train"]
    )


def test_positives_missing_from_the_corpus_are_reported_by_text(findings_of):
    findings = findings_of(CLEAN, corpus=["1,x", "2,y"])
    assert findings["dev", "Positive documents of dev that are not in the corpus"].rows.tolist() == [0]
    assert ("train", "Positive documents of train that are not in the corpus") not in findings


def test_positives_missing_from_the_corpus_are_reported_by_id(findings_of):
    rows = ["a,x,7,train", "b,y,8,train", "c,z,1,dev", "d,w,9,dev"]
    findings = findings_of(rows, corpus=["1,other wording", "2,w"], header="query,document,doc_id,split")
    assert findings["dev", "Positive documents of dev that are not in the corpus"].rows.tolist() == [1]


def test_positives_without_an_id_are_missing_from_the_corpus_by_text(findings_of):
    rows = ["a,x,7,train", "b,y,,dev", "c,z,,dev"]
    findings = findings_of(rows, corpus=["1,y", ",w"], header="query,document,doc_id,split")
    assert findings["dev", "Positive documents of dev that are not in the corpus"].rows.tolist() == [1]


def test_no_positives_is_an_error_and_comes_first(findings_of):
    findings = findings_of(["a,x,0.5,train", "b,y,0,train", "c,z,1,dev", "c,w,1,dev"])
    first = next(iter(findings.values()))
    assert first.severity == "error"
    assert first.title == "No rows of train are positive (label above 0.5)"
    assert ("dev", "dev has no labeled negatives") in findings


def test_a_rare_label_is_a_warning(findings_of):
    rows = [f"q{row},d{row},{int(row == 0)},train" for row in range(40)]
    findings = findings_of([*rows, "c,z,1,dev", "d,w,0,dev"])
    assert findings["train", "2.5% of train are positive (label above 0.5)"].severity == "warning"


def test_lists_of_documents_without_a_positive_are_a_warning(findings_of):
    lists = [
        f"{query},{query}{number},{int(query != 'e' and number == 0)},train" for query in "abe" for number in range(3)
    ]
    finding = findings_of([*lists, "c,z,1,dev", "d,w,0,dev"])["train", WITHOUT_POSITIVE]
    assert finding.severity == "warning"
    assert finding.rows.tolist() == [6, 7, 8]


def test_texts_longer_than_the_encoder_reads_are_reported_by_an_estimate(tmp_path):
    pairs = tmp_path / "pairs.csv"
    rows = ["a," + "word " * 40 + ",1,train", "b,y,0,train", "c,z,1,dev", "d,w,0,dev"]
    pairs.write_text("\n".join(["query,document,label,split", *rows]) + "\n", encoding="utf-8")
    data = load_data(DataConfig(train=str(pairs)), seed=0)

    def long(max_seq_length):
        return [finding for finding in audit(data, max_seq_length=max_seq_length) if "tokens" in finding.title]

    assert [(finding.split, finding.rows.tolist()) for finding in long(20)] == [("train", [0])]
    assert long(20)[0].title == "Texts of more than about 20 tokens in train: 1 row"
    assert not long(200)
    assert not [finding for finding in audit(data) if "tokens" in finding.title]


def test_conflicting_classes_are_conflicts_too(tmp_path):
    pairs = tmp_path / "nli.csv"
    rows = ["a,x,neutral,train", "a,x,contradiction,train", "b,y,entailment,train", "c,z,entailment,dev"]
    pairs.write_text("\n".join(["premise,hypothesis,label,split", *rows]) + "\n", encoding="utf-8")
    result = {finding.title: finding for finding in audit(load_data(DataConfig(train=str(pairs)), seed=0))}
    assert result["Conflicting labels in train: 1 pair"].rows.tolist() == [0, 1]


def test_every_filter_of_a_finding_is_accepted_by_the_config(findings_of):
    extra = ["a,x,1,train", "a,x,0,train", "e,e,1,train", "a,v,1,dev", "A!,x,1,train", "cafÃ©,f,1,train"]
    flags = {finding.filter for finding in findings_of([*CLEAN, *extra]).values()} - {None}
    assert flags == set(get_args(FilterName))


def test_negatives_with_more_words_of_their_query_than_positives_are_reported(findings_of):
    def finding(positive, negative):
        rows = [f"q{n} bake bread,{positive},1,train" for n in range(60)]
        rows += [f"q{n} bake bread,{negative},0,train" for n in range(60)]
        titles = [title for _, title in findings_of(rows)]
        return [title for title in titles if "of the words of their query" in title]

    assert finding("use yeast", "bread is old") == [
        "Negatives of train contain 33% of the words of their query, positives 0%"
    ]
    assert finding("bread is old", "use yeast") == []
    assert finding("bread is old", "bake it") == []
