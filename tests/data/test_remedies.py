"""Remedies: after one the audit no longer finds what it answers, and nothing else is dropped."""

from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import DataConfig, Remedy
from bsc_core.data import PairDataset, audit, load_data
from bsc_core.data.parts import share_texts
from bsc_core.data.remedies import REMEDIES
from bsc_core.errors import DataError

FILLER = "of the seven long words that stand in every one of these texts so that they are nearly equal"
TEXTS = st.sampled_from(["a", "A!", "b", "c", "d", "Ã©", f"x {FILLER}", f"y {FILLER}", f"z {FILLER} z", "e\x00"])
ROW = st.tuples(TEXTS, TEXTS, st.sampled_from([0.0, 1.0]), st.integers(0, 2), TEXTS)
PART = st.lists(ROW, min_size=1, max_size=10)


def dataset_of(rows, *, negatives):
    queries, documents, labels, classes, wrong = zip(*rows, strict=True)
    return PairDataset.from_pairs(
        queries, documents, labels, classes=classes if not negatives else None, negatives=wrong if negatives else None
    )


def rows_of(part):
    columns = [part.texts.take(column) for column in part.text_columns]
    return Counter(zip(*columns, part.label.tolist(), strict=True))


@pytest.mark.parametrize("remedy", get_args(Remedy))
@given(parts=st.lists(PART, min_size=2, max_size=3), negatives=st.booleans())
@settings(deadline=None, max_examples=60)
def test_after_a_remedy_its_finding_is_gone_and_the_count_is_right(remedy, parts, negatives):
    data = share_texts([dataset_of(rows, negatives=negatives) for rows in parts], None)
    findings = [finding for finding in audit(data) if finding.remedy_flag == remedy]
    try:
        mended, dropped = REMEDIES[remedy](data)
    except DataError:
        assert findings  # a part would be left without rows
        return
    assert not [finding for finding in audit(mended) if finding.remedy_flag == remedy]
    assert bool(dropped) == bool(findings)
    before, after = ({name: rows_of(part) for name, part in whole.parts.items()} for whole in (data, mended))
    assert all(after[name] <= before[name] for name in before)
    assert sum(before[name].total() - after[name].total() for name in before) == dropped


@pytest.fixture
def loaded(tmp_path):
    def read(rows, *remedies):
        path = tmp_path / "pairs.tsv"
        header = "query\tdocument\tlabel\tsplit"
        path.write_text("\n".join([header, *("\t".join(row.split("|")) for row in rows)]) + "\n", encoding="utf-8")
        return load_data(DataConfig(train=str(path), remedies=remedies), seed=0)

    return read


DEV = ["q|d|1|dev", "r|e|0|dev"]
CASES = {
    "drop_repeats": (["a|x|1|train", "a|x|1|train", "a|x|1|train", "b|x|1|train"], ["a", "b"], 2),
    "drop_near_repeats": (
        ["Hello there|x|1|train", "hello  there!|X.|1|train", "b|x|1|train"],
        ["Hello there", "b"],
        1,
    ),
    "drop_conflicts": (["a|x|1|train", "a|x|0|train", "b|x|1|train"], ["b"], 2),
    "drop_self_pairs": (["a|a|1|train", "b|x|1|train"], ["b"], 1),
    "drop_leaks": (["q|x|1|train", "a|q|1|train", "d|x|1|train", "b|d|1|train", "c|y|1|train"], ["b", "c"], 3),
    "drop_queries_without_positive": (["a|x|0|train", "b|x|1|train", "b|y|0|train"], ["b", "b"], 2),
    "drop_damaged": (["caf\u00c3\u00a9|x|1|train", "b|x\ufffd|1|train", "café|x|1|train"], ["café"], 2),
}


@pytest.mark.parametrize("remedy", CASES)
def test_each_remedy_drops_its_rows_and_the_data_say_how_many(loaded, remedy):
    rows, kept, dropped = CASES[remedy]
    data = loaded([*rows, *DEV], remedy)
    assert data.texts.take(data.train.query) == kept
    assert data.remedied == ((remedy, dropped),)
    used = np.unique(np.concatenate([column for part in data.parts.values() for column in part.text_columns]))
    assert used.tolist() == list(range(len(data.texts)))


def test_what_is_measured_stays_as_it_is_when_leaks_are_dropped(loaded):
    rows = ["q|x|1|train", "c|y|1|train", "s|t|1|test", *DEV, "s|z|1|dev"]
    data = loaded(rows, "drop_leaks")
    assert data.texts.take(data.test.query) == ["s"]
    assert data.texts.take(data.dev.query) == ["q", "r"]
    assert data.texts.take(data.train.query) == ["c"]


def test_remedies_are_applied_in_their_order(loaded):
    rows = ["a|x|0|train", "a|x|1|train", "a|x|1|train", "b|x|1|train", *DEV]
    first = loaded(rows, "drop_repeats", "drop_conflicts")
    assert first.remedied == (("drop_repeats", 1), ("drop_conflicts", 2))
    second = loaded(rows, "drop_conflicts", "drop_repeats")
    assert second.remedied == (("drop_conflicts", 3), ("drop_repeats", 0))


def test_a_remedy_that_leaves_nothing_is_refused(loaded):
    with pytest.raises(DataError, match=r"data\.remedies: drop_self_pairs would drop all 1 rows of train"):
        loaded(["a|a|1|train", *DEV], "drop_self_pairs")


def test_triplets_that_differ_in_their_negative_are_no_repeats():
    rows = PairDataset.from_pairs(["a", "a", "a"], ["x", "x", "x"], negatives=["n", "m", "n"])
    data = share_texts([rows, PairDataset.from_pairs(["q"], ["d"], negatives=["e"])], None)
    mended, dropped = REMEDIES["drop_repeats"](data)
    assert (len(mended.train), dropped) == (2, 1)
