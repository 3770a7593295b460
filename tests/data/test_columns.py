"""Columns guessed from a header: right where possible, refused otherwise."""

import pytest

from bsc_core.config import Columns, CorpusColumns
from bsc_core.data import guess_columns, guess_corpus_columns, read_pairs
from bsc_core.errors import ColumnError


@pytest.mark.parametrize(
    ("names", "query", "document", "label"),
    [
        ("query document label", "query", "document", "label"),
        ("Question Answer", "Question", "Answer", None),
        ("pair_id sentence1 sentence2 score split", "sentence1", "sentence2", "score"),
        ("premise hypothesis", "premise", "hypothesis", None),
        ("text_a text_b similarity", "text_a", "text_b", "similarity"),
        ("anchor positive negative", "anchor", "positive", None),
        ("id qid1 qid2 question1 question2 is_duplicate", "question1", "question2", "is_duplicate"),
        ("Query-ID Query Doc-ID Doc", "Query", "Doc", None),
        ("query query_subject query_body doc", ("query_subject", "query_body"), "doc", None),
        ("question sentence label", "question", "sentence", "label"),
        ("query text", "query", "text", None),
    ],
)
def test_known_names_are_mapped_to_roles(names, query, document, label):
    columns = guess_columns(names.split())
    assert (columns.query, columns.document, columns.label) == (query, document, label)


def test_ids_and_split_are_guessed():
    columns = guess_columns(["query_id", "query", "docId", "doc", "label", "split"])
    assert columns == Columns(
        query="query", document="doc", label="label", query_id="query_id", document_id="docId", split="split"
    )


def test_a_numeric_label_column_is_preferred():
    examples = {"label": ["neutral"], "score": ["4.5"]}
    assert guess_columns(["sentence1", "sentence2", "label", "score"], examples).label == "score"


def test_a_label_column_of_words_is_refused():
    with pytest.raises(ColumnError, match="column 'label' looks like the label but contains words such as 'good'"):
        guess_columns(["query", "answer", "label"], {"label": ["good", "bad"]})


def test_several_columns_of_negatives_are_refused_unless_one_is_named(write):
    path = write("tuples.csv", "query,document,negative_1,negative_2\nhow are you,fine,soup,bread\n")
    with pytest.raises(ColumnError, match="'negative_1', 'negative_2' look like negatives, but a row has one negative"):
        read_pairs(path)
    pairs = read_pairs(path, Columns(query="query", document="document", negative="negative_2"))
    assert pairs.texts.take(pairs.negative) == ["bread"]


def test_nli_class_names_are_guessed_as_classes():
    columns = guess_columns(["premise", "hypothesis", "gold_label"], {"gold_label": ["Neutral", "-", "entailment"]})
    assert (columns.label, columns.class_label) == (None, "gold_label")


def test_unknown_names_are_listed():
    message = "like the query or the document; the columns are 'left', 'right'; rename them"
    with pytest.raises(ColumnError, match=message):
        guess_columns(["left", "right"])
    with pytest.raises(ColumnError, match="no column looks like the document; "):
        guess_columns(["query", "other"])


def test_a_file_without_a_header_is_refused(write):
    path = write("pairs.csv", "How do I boil rice?,Rinse it first.\nWhy does it rain?,Clouds cool.\n")
    with pytest.raises(ColumnError, match="the columns are 'How do I boil rice"):
        read_pairs(path)


def test_long_and_many_names_are_shortened():
    with pytest.raises(ColumnError) as caught:
        guess_columns([f"{number} {'x' * 100}" for number in range(200)])
    assert "and 170 more" in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_corpus_columns_are_guessed():
    assert guess_corpus_columns(["doc_id", "title", "text"]) == CorpusColumns(document="text", document_id="doc_id")
    assert guess_corpus_columns(["id", "passage"]) == CorpusColumns(document="passage", document_id="id")
    with pytest.raises(ColumnError, match="the columns are 'left', 'right'"):
        guess_corpus_columns(["left", "right"])


def test_a_guess_is_reported(write):
    path = write("pairs.csv", "question,answer\na,b\n")
    guessed = read_pairs(path).report
    assert guessed.guessed
    assert guessed.columns == Columns(query="question", document="answer")
    given = read_pairs(path, columns={"query": "answer", "document": "question"}).report
    assert not given.guessed
    assert given.columns == Columns(query="answer", document="question")
