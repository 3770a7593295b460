"""Embeddings: both maps of a run, the texts picked on them, and neighbours that come from the embedding space."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from bsc_core.projection import make_map, nearest
from bsc_core.runs import Run, RunStore
from pages.ui import map_job, map_view, run_data, text_facts

MARKUP = "<b>bread</b> **bake** $x$ 0"


def shown(app: AppTest) -> str:
    return "\n".join(
        str(element.value) for kind in ("markdown", "text", "caption", "subheader") for element in app.get(kind)
    )


@pytest.fixture
def mapped(finished: Run) -> Run:
    """The finished run with its UMAP already on disk, in the place where the page looks for it."""
    data, models = run_data.rows_of(finished), run_data.models(finished)
    rows = map_view.shown_rows(data)
    files = [Path(str(model.vectors().filename)) for model in models]
    folder = map_job.folder_for(finished.folder / "maps", files, rows, "umap", map_view.SEED)
    make_map(folder, files, rows=rows, method="pca")
    return finished


def figure(app: AppTest) -> dict[str, object]:
    [chart] = app.get("plotly_chart")
    made: dict[str, object] = json.loads(chart.proto.spec)
    return made


def test_a_run_shows_both_maps_and_how_far_to_trust_them(visit: Callable[..., AppTest], mapped: Run) -> None:
    app = visit("embeddings", run=mapped.id)
    assert not app.exception
    titles = [note["text"] for note in figure(app)["layout"]["annotations"]]
    assert titles == ["Before training", "After training"]
    assert "are also its nearest on the map" in shown(app)
    assert "neighbours changed most" in shown(app)


def test_pca_needs_no_child_process(pages: type, finished: Run) -> None:
    app = pages.closed("embeddings", run=finished.id)
    app.session_state["embeddings.method"] = "pca"
    app.run()
    assert not list((finished.folder / "maps").glob("*"))
    assert not app.exception
    assert figure(app)["layout"]["annotations"]


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
    assert "<b>bread" not in json.dumps(figure(app))
    assert not any(
        "<b>bread" in element.value for kind in ("markdown", "caption", "subheader") for element in app.get(kind)
    )


@pytest.mark.parametrize("colour", ["side", "label", "topic", "split", "group"])
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


def test_a_map_made_once_is_found_again_and_a_new_array_makes_another(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.eye(8, dtype=np.float32))
    rows = np.arange(8, dtype=np.int32)
    folder = map_job.folder_for(tmp_path, [path], rows, "pca", 0)
    assert map_job.finished(folder) is None
    make_map(folder, [path], rows=rows, method="pca")
    made = map_job.finished(folder)
    assert made is not None
    assert made.points[0].shape == (8, 2)
    np.save(path, np.eye(9, dtype=np.float32))
    assert map_job.folder_for(tmp_path, [path], rows, "pca", 0) != folder


def test_a_child_process_makes_the_map(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.npy", np.arange(20, dtype=np.int32)
    np.save(path, np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32))
    folder = map_job.folder_for(tmp_path, [path], rows, "pca", 0)
    map_job.begin(folder, [path], rows, "pca", 0)
    assert map_job._child(str(folder)).wait(timeout=60) == 0
    made = map_job.finished(folder)
    assert made is not None
    assert made.rows.tolist() == rows.tolist()
    assert map_job.progress(folder)["error"] is None


def test_a_child_that_fails_says_why_and_can_be_tried_again(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.npy", np.arange(4, dtype=np.int32)
    np.save(path, np.full((4, 3), np.nan, dtype=np.float32))
    folder = map_job.folder_for(tmp_path, [path], rows, "umap", 0)
    map_job.begin(folder, [path], rows, "umap", 0)
    assert map_job._child(str(folder)).wait(timeout=60) == 1
    assert "vector 0" in map_job.progress(folder)["error"]
    map_job.again(folder)
    assert not (folder / "progress.json").exists()


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
    assert [note["text"] for note in figure(app)["layout"]["annotations"]] == ["Before training"]


def test_past_the_limit_texts_of_pairs_come_first(finished: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_view, "MOST_TEXTS", 12)
    rows = map_view.shown_rows(run_data.rows_of(finished))
    assert len(rows) == 12
    assert (np.diff(rows) > 0).all()


def test_without_a_run_the_encoder_alone_is_mapped(
    pages: type, runs: RunStore, tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BSC_CACHE", str(tmp_path / "cache"))
    app = pages.closed("embeddings")
    app.session_state["context"] = {"encoder": str(tiny_encoder)}
    app.session_state["embeddings.method"] = "pca"
    app.run()
    assert not app.exception
    assert len(figure(app)["layout"]["annotations"]) == 1
    assert "Draw a lasso" in shown(app)
