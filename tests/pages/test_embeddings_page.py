"""Embeddings: both maps of a run, the texts picked on them, and neighbours that come from the embedding space."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.evaluation import search_errors
from bsc_core.figures.maps import pack
from bsc_core.projection import nearest
from bsc_core.runs import Run, RunStore
from pages.ui import map_atlas, map_canvas, map_frames, map_texts, map_view, run_data, text_facts
from tests.pages.mapped_runs import shown, view_of

MARKUP = "<b>bread</b> **bake** $x$ 0"


def picture(app: AppTest) -> dict[str, Any]:
    [canvas] = app.get("bidi_component")
    made: dict[str, Any] = json.loads(canvas.proto.mixed.json)
    return made


def test_a_run_shows_both_maps_and_how_far_to_trust_them(visit: Callable[..., AppTest], mapped: Run) -> None:
    app = visit("embeddings", run=mapped.id)
    assert not app.exception
    assert picture(app)["names"] == ["Before training", "After training"]
    assert not picture(app)["moving"]
    assert "are also its nearest on the map" in shown(app)
    assert "neighbours changed most" in shown(app)


def test_pca_needs_no_child_process(pages: type, finished: Run) -> None:
    app = pages.closed("embeddings", run=finished.id)
    app.session_state["embeddings.method"] = "pca"
    app.run()
    assert not list((finished.folder / "maps").glob("*"))
    assert not app.exception
    assert picture(app)["count"] == len(run_data.rows_of(finished).texts)


def test_found_texts_are_listed_with_their_neighbours_in_embedding_space(pages: type, mapped: Run) -> None:
    app = pages.alone("embeddings", run=mapped.id)
    app.text_input(key="embeddings.find").set_value("bake").run()
    assert not app.exception
    assert "1 text picked" in shown(app)
    table = app.dataframe[0].value
    assert table["Text"].tolist() == [MARKUP]
    data = run_data.rows_of(mapped)
    place = data.texts.texts.index(MARKUP)
    for column, part in (("Nearest, before training", "before"), ("Nearest, after training", "after")):
        ids, _ = nearest(np.asarray(mapped.array(f"embeddings_{part}")), np.array([place]), 1)
        assert table[column].tolist() == [data.texts[int(ids[0, 0])]]


def test_a_text_that_looks_like_markup_stays_text(pages: type, mapped: Run) -> None:
    app = pages.alone("embeddings", run=mapped.id)
    assert not any(
        "<b>bread" in element.value for kind in ("markdown", "caption", "subheader") for element in app.get(kind)
    )


@pytest.mark.parametrize("colour", ["side", "label", "topic", "split", "group", "error"])
def test_each_colouring_draws(pages: type, mapped: Run, colour: str) -> None:
    app = pages.alone("embeddings", run=mapped.id)
    app.selectbox(key="embeddings.colour").set_value(colour).run()
    assert not app.exception


def test_picked_texts_can_be_let_go(pages: type, mapped: Run) -> None:
    app = pages.alone("embeddings", run=mapped.id)
    app.session_state[f"embeddings.picked.{mapped.id}"] = np.array([0, 3], dtype=np.int32)
    app.run()
    assert "2 texts picked" in shown(app)
    app.button(key="embeddings.clear").click().run()
    assert "texts picked" not in shown(app)


def test_topics_come_from_columns_without_a_role(finished: Run) -> None:
    data = run_data.rows_of(finished)
    topics = text_facts.topics(data)
    assert list(topics) == ["topic"]
    assert set(topics["topic"]) <= {"soup", "bread", "salt"}


def test_sides_labels_and_splits_agree_with_the_rows(finished: Run) -> None:
    data = run_data.rows_of(finished)
    sides, labels, splits = text_facts.sides(data), text_facts.labels(data), text_facts.splits(data)
    for name, part in data.parts.items():
        for query, document, positive in zip(part.query, part.document, part.positive, strict=True):
            assert sides[query] in ("query", "both")
            assert sides[document] in ("document", "both")
            assert labels[document] == "positive" if positive else labels[document] in ("positive", "negative")
            assert splits[query] == name


def test_files_that_changed_since_the_run_are_refused(finished: Run) -> None:
    from bsc_core.errors import RunError

    finished.write_json("texts", {"digest": "other", "count": 1})
    with pytest.raises(RunError, match="changed since"):
        run_data.rows_of(finished)


def test_a_run_that_measured_nothing_yet_sends_to_watch_it(pages: type, runs: RunStore, trained: Run) -> None:
    runs.create(trained.config(), "fresh")
    app = pages.alone("embeddings", run="fresh")
    assert not app.exception
    assert app.button(key="embeddings.wait").label == "Watch the run"


def test_a_run_that_only_measured_its_start_shows_one_map(pages: type, finished: Run) -> None:
    (finished.folder / "embeddings_after.npy").unlink()
    app = pages.closed("embeddings", run=finished.id)
    app.session_state["embeddings.method"] = "pca"
    app.run()
    assert not app.exception
    assert picture(app)["names"] == ["Before training"]


def test_without_a_run_the_encoder_alone_is_mapped(
    pages: type, runs: RunStore, tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BSC_CACHE", str(tmp_path / "cache"))
    app = pages.closed("embeddings")
    app.session_state["context"] = {"encoder": str(tiny_encoder)}
    app.session_state["embeddings.method"] = "pca"
    app.run()
    assert not app.exception
    assert len(picture(app)["names"]) == 1
    assert app.get("button_group")[1].proto.disabled
    assert "Draw a lasso" in shown(app)


def test_a_moving_map_goes_from_before_through_every_epoch(pages: type, mapped: Run) -> None:
    app = pages.closed("embeddings", run=mapped.id)
    app.session_state["embeddings.way"] = map_view.MOVING
    app.run()
    assert not app.exception
    sent = picture(app)
    best = mapped.read_json("result")["best_epoch"]
    names = [f"Epoch {epoch}{' (best)' if epoch == best else ''}" for epoch in (1, 2)]
    assert sent["names"] == ["Before training", *names]
    assert sent["moving"]
    assert len(sent["frames"]) == 3
    assert sent["trails"]
    assert f"Nearest, {names[-1].lower()}" in app.dataframe[0].value.columns


def test_another_run_on_the_same_texts_stands_beside_in_the_same_frame(
    pages: type, finished: Run, runs: RunStore
) -> None:
    shutil.copytree(finished.folder, runs.root / "other")
    app = pages.closed("embeddings", run=finished.id)
    app.session_state["embeddings.method"] = "pca"
    app.session_state[f"embeddings.models.beside.{finished.id}"] = ["before", "after", "other"]
    app.run()
    assert not app.exception
    first, last, other = (
        np.frombuffer(base64.b64decode(one), dtype="<u2").astype(int) for one in picture(app)["frames"]
    )
    assert np.abs(last - other).max() <= 2
    assert np.abs(first - last).max() > 100


def test_a_run_without_kept_epochs_moves_from_before_to_after(pages: type, finished: Run) -> None:
    shutil.rmtree(finished.folder / "vectors")
    app = pages.closed("embeddings", run=finished.id)
    app.session_state["embeddings.method"] = "pca"
    app.session_state["embeddings.way"] = map_view.MOVING
    app.run()
    assert not app.exception
    assert picture(app)["names"] == ["Before training", "After training"]


def test_errors_differ_by_model_and_agree_with_its_ranks(pages: type, mapped: Run) -> None:
    app = pages.closed("embeddings", run=mapped.id)
    app.session_state["embeddings.colour"] = map_view.ERROR
    app.run()
    assert not app.exception
    assert len(picture(app)["values"]) == 2
    view = view_of(mapped)
    tints = map_view.colours(view, map_view.ERROR, np.arange(len(view.data.texts), dtype=np.int32))
    vectors = np.asarray(mapped.array("embeddings_after"))
    assert tints[1].values == search_errors.search_errors([view.data.dev], None, vectors)


def test_colours_follow_the_threshold_and_the_split(mapped: Run) -> None:
    view = view_of(mapped)
    data, rows = view.data, np.arange(len(view.data.texts), dtype=np.int32)
    strict = replace(data, **{name: replace(part, threshold=1.0) for name, part in data.parts.items()})
    turned = replace(data, train=data.dev, dev=data.train)
    errors = []
    for changed in (data, strict, turned):
        seen = replace(view, data=changed)
        tints = {name: map_view.colours(seen, name, rows)[0].values for name in ("label", "split", map_view.ERROR)}
        assert tints["label"] == text_facts.labels(changed)
        assert tints["split"] == text_facts.splits(changed)
        assert tints[map_view.ERROR] == text_facts.errors(changed, view.frames[0].at(None), None).values
        errors.append(tuple(tints[map_view.ERROR]))
    assert len(set(errors)) == 3


def test_neighbours_of_models_that_hold_some_texts_are_of_these(mapped: Run) -> None:
    mapped.write_array("vectors/texts", np.arange(0, 30, dtype=np.int32))
    for epoch in (1, 2):
        mapped.write_array(f"vectors/epoch-00{epoch}", np.asarray(mapped.array(f"vectors/epoch-00{epoch}"))[:30])
    view = view_of(mapped)
    view = view.showing(map_frames.moving(view))
    assert view.texts(1000).tolist() == list(range(30))
    for one, array in zip(view.ends, ("embeddings_before", "vectors/epoch-002"), strict=True):
        ids, _ = view.nearest(one, np.array([4, 9]), 5)
        assert np.array_equal(ids, nearest(np.asarray(mapped.array(array))[:30], np.array([4, 9]), 5)[0])
    assert map_texts.kept_counts(view, np.array([4, 9])).tolist() == [
        len(set(one) & set(two))
        for one, two in zip(*(view.nearest(end, np.array([4, 9]), 10)[0].tolist() for end in view.ends), strict=True)
    ]


def test_a_link_restores_the_way_and_the_colour(pages: type, mapped: Run) -> None:
    app = pages.alone("embeddings", run=mapped.id, **{"embeddings.way": "Moving", "embeddings.colour": "Split"})
    assert not app.exception
    assert picture(app)["moving"]
    assert "train" in [category[0] for category in picture(app)["categories"]]


def test_without_embedding_atlas_a_sentence_says_how_to_bring_it(
    pages: type, mapped: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_atlas, "find_spec", lambda name: None)
    app = pages.alone("embeddings", run=mapped.id)
    assert not app.exception
    assert map_atlas.EXTRA in shown(app)
    assert "embeddings.atlas" not in [toggle.key for toggle in app.toggle]


def test_the_atlas_takes_neighbours_of_the_embedding_space_along(mapped: Run) -> None:
    view = view_of(mapped)
    rows = view.texts(1000)
    table = map_atlas._neighbours(view, rows)
    ids, cosines = nearest(np.asarray(mapped.array("embeddings_after"))[rows], np.array([2]), map_atlas.NEIGHBOURS)
    assert table[2]["ids"] == ids[0].tolist()
    assert np.allclose(table[2]["distances"], 1 - cosines[0], atol=1e-5)


def test_a_pick_of_another_map_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = {"id": "old", "mask": pack(np.array([True, False, True]))}
    monkeypatch.setattr(map_canvas, "COMPONENT", lambda **_: {"picked": sent})
    picture_of = {"id": "new", "count": 3, "names": ["Before"]}
    texts = map_canvas.hover_texts(["a", "b", "c"])
    assert map_canvas.draw(picture_of, texts, key="k", label="l", moving=False) is None
    picked = map_canvas.draw({**picture_of, "id": "old"}, texts, key="k", label="l", moving=False)
    assert picked is not None
    assert picked.tolist() == [0, 2]
