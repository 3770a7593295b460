"""Streaming audit: its counts equal slow counts of the same rows."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.data.io import tables
from bsc_core.data.quality.streaming_audit import TaggedHashes, audit_file

TEXT = st.sampled_from(["a", "b", "c", "Ã©", "d &amp; e", "f\x01", "long " * 100])
ROWS = st.lists(
    st.tuples(TEXT, TEXT, st.sampled_from(["0", "1", "0.3", "?"]), st.sampled_from(["train", "dev"])), max_size=30
)


@given(ROWS)
@settings(max_examples=80)
def test_every_count_equals_a_slow_count(tmp_path_factory, rows):
    rows = [("first", "pair", "1", "train"), *rows]
    path = tmp_path_factory.mktemp("audit") / "rows.tsv"
    path.write_text(
        "\n".join("\t".join(row) for row in [("query", "document", "label", "split"), *rows]), encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "CHUNK_ROWS", 4)
        report = audit_file(path)
    good = [row for row in rows if row[2] != "?"]
    labels = {pair: {float(row[2]) > 0.5 for row in good if row[:2] == pair} for pair in {row[:2] for row in good}}
    splits = {query: {row[3] for row in good if row[0] == query} for query in {row[0] for row in good}}
    assert (report["rows_read"], report["rows_valid"]) == (len(rows), len(good))
    assert report["repeated_pairs"] == len(good) - len(labels)
    assert report["pairs_with_conflicting_labels"] == sum(len(result) > 1 for result in labels.values())
    assert report["queries_in_several_splits"] == sum(len(result) > 1 for result in splits.values())
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


def test_classes_are_compared_where_there_are_no_labels(write):
    path = write("rows.csv", "premise,hypothesis,label\na,b,entailment\na,b,neutral\nc,d,neutral\nc,d,neutral\n")
    report = audit_file(path)
    assert report["classes"] == {"neutral": 3, "entailment": 1}
    assert report["pairs_with_conflicting_labels"] == 1
    assert report["repeated_pairs"] == 2
    assert report["positive_rows"] == 1
    assert "labels" not in report


@given(st.lists(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 7)), max_size=10), max_size=4))
def test_tagged_hashes_count_distinct_hashes_and_those_of_several_tags(chunks):
    store = TaggedHashes()
    for chunk in chunks:
        hashes = np.asarray([number * 8 for number, _ in chunk], dtype=np.uint64)
        store.add(hashes, np.asarray([tag for _, tag in chunk], dtype=np.uint8))
    rows = {row for chunk in chunks for row in chunk}
    several = Counter(number for number, _ in rows)
    assert store.counts() == (len(several), sum(count > 1 for count in several.values()))
