"""The batches of the lab, its settings, and the link that holds its whole state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.data.places import sample_data_folder
from bsc_core.errors import ConfigError, DataError
from bsc_core.lab.batch import LabBatch
from bsc_core.lab.circle import circle_batch
from bsc_core.lab.link import LabLink, is_told, read_link
from bsc_core.lab.presets import LESSON_ROWS, PRESETS, make_vectors, preset_batch, shipped_rows
from bsc_core.lab.settings import LabSettings


def test_the_shipped_vectors_are_the_bundled_encoders() -> None:
    made = make_vectors(sample_data_folder())
    assert set(made) == {*PRESETS, *LESSON_ROWS}
    for name, vectors in made.items():
        np.testing.assert_allclose(shipped_rows(name)[1], vectors, atol=1e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_a_shipped_batch_is_what_its_words_say(name: str) -> None:
    batch = preset_batch(name)
    repeated = len(set(batch.query_texts)) < len(batch)
    assert repeated == (name in ("near_misses", "repeats", "inference"))
    assert (len(set(batch.document_texts)) < len(batch)) == (name == "repeats")
    assert bool((batch.labels < 1).any()) == (name in ("near_misses", "inference"))


def test_an_unknown_preset_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="preset is 'nope'; it must be one of confusable"):
        preset_batch("nope")


def test_points_lie_on_the_circle_within_their_spread() -> None:
    batch = circle_batch(pairs=9, spread=20, seed=4)
    np.testing.assert_allclose(np.linalg.norm(batch.documents, axis=1), 1)
    assert ((batch.queries * batch.documents).sum(axis=1) >= np.cos(np.deg2rad(20)) - 1e-9).all()
    assert np.allclose(circle_batch(pairs=5, spread=0).queries, circle_batch(pairs=5, spread=0).documents)


@pytest.mark.parametrize(
    ("values", "words"),
    [({"pairs": 3}, "4 to 16"), ({"pairs": 17}, "4 to 16"), ({"spread": -1}, "0 to 180"), ({"seed": -1}, "0 or more")],
)
def test_a_circle_that_cannot_be_is_refused(values: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        circle_batch(**values)


def made_of(**changes: object) -> LabBatch:
    values: dict[str, object] = {
        "title": "t",
        "queries": np.ones((4, 2)),
        "documents": np.ones((4, 2)),
        "labels": np.ones(4),
        "query_texts": ("a", "b", "a", "c"),
        "document_texts": ("d",) * 4,
    }
    return LabBatch(**{**values, **changes})  # type: ignore[arg-type]


def test_equal_texts_have_equal_ids() -> None:
    assert made_of().query_ids.tolist() == [0, 1, 0, 2]
    assert made_of().plain()["document_ids"] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"query_texts": ("a",) * 3}, "3 pair"),
        ({"labels": np.ones(5)}, "one row for each pair"),
        ({"queries": np.full((4, 2), np.nan)}, "NaN"),
        ({"labels": np.full(4, 1.5)}, "outside 0 to 1"),
    ],
)
def test_a_batch_that_cannot_be_shown_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        made_of(**changes)


all_settings = st.builds(
    LabSettings,
    temperature=st.floats(0.01, 10).map(lambda tau: float(f"{tau:.3g}")),
    symmetric=st.booleans(),
    normalization=st.sampled_from(["l2", "l2_columns", "range_columns", "minmax_columns", "none"]),
    labelled_negatives=st.booleans(),
    duplicates=st.sampled_from(["keep", "merge", "multi_positive"]),
    reduction=st.sampled_from(["mean", "sum"]),
    average=st.sampled_from(["batch", "positives"]),
    threshold=st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
texts = st.text(min_size=1, max_size=20)
rows = st.lists(st.tuples(texts, texts, st.sampled_from([0.0, 0.4, 1.0])), max_size=5).map(tuple)
links = st.one_of(
    st.builds(LabLink, preset=st.sampled_from(list(PRESETS)), settings=all_settings, compare=st.none() | all_settings),
    st.builds(LabLink, source=st.just("circle"), pairs=st.integers(4, 16), spread=st.integers(0, 180).map(float)),
    st.builds(LabLink, source=st.just("dataset"), first=st.integers(1, 10**6), size=st.integers(4, 16)),
    st.builds(LabLink, source=st.just("typed"), typed=rows, pinned=st.tuples(st.integers(0, 3), st.integers(0, 3))),
    st.builds(LabLink, watch=st.sampled_from(["bsc", "mse"]), words=st.booleans()),
)


@given(links)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_link_opens_the_state_it_was_made_from(link: LabLink) -> None:
    query = link.to_query()
    assert is_told({**query, "dataset": "sample"}) == query
    assert read_link(query) == (link, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in ("0", "-1", "nan", "inf", "1e9", "cold")),
        *(("pairs", value) for value in ("3", "99", "x")),
        ("source", "nowhere"),
        ("preset", "nope"),
        ("symmetric", "yes"),
        ("normalization", "l3"),
        ("threshold", "2"),
        ("pin", "99-1"),
        ("pin", "x"),
        ("watch", "nope"),
        ("texts", "{"),
        ("texts", "[1]"),
        ("first", "0"),
    ],
)
def test_what_a_link_gets_wrong_is_one_sentence_and_its_default(name: str, value: str) -> None:
    link, faults = read_link({name: value, "seed": "7"})
    assert link == LabLink(seed=7)
    assert len(faults) == 1
    assert name in faults[0]


def test_texts_too_long_for_a_link_stay_out_of_it() -> None:
    link = LabLink(source="typed", typed=(("a" * 2000, "b", 1.0),))
    assert not link.fits_in_link
    assert "texts" not in link.to_query()
