"""The audit of a file in pieces counts what the rows hold, as a slow count of the same rows says."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.data import stream
from bsc_core.data.tally import TaggedHashes, audit_file

TEXT = st.sampled_from(["a", "b", "c", "Ã©", "d &amp; e", "f\x01", "long " * 100])
ROWS = st.lists(
    st.tuples(TEXT, TEXT, st.sampled_from(["0", "1", "0.3", "?"]), st.sampled_from(["train", "dev"])), max_size=30
)


@given(ROWS)
@settings(deadline=None, max_examples=80)
def test_every_count_is_that_of_a_slow_count(tmp_path_factory, rows):
    rows = [("first", "pair", "1", "train"), *rows]
    path = tmp_path_factory.mktemp("tally") / "rows.tsv"
    path.write_text(
        "\n".join("\t".join(row) for row in [("query", "document", "label", "split"), *rows]), encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "PIECE_ROWS", 4)
        report = audit_file(path).as_report()
    good = [row for row in rows if row[2] != "?"]
    labels = {pair: {float(row[2]) > 0.5 for row in good if row[:2] == pair} for pair in {row[:2] for row in good}}
    splits = {query: {row[3] for row in good if row[0] == query} for query in {row[0] for row in good}}
    assert (report["rows_read"], report["rows_kept"]) == (len(rows), len(good))
    assert report["repeated_pairs"] == len(good) - len(labels)
    assert report["pairs_with_conflicting_labels"] == sum(len(found) > 1 for found in labels.values())
    assert report["queries_in_several_splits"] == sum(len(found) > 1 for found in splits.values())
    assert report["distinct_queries"] == len(splits)
    assert report["distinct_documents"] == len({row[1] for row in good})
    assert report["texts_paired_with_themselves"] == sum(row[0] == row[1] for row in good)
    assert report["positive_rows"] == sum(float(row[2]) > 0.5 for row in good)
    assert report["labels"] == dict(Counter(f"{float(row[2]):.1f}" for row in good))
    assert report["splits"] == dict(Counter(row[3] for row in good))
    assert report["rows_with"]["wrongly_decoded"] == sum("Ã©" in row[0] + row[1] for row in good)
    assert report["rows_with"]["html"] == sum("&amp;" in row[0] + row[1] for row in good)
    assert report["rows_with"]["control_characters"] == sum("\x01" in row[0] + row[1] for row in good)
    assert report["tokens_estimated"]["query"]["above_90"] == sum(len(row[0]) > 400 for row in good)


def test_classes_take_the_place_of_labels(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(
        "premise,hypothesis,label\na,b,entailment\na,b,neutral\nc,d,neutral\nc,d,neutral\n", encoding="utf-8"
    )
    report = audit_file(path).as_report()
    assert report["classes"] == {"neutral": 3, "entailment": 1}
    assert report["pairs_with_conflicting_labels"] == 1
    assert report["repeated_pairs"] == 2
    assert "labels" not in report


@given(st.lists(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 7)), max_size=10), max_size=4))
def test_tagged_hashes_count_distinct_hashes_and_those_of_several_tags(pieces):
    store = TaggedHashes()
    for piece in pieces:
        hashes = np.asarray([number * 8 for number, _ in piece], dtype=np.uint64)
        store.add(hashes, np.asarray([tag for _, tag in piece], dtype=np.uint8))
    rows = {row for piece in pieces for row in piece}
    several = Counter(number for number, _ in rows)
    assert store.counts() == (len(several), sum(count > 1 for count in several.values()))
