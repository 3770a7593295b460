"""Findings: each fault planted is found with its rows, and clean data has none."""

import pytest

from bsc_core.config import DataConfig
from bsc_core.data import audit, load_data


@pytest.fixture
def findings_of(tmp_path):
    def found(rows, corpus=None, header="query,document,label,split"):
        pairs = tmp_path / "pairs.csv"
        pairs.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
        if corpus:
            (tmp_path / "corpus.csv").write_text("\n".join(["doc_id,text", *corpus]) + "\n", encoding="utf-8")
        config = DataConfig(train=str(pairs), corpus=str(tmp_path / "corpus.csv") if corpus else None)
        return {
            (finding.part, finding.title.partition(":")[0]): finding for finding in audit(load_data(config, seed=0))
        }

    return found


CLEAN = ["a,x,1,train", "b,y,0,train", "c,z,1,dev", "d,w,0,dev"]


def test_clean_data_has_only_its_class_balance(findings_of):
    findings = findings_of(CLEAN)
    assert all(finding.severity == "info" for finding in findings.values())
    assert {part for part, _ in findings} == {"train", "dev"}
    assert any("50.0% of train are positive" in title for _, title in findings)


@pytest.mark.parametrize(
    ("extra", "part", "title", "severity", "rows"),
    [
        (["a,x,1,train"], "train", "Repeated pairs in train", "warning", [2]),
        (["a,x,0,train"], "train", "Conflicting labels in train", "error", [0, 2]),
        (["e,e,1,train"], "train", "A text paired with itself in train", "warning", [2]),
        (["a,v,1,dev"], "dev", "Queries of dev that are also in train", "error", [2]),
        (["e,x,1,dev"], "dev", "Documents of dev that are also in train", "info", [2]),
        (["e," + "word " * 201 + ",1,train"], "train", "Texts of more than 200 words in train", "info", [2]),
        ([",x,1,train", "e,f,?,train"], "train", "Rejected", "warning", []),
        (["e,f,1,other", "g,h,1,test"], "train", "Not used", "info", []),
    ],
)
def test_a_planted_fault_is_found_with_its_rows(findings_of, extra, part, title, severity, rows):
    findings = findings_of([*CLEAN, *extra])
    finding = findings[part, title]
    assert finding.severity == severity
    assert finding.rows.tolist() == rows
    assert finding.remedy.endswith(".")


def test_right_answers_missing_from_the_corpus_are_found_by_text(findings_of):
    findings = findings_of(CLEAN, corpus=["1,x", "2,y"])
    assert findings["dev", "Right answers of dev that are not in the corpus"].rows.tolist() == [0]
    assert ("train", "Right answers of train that are not in the corpus") not in findings


def test_right_answers_missing_from_the_corpus_are_found_by_id(findings_of):
    rows = ["a,x,7,train", "b,y,8,train", "c,z,1,dev", "d,w,9,dev"]
    findings = findings_of(rows, corpus=["1,other wording", "2,w"], header="query,document,doc_id,split")
    assert findings["dev", "Right answers of dev that are not in the corpus"].rows.tolist() == [1]


def test_no_positives_is_an_error_and_comes_first(findings_of):
    findings = findings_of(["a,x,0.5,train", "b,y,0,train", "c,z,1,dev", "c,w,1,dev"])
    first = next(iter(findings.values()))
    assert first.severity == "error"
    assert first.title == "No rows of train are positive (label above 0.5)"
    assert ("dev", "dev has no labelled negatives") in findings


def test_a_rare_class_is_warned_of(findings_of):
    rows = [f"q{row},d{row},{int(row == 0)},train" for row in range(40)]
    findings = findings_of([*rows, "c,z,1,dev", "d,w,0,dev"])
    assert findings["train", "2.5% of train are positive (label above 0.5)"].severity == "warning"
