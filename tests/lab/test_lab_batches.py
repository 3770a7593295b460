"""The batches of the lab, its settings, and the link with its state."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bsc_core.config import DIRECTIONS
from bsc_core.errors import ConfigError, DataError
from bsc_core.lab.batch import LabBatch, circle_batch
from bsc_core.lab.link import SIDES, LabLink, lab_parameters, read_link
from bsc_core.lab.presets import GUIDED, LESSON_ROWS, PRESETS, VECTORS, embed_presets, preset_batch
from bsc_core.lab.settings import LabSettings, explain_batch
from bsc_core.paths import sample_data_folder


def test_the_stored_vectors_are_those_of_the_bundled_encoder() -> None:
    embedded = embed_presets(sample_data_folder())
    assert set(embedded) == {*PRESETS, *LESSON_ROWS, *(GUIDED + name for name in PRESETS)}
    with np.load(sample_data_folder() / VECTORS) as stored:
        assert set(stored) == set(embedded)
        for name, vectors in embedded.items():
            np.testing.assert_allclose(stored[name], vectors, atol=1e-5)


def test_only_batches_with_vectors_of_a_guide_take_the_mask_guide() -> None:
    guided, preset, circle = LabSettings(mask="guide"), preset_batch("confusable"), circle_batch()
    assert guided.for_batch(preset) == guided
    assert guided.for_batch(circle) == LabSettings()
    assert LabSettings(mask="self").for_batch(circle).mask == "self"
    assert guided.config().mask_guide == "static"
    cosines = np.array(preset.plain()["guide"]["query_to_doc"])
    removed = explain_batch(preset, guided).row_masked
    np.testing.assert_array_equal(removed, cosines > np.diag(cosines)[:, None] + 1e-6)
    assert removed.any()
    assert (removed != explain_batch(preset, mask="self").row_masked).any()
    assert circle.plain()["guide"] is None


def test_the_false_negatives_of_couples_are_known() -> None:
    batch = preset_batch("paraphrases")
    assert batch.plain()["false_negatives"][:4] == [[0, 1], [1, 0], [2, 3], [3, 2]]
    assert len(batch.false_negatives) == len(batch)
    assert not preset_batch("confusable").false_negatives


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_batch_has_the_repeats_and_labels_of_its_description(name: str) -> None:
    batch = preset_batch(name)
    repeated = len(set(batch.query_texts)) < len(batch)
    assert repeated == (name in ("near_misses", "repeats", "inference"))
    assert (len(set(batch.document_texts)) < len(batch)) == (name == "repeats")
    assert bool((batch.labels < 1).any()) == (name in ("near_misses", "inference"))


def test_the_error_on_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="preset is 'nope'; it must be one of confusable"):
        preset_batch("nope")


def test_points_are_on_the_circle_within_their_spread() -> None:
    batch = circle_batch(pairs=9, spread=20, seed=4)
    np.testing.assert_allclose(np.linalg.norm(batch.documents, axis=1), 1)
    assert ((batch.queries * batch.documents).sum(axis=1) >= np.cos(np.deg2rad(20)) - 1e-9).all()
    assert np.allclose(circle_batch(pairs=5, spread=0).queries, circle_batch(pairs=5, spread=0).documents)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"pairs": 3}, "4 to 16"),
        ({"pairs": 17}, "4 to 16"),
        ({"spread": -1}, "0 to 180"),
        ({"seed": -1}, "0 or more"),
        ({"angles": range(7)}, "7 angles for 6 pairs"),
    ],
)
def test_invalid_circles_are_errors(values: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        circle_batch(**values)


def make_batch(**changes: object) -> LabBatch:
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
    assert make_batch().query_ids.tolist() == [0, 1, 0, 2]
    assert make_batch().plain()["document_ids"] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"query_texts": ("a",) * 3}, "3 pair"),
        ({"labels": np.ones(5)}, "one row for each pair"),
        ({"queries": np.full((4, 2), np.nan)}, "NaN"),
        ({"guide": (np.ones((4, 2)), np.ones((3, 2)))}, "the guide has another number of vectors than 4"),
        ({"labels": np.full(4, 1.5)}, "outside 0 to 1"),
    ],
)
def test_invalid_batches_are_errors(changes: dict[str, object], words: str) -> None:
    with pytest.raises(DataError, match=words):
        make_batch(**changes)


all_settings = st.builds(
    LabSettings,
    temperature=st.floats(0.01, 10).map(lambda tau: float(f"{tau:.3g}")),
    symmetric=st.booleans(),
    partition=st.just("joint"),
    directions=st.just(())
    | st.lists(st.sampled_from(DIRECTIONS[1:]), unique=True).map(lambda more: ("query_to_doc", *more)),
    normalization=st.sampled_from(["l2", "l2_columns", "range_columns", "minmax_columns", "none"]),
    labeled_negatives=st.booleans(),
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
    st.builds(LabLink, pinned=st.tuples(st.integers(0, 15), st.integers(0, 15), st.sampled_from(SIDES))),
    st.builds(
        LabLink,
        watch=st.sampled_from(["bsc", "mse"]),
        second_loss=st.sampled_from(["", "mnrl", "triplet"]),
        margin=st.sampled_from([0.01, 0.1, 0.5, 2.0]),
        learn_temperature=st.booleans(),
        words=st.booleans(),
    ),
    st.lists(st.integers(0, 359), min_size=8, max_size=8).map(
        lambda angles: LabLink(source="circle", pairs=4, angles=tuple(angles))
    ),
)


@given(links)
@settings(max_examples=200, derandomize=True)
def test_a_link_round_trips(link: LabLink) -> None:
    query = link.to_query()
    assert lab_parameters({**query, "dataset": "sample"}) == query
    assert read_link(query) == (link, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in ("0", "-1", "nan", "inf", "1e9", "cold")),
        *(("pairs", value) for value in ("3", "99", "x")),
        ("source", "nowhere"),
        ("preset", "nope"),
        ("symmetric", "yes"),
        *(("directions", value) for value in ("", "all", "doc_to_query", "query_to_doc,query_to_query")),
        ("partition", "shared"),
        ("normalization", "l3"),
        ("threshold", "2"),
        ("pin", "99-1"),
        ("pin", "x"),
        ("pin", "q1-d3"),
        ("watch", "nope"),
        ("watch", "softmax"),
        ("second_loss", "nope"),
        ("learn_temperature", "yes"),
        *(("margin", value) for value in ("0", "11", "nan", "wide")),
        ("angles", "0,1,2"),
        ("angles", "0,1,2,3,4,5,6,-7"),
        ("texts", "{"),
        ("texts", "[1]"),
        ("texts", f'[["a", "b", {"9" * 400}], ["c", "d", 1], ["e", "f", 1], ["g", "h", 1]]'),
        ("texts", '[["\\ud800", "b", 1], ["c", "d", 1], ["e", "f", 1], ["g", "h", 1]]'),
        ("angles", ",".join(["9" * 5000] * 8)),
        ("pin", f"{'9' * 5000}-1"),
        ("first", "0"),
    ],
)
def test_an_invalid_parameter_of_a_link_is_one_error_and_gets_its_default(name: str, value: str) -> None:
    link, errors = read_link({name: value, "seed": "7"})
    assert link == LabLink(seed=7)
    assert len(errors) == 1
    assert name in errors[0]


@pytest.mark.parametrize("prefix", ["", "b_"])
def test_a_setting_that_contradicts_an_earlier_one_is_one_error_and_gets_its_default(prefix: str) -> None:
    query = {f"{prefix}debiased_prior": "0.05", f"{prefix}normalization": "none", "compare": "1"}
    link, errors = read_link(query)
    raw = LabSettings(normalization="none")
    assert link == (LabLink(compare=raw) if prefix else LabLink(settings=raw, compare=LabSettings()))
    assert len(errors) == 1
    assert "the estimate needs cosines" in errors[0]
    assert f"the link's {prefix}debiased_prior is not used" in errors[0]


@pytest.mark.parametrize("symmetric", ["0", "1"])
def test_an_old_link_of_one_or_two_directions_has_their_loss(symmetric: str) -> None:
    settings = read_link({"symmetric": symmetric})[0].settings
    named = LabSettings(directions=DIRECTIONS[: 1 + int(symmetric)])
    batch = preset_batch("confusable")
    assert explain_batch(batch, settings).total == explain_batch(batch, named).total


def test_texts_too_long_for_a_link_are_left_out() -> None:
    link = LabLink(source="typed", typed=(("a" * 2000, "b", 1.0),))
    assert not link.fits_in_link
    assert "texts" not in link.to_query()


@pytest.mark.parametrize("hardness", ["hard_negatives", "all_negatives"])
def test_a_link_with_weights_of_a_column_of_negatives_is_reported(hardness: str) -> None:
    link, errors = read_link({"hardness": hardness, "mask": "self", "mask_margin_kind": "relative"})
    assert errors == [
        f"hardness is {hardness}; a batch of the lab has no column of negatives, so it takes none or "
        "in_batch_negatives; the link's hardness is not used"
    ]
    assert (link.settings.hardness, link.settings.mask_margin_kind) == ("none", "relative")
